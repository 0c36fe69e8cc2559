"""Append-only ledgers (turns, spend, traces, provenance, events, sessions, metrics): JSON lines, `ts` first.

`ts` is float Unix seconds; every other field belongs to the ledger's owner. Secrets are scrubbed on the way in
(`redact`); the files and their names are described in `segments`.

- `append` returns when the record is on stable storage. A record is a line *with* its newline: of what was appended and
  not acknowledged, a crash may leave all, some lines, or pieces. The next append begins on a fresh line, so a piece
  never swallows it; readers skip what is no record, and report it.
- A *cursor* is a logical byte offset from the ledger's beginning, and stays true over rotations. The live file and all
  segments read as one.
- One writer at a time, whose threads share the `LineLedger`: it holds the live file's lock from its first append until
  it is closed, and another one's append raises InUse. Readers in any number of processes, at any time. A reader may see
  a record before its writer's sync has returned: one that acts on it for good calls `settle` first.
- Nothing is dropped unless `retain_*` says so, and then whole segments, oldest first, never the newest one: its name
  says where the live file begins.
- After a write or sync that failed or was interrupted, the ledger takes no more records. A rotation that fails (on a
  full disk, say) is noted in `upkeep_failure`, tried again later, and stops no append.

Ledgers are not tamper-evident: a byte changed inside a string of the live file reads as another string. It can change
its own line only (a changed newline: the two lines it separated). The journal pins what must be provable by offset.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from holdfast.clock import wall
from holdfast.errors import DiskError, FileMissing, HoldfastError, Poisoned, RecordUnfit, SegmentDamaged, SyncFailed
from holdfast.storage.files import disk
from holdfast.storage.records import ledger_reader
from holdfast.storage.records.ledger_reader import Line, Skip, ignore
from holdfast.storage.records.redact import Scrubber
from holdfast.storage.records.segments import Segment, Segments, newest_end

__all__ = ["Line", "LineLedger", "Segment", "Skip"]

# The standard encoder refuses what has no JSON form (NaN, bytes, sets), where msgspec would write something else.
_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
DEPTH_MAX = 200  # deeper records could be written, but not be read back by every reader


class LineLedger:
    """One ledger. The first append opens it for writing and finishes what a crash left; before that, no disk access."""

    def __init__(
        self,
        path: Path,
        *,
        scrub: Scrubber | None = None,
        rotate_bytes_max: int | None = None,
        rotate_age_s_max: float | None = None,
        retain_bytes_max: int | None = None,
        retain_age_s_max: float | None = None,
        clock: Callable[[], float] = wall,
        mode: int = disk.OWN_FILE,
    ) -> None:
        self._mode = mode
        self.path = path
        self.upkeep_failure: DiskError | SegmentDamaged | None = None
        self._segments = Segments(path)
        self._scrub = scrub or Scrubber()
        self._rotate_bytes_max = rotate_bytes_max
        self._rotate_age_s_max = rotate_age_s_max
        self._retain_bytes_max = retain_bytes_max
        self._retain_age_s_max = retain_age_s_max
        self._clock = clock
        self._mutex = threading.Lock()
        self._unsure = ""
        self._live: disk.Appender | None = None
        self._base = 0  # the logical offset where the live file begins
        self._began_s = 0.0
        self._is_torn = False

    # -- writing ------------------------------------------------------------------------------------------------------

    def append(self, record: Mapping[str, Any]) -> int:
        """Makes `record` durable and returns the cursor behind it."""
        return self.append_many([record])

    def append_many(self, records: Iterable[Mapping[str, Any]]) -> int:
        """Makes all `records` durable with one sync. One that cannot be written refuses them all, before any write."""
        data = b"".join([self._encode(record) for record in records])
        with self._writing():
            live = self._ready_for(len(data))
            if data:
                live.append(b"\n" + data if self._is_torn else data)
                live.sync()
                self._is_torn = False
            return self._base + live.size

    def close(self) -> None:
        with self._mutex:
            live, self._live = self._live, None
            if live is not None:
                live.close()

    def __enter__(self) -> LineLedger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with self._mutex:
            if self._unsure:
                raise Poisoned(path=self.path, reason=self._unsure)
            # Stays set when a signal handler raises in the middle: what was written, or whether the live file still
            # has its name, is then unknown.
            self._unsure = "a write was interrupted"
            try:
                yield
            except SyncFailed as failure:
                self._unsure = failure.reason
                raise
            except HoldfastError:
                # Reported, and known: after a failed write the appender itself takes no more.
                self._unsure = ""
                raise
            self._unsure = ""

    def _encode(self, record: Mapping[str, Any]) -> bytes:
        try:
            stamped = {"ts": self._clock(), **self._scrub.clean(record)}
            line = _encoder.encode(stamped).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise RecordUnfit(path=self.path, reason=str(error)) from error
        if _seconds(stamped) is None:
            raise RecordUnfit(path=self.path, reason="its ts is not a number of seconds")
        if line.count(b"[") + line.count(b"{") > DEPTH_MAX and _is_deeper(stamped, DEPTH_MAX):
            raise RecordUnfit(path=self.path, reason=f"it is nested deeper than {DEPTH_MAX} levels")
        return line

    def _ready_for(self, length: int) -> disk.Appender:
        live = self._live or self._open()
        if live.size == 0:
            self._began_s = self._clock()
            return live
        too_large = self._rotate_bytes_max is not None and live.size + length > self._rotate_bytes_max
        too_old = self._rotate_age_s_max is not None and self._clock() - self._began_s >= self._rotate_age_s_max
        return self._seal(live) if length and (too_large or too_old) else live

    def _open(self) -> disk.Appender:
        disk.mkdir(self.path.parent)
        with contextlib.ExitStack() as undo:
            # First: only the holder of the live file may cut it, or pack what was cut.
            live = disk.open_append(self.path, alone=True, mode=self._mode)
            undo.callback(live.close)
            self._upkeep()
            self._base = newest_end(self._segments.listing())
            self._began_s = self._first_second_from(self._base, otherwise=self._clock())
            self._is_torn = ledger_reader.end(self._segments) < self._base + live.size
            undo.pop_all()
        self._live = live
        return live

    def _seal(self, live: disk.Appender) -> disk.Appender:
        """Cuts a segment off and begins a new live file. When the cut fails, keeps the live file."""
        # The name promises every byte, also those that an earlier writer died before syncing.
        live.sync()
        segment = Segment(self._base, self._base + live.size)
        if not self._try(partial(disk.rename, self.path, self._segments.plain(segment))):
            return live
        self._live = None
        live.close()
        return self._open()

    def _upkeep(self) -> None:
        """Archives sealed segments, drops those past retention. What fails stays readable, for the next time."""
        self.upkeep_failure = None
        for segment in self._segments.unpacked():
            self._try(partial(self._segments.pack, segment))
        self._try(partial(self._prune, self._clock()))

    def _try(self, act: Callable[[], object]) -> bool:
        try:
            act()
        except SyncFailed:
            raise
        except (DiskError, SegmentDamaged) as failure:
            self.upkeep_failure = failure
            return False
        return True

    def _prune(self, now: float) -> None:
        """Drops the oldest segments, while the ledger is larger than `retain_bytes_max` or they are past their age.

        A segment is as old as the record that follows it.
        """
        if self._retain_bytes_max is None and self._retain_age_s_max is None:
            return
        segments = self._segments.listing()
        sizes = {segment: self._segments.bytes_on_disk(segment) for segment in segments}
        total = sum(sizes.values()) + (self.path.stat().st_size if self.path.exists() else 0)
        for segment, following in itertools.pairwise(segments):
            too_large = self._retain_bytes_max is not None and total > self._retain_bytes_max
            too_old = self._retain_age_s_max is not None and (
                now - self._first_second_from(following.start, otherwise=now) > self._retain_age_s_max
            )
            if not (too_large or too_old):
                break
            self._segments.drop(segment)
            total -= sizes[segment]

    def _first_second_from(self, cursor: int, *, otherwise: float) -> float:
        first = next(self.read(cursor), None)
        seconds = _seconds(first.record) if first else None
        return otherwise if seconds is None else seconds

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, cursor: int = 0, on_skip: Callable[[Skip], None] = ignore) -> Iterator[Line]:
        """Every record from `cursor` to what is now the end.

        `on_skip` hears, in order, of each range left out: a piece that a crash left, a damaged segment, or what
        retention has dropped. A cursor past the end raises CursorAhead.
        """
        return ledger_reader.read(self._segments, cursor, on_skip)

    def end(self) -> int:
        """The cursor behind the last whole line: reading from here on gives only what is new."""
        return ledger_reader.end(self._segments)

    def settle(self) -> None:
        """Makes durable, from any process, what was read so far."""
        # Missing means rotated, and a segment was synced before it got its name.
        with contextlib.suppress(FileMissing):
            disk.sync_file(self.path)


def _seconds(record: Mapping[str, Any]) -> float | None:
    ts = record.get("ts")
    if isinstance(ts, bool) or not isinstance(ts, (int, float)) or abs(ts) > 1e15:
        return None
    return float(ts)


def _is_deeper(value: Any, levels: int) -> bool:
    layer = [value]
    for _ in range(levels):
        containers = [
            item.values() if isinstance(item, dict) else item for item in layer if isinstance(item, (dict, list))
        ]
        layer = list(itertools.chain.from_iterable(containers))
    return bool(layer)
