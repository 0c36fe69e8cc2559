"""The history of runs, attempts and losses: the same after one reading of the journal and after many."""

from __future__ import annotations

import signal
from collections import deque
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.app import App
from holdfast.layout import Layout
from holdfast.ledgers.reader import FileLedgerReader
from holdfast.views.history import Chronicle
from kit.program import holdfast
from kit.project import add, layout, make_repo, sound
from kit.roots import short_run
from kit.states import entry
from kit.tasks import THREE_TURNS, failed


def told(at: Layout, chronicle: Chronicle | None = None) -> dict[str, Any]:
    with chronicle or Chronicle(FileLedgerReader(at)) as found:
        names = ("attempts", "of_task", "added", "by_agent", "by_model", "verdicts", "sittings", "runs")
        names += ("lost", "stumbles", "judged")
        facts: dict[str, Any] = msgspec.to_builtins({name: list_of(getattr(found, name)) for name in names})
        return facts


def list_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: list(each) if isinstance(each, deque) else each for name, each in value.items()}
    return list(value)


def test_following_the_journal_gives_what_reading_it_at_once_gives(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    add(repo, "b", "write b.txt x\nspend 0.5 7", verify=["test -e b.txt"])
    failed(repo, script=f"{THREE_TURNS}spend 0.25 5\n")
    holdfast(repo, "undo", "a", "--turn", "1")
    holdfast(repo, "resume", "a")
    whole = told(layout(repo))
    assert whole["attempts"]["a.1"]["undone"] == [2, 3] and whole["attempts"]["a.1"]["state"] == "FAILED"
    assert [each["passed"] for each in whole["verdicts"]] == [True] and len(whole["runs"]) == 3
    assert whole["by_agent"]["scripted"]["usd"] == pytest.approx(0.75)
    # The same files, growing: each look comes after some more bytes, whole lines or not.
    grown = Layout(tmp_path / "grown")
    grown.wal.mkdir(parents=True)
    reader = FileLedgerReader(grown)
    following, looks = Chronicle(reader), 0
    for path in sorted(layout(repo).wal.glob("*.wal.jsonl")):
        content = path.read_bytes()
        for end in [*range(700, len(content), 700), len(content)]:
            (grown.wal / path.name).write_bytes(content[:end])
            looks += told(grown, following) == told(grown)
    assert looks > 10 and told(grown, following) == whole
    assert following._last is not None and reader._ends[following._last].end == len(content)


def test_old_losses_and_verdicts_are_still_shown_after_thousands_of_others(tmp_path: Path) -> None:
    told = Chronicle(FileLedgerReader(Layout(tmp_path)))
    told._apply_entry("000001-a", entry("run_started", 0))
    told._apply_entry("000001-a", entry("wal_replay_completed", 1, parked=1))
    told._apply_entry("000001-a", entry("task_orphaned", 2, task="old", event="crash"))
    told._apply_entry("000001-a", entry("task_verify_confirmed", 3, {"passed": True}, task="old", attempt="old.1"))
    for seq in range(10, 30_010, 5):
        told._apply_entry("000001-a", entry("task_verify_confirmed", seq, {"passed": True}, task=f"t{seq}"))
        for more, kind in enumerate(("task_land_confirmed", "task_closed", "task_cancelled", "task_failed")):
            told._apply_entry("000001-a", entry(kind, seq + more + 1, task=f"t{seq}", event="x"))
    told._apply_entry("000002-b", entry("wal_replay_completed", 40_000))
    marks = told.marks(1000)
    assert [mark.kind for mark in marks[:3]] == ["wal_replay_completed", "task_orphaned", "task_failed"]
    assert len(marks) == 1000 and {mark.kind for mark in marks[2:]} == {"task_failed"}
    assert [mark.kind for mark in told.marks(2)] == ["wal_replay_completed", "task_orphaned"]
    assert [each.attempt for each in told.judged["old"]] == ["old.1"]


def test_the_end_of_a_run_is_read_from_the_journal(tmp_path: Path) -> None:
    told = Chronicle(FileLedgerReader(Layout(tmp_path)))
    # The first two are of an older Holdfast, which journalled no ends.
    for number, ends in enumerate((False, False, True, True, True, True), 1):
        told._apply_entry(f"00000{number}-a", entry("run_started", 0, **({"ends_journalled": True} if ends else {})))
        if number in (3, 5):
            told._apply_entry(f"00000{number}-a", entry("run_ended", 1, how="orderly" if number == 3 else "stopped"))
        told._apply_entry(f"00000{number}-a", entry("audit_noted", 2))
    assert [run.end for run in told.runs] == ["unknown", "unknown", "orderly", "killed", "killed", "unknown"]


def test_every_way_in_which_a_run_ends_is_in_the_journal(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    add(repo, "a", "write a.txt x")
    holdfast(repo, "run")
    holdfast(repo, "run")
    holdfast(repo, "run", code=-signal.SIGKILL, env={"HOLDFAST_CRASH_AT": "append.run_ended.before:1"})
    with pytest.raises(ZeroDivisionError), short_run(App.find(repo)):
        raise ZeroDivisionError
    holdfast(repo, "run")
    with Chronicle(FileLedgerReader(layout(repo))) as found:
        assert [run.end for run in found.runs] == ["orderly", "orderly", "killed", "killed", "orderly"]
    ends = [entry.inputs for _, entry in FileLedgerReader(layout(repo)).read() if entry.decision_type == "run_ended"]
    assert [end["how"] for end in ends] == ["orderly", "orderly", "stopped", "orderly"]
    assert ends[2]["reason"] == "it stopped with ZeroDivisionError"
    sound(repo)
