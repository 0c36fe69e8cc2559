"""What a person decides about a task: each decision is a function on a desk, and journalled under the request's id.

The first record of a decision carries that id as its `idempotency_key`, each further one the id with its number. Asked
again under the same id, a decision does what is missing of it and gives the same answer: nothing happens twice,
whoever died in between.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from holdfast import identity
from holdfast.config.settings import Config
from holdfast.decisions import lost_turns
from holdfast.domain.definition import Definition, parse
from holdfast.domain.entries import MOVE_TO, PAYLOADS, STOPPED
from holdfast.domain.file_problem import FileProblem
from holdfast.domain.fsm import AbortReason, TransitionReason
from holdfast.domain.state import Task
from holdfast.domain.task import TASK, TaskEvent, TaskState, cancel_event, verb_of
from holdfast.engine import landed_before, leftovers
from holdfast.engine.context import RunContext
from holdfast.engine.turns import Follower
from holdfast.errors import (
    DecisionRefused,
    DefinitionInvalid,
    HoldfastError,
    IllegalTransition,
    MoveRefused,
    NothingParked,
    TaskFileMissing,
    TaskFilesDiffer,
    TaskUnknown,
)
from holdfast.landing import verify
from holdfast.layout import Layout
from holdfast.ports import BacklogFolder, Ledger
from holdfast.processes import starts
from holdfast.storage.journal.entry import Entry, Record
from holdfast.storage.journal.reader import Chain
from holdfast.storage.records import attempt_folder
from holdfast.storage.records.blobs import Blobs
from holdfast.worktrees.confined import worktrees_of
from holdfast.worktrees.worktrees import Worktrees

ACTOR = "cli"
# How a task is given up, by what its state allows.
_GIVE_UP = (
    TaskEvent.VERIFICATION_REJECTED, TaskEvent.MANUAL_CANCEL, TaskEvent.REJECTED, TaskEvent.UNRECOVERABLE,
)  # fmt: skip
_AT_WORK = {TaskState.CLAIMED, TaskState.IN_PROGRESS}
NEAR_MAX = 500
_UNDER_WAY = _AT_WORK | {TaskState.OPEN, TaskState.ORPHANED}


class DecidedNow(msgspec.Struct, frozen=True):
    """A task after a decision."""

    id: str
    state: TaskState
    note: str = ""


class Later(Exception):
    """Not while something else is being landed: ask again when that is over."""


class Answer(msgspec.Struct, frozen=True):
    tasks: list[DecidedNow]
    facts: dict[str, Any] = {}


@dataclass(frozen=True)
class DecisionContext:
    """Where decisions are made. `key` is the request's id; `shop` is there where work can be done, too.

    `is_run`: a run goes on with what was decided, at once. `is_busy`: something is being verified or landed there.
    `by` is the person who decides, and `kind` what: each record of the decision says so, and is audited. What no person
    decides has no kind.
    """

    repo: Path
    layout: Layout
    config: Config
    ledger: Ledger
    backlog: BacklogFolder
    blobs: Blobs
    clock: Callable[[], float]
    key: str
    problems: Sequence[FileProblem] = ()
    shop: RunContext | None = None
    is_run: bool = False
    is_busy: bool = False
    by: str = field(default_factory=identity.user)
    kind: str = ""
    actor: str = ACTOR

    @classmethod
    def of(
        cls,
        shop: RunContext,
        key: str,
        *,
        is_run: bool = False,
        is_busy: bool = False,
        by: str = "",
        kind: str = "",
        actor: str = ACTOR,
    ) -> DecisionContext:
        board = shop.board
        return cls(
            shop.repo, shop.layout, shop.config, shop.ledger, board.backlog, shop.blobs, shop.clock, key,
            board.problems, shop, is_run, is_busy, by or identity.user(), kind, actor,
        )  # fmt: skip

    @property
    def tasks(self) -> Mapping[str, Task]:
        return self.ledger.state.tasks

    @property
    def worktrees(self) -> Worktrees:
        return worktrees_of(self.repo, self.layout, self.config) if self.shop is None else self.shop.worktrees

    def task(self, name: str) -> Task:
        """The task of this name; says why there is none."""
        if name not in self.tasks:
            raise self._unusable(name) or unknown(name, self.tasks)
        return self.tasks[name]

    def definition(self, task: Task) -> Definition:
        """As it was when the last attempt began."""
        digest = task.worked_on or task.definition
        made = parse(self.blobs.get(digest), task.id)
        if isinstance(made, Definition):
            return made
        raise TaskFileMissing(task=task.id, path=digest)

    def _unusable(self, name: str) -> HoldfastError | None:
        """Why a task that has files is not known all the same."""
        about = [each for each in self.problems if name in each.tasks]
        files = list(dict.fromkeys(str(self.layout.backlog / each.file) for each in about))
        if len(files) > 1:
            return TaskFilesDiffer(task=name, paths=", ".join(files))
        if not about:
            return None
        told = "; ".join(f"line {each.line}: {each.message}" for each in about)
        return DefinitionInvalid(name=files[0], problems=told)

    # -- once and no more ---------------------------------------------------------------------------------------------

    def has_begun(self) -> bool:
        """Whether something was journalled under this request's id before."""
        return any(self.ledger.pairing.find_executed(kind, self.key) is not None for kind in PAYLOADS)

    def has_done(self, kind: str, number: int) -> bool:
        return self.ledger.pairing.find_executed(kind, self._key(number)) is not None

    def journalled(self, kind: str, number: int) -> Entry | None:
        """What was journalled under this request's id, read from the journal's files."""
        done = self.ledger.pairing.find_executed(kind, self._key(number))
        files = Chain(self.layout.wal).runs() if done is not None else []
        entries = (entry for file in files if done is not None and file.run == done.run for entry in file.entries())
        return next((entry for entry in entries if done is not None and entry.seq == done.seq), None)

    def record(self, kind: str, number: int, inputs: Mapping[str, Any], told: Mapping[str, Any] = {}) -> Record:
        decided = {"decided": {"kind": self.kind, "by": self.by}} if self.kind else {}
        return Record(kind, {**inputs, "idempotency_key": self._key(number), **decided}, dict(told), self.actor)

    def moved(
        self, task: Task, event: TaskEvent, reason: str, number: int = 0, facts: Mapping[str, Any] = {}
    ) -> Record:
        """A move, as a record; one that the table does not have is put on record, and refused."""
        try:
            kind = MOVE_TO[TASK.next(task.state, event)]
        except IllegalTransition as error:
            raise self._refuse(task, error, reason) from error
        return self.record(kind, number, {"task": task.id, "event": event, "reason": reason, **facts})

    def append(self, records: Sequence[Record]) -> None:
        if records:
            self.ledger.append(self.ledger.epoch, records)

    def _refuse(self, task: Task, error: IllegalTransition, reason: str) -> MoveRefused:
        refused = {"task": task.id, "state": task.state, "event": error.event, "reason": reason}
        self.append([Record("task_move_refused", refused, actor=self.actor)])
        return MoveRefused(**{**error.facts, "what": f"The task {task.id}", "verb": verb_of(error.event)})

    def _key(self, number: int) -> str:
        return f"{self.key}#{number}" if number else self.key

    def answer(self, *tasks: Task, note: str = "", **facts: Any) -> Answer:
        return Answer([DecidedNow(task.id, task.state, note) for task in tasks], facts)


