"""What the fold makes of entries about a claimed attempt: its start, its turns put back, its end, its flags."""

from __future__ import annotations

import msgspec

from holdfast.domain.entries import SpawnIntended, TaskFlagged, TaskMoved, TurnUndone
from holdfast.domain.spend import Spend
from holdfast.domain.task_record import Past, Task, standing

# What is remembered of attempts that are over: enough to tell the next one.
PAST_MAX = 20
DETAIL_CHARS_MAX = 500


def flag(task: Task, flagged: TaskFlagged) -> None:
    task.parked, task.not_before, task.cause = flagged.parked, flagged.not_before, flagged.cause
    task.happened += flagged.happened
    task.restored = task.restored and bool(flagged.parked or flagged.happened)
    if flagged.anew:
        task.continues, task.session, task.left, task.made = False, "", None, task.at


def fail(task: Task, moved: TaskMoved) -> None:
    """What a gate or a person said of the candidate holds until there is another, or other words."""
    task.feedback, task.failed = moved.feedback or task.feedback, str(moved.outcome.get("kind", ""))
    if task.attempt:
        detail = str(moved.outcome.get("detail", ""))
        detail = detail if len(detail) <= DETAIL_CHARS_MAX else detail[:DETAIL_CHARS_MAX] + "…"
        end_attempt(task, Past(task.attempt, task.turn, task.failed, detail, task.undos))


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
        end_attempt(task, msgspec.structs.replace(task.past[-1], undos=task.undos))


def intend(task: Task, spawn: SpawnIntended, moment: float) -> None:
    task.starts, task.base = max(spawn.start, task.starts), spawn.base or task.base
    task.begun = task.begun or spawn.tree
    task.reserved, task.used, task.began, task.restored = spawn.reserved, Spend(), moment, False


def end_attempt(task: Task, one: Past) -> None:
    """An attempt that was continued ends once more, and counts once."""
    kept = [each for each in task.past if each.attempt != one.attempt]
    task.past = (*kept[1 - PAST_MAX :], one)
