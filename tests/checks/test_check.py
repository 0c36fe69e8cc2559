"""The oracle: a sound root is sound, each kind of damage is found and named, and nothing else is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import errors
from holdfast.app import App
from holdfast.backlog.folder import Backlog
from holdfast.checks import repair as repairing
from holdfast.checks.check import CheckReport, check
from holdfast.checks.repair import repair
from holdfast.domain.state import State
from holdfast.domain.task import TaskEvent
from holdfast.layout import Layout
from holdfast.ledgers.files import FileLedger
from holdfast.ledgers.reader import read_state
from holdfast.short_runs import accept_audit_loss
from holdfast.storage.journal.archive import archive_ended_runs
from holdfast.storage.journal.data_root import open_root
from holdfast.storage.journal.entry import Record
from holdfast.storage.journal.lock import live_owner
from holdfast.storage.journal.reader import Chain
from holdfast.testing.recorder import Recorder
from kit.audit import KEY, fill, read
from kit.disks import each_disk, record, scratch, some_disks
from kit.roots import short_run

SECRET = "a key for tests, not for anything else"
SECTIONS = [
    "chain",
    "tasks",
    "backlog",
    "attempts",
    "questions",
    "setups",
    "outbox",
    "deliveries",
    "pull_requests",
    "witnesses",
    "snapshots",
    "landings",
]
SECTIONS += ["intents", "idempotency", "closings", "blobs", "audit"]
PROJECTIONS = ["runtime/tasks.jsonl", "runtime/wal/uncommitted.idx.json", "runtime/wal/idempotency.jsonl"]
SECTION_OF = dict(zip(PROJECTIONS, ["tasks", "intents", "idempotency"], strict=True))


def build(repo: Path) -> Layout:
    """A root with a task in each folder, three runs (the first archived), a closed intent, a key, and an audit log."""
    repo.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(repo)], check=True)
    app = App.find(repo, environ={})
    app.init()
    backlog = Backlog(app.layout.backlog)
    added = [
        backlog.add(f"# {name}\ntitle: {name}\ngoal: do it\n".encode(), name)
        for name in ("waits", "works", "lands", "fails")
    ]
    added.append(backlog.add(b"title: from a tracker\ngoal: do it\n", "tracked", "issues"))
    # The clock of a file system is too coarse to tell their order.
    for second, found in enumerate(added, 1):
        os.utime(found.path, (second, second))
    with short_run(app) as session:
        ledger = session.ledger
        for name, event, outcome in (
            ("lands", TaskEvent.AGENT_REPORTS_SUCCESS, {}),
            ("fails", TaskEvent.AGENT_REPORTS_FAILURE, {"reason": "no luck"}),
        ):
            claim = ledger.claim("agent-1", name, lease_s=60)
            ledger.complete(claim, TaskEvent.AGENT_STARTS_WORK, "test", {})
            ledger.complete(claim, event, "test", outcome)
    with short_run(app) as session:
        ledger = session.ledger
        intent = Record("task_land_intent", {"task": "lands"}, committed=False)
        ref = ledger.append(ledger.epoch, [intent])[0]
        done = {"intent": {"run": ref.run, "seq": ref.seq, "entry_hash": ref.entry_hash}, "task": "lands"}
        moved = {"task": "lands", "event": TaskEvent.JANITOR_VERIFIED_AND_MERGED, "reason": "test"}
        ledger.append(ledger.epoch, [Record("task_land_confirmed", done)])
        ledger.append(ledger.epoch, [Record("task_closed", {**moved, "outcome": {"commit": "c0ffee"}})])
        flagged = {"task": "waits", "not_before": 5.0, "idempotency_key": "request-1"}
        ledger.append(ledger.epoch, [Record("task_flagged", flagged)])
    archive_ended_runs(app.layout.wal)
    with short_run(app) as session:
        claim = session.ledger.claim("agent-2", "works", lease_s=60)
        session.ledger.complete(claim, TaskEvent.AGENT_STARTS_WORK, "test", {})
    # One with days and records that can be named here, in place of what these runs have just put on record.
    shutil.rmtree(app.layout.audit)
    fill(app.layout.audit, 3, 2, seal_after=(0,))
    accept_audit_loss(app, lambda line: None)
    return app.layout


@pytest.fixture(scope="module", autouse=True)
def key() -> Iterator[None]:
    """The key that the audit log here is signed with is also that of this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_AUDIT_KEY", SECRET)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repo = tmp_path_factory.mktemp("whole") / "repo"
    build(repo)
    return repo


