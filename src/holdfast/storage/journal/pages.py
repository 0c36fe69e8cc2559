"""The journal a page at a time, from any entry on, in either direction, without reading what is not wanted.

A run's file is sorted by sequence, so an entry is found by halving. Lines that cannot be wanted are passed over as they
stand, without being decoded. One page looks at so many bytes at most: where that was not enough to fill it, `next` says
where to go on.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import IO

import msgspec

from holdfast.storage.journal.entry import Entry, decode_sound
from holdfast.storage.journal.reader import ARCHIVED, Chain, RunFile
from holdfast.storage.journal.writer import epoch_of

SCAN_BYTES_MAX = 64 << 20
_NEAR_BYTES = 1 << 16
_BLOCK_BYTES = 1 << 18
_ARCHIVED_LINES_MAX = 50_000
_SEQ = re.compile(rb'\{"seq":(\d{1,18}),')

Cursor = tuple[int, int]


class WantedPage(msgspec.Struct, frozen=True):
    """The entries that a page shows: those of a task, of some kinds; empty means any."""

    task: str = ""
    kinds: tuple[str, ...] = ()

    def fits(self, entry: Entry) -> bool:
        if self.kinds and entry.decision_type not in self.kinds:
            return False
        return not self.task or entry.inputs.get("task") == self.task

    def may_fit(self, line: bytes) -> bool:
        if self.task and f'"{self.task}"'.encode() not in line:
            return False
        return not self.kinds or any(f'"decision_type":"{kind}"'.encode() in line for kind in self.kinds)


class Page(msgspec.Struct, frozen=True):
    """`next` is where the next page begins, as `run:seq`; empty where there is none."""

    items: list[tuple[str, Entry]]
    next: str = ""


def forward(chain: Chain, after: Cursor | None, wanted: WantedPage, limit: int, end: Cursor) -> Page:
    """The entries behind a cursor, oldest first, up to what is known to be on disk."""
    start = after or (0, -1)
    files = [file for file in chain.runs() if start[0] <= epoch_of(file.run) <= end[0]]
    return _page(_forward(files, start, end), wanted, limit)


def backward(chain: Chain, before: Cursor | None, wanted: WantedPage, limit: int, end: Cursor) -> Page:
    """The entries before a cursor, newest first; from the end where there is none."""
    stop = min(before, (end[0], end[1] + 1)) if before else (end[0], end[1] + 1)
    files = [file for file in reversed(chain.runs()) if epoch_of(file.run) <= stop[0]]
    return _page(_backward(files, stop), wanted, limit)


def _page(lines: Iterator[tuple[str, int, bytes]], wanted: WantedPage, limit: int) -> Page:
    items: list[tuple[str, Entry]] = []
    scanned, place = 0, ""
    for run, seq, line in lines:
        if scanned >= SCAN_BYTES_MAX:
            return Page(items, place)
        scanned += len(line)
        if wanted.may_fit(line) and (entry := decode_sound(line)) is not None and wanted.fits(entry):
            if len(items) == limit:
                return Page(items, place)
            items.append((run, entry))
        place = f"{run}:{seq}"
    return Page(items)


# -- lines, each with its run and sequence ----------------------------------------------------------------------------


def _forward(files: list[RunFile], after: Cursor, end: Cursor) -> Iterator[tuple[str, int, bytes]]:
    for file in files:
        epoch = epoch_of(file.run)
        first = after[1] + 1 if epoch == after[0] else 0
        stream, size = file.open()
        with stream:
            if not file.path.name.endswith(ARCHIVED):
                # At a line's beginning that stands at or before the entry, and near it.
                stream.seek(_near(stream, size, first))
            for line in stream:
                seq = _seq(line)
                if seq is None or not line.endswith(b"\n") or (epoch, seq) > end:
                    break
                if seq >= first:
                    yield file.run, seq, line


def _backward(files: list[RunFile], stop: Cursor) -> Iterator[tuple[str, int, bytes]]:
    for file in files:
        most = stop[1] if epoch_of(file.run) == stop[0] else None
        lines = _archived(file, most) if file.path.name.endswith(ARCHIVED) else _reversed(file, most)
        for line in lines:
            seq = _seq(line)
            if seq is not None and (most is None or seq < most):
                yield file.run, seq, line


def _near(stream: IO[bytes], size: int, seq: int) -> int:
    """The offset of a line's beginning, not behind the entry's."""
    low, high = 0, size
    while high - low > _NEAR_BYTES:
        middle = (low + high) // 2
        stream.seek(middle)
        stream.readline()
        found = _seq(stream.readline())
        if found is None or found >= seq:
            high = middle
        else:
            low = middle
    stream.seek(low)
    return low + len(stream.readline()) if low else 0


def _reversed(file: RunFile, most: int | None) -> Iterator[bytes]:
    """The whole lines of a plain file, last first."""
    stream, size = file.open()
    with stream:
        offset = size
        if most is not None:
            stream.seek(offset := _near(stream, size, most))
            while (line := stream.readline()) and (seq := _seq(line)) is not None and seq < most:
                offset += len(line)
        rest = b""
        while offset > 0:
            start = max(0, offset - _BLOCK_BYTES)
            stream.seek(start)
            rest, offset = stream.read(offset - start) + rest, start
            head, *lines = rest.split(b"\n")
            # Behind the last newline stands nothing, or what is not whole.
            yield from (line + b"\n" for line in reversed(lines[:-1]))
            rest = head + b"\n" if lines else head
        if rest.endswith(b"\n"):
            yield rest


def _archived(file: RunFile, most: int | None) -> Iterator[bytes]:
    last: deque[bytes] = deque(maxlen=_ARCHIVED_LINES_MAX)
    with file.open()[0] as stream:
        for line in stream:
            seq = _seq(line)
            if seq is None or (most is not None and seq >= most):
                break
            last.append(line)
    yield from reversed(last)
    # A part of the run, where it is long: the part before it is unpacked only for callers that read on.
    if last and (oldest := _seq(last[0])):
        yield from _archived(file, oldest)


def _seq(line: bytes) -> int | None:
    found = _SEQ.match(line)
    return int(found[1]) if found else None
