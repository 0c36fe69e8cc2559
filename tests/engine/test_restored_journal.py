"""A journal that was put back from an older backup, beside what a lost future has left: nothing of that is taken."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from holdfast.domain.attempt_records import Ending, Exit
from holdfast.engine.spawn import Spawn
from holdfast.engine.turn_follower import new_turns
from holdfast.errors import DiskFull
from holdfast.layout import Attempt, Layout
from holdfast.storage.audit import from_journal
from holdfast.storage.files import disk
from holdfast.storage.journal.reader import Chain
from holdfast.storage.records import attempt_folder
from holdfast.storage.records.attempt_folder import Liveness
from holdfast.storage.records.ledger import LineLedger
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, landed, layout, make_repo, sound, state
from kit.states import turn_line
from kit.waiting import shell_wait, wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy


def put_back(repo: Path, backup: Path) -> None:
    """The run files as they were, and none of the files that follow from them."""
    shutil.rmtree(layout(repo).wal)
    shutil.copytree(backup, layout(repo).wal)
    for path in (layout(repo).tasks, layout(repo).uncommitted, layout(repo).idempotency):
        path.unlink(missing_ok=True)


def with_lost_future(repo: Path) -> str:
    """Two landings that the journal no longer knows; returns the commit that the branch is at."""
    add(repo, "t5", "write a.txt a")
    add(repo, "t6", "write b.txt b", depends_on=["t5"])
    add(repo, "x", "write x.txt x")
    holdfast(repo, "cancel", "x")
    backup = repo.parent / "backup"
    shutil.copytree(layout(repo).wal, backup)
    holdfast(repo, "run")
    assert landed(repo) == ["t5", "t6"]
    shutil.copytree(layout(repo).wal, repo.parent / "lost")
    put_back(repo, backup)
    assert not state(repo).tasks["t5"].attempts
    return git(repo, "rev-parse", "main")


def test_a_journal_shorter_than_its_witnesses_is_not_worked_on(repo: Path) -> None:
    at = with_lost_future(repo)
    out = holdfast(repo, "run", code=4)
    assert git(repo, "rev-parse", "main") == at and git(repo, "show", "main:b.txt") == "b"
    assert "is older than the files beside it" in out and "holdfast resolve --journal-restored" in out
    assert "runtime/lock" in out and "audit" in out and "metrics/position.json" in out and "t5.1/start-1" in out
    assert "older than" in holdfast(repo, "gc", code=4) and "older than" in holdfast(repo, "retry", "t5", code=4)
    assert "t5.1/start-1" in holdfast(repo, "check", code=4)
    said = holdfast(repo, "doctor", code=None)
    assert "is older than the files beside it" in said and "holdfast resolve --journal-restored" in said
    holdfast(repo, "resolve", "--journal-restored")
    assert "is older than" not in holdfast(repo, "doctor", code=None)


@pytest.mark.parametrize("witness", ["lock", "audit", "metrics", "attempts", "git"])
def test_each_witness_is_enough(repo: Path, witness: str) -> None:
    with_lost_future(repo)
    where = layout(repo)
    if witness != "lock":
        where.lock.unlink()
    if witness != "metrics":
        where.metrics_position.unlink()
    for folder in {"audit": where.audit, "attempts": where.attempts}.items():
        if folder[0] != witness:
            shutil.rmtree(folder[1])
    runs = sorted(where.wal.iterdir())
    assert "is older than the files beside it" in holdfast(repo, "run", code=4)
    assert sorted(where.wal.iterdir()) == runs


def test_a_whole_data_root_put_back_is_refused_by_what_landed_in_git(repo: Path) -> None:
    add(repo, "t5", "write a.txt a")
    add(repo, "t6", "write b.txt b", depends_on=["t5"])
    holdfast(repo, "cancel", "t6")
    backup = repo.parent / "backup"
    shutil.copytree(layout(repo).root, backup, symlinks=True)
    holdfast(repo, "run")
    at = git(repo, "rev-parse", "main")
    shutil.rmtree(layout(repo).root)
    shutil.copytree(backup, layout(repo).root, symlinks=True)
    out = holdfast(repo, "run", code=4)
    assert "refs/holdfast/landed/" in out and git(repo, "rev-parse", "main") == at
    assert "refs/holdfast/landed/" in holdfast(repo, "check", code=4) and "older than" in holdfast(repo, "gc", code=4)
    assert "refs/holdfast/landed/" in holdfast(repo, "resolve", "--journal-restored")
    assert git(repo, "for-each-ref", "refs/holdfast/landed") == ""
    # t6 was cancelled before the backup, t5 landed after it.
    assert "is its landing" in holdfast(repo, "run") and git(repo, "rev-parse", "main") == at
    assert state(repo).tasks["t5"].landing.commit == at
    sound(repo)


def test_the_newest_landing_alone_has_a_ref_and_another_root_is_not_accused_of_it(repo: Path) -> None:
    add(repo, "t5", "write a.txt a")
    add(repo, "t6", "write b.txt b", depends_on=["t5"])
    holdfast(repo, "run")
    assert landed(repo) == ["t5", "t6"]
    refs = git(repo, "for-each-ref", "--format=%(objectname) %(refname)", "refs/holdfast/landed").splitlines()
    assert [ref.split()[0] for ref in refs] == [git(repo, "rev-parse", "main")]
    # A colleague's repository has a data root of its own: trailers and refs are there, and are not its own.
    other = make_repo(repo.parent / "colleague" / "repo")
    git(other, "fetch", "-q", str(repo), "main", "+refs/holdfast/*:refs/holdfast/*")
    git(other, "merge", "-q", "--ff-only", "FETCH_HEAD")
    add(other, "u", "write c.txt c")
    holdfast(other, "run")
    assert landed(other) == ["t5", "t6", "u"]
    refs = git(other, "for-each-ref", "--format=%(objectname)", "refs/holdfast/landed").splitlines()
    assert sorted(refs) == sorted([git(repo, "rev-parse", "main"), git(other, "rev-parse", "main")])
    sound(other)


@pytest.mark.parametrize("point", ["land.swap.before", "land.swap.after"])
def test_a_landing_that_was_killed_accuses_nobody(repo: Path, point: str) -> None:
    add(repo, "t", "write a.txt a")
    run = begin(repo, HOLDFAST_CRASH_AT=f"{point}:1")
    run.communicate()
    assert run.returncode == -9
    assert bool(git(repo, "for-each-ref", "refs/holdfast/landed")) is point.endswith("after")
    holdfast(repo, "run")
    assert landed(repo) == ["t"] and len(git(repo, "for-each-ref", "refs/holdfast/landed").splitlines()) == 1
    sound(repo)


def test_facts_of_the_lost_journal_are_set_aside_once_a_person_says_so(repo: Path) -> None:
    with_lost_future(repo)
    out = holdfast(repo, "resolve", "--journal-restored")
    assert "t5.1/start-1" in out and (layout(repo).quarantine / "t5.1.1" / "exit.json").exists()
    started = [entry.inputs for _, entry in Chain(layout(repo).wal).entries() if entry.decision_type == "run_started"]
    assert any("t5.1/start-1" in words for words in started[-1]["restored"])
    # The work is on the branch already.
    assert "is its landing" in holdfast(repo, "run")
    assert git(repo, "show", "main:a.txt") == "a" and git(repo, "show", "main:b.txt") == "b"
    sound(repo)


def test_entries_that_a_fault_kept_out_of_the_audit_log_are_added_once_the_journal_is_accepted(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_lost_future(repo)

    def fail(*_: object) -> None:
        raise DiskFull(operation="rename", path=layout(repo).quarantine, reason="No space left on device")

    # The command that accepts the journal fails before the audit log tells of it, and fails again.
    with monkeypatch.context() as patched:
        patched.setattr("holdfast.checks.witnesses.set_unknown_aside", fail)
        for _ in range(2):
            assert "No space left" in holdfast(repo, "resolve", "--journal-restored", code=None)
    accepted = {entry.entry_hash for _, entry in Chain(layout(repo).wal).entries() if entry.inputs.get("restored")}
    assert len(accepted) == 2 and not accepted & from_journal.named_entries(layout(repo))
    holdfast(repo, "resolve", "--journal-restored")
    holdfast(repo, "run")
    assert accepted <= from_journal.named_entries(layout(repo))
    sound(repo)


def test_a_newer_journal_that_is_put_back_is_worked_on(repo: Path) -> None:
    with_lost_future(repo)
    lost = repo.parent / "lost"
    assert lost.is_dir()
    holdfast(repo, "run", code=4)
    shutil.rmtree(layout(repo).wal)
    shutil.copytree(lost, layout(repo).wal)
    add(repo, "t7", "write c.txt c")
    holdfast(repo, "run")
    assert landed(repo) == ["t5", "t6", "t7"]
    sound(repo)


def test_a_kill_at_any_point_leaves_no_witness_ahead(repo: Path) -> None:
    """Also where the last owner was killed, what lies beside the journal knows no more than it."""
    go = repo.parent / "go"
    add(repo, "t", f"write a.txt a\nrun {shell_wait(go)}\nwrite b.txt b")
    run = begin(repo)
    wait_for(lambda: bool(state(repo).tasks.get("t")) and state(repo).tasks["t"].spent.turns > 0, "a turn")
    run.kill()
    run.communicate()
    go.touch()
    holdfast(repo, "run")
    assert landed(repo) == ["t"]
    sound(repo)


# -- files of another intent ------------------------------------------------------------------------------------------


def left_by_another(files: Attempt, start: int) -> None:
    """What a start of a journal that is gone has left."""
    attempt_folder.claim_start(files, start, attempt_folder.RUNNER, "000009-x:4:" + "b" * 64)
    ended = Exit("T.1", start, Ending.DONE, "It has finished.", 1.0, intent="000009-x:4:" + "b" * 64)
    disk.replace(files.exit, msgspec.json.encode(ended))


def test_a_start_of_another_intent_is_no_start_and_is_set_aside(tmp_path: Path) -> None:
    where = Layout(tmp_path / "data")
    files, ours = where.attempt_files("T.1"), "000002-y:7:" + "a" * 64
    left_by_another(files, 1)
    assert (
        attempt_folder.liveness(files, 1, ours) is Liveness.ABSENT and attempt_folder.read_exit(files, 1, ours) is None
    )
    assert not Spawn(where, ["false"]).has_begun("T.1", 1, ours)
    begun = attempt_folder.read_start(files, 1)
    assert begun is not None and (begun.who, begun.intent) == (attempt_folder.RECOVERY, ours)
    assert not files.exit.exists() and (where.quarantine / "T.1.1" / "exit.json").exists()
    assert ours in (where.quarantine / "T.1.1.reason.txt").read_text()


def test_of_a_later_start_only_the_files_of_the_stranger_go(tmp_path: Path) -> None:
    where = Layout(tmp_path / "data")
    files, ours = where.attempt_files("T.1"), "000002-y:9:" + "a" * 64
    attempt_folder.claim_start(files, 1, attempt_folder.RUNNER, "000002-y:7:" + "a" * 64)
    left_by_another(files, 2)
    left_by_another(files, 3)
    assert not Spawn(where, ["false"]).has_begun("T.1", 2, ours)
    assert files.start(1).exists() and not files.start(3).exists() and not files.exit.exists()
    names = {path.name for path in where.quarantine.iterdir() if not path.name.endswith(".txt")}
    assert names == {"T.1-start-2.1", "T.1-start-3.1", "T.1-exit.json.1"}


def test_a_turn_of_another_intent_is_passed_over(tmp_path: Path) -> None:
    files = Layout(tmp_path / "data").attempt_files("T.1")
    attempt_folder.make_folder(files)
    with LineLedger(files.turns) as ledger:
        for turn, intent in ((1, "ours"), (2, "theirs"), (2, "ours")):
            ledger.append(msgspec.to_builtins(turn_line(turn, intent)))
    assert [(line.turn, line.intent) for _, line in new_turns(files, 0, 0, "ours")] == [(1, "ours"), (2, "ours")]


def test_every_file_of_a_start_names_its_intent(repo: Path) -> None:
    add(repo, "t", "write a.txt a\nwrite b.txt b")
    holdfast(repo, "run")
    files, intent = layout(repo).attempt_files("t.1"), state(repo).tasks["t"].start.intent
    found = attempt_folder.read_start(files, 1), attempt_folder.read_process(files), attempt_folder.last_exit(files)
    assert [each.intent for each in found if each is not None] == [intent] * 3 and intent
    assert {line.intent for _, line in new_turns(files, 0, 0)} == {intent}
    run, seq, entry_hash = intent.split(":")
    entry = next(entry for name, entry in Chain(layout(repo).wal).entries() if (name, entry.seq) == (run, int(seq)))
    assert (entry.decision_type, entry.entry_hash) == ("task_spawn_intent", entry_hash)
    sound(repo)


def noted_by_another(files: Attempt, start: int) -> None:
    """What the lost start has said, spent and named."""
    told = {"ts": 9.0, "start": start, "turn": 2}
    for path, more in (
        (files.events, [{"type": "session", "id": "theirs"}, {"type": "tool_ended"}]),
        (files.spend, [{"usd": 5.0, "tokens_in": 1, "tokens_out": 1}]),
        (files.traces, [{"kind": "said", "text": "theirs"}]),
        (files.turns, [{}]),
    ):
        with LineLedger(path) as ledger:
            ledger.append_many([{**told, **each} for each in more])


def starts_in(files: Attempt) -> set[int]:
    paths = (files.events, files.spend, files.traces, files.turns, files.provenance)
    return {line.record["start"] for path in paths if path.exists() for line in LineLedger(path).read()}


def test_nothing_is_taken_of_what_a_lost_start_said_and_spent(tmp_path: Path) -> None:
    where = Layout(tmp_path / "data")
    files, ours = where.attempt_files("T.1"), "000002-y:9:" + "a" * 64
    attempt_folder.claim_start(files, 1, attempt_folder.RUNNER, "000002-y:7:" + "a" * 64)
    noted_by_another(files, 1)
    before = files.turns.read_bytes()
    left_by_another(files, 2)
    noted_by_another(files, 2)
    assert starts_in(files) == {1, 2}
    assert not Spawn(where, ["false"]).has_begun("T.1", 2, ours)
    assert starts_in(files) == {1} and files.turns.read_bytes() == before
    assert b"theirs" in (where.quarantine / "T.1-events.jsonl.1").read_bytes()


def test_a_journal_put_back_to_the_middle_of_an_attempt_takes_nothing_of_the_lost_start(repo: Path) -> None:
    go, where = repo.parent / "go", layout(repo)
    add(repo, "t", f"write a.txt a\nrun {shell_wait(go)}\nwrite b.txt b")
    run = begin(repo)
    wait_for(lambda: bool(state(repo).tasks.get("t")) and state(repo).tasks["t"].spent.turns > 0, "a turn")
    holdfast(repo, "stop", "--agents")
    run.communicate()
    assert state(repo).tasks["t"].start.number == 1
    backup = repo.parent / "backup"
    shutil.copytree(where.wal, backup)
    go.touch()
    holdfast(repo, "run")
    files = where.attempt_files("t.1")
    assert starts_in(files) == {1, 2} and landed(repo) == ["t"]
    store = where.snapshots
    assert "t.1/start-2" in git(store, "for-each-ref")
    put_back(repo, backup)
    holdfast(repo, "resolve", "--journal-restored")
    assert starts_in(files) == {1} and not files.start(2).exists()
    assert "t.1/start-2" not in git(store, "for-each-ref") and "t.1/start-1" in git(store, "for-each-ref")
    assert "is its landing" in holdfast(repo, "run") and landed(repo) == ["t"]
    sound(repo)
