"""The thread that sends what is due in the outbox, one message after the other, while a run lives.

The outbox is a part of the journal's state, so this keeps nothing: after a kill the next run's sender finds the same
messages due. An entry about a message wakes it; otherwise it sleeps until the next is due.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import msgspec

from holdfast.domain.effect_entries import PublishIntended
from holdfast.domain.messages.outbox_records import (
    MessageFlagged,
    MessageQueued,
    Outgoing,
    is_ready,
    next_due,
    next_moment,
)
from holdfast.engine.context import Note, RunContext
from holdfast.engine.effects import carry_out
from holdfast.errors import HoldfastError, PublishFailed, PublishRefused, PublishUnclear, is_fatal
from holdfast.ports import Ledger
from holdfast.storage.journal.entry import Entry, Record, Ref

ACTOR = "outbox"
# How long it sleeps at most: the clock of messages is the wall's, and that may be set.
SLEEP_S_MAX = 60.0
CLOSE_S_MAX = 10.0
# A run that is over otherwise waits for a message that is to be tried again soon: most receivers that fail once are
# back in seconds, and nobody would send it before the next run. One that stays away holds no run up for longer than
# the first pauses take, which are 5 and 10 seconds.
TRIES_AWAITED, AWAITED_S_MAX = 3, 15.0


def queue_messages(ledger: Ledger, messages: Sequence[MessageQueued], actor: str = ACTOR) -> list[str]:
    """Queues those that were never queued before; returns their keys."""
    # The ledger's mutex is held: nobody queues the same key between the question and the append.
    with ledger.together():
        known = ledger.pairing.find_executed
        new = [each for each in messages if known("message_queued", each.idempotency_key) is None]
        if new:
            records = [Record("message_queued", msgspec.to_builtins(each), actor=actor) for each in new]
            ledger.append(ledger.epoch, records)
    return [each.idempotency_key for each in new]


def flag_message(ledger: Ledger, flagged: MessageFlagged, actor: str = ACTOR) -> None:
    ledger.append(ledger.epoch, [Record("message_flagged", msgspec.to_builtins(flagged), actor=actor)])


class Sender:
    """Also an observer of the ledger, by which it is woken. `failed` gets an error that ends the run."""

    name = "outbox"
    cursor: Ref | None = None

    def __init__(self, context: RunContext, failed: Callable[[BaseException], None], wake: Callable[[], None]) -> None:
        self._context, self._failed, self._wake = context, failed, wake
        self._note: Note = context.note
        self._woken = threading.Event()
        self._is_ending = False
        self._is_sending = False
        self._thread = threading.Thread(target=self._serve, name="outbox", daemon=True)

    def observe(self, run: str, entry: Entry) -> None:
        if entry.decision_type.startswith(("message_", "task_publish_")):
            self._woken.set()

    def start(self) -> None:
        self._context.ledger.observe(self)
        self._thread.start()

    def close(self) -> None:
        """Lets the message under way leave, for a while; one that takes longer is as if the run were killed."""
        self._is_ending = True
        self._woken.set()
        self._thread.join(CLOSE_S_MAX)
        self._context.ledger.stop_observing(self)

    @property
    def is_busy(self) -> bool:
        """Whether a message is under way, or due now or soon: a run does not end by itself before."""
        return self.is_sending or self._is_awaited()

    @property
    def is_sending(self) -> bool:
        """Whether a message is under way, or due now."""
        return self._is_sending or self._due() is not None

    def _is_awaited(self) -> bool:
        """Whether one that has failed is tried again so soon that the run waits. This thread wakes the loop then."""
        outbox, until = self._context.ledger.state.outbox.copy(), self._context.clock() + AWAITED_S_MAX
        tried = (each for each in outbox.values() if 0 < each.tries < TRIES_AWAITED and is_ready(outbox, each))
        return any(each.not_before <= until for each in tried)

    def _due(self) -> Outgoing | None:
        # A copy: another thread may append meanwhile.
        return next_due(self._context.ledger.state.outbox.copy(), self._context.clock())

    def _serve(self) -> None:
        try:
            while not self._is_ending:
                self._woken.clear()
                self._is_sending = True
                message = self._due()
                if message is not None:
                    self._send(message)
                    continue
                self._is_sending = False
                self._wake()
                self._woken.wait(self._patience())
        except BaseException as error:  # noqa: BLE001 (raised again, in the loop's own thread)
            self._failed(error)
        finally:
            self._is_sending = False

    def _patience(self) -> float:
        moment = next_moment(self._context.ledger.state.outbox.copy())
        wait = SLEEP_S_MAX if moment is None else moment - self._context.clock()
        return max(0.05, min(wait, SLEEP_S_MAX))

    def _send(self, message: Outgoing) -> None:
        ledger = self._context.ledger
        try:
            carry_out(self._context, PublishIntended(message.task, key=message.key, channel=message.channel))
        except HoldfastError as error:
            if is_fatal(error):
                raise
            self._note(message.task, str(error))
            if isinstance(error, PublishRefused):
                flag_message(ledger, MessageFlagged(key=message.key, how="parked", reason=str(error)))
            elif isinstance(error, PublishFailed) and (until := error.facts.get("until", 0.0)):
                put_off = MessageFlagged(key=message.key, how="put_off", until=until, reason=str(error))
                flag_message(ledger, put_off)
            elif not isinstance(error, PublishFailed | PublishUnclear):
                flag_message(ledger, MessageFlagged(key=message.key, how="parked", reason=str(error)))
