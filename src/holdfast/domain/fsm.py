"""State machines as tables: what may move where, and why.

A machine is a list of (source, event, target). Whatever the table does not name raises `IllegalTransition`. The record
of a move is the journal's entry (`TaskMoved` in entries.py): its type names the target, and it carries event and
reason. States and events are string enumerations, so that a journal line holds words and a decoder gives back members.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

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
                raise ValueError(f"{self.name}: {source!s} has two moves on {event}")
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
            legal = self.legal(state)
            moves = ", ".join(f"{event!s} → {target!s}" for event, target in legal.items()) or "none"
            raise IllegalTransition(
                what=f"A {self.name}", machine=self.name, state=state, event=event, legal=legal, moves=moves
            ) from None

    def mermaid(self) -> str:
        """The table as a Mermaid state diagram; events that lead the same way share an arrow."""
        arrows: dict[tuple[S, S], list[str]] = {}
        for source, event, target in self.transitions:
            arrows.setdefault((source, target), []).append(event)
        begin = [f"[*] --> {state!s} : {how}" if how else f"[*] --> {state!s}" for state, how in self.initial.items()]
        steps = [f"{source!s} --> {target!s} : {' / '.join(events)}" for (source, target), events in arrows.items()]
        end = [f"{state!s} --> [*]" for state in self.states if state in self.terminal]
        return "\n    ".join(["stateDiagram-v2", *begin, *steps, *end]) + "\n"


class Reason(StrEnum):
    """The reasons for a move of a task."""

    # Work goes on.
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
    TOLD = "told"
    SALVAGED = "salvaged"
    LANDED = "landed"
    PULL_REQUEST = "pull_request"
    PULL_REQUEST_MERGED = "pull_request_merged"
    PULL_REQUEST_OUTDATED = "pull_request_outdated"
    PULL_REQUEST_CHANGES = "pull_request_changes"
    # Work is cut short or thrown back.
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    CHANGES_REQUESTED = "changes_requested"
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
    OVER_LIMIT = "over_limit"
    SESSION_FULL = "session_full"
    # What befalls a process.
    NOT_STARTED = "not_started"
    CRASHED = "crashed"
    HEARTBEAT_LOST = "heartbeat_lost"
    CONVERSATION_LOST = "conversation_lost"
    RATE_LIMITED = "rate_limited"
    UNREACHABLE = "unreachable"
    CIRCUIT_OPEN = "circuit_open"
    WORKTREE_LOST = "worktree_lost"
    ENVIRONMENT = "environment"
    SETUP_FAILED = "setup_failed"
    SHUTDOWN = "shutdown"
    ASKED = "asked"
    # What becomes of the work.
    AGENT_FAILED = "agent_failed"
    AGENT_REFUSED = "agent_refused"
    AUTH_MISSING = "auth_missing"
    QUOTA_EXHAUSTED = "quota_exhausted"
    VERIFICATION_FAILED = "verification_failed"
    LANDING_CONFLICT = "landing_conflict"
    RESUMES_EXHAUSTED = "resumes_exhausted"
    PARKED = "parked"
