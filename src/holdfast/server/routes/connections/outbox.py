"""The outbox: messages that have not left yet, and decisions about them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.clock import wall
from holdfast.decisions.connections.outbox import MessageDecision
from holdfast.decisions.context import DecisionContext
from holdfast.decisions.mailbox import decide
from holdfast.server.api_state import Api
from holdfast.server.operations import Ask, Operation
from holdfast.views.connections.outbox import MessageRow, message_rows


class MessageList(msgspec.Struct, frozen=True):
    messages: list[MessageRow]


class MessageDecided(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`how`: `retry` sends it again at once, `sent` says that it has left, `dropped` gives it up."""

    key: Annotated[str, Meta(min_length=1, max_length=1000)]
    how: MessageDecision


def list_messages(api: Api, ask: Ask) -> MessageList:
    return MessageList(message_rows(api.context.ledger.state, wall()))


def outbox_message(decision: DecisionContext, ask: Ask) -> MessageDecided:
    decide(decision, "outbox", msgspec.structs.asdict(ask.body))
    return MessageDecided(ask.body.key, ask.body.how)


OPERATIONS = [
    Operation("GET", "/outbox", "list_messages", "Messages that have not left yet.", list_messages, answer=MessageList,
              tag="messages"),
    Operation("POST", "/outbox", "outbox_message", "Decide about a message that has not left.", outbox_message,
              answer=MessageDecided, body=MessageDecided, right="operate", lane="loop", tag="messages",
              problems=(422,)),
]  # fmt: skip
