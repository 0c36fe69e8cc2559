"""The state machine of an attempt: 10 states, run through once per attempt.

A turn's own record is `attempt_records.py:TurnLine`, written by `AttemptWriter.turn`.

Two events have names that surprise, and are kept as the original diagram has them: COMPACTING returns to RUNNING on
`verify_requested`, and VERIFYING on `compact_needed`.
"""

from __future__ import annotations

from enum import StrEnum

from holdfast.domain.fsm import Machine, Transition


class TurnState(StrEnum):
    IDLE = "IDLE"
    CLAIMING = "CLAIMING"
    SPAWNING = "SPAWNING"
    RUNNING = "RUNNING"
    TOOL_USE = "TOOL_USE"
    COMPACTING = "COMPACTING"
    VERIFYING = "VERIFYING"
    COMPLETING = "COMPLETING"
    FAILED = "FAILED"
    REAPED = "REAPED"


class TurnEvent(StrEnum):
    TASK_CLAIMED = "task_claimed"
    AGENT_SPAWNED = "agent_spawned"
    TOOL_STARTED = "tool_started"
    TOOL_COMPLETED = "tool_completed"
    COMPACT_NEEDED = "compact_needed"
    VERIFY_REQUESTED = "verify_requested"
    TASK_COMPLETED = "task_completed"
    TASK_FAILED = "task_failed"
    AGENT_REAPED = "agent_reaped"


_S, _E = TurnState, TurnEvent

TURN: Machine[TurnState, TurnEvent] = Machine(
    name="turn",
    states=TurnState,
    initial={_S.IDLE: ""},
    transitions=(
        Transition(_S.IDLE, _E.TASK_CLAIMED, _S.CLAIMING),
        Transition(_S.CLAIMING, _E.AGENT_SPAWNED, _S.SPAWNING),
        Transition(_S.CLAIMING, _E.TASK_FAILED, _S.FAILED),
        Transition(_S.SPAWNING, _E.AGENT_SPAWNED, _S.RUNNING),
        Transition(_S.SPAWNING, _E.TASK_FAILED, _S.FAILED),
        Transition(_S.RUNNING, _E.TOOL_STARTED, _S.TOOL_USE),
        Transition(_S.RUNNING, _E.COMPACT_NEEDED, _S.COMPACTING),
        Transition(_S.RUNNING, _E.VERIFY_REQUESTED, _S.VERIFYING),
        Transition(_S.RUNNING, _E.TASK_FAILED, _S.FAILED),
        Transition(_S.TOOL_USE, _E.TOOL_COMPLETED, _S.RUNNING),
        Transition(_S.TOOL_USE, _E.TASK_FAILED, _S.FAILED),
        Transition(_S.COMPACTING, _E.VERIFY_REQUESTED, _S.RUNNING),
        Transition(_S.COMPACTING, _E.TASK_FAILED, _S.FAILED),
        Transition(_S.VERIFYING, _E.TASK_COMPLETED, _S.COMPLETING),
        Transition(_S.VERIFYING, _E.COMPACT_NEEDED, _S.RUNNING),
        Transition(_S.VERIFYING, _E.TASK_FAILED, _S.FAILED),
        Transition(_S.COMPLETING, _E.AGENT_REAPED, _S.REAPED),
        Transition(_S.FAILED, _E.AGENT_REAPED, _S.REAPED),
    ),
)
