"""What is under way and what has been done, over all runs.

An intent is an entry with `committed` false. It is closed by exactly one later entry, of the same or any later run,
whose inputs carry `"intent": {"run", "seq", "entry_hash"}`. What is closed counts as executed, under the intent's
decision type and entry hash; so does every entry whose inputs carry an `"idempotency_key"`, under its own decision type
and that key (an API request, a delivery, a publication).
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.durable.entry import Entry, Ref
from holdfast.errors import PairingBroken

# How many executed keys are remembered, those used last. A number, not an age: a journal always gives the same set.
EXECUTED_MAX = 100_000


class OpenIntent(msgspec.Struct, frozen=True):
    run: str
    entry: Entry

    @property
    def ref(self) -> Ref:
        return Ref(self.run, self.entry.seq, self.entry.entry_hash)


class Executed(msgspec.Struct, frozen=True):
    """Something that must not happen twice, and the entry that says it happened."""

    decision_type: str
    key: str
    run: str
    seq: int


class Pairing:
    """Fold every entry in with `apply`, in order; then ask."""

    def __init__(self, open_intents: list[OpenIntent] | None = None, executed: list[Executed] | None = None) -> None:
        self._open = {(intent.run, intent.entry.seq): intent for intent in open_intents or []}
        self._executed = {(done.decision_type, done.key): done for done in executed or []}

    def trial(self) -> Pairing:
        """A pairing to try entries on: it begins as this one, and leaves this one as it is."""
        trial = Pairing()
        trial._open = dict(self._open)
        return trial

    def open_intents(self) -> list[OpenIntent]:
        """Intents without an outcome, oldest first."""
        return list(self._open.values())

    def executed(self) -> list[Executed]:
        """The one used longest ago first."""
        return list(self._executed.values())

    def find_executed(self, decision_type: str, key: str) -> Executed | None:
        return self._executed.get((decision_type, key))

    def apply(self, run: str, entry: Entry) -> None:
        if not entry.committed:
            self._open[run, entry.seq] = OpenIntent(run, entry)
        elif "intent" in entry.inputs:
            self._close(run, entry)
        key = entry.inputs.get("idempotency_key")
        if isinstance(key, str):
            self._note(Executed(entry.decision_type, key, run, entry.seq))

    def _close(self, run: str, entry: Entry) -> None:
        intent = self._open.pop(_place(entry.inputs["intent"]), None)
        if intent is None or intent.entry.entry_hash != entry.inputs["intent"]["entry_hash"]:
            named = msgspec.json.encode(entry.inputs["intent"]).decode()
            raise PairingBroken(run=run, seq=entry.seq, reason=f"it closes the intent {named}, which is not open")
        self._note(Executed(intent.entry.decision_type, intent.entry.entry_hash, run, entry.seq))

    def _note(self, done: Executed) -> None:
        # A key that comes again is as young as its last use, and still means what happened first.
        place = (done.decision_type, done.key)
        self._executed[place] = self._executed.pop(place, done)
        if len(self._executed) > EXECUTED_MAX:
            del self._executed[next(iter(self._executed))]


def _place(named: Any) -> tuple[str, int]:
    try:
        ref = msgspec.convert(named, Ref)
    except msgspec.ValidationError:
        return "", -1
    return ref.run, ref.seq
