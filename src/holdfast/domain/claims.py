"""A claim, from the question to its consequences.

A request for a task is refused with a reason (`refusal`), or gets the right to work on one attempt of it: the
attempt that the task was in, where that continues, or else a new one (`attempt_of`). The ledger journals `task_claimed`
(`facts_of`), and the fold changes the task (`fold_claim`). A token tells the claims of one attempt apart (`token_of`).
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from holdfast.domain.entries import TaskMoved
from holdfast.domain.fsm import Reason
from holdfast.domain.task import TaskEvent, TaskState
from holdfast.domain.task_record import (
    LastAttempt,
    LastClaim,
    LastStart,
    Past,
    PreviousAttempt,
    Task,
    end_attempt,
    open_questions,
)
from holdfast.domain.wording import moment, plural

ASKED_CHARS_MAX = 100


class Claim(msgspec.Struct, frozen=True):
    """The right to work on one attempt. `token` tells it from every earlier and later claim of the same attempt."""

    task: str
    attempt: str
    worker: str
    token: str
    until: float


def refusal(task: Task, now: float) -> str:
    """The reason why the task cannot be claimed now; empty where it can."""
    if task.state is not TaskState.OPEN:
        return f"it is {task.state}"
    if task.parked:
        return f"a person must decide first ({task.parked})"
    if waiting := open_questions(task):
        return f"its agent asks a person ({waiting[0].id})"
    return f"not before {moment(task.not_before)}" if task.not_before > now else ""


def asking_words(task: Task, timeout_s: float | None) -> str:
    """The question for which its agent waits, with what to type and until when; empty where it asks nothing."""
    waiting = open_questions(task)
    if not waiting:
        return ""
    first = min(waiting, key=lambda each: each.asked_at)
    what = first.preview if first.kind == "words" else f"{first.tool} {first.argument}"
    what = " ".join(what.split())
    what = f"{what[:ASKED_CHARS_MAX]}…" if len(what) > ASKED_CHARS_MAX else what
    more = f", and {plural(len(waiting) - 1, 'question')} more" if len(waiting) > 1 else ""
    until = f"; it waits until {moment(first.asked_at + timeout_s)}, then it is denied" if timeout_s is not None else ""
    return f"its agent asks a person ({what}{more}): `{first.answer_command}`{until}"


def attempt_of(task: Task) -> str:
    """The attempt that the next claim works on."""
    return task.attempt.id if task.continues else f"{task.id}.{task.attempts + 1}"


def token_of(task: Task) -> str:
    return f"{task.attempt.id}/{task.claim.number}"


def claim_of(task: Task) -> Claim:
    """The claim by which the task is held; its lease is not known here."""
    return Claim(task.id, task.attempt.id, task.claim.agent, token_of(task), 0.0)


def facts_of(task: Task, worker: str, model: str, why: str, more: dict[str, Any]) -> dict[str, Any]:
    """The fields of a claim's entry; the model and the reason only where there are any."""
    chosen = {key: value for key, value in (("model", model), ("why", why)) if value}
    moved = {"task": task.id, "event": TaskEvent.AGENT_CLAIMS_TASK, "reason": Reason.SCHEDULED}
    return {**moved, "attempt": attempt_of(task), "agent": worker, **chosen, **more}


def fold_claim(task: Task, moved: TaskMoved) -> None:
    """A claim of the attempt that the task had before continues it, and costs no attempt."""
    before = task.attempt
    if moved.attempt != before.id:
        if before.stands and before.at != task.made:
            task.left = PreviousAttempt(before.id, before.stands, before.base)
        if before.id and before.id not in (each.attempt for each in task.past):
            end_attempt(task, Past(before.id, before.turn, undos=before.undos))
        # Until its first start, the base and the cost of the last start are those of the attempt before.
        task.attempt = LastAttempt(moved.attempt, worked_on=task.definition, base=before.base)
        task.start = LastStart(used=task.start.used)
        task.questions = ()
        task.attempts, task.assigned = task.attempts + 1, ("", "")
    # A worker from elsewhere is none of our agents: what it gives back is anybody's.
    worked_by = "" if moved.remote else moved.agent
    if worked_by != task.claim.worked_by != "":
        # Another agent cannot go on with it.
        task.session = ""
    task.claim = LastClaim(
        number=task.claim.number + 1,
        agent=moved.agent,
        worked_by=worked_by,
        model=moved.model,
        why=moved.why,
        endpoint=moved.endpoint,
        remote=moved.remote,
    )
    task.not_before, task.cause = 0.0, ""
    task.restored = task.restored and not moved.remote


def claimed(task: Task, agent: str, model: str = "") -> Task:
    """The task as its next claim by this agent makes it."""
    found = copy.copy(task)
    fold_claim(found, TaskMoved(task.id, TaskEvent.AGENT_CLAIMS_TASK, "", attempt_of(task), agent, model=model))
    return found
