"""Decisions about messages in the outbox: sent again, dropped, or taken for sent."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.decisions.context import Answer, DecisionContext
from holdfast.domain.messages.outbox_records import MessageFlagged
from holdfast.errors import MessageUnknown

MessageDecision = Literal["retry", "sent", "dropped"]


class MessageChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`how`: `retry` sends it again at once, `sent` says that it has left, `dropped` gives it up."""

    key: str
    how: MessageDecision


def decide_message(decision: DecisionContext, asked: MessageChoice) -> Answer:
    if not decision.has_begun():
        if asked.key not in decision.ledger.state.outbox:
            raise MessageUnknown(key=asked.key)
        flagged = MessageFlagged(key=asked.key, how=asked.how, reason=f"{decision.by} said so")
        decision.append([decision.record("message_flagged", 0, msgspec.to_builtins(flagged))])
    return decision.answer(key=asked.key, how=asked.how)