def unknown(task: str, known: Mapping[str, Any]) -> TaskUnknown:
    # A copy, because others may add tasks meanwhile; and not of all, because comparing takes its time.
    near = difflib.get_close_matches(task, list(known)[-NEAR_MAX:], 1)
    return TaskUnknown(task=task, hint=f"did you mean {near[0]}?" if near else "`holdfast list` shows all.")


def refused(task: Task, verb: str, hint: str, reason: str = "") -> DecisionRefused:
    return DecisionRefused(task=task.id, verb=verb, reason=reason or f"it is {task.state}", hint=hint)


def expect_decided(task: Task, verb: str, *, or_stopped: bool = False) -> None:
    """`or_stopped`: it may also be one whose agent a person has stopped, and stays so."""
    if task.parked and not (or_stopped and task.parked == STOPPED):
        hint = f"decide that first, with `holdfast resolve {task.id}`."
        raise refused(task, verb, hint, f"a person must decide something else about it ({task.parked})")


# -- cancel ----------------------------------------------------------------------------------------------------


class Several(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tasks: list[str]


def cancel(desk: DecisionContext, asked: Several) -> Answer:
    """All are cancelled or, if one cannot be, none. Whatever works on them is ended first."""
    tasks = _each_once(desk, asked)
    before = {task.id for task in tasks if task.state is TaskState.CANCELLED}
    for task in tasks:
        expect_at_rest(desk, task, "cancelled")
    records = [
        desk.moved(task, cancel_event(task.state) or TaskEvent.MANUAL_CANCEL, AbortReason.CANCELLED, number)
        for number, task in enumerate(tasks)
        if task.id not in before
    ]
    for task in tasks:
        if task.id not in before:
            end_attempt(desk, task)
    is_again = desk.has_begun()
    desk.append(records)
    notes = {name: "it was cancelled before" for name in before if not is_again}
    return Answer([DecidedNow(task.id, task.state, notes.get(task.id, "")) for task in tasks])


def expect_at_rest(desk: DecisionContext, task: Task, verb: str) -> None:
    """Of a task that is done: nobody is just verifying or landing it, and it has not landed yet."""
    if task.state is not TaskState.DONE:
        return
    if desk.shop is not None and desk.shop.finisher is not None and desk.shop.finisher.task == task.id:
        raise Later
    if task.landed:
        raise refused(task, verb, "the next `holdfast run` closes it.", "it has landed already")


def end_attempt(desk: DecisionContext, task: Task) -> None:
    """Returns when nothing of the task's attempt is alive, and all that it completed is journalled."""
    if task.state not in _AT_WORK or not task.starts:
        return
    files = desk.layout.attempt_files(task.attempt)
    # A runner that is on its way to its start finds it taken, and does nothing.
    attempt_folder.claim_start(files, task.starts, attempt_folder.RECOVERY, task.intent)
    starts.end_all(files, task.attempt, task.starts, desk.config.grace_s)
    leftovers.remove(desk.layout)
    Follower(desk.ledger, desk.layout).follow(task)


def _each_once(desk: DecisionContext, asked: Several) -> list[Task]:
    return [desk.task(name) for name in dict.fromkeys(asked.tasks)]


# -- resolve ----------------------------------------------------------------------------------------------------------


class Resolution(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task: str
    decision: Literal["happened", "retry", "abandon", "newest", "anew"]


def resolve(desk: DecisionContext, asked: Resolution) -> Answer:
    task = desk.task(asked.task)
    if not (desk.has_done("task_flagged", 0) or desk.has_done("task_flagged", 1)):
        if not task.parked:
            raise NothingParked(task=task.id, state=task.state)
        desk.append(_resolution(desk, task, asked.decision))
    return desk.answer(task, note=f"resolved as: {asked.decision}")


def _resolution(desk: DecisionContext, task: Task, decision: str) -> list[Record]:
    """The move that the decision asks for, if any, and then the flag: a crash between leaves the task parked still."""
    if decision in lost_turns.CHOICES:
        return lost_turns.records(desk, task, decision)
    if decision == "happened" and landed_before.is_doubt(task.parked):
        return landed_before.closing(desk.repo, desk.config, task, desk.record)
    has_landed = decision == "happened" and task.parked.startswith("task_land_")
    events = _GIVE_UP if decision == "abandon" else (TaskEvent.JANITOR_VERIFIED_AND_MERGED,) if has_landed else ()
    event = next((each for each in events if each in TASK.legal(task.state)), None)
    has_begun, moves = desk.has_begun(), []
    if event is not None and not has_begun:
        end_attempt(desk, task)
        moves = [desk.moved(task, event, TransitionReason.RESOLVED_BY_PERSON)]
    flag: dict[str, Any] = {"task": task.id, "parked": "", "not_before": task.not_before, "cause": task.cause}
    if decision == "happened":
        gates = verify.gates_of(desk.definition(task), desk.config)
        flag["happened"] = verify.not_again(task.parked, desk.layout.attempt_files(task.attempt), gates)
    told = {"decision": decision, "was": task.parked, "reason": TransitionReason.RESOLVED_BY_PERSON}
    return [*moves, desk.record("task_flagged", 1 if moves or has_begun else 0, flag, told)]


# -- approve, reject, resume ------------------------------------------------------------------------------------------


class One(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task: str


class Rejection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task: str
    reason: str


def approve(desk: DecisionContext, asked: One) -> Answer:
    task = desk.task(asked.task)
    if not desk.has_begun():
        if task.state is TaskState.PLANNED:
            record = desk.moved(task, TaskEvent.APPROVED, TransitionReason.APPROVED)
        else:
            _expect_pending(task, "approved")
            facts = {"attempt": task.attempt, "agent": task.agent}
            record = desk.moved(task, TaskEvent.APPROVAL_GRANTED, TransitionReason.APPROVED, facts=facts)
        desk.append([record])
    return desk.answer(task, note=who_goes_on(desk, "lands it" if task.attempt else "begins it"))


def reject(desk: DecisionContext, asked: Rejection) -> Answer:
    """What the person says is told to the agent when the task is tried again."""
    task = desk.task(asked.task)
    if not desk.has_begun():
        facts: dict[str, Any]
        if task.state is TaskState.PLANNED:
            facts = {"outcome": {"detail": asked.reason}}
            record = desk.moved(task, TaskEvent.REJECTED, AbortReason.REJECTED, facts=facts)
        else:
            _expect_pending(task, "rejected")
            told = f"A person has looked at the work and rejected it:\n\n{asked.reason}\n"
            outcome = {"kind": "rejected", "detail": asked.reason, "attempt": task.attempt}
            feedback = desk.blobs.put(told.encode(), content_type="text/plain")
            facts = {"attempt": task.attempt, "outcome": outcome, "feedback": feedback}
            record = desk.moved(task, TaskEvent.APPROVAL_REJECTED, AbortReason.REJECTED, facts=facts)
        desk.append([record])
    hint = f"`holdfast retry {task.id}` tells the agent why" if task.state is TaskState.FAILED else ""
    return desk.answer(task, note=hint)


def _expect_pending(task: Task, verb: str) -> None:
    if task.state is not TaskState.PENDING_APPROVAL:
        raise refused(task, verb, f"only what waits for an approval can be {verb}; `holdfast list` shows what does.")


def resume(desk: DecisionContext, asked: One) -> Answer:
    """Goes on with the last attempt, where `retry` would begin another; or with what is stopped or paused."""
    task = desk.task(asked.task)
    if not desk.has_begun():
        expect_decided(task, "resumed", or_stopped=True)
        if task.state is TaskState.FAILED and not task.attempt:
            raise refused(task, "resumed", f"type `holdfast retry {task.id}`.", "nobody has worked on it yet")
        if task.state is TaskState.OPEN and task.not_before and task.cause and not task.parked:
            told = {"was": task.cause, "reason": TransitionReason.REQUESTED_BY_PERSON}
            desk.append([desk.record("task_flagged", 0, {"task": task.id}, told)])
            return desk.answer(task, note=who_goes_on(desk, "tries it at once"))
        if task.state is not TaskState.FAILED and not task.parked:
            if task.state not in _UNDER_WAY:
                hint = "only what has failed can be; `holdfast fork` begins with one of its turns."
                raise refused(task, "resumed", hint)
            return desk.answer(task, note=who_goes_on(desk, "goes on with it"))
    if not (desk.has_done("task_flagged", 0) or desk.has_done("task_flagged", 2)):
        records = resuming(desk, task)
        desk.append([*records, *_letting_go(desk, task, 2 if records or desk.has_begun() else 0)])
    return desk.answer(task, note=who_goes_on(desk, f"goes on with {task.attempt if task.continues else 'it'}"))


def _letting_go(desk: DecisionContext, task: Task, number: int) -> list[Record]:
    """Takes the flag off a task whose agent a person has stopped; last, so that a crash before leaves it stopped."""
    flag = {"task": task.id, "parked": "", "not_before": task.not_before, "cause": task.cause}
    told = {"was": task.parked, "reason": TransitionReason.REQUESTED_BY_PERSON}
    return [desk.record("task_flagged", number, flag, told)] if task.parked == STOPPED else []


def resuming(desk: DecisionContext, task: Task) -> list[Record]:
    """What is missing for the next claim to go on with the last attempt of a task that has failed."""
    records = []
    has_begun = desk.has_begun()
    if task.state is TaskState.FAILED and not desk.has_done("task_opened", 0):
        records = [desk.moved(task, TaskEvent.RETRY, TransitionReason.REQUESTED_BY_PERSON)]
    if (records or (has_begun and task.state is TaskState.OPEN)) and not desk.has_done("attempt_resumed", 1):
        records.append(desk.record("attempt_resumed", 1, {"task": task.id, "attempt": task.attempt}))
    return records


def who_goes_on(desk: DecisionContext, what: str) -> str:
    return f"the run {what}" if desk.is_run else f"the next `holdfast run` {what}"
