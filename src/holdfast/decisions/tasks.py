"""A person's decisions about a task. Each is a function of the decision context and the request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from holdfast.decisions.context import (
    Answer,
    DecidedNow,
    DecisionContext,
    Later,
    expect_decided,
    expect_not_taken,
    refused,
)
from holdfast.domain.entries import STOPPED, TurnUndone, is_lost
from holdfast.domain.fsm import Reason
from holdfast.domain.pull_requests.pull_records import PULL_REQUEST
from holdfast.domain.task import AT_WORK, TASK, TaskEvent, TaskState, cancel_event
from holdfast.domain.task_record import Task
from holdfast.engine import recovery
from holdfast.engine.earlier_starts import newest_whole
from holdfast.engine.recovery import remove_leftovers
from holdfast.engine.turn_follower import Follower
from holdfast.errors import DecisionRefused, NothingParked
from holdfast.landing import gate_kinds, verify
from holdfast.processes import starts
from holdfast.storage.journal.entry import Record
from holdfast.storage.records import attempt_folder

# How a task is given up, by what its state allows.
_GIVE_UP = (
    TaskEvent.VERIFICATION_REJECTED, TaskEvent.MANUAL_CANCEL, TaskEvent.REJECTED, TaskEvent.UNRECOVERABLE,
)  # fmt: skip
# What a person can decide about a turn that the journal has and whose snapshot is gone.
_OF_LOST_TURN = ("newest", "anew")
UNDER_WAY = AT_WORK | {TaskState.OPEN, TaskState.ORPHANED}


# -- cancel ----------------------------------------------------------------------------------------------------


class Several(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tasks: list[str]


def cancel(decision: DecisionContext, asked: Several) -> Answer:
    """All are cancelled or, if one cannot be, none. Whatever works on them is ended first."""
    tasks = decision.each_once(asked.tasks)
    before = {task.id for task in tasks if task.state is TaskState.CANCELLED}
    for task in tasks:
        expect_at_rest(decision, task, "cancelled")
    records = [
        decision.moved(task, cancel_event(task.state) or TaskEvent.MANUAL_CANCEL, Reason.CANCELLED, number)
        for number, task in enumerate(tasks)
        if task.id not in before
    ]
    for task in tasks:
        if task.id not in before:
            end_attempt(decision, task)
    is_again = decision.has_begun()
    decision.append(records)
    notes = {name: "it was cancelled before" for name in before if not is_again}
    return Answer([DecidedNow(task.id, task.state, notes.get(task.id, "")) for task in tasks])


def expect_at_rest(decision: DecisionContext, task: Task, verb: str) -> None:
    """Of a task that is done: nobody is just verifying or landing it, and it has not landed yet."""
    expect_not_taken(task, verb)
    if task.state is not TaskState.DONE:
        return
    landing_thread = decision.context.landing_thread
    if landing_thread is not None and landing_thread.task == task.id:
        raise Later
    if task.id in decision.context.judgings.ahead:
        decision.context.judgings.withdraw(task.id)
        raise Later
    if task.landing.commit:
        raise refused(task, verb, "the next `holdfast run` closes it.", "it has landed already")


def end_attempt(decision: DecisionContext, task: Task) -> None:
    """Returns when nothing of the task's attempt is alive, and all that it completed is journalled."""
    if task.state not in AT_WORK or not task.start.number:
        return
    files = decision.layout.attempt_files(task.attempt.id)
    # A runner that is on its way to its start finds it taken, and does nothing.
    attempt_folder.claim_start(files, task.start.number, attempt_folder.RECOVERY, task.start.intent)
    starts.end_all(files, task.attempt.id, task.start.number, decision.config.grace_s)
    remove_leftovers(decision.layout)
    Follower(decision.ledger, decision.layout, decision.context.note).follow(task)


# -- resolve ----------------------------------------------------------------------------------------------------------


