"""The write-ahead journal: one file per run, appended to, never rewritten.

`append` returns when the line is on stable storage. Threads that append at the same time share one sync: the first to
come leads, writes what all have queued, syncs once and wakes them; who comes meanwhile is the next batch, written only
after this sync returned. A lone writer leads itself and pays nothing for it.

After a failed write or sync the journal is poisoned: the waiting and every later caller get the error, and nothing is
acknowledged any more in this process.
"""

from __future__ import annotations

import _thread
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from holdfast import __version__
from holdfast.durable import disk
from holdfast.durable.entry import GENESIS, Record, Ref, encode_middle, seal_line
from holdfast.errors import InvalidName, JournalClosed, Poisoned

FORMAT = 1
SUFFIX = ".wal.jsonl"
RUN_STARTED = "run_started"

_RUN_ID = re.compile(r"[0-9]{6,}-[A-Za-z0-9][A-Za-z0-9_-]*")


class Position(msgspec.Struct, frozen=True):
    """The end of an entry: which one it is, and which bytes of its run file it stands in."""

    ref: Ref
    start: int
    end: int


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


class _Waiting:
    """One caller's records, while they wait for their sync."""

    __slots__ = ("error", "leads", "middles", "refs", "turn")

    def __init__(self, middles: list[bytes]) -> None:
        self.middles = middles
        self.refs: list[Ref] = []
        self.error: Exception | None = None
        self.turn: _thread.LockType | None = None
        self.leads = False


class Journal:
    """The journal of the run that is alive. Made by `start`; safe to use from many threads."""

    def __init__(self, run: str, file: disk.Appender, clock: Callable[[], float]) -> None:
        self.run = run
        self._file = file
        self._clock = clock
        self._position = Position(Ref(run, -1, GENESIS), 0, 0)
        self._committing = False
        self._failure = ""
        self._mutex = _thread.allocate_lock()
        self._queue: list[_Waiting] = []
        self._led = False
        self._closed = False

    @classmethod
    def start(
        cls,
        wal: Path,
        run: str,
        previous: Ref | None,
        *,
        facts: dict[str, Any] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Journal:
        """Begins a run: its file and its `run_started` are durable on return.

        `previous` is the last entry of the run before, as `chain.Chain` found it; it ties the files into one chain.
        """
        path = run_file(wal, run)
        if previous is not None and epoch_of(previous.run) >= epoch_of(run):
            raise InvalidName(what="run id", name=run, rule=f"its epoch must be greater than that of {previous.run}")
        journal = cls(run, disk.open_append(path, exclusive=True), clock)
        inputs = {"previous": previous, "format": FORMAT, "epoch": epoch_of(run), "holdfast": __version__}
        journal.append(RUN_STARTED, {**inputs, **(facts or {})})
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
        if not middles:
            return []
        waiting = _Waiting(middles)
        with self._mutex:
            self._queue.append(waiting)
            leads, self._led = not self._led, True
            if not leads:
                waiting.turn = _thread.allocate_lock()
                waiting.turn.acquire()
        if waiting.turn is not None:
            leads = self._wait(waiting, waiting.turn)
        if leads:
            self._lead()
        if waiting.error is not None:
            raise waiting.error
        return waiting.refs

    def position(self) -> Position:
        """Where the journal ends: the last entry that is durable."""
        with self._mutex:
            return self._position

    def close(self) -> None:
        """Ends the run's writing. Appends that come later raise JournalClosed."""
        with self._mutex:
            self._closed = True
        self._file.close()

    def _wait(self, waiting: _Waiting, turn: _thread.LockType) -> bool:
        """Waits for the sync, or for the lead: True when this caller is to lead."""
        try:
            turn.acquire()
        except BaseException:
            # A signal handler raised here: who leaves must not take the lead along, nor be chosen for it later.
            with self._mutex:
                if waiting in self._queue and not waiting.leads:
                    self._queue.remove(waiting)
            if waiting.leads:
                self._lead()
            raise
        return waiting.leads

    def _lead(self) -> None:
        """Commits one batch, wakes those who waited for it, and hands the lead on."""
        with self._mutex:
            batch, self._queue = self._queue, []
        try:
            self._commit(batch)
        except BaseException as error:
            self._failure = str(getattr(error, "reason", type(error).__name__))
            for waiting in batch:
                waiting.error = (
                    error if isinstance(error, Exception) else Poisoned(path=self._file.path, reason=self._failure)
                )
            if not isinstance(error, Exception):
                raise
        finally:
            with self._mutex:
                heir = self._queue[0] if self._queue else None
                self._led = heir is not None
                if heir is not None:
                    heir.leads = True
            for waiting in [*([heir] if heir else []), *batch]:
                if waiting.turn is not None and (waiting is heir or not waiting.leads):
                    waiting.turn.release()

    def _commit(self, batch: list[_Waiting]) -> None:
        if self._closed:
            raise JournalClosed(run=self.run)
        if self._committing:
            raise Poisoned(path=self._file.path, reason=self._failure)
        timestamp = repr(self._clock()).encode()
        last, synced = self._position, self._position.ref.seq
        seq, digest, lines = synced + 1, last.ref.entry_hash.encode(), []
        for waiting in batch:
            for middle in waiting.middles:
                line, digest = seal_line(seq, digest, timestamp, middle, synced)
                waiting.refs.append(Ref(self.run, seq, digest.decode()))
                lines.append(line)
                seq += 1
        written = b"".join(lines)
        # Stays set when anything below raises: the end of the file is then unknown, and nothing may follow.
        self._committing = True
        self._file.append(written)
        self._file.sync()
        end = last.end + len(written)
        self._position = Position(batch[-1].refs[-1], end - len(lines[-1]), end)
        self._committing = False

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
