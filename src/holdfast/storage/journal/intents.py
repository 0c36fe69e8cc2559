"""Open intents and executed keys, over all runs.

An intent is an entry with `committed` false. It is closed by exactly one later entry, of the same or any later run,
whose inputs carry `"intent": {"run", "seq", "entry_hash"}`. What is closed counts as executed, under the intent's
decision type and entry hash; so does every entry whose inputs carry an `"idempotency_key"`, under its own decision type
and that key (an API request, a delivery, a publication).

The executed keys of a checkpoint are many, and few starts ask for one: they stay in their file until somebody does.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

import msgspec

from holdfast.errors import PairingBroken
from holdfast.storage.journal.entry import Entry, Ref
from holdfast.storage.journal.writer import Position

# How many executed keys are remembered, those used last. A number, not an age: a journal always gives the same set.
EXECUTED_MAX = 100_000
# Up to so many new keys are put behind the lines of a file as they are; for more, reading them all takes less time.
_FEW = 32


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


class Unread(Protocol):
    """The executed keys that a file holds. Where it turns out to be damaged, the journal gives them instead."""

    def body(self) -> tuple[bytes, int]: ...
    def load(self) -> list[Executed]: ...
    def moved(self, first: bytes, position: Position, count: int) -> Unread: ...


class Keys:
    """The executed keys, read from their file at the first question. What is noted before then is kept in order."""

    def __init__(self, unread: Unread | None = None) -> None:
        self._unread = unread
        self._noted: list[Executed] = []
        self._known: dict[tuple[str, str], Executed] = {}
        # One thread may ask while another appends: no key may fall between the file and what was noted since.
        self._mutex = threading.Lock()

    def note(self, done: Executed) -> None:
        with self._mutex:
            if self._unread is None:
                self._put(done)
            else:
                self._noted.append(done)

    def find(self, decision_type: str, key: str) -> Executed | None:
        with self._mutex:
            return self._all().get((decision_type, key))

    def all(self) -> list[Executed]:
        with self._mutex:
            return list(self._all().values())

    def pack(self) -> tuple[bytes, int]:
        """One line for each, and how many there are; without reading them where the file's own lines will do."""
        with self._mutex:
            if self._unread is not None and len(self._noted) <= _FEW:
                return _put_behind(*self._unread.body(), self._noted)
            lines = [msgspec.json.encode(done) + b"\n" for done in self._all().values()]
            return b"".join(lines), len(lines)

    def saved(self, first: bytes, position: Position, count: int) -> None:
        """Notes that what `pack` gave now stands in the file, for this position and behind this first line."""
        with self._mutex:
            if self._unread is not None:
                self._unread, self._noted = self._unread.moved(first, position, count), []

    def _all(self) -> dict[tuple[str, str], Executed]:
        if self._unread is not None:
            self._known = {(done.decision_type, done.key): done for done in self._unread.load()}
            for done in self._noted:
                self._put(done)
            self._unread, self._noted = None, []
        return self._known

    def _put(self, done: Executed) -> None:
        # A key that comes again is as young as its last use, and still means what happened first.
        place = (done.decision_type, done.key)
        self._known[place] = self._known.pop(place, done)
        if len(self._known) > EXECUTED_MAX:
            del self._known[next(iter(self._known))]


def _put_behind(body: bytes, count: int, noted: list[Executed]) -> tuple[bytes, int]:
    """Does what `Keys._put` does, on the encoded lines."""
    # With a line end in front, each line has one on either side.
    text = bytearray(b"\n" + body)
    for done in noted:
        line = msgspec.json.encode(done)
        at = text.find(b"\n" + line[: line.rindex(b',"run":') + 1])
        if at >= 0:
            end = text.index(b"\n", at + 1)
            line = bytes(text[at + 1 : end])
            del text[at:end]
        else:
            count += 1
        text += line + b"\n"
        if count > EXECUTED_MAX:
            del text[: text.index(b"\n", 1)]
            count -= 1
    return bytes(memoryview(text)[1:]), count


class Pairing:
    """Fold every entry in with `apply`, in order; then ask."""

    def __init__(self, open_intents: list[OpenIntent] | None = None, keys: Keys | None = None) -> None:
        self._open = {(intent.run, intent.entry.seq): intent for intent in open_intents or []}
        self.keys = keys or Keys()

    def trial(self) -> Pairing:
        """A pairing to try entries on: it has the same open intents, and leaves this one as it is."""
        trial = Pairing()
        trial._open = dict(self._open)
        return trial

    def open_intents(self) -> list[OpenIntent]:
        """Intents without an outcome, oldest first."""
        return list(self._open.values())

    def executed(self) -> list[Executed]:
        """The one used longest ago first."""
        return self.keys.all()

    def find_executed(self, decision_type: str, key: str) -> Executed | None:
        return self.keys.find(decision_type, key)

    def apply(self, run: str, entry: Entry) -> None:
        if not entry.committed:
            self._open[run, entry.seq] = OpenIntent(run, entry)
        elif "intent" in entry.inputs:
            named = entry.inputs["intent"]
            intent = self._open.pop(_place(named), None)
            if intent is None or intent.entry.entry_hash != named["entry_hash"]:
                reason = f"it closes the intent {msgspec.json.encode(named).decode()}, which is not open"
                raise PairingBroken(run=run, seq=entry.seq, reason=reason)
            self.keys.note(Executed(intent.entry.decision_type, intent.entry.entry_hash, run, entry.seq))
        key = entry.inputs.get("idempotency_key")
        if isinstance(key, str):
            self.keys.note(Executed(entry.decision_type, key, run, entry.seq))


def _place(named: Any) -> tuple[str, int]:
    try:
        ref = msgspec.convert(named, Ref)
    except msgspec.ValidationError:
        return "", -1
    return ref.run, ref.seq
