"""The outbox as rows: the messages that have not left, why, and what to type."""

from __future__ import annotations

import msgspec

from holdfast.domain.messages.outbox_records import Outgoing, is_ready
from holdfast.domain.state import State
from holdfast.domain.wording import moment, plural

MESSAGE_STATES = ("due", "waits", "parked")


class MessageRow(msgspec.Struct, frozen=True, kw_only=True):
    """`state`: `due`, `waits` for its time or for another message, or `parked`, until a person decides."""

    key: str
    channel: str
    task: str
    state: str
    why: str
    next_step: str
    tries: int
    queued_at: float
    not_before: float = 0.0


def message_rows(state: State, now: float) -> list[MessageRow]:
    """The oldest first."""
    outbox = state.outbox.copy()
    return [_row(each, is_ready(outbox, each), now) for each in outbox.values()]


def _row(message: Outgoing, ready: bool, now: float) -> MessageRow:
    key, why, step = message.key, message.reason, ""
    if message.parked:
        named, why = "parked", message.parked
        step = f"`holdfast outbox --retry {key}`, `--sent {key}` or `--drop {key}`"
    elif not ready:
        named, why = "waits", f"{message.after} has to leave first"
    elif message.not_before > now:
        named, why = "waits", f"until {moment(message.not_before)}: {message.reason}"
    else:
        named, step = "due", "`holdfast run` sends it"
    return MessageRow(
        key=key,
        channel=message.channel,
        task=message.task,
        state=named,
        why=why,
        next_step=step,
        tries=message.tries,
        queued_at=message.queued_at,
        not_before=message.not_before,
    )


def outbox_words(rows: list[MessageRow]) -> str:
    """The outbox in a line; empty where nothing waits in it."""
    if not rows:
        return ""
    parked = sum(row.state == "parked" for row in rows)
    asks = f", {parked} of them for you: `holdfast outbox`" if parked else ""
    return f"{plural(len(rows), 'message waits', 'messages wait')}{asks}"
