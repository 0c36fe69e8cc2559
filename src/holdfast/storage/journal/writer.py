"""The write-ahead journal: one file per run, appended to, never rewritten.

What was appended is on stable storage when the call returns. A journal has one caller at a time: the ledger's mutex
sees to that. Many requests share one sync by `StagedEntries`.

After a failed write or sync the journal is poisoned: every later caller gets the error, and nothing is acknowledged any
more in this process.
"""

from __future__ import annotations

import os
import re
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from holdfast import __version__
from holdfast.clock import wall
from holdfast.errors import DiskError, InputError, InvalidName, JournalClosed, JournalRemoved, Poisoned
from holdfast.storage.files import disk
from holdfast.storage.files.urgency import urgent
from holdfast.storage.journal.entry import GENESIS, Record, Ref, encode, encode_middle, put_together, seal

FORMAT = 1
SUFFIX = ".wal.jsonl"
RUN_STARTED = "run_started"

_RUN_ID = re.compile(r"[0-9]{6,}-[A-Za-z0-9][A-Za-z0-9_-]*")


class Position(msgspec.Struct, frozen=True):
    """The end of an entry: which one it is, and which bytes of its run file it stands in."""

    ref: Ref
    start: int
    end: int


_journals: weakref.WeakSet[Journal] = weakref.WeakSet()


def _close_in_forked_child() -> None:
    """A forked child has the parent's descriptor and its count of entries: a line of its own would break the chain."""
    for journal in _journals:
        journal.forked = True


os.register_at_fork(after_in_child=_close_in_forked_child)


def run_id(epoch: int, now: float) -> str:
    """Names a run after its epoch, so that run files sort in the order of the chain, whatever the clock says."""
    return f"{epoch:06d}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}"


def epoch_of(run: str) -> int:
    return int(run.split("-", 1)[0])


def is_run_id(run: str) -> bool:
    return _RUN_ID.fullmatch(run) is not None


def run_file(wal: Path, run: str) -> Path:
    if not is_run_id(run):
        raise InvalidName(what="run id", name=run, rule="it is the epoch in six digits or more, a dash and a name")
    return wal / f"{run}{SUFFIX}"


class StagedEntries:
    """Entries that have their numbers and hashes, and are not on disk yet: they follow the journal's end as it was."""

    def __init__(self, run: str, last: tuple[int, str, int, int]) -> None:
        self.run = run
        self.base = self.last = last
        self.lines: list[bytes] = []

    def add(self, middles: list[bytes], timestamp: bytes) -> list[Ref]:
        synced = self.base[0]
        seq, digest, start, end = self.last
        refs = []
        for middle in middles:
            seq += 1
            line, digest = seal(put_together(seq, digest, timestamp, middle, synced))
            refs.append(Ref(self.run, seq, digest))
            self.lines.append(line)
            start, end = end, end + len(line)
        self.last = (seq, digest, start, end)
        return refs

    @property
    def ref(self) -> Ref:
        """The last entry, staged or on disk."""
        return Ref(self.run, self.last[0], self.last[1])


class Journal:
    """The journal of the run that is alive. Made by `start`."""

    def __init__(self, run: str, file: disk.Appender, clock: Callable[[], float]) -> None:
        self.run = run
        self._file = file
        self._clock = clock
        # The last durable entry: sequence, hash, first byte, byte behind it. One tuple, so that it changes at once.
        self._last = (-1, GENESIS, 0, 0)
        self._closed = False
        self.forked = False
        self._unsure = ""
        _journals.add(self)

    @classmethod
    def start(
        cls,
        wal: Path,
        run: str,
        previous: Ref | None,
        *,
        facts: dict[str, Any] | None = None,
        clock: Callable[[], float] = wall,
    ) -> Journal:
        """Begins a run: its file and its `run_started` are durable on return.

        `previous` is the last entry of the run before, as `reader.Chain` found it; it ties the files into one chain.
        """
        path = run_file(wal, run)
        if previous is not None and epoch_of(previous.run) >= epoch_of(run):
            raise InvalidName(what="run id", name=run, rule=f"its epoch must be greater than that of {previous.run}")
        inputs = {"previous": previous, "format": FORMAT, "epoch": epoch_of(run), "holdfast": __version__}
        first = encode_middle(Record(RUN_STARTED, {**inputs, **(facts or {})}))
        journal = cls(run, disk.open_append(path, exclusive=True), clock)
        try:
            journal.append_encoded([first])
        except BaseException:
            journal.close()
            raise
        return journal

    def append(
        self,
        decision_type: str,
        inputs: dict[str, Any] | None = None,
        output: dict[str, Any] | None = None,
        *,
        actor: str = "holdfast",
        committed: bool = True,
    ) -> Ref:
        """Writes one entry. When this returns, it is on stable storage."""
        return self.append_many([Record(decision_type, inputs or {}, output or {}, actor, committed)])[0]

    def append_many(self, records: Sequence[Record]) -> list[Ref]:
        """Writes entries next to each other, for one sync."""
        return self.append_encoded([encode_middle(record) for record in records])

    def append_encoded(self, middles: list[bytes]) -> list[Ref]:
        staged = self.stage()
        refs = staged.add(middles, encode(self._clock()))
        self.append_staged(staged)
        return refs

    def stage(self) -> StagedEntries:
        """An empty batch, for a caller that names each entry before all are written for one sync."""
        return StagedEntries(self.run, self._last)

    def append_staged(self, staged: StagedEntries) -> None:
        if self._closed or self.forked:
            raise JournalClosed(run=self.run)
        if self._unsure:
            raise Poisoned(path=self._file.path, reason=self._unsure)
        if not staged.lines:
            return
        if staged.base is not self._last:
            raise InputError(detail="the journal has grown since these entries were staged")
        if not self._file.is_in_place():
            self._unsure = "the journal file was removed"
            raise JournalRemoved(run=self.run, path=self._file.path, kept=self._file.put_back())
        # Stays set when anything below raises: how much was written is then unknown, and nothing may follow.
        self._unsure = "a write was interrupted"
        try:
            with urgent():
                self._file.append(b"".join(staged.lines))
                self._file.sync()
        except DiskError as failure:
            self._unsure = failure.reason
            raise
        self._last = staged.last
        self._unsure = ""

    def position(self) -> Position:
        """The end of the journal: the last entry that is durable."""
        seq, digest, start, end = self._last
        return Position(Ref(self.run, seq, digest), start, end)

    def close(self) -> None:
        """Ends the run's writing. Appends that come later raise JournalClosed."""
        self._closed = True
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
