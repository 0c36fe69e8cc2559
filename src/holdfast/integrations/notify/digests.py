"""Digests: the parts wait in the outbox until their window is over; the first that is due gathers all of them.

To send a part is to queue the digest. That is one entry, which queues it and takes every part out of the outbox: a
crash leaves either the parts or the digest, never both, and never neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.domain.messages.outbox_records import MessageQueued, Outgoing
from holdfast.integrations.notify.rules import DIGEST
from holdfast.integrations.outbox.sender import queue_messages
from holdfast.ports import Ledger

PARTS_MAX, PART_CHARS_MAX = 50, 400


class DigestPublisher:
    """Sends nothing itself: what it queues leaves by the channel that the part names."""

    # The part is still in the outbox where no digest has it.
    can_be_asked = True

    def __init__(self, ledger: Ledger, clock: Callable[[], float], project: str) -> None:
        self._ledger, self._clock, self._project = ledger, clock, project

    def find(self, message: Outgoing) -> dict[str, Any] | None:
        return None

    def send(self, message: Outgoing) -> dict[str, Any]:
        now = self._clock()
        parts = [each for each in self._ledger.state.outbox.copy().values() if _belongs(each, message, now)]
        gathered = digest_of(message, parts, self._project)
        queue_messages(self._ledger, [gathered], actor="notify")
        return {"digest": gathered.idempotency_key, "parts": len(parts)}


def digest_of(first: Outgoing, parts: list[Outgoing], project: str) -> MessageQueued:
    """One message that says what the parts say; very many are counted."""
    more = f"… and {len(parts) - PARTS_MAX} more" if len(parts) > PARTS_MAX else ""
    content = {
        "rule": first.content["rule"],
        "kind": first.content["kind"] if len(parts) == 1 else "digest",
        "title": f"{project}: {len(parts)} events" if len(parts) > 1 else first.content["title"],
        "body": more,
        "parts": [_part(each) for each in parts[:PARTS_MAX]],
        "place": first.content["place"] if len(parts) == 1 else "#/board",
        "to": first.content["to"],
    }
    return MessageQueued(
        idempotency_key=f"{first.key}:digest",
        channel=first.content["channel"],
        content=content,
        replaces=[each.key for each in parts],
    )


def _belongs(part: Outgoing, first: Outgoing, now: float) -> bool:
    is_same = all(part.content.get(name) == first.content.get(name) for name in ("rule", "to", "channel"))
    # Not by `not_before`: one whose try was cut off is put off for a moment, and belongs to the others all the same.
    is_due = float(part.content.get("due", 0.0)) <= now and not part.parked
    return part.key == first.key or (part.channel == DIGEST and is_same and is_due)


def _part(part: Outgoing) -> dict[str, str]:
    told = {name: str(part.content.get(name, "")) for name in ("title", "body", "place")}
    return {**told, "body": told["body"][:PART_CHARS_MAX]}
