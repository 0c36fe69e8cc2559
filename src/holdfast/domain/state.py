"""The fold: what the journal's entries amount to. Pure: the same entries always give the same state.

A task's state, attempts, claim and flags come from here and from nowhere else; its definition comes from its file. The
order of tasks is the order in which they were added. Where the journal says what cannot be (a move that the state
machine does not know, a task that was never added), the fold stops with an error that names the entry.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from holdfast.domain import entries
from holdfast.domain.entries import EntryLike
from holdfast.domain.task import TASK, TaskEvent, TaskState
from holdfast.errors import EntryUnfit, IllegalTransition


class Task(msgspec.Struct):
    """One task as the journal knows it. Times are the journal's.

    `agent` is empty while nobody has it;
    `continues` says that the next claim goes on with `attempt`, which was orphaned or given back, and begins no other.
    `approved` says that a person has granted what this attempt made.
    """

    id: str
    state: TaskState
    definition: str
    added_at: float
    changed_at: float
    attempts: int = 0
    resumes: int = 0
    attempt: str = ""
    agent: str = ""
    continues: bool = False
    approved: bool = False
    parked: str = ""
    not_before: float = 0.0
    turns: int = 0
    usd: float = 0.0
    tokens: int = 0
    outcome: dict[str, Any] = {}


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Task).decode
_HELD = {TaskState.CLAIMED, TaskState.IN_PROGRESS, TaskState.DONE, TaskState.PENDING_APPROVAL, TaskState.ORPHANED}


class _Contradiction(Exception):
    """What the journal says cannot be; it never leaves this module."""


class State:
    """Fold every entry in with `apply`, in order. `version` changes whenever the same entries would give another."""

    version = 1

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.epoch = 0

    def apply(self, run: str, entry: EntryLike) -> None:
        if entry.decision_type == "turn_completed" and self._count_turn(entry.inputs):
            return
        payload = entries.payload(run, entry)
        handler = _HANDLERS.get(type(payload))
        if handler is None:
            return
        try:
            handler(self, entry, payload)
        except (IllegalTransition, _Contradiction) as error:
            raise EntryUnfit(run=run, seq=entry.seq, decision_type=entry.decision_type, reason=error) from error

    def trial(self) -> State:
        """A state to try entries on: it begins as this one, and leaves this one as it is."""
        trial = State()
        trial.tasks, trial.epoch = _Overlay(self.tasks), self.epoch
        return trial

    def dump(self) -> Iterable[bytes]:
        yield _encode({"epoch": self.epoch})
        for task in self.tasks.values():
            yield _encode(task)

    def load(self, lines: list[bytes]) -> None:
        self.epoch = msgspec.json.decode(lines[0])["epoch"]
        self.tasks = {task.id: task for task in map(_decode, lines[1:])}

    def _task(self, name: str) -> Task:
        found = self.tasks.get(name)
        if found is None:
            raise _Contradiction(f"there is no task {name!r}")
        return found

    # -- one method for each kind of entry that changes something -----------------------------------------------------

    def _start_run(self, entry: EntryLike, started: entries.RunStarted) -> None:
        self.epoch = started.epoch

    def _add(self, entry: EntryLike, added: entries.TaskAdded) -> None:
        if added.task in self.tasks:
            raise _Contradiction(f"the task {added.task} was added before")
        moment = entry.timestamp
        self.tasks[added.task] = Task(added.task, added.state, added.definition, moment, moment, outcome=added.outcome)

    def _edit(self, entry: EntryLike, edited: entries.TaskEdited) -> None:
        self._task(edited.task).definition = edited.definition

    def _move(self, entry: EntryLike, moved: entries.TaskMoved) -> None:
        task = self._task(moved.task)
        target = TASK.next(task.state, moved.event)
        if target is not entries.MOVES[entry.decision_type]:
            raise _Contradiction(f"the event {moved.event} leads from {task.state} to {target}")
        if target is TaskState.CLAIMED:
            self._claim(task, moved)
        elif target not in _HELD:
            task.agent = ""
        task.approved = moved.event is TaskEvent.APPROVAL_GRANTED or (task.approved and target in _HELD)
        task.continues = task.state is TaskState.ORPHANED or moved.event is TaskEvent.UNCLAIM
        task.state, task.changed_at = target, entry.timestamp
        task.outcome = moved.outcome

    def _claim(self, task: Task, moved: entries.TaskMoved) -> None:
        """A claim of the attempt that the task had before continues it, and costs no attempt."""
        if moved.attempt == task.attempt:
            task.resumes += 1
        else:
            task.attempts, task.resumes = task.attempts + 1, 0
        task.attempt, task.agent, task.not_before = moved.attempt, moved.agent, 0.0

    def _flag(self, entry: EntryLike, flagged: entries.TaskFlagged) -> None:
        task = self._task(flagged.task)
        task.parked, task.not_before = flagged.parked, flagged.not_before

    def _count_turn(self, turn: dict[str, Any]) -> bool:
        """By far the most frequent entry, so it is read as it stands; False where it is not what it should be."""
        try:
            task = self.tasks[turn["task"]]
            usd, tokens = task.usd + turn.get("usd", 0.0), task.tokens + turn.get("tokens", 0)
        except (KeyError, TypeError):
            return False
        task.turns += 1
        task.usd, task.tokens = usd, tokens
        return True

    def _expect_turn(self, entry: EntryLike, turn: entries.TurnCompleted) -> None:
        self._task(turn.task)

    def _close_effect(self, entry: EntryLike, closed: entries.EffectClosed) -> None:
        """What could not be decided, or was too old to repeat, waits for a person."""
        if entry.decision_type.endswith(("_parked", "_abandoned")):
            self._task(closed.task).parked = f"{entry.decision_type}: {closed.reason}"


class _Overlay(dict[str, Task]):
    """Copies a task when it is first asked for, so that a trial costs what it touches."""

    def __init__(self, below: dict[str, Task]) -> None:
        super().__init__()
        self._below = below

    def get(self, name: str, default: Any = None) -> Any:
        if name not in self.keys() and name in self._below:
            self[name] = copy.copy(self._below[name])
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._below


def fold(items: Iterable[tuple[str, EntryLike]]) -> State:
    state = State()
    for run, entry in items:
        state.apply(run, entry)
    return state


_HANDLERS: dict[type[msgspec.Struct], Callable[[State, EntryLike, Any], None]] = {
    entries.RunStarted: State._start_run,
    entries.TaskAdded: State._add,
    entries.TaskEdited: State._edit,
    entries.TaskMoved: State._move,
    entries.TaskFlagged: State._flag,
    entries.TurnCompleted: State._expect_turn,
    entries.EffectClosed: State._close_effect,
}
