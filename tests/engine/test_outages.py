"""Outages: a model that cannot be reached fails no task, and nothing of it is forgotten when the orchestrator dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.config.settings import Config, DeclaredAgent, RouteSettings, StepSettings
from holdfast.domain import outage
from holdfast.domain.definition import Definition
from holdfast.domain.fsm import Reason
from holdfast.domain.outage import Outage, Policy
from holdfast.domain.routing import choose
from holdfast.domain.state import State, fold
from holdfast.domain.task import TaskState
from holdfast.domain.task_record import Task
from holdfast.engine import outages
from kit.clock import SetClock
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, landed, layout, settings, sound, state
from kit.waiting import wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy

POLICY = Policy(3, 10.0, 100.0)
TASKS = [f"t{number}" for number in range(1, 7)]


def starts(repo: Path) -> dict[str, int]:
    return {task.id: task.starts for task in state(repo).tasks.values()}


# -- the whole --------------------------------------------------------------------------------------------------------


@pytest.mark.heavy
def test_a_lost_network_fails_no_task_and_all_land_when_it_is_back(repo: Path, tmp_path: Path) -> None:
    """Killed in the middle of the outage, the next run keeps the pause and the breaker."""
    clock, down = SetClock(tmp_path), tmp_path / "down"
    down.write_text("")
    settings(
        repo,
        max_agents=2,
        max_attempts=3,
        outage_pause_s=1000,
        outage_pause_max_s=5000,
        outage_after=2,
    )
    for name in TASKS:
        add(
            repo,
            name,
            f"session s-{name}\nwhile {down}: unreachable no route\nwrite {name}.txt x\nappend ../log-{name} x",
        )
    run = begin(repo, **clock.env)
    try:
        wait_for(lambda: _in_a_row(repo) >= 2 and not _at_work(repo), "the breaker opens")
        (first,) = state(repo).outages.values()
        assert first.rounds == 1 and first.reason == Reason.UNREACHABLE
    finally:
        run.kill()
        run.communicate()
    paused = [task for task in state(repo).tasks.values() if task.not_before]
    begun = sum(starts(repo).values())
    assert len(paused) == begun == first.in_a_row < len(TASKS), "more was started than were at work at once"
    assert all(task.attempts == 1 and "no route" in task.cause and task.not_before == first.until for task in paused)
    again = begin(repo, **clock.env)
    try:
        wait_for(lambda: state(repo).epoch == 2 and "outage" in holdfast(repo, "status"), "the next run")
        (kept,) = state(repo).outages.values()
        assert kept == first and sum(starts(repo).values()) == begun, "the breaker was forgotten"
        clock.later(1300)
        # The probe fails, alone, and the pause is twice as long.
        wait_for(lambda: [each.rounds for each in state(repo).outages.values()] == [2], "the probe")
        (second,) = state(repo).outages.values()
        assert sum(starts(repo).values()) == begun + 1 and second.since == first.since
        now = max(state(repo).tasks.values(), key=lambda task: task.changed_at)
        assert 2000 <= second.until - now.changed_at <= 2501
        down.unlink()
        clock.later(2600)
        told, _ = again.communicate(timeout=120)
    finally:
        again.kill()
        again.communicate()
    assert sorted(landed(repo)) == TASKS, told
    tasks = state(repo).tasks.values()
    assert all(task.state is TaskState.CLOSED and task.attempts == 1 for task in tasks) and not state(repo).outages
    # What each did beside its worktree was done once.
    logs = [layout(repo).worktrees / f"log-{name}" for name in TASKS]
    assert [log.read_text() for log in logs] == ["x\n"] * len(TASKS)
    sound(repo)


def _in_a_row(repo: Path) -> int:
    return max((each.in_a_row for each in state(repo).outages.values()), default=0)


def _at_work(repo: Path) -> bool:
    return any(task.state in (TaskState.CLAIMED, TaskState.IN_PROGRESS) for task in state(repo).tasks.values())


def test_an_outage_is_shown(repo: Path, tmp_path: Path) -> None:
    clock = SetClock(tmp_path)
    settings(repo, outage_pause_s=1000, outage_after=1)
    add(repo, "a", "unreachable the line is cut")
    run = begin(repo, **clock.env)
    try:
        wait_for(lambda: bool(state(repo).outages), "the outage")
        facts = msgspec.json.decode(holdfast(repo, "status", "--json"))
        (row,) = facts["outages"]
        assert row["agent"] == "scripted" and row["reason"] == "unreachable" and row["open"]
        assert row["text"].startswith("scripted is unreachable since ") and "next try at " in row["text"]
        assert row["next_try_at"] > row["since"]
        assert "scripted is unreachable since" in holdfast(repo, "status")
        assert "the line is cut" in holdfast(repo, "show", "a") and "not before" in holdfast(repo, "list")
        assert "the line is cut" in holdfast(repo, "history", "a")
    finally:
        run.kill()
        run.communicate()


def test_a_person_has_a_paused_task_tried_at_once(repo: Path, tmp_path: Path) -> None:
    down = tmp_path / "down"
    down.write_text("")
    settings(repo, outage_pause_s=1000, outage_after=1)
    add(repo, "a", f"while {down}: unreachable no route\nwrite a.txt x")
    run = begin(repo)
    try:
        wait_for(lambda: bool(state(repo).outages), "the outage")
        down.unlink()
        holdfast(repo, "resume", "a")
        told, _ = run.communicate(timeout=120)
    finally:
        run.kill()
        run.communicate()
    task = state(repo).tasks["a"]
    assert task.state is TaskState.CLOSED and task.attempts == 1 and task.starts == 2, told


def test_an_agent_that_only_tries_again_is_ended_and_pauses(repo: Path) -> None:
    settings(repo, retry_timeout_s=0.5, outage_pause_s=1000, stall_timeout_s=1000)
    add(repo, "a", "write a.txt x\nretrying no connection\nhang")
    run = begin(repo)
    try:
        wait_for(lambda: bool(state(repo).outages), "the pause")
    finally:
        run.kill()
        run.communicate()
    task = state(repo).tasks["a"]
    assert task.state is TaskState.OPEN and task.attempts == 1 and task.turn == 1
    assert "did not reach its model: no connection" in task.cause


def test_a_retrying_agent_is_shown_while_it_retries(repo: Path) -> None:
    add(repo, "a", "retrying no connection\nhang")
    run = begin(repo)
    try:
        wait_for(lambda: "tries again: no connection" in holdfast(repo, "status"), "the retry in status")
        (row,) = msgspec.json.decode(holdfast(repo, "status", "--json"))["at_work"]
        assert row["retrying"] == "no connection"
        assert "tries to reach its model again: no connection" in holdfast(repo, "attach")
    finally:
        holdfast(repo, "stop", "--agents")
        run.communicate(timeout=120)


def test_a_command_says_by_its_code_that_it_is_to_be_tried_later(repo: Path, tmp_path: Path) -> None:
    clock, marker = SetClock(tmp_path), tmp_path / "there"
    settings(repo, outage_pause_s=1000)
    (layout(repo).backlog_open / "c.yaml").write_bytes(
        msgspec.yaml.encode({"id": "c", "title": "c", "command": f"test -e {marker} || exit 75; echo x > c.txt"})
    )
    run = begin(repo, **clock.env)
    try:
        wait_for(lambda: bool(state(repo).outages), "the pause")
        marker.write_text("")
        clock.later(1300)
        told, _ = run.communicate(timeout=120)
    finally:
        run.kill()
        run.communicate()
    task = state(repo).tasks["c"]
    assert task.state is TaskState.CLOSED and task.attempts == 1 and task.starts == 2, told


def test_another_agent_has_the_task_where_the_cascade_says_so(repo: Path) -> None:
    away = {"name": "away", "command": ["sh", "-c", "exit 75"]}
    here = {"name": "here", "command": ["sh", "-c", "echo x > a.txt"]}
    cascade: list[dict[str, Any]] = [{"agent": "away", "on_outage": "next"}, {"agent": "here"}]
    settings(repo, agents=[away, here], cascade=cascade, outage_after=1, outage_pause_s=1000)
    (layout(repo).backlog_open / "a.yaml").write_bytes(msgspec.yaml.encode({"id": "a", "goal": "a"}))
    holdfast(repo, "run", "--plain")
    task = state(repo).tasks["a"]
    assert task.state is TaskState.CLOSED and task.attempts == 1 and task.worked_by == "here"
    assert task.why == "cascade step 2 while away cannot use its model" and git(repo, "show", "main:a.txt") == "x"


# -- choosing another agent -------------------------------------------------------------------------------------------


def _down(*agents: str) -> Any:
    return lambda agent, model: agent in agents


def test_on_outage_is_of_the_step_then_the_route_then_the_agent_then_all() -> None:
    made, two = Definition("a", goal="a"), StepSettings("two")
    assert choose(made, Config(cascade=(StepSettings("one"), two)), None, _down("one")).agent == "one"
    assert choose(made, Config(cascade=(StepSettings("one"), two), on_outage="next"), None, _down("one")).agent == "two"
    assert (
        choose(
            made, Config(cascade=(StepSettings("one", on_outage="wait"), two), on_outage="next"), None, _down("one")
        ).agent
        == "one"
    )
    routed = Config(routes=(RouteSettings("far", on_outage="next"),), cascade=(StepSettings("one"), two))
    assert choose(made, routed, None, _down("far", "one")).agent == "two"
    declared = DeclaredAgent("own", ("own",), on_outage="next")
    assert (
        choose(
            made,
            Config(agent="own", agents=(declared,), routes=(RouteSettings("own"),), cascade=(two,)),
            None,
            _down("own"),
        ).agent
        == "two"
    )
    every = Config(cascade=(StepSettings("one"), two), on_outage="next")
    assert choose(made, every, None, _down("one", "two")).agent == "one"
    named = Definition("a", goal="a", agent="one")
    assert choose(named, every, None, _down("one")).agent == "one", "a task that names its agent waits for it"


# -- the fold ---------------------------------------------------------------------------------------------------------


class _Entry(msgspec.Struct):
    seq: int
    timestamp: float
    decision_type: str
    inputs: dict[str, Any]
    output: dict[str, Any] = {}
    entry_hash: str = ""


class _Journal:
    def __init__(self) -> None:
        self.entries: list[tuple[str, _Entry]] = []
        self.at = 1000.0

    def add(self, kind: str, **inputs: Any) -> None:
        self.entries.append(("r", _Entry(len(self.entries) + 1, self.at, kind, inputs)))

    def task(self, name: str) -> None:
        self.add("task_added", task=name, definition="d")

    def start(self, name: str, start: int = 1, endpoint: str = "") -> None:
        claimed = {"task": name, "event": "agent_claims_task", "reason": "scheduled", "attempt": f"{name}.1"}
        self.add("task_claimed", **claimed, agent="claude", endpoint=endpoint)
        self.add("task_spawn_intent", task=name, attempt=f"{name}.1", start=start)
        self.add("task_started", task=name, event="agent_starts_work", reason="scheduled", attempt=f"{name}.1")

    def unreachable(self, name: str, until: float, reason: str = "unreachable") -> None:
        moved = {"task": name, "event": "requeue", "reason": reason, "attempt": f"{name}.1", "until": until}
        self.add("task_opened", **moved, outcome={"detail": "no route"})

    def turn(self, name: str, turn: int) -> None:
        self.add("turn_completed", task=name, attempt=f"{name}.1", turn=turn, end_offset=turn)

    @property
    def state(self) -> State:
        return fold(self.entries)

    @property
    def outage(self) -> Outage | None:
        return next(iter(self.state.outages.values()), None)


def test_starts_that_fail_together_count_once() -> None:
    journal = _Journal()
    for name in ("a", "b", "c"):
        journal.task(name)
        journal.start(name)
    for name in ("a", "b", "c"):
        journal.unreachable(name, 1010.0)
    found = journal.outage
    assert found is not None and (found.in_a_row, found.rounds, found.until) == (3, 1, 1010.0)
    assert outage.blocked_until(found, 1005.0, POLICY) == 1010.0
    assert outage.blocked_until(found, 1010.0, POLICY) is None, "nobody may try"
    journal.at = 1011.0
    journal.start("a", 2)
    assert outage.blocked_until(journal.outage, 1011.0, POLICY) == float("inf"), "a second one goes beside the probe"
    journal.unreachable("a", 1031.0)
    found = journal.outage
    assert found is not None and (found.in_a_row, found.rounds, found.since, found.until) == (4, 2, 1000.0, 1031.0)


def test_a_turn_of_an_older_start_proves_nothing_and_one_of_the_probe_does() -> None:
    journal = _Journal()
    for name in ("a", "b"):
        journal.task(name)
        journal.start(name)
    journal.unreachable("a", 1010.0)
    journal.turn("b", 1)
    assert journal.outage is not None, "b began before"
    journal.start("a", 2)
    journal.turn("a", 1)
    assert journal.outage is None


def test_endpoints_are_apart_and_the_checkpoint_keeps_them() -> None:
    journal = _Journal()
    for name, where in (("a", "here"), ("b", "there")):
        journal.task(name)
        journal.start(name, endpoint=where)
        journal.unreachable(name, 1010.0)
    folded = journal.state
    assert set(folded.outages) == {("claude", "here"), ("claude", "there")}
    loaded = State()
    loaded.load(list(folded.dump()))
    assert loaded.outages == folded.outages
    assert all(each.in_a_row == 1 for each in loaded.outages.values())
    (row, _) = outages.rows(folded, Config(), 1005.0)
    assert row.text == "claude (here) is unreachable since 1970-01-01 00:16:40Z, next try at 1970-01-01 00:16:50Z"
    assert not row.open


def test_pauses_grow_within_bounds_and_differ() -> None:
    before, found = None, []
    now = 0.0
    for _ in range(6):
        until = outage.next_try(before, now, POLICY, 0.0)
        found.append(until - now)
        before = outage.after(before, ("claude", ""), Reason.UNREACHABLE, "", at=now, until=until)
        now = until
    assert found == [10, 20, 40, 80, 100, 100]
    assert outage.next_try(None, 0.0, POLICY, 1.0) == 12.5
    assert outage.next_try(before, now - 1, POLICY, 0.5) == now, "who fails during a pause waits for its end"


def test_a_probe_that_ends_otherwise_makes_room_for_the_next() -> None:
    journal = _Journal()
    journal.task("a")
    journal.start("a")
    journal.unreachable("a", 1010.0)
    journal.start("a", 2)
    journal.add("task_orphaned", task="a", event="crash", reason="crashed", attempt="a.1")
    found = journal.outage
    assert found is not None and not found.probes
    task: Task = journal.state.tasks["a"]
    assert task.endpoint == ""
