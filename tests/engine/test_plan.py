"""The plan as a table: every state of a task, everything that can be seen of its attempt, and the command for it."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.config.settings import Config
from holdfast.domain.attempt_records import Ending, Exit
from holdfast.domain.entries import STOPPED
from holdfast.domain.fsm import Reason
from holdfast.domain.task import TaskEvent, TaskState
from holdfast.engine.plan import (
    ApplyExit,
    Begin,
    Cancel,
    Command,
    Continue,
    Follow,
    Lapse,
    Observation,
    Orphan,
    Retry,
    StartTask,
)
from holdfast.landing.merge_queue import QueueView, VerifyAndLand
from holdfast.storage.records.attempt_folder import Liveness
from kit.states import folded, planned, story

S = TaskState
EXIT = Exit("t.1", 1, Ending.DONE, "The agent has finished.", at=1.0)
SILENT_S = Config().heartbeat_timeout_s
# All that can be seen of an attempt.
SEEN: dict[str, Observation | None] = {
    "unseen": None,
    "alive": Observation(Liveness.ALIVE, silent_s=SILENT_S),
    "silent": Observation(Liveness.ALIVE, silent_s=SILENT_S + 0.1),
    "ended": Observation(Liveness.ENDED, EXIT),
    "ended, not read": Observation(Liveness.ENDED),
    "dead": Observation(Liveness.DEAD),
    "headless": Observation(Liveness.HEADLESS, silent_s=SILENT_S + 0.1),
    "absent": Observation(Liveness.ABSENT),
}
CRASH, START = Orphan("t", TaskEvent.CRASH), StartTask("t")
IN_PROGRESS: dict[str, Command | None] = {
    "unseen": None,
    "alive": None,
    "silent": Orphan("t", TaskEvent.HEARTBEAT_TIMEOUT),
    "ended": ApplyExit("t", EXIT),
    "ended, not read": None,
    "dead": CRASH,
    "headless": CRASH,
    "absent": CRASH,
}
# What is planned for the other states, whatever is seen.
ELSEWHERE: dict[TaskState, Command | None] = {
    S.PLANNED: None,
    S.OPEN: START,
    S.CLAIMED: Begin("t"),
    S.ORPHANED: Continue("t"),
    S.BLOCKED: Follow("t", TaskEvent.DEPENDENCY_RESOLVED),
    S.WAITING_FOR_SUBTASKS: None,
    S.DONE: VerifyAndLand("t"),
    S.PENDING_APPROVAL: None,
    S.FAILED: None,
    S.CLOSED: None,
    S.CANCELLED: None,
}


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("state", S)
def test_every_state_with_everything_that_is_seen_has_its_command(state: TaskState, seen: str) -> None:
    observed = {"t": observation} if (observation := SEEN[seen]) is not None else {}
    wanted = IN_PROGRESS[seen] if state is S.IN_PROGRESS else ELSEWHERE[state]
    assert planned(folded(story("t", state)), observed) == [wanted] * (wanted is not None)


def test_a_claim_begins_only_once_its_start_took_place() -> None:
    assert planned(folded(story("t", S.CLAIMED, started=False))) == []


@pytest.mark.parametrize(
    ("state", "facts", "wanted"),
    [
        (S.FAILED, {"again": True}, [Retry("t")]),
        (S.FAILED, {"again": True, "flag": {"parked": "look at it"}}, []),
        (S.ORPHANED, {"flag": {"parked": "look at it"}}, []),
        (S.ORPHANED, {"flag": {"parked": STOPPED}}, [Continue("t")]),
        (S.DONE, {"flag": {"parked": "look at it"}}, []),
        (S.OPEN, {"flag": {"parked": "look at it"}}, []),
        # What is seen of an attempt counts, also where a person must decide on its task.
        (S.IN_PROGRESS, {"flag": {"parked": "look at it"}}, [CRASH]),
        (S.CLAIMED, {"flag": {"parked": "look at it"}}, [Begin("t")]),
    ],
)
def test_a_parked_task_is_neither_continued_nor_retried_nor_landed(
    state: TaskState, facts: dict[str, Any], wanted: list[Command]
) -> None:
    assert planned(folded(story("t", state, **facts)), {"t": Observation(Liveness.DEAD)}) == wanted


@pytest.mark.parametrize("state", [S.CLAIMED, S.IN_PROGRESS, S.ORPHANED, S.FAILED, S.DONE, S.OPEN])
def test_a_held_task_is_left_alone(state: TaskState) -> None:
    held = folded(story("t", state, **({"again": True} if state is S.FAILED else {})))
    assert planned(held, {"t": Observation(Liveness.DEAD)}) != []
    assert planned(held, {"t": Observation(Liveness.DEAD)}, held={"t"}) == []


@pytest.mark.parametrize("state", [S.CLAIMED, S.IN_PROGRESS, S.ORPHANED, S.FAILED, S.DONE])
def test_an_inactive_task_is_not_observed(state: TaskState) -> None:
    assert planned(folded(story("t", state, **({"again": True} if state is S.FAILED else {}))), active=()) == []


# -- stopping, and one landing at a time ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "goes_on"), [(S.OPEN, False), (S.DONE, False), (S.IN_PROGRESS, True), (S.CLAIMED, True)]
)
def test_a_run_that_stops_begins_and_lands_nothing_and_settles_the_rest(state: TaskState, goes_on: bool) -> None:
    found = planned(folded(story("t", state)), {"t": Observation(Liveness.ENDED, EXIT)}, stopping=True)
    assert bool(found) is goes_on


def test_one_task_is_landed_at_a_time_the_one_that_was_done_first() -> None:
    # The entries of `b` come first.
    both = folded(story("b", S.DONE), story("a", S.DONE))
    assert planned(both) == [VerifyAndLand("b")]
    assert planned(both, queue=QueueView("c")) == []
    assert planned(both, held={"b"}) == [VerifyAndLand("a")]


def test_a_landing_or_failing_task_is_not_cancelled_for_its_parent() -> None:
    state = folded(story("p", S.CANCELLED), story("t", S.DONE))
    nodes = {"t": {"parent": "p"}}
    cancel = Cancel("t", Reason.PARENT_CANCELLED, "p")
    assert planned(state, nodes=nodes) == [cancel], "and it is not landed on its way"
    assert planned(state, nodes=nodes, queue=QueueView("t")) == []
    assert planned(state, nodes=nodes, failing={"t"}, held={"t"}) == []


@pytest.mark.parametrize("state", [S.CLAIMED, S.IN_PROGRESS, S.ORPHANED, S.FAILED, S.BLOCKED, S.OPEN, S.DONE])
def test_a_task_to_be_cancelled_is_neither_continued_nor_retried(state: TaskState) -> None:
    made = folded(story("p", S.CANCELLED), story("t", state, **({"again": True} if state is S.FAILED else {})))
    found = planned(made, {"t": Observation(Liveness.DEAD)}, nodes={"t": {"parent": "p"}})
    assert found == [Cancel("t", Reason.PARENT_CANCELLED, "p")]


def test_a_task_that_does_not_wait_for_a_failed_dependency_is_cancelled() -> None:
    made = folded(story("d", S.FAILED), story("t", S.OPEN))
    assert planned(made, nodes={"t": {"depends_on": ["d"]}}) == []
    found = planned(made, nodes={"t": {"depends_on": ["d"], "cancels": True}})
    assert found == [Cancel("t", Reason.DEPENDENCY_FAILED, "d")]


# -- starts -----------------------------------------------------------------------------------------------------------


def test_one_task_starts_at_a_time_by_priority_and_only_once_all_else_is_settled() -> None:
    waiting = (story("a", S.OPEN), story("b", S.OPEN))
    assert planned(folded(*waiting)) == [StartTask("a")]
    assert planned(folded(*waiting), nodes={"b": {"priority": 1}}) == [StartTask("b")]
    assert planned(folded(*waiting, story("c", S.CLAIMED))) == [Begin("c")]
    assert planned(folded(*waiting), held={"a"}) == [StartTask("b")]
    # The hold of the whole run.
    assert planned(folded(*waiting), held={""}) == []
    assert planned(folded(*waiting), only={"b"}) == [StartTask("b")]
    assert planned(folded(*waiting), only={"c"}) == []
    assert planned(folded(*waiting), only={"a", "b"}, held={"a", "b"}) == []


@pytest.mark.parametrize(
    ("other", "facts", "seen", "is_full"),
    [
        (S.IN_PROGRESS, {}, Liveness.ALIVE, True),
        # A claim is counted as soon as it is made, and before anything is seen of it.
        (S.CLAIMED, {"started": False}, None, True),
        (S.IN_PROGRESS, {"flag": {"parked": STOPPED}}, Liveness.ALIVE, True),
        (S.IN_PROGRESS, {"flag": {"parked": "look at it"}}, Liveness.ALIVE, True),
        # One that waits for a person is nobody's once its process is gone.
        (S.IN_PROGRESS, {"flag": {"parked": "look at it"}}, None, False),
        # A remote worker takes no place here.
        (S.CLAIMED, {"started": False, "remote": True}, None, False),
        (S.PENDING_APPROVAL, {}, None, False),
        (S.WAITING_FOR_SUBTASKS, {}, None, False),
    ],
)
def test_no_more_agents_work_than_the_settings_allow(
    other: TaskState, facts: dict[str, Any], seen: Liveness | None, is_full: bool
) -> None:
    state = folded(story("other", other, **facts), story("t", S.OPEN))
    observed = {"other": Observation(seen)} if seen else {}
    assert planned(state, observed, config=Config(max_agents=1)) == ([] if is_full else [START])
    assert planned(state, observed, config=Config(max_agents=2)) == [START]


def test_a_task_with_subtasks_waits_for_them_and_is_not_started() -> None:
    made = folded(story("p", S.OPEN), story("t", S.PENDING_APPROVAL))
    assert planned(made, nodes={"t": {"parent": "p"}}) == [Follow("p", TaskEvent.DECOMPOSED_BEFORE_CLAIM)]


def test_a_task_starts_when_its_time_has_come() -> None:
    made = folded(story("t", S.OPEN))
    assert planned(made, nodes={"t": {"not_before": 1000.5}}) == []
    assert planned(made, nodes={"t": {"not_before": 1000.5}}, now=1000.5) == [START]


# -- what follows from other tasks ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("child", "overdue", "wanted"),
    [
        (S.CLOSED, False, [Follow("t", TaskEvent.ALL_SUBTASKS_COMPLETED)]),
        (S.CLOSED, True, [Follow("t", TaskEvent.ALL_SUBTASKS_COMPLETED)]),
        (S.PENDING_APPROVAL, True, [Follow("t", TaskEvent.SUBTASK_TIMEOUT_ESCALATION)]),
        (S.PENDING_APPROVAL, False, []),
    ],
)
def test_a_task_that_waits_for_subtasks_goes_on_with_them_or_has_waited_too_long(
    child: TaskState, overdue: bool, wanted: list[Command]
) -> None:
    made = folded(story("t", S.WAITING_FOR_SUBTASKS), story("child", child))
    found = planned(made, nodes={"child": {"parent": "t"}}, overdue={"t"} if overdue else ())
    assert found == wanted


def test_a_lapsed_lease_counts_for_remote_workers_and_is_not_cancelled() -> None:
    made = folded(story("t", S.CLAIMED, started=False, remote=True), story("own", S.CLAIMED, started=False))
    assert planned(made, lapsed=["t", "own"]) == [Lapse("t")]
    doomed = folded(story("p", S.CANCELLED), story("t", S.CLAIMED, started=False, remote=True))
    found = planned(doomed, lapsed=["t"], nodes={"t": {"parent": "p"}})
    assert found == [Cancel("t", Reason.PARENT_CANCELLED, "p")]


def test_commands_come_in_the_order_in_which_they_must_be_done() -> None:
    """First what is cancelled and lapsed, then what ended, then what follows from that; landing last."""
    made = folded(
        story("done", S.DONE), story("waits", S.BLOCKED), story("dead", S.IN_PROGRESS),
        story("away", S.CLAIMED, started=False, remote=True), story("p", S.CANCELLED), story("child", S.OPEN),
        story("new", S.OPEN),
    )  # fmt: skip
    found = planned(
        made, {"dead": Observation(Liveness.DEAD)}, nodes={"child": {"parent": "p"}}, lapsed=["away"]
    )  # fmt: skip
    assert found == [
        Cancel("child", Reason.PARENT_CANCELLED, "p"),
        Lapse("away"),
        Orphan("dead", TaskEvent.CRASH),
        Follow("waits", TaskEvent.DEPENDENCY_RESOLVED),
        VerifyAndLand("done"),
    ]
