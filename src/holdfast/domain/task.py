"""The task's life: 12 states, from a definition in the backlog to a landed result.

An event's name says what happened, in the words of the original diagram: what that puts in brackets or behind a comma
explains and is left out, and what it parts by a slash is two events that lead the same way.

- PENDING_APPROVAL holds a candidate that a person must see: granted, it is DONE again and may land.
- `changes_requested` is ours, not of the original diagram: a person wants the candidate changed, or has
  told its agent something before it landed. The task is OPEN again, and its next claim continues the same attempt and
  conversation. No attempt is spent: nothing has failed.
- An orphan that is continued goes ORPHANED → OPEN → CLAIMED and keeps its attempt. `partial_work_merged` means that its
  tree was salvaged as a candidate; it is verified like any other before it lands.
- A failed gate and a landing conflict are both `verification_rejected`; the move's reason tells which.
- Waiting for a known dependency is no state: the task is OPEN and not ready. BLOCKED is for one discovered later.
- DONE and FAILED can be cancelled, too, which the original diagram does not have: a result whose landing waits, and a
  failure that nobody wants tried again, must not stay for ever.
- Parked and `not_before` are flags beside the state.
"""

from __future__ import annotations

from enum import StrEnum

from holdfast.domain.fsm import Machine, Transition


class TaskState(StrEnum):
    """Files, JSON and the journal have the name. In a sentence, that is wherever it is formatted, it is in words."""

    PLANNED = "PLANNED"
    OPEN = "OPEN"
    CLAIMED = "CLAIMED"
    IN_PROGRESS = "IN_PROGRESS"
    ORPHANED = "ORPHANED"
    BLOCKED = "BLOCKED"
    WAITING_FOR_SUBTASKS = "WAITING_FOR_SUBTASKS"
    DONE = "DONE"
    PENDING_APPROVAL = "PENDING_APPROVAL"
    FAILED = "FAILED"
    CLOSED = "CLOSED"
    CANCELLED = "CANCELLED"

    def __format__(self, spec: str) -> str:
        return format(self.lower().replace("_", " "), spec)


class TaskEvent(StrEnum):
    APPROVED = "approved"
    REJECTED = "rejected"
    AGENT_CLAIMS_TASK = "agent_claims_task"
    DECOMPOSED_BEFORE_CLAIM = "decomposed_before_claim"
    MANUAL_CANCEL = "manual_cancel"
    AGENT_STARTS_WORK = "agent_starts_work"
    UNCLAIM = "unclaim"
    FORCE_REASSIGN = "force_reassign"
    FAST_COMPLETION = "fast_completion"
    IMMEDIATE_FAILURE = "immediate_failure"
    AGENT_SPLITS_WORK = "agent_splits_work"
    DEPENDENCY_DISCOVERED = "dependency_discovered"
    AGENT_REPORTS_SUCCESS = "agent_reports_success"
    AGENT_REPORTS_FAILURE = "agent_reports_failure"
    AGENT_DECOMPOSES_TASK = "agent_decomposes_task"
    REQUEUE = "requeue"
    HEARTBEAT_TIMEOUT = "heartbeat_timeout"
    CRASH = "crash"
    PARTIAL_WORK_MERGED = "partial_work_merged"
    UNRECOVERABLE = "unrecoverable"
    REQUEUED_FOR_RETRY = "requeued_for_retry"
    DEPENDENCY_RESOLVED = "dependency_resolved"
    ALL_SUBTASKS_COMPLETED = "all_subtasks_completed"
    SUBTASK_TIMEOUT_ESCALATION = "subtask_timeout_escalation"
    RETRY = "retry"
    JANITOR_VERIFIED_AND_MERGED = "janitor_verified_and_merged"
    VERIFICATION_REJECTED = "verification_rejected"
    APPROVAL_REQUESTED = "approval_requested"
    APPROVAL_GRANTED = "approval_granted"
    APPROVAL_REJECTED = "approval_rejected"
    CHANGES_REQUESTED = "changes_requested"


_S, _E = TaskState, TaskEvent

