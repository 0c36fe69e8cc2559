"""Every kind of journal entry: its decision type, its typed payload, and the version that first wrote it.

Facts about tasks are named after the state they lead to, and carry the event of the task's state machine, so that the
fold can check the move. The entries of effects are in `domain/effect_entries.py`.

A type that is not listed was written by a newer Holdfast. That is an error, not a guess.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

from holdfast.domain.conversations.conversation_entries import TaskGivenBack, TaskTaken, TaskTold
from holdfast.domain.effect_entries import CLOSED_BY, EFFECT_OF, EffectClosed, Reference
from holdfast.domain.messages.connection_state import CONNECTION_ENTRIES
from holdfast.domain.pull_requests.pull_records import PullRequestPublished, PullRequestSeen, PullRequestSteered
from holdfast.domain.reviews.review_records import ReviewDrafted, ReviewSubmitted
from holdfast.domain.spend import Spend
from holdfast.domain.task import TaskEvent, TaskState
from holdfast.errors import EntryUnfit, EntryUnknown
from holdfast.questions.records import AnswerKind, QuestionAsked


class EntryLike(Protocol):
    """The part of an entry that the fold needs; the journal's own record has more."""

    @property
    def seq(self) -> int: ...
    @property
    def timestamp(self) -> float: ...
    @property
    def decision_type(self) -> str: ...
    @property
    def inputs(self) -> dict[str, Any]: ...
    @property
    def output(self) -> dict[str, Any]: ...
    @property
    def entry_hash(self) -> str: ...


class AuditNoted(msgspec.Struct, frozen=True):
    """The audit log's last record, and its newest seal with the SHA-256 of that file: they must stay from now on."""

    file: str
    seq: int
    hmac: str
    seal: str = ""
    seal_sha256: str = ""


class RunStarted(msgspec.Struct, frozen=True):
    """`audit`: the audit log as it was found. `audit_lost`: a person says that what it had before is lost. `restored`:
    so is a newer journal, to which these bore witness. `ends_journalled`: the run journals its end, so that one without
    `run_ended` was killed; runs of an older Holdfast did not."""

    previous: Reference | None
    format: int
    epoch: int
    holdfast: str
    audit: AuditNoted | None = None
    audit_lost: bool = False
    restored: list[str] = []
    ends_journalled: bool = False


class RunEnded(msgspec.Struct, frozen=True):
    """The end of a run, as it wrote it itself: `orderly`, or `stopped` by an error, which `reason` names."""

    how: Literal["orderly", "stopped"]
    reason: str = ""


class ReplayCompleted(msgspec.Struct, frozen=True):
    """The result of recovery: how many open intents it closed in which way, and how many claims it gave back."""

    confirmed: int = 0
    failed: int = 0
    abandoned: int = 0
    parked: int = 0
    released: int = 0


class TaskAdded(msgspec.Struct, frozen=True):
    """`definition` is the blob that holds the file as it was. An imported task came with a state, without a journal.

    One that came through the API brings its `text` along: the blob and the file are written from it, and then filed.
    """

    task: str
    definition: str
    state: TaskState = TaskState.OPEN
    imported: bool = False
    outcome: dict[str, Any] = {}
    text: str = ""


class TasksFiled(msgspec.Struct, frozen=True):
    """The file and the blob of each of these, which came through the API, are on disk."""

    tasks: list[str]


class TaskProgressed(msgspec.Struct, frozen=True):
    """A worker's report about its task meanwhile."""

    task: str
    attempt: str
    message: str
    percent: float | None = None


class RequestAnswered(msgspec.Struct, frozen=True):
    """The answer to an API request that had a key of its own, so that a repeated one gets the same.

    `whole`: the body is here. A very long one is not, and is made anew from what the journal knows.
    """

    idempotency_key: str
    request: str
    status: int
    body: Any = None
    whole: bool = True


class TaskEdited(msgspec.Struct, frozen=True):
    task: str
    definition: str


