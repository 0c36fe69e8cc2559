"""One task as the journal knows it, and the attempts that it has behind it.

`domain/state.py` folds the journal's entries into these records, with the functions below; nothing else changes them.
What begins and ends together is a record inside the task, frozen, and replaced as a whole. Such a record holds text and
numbers only, so that the garbage collector need not know it (`gc=False`): there are many, and each turn makes new ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from holdfast.domain.conversations.conversation_entries import TAKEN_BY, TaskGivenBack, TaskTaken, TaskTold
from holdfast.domain.conversations.conversation_records import Message
from holdfast.domain.effect_entries import SpawnIntended
from holdfast.domain.entries import (
    STOPPED,
    QuestionAnswered,
    TaskFlagged,
    TaskMoved,
    TurnUndone,
)
from holdfast.domain.pull_requests.pull_records import PullRequest
from holdfast.domain.reviews.review_records import TaskReviews
from holdfast.domain.spend import Caps, Spend
from holdfast.domain.task import TaskState
from holdfast.questions.records import QUESTIONS_MAX, Question, QuestionAsked

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


class LastClaim(msgspec.Struct, frozen=True, gc=False):
    """The claim by which the task is held, or was held last. The next claim replaces all of it."""

    # How many there were. Together with the attempt it tells a claim from all others.
    number: int = 0
    # The worker that claimed the task; empty while it is not claimed.
    agent: str = ""
    # The agent of this claim, also after it gave the task back; empty for a worker from elsewhere.
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
    # An agent was started under this claim.
    started: bool = False


class LastAttempt(msgspec.Struct, frozen=True, gc=False):
    """The attempt that the task is in, or was in last. A claim of another attempt replaces all of it but `base`."""

    # The task's id with the attempt's number; empty while there was none.
    id: str = ""
    # How often it was continued after it was orphaned.
    resumes: int = 0
    # The definition's blob with which it began: an edit meanwhile counts for the next one.
    worked_on: str = ""
    # The commit of the target branch on which it works. Until its first start that of the attempt before, whose
    # worktree is still there.
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
    # The kind of its failure.
    failed: str = ""
    # How many questions its agents have asked.
    asked: int = 0

    @property
    def stands(self) -> int:
        """The turn whose tree is in the worktree."""
        return dict(self.undos).get(self.turn, self.turn)

    @property
    def was_put_back(self) -> bool:
        """Whether a person put the worktree back after the last turn."""
        return self.turn in dict(self.undos)

    @property
    def at(self) -> str:
        return f"{self.id}@{self.stands}"


class LastStart(msgspec.Struct, frozen=True, gc=False):
    """The last start of an agent in that attempt. The next start replaces all of it."""

    # Counts the starts of the attempt; 0 while there was none.
    number: int = 0
    # The entry that intended it, which its files name; empty where they name none.
    intent: str = ""
    # When it was intended; 0 while no agent is at work.
    began: float = 0.0
    # What it may spend, and what it has spent of that.
    reserved: Caps = Caps()
    used: Spend = Spend()

    @property
    def came_to_nothing(self) -> bool:
        """Whether it has neither done nor spent anything."""
        return not (self.used.turns or self.used.tokens or self.used.usd)


class Landing(msgspec.Struct, frozen=True, gc=False):
    """How far the candidate is on its way to the target branch. The next candidate replaces all of it."""

    # The merged commit that passed its gates, and the target on which it may land: on no other.
    verified: str = ""
    verified_on: str = ""
    # The commit as which it landed, and the branch.
    commit: str = ""
    branch: str = ""
    # The commit that the branch was at before.
    old: str = ""
    # Paths that a person changed in a checkout, and that it waits for.
    waits: tuple[str, ...] = ()
    # The merged commit that a person approved, and its target.
    approved: str = ""
    approved_on: str = ""
    # The merged commit that is being judged, the target of that, and the task before it where that has not landed yet.
    judged: str = ""
    judged_on: str = ""
    behind: str = ""

    @property
    def judging(self) -> str:
        """What is being judged at this moment, in words; empty where nothing is."""
        if not self.judged:
            return ""
        ahead = f"on top of {self.behind}, ahead of its turn"
        return f"{self.judged[:12]} {ahead if self.behind else f'on {self.judged_on[:12]}'}"


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
    # A person works in its worktree, in the agent's own conversation.
    taken: TaskTaken | None = None
    # A person did so after its last start.
    was_taken: bool = False
    # What its agent asked a person in this attempt: open ones, and answers that it may still need.
    questions: tuple[Question, ...] = ()
    # What a person said has happened and must not be repeated: gates, as `gate:<name>`.
    happened: tuple[str, ...] = ()

    # -- the work on it ---------------------------------------------------------------------------------------------
    claim: LastClaim = LastClaim()
    # How many attempts there were.
    attempts: int = 0
    attempt: LastAttempt = LastAttempt()
    start: LastStart = LastStart()
    # The next claim continues the attempt instead of beginning another.
    continues: bool = False
    # The agent and the model to which a person gave it.
    assigned: tuple[str, str] = ("", "")
    # The conversation of the claim's `worked_by`, where that can be resumed: also by the next attempt.
    session: str = ""
    # The attempt that lost its conversation and was given back for that.
    lost_in: str = ""
    # Messages of a person for the conversation, the oldest first, until a start has seen them.
    told: tuple[Message, ...] = ()

    # -- what was made ----------------------------------------------------------------------------------------------
    # The commit that an attempt made, to be verified and landed.
    candidate: str = ""
    # The attempt and turn at which that candidate was made.
    made: str = ""
    # Work after that candidate, of an attempt that is over: the next attempt begins with it.
    left: PreviousAttempt | None = None
    # The blob with what a gate or a person said of the candidate, for the next attempt.
    feedback: str = ""
    landing: Landing = Landing()
    # The pull request by which it lands, where there is one.
    pull: PullRequest | None = None
    # What people said of the candidates, while the task is not over.
    reviews: TaskReviews = TaskReviews()

    # -- how attempts ended, and what all of them cost --------------------------------------------------------------
    # What the last move said of its end, for people: `kind`, `detail` and the like.
    outcome: dict[str, Any] = {}
    # It failed, and another attempt follows by itself.
    again: bool = False
    # Attempts that are over, the oldest first.
    past: tuple[Past, ...] = ()
    spent: Spend = Spend()


def open_questions(task: Task) -> list[Question]:
    """What its agent waits for: while there is any, the task is asking, and not ready."""
    return [each for each in task.questions if each.is_open]


def is_answered_start(task: Task) -> bool:
    """Whether the next start only brings the answer for which the last one ended."""
    return any(not each.held and each.start == task.start.number and not each.is_open for each in task.questions)


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
    return bool(task.session) and task.attempt.failed in _UNABLE and task.start.came_to_nothing


# -- what entries make of it -------------------------------------------------------------------------------------------


def flag(task: Task, flagged: TaskFlagged) -> None:
    task.parked, task.not_before, task.cause = flagged.parked, flagged.not_before, flagged.cause
    task.happened += flagged.happened
    task.restored = task.restored and bool(flagged.parked or flagged.happened)
    if flagged.anew:
        task.continues, task.session, task.left, task.made = False, "", None, task.attempt.at
        task.questions = ()


def drop_messages(task: Task, ids: list[str]) -> None:
    """Drops the messages that a start has seen."""
    if ids and task.told:
        task.told = tuple(each for each in task.told if each.id not in ids)


def fail(task: Task, moved: TaskMoved) -> None:
    """Records a failure. Feedback of a gate or a person stays until a candidate or other feedback replaces it."""
    task.feedback = moved.feedback or task.feedback
    task.attempt = failed = replace(task.attempt, failed=str(moved.outcome.get("kind", "")))
    if failed.id:
        detail = str(moved.outcome.get("detail", ""))
        detail = detail if len(detail) <= DETAIL_CHARS_MAX else detail[:DETAIL_CHARS_MAX] + "…"
        end_attempt(task, Past(failed.id, failed.turn, failed.failed, detail, failed.undos))


def undo(task: Task, undone: TurnUndone) -> None:
    before = task.attempt
    if undone.attempt != before.id:
        # What an earlier attempt left is there only up to that turn.
        if task.left is not None and task.left.attempt == undone.attempt:
            task.left = replace(task.left, turn=undone.turn)
        return
    kept = (each for each in before.undos if each[0] != before.turn)
    undos = (*kept, (before.turn, min(undone.turn, before.turn)))
    gone = before.turn - len(standing(before.turn, undos))
    task.attempt = replace(before, tree=undone.tree, undos=undos, undone=gone)
    task.questions = ()
    if task.past and task.past[-1].attempt == before.id:
        end_attempt(task, replace(task.past[-1], undos=undos))


def intend(task: Task, spawn: SpawnIntended, intent: str, moment: float) -> None:
    attempt, number = task.attempt, max(spawn.start, task.start.number)
    task.attempt = replace(attempt, base=spawn.base or attempt.base, begun=attempt.begun or spawn.tree)
    task.start = LastStart(number, intent, moment, spawn.reserved)
    task.restored = task.was_taken = False


def add_message(task: Task, told: TaskTold, moment: float) -> None:
    if all(each.id != told.id for each in task.told):
        task.told += (Message(told.id, told.message, told.by, moment),)


def take_over(task: Task, taken: TaskTaken) -> None:
    process = f", process {taken.pid} on {taken.host}" if taken.pid else ""
    task.parked = f"{TAKEN_BY}{taken.by or 'a person'}{process}"
    task.taken = taken


def give_back(task: Task, given: TaskGivenBack) -> None:
    task.taken, task.parked, task.was_taken = None, STOPPED if given.park else "", True
    if given.attempt == task.attempt.id and given.tree:
        task.attempt = replace(task.attempt, tree=given.tree)


def ask(task: Task, asked: QuestionAsked, moment: float) -> str:
    """Adds an open question; returns why it cannot be one, or nothing."""
    question = Question(**asdict(asked), asked_at=moment)
    if asked.attempt != task.attempt.id:
        return f"the last attempt is {task.attempt.id}, not {asked.attempt}"
    if question.number <= task.attempt.asked:
        return f"the question {asked.id} was asked before"
    if len(open_questions(task)) >= QUESTIONS_MAX:
        return f"{task.id} has {QUESTIONS_MAX} open questions"
    task.attempt = replace(task.attempt, asked=question.number)
    task.questions = (*task.questions, question)
    return ""


def answer(task: Task, given: QuestionAnswered, moment: float) -> str:
    """Answers an open question; returns why it cannot be answered, or nothing."""
    found = next((each for each in task.questions if each.id == given.id), None)
    if found is None or not found.is_open:
        return f"the question {given.id} is {'not open' if found is None else 'answered'}"
    done = replace(found, **asdict(given), answered_at=moment)
    task.questions = tuple(done if each is found else each for each in task.questions)
    return ""


def end_attempt(task: Task, one: Past) -> None:
    """An attempt that was continued ends once more, and counts once."""
    kept = [each for each in task.past if each.attempt != one.attempt]
    task.past = (*kept[1 - PAST_MAX :], one)


def close_effect(task: Task, decision_type: str, reason: str, result: Mapping[str, Any]) -> None:
    """What the outcome of an effect changes. Parks the task where it could not be decided, or was too old to repeat."""
    if decision_type.startswith("task_verify_"):
        task.landing = replace(task.landing, judged="", judged_on="", behind="")
    match decision_type:
        case "task_spawn_confirmed":
            task.claim = replace(task.claim, started=True)
        case "task_verify_confirmed" if result.get("passed"):
            merged, target = str(result.get("merged", "")), str(result.get("target", ""))
            task.landing = replace(task.landing, verified=merged, verified_on=target)
        case "task_land_confirmed" if "new" in result:
            branch, old = str(result.get("branch", "")), str(result.get("old", ""))
            task.landing = replace(task.landing, commit=str(result["new"]), branch=branch, old=old)
        case kind if kind.endswith(("_parked", "_abandoned")):
            task.parked = f"{kind}: {reason}"