@pytest.fixture
def layout(whole: Path, tmp_path: Path) -> Layout:
    return open_root(shutil.copytree(whole, tmp_path / "repo") / ".sdd")


def judge(layout: Layout, **options: Any) -> CheckReport:
    return check(layout, Backlog(layout.backlog), KEY, repo=layout.root.parent, **options)


def findings(layout: Layout) -> dict[str, list[str]]:
    return {section.name: section.findings for section in judge(layout).sections if section.findings}


def pending(layout: Layout) -> dict[str, list[str]]:
    return {section.name: section.pending for section in judge(layout).sections if section.pending}


def notes(layout: Layout, name: str) -> list[str]:
    return next(section.notes for section in judge(layout).sections if section.name == name)


def run_files(layout: Layout) -> dict[str, bytes]:
    return {file.run: file.path.read_bytes() for file in Chain(layout.wal).runs()}


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def holdfast(repo: Path, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "HOLDFAST_AUDIT_KEY": SECRET, **environ}
    asked = [sys.executable, "-m", "holdfast", *command]
    return subprocess.run(asked, cwd=repo, env=variables, capture_output=True, text=True)


# -- sound ------------------------------------------------------------------------------------------------------------


def test_a_sound_root_is_sound_and_says_what_was_counted(layout: Layout) -> None:
    before = content(layout.root)
    report = judge(layout)
    assert report.sound
    assert [section.name for section in report.sections] == SECTIONS
    assert all(section.findings == section.notes == [] for section in report.sections), report
    counted = {section.name: section.counted for section in report.sections}
    assert counted["chain"]["runs"] == 4 and counted["chain"]["archived"] == 1 and counted["chain"]["torn"] == 0
    assert counted["tasks"] == {"tasks": 5}
    assert counted["backlog"] == {"files": 5, "new": 0, "problems": 0}
    assert counted["intents"] == {"intents": 1, "open": 0}
    assert counted["idempotency"] == {"keys": 2}
    assert counted["closings"] == {"intents_closed": 1, "tasks_closed": 1, "landings": 1}
    assert counted["blobs"] == {"referenced": 5}
    assert counted["audit"] == {"days": 3, "records": 8, "seals": 2, "torn": 0}
    assert content(layout.root) == before, "a check writes nothing"


