"""The effect `publish`: a message of the outbox leaves by the publisher of its channel.

A try may end without anybody knowing whether the message left. Where its receiver can be asked, the next try asks first
and sends only what is not there: so recovery can call such a try failed without the network. Where it cannot be asked,
the message is parked. A message is never sent blindly twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.crashpoints import point
from holdfast.domain.messages.outbox_records import Outbox, Outgoing
from holdfast.errors import PublishFailed, PublishRefused, PublishUnclear
from holdfast.ports import DidNotHappen, InDoubt, Publisher, Reconciled
from holdfast.storage.journal.intents import OpenIntent

PUBLISH_POINTS = ("publish.asked", "publish.sent")
_ASKED_FIRST = "it was interrupted; its receiver is asked before it is sent again"


class Publish:
    """`publishers` by channel, looked up for each message: a plugin may add one while nothing is being sent."""

    def __init__(self, publishers: Mapping[str, Publisher], outbox: Callable[[], Outbox]) -> None:
        self.publishers = publishers
        self._outbox = outbox
        # Messages whose last try ended with the certainty that nothing left.
        self._kept: set[str] = set()

    def perform(self, intent: OpenIntent) -> dict[str, Any]:
        message = self._message(intent)
        publisher = self.publishers.get(message.channel)
        if publisher is None:
            self._kept.add(message.key)
            raise PublishFailed(key=message.key, reason=f"there is no publisher for the channel {message.channel!r}")
        self._kept.discard(message.key)
        try:
            if message.tries > 1 and publisher.can_be_asked:
                found = publisher.find(message)
                point("publish.asked")
                if found is not None:
                    return {**found, "found": True}
            result = publisher.send(message)
        except (PublishFailed, PublishRefused):
            self._kept.add(message.key)
            raise
        point("publish.sent")
        return result

    def reconcile(self, intent: OpenIntent) -> Reconciled:
        """Asks nobody: a receiver that cannot be reached must hold up no start."""
        key = intent.entry.inputs["key"]
        if key in self._kept:
            return DidNotHappen()
        publisher = self.publishers.get(intent.entry.inputs.get("channel", ""))
        if publisher is None or publisher.can_be_asked:
            return DidNotHappen(_ASKED_FIRST)
        return InDoubt("sending it was cut off, and its receiver cannot be asked whether it has it")

    def _message(self, intent: OpenIntent) -> Outgoing:
        key = intent.entry.inputs["key"]
        found = self._outbox().get(key)
        if found is None:
            raise PublishUnclear(key=key, reason="it is not in the outbox any more")
        return found
