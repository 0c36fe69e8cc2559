"""What a task keeps of messages, and of the person who has taken it."""

from __future__ import annotations

import msgspec

from holdfast.domain.conversations.conversation_entries import TaskTaken


class Message(msgspec.Struct, frozen=True, gc=False):
    """A person's message to the agent that no start is known to have seen."""

    id: str
    text: str
    by: str = ""
    at: float = 0.0


# Of a takeover the task keeps the entry itself.
Taken = TaskTaken
