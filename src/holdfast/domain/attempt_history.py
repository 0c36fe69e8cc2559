"""What went before in a task: which turns still stand, what an attempt left, and why each one came to nothing."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import msgspec

from holdfast.domain.entries import SpawnIntended, TaskFlagged, TaskMoved, TurnUndone
from holdfast.domain.spend import Spend
from holdfast.domain.task import TaskEvent

if TYPE_CHECKING:
    from holdfast.domain.state import Task

# What is remembered of attempts that are over: enough to tell the next one.
PAST_MAX = 20
DETAIL_CHARS_MAX = 500

# Of each time that a worktree was put back: after which turn, and to which.
Undos = tuple[tuple[int, int], ...]


class Left(msgspec.Struct, frozen=True):
    """What an attempt had done by the end of a turn, on top of `base`, and has made no candidate of."""

    attempt: str
    turn: int
    base: str


class Past(msgspec.Struct, frozen=True):
    """An attempt that is over: how far it came, and why it came to nothing."""

    attempt: str
    turn: int
    kind: str = ""
    detail: str = ""
    undos: Undos = ()

    @property
    def number(self) -> int:
        return int(self.attempt.rpartition(".")[2])


def standing(turn: int, undos: Undos) -> list[int]:
    """The turns, of so many, whose work is in the tree: after an undo a turn follows the one that was gone back to."""
    back, found = dict(undos), list[int]()
    at = back.get(turn, turn)
    while at > 0:
        found.append(at)
        at = back.get(at - 1, at - 1)
    return found[::-1]


# Failures of a start that may have had no conversation to go on with.
_UNABLE = {"failed", "not_started", "resumes_exhausted"}


def seems_lost(task: Task) -> bool:
    """Whether a task that has failed did so because its conversation is not there."""
    return bool(task.session) and task.failed in _UNABLE and task.came_to_nothing


# -- what the fold makes of an entry ----------------------------------------------------------------------------------


def flag(task: Task, flagged: TaskFlagged) -> None:
    task.parked, task.not_before, task.cause = flagged.parked, flagged.not_before, flagged.cause
    task.happened += flagged.happened
    task.restored = task.restored and bool(flagged.parked or flagged.happened)
    if flagged.anew:
        task.continues, task.session, task.left, task.made = False, "", None, task.at


def claim(task: Task, moved: TaskMoved) -> None:
    """A claim of the attempt that the task had before continues it, and costs no attempt."""
    if moved.attempt != task.attempt:
        if task.stands and task.at != task.made:
            task.left = Left(task.attempt, task.stands, task.base)
        if task.attempt and task.attempt not in (each.attempt for each in task.past):
            _end(task, Past(task.attempt, task.turn, undos=task.undos))
        task.attempts, task.resumes = task.attempts + 1, 0
        task.starts = task.turn = task.offset = task.undone = 0
        task.worked_on, task.failed, task.undos, task.intent = task.definition, "", (), ""
        task.assigned = "", ""
        task.tree = task.begun = ""
    # A worker from elsewhere is none of our agents: what it gives back is anybody's.
    agent = "" if moved.remote else moved.agent
    if agent != task.worked_by != "":
        # Another agent cannot go on with it.
        task.session = ""
    task.worked_by, task.model, task.why = agent, moved.model, moved.why
    task.claims, task.started, task.remote, task.progress = task.claims + 1, False, moved.remote, ""
    task.attempt, task.agent = moved.attempt, moved.agent
    task.not_before, task.cause, task.endpoint = 0.0, "", moved.endpoint
    task.restored = task.restored and not moved.remote


def claimed(task: Task, agent: str, model: str = "") -> Task:
    """The task as its next claim by this agent makes it."""
    attempt = task.attempt if task.continues else f"{task.id}.{task.attempts + 1}"
    found = copy.copy(task)
    claim(found, TaskMoved(task.id, TaskEvent.AGENT_CLAIMS_TASK, "", attempt, agent, model=model))
    return found


def fail(task: Task, moved: TaskMoved) -> None:
    """What a gate or a person said of the candidate holds until there is another, or other words."""
    task.feedback, task.failed = moved.feedback or task.feedback, str(moved.outcome.get("kind", ""))
    if task.attempt:
        detail = str(moved.outcome.get("detail", ""))
        detail = detail if len(detail) <= DETAIL_CHARS_MAX else detail[:DETAIL_CHARS_MAX] + "…"
        _end(task, Past(task.attempt, task.turn, task.failed, detail, task.undos))


def undo(task: Task, undone: TurnUndone) -> None:
    if undone.attempt != task.attempt:
        # What an earlier attempt left is there only up to that turn.
        if task.left is not None and task.left.attempt == undone.attempt:
            task.left = msgspec.structs.replace(task.left, turn=undone.turn)
        return
    task.tree = undone.tree
    kept = (each for each in task.undos if each[0] != task.turn)
    task.undos = (*kept, (task.turn, min(undone.turn, task.turn)))
    task.undone = task.turn - len(standing(task.turn, task.undos))
    if task.past and task.past[-1].attempt == task.attempt:
        _end(task, msgspec.structs.replace(task.past[-1], undos=task.undos))


def intend(task: Task, spawn: SpawnIntended, moment: float) -> None:
    task.starts, task.base = max(spawn.start, task.starts), spawn.base or task.base
    task.begun = task.begun or spawn.tree
    task.reserved, task.used, task.began, task.restored = spawn.reserved, Spend(), moment, False


def _end(task: Task, one: Past) -> None:
    """An attempt that was gone on with ends once more, and counts once."""
    kept = [each for each in task.past if each.attempt != one.attempt]
    task.past = (*kept[1 - PAST_MAX :], one)
