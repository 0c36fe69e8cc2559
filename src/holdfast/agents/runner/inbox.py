"""What a person tells the agent while it works: `inbox.json`, read at the end of each turn.

An agent that waits in a hook gets it as the hook's output. Any other one is ended there, before it begins another turn:
its next start resumes the conversation, with the message in the prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.agents.runner.attempt_writer import AttemptWriter
from holdfast.agents.runner.conversation import Conversation
from holdfast.agents.runner.limits import Stop
from holdfast.domain.attempt_records import Ending, Order
from holdfast.domain.conversations.conversation_records import Message
from holdfast.layout import Attempt
from holdfast.storage.records import attempt_folder

if TYPE_CHECKING:
    from holdfast.ports import HookedStream


class Inbox:
    """The messages for one start. Those that its prompt has are not new."""

    def __init__(self, files: Attempt, order: Order, writer: AttemptWriter) -> None:
        self._files, self._start, self._writer = files, order.start, writer
        self._known = {message.id for message in order.told}
        self._has_hook = order.launch.has_hook

    def answer(self, stream: HookedStream, given: bytes, talk: Conversation) -> str:
        """The output of the hook that ended the turn; empty where there is nothing new."""
        new = self._new()
        if not new:
            return ""
        self._writer.give(talk, new)
        self._known |= {message.id for message in new}
        told = "\n\n".join(message.text for message in new)
        return stream.answer(given, f"A person tells you, while you work:\n\n{told}")

    def interruption(self) -> Stop | None:
        """Ends an agent that has no hook, where there is something new."""
        if self._has_hook or not self._new():
            return None
        return Stop(Ending.TOLD, "The agent was ended after its turn, because a person has told it something.")

    def _new(self) -> list[Message]:
        found = attempt_folder.read_inbox(self._files)
        waiting = found.messages if found is not None and found.start == self._start else ()
        return [message for message in waiting if message.id not in self._known]
