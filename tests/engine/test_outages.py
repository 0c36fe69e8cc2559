"""Outages: a model that cannot be reached fails no task, and nothing of it is forgotten when the orchestrator dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.domain.fsm import Reason
from holdfast.domain.outage import Policy
from holdfast.domain.task import TaskState
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
    return {task.id: task.start.number for task in state(repo).tasks.values()}


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
    assert task.state is TaskState.CLOSED and task.attempts == 1 and task.start.number == 2, told


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
    assert task.state is TaskState.OPEN and task.attempts == 1 and task.attempt.turn == 1
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
    assert task.state is TaskState.CLOSED and task.attempts == 1 and task.start.number == 2, told


def test_another_agent_has_the_task_where_the_cascade_says_so(repo: Path) -> None:
    away = {"name": "away", "command": ["sh", "-c", "exit 75"]}
    here = {"name": "here", "command": ["sh", "-c", "echo x > a.txt"]}
    cascade: list[dict[str, Any]] = [{"agent": "away", "on_outage": "next"}, {"agent": "here"}]
    settings(repo, agents=[away, here], cascade=cascade, outage_after=1, outage_pause_s=1000)
    (layout(repo).backlog_open / "a.yaml").write_bytes(msgspec.yaml.encode({"id": "a", "goal": "a"}))
    holdfast(repo, "run", "--plain")
    task = state(repo).tasks["a"]
    assert task.state is TaskState.CLOSED and task.attempts == 1 and task.claim.worked_by == "here"
    assert task.claim.why == "cascade step 2 while away cannot use its model" and git(repo, "show", "main:a.txt") == "x"
