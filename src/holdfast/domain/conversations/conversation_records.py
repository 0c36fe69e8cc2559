"""What a task keeps of messages, and of the person who has taken it."""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, gc=False):
    """A person's message to the agent that no start is known to have seen."""

    id: str
    text: str
    by: str = ""
    at: float = 0.0


class Taken(msgspec.Struct, frozen=True, gc=False):
    """A person's hold on the task, and the process that has it; pid 0 where there is none. `park`: see TaskTaken."""

    id: str
    by: str = ""
    pid: int = 0
    start_ticks: int = 0
    boot_id: str = ""
    host: str = ""
    park: bool = False
