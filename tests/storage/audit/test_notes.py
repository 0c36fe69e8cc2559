"""The journal notes how far the audit log reached: what was removed from it since is reported, and not signed anew."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from holdfast.storage.audit import from_journal, seals
from kit.clock import SetClock
from kit.program import begin, holdfast
from kit.project import add, landed, layout, make_repo, settings, sound, state
from kit.waiting import shell_wait, wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy


@pytest.fixture
def repo(repo: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # A run of more than some seconds seals a log that has none yet before its end, too: here it makes one seal only.
    monkeypatch.setattr(from_journal.Auditor, "seal_daily", lambda auditor: False)
    add(repo, "one", "write one.txt x")
    holdfast(repo, "run")
    assert landed(repo) == ["one"]
    return repo


def events(repo: Path) -> list[str]:
    lines = [line for path in sorted(layout(repo).audit.glob("*.jsonl")) for line in path.read_bytes().splitlines()]
    return [msgspec.json.decode(line)["event"] for line in lines]


def only_day(repo: Path) -> Path:
    return sorted(layout(repo).audit.glob("*.jsonl"))[-1]


def newest_seal(repo: Path) -> Path:
    return layout(repo).seals / seals.seal_files(layout(repo).audit)[-1]


def delete_log(repo: Path) -> None:
    for path in layout(repo).audit.rglob("*.json*"):
        path.unlink()


def test_a_run_seals_the_log_at_its_end_and_the_journal_notes_it(repo: Path) -> None:
    [seal] = seals.seal_files(layout(repo).audit)
    read = seals.parse_seal((layout(repo).seals / seal).read_bytes(), None)
    assert isinstance(read, seals.Seal) and read.days[-1].records == len(events(repo))
    assert seal in holdfast(repo, "log", "--json")
    sound(repo)


def test_a_run_that_did_nothing_seals_nothing(repo: Path) -> None:
    [first] = seals.seal_files(layout(repo).audit)
    for _ in range(2):
        holdfast(repo, "run")
    assert seals.seal_files(layout(repo).audit) == [first] and events(repo).count("run_started") == 3
    sound(repo)
    add(repo, "two", "write two.txt x")
    begin(repo, HOLDFAST_CRASH_AT="append.task_closed.after:1").communicate()
    assert "landed" in events(repo)[-3:] and seals.seal_files(layout(repo).audit) == [first]
    # What a killed run had on record is sealed by the next, though that does nothing else.
    holdfast(repo, "run")
    assert len(seals.seal_files(layout(repo).audit)) == 2
    sound(repo)


def test_a_deleted_log_is_reported_and_is_not_signed_anew(repo: Path) -> None:
    delete_log(repo)
    out = holdfast(repo, "check", code=4)
    assert "the journal has noted" in out and "Put it back" in out
    said = holdfast(repo, "doctor", code=None)
    assert "the journal has noted" in said and "holdfast resolve --audit-lost" in said
    add(repo, "two", "write two.txt x")
    assert "the journal has noted" in holdfast(repo, "run")
    assert events(repo).count("landed") == 1 and "records_missing" in events(repo)
    assert "3 decisions and landings" in holdfast(repo, "check", code=4)


def test_a_deleted_log_is_told_by_every_run_and_by_doctor_until_a_person_knows(repo: Path) -> None:
    delete_log(repo)
    for _ in range(2):
        assert "the journal has noted" in holdfast(repo, "run")
        said = holdfast(repo, "doctor", code=None)
        assert "the journal has noted" in said and "holdfast resolve --audit-lost" in said
        assert "the journal has noted" in holdfast(repo, "check", code=4)
    # It was told on record once, and the log goes on: also with what a kill kept out of it.
    add(repo, "two", "write two.txt x")
    point = "append.task_land_confirmed.after"
    holdfast(repo, "run", code=None, env={"HOLDFAST_CRASH_AT": f"{point}:1"})
    assert landed(repo) == ["one", "two"] and "landed" not in events(repo)
    holdfast(repo, "run")
    assert events(repo).count("records_missing") == 1 and events(repo).count("landed") == 1
    holdfast(repo, "resolve", "--audit-lost")
    assert "the journal has noted" not in holdfast(repo, "run")
    assert "the journal has noted" not in holdfast(repo, "doctor", code=None)
    sound(repo)


def test_a_loss_that_a_person_has_accepted_is_no_finding_any_more(repo: Path) -> None:
    delete_log(repo)
    holdfast(repo, "resolve", "--audit-lost")
    assert "the journal has noted" not in holdfast(repo, "doctor", code=None)
    sound(repo)
    add(repo, "two", "write two.txt x")
    holdfast(repo, "run")
    assert events(repo).count("landed") == 1
    sound(repo)


def test_records_that_were_cut_off_behind_the_last_seal_are_reported(repo: Path) -> None:
    sealed = only_day(repo).read_bytes()
    add(repo, "two", "write two.txt x")
    holdfast(repo, "cancel", "two")
    assert len(seals.seal_files(layout(repo).audit)) == 1 and "cancel" in events(repo)
    only_day(repo).write_bytes(sealed)
    assert "the journal has noted" in holdfast(repo, "check", code=4)


def test_a_seal_that_is_gone_is_reported(repo: Path) -> None:
    [seal] = seals.seal_files(layout(repo).audit)
    (layout(repo).seals / seal).unlink()
    assert seal in holdfast(repo, "check", code=4)


def test_notes_that_a_kill_kept_out_of_the_log_are_pending_and_come_with_the_next_start(repo: Path) -> None:
    """The last records before a kill are missing, and nothing that the journal has noted is."""
    add(repo, "two", "write two.txt x")
    point = "append.task_land_confirmed.after"
    holdfast(repo, "run", code=None, env={"HOLDFAST_CRASH_AT": f"{point}:1"})
    assert landed(repo) == ["one", "two"] and events(repo).count("landed") == 1
    assert "has no audit record yet" in holdfast(repo, "check")
    holdfast(repo, "run")
    assert events(repo).count("landed") == 2
    sound(repo)


def test_the_key_lies_where_the_settings_say(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    key = tmp_path / "keys" / "mine.key"
    settings(repo, audit={"key_path": str(key)})
    add(repo, "one", "write one.txt x")
    holdfast(repo, "run")
    assert key.exists() and not (tmp_path / ".config" / "holdfast" / "audit.key").exists()
    holdfast(repo, "seal")
    sound(repo)
    assert "signatures were not checked" not in holdfast(repo, "check")
    assert str(key) in holdfast(repo, "doctor", code=None) or "the key is here" in holdfast(repo, "doctor", code=None)
    shutil.move(key, tmp_path / "elsewhere")
    # A proof needs no key, wherever that is.
    day = only_day(repo).stem
    proof, root = tmp_path / "proof.json", seals.parse_seal(newest_seal(repo).read_bytes(), None)
    assert isinstance(root, seals.Seal)
    holdfast(repo, "prove", day, "0", "--out", str(proof))
    assert "The proof holds" in holdfast(repo, "prove", "--verify", str(proof), "--root", root.root)
    assert not key.exists()
    assert "signatures were not checked" in holdfast(repo, "check")


def test_a_long_run_seals_each_day(tmp_path: Path) -> None:
    repo, clock, go = make_repo(tmp_path / "repo"), SetClock(tmp_path), tmp_path / "go"
    add(repo, "one", f"write one.txt x\nrun {shell_wait(go)}")
    run = begin(repo, **clock.env)
    wait_for(lambda: bool(state(repo).tasks.get("one")) and state(repo).tasks["one"].spent.turns > 0, "a turn")
    for day in (1, 2):
        clock.later(86_400)
        add(repo, f"x{day}", "write x.txt x", depends_on=["one"])
        wait_for(lambda name=f"x{day}": name in state(repo).tasks, "the task")  # type: ignore[misc]
        holdfast(repo, "cancel", f"x{day}", env=clock.env)
        first = f"seal-{only_day(repo).stem.replace('-', '')}"
        wait_for(lambda name=first: newest_seal(repo).name > name, f"the seal of day {day}")  # type: ignore[misc]
    go.touch()
    said, _ = run.communicate()
    assert run.returncode == 0, said
    holdfast(repo, "check", env=clock.env)


def test_a_seal_that_a_run_makes_lists_only_the_days_that_have_changed(tmp_path: Path) -> None:
    repo, clock = make_repo(tmp_path / "repo"), SetClock(tmp_path)
    for _ in range(3):
        holdfast(repo, "run", env=clock.env)
        clock.later(86_400)
    found = [
        seals.parse_seal((layout(repo).seals / name).read_bytes(), None)
        for name in seals.seal_files(layout(repo).audit)
    ]
    listed = [len(each.days) for each in found if isinstance(each, seals.Seal)]
    assert listed == [1, 1, 1]
    days = sorted(path.stem for path in layout(repo).audit.glob("*.jsonl"))
    assert len(days) == 3
    for day in days:
        holdfast(repo, "prove", day, "0")
    # What a person publishes covers all, and stands beside the others.
    holdfast(repo, "seal", env=clock.env)
    published = seals.parse_seal(newest_seal(repo).read_bytes(), None)
    assert isinstance(published, seals.Seal) and len(published.days) == 3
    holdfast(repo, "run", env=clock.env)
    holdfast(repo, "check", env=clock.env)
    # A day that only an older seal lists is held against that.
    oldest = layout(repo).audit / f"{days[0]}.jsonl"
    oldest.write_bytes(oldest.read_bytes()[: oldest.read_bytes()[:-1].rfind(b"\n") + 1])
    assert days[0] in holdfast(repo, "check", code=4)
