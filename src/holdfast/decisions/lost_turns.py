"""What a person decides about a turn that the journal has and whose snapshot is gone: nothing goes on by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.domain.entries import TurnUndone, is_lost
from holdfast.domain.fsm import Reason
from holdfast.domain.task import TaskEvent, TaskState
from holdfast.domain.task_record import Task
from holdfast.engine.earlier_starts import newest_whole
from holdfast.errors import DecisionRefused
from holdfast.storage.journal.entry import Record

if TYPE_CHECKING:
    from holdfast.decisions.context import DecisionContext

CHOICES = ("newest", "anew")


def records(decision: DecisionContext, task: Task, choice: str) -> list[Record]:
    """`newest` goes on from the newest turn that is there, `anew` without what the attempts before left."""
    if not is_lost(task.parked):
        hint = f"use `holdfast resolve {task.id} --happened`, `--retry` or `--abandon`."
        raise DecisionRefused(task=task.id, verb="continued", reason="no turn of it is lost", hint=hint)
    flag = {"task": task.id, "parked": "", "not_before": task.not_before, "anew": choice == "anew"}
    told = {"decision": choice, "was": task.parked, "reason": Reason.RESOLVED_BY_PERSON}
    opened = _opened(decision, task)
    if choice == "anew":
        return [*opened, decision.record("task_flagged", 0, flag, told)]
    left = task.left if task.left is not None and not task.starts else None
    attempt, turn, base = (left.attempt, left.turn, left.base) if left else (task.attempt, task.stands, task.base)
    found, commit = newest_whole(decision.ledger, decision.worktrees, attempt, turn, base)
    if not found:
        hint = f"`holdfast resolve {task.id} --anew` begins anew, and `--abandon` gives it up."
        raise DecisionRefused(task=task.id, verb="continued", reason=f"no turn of {attempt} is there", hint=hint)
    undone = TurnUndone(task.id, attempt, found, "", commit)
    back = decision.record("turn_undone", 0, msgspec.to_builtins(undone))
    if opened or not task.continues:
        resumed = {"task": task.id, "attempt": task.attempt}
        opened.append(decision.record("attempt_resumed", 3, resumed))
    return [*opened, back, decision.record("task_flagged", 1, flag, told)]


def _opened(decision: DecisionContext, task: Task) -> list[Record]:
    """A task that is done is opened again; by a crash between the two it has failed, and is parked still."""
    outcome = {"kind": "lost", "detail": task.parked, "attempt": task.attempt}
    facts = {"task": task.id, "reason": Reason.RESOLVED_BY_PERSON, "attempt": task.attempt}
    retry = {**facts, "event": TaskEvent.RETRY, "outcome": outcome}
    records = [decision.record("task_opened", 2, retry)] if task.state in (TaskState.DONE, TaskState.FAILED) else []
    if task.state is TaskState.DONE:
        reason, more = Reason.RESOLVED_BY_PERSON, {"attempt": task.attempt, "outcome": outcome}
        records.insert(0, decision.moved(task, TaskEvent.VERIFICATION_REJECTED, reason, 2, more))
    return records