class Resolution(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task: str
    decision: Literal["happened", "retry", "abandon", "newest", "anew"]


def resolve(decision: DecisionContext, asked: Resolution) -> Answer:
    task = decision.task(asked.task)
    if not (decision.has_done("task_flagged", 0) or decision.has_done("task_flagged", 1)):
        expect_not_taken(task, "resolved")
        if not task.parked:
            raise NothingParked(task=task.id, state=task.state)
        decision.append(_resolution(decision, task, asked.decision))
    return decision.answer(task, note=f"resolved as: {asked.decision}")


def _resolution(decision: DecisionContext, task: Task, choice: str) -> list[Record]:
    """The move that the decision asks for, if any, and then the flag: a crash between leaves the task parked still."""
    told = {"decision": choice, "was": task.parked, "reason": Reason.RESOLVED_BY_PERSON}
    if choice in _OF_LOST_TURN:
        return _of_lost_turn(decision, task, choice, told)
    if choice == "happened" and recovery.is_doubt(task.parked):
        moves = recovery.closing(decision.repo, decision.config, task, decision.record)
        return [*moves, decision.flagged(task, 0, told, parked="")]
    has_landed = choice == "happened" and task.parked.startswith("task_land_")
    events = _GIVE_UP if choice == "abandon" else (TaskEvent.JANITOR_VERIFIED_AND_MERGED,) if has_landed else ()
    event = next((each for each in events if each in TASK.legal(task.state)), None)
    has_begun, moves = decision.has_begun(), []
    if event is not None and not has_begun:
        end_attempt(decision, task)
        moves = [decision.moved(task, event, Reason.RESOLVED_BY_PERSON)]
    flags: dict[str, Any] = {"parked": "", "not_before": task.not_before, "cause": task.cause}
    if choice == "happened":
        gates = gate_kinds.gates_of(decision.definition(task), decision.config)
        flags["happened"] = verify.not_again(task.parked, decision.layout.attempt_files(task.attempt.id), gates)
    return [*moves, decision.flagged(task, 1 if moves or has_begun else 0, told, **flags)]


def _of_lost_turn(decision: DecisionContext, task: Task, choice: str, told: Mapping[str, Any]) -> list[Record]:
    """`newest` goes on from the newest turn that is there, `anew` without what the attempts before left."""
    if not is_lost(task.parked):
        hint = f"use `holdfast resolve {task.id} --happened`, `--retry` or `--abandon`."
        raise DecisionRefused(task=task.id, verb="continued", reason="no turn of it is lost", hint=hint)
    flags = {"parked": "", "not_before": task.not_before, "anew": choice == "anew"}
    opened = _opened(decision, task)
    if choice == "anew":
        return [*opened, decision.flagged(task, 0, told, **flags)]
    left, own = task.left if task.left is not None and not task.start.number else None, task.attempt
    attempt, turn, base = (left.attempt, left.turn, left.base) if left else (own.id, own.stands, own.base)
    found, commit = newest_whole(decision.ledger, decision.worktrees, attempt, turn, base)
    if not found:
        hint = f"`holdfast resolve {task.id} --anew` begins anew, and `--abandon` gives it up."
        raise DecisionRefused(task=task.id, verb="continued", reason=f"no turn of {attempt} is there", hint=hint)
    undone = TurnUndone(task.id, attempt, found, "", commit)
    back = decision.record("turn_undone", 0, msgspec.to_builtins(undone))
    if opened or not task.continues:
        resumed = {"task": task.id, "attempt": task.attempt.id}
        opened.append(decision.record("attempt_resumed", 3, resumed))
    return [*opened, back, decision.flagged(task, 1, told, **flags)]


def _opened(decision: DecisionContext, task: Task) -> list[Record]:
    """A task that is done is opened again; by a crash between the two it has failed, and is parked still."""
    outcome = {"kind": "lost", "detail": task.parked, "attempt": task.attempt.id}
    facts = {"task": task.id, "reason": Reason.RESOLVED_BY_PERSON, "attempt": task.attempt.id}
    retry = {**facts, "event": TaskEvent.RETRY, "outcome": outcome}
    records = [decision.record("task_opened", 2, retry)] if task.state in (TaskState.DONE, TaskState.FAILED) else []
    if task.state is TaskState.DONE:
        reason, more = Reason.RESOLVED_BY_PERSON, {"attempt": task.attempt.id, "outcome": outcome}
        records.insert(0, decision.moved(task, TaskEvent.VERIFICATION_REJECTED, reason, 2, more))
    return records


# -- approve, reject, resume ------------------------------------------------------------------------------------------


class One(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task: str


class Rejection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task: str
    reason: str


def approve(decision: DecisionContext, asked: One) -> Answer:
    task = decision.task(asked.task)
    if not decision.has_begun():
        if task.state is TaskState.PLANNED:
            record = decision.moved(task, TaskEvent.APPROVED, Reason.APPROVED)
        else:
            _expect_pending(task, "approved")
            expect_no_pull(task, "approved")
            facts = {"attempt": task.attempt.id, "agent": task.claim.agent}
            record = decision.moved(task, TaskEvent.APPROVAL_GRANTED, Reason.APPROVED, facts=facts)
        decision.append([record])
    return decision.answer(task, note=who_goes_on(decision, "lands it" if task.attempt.id else "begins it"))


def reject(decision: DecisionContext, asked: Rejection) -> Answer:
    """The agent gets the person's reason when the task is tried again."""
    task = decision.task(asked.task)
    if not decision.has_begun():
        facts: dict[str, Any]
        if task.state is TaskState.PLANNED:
            facts = {"outcome": {"detail": asked.reason}}
            record = decision.moved(task, TaskEvent.REJECTED, Reason.REJECTED, facts=facts)
        else:
            _expect_pending(task, "rejected")
            expect_no_pull(task, "rejected")
            told = f"A person has looked at the work and rejected it:\n\n{asked.reason}\n"
            outcome = {"kind": "rejected", "detail": asked.reason, "attempt": task.attempt.id}
            feedback = decision.blobs.put(told.encode(), content_type="text/plain")
            facts = {"attempt": task.attempt.id, "outcome": outcome, "feedback": feedback}
            record = decision.moved(task, TaskEvent.APPROVAL_REJECTED, Reason.REJECTED, facts=facts)
        decision.append([record])
    hint = f"`holdfast retry {task.id}` tells the agent why" if task.state is TaskState.FAILED else ""
    return decision.answer(task, note=hint)


def _expect_pending(task: Task, verb: str) -> None:
    if task.state is not TaskState.PENDING_APPROVAL:
        raise refused(task, verb, f"only what waits for an approval can be {verb}; `holdfast list` shows what does.")


def expect_no_pull(task: Task, verb: Literal["approved", "rejected", "sent back"]) -> None:
    """What waits for its pull request is decided there. It can be sent back while nothing of that needs a person."""
    if task.state is not TaskState.PENDING_APPROVAL or task.outcome.get("kind") != PULL_REQUEST:
        return
    pull, hint = task.pull, f"`holdfast pr {task.id}` shows it, and says what else you can do."
    if verb == "sent back":
        if not task.parked:
            return
        if pull is not None and pull.state == "closed":
            hint = f"`holdfast pr {task.id} --open` opens another, `holdfast cancel {task.id}` gives it up."
    elif verb == "approved":
        hint = f"merge it there; {hint}"
    elif pull is not None and pull.number and pull.state in ("", "open"):
        hint = f"`holdfast pr {task.id} --close` closes it there, and then `holdfast cancel {task.id}` gives it up."
    else:
        hint = f"`holdfast cancel {task.id}` gives it up."
    raise refused(task, verb, hint, "it waits for its pull request")


def resume(decision: DecisionContext, asked: One) -> Answer:
    """Goes on with the last attempt, where `retry` would begin another; or with what is stopped or paused."""
    task = decision.task(asked.task)
    if not decision.has_begun():
        expect_decided(task, "resumed", or_stopped=True)
        if task.state is TaskState.FAILED and not task.attempt.id:
            raise refused(task, "resumed", f"type `holdfast retry {task.id}`.", "nobody has worked on it yet")
        if task.state is TaskState.OPEN and task.not_before and task.cause and not task.parked:
            told = {"was": task.cause, "reason": Reason.REQUESTED_BY_PERSON}
            decision.append([decision.flagged(task, 0, told)])
            return decision.answer(task, note=who_goes_on(decision, "tries it at once"))
        if task.state is not TaskState.FAILED and not task.parked:
            if task.state not in UNDER_WAY:
                hint = "only what has failed can be; `holdfast fork` begins with one of its turns."
                raise refused(task, "resumed", hint)
            return decision.answer(task, note=who_goes_on(decision, "goes on with it"))
    if not (decision.has_done("task_flagged", 0) or decision.has_done("task_flagged", 2)):
        records = resuming(decision, task)
        if task.parked == STOPPED:
            # The flag of a task whose agent a person has stopped; last, so that a crash before leaves it stopped.
            told = {"was": task.parked, "reason": Reason.REQUESTED_BY_PERSON}
            flags = {"parked": "", "not_before": task.not_before, "cause": task.cause}
            records.append(decision.flagged(task, 2 if records or decision.has_begun() else 0, told, **flags))
        decision.append(records)
    what = task.attempt.id if task.continues else "it"
    return decision.answer(task, note=who_goes_on(decision, f"goes on with {what}"))


def resuming(decision: DecisionContext, task: Task) -> list[Record]:
    """The records that let the next claim continue the last attempt of a failed task."""
    records = []
    has_begun = decision.has_begun()
    if task.state is TaskState.FAILED and not decision.has_done("task_opened", 0):
        records = [decision.moved(task, TaskEvent.RETRY, Reason.REQUESTED_BY_PERSON)]
    if (records or (has_begun and task.state is TaskState.OPEN)) and not decision.has_done("attempt_resumed", 1):
        records.append(decision.record("attempt_resumed", 1, {"task": task.id, "attempt": task.attempt.id}))
    return records


def who_goes_on(decision: DecisionContext, what: str) -> str:
    return f"the run {what}" if decision.is_run else f"the next `holdfast run` {what}"
