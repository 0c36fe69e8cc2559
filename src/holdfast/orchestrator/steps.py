"""Performs one step of a plan: what the loop's own thread does to one task, but for starting and finishing it."""

from __future__ import annotations

from holdfast.decisions.cancel_chain import cancel_with, words_for
from holdfast.decisions.context import DecisionContext
from holdfast.domain.fsm import Reason
from holdfast.domain.task import TaskEvent, TaskState
from holdfast.domain.task_record import Task
from holdfast.engine import orphans, outcome
from holdfast.engine.context import RunContext
from holdfast.engine.plan import REASONS, ApplyExit, Begin, Cancel, Continue, Follow, Lapse, Orphan, Retry
from holdfast.worktrees import pins

Step = Begin | ApplyExit | Orphan | Continue | Retry | Follow | Cancel | Lapse


def perform(context: RunContext, task: Task, step: Step) -> None:
    match step:
        case Begin():
            context.move(task, TaskEvent.AGENT_STARTS_WORK, Reason.SCHEDULED, agent=task.agent)
        case ApplyExit(_, exit):
            outcome.apply_exit(context, task, exit)
        case Orphan(_, event):
            orphans.orphan(context, task, event)
        case Continue():
            orphans.continue_orphan(context, task)
        case Retry():
            context.move(task, TaskEvent.RETRY, Reason.ATTEMPTS_LEFT, outcome=task.outcome)
        case Follow(_, event):
            context.move(task, event, REASONS[event])
        case Cancel(_, reason, cause):
            cancel_with(DecisionContext.of(context, ""), task, reason, cause)
            pins.release(context.repo, context.layout, [task])
            context.note(task.id, f"cancelled: {words_for(reason, cause)}")
        case Lapse():
            event = TaskEvent.UNCLAIM if task.state is TaskState.CLAIMED else TaskEvent.REQUEUE
            context.move(task, event, Reason.HEARTBEAT_LOST)
            context.note(task.id, f"{task.attempt} was given no sign of life by its worker, and is open again")
