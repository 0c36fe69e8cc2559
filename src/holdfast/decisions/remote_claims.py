"""Workers that are none of ours: they claim a task through the API, say how it goes, and complete or fail it.

A claim has a lease: a worker without a sign of life until its end loses the task. What a worker completes is judged
and landed like everything else, by the commit that it names.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from holdfast.decisions.context import DecisionContext
from holdfast.domain.claims import Claim
from holdfast.domain.fsm import Reason
from holdfast.domain.task import TaskEvent, TaskState
from holdfast.domain.task_record import Task
from holdfast.engine.context import RunContext
from holdfast.errors import ClaimLost, ClaimRefused, InputError
from holdfast.git import repository
from holdfast.storage.records.blobs import Blobs
from holdfast.storage.records.redact import without_secrets

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def claim(decision: DecisionContext, worker: str, task: str) -> Claim:
    """Hands out one task by its id."""
    known = decision.task(task)
    if decision.has_done("task_claimed", 0):
        return _again(decision, known, worker)
    board = decision.board
    with board.lock:
        board.keep_up()
        if waits := board.graph.reasons_to_wait(task, decision.clock()):
            raise ClaimRefused(task=task, reason="; ".join(waits))
        if board.graph.has_subtasks(task):
            raise ClaimRefused(task=task, reason="it has subtasks, which are its work")
        return _claim(decision, worker, task)


def claim_next(decision: DecisionContext, worker: str, role: str | None) -> Claim | None:
    """Hands out the task that comes first, of this role or of any; None when nothing is ready."""
    if (before := decision.journalled("task_claimed", 0)) is not None:
        return _again(decision, decision.task(before.inputs["task"]), worker)
    with decision.board.lock:
        decision.board.keep_up()
        graph, now = decision.board.graph, decision.clock()
        name = graph.next_ready(now, role)
        if name is not None and graph.has_subtasks(name):
            name = next((each for each in graph.ready(now, role) if not graph.has_subtasks(each)), None)
        return None if name is None else _claim(decision, worker, name)


def _claim(decision: DecisionContext, worker: str, task: str) -> Claim:
    facts: dict[str, Any] = {"remote": True, "idempotency_key": decision.key}
    return decision.ledger.claim(
        worker, task, lease_s=decision.config.lease_s, why="it was claimed through the API", **facts
    )


def _again(decision: DecisionContext, task: Task, worker: str) -> Claim:
    """The claim that was made under the same key before its answer got lost."""
    held = decision.ledger.lease(task.id)
    if held is None or held.worker != worker:
        raise ClaimLost(task=task.id, worker=worker, reason=f"it is {task.state} by now")
    return held


def held(decision: DecisionContext, task: str, token: str) -> tuple[Task, Claim]:
    """The task of a claim, by its token. A lease that has run out is over, also before the loop has come to say so: it
    may be doing that now, and what is granted meanwhile would be taken away again."""
    known = decision.task(task)
    is_over = any(each.task == task for each in decision.ledger.expired())
    lease = decision.ledger.lease(task)
    if is_over and known.claim.remote and lease is not None and lease.token == token:
        raise ClaimLost(task=task, worker=token, reason="its lease has run out")
    if lease is None or not known.claim.remote or lease.token != token:
        holder = f"{known.claim.agent} holds it" if known.claim.agent else "nobody holds it"
        raise ClaimLost(task=task, worker=token or "you", reason=f"it is {known.state}, and {holder}")
    return known, lease


def beat(decision: DecisionContext, task: str, token: str) -> Claim:
    """Extends the lease. It is kept in memory only: after a restart every lease begins anew."""
    _, lease = held(decision, task, token)
    return decision.ledger.heartbeat(lease, lease_s=decision.config.lease_s)


def report_start(decision: DecisionContext, task: str, token: str) -> None:
    if decision.has_done("task_started", 0):
        return
    known, lease = held(decision, task, token)
    decision.append([_moved(decision, known, TaskEvent.AGENT_STARTS_WORK, Reason.SCHEDULED, agent=lease.worker)])


def progress(decision: DecisionContext, task: Task, message: str, percent: float | None) -> None:
    if decision.has_done("task_progressed", 0):
        return
    said = {"task": task.id, "attempt": task.attempt.id, "message": without_secrets(message), "percent": percent}
    decision.append([decision.record("task_progressed", 0, said)])


def has_commit(repo: Path, commit: str) -> bool:
    """Whether git has the commit, or none is named. Asked before `complete`, because other requests wait for that."""
    return not commit or bool(_COMMIT.fullmatch(commit) and repository.commits_here(repo, [commit]))


def complete(decision: DecisionContext, task: str, token: str, commit: str, summary: str, *, is_here: bool) -> None:
    """`is_here`: what `has_commit` says of the commit."""
    if decision.has_done("task_done", 0):
        return
    known, lease = held(decision, task, token)
    if not is_here:
        raise InputError(
            detail=f"{commit!r} is no commit of this repository; push or fetch it first, and give it whole"
        )
    is_early = known.state is TaskState.CLAIMED
    event = TaskEvent.FAST_COMPLETION if is_early else TaskEvent.AGENT_REPORTS_SUCCESS
    more = {
        "agent": lease.worker,
        "candidate": commit,
        "outcome": {"detail": without_secrets(summary)} if summary else {},
    }
    decision.append([_moved(decision, known, event, Reason.AGENT_REPORTED, **more)])


def keep_reason(blobs: Blobs, reason: str) -> str:
    """The blob of a worker's report, feedback for the next attempt; put before `fail`, which others wait for."""
    return blobs.put(without_secrets(reason).encode(), content_type="text/plain") if reason else ""


def fail(decision: DecisionContext, task: str, token: str, reason: str, *, feedback: str) -> None:
    """`feedback`: what `keep_reason` says of the reason."""
    if decision.has_done("task_failed", 0):
        return
    known, _ = held(decision, task, token)
    made = decision.board.worked_on(known)
    is_early = known.state is TaskState.CLAIMED
    event = TaskEvent.IMMEDIATE_FAILURE if is_early else TaskEvent.AGENT_REPORTS_FAILURE
    again = known.attempts < (made.max_attempts or decision.config.max_attempts)
    outcome = {"kind": "reported", "detail": without_secrets(reason), "attempt": known.attempt.id}
    decision.append(
        [_moved(decision, known, event, Reason.AGENT_FAILED, outcome=outcome, again=again, feedback=feedback)]
    )


def release(decision: DecisionContext, task: str, token: str) -> None:
    if decision.has_done("task_opened", 0):
        return
    known, _ = held(decision, task, token)
    event = TaskEvent.UNCLAIM if known.state is TaskState.CLAIMED else TaskEvent.REQUEUE
    decision.append([_moved(decision, known, event, Reason.CLAIM_RELEASED)])


def lapse(context: RunContext, task: Task) -> None:
    """Opens a task again whose lease has run out, as the loop has planned it."""
    event = TaskEvent.UNCLAIM if task.state is TaskState.CLAIMED else TaskEvent.REQUEUE
    context.move(task, event, Reason.HEARTBEAT_LOST)
    context.note(task.id, f"{task.attempt.id} was given no sign of life by its worker, and is open again")


def _moved(decision: DecisionContext, task: Task, event: TaskEvent, reason: str, **facts: Any) -> Any:
    return decision.moved(task, event, reason, facts={"attempt": task.attempt.id, **facts})
