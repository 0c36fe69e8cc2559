"""The write-ahead journal: one file per run, appended to, never rewritten.

`append` returns when the line is on stable storage. Threads that append at the same time share one sync: the first to
come leads, writes what all have queued, syncs once and wakes them; who comes meanwhile is the next batch, written only
after this sync returned. A lone writer leads itself and pays nothing for it.

The lead is a token in a list. It is taken by `del` and given back by an assignment, because between those and the
`try` beside them the interpreter runs no signal handler: one that raises can interrupt a caller anywhere else, and
costs the others at most PATIENCE_S, never the lead.

After a failed write or sync the journal is poisoned: the waiting and every later caller get the error, and nothing is
acknowledged any more in this process.
"""

from __future__ import annotations

import _thread
import contextlib
import itertools
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
from holdfast.errors import DiskError, HoldfastError, InputError, InvalidName, JournalClosed, JournalRemoved, Poisoned
from holdfast.storage.files import disk
from holdfast.storage.journal.entry import (
    GENESIS,
    Head,
    Record,
    Ref,
    encode,
    encode_checked,
    encode_middle,
    put_together,
    seal,
)

FORMAT = 1
SUFFIX = ".wal.jsonl"
RUN_STARTED = "run_started"

_RUN_ID = re.compile(r"[0-9]{6,}-[A-Za-z0-9][A-Za-z0-9_-]*")


# How long a caller waits before it looks for itself whether anybody leads.
PATIENCE_S = 1.0
_TOKEN: list[None] = [None]


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


class _Outcome:
    """What became of a batch. Set by one assignment, so that all who wait see it at once, or not at all."""

    __slots__ = ("error", "refs")

    def __init__(self) -> None:
        self.refs: list[Ref] | None = None
        self.error: HoldfastError | None = None


class _Waiting:
    """A caller that came while another was leading: its records, and the outcome of the batch that they are in."""

    __slots__ = ("middles", "next", "outcome", "start", "turn")

    def __init__(self, middles: list[bytes]) -> None:
        self.middles = middles
        self.start = 0
        self.outcome = _UNDECIDED
        self.next: _Waiting | None = None
        self.turn = _thread.allocate_lock()
        self.turn.acquire()

    @property
    def done(self) -> bool:
        return self.outcome.refs is not None or self.outcome.error is not None

    def wake(self) -> None:
        try:
            self.turn.release()
        except RuntimeError:
            return  # woken twice is as good as once


