"""A person's review of a candidate that waits for approval, and the way back to the agent's conversation."""

from __future__ import annotations

from holdfast.decisions.context import DecisionContext, refused
from holdfast.domain.fsm import Reason
from holdfast.domain.task import TaskEvent, TaskState
from holdfast.domain.task_record import Task
from holdfast.storage.journal.entry import Record


def sent_back(decision: DecisionContext, task: Task, number: int = 0, feedback: str = "") -> Record:
    """The move by which the next start continues the same attempt and conversation; no attempt is spent.

    `number`: the record's place in the decision. `feedback`: the blob with the words for the agent.
    """
    if task.state is TaskState.PENDING_APPROVAL and not task.attempt.id:
        hint = f"`holdfast reject {task.id}` or `holdfast cancel {task.id}` ends it."
        raise refused(task, "sent back", hint, "no agent has worked on it")
    facts = {"attempt": task.attempt.id, **({"feedback": feedback} if feedback else {})}
    return decision.moved(task, TaskEvent.CHANGES_REQUESTED, Reason.CHANGES_REQUESTED, number, facts)