def test_an_empty_root_is_sound(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    app = App.find(tmp_path, environ={})
    app.init()
    assert judge(app.layout).sound
    assert repair(app.layout, Backlog(app.layout.backlog)).rebuilt == []
    assert judge(app.layout).sound


def test_a_check_of_the_chain_alone_looks_at_nothing_else(layout: Layout) -> None:
    _first_blob(layout).unlink()
    assert [section.name for section in judge(layout, chain_only=True).sections] == ["chain"]
    assert judge(layout, chain_only=True).sound and not judge(layout).sound


# -- each damage is found, and nothing else ---------------------------------------------------------------------------


def _newest(layout: Layout) -> Path:
    return Chain(layout.wal).runs()[-1].path


def _cut_the_last_line(layout: Layout) -> None:
    lines = _newest(layout).read_bytes().splitlines(keepends=True)
    _newest(layout).write_bytes(b"".join(lines[:-1]))


def _first_blob(layout: Layout) -> Path:
    return layout.cas / (digest := read_state(layout)[0].tasks["lands"].definition)[:2] / digest


def _resign(path: Path, old: bytes, new: bytes) -> None:
    """Edits a projection as somebody would who knows its format: its own hash fits again."""
    import hashlib

    first, _, body = path.read_bytes().partition(b"\n")
    signed = first.rpartition(b',"sha256":"')[0]
    assert old in signed + body
    signed, body = signed.replace(old, new), body.replace(old, new)
    digest = hashlib.sha256(signed + body).hexdigest().encode()
    path.write_bytes(signed + b',"sha256":"' + digest + b'"}\n' + body)


def _add_an_open_intent(layout: Layout) -> None:
    entry = next(entry for _, entry in Chain(layout.wal).entries() if not entry.committed)
    listed = json.dumps([{"run": Chain(layout.wal).runs()[1].run, "entry": msgspec.to_builtins(entry)}]).encode()
    _resign(layout.uncommitted, b'"open":[]', b'"open":' + listed)


DAMAGES: dict[str, tuple[Callable[[Layout], object], str, str]] = {
    "old run flipped": (lambda at: flip(Chain(at.wal).runs()[1].path, 300), "chain", "damaged at"),
    "archived run flipped": (lambda at: flip(Chain(at.wal).runs()[0].path, 90), "chain", "archive"),
    "run removed": (lambda at: Chain(at.wal).runs()[1].path.unlink(), "chain", "a run is missing or added"),
    "archived run removed": (lambda at: Chain(at.wal).runs()[0].path.unlink(), "chain", "a run is missing or added"),
    "newest run removed": (lambda at: _newest(at).unlink(), "chain", "on which the checkpoint stands, is missing"),
    "newest run cut": (_cut_the_last_line, "chain", "on which the checkpoint stands, is missing or another"),
    "tasks damaged": (lambda at: flip(at.tasks, -5), "tasks", "SHA-256"),
    "tasks edited": (lambda at: _resign(at.tasks, b'"IN_PROGRESS"', b'"OPEN"'), "tasks", "its line 4 is not"),
    "tasks renamed": (lambda at: _resign(at.tasks, b'{"id":"tracked"', b'{"id":"x"'), "tasks", "its line 7 is not"),
    "index damaged": (lambda at: flip(at.uncommitted, 3), "intents", "SHA-256"),
    "index edited": (lambda at: _resign(at.uncommitted, b'"open":[]', b'"open":[1]'), "intents", "does not read"),
    "index with an intent too many": (_add_an_open_intent, "intents", "its open intents are not"),
    "keys damaged": (lambda at: at.idempotency.write_bytes(b""), "idempotency", "SHA-256"),
    "keys edited": (lambda at: _resign(at.idempotency, b"request-1", b"request-2"), "idempotency", "its line 3 is not"),
    "blob deleted": (lambda at: _first_blob(at).unlink(), "blobs", "a definition of lands: There is no blob"),
    "blob flipped": (lambda at: flip(_first_blob(at), 1), "blobs", "does not hold the bytes its name promises"),
    "audit line edited": (
        lambda at: (path := at.audit / "2026-11-15.jsonl").write_bytes(path.read_bytes().replace(b"0.1", b"0.7")),
        "audit", "2026-11-15.jsonl, line 2: edited",
    ),
    "seal edited": (lambda at: next(at.seals.iterdir()).write_bytes(b"{}\n"), "audit", "does not end as a seal does"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_is_found_and_named_and_nothing_else_is(layout: Layout, damage: str) -> None:
    do, section, words = DAMAGES[damage]
    do(layout)
    found = findings(layout)
    assert list(found) == [section], found
    assert len(found[section]) == 1 and words in found[section][0], found


# A start puts a file where its task's state says, whatever took it elsewhere.
LEFT: dict[str, tuple[Callable[[Layout], object], str, str]] = {
    "file moved": (
        lambda at: (at.backlog_closed / "lands.yaml").rename(at.backlog_open / "lands.yaml"),
        "backlog", "stands in open, and lands is closed, which belongs in closed",
    ),
    "file in two folders": (
        lambda at: shutil.copy(at.backlog_claimed / "works.yaml", at.backlog_open / "works.yaml"),
        "backlog", "stands in open and claimed, not in claimed",
    ),
    "closed file deleted": (lambda at: (at.backlog_closed / "lands.yaml").unlink(), "backlog", "missing from closed"),
    "block edited": (
        lambda at: (path := at.backlog_closed / "lands.yaml").write_bytes(
            path.read_bytes().replace(b"c0ffee", b"decaf")
        ),
        "backlog", "does not show what the journal says of lands",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", LEFT)
def test_a_file_that_lags_behind_the_journal_is_pending_until_the_next_start(layout: Layout, what: str) -> None:
    do, section, words = LEFT[what]
    do(layout)
    report = judge(layout)
    assert report.sound and report.pending and findings(layout) == {}
    assert list(pending(layout)) == [section]
    assert len(pending(layout)[section]) == 1 and words in pending(layout)[section][0]
    done = holdfast(layout.root.parent, "check")
    assert done.returncode == 0 and done.stdout.splitlines()[-1].startswith("Sound; the next start has 1 thing to")
    with short_run(App.find(layout.root.parent, environ={})):
        pass
    assert pending(layout) == findings(layout) == {}


def test_a_missing_file_whose_text_is_lost_too_is_a_finding(layout: Layout) -> None:
    (layout.backlog_closed / "lands.yaml").unlink()
    _first_blob(layout).unlink()
    assert set(findings(layout)) == {"backlog", "blobs"} and pending(layout) == {}


@pytest.mark.parametrize("name", PROJECTIONS)
def test_a_missing_projection_is_sound(layout: Layout, name: str) -> None:
    (layout.root / name).unlink()
    assert judge(layout).sound


def test_a_projection_of_another_version_is_reported_and_sound(layout: Layout) -> None:
    _resign(layout.tasks, b'"fold_version":%d' % State.version, b'"fold_version":999')
    assert judge(layout).sound
    assert "fold version 999, of another Holdfast" in notes(layout, "tasks")[0]


def test_torn_lines_are_noted_and_sound(layout: Layout) -> None:
    with _newest(layout).open("ab") as file:
        file.write(b'{"seq":99,"prev')
    assert judge(layout).sound
    assert "a crash tore 15 bytes" in notes(layout, "chain")[0]


def test_changes_of_people_to_their_files_are_noted_and_sound(layout: Layout) -> None:
    (layout.backlog_open / "waits.yaml").unlink()
    (layout.backlog_open / "fresh.yaml").write_text("title: fresh\ngoal: do it\n")
    (layout.backlog_open / "broken.yaml").write_text("title: [\n")
    report = judge(layout)
    section = next(section for section in report.sections if section.name == "backlog")
    assert report.sound and section.counted == {"files": 5, "new": 1, "problems": 1}
    assert any("open/broken.yaml:" in note for note in section.notes)
    assert any("the task waits was deleted, which cancels it" in note for note in section.notes)


def test_a_checkout_that_took_files_away_is_reported_and_nothing_is_said_to_be_deleted(layout: Layout) -> None:
    repo = layout.root.parent
    git = ["git", "-C", str(repo), "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "before"], check=True)
    subprocess.run([*git, "add", "-f", str(layout.backlog_open)], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "tasks"], check=True)
    subprocess.run([*git, "checkout", "-q", "HEAD~1"], check=True)
    assert judge(layout).sound
    [note] = notes(layout, "backlog")
    assert "a checkout took this file away" in note and "holdfast cancel waits" in note


def test_an_edit_of_a_closed_task_is_reported_and_counts_for_nothing(layout: Layout) -> None:
    path = layout.backlog_closed / "lands.yaml"
    path.write_text(path.read_text().replace("do it", "do it otherwise"))
    edited = layout.backlog_open / "waits.yaml"
    edited.write_text(edited.read_text().replace("do it", "do it otherwise"))
    assert judge(layout).sound
    [note] = notes(layout, "backlog")
    assert str(path) in note and "counts for nothing" in note


def test_a_journal_that_is_missing_beside_closed_files_is_reported(layout: Layout) -> None:
    for path in [*layout.wal.rglob("*.jsonl*"), layout.uncommitted, layout.tasks, layout.lock]:
        path.unlink(missing_ok=True)
    assert any("metrics/position.json" in words for words in findings(layout)["witnesses"])
    layout.metrics_position.unlink()
    shutil.rmtree(layout.audit)
    assert judge(layout).sound
    assert any("there is no journal" in note and "imports 2 files" in note for note in notes(layout, "backlog"))


@pytest.mark.parametrize("place", ["backlog_open", "backlog_failed"])
def test_a_second_file_of_a_task_hides_no_drift(layout: Layout, place: str) -> None:
    file, other = layout.backlog_closed / "lands.yaml", getattr(layout, place) / "copy.yaml"
    other.write_text("id: lands\ngoal: another text\n")
    assert judge(layout).sound, "one is as it must be"
    [*both, to_do] = notes(layout, "backlog")
    assert len(both) == 2 and f"into {file}, then type `rm {other}`" in to_do
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"c0ffee", b"decaf"))
    assert "does not show what the journal says of lands" in findings(layout)["backlog"][0]
    file.write_bytes(whole)
    file.rename(layout.backlog_open / "lands.yaml")
    [found] = findings(layout)["backlog"]
    assert "lands" in found and "closed" in found
    repaired = repair(layout, Backlog(layout.backlog))
    assert repaired.moved == [] and "Several files claim to be the task 'lands'" in repaired.left[0]
    other.unlink()
    assert repair(layout, Backlog(layout.backlog)).moved == ["lands"] and judge(layout).sound


def test_a_section_that_could_not_be_checked_is_never_called_ok(layout: Layout) -> None:
    flip(Chain(layout.wal).runs()[1].path, 300)
    by_name = {section.name: section for section in judge(layout).sections}
    for name in ("tasks", "backlog", "intents", "idempotency", "closings", "blobs"):
        assert "journal" in by_name[name].not_checked, name
    assert by_name["audit"].not_checked == ""
    verdicts = {line.split()[0]: line for line in holdfast(layout.root.parent, "check").stdout.splitlines()}
    assert "not checked" in verdicts["tasks"] and "not checked" in verdicts["blobs"] and " ok " in verdicts["audit"]


def test_a_folder_that_cannot_be_read_is_a_finding_and_stops_no_other_section(layout: Layout) -> None:
    shutil.rmtree(layout.backlog_issues)
    layout.backlog_issues.write_bytes(b"not a folder")
    report = judge(layout)
    assert [section.name for section in report.sections] == SECTIONS and not report.sound
    [found] = findings(layout)["backlog"]
    assert found.startswith("not checked: ") and str(layout.backlog_issues) in found


def test_an_audit_log_that_is_missing_is_reported(layout: Layout) -> None:
    shutil.rmtree(layout.audit)
    section = judge(layout).sections[-1]
    assert str(layout.audit) in section.not_checked and "which the journal has noted" in section.findings[0]


def test_without_the_key_it_says_what_was_not_checked(layout: Layout) -> None:
    report = check(layout, Backlog(layout.backlog), None)
    assert report.sound and "signatures were not checked" in report.sections[-1].notes[0]


def test_a_key_that_was_executed_twice_is_a_finding(layout: Layout) -> None:
    with FileLedger.open(layout) as ledger:
        again = {"task": "waits", "idempotency_key": "request-1"}
        ledger.append(ledger.epoch, [Record("task_flagged", again)])
    found = findings(layout)
    assert list(found) == ["idempotency"] and "'request-1' of task_flagged was executed by" in found["idempotency"][0]


def test_a_task_that_landed_twice_is_a_finding(layout: Layout) -> None:
    with FileLedger.open(layout) as ledger:
        ref = ledger.append(ledger.epoch, [Record("task_land_intent", {"task": "lands"}, committed=False)])[0]
        done = {"intent": {"run": ref.run, "seq": ref.seq, "entry_hash": ref.entry_hash}, "task": "lands"}
        ledger.append(ledger.epoch, [Record("task_land_confirmed", done)])
    found = findings(layout)
    assert list(found) == ["closings"] and "lands has a second task_land_confirmed" in found["closings"][0]


# -- beside an owner --------------------------------------------------------------------------------------------------

OWNER = """
import os, sys, time
from pathlib import Path
from holdfast.domain.state import State
from holdfast.domain.task import TaskEvent
from holdfast.storage.journal.archive import archive_ended_runs
from holdfast.storage.journal.entry import Record
from holdfast.storage.journal.data_root import open_root
from kit.roots import project
from holdfast.ledgers import files
from holdfast.backlog.folder import Backlog

files.CHECKPOINT_EVERY = 7
layout, mode = open_root(Path(sys.argv[1])), sys.argv[2]
backlog = Backlog(layout.backlog)

def work(ledger):
    ref = ledger.append(ledger.epoch, [Record("task_spawn_intent", {"task": "tracked"}, committed=False)])[0]
    done = {"intent": {"run": ref.run, "seq": ref.seq, "entry_hash": ref.entry_hash}, "task": "tracked"}
    claim = ledger.claim("agent-3", "tracked", lease_s=60)
    project(ledger, backlog)
    ledger.append(ledger.epoch, [Record("task_spawn_failed", done)])
    ledger.complete(claim, TaskEvent.UNCLAIM, "test", {})
    project(ledger, backlog)

while mode == "short":
    with files.FileLedger.open(layout) as ledger:
        work(ledger)
        archive_ended_runs(layout.wal)
    if ledger.epoch == 5:
        print("ready", flush=True)
ledger = files.FileLedger.open(layout)
if mode != "busy":
    ledger.append(ledger.epoch, [Record("task_spawn_intent", {"task": "waits"}, committed=False)])
    ledger.claim("agent-3", "tracked", lease_s=60)
    print("ready", flush=True)
    if mode == "dies":
        os._exit(1)
    time.sleep(600)
print("ready", flush=True)
while True:
    work(ledger)
"""


def start_owner(layout: Layout, mode: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    asked = [sys.executable, "-c", OWNER, str(layout.root), mode]
    owner = subprocess.Popen(asked, stdout=subprocess.PIPE, text=True, env=environ)
    assert owner.stdout is not None and owner.stdout.readline() == "ready\n"
    return owner


def test_an_intent_that_a_dead_owner_left_open_is_pending_and_the_next_session_settles_it(layout: Layout) -> None:
    start_owner(layout, "dies").wait()
    assert findings(layout) == {}
    found = pending(layout)
    assert list(found) == ["backlog", "intents", "audit"]
    assert "task_spawn_intent of task waits" in found["intents"][0] and "holdfast run" in found["intents"][0]
    assert "tracked is claimed, which belongs in claimed" in found["backlog"][0]
    with short_run(App.find(layout.root.parent, environ={})):
        pass
    assert findings(layout) == pending(layout) == {}


def test_running_work_of_a_living_owner_is_no_finding(layout: Layout) -> None:
    owner = start_owner(layout, "sleeps")
    try:
        found = live_owner(layout.lock)
        assert found is not None and found.pid == owner.pid
        assert findings(layout) == pending(layout) == {}
        assert "in flight, perhaps" in notes(layout, "backlog")[0]
        flip(layout.tasks, -5)
        assert list(findings(layout)) == ["tasks"], "damage is damage, whether or not a run is alive"
        with pytest.raises(errors.Locked):
            repair(layout, Backlog(layout.backlog))
    finally:
        owner.kill()
        owner.wait()
    assert set(findings(layout)) == {"tasks"} and set(pending(layout)) == {"backlog", "intents", "audit"}
    report = json.loads(holdfast(layout.root.parent, "check", "--json").stdout)
    assert not report["sound"] and not report["pending"], "what is not sound is not only pending"


@pytest.mark.parametrize("mode", ["busy", "short"])
def test_a_root_is_sound_at_every_check_while_a_writer_works(layout: Layout, mode: str) -> None:
    owner = start_owner(layout, mode)
    try:
        counts: list[int] = []
        patience = time.monotonic() + 60
        while len(counts) < 25 or (counts[-1] <= counts[0] + 25 and time.monotonic() < patience):
            report = judge(layout)
            assert report.sound, [section.findings for section in report.sections]
            counts.append(report.sections[0].counted["entries"])
        assert owner.poll() is None and counts[-1] > counts[0] + 25, "the writer was at work meanwhile"
    finally:
        owner.kill()
        owner.wait()


# -- repair -----------------------------------------------------------------------------------------------------------


def _damage(path: Path, how: str) -> None:
    if how == "deleted":
        path.unlink()
    else:
        flip(path, -5)


@pytest.mark.parametrize("how", ["deleted", "flipped"])
@pytest.mark.parametrize("name", PROJECTIONS)
def test_repair_rebuilds_each_checkpoint_file_equal(layout: Layout, name: str, how: str) -> None:
    path, journal = layout.root / name, run_files(layout)
    before = path.read_bytes()
    _damage(path, how)
    damaged = path.read_bytes() if path.exists() else None
    done = repair(layout, Backlog(layout.backlog))
    assert path.read_bytes() == before and run_files(layout) == journal
    assert judge(layout).sound and (done.moved, done.put_back, done.left) == ([], [], [])
    if damaged is None:
        assert done.quarantined == [] and list(layout.quarantine.iterdir()) == []
    else:
        kept = Path(done.quarantined[0])
        assert kept.read_bytes() == damaged
        assert "SHA-256" in kept.with_name(f"{kept.name}.reason.txt").read_text()


@pytest.mark.parametrize("task", ["waits", "works", "lands", "fails"])
@pytest.mark.parametrize("other", ["open", "claimed", "closed", "failed"])
@pytest.mark.parametrize("how", ["moved", "copied"])
def test_repair_puts_each_file_back_into_its_folder_equal(layout: Layout, task: str, other: str, how: str) -> None:
    folder = {"waits": "open", "works": "claimed", "lands": "closed", "fails": "failed"}[task]
    before, journal = content(layout.backlog), run_files(layout)
    if folder == other:
        return
    (shutil.move if how == "moved" else shutil.copy)(
        layout.backlog / folder / f"{task}.yaml", layout.backlog / other / f"{task}.yaml"
    )
    assert list(pending(layout)) == ["backlog"]
    assert repair(layout, Backlog(layout.backlog)).moved == [task]
    assert content(layout.backlog) == before and run_files(layout) == journal and judge(layout).sound


@pytest.mark.parametrize("task", ["works", "lands"])
def test_repair_puts_a_deleted_file_back_from_its_blob(layout: Layout, task: str) -> None:
    before, journal = content(layout.backlog), run_files(layout)
    next(layout.backlog.glob(f"*/{task}.yaml")).unlink()
    assert repair(layout, Backlog(layout.backlog)).put_back == [task]
    assert content(layout.backlog) == before and run_files(layout) == journal and judge(layout).sound


def test_repair_refuses_a_damaged_journal_and_changes_nothing(layout: Layout) -> None:
    flip(Chain(layout.wal).runs()[1].path, 300)
    flip(layout.tasks, -5)
    (layout.backlog_closed / "lands.yaml").unlink()
    before = content(layout.root)
    with pytest.raises(errors.JournalCorrupt):
        repair(layout, Backlog(layout.backlog))
    assert {**content(layout.root), "runtime/lock": b""} == {**before, "runtime/lock": b""}


def test_a_file_that_cannot_be_repaired_is_reported_and_stops_no_other(layout: Layout) -> None:
    (layout.backlog_closed / "lands.yaml").unlink()
    (layout.backlog_claimed / "works.yaml").unlink()
    _first_blob(layout).unlink()
    done = repair(layout, Backlog(layout.backlog))
    assert done.put_back == ["works"] and len(done.left) == 1 and done.left[0].startswith("lands: There is no blob")


def test_a_run_goes_on_after_a_repair(layout: Layout) -> None:
    flip(layout.tasks, -5)
    repair(layout, Backlog(layout.backlog))
    with FileLedger.open(layout) as ledger:
        assert ledger.found.scanned == "" and ledger.state.tasks["works"].claim.agent == "agent-2"
    assert judge(layout).sound


@pytest.mark.parametrize("moments", [40, pytest.param(0, marks=pytest.mark.crash)], ids=["some", "all"])
def test_a_power_cut_in_a_repair_leaves_what_another_repair_mends(whole: Path, moments: int) -> None:
    # That a repair is put on record, in audit/, is no part of what it mends.
    unchanged = content(whole / ".sdd").items()
    sound = {name: data for name, data in unchanged if not name.startswith(("audit/20", "runtime/lock"))}
    with scratch() as base:
        root = shutil.copytree(whole / ".sdd", base / "root")
        flip(root / PROJECTIONS[0], -5)
        shutil.move(root / "backlog/closed/lands.yaml", root / "backlog/open/lands.yaml")
        seen = 0
        recorded = record(root, lambda recorder: _repaired(Layout(root), recorder))
        for _, cut in some_disks(recorded, moments) if moments else each_disk(recorded, limit=6):
            layout = open_root(cut)
            repair(layout, Backlog(layout.backlog))
            after = content(cut)
            assert {name: after[name] for name in sound} == sound
            assert list(read(layout.audit, KEY))[-1].event == "repair_done"
            kept = [path for path in layout.quarantine.iterdir() if path.name[0] != "." and path.suffix != ".txt"]
            assert all(path.with_name(f"{path.name}.reason.txt").exists() for path in kept)
            seen += 1
    assert seen > 10


def _repaired(layout: Layout, recorder: Recorder) -> None:
    repairing.repair(layout, Backlog(layout.backlog))


# -- the commands -----------------------------------------------------------------------------------------------------


def test_check_prints_a_line_for_each_section_and_its_exit_code_tells(layout: Layout) -> None:
    repo = layout.root.parent
    done = holdfast(repo, "check")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [*SECTIONS, "Sound."]
    assert all(line.split()[1] == "ok" for line in lines[:-1])

    shutil.move(layout.backlog_closed / "lands.yaml", layout.backlog_open / "lands.yaml")
    done = holdfast(repo, "check", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["sound"] is report["pending"] is True
    assert [section["name"] for section in report["sections"] if section["pending"]] == ["backlog"]
    flip(layout.tasks, -5)
    done = holdfast(repo, "check", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 4 and report["sound"] is False
    assert [section["name"] for section in report["sections"] if section["findings"]] == ["tasks"]
    done = holdfast(repo, "check")
    assert done.returncode == 4 and "check --repair" in done.stdout and "Not sound: 1 finding." in done.stdout
    assert holdfast(repo, "check", "--chain").returncode == 0

    done = holdfast(repo, "check", "--repair")
    assert done.returncode == 0 and "moved: lands\n" in done.stdout and done.stdout.endswith("Sound.\n")
    assert holdfast(repo, "check", "--chain", "--repair").returncode == 2


def test_check_makes_no_key(layout: Layout, tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "HOLDFAST_AUDIT_KEY"}
    asked = [sys.executable, "-m", "holdfast", "check"]
    environ["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    done = subprocess.run(asked, cwd=layout.root.parent, env=environ, capture_output=True, text=True)
    assert done.returncode == 0 and "signatures were not checked" in done.stdout
    assert not (tmp_path / "config").exists()


def test_seal_then_prove_then_verify_without_key_or_repository(layout: Layout, tmp_path: Path) -> None:
    repo, journal = layout.root.parent, run_files(layout)
    for path in sorted(layout.seals.iterdir())[1:]:
        path.unlink()
    assert holdfast(repo, "prove", "2026-11-16", "1").returncode == 5
    done = holdfast(repo, "seal", "--json")
    assert done.returncode == 0, done.stderr
    root = json.loads(done.stdout)["root"]
    assert root in holdfast(repo, "seal").stdout, "nothing new: the same seal"
    assert run_files(layout) == journal

    printed = holdfast(repo, "prove", "2026-11-16", "1").stdout
    proof = tmp_path / "proof.json"
    assert holdfast(repo, "prove", "2026-11-16", "1", "--out", str(proof)).returncode == 0
    assert proof.read_text() == printed
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = holdfast(elsewhere, "prove", "--verify", str(proof), "--root", root, HOLDFAST_AUDIT_KEY="")
    assert done.returncode == 0 and "The proof holds. Record 1: 1.1 by tests" in done.stdout, done.stderr
    assert holdfast(elsewhere, "prove", "--verify", str(proof), "--root", "0" * 64).returncode == 4
    proof.write_text(printed.replace("1.1", "1.7"))
    assert holdfast(elsewhere, "prove", "--verify", str(proof), "--root", root).returncode == 4
    assert holdfast(elsewhere, "prove", "--verify", str(proof)).returncode == 2


def test_sealing_an_empty_log_says_so_and_makes_no_key(layout: Layout, tmp_path: Path) -> None:
    shutil.rmtree(layout.audit)
    done = holdfast(layout.root.parent, "seal", XDG_CONFIG_HOME=str(tmp_path / "config"))
    assert done.returncode == 2 and "has no record yet" in done.stderr
    assert not (tmp_path / "config").exists()


@pytest.mark.parametrize("command", ["check", "seal", "prove"])
def test_help_has_examples(tmp_path: Path, command: str) -> None:
    done = holdfast(tmp_path, command, "--help")
    assert done.returncode == 0 and f"  holdfast {command}" in done.stdout.partition("Examples:")[2]


def test_without_a_data_root_it_says_what_to_type(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    done = holdfast(tmp_path, "check")
    assert done.returncode == 2 and "holdfast init" in done.stderr
