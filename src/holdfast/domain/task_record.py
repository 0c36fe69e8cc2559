"""One task as the journal knows it, and the attempts that it has behind it.

`domain/state.py` folds the journal's entries into these records, with the functions below; nothing else changes them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.domain.entries import SpawnIntended, TaskFlagged, TaskMoved, TurnUndone
from holdfast.domain.spend import Caps, Spend
from holdfast.domain.task import TaskState

# Of each time that a worktree was put back: after which turn, and to which.
Undos = tuple[tuple[int, int], ...]
# What is remembered of attempts that are over: enough to tell the next one.
PAST_MAX = 20
DETAIL_CHARS_MAX = 500


class PreviousAttempt(msgspec.Struct, frozen=True):
    """Work that an attempt had done by the end of a turn, on top of `base`, and that became no candidate."""

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


class Task(msgspec.Struct):
    """One task as the journal knows it. Times are the journal's, commits and snapshots are names of git objects."""

    # -- the task ---------------------------------------------------------------------------------------------------
    id: str
    state: TaskState
    # The blob with its definition's text, as the file has it now.
    definition: str
    # When it was added, and when its state last changed.
    added_at: float
    changed_at: float
    # Counts the tasks in the order in which they were added.
    number: int = 0
    # The text of its definition while its file and blob are not on disk yet: it came through the API.
    unfiled: str = ""
    # The journal was put back from a backup, and the task was not started since: it may have landed already.
    restored: bool = False

    # -- held back by a person or by time ---------------------------------------------------------------------------
    # Why a person must decide about it; empty while nobody has to.
    parked: str = ""
    # It is paused until then; 0 while it is not.
    not_before: float = 0.0
    # Why it is paused, or which fault of the machine holds it up.
    cause: str = ""
    # A person has granted what this attempt made.
    approved: bool = False
    # What a person said has happened and must not be repeated: gates, as `gate:<name>`.
    happened: tuple[str, ...] = ()

    # -- the last claim ---------------------------------------------------------------------------------------------
    # How many there were. Together with the attempt it tells a claim from all others.
    claims: int = 0
    # The worker that claimed the task; empty while it is not claimed.
    agent: str = ""
    # The agent of the last claim, also when that has it no more; empty for a worker from elsewhere.
    worked_by: str = ""
    model: str = ""
    # Why it was given to this agent and model.
    why: str = ""
    # Where `worked_by` finds its model, if that is known.
    endpoint: str = ""
    # It is held through the API, by a worker that is none of ours.
    remote: bool = False
    # What that worker said last.
    progress: str = ""
    # The agent and the model to which a person gave it.
    assigned: tuple[str, str] = ("", "")

    # -- the attempt that it is in, or was in last ------------------------------------------------------------------
    # How many there were, and the last one's id: the task's id with its number.
    attempts: int = 0
    attempt: str = ""
    # The next claim continues this attempt instead of beginning another.
    continues: bool = False
    # How often it was continued after it was orphaned.
    resumes: int = 0
    # The definition's blob with which the attempt began: an edit meanwhile counts for the next one.
    worked_on: str = ""
    # The commit of the target branch on which it works.
    base: str = ""
    # The commit that its first start began with, on top of `base`.
    begun: str = ""
    # The snapshot that its next start continues from; empty: `begun`.
    tree: str = ""
    # Its last turn, and where the line of that turn ends in turns.jsonl.
    turn: int = 0
    offset: int = 0
    # Each time that a person put its worktree back, and how many of its turns do not stand any more.
    undos: Undos = ()
    undone: int = 0
    # The conversation of `worked_by`, where that can be resumed.
    session: str = ""
    # The attempt that lost its conversation and was given back for that.
    lost_in: str = ""

    # -- the last start of that attempt -----------------------------------------------------------------------------
    # Its number.
    starts: int = 0
    # The entry that intended it, which its files name; empty where they name none.
    intent: str = ""
    # It took place.
    started: bool = False
    # When it was intended; 0 while no agent is at work.
    began: float = 0.0
    # What it may spend, and what it has spent of that.
    reserved: Caps = Caps()
    used: Spend = Spend()

    # -- what was made, and where it landed -------------------------------------------------------------------------
    # The commit that an attempt made, to be verified and landed.
    candidate: str = ""
    # The attempt and turn at which that candidate was made.
    made: str = ""
    # Work after that candidate, of an attempt that is over: the next attempt begins with it.
    left: PreviousAttempt | None = None
    # The blob with what a gate or a person said of the candidate, for the next attempt.
    feedback: str = ""
    # The merged commit that passed its gates, and the target on which it may land: on no other.
    verified: str = ""
    verified_on: str = ""
    # The commit as which it landed, and the branch.
    landed: str = ""
    landed_on: str = ""
    # Paths that a person changed in a checkout, and that its landing waits for.
    landing_waits: tuple[str, ...] = ()

    # -- how attempts ended, and what all of them cost --------------------------------------------------------------
    # What the last move said of its end, for people: `kind`, `detail` and the like.
    outcome: dict[str, Any] = {}
    # The kind of failure of the last attempt.
    failed: str = ""
    # It failed, and another attempt follows by itself.
    again: bool = False
    # Attempts that are over, the oldest first.
    past: tuple[Past, ...] = ()
    turns: int = 0
    usd: float = 0.0
    tokens: int = 0
    seconds: float = 0.0

    @property
    def stands(self) -> int:
        """The turn of this attempt whose tree is in the worktree."""
        return dict(self.undos).get(self.turn, self.turn)

    @property
    def was_put_back(self) -> bool:
        """Whether a person did that, after the last turn."""
        return self.turn in dict(self.undos)

    @property
    def at(self) -> str:
        return f"{self.attempt}@{self.stands}"

    @property
    def came_to_nothing(self) -> bool:
        """Whether the last start has neither done nor spent anything."""
        return not (self.used.turns or self.used.tokens or self.used.usd)


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
    """Whether a task failed because its conversation is missing."""
    return bool(task.session) and task.failed in _UNABLE and task.came_to_nothing


# -- what entries make of it -------------------------------------------------------------------------------------------


def flag(task: Task, flagged: TaskFlagged) -> None:
    task.parked, task.not_before, task.cause = flagged.parked, flagged.not_before, flagged.cause
    task.happened += flagged.happened
    task.restored = task.restored and bool(flagged.parked or flagged.happened)
    if flagged.anew:
        task.continues, task.session, task.left, task.made = False, "", None, task.at


def fail(task: Task, moved: TaskMoved) -> None:
    """Records a failure. Feedback of a gate or a person stays until a candidate or other feedback replaces it."""
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