class TaskMoved(msgspec.Struct, frozen=True):
    """A move of the task's state machine. `outcome` is what its file shows: the result or the error.

    `candidate` is the commit that an attempt made, `session` the agent's own name for its conversation, `feedback` the
    blob with the agent's feedback when it is resumed. `again`: of a failure, that another attempt follows by itself.
    `rest` is what the start has spent after its last turn. A claim says with which `model`, and `why` this agent;
    `remote`, that the worker is none of ours, and holds it through the API. `forget`: the conversation that the task
    had cannot be resumed, and the next start begins another. `tree` is the commit of the snapshot that the next
    start of the attempt goes on with, where that is another than its last turn's.
    A claim also names the `endpoint` at which its agent finds its model, where that is known. Of work that is given
    back because the agent cannot be used for now, `until` is when it is tried again.
    `told`: messages of a person, by their ids, that the start has seen after its last turn.
    """

    task: str
    event: TaskEvent
    reason: str
    attempt: str = ""
    agent: str = ""
    outcome: dict[str, Any] = {}
    candidate: str = ""
    session: str = ""
    feedback: str = ""
    again: bool = False
    rest: Spend = Spend()
    model: str = ""
    why: str = ""
    remote: bool = False
    forget: bool = False
    endpoint: str = ""
    until: float = 0.0
    tree: str = ""
    told: list[str] = []


class RefusalNoted(msgspec.Struct, frozen=True):
    task: str
    state: str
    event: str
    reason: str


# How a task is parked whose agent a person has stopped: it can be put back or forked, and `resume` lets it go on.
STOPPED = "a person has stopped its agent"


def is_lost(parked: str) -> bool:
    """Whether a task is parked because a turn of it is gone, or what it came to (errors.SnapshotLost, ResultLost)."""
    return parked.startswith(("Turn ", "The result of ")) and " is lost: " in parked


class TaskFlagged(msgspec.Struct, frozen=True):
    """`parked`: why a person must decide, or empty. `not_before`: when it may be tried again, or 0.

    `cause` says, as a sentence, why it is paused until then; the next claim ends both. Without `not_before` it is a
    fault of the machine, which holds the task up until its next move.
    `happened`: steps of which a person said that they took place, which are not performed again for this candidate:
    `refresh`, or `gate:` and the name of a gate.
    `anew`: the next attempt begins without what the ones before left.
    """

    task: str
    parked: str = ""
    not_before: float = 0.0
    cause: str = ""
    happened: tuple[str, ...] = ()
    anew: bool = False


class TurnCompleted(msgspec.Struct, frozen=True):
    """One line of the attempt's `turns.jsonl`, pinned by the offset where it ends.

    `told`: messages of a person, by their ids, that the agent has seen since the turn before.
    """

    task: str
    attempt: str
    turn: int
    end_offset: int
    snapshot: str = ""
    usd: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    told: list[str] = []


class QuestionAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """The first answer to a question, and the only one. `rule`: what the settings allow from now on because of it."""

    id: str
    task: str
    by: str
    answer: AnswerKind
    words: str = ""
    rule: str = ""


class AttemptForked(msgspec.Struct, frozen=True):
    """The open task's next attempt begins with `candidate`, which holds the tree of that turn of that attempt."""

    task: str
    attempt: str
    turn: int
    candidate: str
    feedback: str = ""


class AttemptResumed(msgspec.Struct, frozen=True):
    """The open task's next claim goes on with this attempt, however often it was continued before."""

    task: str
    attempt: str


class LandingPromoted(msgspec.Struct, frozen=True):
    """A person wants a closed task's `commit`, which is no longer on `branch`, landed again."""

    task: str
    attempt: str
    branch: str
    commit: str


class LandingWaiting(msgspec.Struct, frozen=True):
    """The verified commit changes paths that a person has changed in a checkout of the branch: it waits for them."""

    task: str
    attempt: str
    branch: str
    paths: list[str]


