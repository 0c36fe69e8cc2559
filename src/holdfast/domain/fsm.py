"""State machines as tables: what may move where, and the record of each move.

A machine is a list of (source, event, target). `move` takes one step and returns it as a `LifecycleEvent`; whatever the
table does not name raises `IllegalTransition`, which carries a `RefusedMove` for the caller to write down. States and
events are string enumerations, so that a journal line holds words and a decoder gives back members:
`msgspec.json.decode(line, type=LifecycleEvent[TaskState, TaskEvent])`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

import msgspec

from holdfast.errors import IllegalTransition

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


class Transition(NamedTuple, Generic[S, E]):
    source: S
    event: E
    target: S


@dataclass(frozen=True)
class Machine(Generic[S, E]):
    name: str
    states: type[S]
    # Each state that a subject may begin in, with the words that say how.
    initial: Mapping[S, str]
    transitions: tuple[Transition[S, E], ...]
    _moves: dict[S, dict[E, S]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        moves: dict[S, dict[E, S]] = {state: {} for state in self.states}
        for source, event, target in self.transitions:
            if event in moves[source]:
                raise ValueError(f"{self.name}: {source} has two moves on {event}")
            moves[source][event] = target
        object.__setattr__(self, "_moves", moves)

    @property
    def terminal(self) -> frozenset[S]:
        """The states that nothing leaves."""
        return frozenset(state for state, moves in self._moves.items() if not moves)

    def legal(self, state: S) -> dict[E, S]:
        return dict(self._moves.get(state, {}))

    def next(self, state: S, event: E) -> S:
        try:
            return self._moves[state][event]
        except KeyError:
            raise self._illegal(f"A {self.name}", state, event, None) from None

    def refuse(self, refusal: RefusedMove[S, E]) -> IllegalTransition:
        """The error for a move of a named subject."""
        return self._illegal(f"The {self.name} {refusal.subject}", refusal.source, refusal.event, refusal)

    def _illegal(self, what: str, state: S, event: E, refusal: RefusedMove[S, E] | None) -> IllegalTransition:
        legal = self.legal(state)
        moves = ", ".join(f"{event} → {target}" for event, target in legal.items()) or "none"
        return IllegalTransition(
            what=what, machine=self.name, state=state, event=event, legal=legal, moves=moves, refusal=refusal
        )

    def mermaid(self) -> str:
        """The table as a Mermaid state diagram; events that lead the same way share an arrow."""
        arrows: dict[tuple[S, S], list[str]] = {}
        for source, event, target in self.transitions:
            arrows.setdefault((source, target), []).append(event)
        begin = [f"[*] --> {state} : {how}" if how else f"[*] --> {state}" for state, how in self.initial.items()]
        steps = [f"{source} --> {target} : {' / '.join(events)}" for (source, target), events in arrows.items()]
        end = [f"{state} --> [*]" for state in self.states if state in self.terminal]
        return "\n    ".join(["stateDiagram-v2", *begin, *steps, *end]) + "\n"


class AbortReason(StrEnum):
    """Why work was cut short or thrown back."""

    CANCELLED = "cancelled"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"
    DEFINITION_DELETED = "definition_deleted"
    DEPENDENCY_FAILED = "dependency_failed"
    PARENT_CANCELLED = "parent_cancelled"
    SUBTASK_TIMEOUT = "subtask_timeout"
    # The limits that a runner keeps.
    BUDGET_EXHAUSTED = "budget_exhausted"
    TOKENS_EXHAUSTED = "tokens_exhausted"
    TURNS_EXHAUSTED = "turns_exhausted"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    # What befalls a process.
    NOT_STARTED = "not_started"
    CRASHED = "crashed"
    HEARTBEAT_LOST = "heartbeat_lost"
    CONVERSATION_LOST = "conversation_lost"
    RATE_LIMITED = "rate_limited"
    UNREACHABLE = "unreachable"
    CIRCUIT_OPEN = "circuit_open"
    WORKTREE_LOST = "worktree_lost"
    RECLAIMED = "reclaimed"
    ENVIRONMENT = "environment"
    SHUTDOWN = "shutdown"
    # What becomes of the work.
    AGENT_FAILED = "agent_failed"
    AGENT_REFUSED = "agent_refused"
    AUTH_MISSING = "auth_missing"
    QUOTA_EXHAUSTED = "quota_exhausted"
    VERIFICATION_FAILED = "verification_failed"
    LANDING_CONFLICT = "landing_conflict"
    RESUMES_EXHAUSTED = "resumes_exhausted"
    PARKED = "parked"


_ABORTS: frozenset[str] = frozenset(AbortReason)


class TransitionReason(StrEnum):
    """Why a subject moved: every abort reason by the same word, and the reasons of work that goes on."""

    SCHEDULED = "scheduled"
    REQUESTED_BY_PERSON = "requested_by_person"
    RESOLVED_BY_PERSON = "resolved_by_person"
    AGENT_REPORTED = "agent_reported"
    APPROVAL_REQUIRED = "approval_required"
    APPROVED = "approved"
    DEPENDENCY_FOUND = "dependency_found"
    DEPENDENCY_MET = "dependency_met"
    SUBTASKS_COMPLETED = "subtasks_completed"
    CLAIM_RELEASED = "claim_released"
    ATTEMPTS_LEFT = "attempts_left"
    RESUMED = "resumed"
    SALVAGED = "salvaged"
    LANDED = "landed"
    # One enumeration for a record's field, because a decoder cannot tell two string enumerations apart.
    CANCELLED = AbortReason.CANCELLED
    REJECTED = AbortReason.REJECTED
    SUPERSEDED = AbortReason.SUPERSEDED
    DEFINITION_DELETED = AbortReason.DEFINITION_DELETED
    DEPENDENCY_FAILED = AbortReason.DEPENDENCY_FAILED
    PARENT_CANCELLED = AbortReason.PARENT_CANCELLED
    SUBTASK_TIMEOUT = AbortReason.SUBTASK_TIMEOUT
    BUDGET_EXHAUSTED = AbortReason.BUDGET_EXHAUSTED
    TOKENS_EXHAUSTED = AbortReason.TOKENS_EXHAUSTED
    TURNS_EXHAUSTED = AbortReason.TURNS_EXHAUSTED
    TIMEOUT = AbortReason.TIMEOUT
    STALLED = AbortReason.STALLED
    NOT_STARTED = AbortReason.NOT_STARTED
    CRASHED = AbortReason.CRASHED
    HEARTBEAT_LOST = AbortReason.HEARTBEAT_LOST
    CONVERSATION_LOST = AbortReason.CONVERSATION_LOST
    RATE_LIMITED = AbortReason.RATE_LIMITED
    UNREACHABLE = AbortReason.UNREACHABLE
    CIRCUIT_OPEN = AbortReason.CIRCUIT_OPEN
    WORKTREE_LOST = AbortReason.WORKTREE_LOST
    RECLAIMED = AbortReason.RECLAIMED
    ENVIRONMENT = AbortReason.ENVIRONMENT
    SHUTDOWN = AbortReason.SHUTDOWN
    AGENT_FAILED = AbortReason.AGENT_FAILED
    AGENT_REFUSED = AbortReason.AGENT_REFUSED
    AUTH_MISSING = AbortReason.AUTH_MISSING
    QUOTA_EXHAUSTED = AbortReason.QUOTA_EXHAUSTED
    VERIFICATION_FAILED = AbortReason.VERIFICATION_FAILED
    LANDING_CONFLICT = AbortReason.LANDING_CONFLICT
    RESUMES_EXHAUSTED = AbortReason.RESUMES_EXHAUSTED
    PARKED = AbortReason.PARKED

    @property
    def aborts(self) -> bool:
        return self.value in _ABORTS


class LifecycleEvent(msgspec.Struct, Generic[S, E], frozen=True):
    """One move of one subject: a task, an agent or an attempt's turns. `at` is Unix seconds."""

    machine: str
    subject: str
    source: S
    event: E
    target: S
    reason: TransitionReason
    actor: str
    at: float


class RefusedMove(msgspec.Struct, Generic[S, E], frozen=True):
    """A move that was asked for and is not in the table: the subject stays where it was."""

    machine: str
    subject: str
    source: S
    event: E
    reason: TransitionReason
    actor: str
    at: float


def move(
    machine: Machine[S, E],
    subject: str,
    state: S,
    event: E,
    reason: TransitionReason | AbortReason,
    actor: str,
    at: float,
) -> LifecycleEvent[S, E]:
    """One step by the table. `IllegalTransition.refusal` is the record of a step that the table does not have."""
    why = TransitionReason(reason)
    target = machine.legal(state).get(event)
    if target is None:
        raise machine.refuse(RefusedMove(machine.name, subject, state, event, why, actor, at))
    return LifecycleEvent(machine.name, subject, state, event, target, why, actor, at)
