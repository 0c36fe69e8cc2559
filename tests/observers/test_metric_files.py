"""Sessions and metrics: one line for each entry that has one, also after a kill between the journal and the line."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.app import App
from holdfast.domain.task import TaskEvent
from holdfast.layout import Layout
from holdfast.observers.metric_files import MetricLines, place
from holdfast.storage.journal.archive import archive_ended_runs
from holdfast.storage.journal.entry import Record
from holdfast.storage.journal.reader import Chain
from holdfast.storage.records.ledger import LineLedger
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, layout, settings, sound, state
from kit.roots import short_run
from kit.waiting import wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy

Line = dict[str, Any]


OTHER_ENTRIES = ("turn_completed", "task_closed", "task_claimed")


def ledgers(at: Layout) -> dict[str, Path]:
    return {"sessions": at.sessions, "tasks": at.metrics_tasks, "snapshots": at.metrics_snapshots}


def read(repo: Path) -> dict[str, list[Line]]:
    return {name: [line.record for line in LineLedger(path).read()] for name, path in ledgers(layout(repo)).items()}


def wanted(repo: Path) -> dict[str, list[Line]]:
    """What the journal gives, read from its beginning."""
    made: dict[str, list[Line]] = {name: [] for name in ledgers(layout(repo))}
    lines = MetricLines(lambda name, at, line: made[name].append(line))
    for run, entry in Chain(layout(repo).wal).entries():
        lines.apply(run, entry)
    return made


def assert_exact(repo: Path) -> dict[str, list[Line]]:
    found = read(repo)
    assert found == wanted(repo)
    for lines in found.values():
        places = [place(line["run"], line["seq"]) for line in lines]
        assert places == sorted(set(places))
    return found


def of(lines: list[Line], task: str, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(line[name] for name in names) for line in lines if line["task"] == task]


def test_each_sitting_task_and_snapshot_has_its_line(repo: Path) -> None:
    add(repo, "one", "write one.txt x\nwrite two.txt x")
    add(repo, "two", "fail on purpose", max_attempts=2)
    add(repo, "three", "write three.txt x", depends_on=["two"])
    holdfast(repo, "run", code=20)
    holdfast(repo, "cancel", "three")
    found = assert_exact(repo)

    tasks = state(repo).tasks
    one = tasks["one"]
    assert of(found["sessions"], "one", "attempt", "start", "state", "turns") == [("one.1", 1, "DONE", one.spent.turns)]
    assert of(found["sessions"], "two", "attempt", "state", "kind") == [
        (f"two.{number}", "FAILED", "failed") for number in (1, 2)
    ]
    assert of(found["sessions"], "three", "attempt") == []
    [sitting] = [line for line in found["sessions"] if line["task"] == "one"]
    assert sitting["agent"] == "scripted" and sitting["began"] < sitting["ended"] == sitting["ts"]
    assert (sitting["usd"], sitting["tokens"]) == (one.spent.usd, one.spent.tokens)

    names = ("state", "attempts", "turns", "landed", "added", "ended")
    landed = git(repo, "rev-parse", "main")
    assert of(found["tasks"], "one", *names) == [("CLOSED", 1, one.spent.turns, landed, one.added_at, one.changed_at)]
    assert of(found["tasks"], "two", "state", "attempts", "kind") == [("FAILED", 2, "failed")]
    assert of(found["tasks"], "three", "state", "attempts") == [("CANCELLED", 0)]
    shots = of(found["snapshots"], "one", "attempt", "turn", "snapshot")
    assert [(attempt, turn) for attempt, turn, _ in shots] == [("one.1", n + 1) for n in range(one.spent.turns)]
    for _, turn, commit in shots:
        assert git(repo / ".sdd" / "snapshots.git", "rev-parse", f"refs/attempts/one.1/turn-{turn}") == commit
    sound(repo)


@pytest.mark.parametrize(
    "entry", ["task_done", *(pytest.param(each, marks=pytest.mark.crash) for each in OTHER_ENTRIES)]
)
def test_a_kill_between_the_journal_and_the_ledgers_loses_and_doubles_nothing(repo: Path, entry: str) -> None:
    add(repo, "one", "write one.txt x")
    holdfast(repo, "run")
    before = assert_exact(repo)
    add(repo, "two", "write two.txt x")
    add(repo, "three", "write three.txt x")
    holdfast(repo, "run", code=-signal.SIGKILL, env={"HOLDFAST_CRASH_AT": f"append.{entry}.after:1"})
    killed = Chain(layout(repo).wal).runs()[-1].run
    if entry != "task_claimed":
        assert read(repo) != wanted(repo), "the kill came too late to mean anything"
    holdfast(repo, "run")
    found = assert_exact(repo)
    assert all(found[name][: len(lines)] == lines for name, lines in before.items())
    assert entry == "task_claimed" or any(line["run"] == killed for lines in found.values() for line in lines)
    assert of(found["tasks"], "two", "state") == of(found["tasks"], "three", "state") == [("CLOSED",)]
    assert len(of(found["snapshots"], "two", "turn")) == state(repo).tasks["two"].spent.turns


def test_a_kill_between_the_lines_and_the_position_doubles_nothing(repo: Path) -> None:
    """Some or all of what was written behind the position is there, or is torn."""
    add(repo, "one", "write one.txt x")
    holdfast(repo, "run")
    position = layout(repo).metrics_position.read_bytes()
    add(repo, "two", "write two.txt x\nwrite three.txt x")
    holdfast(repo, "run")
    whole = assert_exact(repo)
    layout(repo).metrics_position.write_bytes(position)
    shots = layout(repo).metrics_snapshots
    shots.write_bytes(shots.read_bytes()[:-40])
    assert read(repo)["snapshots"] == whole["snapshots"][:-1]
    layout(repo).sessions.write_bytes(b"".join(layout(repo).sessions.read_bytes().splitlines(keepends=True)[:1]))
    holdfast(repo, "cancel", "two", code=None)
    assert read(repo) == whole == assert_exact(repo)


def without_position(at: Layout) -> None:
    at.metrics_position.unlink()


def with_another_position(at: Layout) -> None:
    at.metrics_position.write_text('{"position":7}')


@pytest.mark.parametrize(
    "spoil",
    [
        lambda at: at.sessions.unlink(),
        pytest.param(lambda at: shutil.rmtree(at.metrics), marks=pytest.mark.crash),
        pytest.param(without_position, marks=pytest.mark.crash),
        with_another_position,
        pytest.param(lambda at: (at.sessions.unlink(), without_position(at)), marks=pytest.mark.crash),
    ],
    ids=["sessions", "metrics", "position", "position damaged", "sessions and position"],
)
def test_deleted_metric_files_are_made_again_also_from_archived_runs(
    repo: Path, spoil: Callable[[Layout], object]
) -> None:
    for number in range(3):
        add(repo, f"t{number}", f"write {number}.txt x")
        holdfast(repo, "run")
    whole = assert_exact(repo)
    assert len(archive_ended_runs(layout(repo).wal)) == 2
    spoil(layout(repo))
    holdfast(repo, "cancel", "t0", code=None)
    assert assert_exact(repo) == whole and len(whole["tasks"]) == 3
    sound(repo)


def test_metric_files_rotate_and_drop_as_the_settings_say(repo: Path) -> None:
    settings(repo, ledgers={"rotate_bytes_max": 4096})
    for number in range(4):
        add(repo, f"t{number}", "\n".join(f"write {number}-{turn}.txt x" for turn in range(12)))
    holdfast(repo, "run")
    found = assert_exact(repo)
    segments = sorted(layout(repo).metrics.glob("snapshots.*.jsonl.zst"))
    assert len(segments) >= 2 and not list(layout(repo).metrics.glob("tasks.*.zst"))
    assert layout(repo).metrics_snapshots.stat().st_size <= 4096

    settings(repo, ledgers={"rotate_bytes_max": 4096, "retain_bytes_max": 4096})
    # Dropped is when another segment is made: so many turns fill one.
    add(repo, "last", "\n".join(f"write last-{turn}.txt x" for turn in range(48)))
    holdfast(repo, "run")
    left = sorted(layout(repo).metrics.glob("snapshots.*.jsonl.zst"))
    assert left and left[-1] == sorted({*segments, *left})[-1] and segments[0] not in left
    after = read(repo)
    # Only the oldest are gone, and of the others nothing.
    assert after["snapshots"] == wanted(repo)["snapshots"][-len(after["snapshots"]) :]
    assert len(after["snapshots"]) < len(found["snapshots"]) + 48 and after["tasks"] == wanted(repo)["tasks"]


def test_metric_files_that_cannot_be_written_stop_no_work_and_are_completed_later(repo: Path) -> None:
    add(repo, "one", "write one.txt x")
    layout(repo).sessions.mkdir()
    said = holdfast(repo, "run")
    assert said.count("nothing is written to sessions.jsonl and metrics/ for now") == 1
    assert state(repo).tasks["one"].state == "CLOSED" and "sessions" in said
    layout(repo).sessions.rmdir()
    add(repo, "two", "write two.txt x")
    assert "nothing is written" not in holdfast(repo, "run")
    assert len(assert_exact(repo)["sessions"]) == 2


def test_no_line_passes_over_an_entry_that_was_not_heard(repo: Path) -> None:
    for name in ("one", "two", "three"):
        add(repo, name, "write x y")
    said: list[str] = []
    with short_run(App.find(repo), say=said.append) as session:
        ledger = session.ledger
        observer = next(each for each in ledger.observers if each.name == "metric_files")
        for task in ("one", "two", "three"):
            inputs = {"task": task, "event": TaskEvent.MANUAL_CANCEL, "reason": "asked"}
            with pytest.MonkeyPatch.context() as patched:
                # As if an interrupt had come between the journal and the observer.
                if task == "two":
                    patched.setattr(observer, "observe", lambda run, entry: None)
                ledger.append(ledger.epoch, [Record("task_cancelled", inputs)])
    assert "does not follow the one that was heard before it" in "".join(said)
    assert len(read(repo)["tasks"]) <= 1
    holdfast(repo, "cancel", "one", code=None)
    assert [line["task"] for line in assert_exact(repo)["tasks"]] == ["one", "two", "three"]


def test_a_sitting_that_outlives_its_run_began_where_it_began(repo: Path) -> None:
    add(repo, "slow", f"run until test -f {repo.parent}/go; do sleep 0.05; done\nwrite slow.txt x")
    first = begin(repo)
    wait_for(lambda: (layout(repo).attempts / "slow.1" / "process.json").exists(), "the agent to begin")
    wait_for(lambda: state(repo).tasks["slow"].state == "IN_PROGRESS", "the task to be at work")
    first.kill()
    first.communicate()
    began = state(repo).tasks["slow"].start.began
    (repo.parent / "go").touch()
    holdfast(repo, "run")
    found = assert_exact(repo)
    assert began and of(found["sessions"], "slow", "start", "began")[0] == (1, began)


def test_lines_come_while_the_run_goes_on(repo: Path) -> None:
    add(repo, "one", "write one.txt x")
    add(repo, "slow", f"run until test -f {repo.parent}/go; do sleep 0.05; done\nwrite slow.txt x")
    run = begin(repo)
    try:
        wait_for(lambda: of(read(repo)["tasks"], "one", "state") == [("CLOSED",)], "the line of a task that is over")
        assert run.poll() is None
    finally:
        (repo.parent / "go").touch()
        run.communicate()
    assert_exact(repo)


def test_runs_that_gc_archives_are_read_as_before(repo: Path) -> None:
    settings(repo, ledgers={"keep_runs": 2})
    add(repo, "one", "write one.txt x")
    holdfast(repo, "run")
    for number in range(4):
        add(repo, f"t{number}", "write x y")
        holdfast(repo, "cancel", f"t{number}")
    wal = layout(repo).wal
    runs = [file.run for file in Chain(wal).runs()]
    read_back = [("log", "--json"), ("history", "one"), ("log", "--run", runs[0]), ("list", "--json")]
    before = [holdfast(repo, *command) for command in read_back]
    told = json.loads(holdfast(repo, "gc", "--dry-run", "--json"))
    assert told["would_archive"] == runs[:3] and not list((wal / "archive").iterdir())
    assert "3 runs, " in holdfast(repo, "gc", "--dry-run")
    done = json.loads(holdfast(repo, "gc", "--json"))
    assert done["archived"] == runs[:3] and done["bytes"] > 0
    assert sorted(path.name for path in wal.glob("*.wal.jsonl")) == [f"{run}.wal.jsonl" for run in runs[3:]]
    assert [file.run for file in Chain(wal).runs()] == runs
    assert json.loads(holdfast(repo, "gc", "--json"))["archived"] == []
    assert [holdfast(repo, *command) for command in read_back] == before
    sound(repo)
    for path in (layout(repo).tasks, layout(repo).uncommitted, layout(repo).idempotency):
        path.unlink()
    assert state(repo).tasks["one"].state == "CLOSED"
    add(repo, "two", "write two.txt x")
    holdfast(repo, "run")
    sound(repo)
    assert_exact(repo)