TASK: Machine[TaskState, TaskEvent] = Machine(
    name="task",
    states=TaskState,
    initial={_S.OPEN: "dynamic creation", _S.PLANNED: "plan mode"},
    transitions=(
        Transition(_S.PLANNED, _E.APPROVED, _S.OPEN),
        Transition(_S.PLANNED, _E.REJECTED, _S.CANCELLED),
        Transition(_S.OPEN, _E.AGENT_CLAIMS_TASK, _S.CLAIMED),
        Transition(_S.OPEN, _E.DECOMPOSED_BEFORE_CLAIM, _S.WAITING_FOR_SUBTASKS),
        Transition(_S.OPEN, _E.MANUAL_CANCEL, _S.CANCELLED),
        Transition(_S.CLAIMED, _E.AGENT_STARTS_WORK, _S.IN_PROGRESS),
        Transition(_S.CLAIMED, _E.UNCLAIM, _S.OPEN),
        Transition(_S.CLAIMED, _E.FORCE_REASSIGN, _S.OPEN),
        Transition(_S.CLAIMED, _E.FAST_COMPLETION, _S.DONE),
        Transition(_S.CLAIMED, _E.IMMEDIATE_FAILURE, _S.FAILED),
        Transition(_S.CLAIMED, _E.MANUAL_CANCEL, _S.CANCELLED),
        Transition(_S.CLAIMED, _E.AGENT_SPLITS_WORK, _S.WAITING_FOR_SUBTASKS),
        Transition(_S.CLAIMED, _E.DEPENDENCY_DISCOVERED, _S.BLOCKED),
        Transition(_S.IN_PROGRESS, _E.AGENT_REPORTS_SUCCESS, _S.DONE),
        Transition(_S.IN_PROGRESS, _E.AGENT_REPORTS_FAILURE, _S.FAILED),
        Transition(_S.IN_PROGRESS, _E.DEPENDENCY_DISCOVERED, _S.BLOCKED),
        Transition(_S.IN_PROGRESS, _E.AGENT_DECOMPOSES_TASK, _S.WAITING_FOR_SUBTASKS),
        Transition(_S.IN_PROGRESS, _E.REQUEUE, _S.OPEN),
        Transition(_S.IN_PROGRESS, _E.FORCE_REASSIGN, _S.OPEN),
        Transition(_S.IN_PROGRESS, _E.MANUAL_CANCEL, _S.CANCELLED),
        Transition(_S.IN_PROGRESS, _E.HEARTBEAT_TIMEOUT, _S.ORPHANED),
        Transition(_S.IN_PROGRESS, _E.CRASH, _S.ORPHANED),
        Transition(_S.ORPHANED, _E.PARTIAL_WORK_MERGED, _S.DONE),
        Transition(_S.ORPHANED, _E.UNRECOVERABLE, _S.FAILED),
        Transition(_S.ORPHANED, _E.REQUEUED_FOR_RETRY, _S.OPEN),
        Transition(_S.ORPHANED, _E.MANUAL_CANCEL, _S.CANCELLED),
        Transition(_S.BLOCKED, _E.DEPENDENCY_RESOLVED, _S.OPEN),
        Transition(_S.BLOCKED, _E.MANUAL_CANCEL, _S.CANCELLED),
        Transition(_S.WAITING_FOR_SUBTASKS, _E.ALL_SUBTASKS_COMPLETED, _S.DONE),
        Transition(_S.WAITING_FOR_SUBTASKS, _E.SUBTASK_TIMEOUT_ESCALATION, _S.BLOCKED),
        Transition(_S.WAITING_FOR_SUBTASKS, _E.MANUAL_CANCEL, _S.CANCELLED),
        Transition(_S.DONE, _E.JANITOR_VERIFIED_AND_MERGED, _S.CLOSED),
        Transition(_S.DONE, _E.VERIFICATION_REJECTED, _S.FAILED),
        Transition(_S.DONE, _E.APPROVAL_REQUESTED, _S.PENDING_APPROVAL),
        Transition(_S.DONE, _E.CHANGES_REQUESTED, _S.OPEN),
        Transition(_S.DONE, _E.MANUAL_CANCEL, _S.CANCELLED),
        Transition(_S.PENDING_APPROVAL, _E.APPROVAL_GRANTED, _S.DONE),
        Transition(_S.PENDING_APPROVAL, _E.APPROVAL_REJECTED, _S.FAILED),
        Transition(_S.PENDING_APPROVAL, _E.CHANGES_REQUESTED, _S.OPEN),
        Transition(_S.PENDING_APPROVAL, _E.MANUAL_CANCEL, _S.CANCELLED),
        Transition(_S.FAILED, _E.RETRY, _S.OPEN),
        Transition(_S.FAILED, _E.MANUAL_CANCEL, _S.CANCELLED),
    ),
)

# Somebody has the task: an agent of ours, or a worker through the API.
AT_WORK = frozenset({_S.CLAIMED, _S.IN_PROGRESS})
# Nothing more becomes of it.
OVER = frozenset({_S.CLOSED, _S.CANCELLED})

# The backlog's folder in which a task's file stands. A task that failed with attempts left passes through FAILED on
# its way to OPEN.
FOLDER_OF: dict[TaskState, str] = {
    _S.PLANNED: "open",
    _S.OPEN: "open",
    _S.BLOCKED: "open",
    _S.WAITING_FOR_SUBTASKS: "open",
    _S.CLAIMED: "claimed",
    _S.IN_PROGRESS: "claimed",
    _S.ORPHANED: "claimed",
    _S.DONE: "claimed",
    _S.PENDING_APPROVAL: "claimed",
    _S.CLOSED: "closed",
    _S.CANCELLED: "closed",
    _S.FAILED: "failed",
}


# What a person meant to do with the task, for the events that people cause.
_VERBS = {
    _E.APPROVED: "approved",
    _E.APPROVAL_GRANTED: "approved",
    _E.REJECTED: "rejected",
    _E.APPROVAL_REJECTED: "rejected",
    _E.CHANGES_REQUESTED: "sent back",
    _E.MANUAL_CANCEL: "cancelled",
    _E.RETRY: "tried again",
    _E.FORCE_REASSIGN: "given to another agent",
    _E.UNCLAIM: "given back",
    _E.AGENT_CLAIMS_TASK: "claimed",
    _E.AGENT_STARTS_WORK: "started",
    _E.AGENT_REPORTS_SUCCESS: "reported as done",
    _E.AGENT_REPORTS_FAILURE: "reported as failed",
}


def verb_of(event: str) -> str:
    """The participle for an event, for sentences; `moved on` for an unknown one."""
    return next((verb for each, verb in _VERBS.items() if each == event), "moved on")


def cancel_event(state: TaskState) -> TaskEvent | None:
    """The event that cancels a task in this state; None where it cannot be cancelled."""
    legal = TASK.legal(state)
    return next((event for event in (_E.MANUAL_CANCEL, _E.REJECTED) if legal.get(event) is _S.CANCELLED), None)
