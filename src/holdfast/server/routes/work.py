"""Adding tasks, and working on them from outside: claim, start, say how it goes, complete or fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.decisions import new_tasks, remote_claims
from holdfast.decisions.context import DecisionContext, refused
from holdfast.domain.claims import Claim
from holdfast.domain.task_record import Task
from holdfast.server.api_state import Api
from holdfast.server.operations import Ask, Operation
from holdfast.server.routes.tasks import Added, NewTask, NewTasks, TaskRow, given, rows_of

Worker = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@-]*\Z")]
Token = Annotated[str, Meta(max_length=300)]
Words = Annotated[str, Meta(max_length=10_000)]


class ClaimTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`worker` is what the claimer calls itself."""

    worker: Worker


class ClaimNext(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first that is ready; with a role, of those of that role."""

    worker: Worker
    role: Annotated[str, Meta(max_length=200)] | None = None


class Claimed(msgspec.Struct, frozen=True):
    """The right to work on a task. `claim` goes with all that is said of it; `until` is when the lease runs out."""

    task: TaskRow
    attempt: str
    claim: str
    until: float


class Hold(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`claim` is what claiming gave. An agent with a token of its own needs none."""

    claim: Token = ""


class Progress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    message: Words
    claim: Token = ""
    percent: Annotated[float, Meta(ge=0, le=100)] | None = None


class Complete(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`commit` is what shall be verified and land; without one nothing lands."""

    claim: Token = ""
    commit: Annotated[str, Meta(max_length=64)] = ""
    summary: Words = ""


class Fail(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reason: Words
    claim: Token = ""


class Now(msgspec.Struct, frozen=True):
    """The task after a change. `note` says what comes of it."""

    task: TaskRow
    note: str = ""


def add(decision: DecisionContext, ask: Ask) -> TaskRow:
    return _added(decision, ask, [ask.body])[0]


def add_batch(decision: DecisionContext, ask: Ask) -> Added:
    return Added(_added(decision, ask, ask.body.tasks))


def _added(decision: DecisionContext, ask: Ask, tasks: Sequence[NewTask]) -> list[TaskRow]:
    return rows_of(decision, new_tasks.create(decision, ask.api.catalogue, [given(each) for each in tasks]))


def claim_next(decision: DecisionContext, ask: Ask) -> Claimed | None:
    body: ClaimNext = ask.body
    found = remote_claims.claim_next(decision, body.worker, body.role)
    return None if found is None else _claimed(decision, found)


def claim_task(decision: DecisionContext, ask: Ask) -> Claimed:
    return _claimed(decision, remote_claims.claim(decision, ask.body.worker, ask.task))


def beat(decision: DecisionContext, ask: Ask) -> Claimed:
    return beat_of(decision, ask, decision.task(ask.task))


def beat_of(decision: DecisionContext, ask: Ask, task: Task) -> Claimed:
    """Our own runner beats for its agent; a worker from elsewhere extends its lease."""
    if _is_own_agent(ask, task.attempt.id):
        until = decision.clock() + decision.config.heartbeat_timeout_s
        return Claimed(rows_of(decision, [task.id])[0], task.attempt.id, ask.body.claim, until)
    return _claimed(decision, remote_claims.beat(decision, task.id, ask.body.claim))


def start(decision: DecisionContext, ask: Ask) -> Now:
    if _is_own_agent(ask, decision.task(ask.task).attempt.id):
        return _now(decision, ask, "your runner has said so")
    remote_claims.report_start(decision, ask.task, ask.body.claim)
    return _now(decision, ask)


def has_room(api: Api, ask: Ask) -> None:
    api.quotas.expect_room(ask, ask.body.message)


def progress(decision: DecisionContext, ask: Ask) -> Now:
    body: Progress = ask.body
    task = decision.task(ask.task)
    if not _is_own_agent(ask, task.attempt.id):
        remote_claims.held(decision, ask.task, body.claim)
    remote_claims.progress(decision, task, body.message, body.percent)
    return _now(decision, ask)


def has_commit(api: Api, ask: Ask) -> bool:
    """Whether the commit that a worker names is here: git is asked before others have to wait for it."""
    api.quotas.expect_room(ask, ask.body.summary)
    return remote_claims.has_commit(api.context.repo, ask.body.commit)


def complete(decision: DecisionContext, ask: Ask) -> Now:
    body: Complete = ask.body
    task = decision.task(ask.task)
    if _is_own_agent(ask, task.attempt.id):
        remote_claims.progress(decision, task, f"complete: {body.summary}".strip(": "), 100.0)
        return _now(decision, ask, "noted; what was made is judged when your process ends")
    remote_claims.complete(decision, ask.task, body.claim, body.commit, body.summary, is_here=ask.found)
    return _now(decision, ask, "it is verified and landed next" if body.commit else "")


def keep_reason(api: Api, ask: Ask) -> str:
    """The blob with the feedback for the next attempt; an agent that we run reports it through its process."""
    api.quotas.expect_room(ask, ask.body.reason)
    return "" if ask.principal.role == "agent" else remote_claims.keep_reason(api.context.blobs, ask.body.reason)


def fail(decision: DecisionContext, ask: Ask) -> Now:
    body: Fail = ask.body
    task = decision.task(ask.task)
    if _is_own_agent(ask, task.attempt.id):
        remote_claims.progress(decision, task, f"failing: {body.reason}".strip(": "), None)
        return _now(decision, ask, "noted; end your process with an exit code other than 0 to give up")
    remote_claims.fail(decision, ask.task, body.claim, body.reason, feedback=ask.found)
    return _now(decision, ask)


def release(decision: DecisionContext, ask: Ask) -> Now:
    task = decision.task(ask.task)
    if _is_own_agent(ask, task.attempt.id):
        raise refused(task, "given back", "end your process instead.", "its runner holds it")
    remote_claims.release(decision, ask.task, ask.body.claim)
    return _now(decision, ask)


def _is_own_agent(ask: Ask, attempt: str) -> bool:
    """An agent that we run says how it goes; when it is over, its process says."""
    return ask.principal.role == "agent" and ask.principal.attempt == attempt


def _claimed(decision: DecisionContext, claim: Claim) -> Claimed:
    return Claimed(rows_of(decision, [claim.task])[0], claim.attempt, claim.token, claim.until)


def _now(decision: DecisionContext, ask: Ask, note: str = "") -> Now:
    return Now(rows_of(decision, [ask.task])[0], note)


OPERATIONS = [
    Operation("POST", "/tasks", "add_task", "Add a task.", add, answer=TaskRow, right="operate", lane="batch",
              body=NewTask, status=201, problems=(404, 409), early=True, tool="person",
              hint="`goal` says in words what is to be done; `verify` are shell commands that must pass first."),
    Operation("POST", "/tasks/batch", "add_tasks", "Add tasks: all of them or, if one cannot be, none.", add_batch,
              answer=Added, right="operate", lane="batch", body=NewTasks, status=201, problems=(404, 409), early=True),
    Operation("POST", "/tasks/claim", "claim_next", "Claim the task that comes first.", claim_next, answer=Claimed,
              right="operate", lane="batch", body=ClaimNext, problems=(204, 404, 409)),
    Operation("POST", "/tasks/{task}/claim", "claim_task", "Claim a task.", claim_task, answer=Claimed,
              right="operate", lane="batch", body=ClaimTask, problems=(404, 409)),
    Operation("POST", "/tasks/{task}/heartbeat", "beat_task", "Keep a claim alive.", beat, answer=Claimed,
              right="work", lane="batch", body=Hold, problems=(404, 409)),
    Operation("POST", "/tasks/{task}/start", "start_task", "Say that work on a claimed task has begun.", start,
              answer=Now, right="work", lane="batch", body=Hold, problems=(404, 409)),
    Operation("POST", "/tasks/{task}/progress", "progress_task", "Say how it goes.", progress, answer=Now,
              right="work", lane="batch", body=Progress, problems=(404, 409, 429), before=has_room, tool="agent",
              hint="A person watches it. Call it when a step is done, not for every file. `claim` is not needed."),
    Operation("POST", "/tasks/{task}/complete", "complete_task", "Say that it is done; then it is verified and landed.",
              complete, answer=Now, right="work", lane="batch", body=Complete, problems=(404, 409, 429),
              before=has_commit),
    Operation("POST", "/tasks/{task}/fail", "fail_task", "Give up on a claimed task.", fail, answer=Now, right="work",
              lane="batch", body=Fail, problems=(404, 409, 429), before=keep_reason),
    Operation("POST", "/tasks/{task}/release", "release_task", "Give a claimed task back.", release, answer=Now,
              right="work", lane="batch", body=Hold, problems=(404, 409)),
]  # fmt: skip
