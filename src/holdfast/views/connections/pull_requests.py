"""The pull requests of tasks as rows: where each stands, what it waits for, and what to type."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.domain.messages.outbox_records import Outgoing
from holdfast.domain.pull_requests.pull_records import PullRequest
from holdfast.domain.state import State
from holdfast.domain.task import OVER, TaskState
from holdfast.domain.task_record import Task


class PullRow(msgspec.Struct, frozen=True, kw_only=True):
    """`state` is that of the pull request as it was seen last; `waits`: what it waits for; `head` was queued last, and
    `pushed` is what the remote has of ours."""

    task: str
    task_state: TaskState
    number: int
    url: str
    state: str
    branch: str
    base: str
    head: str
    pushed: str
    checks: str
    rounds: int
    rounds_max: int
    comments: int
    merged: str
    waits: str
    next_step: str


def pull_rows(state: State, rounds_max: int, *, only: str = "") -> list[PullRow]:
    """Those of tasks that are not over; or the one of the task that is named."""
    outbox = state.outbox.copy()
    return [
        _row(task, task.pull, outbox, rounds_max)
        for task in state.tasks.values()
        if task.pull is not None and (task.id == only if only else task.state not in OVER)
    ]


def _row(task: Task, pull: PullRequest, outbox: Mapping[str, Outgoing], rounds_max: int) -> PullRow:
    waits, step = _waits(task, pull, outbox)
    return PullRow(
        task=task.id,
        task_state=task.state,
        number=pull.number,
        url=pull.url,
        state=pull.state,
        branch=pull.branch,
        base=pull.base,
        head=pull.head,
        pushed=pull.pushed,
        checks=pull.checks,
        rounds=pull.rounds,
        rounds_max=pull.rounds_max or rounds_max,
        comments=len(pull.seen),
        merged=pull.merged,
        waits=waits,
        next_step=step,
    )


def _waits(task: Task, pull: PullRequest, outbox: Mapping[str, Outgoing]) -> tuple[str, str]:
    """What it waits for, in words, and what to type."""
    if task.state in OVER:
        return "", ""
    if task.parked:
        return task.parked, f"holdfast pr {task.id} --open | --rounds N | holdfast cancel {task.id}"
    own = [each for each in outbox.values() if each.task == task.id]
    if parked := next((each for each in own if each.parked), None):
        return parked.parked, f"holdfast outbox --retry {parked.key} | --drop {parked.key}"
    if own:
        why = f": {own[0].reason}" if own[0].reason else ""
        return f"{own[0].channel.replace('_', ' ')} is still to leave{why}", "holdfast run"
    if task.state is not TaskState.PENDING_APPROVAL:
        return f"the task is {task.state}", "holdfast run" if task.state is TaskState.OPEN else ""
    if pull.due:
        return pull.why, "holdfast run"
    return "a review and a merge there", f"holdfast pr {task.id} --refresh"
