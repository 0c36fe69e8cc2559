"""A journal that was put back from an older backup, beside what a lost future has left: nothing of that is taken."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from engine_support import add, git, holdfast, landed, layout, make_repo, sound, state
from holdfast.domain.attempt import Ending, Exit, TurnLine
from holdfast.durable import attempts, disk
from holdfast.durable.attempts import Seen
from holdfast.durable.chain import Chain
from holdfast.durable.jsonl import Ledger
from holdfast.engine.spawn import Spawn
from holdfast.engine.turns import new_turns
from holdfast.layout import Attempt, Layout


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path / "repo")


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
    put_back(repo, backup)
    assert not state(repo).tasks["t5"].attempts
    return git(repo, "rev-parse", "main")


def test_no_landed_work_is_deleted(repo: Path) -> None:
    at = with_lost_future(repo)
    holdfast(repo, "run", code=None)
    assert git(repo, "rev-parse", "main") == at and git(repo, "show", "main:b.txt") == "b"


# -- files of another intent ------------------------------------------------------------------------------------------


def left_by_another(files: Attempt, start: int) -> None:
    """What a start of a journal that is gone has left."""
    attempts.claim_start(files, start, attempts.RUNNER, "000009-x:4:" + "b" * 64)
    ended = Exit("T.1", start, Ending.DONE, "It has finished.", 1.0, intent="000009-x:4:" + "b" * 64)
    disk.replace(files.exit, msgspec.json.encode(ended))


def test_a_start_of_another_intent_is_no_start_and_is_set_aside(tmp_path: Path) -> None:
    where = Layout(tmp_path / "data")
    files, ours = where.attempt_files("T.1"), "000002-y:7:" + "a" * 64
    left_by_another(files, 1)
    assert attempts.look(files, 1, ours) is Seen.ABSENT and attempts.read_exit(files, 1, ours) is None
    assert not Spawn(where, ["false"]).has_begun("T.1", 1, ours)
    begun = attempts.read_start(files, 1)
    assert begun is not None and (begun.who, begun.intent) == (attempts.RECOVERY, ours)
    assert not files.exit.exists() and (where.quarantine / "T.1.1" / "exit.json").exists()
    assert ours in (where.quarantine / "T.1.1.reason.txt").read_text()


def test_of_a_later_start_only_the_files_of_the_stranger_go(tmp_path: Path) -> None:
    where = Layout(tmp_path / "data")
    files, ours = where.attempt_files("T.1"), "000002-y:9:" + "a" * 64
    attempts.claim_start(files, 1, attempts.RUNNER, "000002-y:7:" + "a" * 64)
    left_by_another(files, 2)
    left_by_another(files, 3)
    assert not Spawn(where, ["false"]).has_begun("T.1", 2, ours)
    assert files.start(1).exists() and not files.start(3).exists() and not files.exit.exists()
    names = {path.name for path in where.quarantine.iterdir() if not path.name.endswith(".txt")}
    assert names == {"T.1-start-2.1", "T.1-start-3.1", "T.1-exit.json.1"}


def test_a_turn_of_another_intent_is_passed_over(tmp_path: Path) -> None:
    files = Layout(tmp_path / "data").attempt_files("T.1")
    attempts.make_folder(files)
    with Ledger(files.turns) as ledger:
        for turn, intent in ((1, "ours"), (2, "theirs"), (2, "ours")):
            line = TurnLine(1.0, turn, 1, "edit", "", False, [], 0.0, 0, 0.0, "", 0, 0, 0, 0, intent)
            ledger.append(msgspec.to_builtins(line))
    assert [(line.turn, line.intent) for _, line in new_turns(files, 0, 0, "ours")] == [(1, "ours"), (2, "ours")]


def test_every_file_of_a_start_names_its_intent(repo: Path) -> None:
    add(repo, "t", "write a.txt a\nwrite b.txt b")
    holdfast(repo, "run")
    files, intent = layout(repo).attempt_files("t.1"), state(repo).tasks["t"].intent
    found = attempts.read_start(files, 1), attempts.read_process(files), attempts.last_exit(files)
    assert [each.intent for each in found if each is not None] == [intent] * 3 and intent
    assert {line.intent for _, line in new_turns(files, 0, 0)} == {intent}
    run, seq, entry_hash = intent.split(":")
    entry = next(entry for name, entry in Chain(layout(repo).wal).entries() if (name, entry.seq) == (run, int(seq)))
    assert (entry.decision_type, entry.entry_hash) == ("task_spawn_intent", entry_hash)
    sound(repo)
