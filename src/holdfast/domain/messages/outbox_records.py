"""The outbox: every message that was queued and has not left yet.

A message is queued once under its key, for good. It leaves by the effect `publish`, under an intent: confirmed, it is
out of the outbox; failed, it is sent again later, and its receiver is asked by the key first; where nobody can know
whether it left, the message is parked, and never the task that it is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec
from msgspec.structs import replace

# The pause behind a failed try; each next one is twice as long.
PAUSE_S, PAUSE_S_MAX = 5.0, 3600.0


class MessageQueued(msgspec.Struct, frozen=True, kw_only=True):
    """`idempotency_key` is the message's key: by it the receiver is asked whether it has the message.

    `channel` names the publisher. `task`: the task that it is about, or empty. `after`: the key of a message that has
    to leave first. `content` is what the publisher needs, all of it: a message is sent days later as it was queued.
    """

    idempotency_key: str
    channel: str
    task: str = ""
    after: str = ""
    content: dict[str, Any] = {}


class MessageFlagged(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a message in the outbox. `parked`: a person must decide; `put_off`: not before `until`; `retry`:
    it is sent again at once; `sent` and `dropped`: a person said so, and it is out of the outbox."""

    key: str
    how: Literal["parked", "put_off", "retry", "sent", "dropped"]
    reason: str = ""
    until: float = 0.0


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A message in the outbox. `parked`: why a person must decide about it; `reason`: why its last try failed."""

    key: str
    channel: str
    task: str = ""
    after: str = ""
    content: dict[str, Any] = {}
    queued_at: float = 0.0
    tries: int = 0
    not_before: float = 0.0
    reason: str = ""
    parked: str = ""


Outbox = dict[str, Outgoing]


def queue(outbox: Outbox, queued: MessageQueued, moment: float) -> str:
    """Adds a message; returns why it cannot be added, or nothing."""
    key = queued.idempotency_key
    if key in outbox:
        return f"the message {key!r} was queued before"
    outbox[key] = Outgoing(
        key=key,
        channel=queued.channel,
        task=queued.task,
        after=queued.after,
        content=queued.content,
        queued_at=moment,
    )
    return ""


def flag(outbox: Outbox, flagged: MessageFlagged) -> str:
    """Applies a decision; returns why it cannot be, or nothing."""
    if (found := outbox.get(flagged.key)) is None:
        return f"the message {flagged.key!r} is not in the outbox"
    match flagged.how:
        case "sent" | "dropped":
            del outbox[flagged.key]
        case "parked":
            outbox[flagged.key] = replace(found, parked=flagged.reason or "a person has to decide")
        case "put_off" | "retry":
            outbox[flagged.key] = replace(found, parked="", not_before=flagged.until, reason=flagged.reason)
    return ""


class Begun(Protocol):
    """An intent to publish."""

    @property
    def key(self) -> str: ...


def begin(outbox: Outbox, intended: Begun) -> str:
    """Counts a try; returns why there can be none, or nothing."""
    if (found := outbox.get(intended.key)) is None:
        return f"the message {intended.key!r} is not in the outbox"
    outbox[intended.key] = replace(found, tries=found.tries + 1)
    return ""


def close(outbox: Outbox, key: str, how: str, reason: str, moment: float) -> None:
    """What the outcome of `publish` makes of the message."""
    if (found := outbox.get(key)) is None:
        return
    if how == "confirmed":
        del outbox[key]
    elif how == "parked":
        outbox[key] = replace(found, parked=reason or "nobody can know whether it left")
    else:
        outbox[key] = replace(found, not_before=moment + pause_s(found.tries), reason=reason)


def pause_s(tries: int) -> float:
    return min(PAUSE_S * 2.0 ** min(tries - 1, 20), PAUSE_S_MAX)


def next_due(outbox: Mapping[str, Outgoing], now: float) -> Outgoing | None:
    """The message to send now: the one queued first of those that wait for nothing."""
    return next((each for each in outbox.values() if is_ready(outbox, each) and each.not_before <= now), None)


def next_moment(outbox: Mapping[str, Outgoing]) -> float | None:
    """When a message will be due; None where none becomes due by itself."""
    return min((each.not_before for each in outbox.values() if is_ready(outbox, each)), default=None)


def is_ready(outbox: Mapping[str, Outgoing], message: Outgoing) -> bool:
    """Whether it waits for nothing but its time. One behind a message that was dropped is not held back for ever."""
    return not message.parked and message.after not in outbox
