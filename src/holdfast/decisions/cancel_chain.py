"""The abort chain: cancels what follows from what became of other tasks.

A cancelled task takes its subtasks along, through any depth; a task with `on_dependency_failed: cancel` follows a
dependency that failed or was cancelled. What is due is derived from the state alone (`Graph.due_cancels`), and each
task is cancelled by itself: its processes are ended, then the move is journalled. So a chain that was cut off by a
crash is still due at the next run. What has landed stays landed.
"""

from __future__ import annotations

from holdfast.crashpoints import point
from holdfast.decisions.context import DecidedNow, DecisionContext
from holdfast.decisions.tasks import end_attempt
from holdfast.domain.entries import MOVE_TO
from holdfast.domain.fsm import Reason
from holdfast.domain.graph import Abort
from holdfast.domain.task import TASK, TaskState, cancel_event
from holdfast.domain.task_record import Task
from holdfast.engine.board import Board
from holdfast.engine.context import RunContext
from holdfast.storage.journal.entry import Record
from holdfast.worktrees import pins

CHAIN_POINTS = ("chain.found", "chain.ended", "chain.cancelled")


def words_for(reason: Reason, cause: str) -> str:
    if reason is Reason.PARENT_CANCELLED:
        return f"its parent {cause} was cancelled"
    return f"it depends on {cause}, which failed or was cancelled"


def cancel_with(decision: DecisionContext, task: Task, reason: Reason, cause: str) -> None:
    """Ends whatever works on the task, then journals that it is cancelled."""
    point("chain.found")
    end_attempt(decision, task)
    point("chain.ended")
    event = cancel_event(task.state)
    assert event is not None, f"{task.id} is {task.state}"
    outcome = {"detail": words_for(reason, cause)}
    inputs = {"task": task.id, "event": event, "reason": reason, "attempt": task.attempt.id, "outcome": outcome}
    decision.append([Record(MOVE_TO[TASK.next(task.state, event)], inputs, actor="chain")])
    point("chain.cancelled")


def follow_cancel(context: RunContext, task: Task, reason: Reason, cause: str) -> None:
    """Cancels a task as the loop has planned it."""
    cancel_with(DecisionContext.of(context, ""), task, reason, cause)
    pins.release(context.repo, context.layout, [task])
    context.note(task.id, f"cancelled: {words_for(reason, cause)}")


def finish_chains(decision: DecisionContext) -> list[DecidedNow]:
    """Cancels all that is due; returns the tasks, in the order in which they were cancelled."""
    board = decision.board
    cancelled: list[DecidedNow] = []
    while aborts := _due(decision, board):
        for abort in aborts:
            task = decision.task(abort.task)
            cancel_with(decision, task, abort.reason, abort.cause)
            board.note_change(task.id)
            cancelled.append(DecidedNow(task.id, task.state, words_for(abort.reason, abort.cause)))
    return cancelled


def _due(decision: DecisionContext, board: Board) -> list[Abort]:
    board.keep_up()
    with board.lock:
        due = board.graph.due_cancels()
    # What is being landed right now is left to the loop, which sees its end.
    is_busy, ahead = decision.is_busy, decision.context.judgings.ahead
    done = {each.task for each in due if decision.task(each.task).state is TaskState.DONE}
    return [each for each in due if not (each.task in done and (is_busy or each.task in ahead))]