_UNDECIDED = _Outcome()


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
    """The journal of the run that is alive. Made by `start`; safe to use from many threads."""

    def __init__(self, run: str, file: disk.Appender, clock: Callable[[], float]) -> None:
        self.run = run
        self._file = file
        self._clock = clock
        # The last durable entry: sequence, hash, first byte, byte behind it. One tuple, so that it changes at once.
        self._last = (-1, GENESIS, 0, 0)
        self._closed = False
        self.forked = False
        self._unsure = ""
        self._queue: list[_Waiting] = []
        self._interrupted = Poisoned(path=file.path, reason="an append was interrupted")
        self._free: list[None] = [None]
        self._leader = 0
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

        `previous` is the last entry of the run before, as `chain.Chain` found it; it ties the files into one chain.
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
        me = _thread.get_ident()
        try:
            # Who waits already is not passed by.
            del self._free[len(self._queue)]
        except IndexError:
            record = Record(decision_type, inputs or {}, output or {}, actor, committed)
            return self._queue_up([encode_middle(record)], me)[0]
        # Nobody else is writing: encoded in one go and straight to the disk, because after a sync the processor's
        # caches are cold, and every step costs several times what it does in a busy loop.
        try:
            self._leader = me
            last, digest, _, end = self._last
            fields = (decision_type, inputs or {}, output or {}, actor, committed)
            line, digest = seal(encode_checked(Head(last + 1, digest, self._clock(), *fields, last))[:-1])
            self._write(line, (last + 1, digest, end, end + len(line)))
            return Ref(self.run, last + 1, digest)
        finally:
            self._leader = 0
            self._free[:] = _TOKEN
            if self._queue:
                self._queue[0].wake()

    def append_many(self, records: Sequence[Record]) -> list[Ref]:
        """Writes entries next to each other, for one sync."""
        return self.append_encoded([encode_middle(record) for record in records])

    def append_encoded(self, middles: list[bytes]) -> list[Ref]:
        me = _thread.get_ident()
        try:
            del self._free[len(self._queue)]
        except IndexError:
            return self._queue_up(middles, me)
        try:
            self._leader = me
            return self._commit(middles)
        finally:
            self._leader = 0
            self._free[:] = _TOKEN
            if self._queue:
                self._queue[0].wake()

    def stage(self) -> StagedEntries:
        """For who has the journal to itself, and wants to name each entry before all are written, for one sync."""
        return StagedEntries(self.run, self._last)

    def append_staged(self, staged: StagedEntries) -> None:
        me = _thread.get_ident()
        try:
            del self._free[len(self._queue)]
        except IndexError:
            raise InputError(detail="somebody else appends to the journal behind which these were staged") from None
        try:
            self._leader = me
            if staged.base is not self._last:
                raise InputError(detail="the journal has grown since these entries were staged")
            self._write(b"".join(staged.lines), staged.last)
        finally:
            self._leader = 0
            self._free[:] = _TOKEN
            if self._queue:
                self._queue[0].wake()

    def position(self) -> Position:
        """Where the journal ends: the last entry that is durable."""
        seq, digest, start, end = self._last
        return Position(Ref(self.run, seq, digest), start, end)

    def close(self) -> None:
        """Ends the run's writing, after the batch that is under way. Appends that come later raise JournalClosed."""
        self._closed = True
        with contextlib.suppress(JournalClosed):
            self.append_encoded([])
        self._file.close()

    def _commit(self, middles: list[bytes]) -> list[Ref]:
        """Writes one batch and syncs it. Only the leader is here, so the lines follow each other."""
        staged = StagedEntries(self.run, self._last)
        refs = staged.add(middles, encode(self._clock()))
        self._write(b"".join(staged.lines), staged.last)
        return refs

    def _write(self, data: bytes, last: tuple[int, str, int, int]) -> None:
        if self._closed or self.forked:
            raise JournalClosed(run=self.run)
        if self._unsure:
            raise self._poisoned()
        if not data:
            return
        if not self._file.is_in_place():
            self._unsure = "the journal file was removed"
            raise JournalRemoved(run=self.run, path=self._file.path, kept=self._file.put_back())
        # Stays set when anything below raises: how much was written is then unknown, and nothing may follow.
        self._unsure = "a write was interrupted"
        try:
            self._file.append(data)
            self._file.sync()
        except DiskError as failure:
            self._unsure = failure.reason
            raise
        self._last = last
        self._unsure = ""

    def _queue_up(self, middles: list[bytes], me: int) -> list[Ref]:
        """Waits until a leader has committed these records, or leads when nobody does."""
        if self._leader == me:
            raise InputError(detail="a signal handler may not append to the journal that it interrupted in an append")
        waiting, late = _Waiting(middles), False
        self._queue.append(waiting)
        try:
            while waiting.outcome.refs is None and waiting.outcome.error is None:
                # Only the first in the queue takes the lead: who came last would only be in its way.
                if not (late or (self._queue and self._queue[0] is waiting)):
                    late = not waiting.turn.acquire(timeout=PATIENCE_S)
                    continue
                try:
                    del self._free[0]
                except IndexError:
                    late = not waiting.turn.acquire(timeout=PATIENCE_S)
                    continue
                try:
                    self._leader = me
                    self._lead_all()
                finally:
                    self._leader = 0
                    self._free[:] = _TOKEN
                    if self._queue:
                        self._queue[0].wake()
        finally:
            self._leave(waiting)
        if waiting.outcome.refs is None:
            raise waiting.outcome.error or self._poisoned()
        return waiting.outcome.refs[waiting.start : waiting.start + len(middles)]

    def _leave(self, waiting: _Waiting) -> None:
        """Wakes the next of the same batch; who was interrupted before its turn takes its records along."""
        if waiting.next is not None:
            waiting.next.wake()
        if not waiting.done:
            # Perhaps a leader has taken it meanwhile.
            with contextlib.suppress(ValueError):
                self._queue.remove(waiting)
            for first in self._queue[:1]:
                first.wake()

    def _lead_all(self) -> None:
        """Commits for all who wait, and wakes the first of them, who wakes the next, and so on.

        One after the other, because woken all at once they would only crowd for the interpreter's lock.
        """
        outcome, last = _Outcome(), self._last
        batch, self._queue[:] = self._queue[:], []
        try:
            middles: list[bytes] = []
            for waiting in batch:
                waiting.start, waiting.outcome = len(middles), outcome
                middles += waiting.middles
            outcome.refs = self._commit(middles)
        except HoldfastError as error:
            outcome.error = error
        except BaseException:
            # A signal handler of this thread raised. What was not begun is left to the next leader; of what was, the
            # others cannot be told that it is there.
            if self._last is last and not self._unsure:
                self._queue[:0] = batch
            else:
                outcome.error = self._interrupted
            raise
        finally:
            for waiting, following in itertools.pairwise(batch):
                waiting.next = following
            if batch:
                batch[0].wake()

    def _poisoned(self) -> Poisoned:
        return Poisoned(path=self._file.path, reason=self._unsure)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
