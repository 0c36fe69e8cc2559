"""Salvages an orphan that may not be continued any more: its last turn becomes a candidate, verified like any other.

Only where something judges whether the work is complete: gates, or a person who must approve it. A candidate that they
refuse fails the attempt as usual, and the next one begins with it.
"""

from __future__ import annotations

from holdfast.domain.definition import Definition
from holdfast.domain.fsm import Reason
from holdfast.domain.task import TaskEvent
from holdfast.domain.task_record import Task
from holdfast.engine.base_tree import journalled_turns
from holdfast.engine.context import RunContext
from holdfast.landing import verify
from holdfast.worktrees import commit_messages, merges


def salvage(context: RunContext, task: Task, made: Definition) -> bool:
    """Whether the orphan is done by what its last turn left."""
    is_judged = bool(verify.gates_of(made, context.config)) or (made.approve or False)
    candidate = _candidate(context, task, made) if is_judged and task.stands else ""
    if not candidate:
        return False
    detail = f"turn {task.stands} of {task.attempt}, which was orphaned too often to be continued, is judged as it is"
    context.move(
        task,
        TaskEvent.PARTIAL_WORK_MERGED,
        Reason.SALVAGED,
        candidate=candidate,
        agent=task.agent,
        outcome={"detail": detail},
    )
    context.note(task.id, detail)
    return True


def _candidate(context: RunContext, task: Task, made: Definition) -> str:
    """The last turn as a commit on the attempt's base; empty where it changed nothing, or is not there."""
    store, snapshot = context.worktrees.store, journalled_turns(context.ledger, task.attempt).get(task.stands, "")
    if not snapshot or store.flaw_of(snapshot):
        return ""
    if merges.nested(store, task.base, snapshot, context.worktrees.exclude):
        # It would be salvaged without files of it.
        return ""
    message = commit_messages.of_candidate(context, task, made)
    who = merges.identity(context.repo, context.config)
    trees = context.worktrees
    found = merges.candidate(
        store, task.base, snapshot, message, who, exclude=trees.exclude, modules=trees.modules, attempt=task.attempt
    )
    return found or ""
