"""Compares the messages that the journal has as queued with those that have left: each once, and none unasked."""

from __future__ import annotations

from collections import Counter

from holdfast.checks.report import RESTORE, RUN, Draft
from holdfast.domain.entries import EntryLike
from holdfast.domain.state import State

_GONE = ("sent", "dropped")


class RecordedMessages:
    """Collects the entries about messages, in order."""

    def __init__(self) -> None:
        self.queued: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        self.given_up: Counter[str] = Counter()

    def add(self, entry: EntryLike) -> None:
        match entry.decision_type:
            case "message_queued":
                self.queued[str(entry.inputs.get("idempotency_key"))] += 1
            case "task_publish_confirmed":
                self.left[str(entry.inputs.get("key"))] += 1
            case "message_flagged" if entry.inputs.get("how") in _GONE:
                self.given_up[str(entry.inputs.get("key"))] += 1


def outbox(state: State, recorded: RecordedMessages) -> Draft:
    """Each message was queued once, and has left once, or was given up, or is in the outbox."""
    waiting = state.outbox
    parked = [each for each in waiting.values() if each.parked]
    draft = Draft("outbox", queued=recorded.queued.total(), left=recorded.left.total(), waiting=len(waiting))
    for key, count in recorded.queued.items():
        if count > 1:
            draft.findings.append(f"the message {key} was queued {count} times; {RESTORE}")
        ends = recorded.left[key] + recorded.given_up[key] + (key in waiting)
        if ends != 1:
            draft.findings.append(f"the message {key} has {ends} ends, and must have one; {RESTORE}")
    for key in (*recorded.left, *waiting):
        if key not in recorded.queued:
            draft.findings.append(f"the message {key} was never queued; {RESTORE}")
    for each in parked:
        draft.notes.append(f"the message {each.key} waits for you: {each.parked}; `holdfast outbox` shows it")
    if due := len(waiting) - len(parked):
        draft.notes.append(f"{due} of them are still to be sent; {RUN}")
    return draft
