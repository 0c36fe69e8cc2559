"""What to type next for a task that is not settled."""

from __future__ import annotations

from holdfast.domain.entries import STOPPED
from holdfast.domain.task import TaskState

_NEXT = {
    TaskState.CLAIMED: "holdfast attach {task}",
    TaskState.IN_PROGRESS: "holdfast attach {task}",
    TaskState.FAILED: "holdfast retry {task}",
    TaskState.PENDING_APPROVAL: "holdfast approve {task}",
}


def next_step(task: str, state: TaskState, parked: str = "", *, is_held: bool = False) -> str:
    """The command that brings the task on; `is_held`: something named beside it stands in the way, so look first."""
    if parked == STOPPED:
        return f"holdfast resume {task}"
    if parked:
        return f"holdfast resolve {task} --happened | --retry | --abandon"
    return _NEXT.get(state, "holdfast show {task}" if is_held else "holdfast run").format(task=task)