class GateWarned(msgspec.Struct, frozen=True):
    """The gate uses code of another checkout, and so may prove nothing about a candidate. `warning` is a sentence."""

    task: str
    attempt: str
    gate: str
    warning: str


class LandingSettled(msgspec.Struct, frozen=True, kw_only=True):
    """The landed `commit` left the branch: as `rewritten` it is there (an amend, rebase or squash), or, where that is
    empty, a person dropped it on purpose. `how` says by what it was recognised, or that a person said so."""

    task: str
    attempt: str
    branch: str
    commit: str
    rewritten: str = ""
    how: str = ""


class TurnUndone(msgspec.Struct, frozen=True):
    """The worktree was put back to a turn; `saved` is the snapshot of what stood there before, empty where the later
    turns are lost. `tree` is the commit of the turn that the next start goes on with."""

    task: str
    attempt: str
    turn: int
    saved: str
    tree: str = ""


MOVES: dict[str, TaskState] = {
    "task_opened": TaskState.OPEN,
    "task_claimed": TaskState.CLAIMED,
    "task_started": TaskState.IN_PROGRESS,
    "task_done": TaskState.DONE,
    "task_closed": TaskState.CLOSED,
    "task_failed": TaskState.FAILED,
    "task_blocked": TaskState.BLOCKED,
    "task_split": TaskState.WAITING_FOR_SUBTASKS,
    "task_cancelled": TaskState.CANCELLED,
    "task_orphaned": TaskState.ORPHANED,
    "task_approval_requested": TaskState.PENDING_APPROVAL,
}
MOVE_TO = {state: name for name, state in MOVES.items()}

PAYLOADS: dict[str, type[msgspec.Struct]] = {
    "run_started": RunStarted,
    "run_ended": RunEnded,
    "wal_replay_completed": ReplayCompleted,
    "audit_noted": AuditNoted,
    "task_added": TaskAdded,
    "task_edited": TaskEdited,
    "tasks_filed": TasksFiled,
    "task_progressed": TaskProgressed,
    "request_answered": RequestAnswered,
    "task_told": TaskTold,
    "task_taken": TaskTaken,
    "task_given_back": TaskGivenBack,
    "task_move_refused": RefusalNoted,
    "task_flagged": TaskFlagged,
    "turn_completed": TurnCompleted,
    "turn_undone": TurnUndone,
    "attempt_forked": AttemptForked,
    "attempt_resumed": AttemptResumed,
    "question_asked": QuestionAsked,
    "question_answered": QuestionAnswered,
    "landing_promoted": LandingPromoted,
    "landing_waits": LandingWaiting,
    "gate_warned": GateWarned,
    "landing_settled": LandingSettled,
    "review_drafted": ReviewDrafted,
    "review_submitted": ReviewSubmitted,
    **CONNECTION_ENTRIES,
    "pull_request_published": PullRequestPublished,
    "pull_request_seen": PullRequestSeen,
    "pull_request_steered": PullRequestSteered,
    **dict.fromkeys(MOVES, TaskMoved),
    **{f"task_{effect}_intent": kind for kind, effect in EFFECT_OF.items()},
    **dict.fromkeys(CLOSED_BY, EffectClosed),
}
# The version of Holdfast's format that first wrote a type; all so far are of the first.
VERSIONS: dict[str, int] = dict.fromkeys(PAYLOADS, 1)


def payload(run: str, entry: EntryLike) -> msgspec.Struct:
    """The typed payload of an entry."""
    kind = PAYLOADS.get(entry.decision_type)
    if kind is None:
        raise EntryUnknown(run=run, seq=entry.seq, decision_type=entry.decision_type)
    try:
        return msgspec.convert(entry.inputs, kind)
    except msgspec.ValidationError as error:
        raise EntryUnfit(run=run, seq=entry.seq, decision_type=entry.decision_type, reason=error) from error
