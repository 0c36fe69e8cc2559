"""The context in which a decision is made, and how it is journalled: once, under the id of its request.

The first record of a decision carries that id as its `idempotency_key`, each further one the id with its number. Asked
again under the same id, a decision does what is missing of it and gives the same answer: nothing happens twice,
whatever died in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from holdfast import identity
from holdfast.config.settings import Config
from holdfast.domain.definition import Definition, parse
from holdfast.domain.entries import MOVE_TO, PAYLOADS, STOPPED
from holdfast.domain.file_problem import FileProblem
from holdfast.domain.task import TASK, TaskEvent, TaskState
from holdfast.domain.task_record import Task
from holdfast.engine.board import Board
from holdfast.engine.context import RunContext
from holdfast.errors import (
    DecisionRefused,
    DefinitionInvalid,
    HoldfastError,
    IllegalTransition,
    TaskFileMissing,
    TaskFilesDiffer,
    TaskUnknown,
)
from holdfast.layout import Layout
from holdfast.ports import BacklogFolder, Ledger
from holdfast.storage.journal.entry import Entry, Record
from holdfast.storage.records.blobs import Blobs
from holdfast.worktrees.worktrees import Worktrees

ACTOR = "cli"

NEAR_MAX = 500


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


@dataclass(frozen=True, kw_only=True)
class DecisionContext:
    """The parts that a decision needs. `key` is the request's id; `context` is the run, which may be a short one.

    `is_run`: a run goes on with what was decided, at once. `is_busy`: something is being verified or landed there.
    `by` is the person who decides, and `kind` what: each record of the decision says so, and is audited. What no person
    decides has no kind.
    """

    repo: Path
    layout: Layout
    config: Config
    ledger: Ledger
    board: Board
    blobs: Blobs
    clock: Callable[[], float]
    key: str
    problems: Sequence[FileProblem] = ()
    context: RunContext
    is_run: bool = False
    is_busy: bool = False
    by: str = field(default_factory=identity.user)
    kind: str = ""
    actor: str = ACTOR

    @classmethod
    def of(cls, context: RunContext, key: str, **asked: Any) -> DecisionContext:
        """`asked`: who decides what, and beside what."""
        return cls(
            repo=context.repo,
            layout=context.layout,
            config=context.config,
            ledger=context.ledger,
            board=context.board,
            blobs=context.blobs,
            clock=context.clock,
            key=key,
            problems=context.board.problems,
            context=context,
            **asked,
        )

    @property
    def backlog(self) -> BacklogFolder:
        return self.board.backlog

    @property
    def tasks(self) -> Mapping[str, Task]:
        return self.ledger.state.tasks

    @property
    def worktrees(self) -> Worktrees:
        return self.context.worktrees

    def task(self, name: str) -> Task:
        """The task of this name; says why there is none."""
        if name not in self.tasks:
            raise self._unusable(name) or unknown(name, self.tasks)
        return self.tasks[name]

    def each_once(self, names: Sequence[str]) -> list[Task]:
        return [self.task(name) for name in dict.fromkeys(names)]

    def definition(self, task: Task) -> Definition:
        """As it was when the last attempt began."""
        digest = task.attempt.worked_on or task.definition
        made = parse(self.blobs.get(digest), task.id)
        if isinstance(made, Definition):
            return made
        raise TaskFileMissing(task=task.id, path=digest)

    def _unusable(self, name: str) -> HoldfastError | None:
        """The error for a task that is unknown because of problems of its files; None where they have none."""
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
        """The entry of this kind that was journalled under this request's id."""
        return self.ledger.find(kind, self._key(number))

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
            raise self.ledger.refuse(task, error, reason, self.actor) from error
        return self.record(kind, number, {"task": task.id, "event": event, "reason": reason, **facts})

    def flagged(self, task: Task, number: int = 0, told: Mapping[str, Any] = {}, **flags: Any) -> Record:
        """The flags of a task, as `TaskFlagged` names them: one that is not given is taken off."""
        return self.record("task_flagged", number, {"task": task.id, **flags}, told)

    def append(self, records: Sequence[Record]) -> None:
        if records:
            self.ledger.append(self.ledger.epoch, records)

    def _key(self, number: int) -> str:
        return f"{self.key}#{number}" if number else self.key

    def answer(self, *tasks: Task, note: str = "", **facts: Any) -> Answer:
        return Answer([DecidedNow(task.id, task.state, note) for task in tasks], facts)


def unknown(task: str, known: Mapping[str, Any]) -> TaskUnknown:
    # A copy, because others may add tasks meanwhile; and not of all, because comparing takes its time.
    return TaskUnknown.among(task, list(known)[-NEAR_MAX:])


def refused(task: Task, verb: str, hint: str, reason: str = "") -> DecisionRefused:
    return DecisionRefused(task=task.id, verb=verb, reason=reason or f"it is {task.state}", hint=hint)


def expect_not_taken(task: Task, verb: str) -> None:
    if task.taken is not None:
        hint = f"leave the session in that terminal, or type `holdfast give-back {task.id}` when its process is gone."
        raise refused(task, verb, hint, f"it is {task.parked}")


def expect_decided(task: Task, verb: str, *, or_stopped: bool = False) -> None:
    """`or_stopped`: it may also be one whose agent a person has stopped, and stays so."""
    expect_not_taken(task, verb)
    if task.parked and not (or_stopped and task.parked == STOPPED):
        hint = f"decide that first, with `holdfast resolve {task.id}`."
        raise refused(task, verb, hint, f"a person must decide something else about it ({task.parked})")
