"""`tell`: a person's message to the agent of a task, wherever the task stands.

The message is journalled first, and stays on the task until a start has seen it. Then whatever holds the conversation
up is ended: a task that failed, waits for approval or was stopped is opened again, under the same attempt. An agent at
work gets it from its runner, at the end of its turn.
"""

from __future__ import annotations

import msgspec

from holdfast.decisions.context import Answer, DecisionContext, expect_decided, refused
from holdfast.decisions.reviews import sent_back
from holdfast.decisions.tasks import UNDER_WAY, One, expect_at_rest, resume, resuming, who_goes_on
from holdfast.domain.conversations.conversation_entries import TaskTold
from holdfast.domain.entries import STOPPED
from holdfast.domain.fsm import Reason
from holdfast.domain.task import AT_WORK, OVER, TaskEvent, TaskState
from holdfast.domain.task_record import Task
from holdfast.errors import InputError
from holdfast.storage.journal.entry import Record

MESSAGE_CHARS_MAX = 20_000
# Messages that wait on one task: each is part of every entry of the state, and of the next prompt.
MESSAGES_MAX = 50
_JUDGED = (TaskState.DONE, TaskState.PENDING_APPROVAL)


class Telling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task: str
    message: str


def tell(decision: DecisionContext, asked: Telling) -> Answer:
    task = decision.task(asked.task)
    records = []
    if not decision.has_done("task_told", 0):
        expect_tellable(decision, task)
        records = [message_record(decision, task, asked.message)]
    decision.append([*records, *_waking(decision, task)])
    if task.state in AT_WORK:
        decision.context.spawn.deliver(task)
    return decision.answer(task, note=_note(decision, task))


class Resumption(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`message`: words for the agent when it goes on."""

    task: str
    message: str = ""


def resume_told(decision: DecisionContext, asked: Resumption) -> Answer:
    """Resumes; with a message, that is to tell it, where there is something to resume."""
    task = decision.task(asked.task)
    if not asked.message:
        return resume(decision, One(asked.task))
    if not decision.has_begun():
        expect_decided(task, "resumed", or_stopped=True)
        if task.state is not TaskState.FAILED and task.state not in UNDER_WAY:
            raise refused(task, "resumed", f'`holdfast tell {task.id} "…"` tells its agent.')
    return tell(decision, Telling(asked.task, asked.message))


def message_record(decision: DecisionContext, task: Task, message: str, number: int = 0) -> Record:
    """The record of a message. Its id is that of the request, so that asking again tells nothing twice."""
    if not message.strip():
        raise InputError(detail="the message is empty; write what the agent shall know")
    if len(message) > MESSAGE_CHARS_MAX:
        most = f"a message has at most {MESSAGE_CHARS_MAX:,} characters, and this one has {len(message):,}"
        raise InputError(detail=f"{most}; put the rest into a file of the repository, and name that")
    if len(task.told) >= MESSAGES_MAX:
        raise refused(task, "told more", "`holdfast run` gives them to it.", f"{MESSAGES_MAX} messages wait for it")
    record = decision.record("task_told", number, {})
    made = TaskTold(task.id, str(record.inputs["idempotency_key"]), message, decision.by)
    return decision.record("task_told", number, msgspec.to_builtins(made))


def expect_tellable(decision: DecisionContext, task: Task) -> None:
    """Raises where no agent could ever read it."""
    if task.state in OVER:
        raise refused(task, "told anything", _fork_hint(task))
    made = decision.board.definition(task.id)
    if made is not None and made.command is not None:
        hint = f"`holdfast edit {task.id}` changes what it does."
        raise refused(task, "told anything", hint, "its work is a command, which reads no messages")
    if task.claim.remote and task.state in AT_WORK:
        hint = f"`holdfast edit {task.id}` changes its goal for the next attempt."
        raise refused(task, "told anything", hint, f"{task.claim.agent} works on it elsewhere")
    if task.state in _JUDGED and not task.attempt.id:
        raise refused(task, "told anything", "tell one of its subtasks.", "no agent has worked on it")
    if task.state is TaskState.DONE:
        expect_at_rest(decision, task, "told anything")


def _fork_hint(task: Task) -> str:
    if not task.attempt.turn:
        return 'its conversation is over; `holdfast add "…"` begins another task.'
    return (
        f"its conversation is over; `holdfast fork {task.id} --turn {task.attempt.turn}` begins a task with its work."
    )


def _waking(decision: DecisionContext, task: Task) -> list[Record]:
    """The records after which the next claim goes on with the conversation. None where it goes on by itself."""
    if task.taken is not None or (task.parked and task.parked != STOPPED):
        return []
    records: list[Record] = []
    if task.state in _JUDGED and not decision.has_done("task_opened", 0):
        records = [sent_back(decision, task)]
    elif task.state is TaskState.FAILED or decision.has_done("task_opened", 0):
        records = resuming(decision, task) if task.attempt.id else _reopening(decision, task)
    is_paused = task.state is TaskState.OPEN and bool(task.not_before and task.cause)
    if (task.parked == STOPPED or is_paused) and not decision.has_done("task_flagged", 0):
        # Last, so that a crash before leaves it as it was.
        told = {"was": task.parked or task.cause, "reason": Reason.TOLD}
        records.append(decision.flagged(task, 0, told))
    return records


def _reopening(decision: DecisionContext, task: Task) -> list[Record]:
    if decision.has_done("task_opened", 0):
        return []
    return [decision.moved(task, TaskEvent.RETRY, Reason.REQUESTED_BY_PERSON)]


def _note(decision: DecisionContext, task: Task) -> str:
    if task.taken is not None:
        return f"it is {task.parked}, and its agent gets it when it is given back"
    if task.parked and task.parked != STOPPED:
        return f"its agent gets it when you have decided what else is open, with `holdfast resolve {task.id}`"
    if not task.told:
        return "it has heard it"
    if task.state in AT_WORK:
        return "its agent gets it at the end of its turn"
    if task.state in (TaskState.OPEN, TaskState.ORPHANED) and task.attempt.id:
        return who_goes_on(decision, f"goes on with {task.attempt.id}, and tells it")
    return "its agent gets it with its first prompt" if not task.attempt.id else "its agent gets it at its next start"
