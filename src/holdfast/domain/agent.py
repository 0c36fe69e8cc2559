"""The agent's life: a conversation with a CLI in a worktree.

`idle` means that its process has ended and the conversation can be resumed: nothing runs and nothing is held but the
history. `dead` is final.
"""

from __future__ import annotations

from enum import StrEnum

from holdfast.domain.fsm import Machine, Transition


class AgentState(StrEnum):
    STARTING = "starting"
    WORKING = "working"
    IDLE = "idle"
    DEAD = "dead"


class AgentEvent(StrEnum):
    PROCESS_CONFIRMED_ALIVE = "process_confirmed_alive"
    SPAWN_FAILURE = "spawn_failure"
    FAST_EXIT = "fast_exit"
    TASK_COMPLETED = "task_completed"
    CRASH = "crash"
    KILL = "kill"
    TIMEOUT = "timeout"
    CIRCUIT_BREAK = "circuit_break"
    NEW_TASK_ASSIGNED = "new_task_assigned"
    IDLE_RECYCLED = "idle_recycled"


_S, _E = AgentState, AgentEvent

AGENT: Machine[AgentState, AgentEvent] = Machine(
    name="agent",
    states=AgentState,
    initial={_S.STARTING: "spawn"},
    transitions=(
        Transition(_S.STARTING, _E.PROCESS_CONFIRMED_ALIVE, _S.WORKING),
        Transition(_S.STARTING, _E.SPAWN_FAILURE, _S.DEAD),
        Transition(_S.STARTING, _E.FAST_EXIT, _S.DEAD),
        Transition(_S.WORKING, _E.TASK_COMPLETED, _S.IDLE),
        Transition(_S.WORKING, _E.CRASH, _S.DEAD),
        Transition(_S.WORKING, _E.KILL, _S.DEAD),
        Transition(_S.WORKING, _E.TIMEOUT, _S.DEAD),
        Transition(_S.WORKING, _E.CIRCUIT_BREAK, _S.DEAD),
        Transition(_S.IDLE, _E.NEW_TASK_ASSIGNED, _S.WORKING),
        Transition(_S.IDLE, _E.IDLE_RECYCLED, _S.DEAD),
    ),
)
