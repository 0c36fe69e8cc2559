"""Reads a ledger: its segments and its live file as one sequence of lines, from any process, while its writer works.

A line is a JSON object and its newline. Text behind the last newline of the live file may be half-written by a living
writer, so it is neither yielded nor reported. Anything else that is no record is skipped and reported as a `Skip`. A
proper prefix or suffix of a JSON object is never itself a JSON object, so a torn line cannot be mistaken for a record;
and the zeros of a lost page are not allowed in JSON.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import msgspec

from holdfast.errors import CursorAhead, InputError, SegmentDamaged
from holdfast.storage.files.json_file import decode_json
from holdfast.storage.records.segments import Segment, Segments, newest_end, read_chunks

_BLOCK = 1 << 16


class Line(msgspec.Struct, frozen=True):
    """A record, and the cursor behind it, from which the next one is read."""

    cursor: int
    record: dict[str, Any]


class Skip(msgspec.Struct, frozen=True):
    """A range of logical offsets that yields no record, and why."""

    offset: int
    length: int
    reason: str


def ignore(_: Skip) -> None:
    """The `on_skip` of a reader that does not care."""


def read(segments: Segments, cursor: int, on_skip: Callable[[Skip], None]) -> Iterator[Line]:
    if cursor < 0:
        raise InputError(detail=f"{cursor} is no cursor of {segments.live}, as it is negative")
    while True:
        listing, live = segments.open_live()
        with live:
            for segment in (segment for segment in listing if segment.end > cursor):
                start = max(cursor, segment.start)
                try:
                    chunks = segments.chunks(segment, start)
                except FileNotFoundError:
                    break  # dropped since the listing: look again
                if start > cursor:
                    on_skip(Skip(cursor, start - cursor, "it was dropped by retention, or its file is missing"))
                yield from _records(chunks, start, segment.end, on_skip)
                cursor = segment.end
            else:
                yield from _records(_live_chunks(segments, listing, live, cursor), cursor, None, on_skip)
                return


def end(segments: Segments) -> int:
    """The cursor behind the last newline."""
    listing, live = segments.open_live()
    base = newest_end(listing)
    with live:
        position = live.seek(0, os.SEEK_END)
        while position > 0:
            start = max(0, position - _BLOCK)
            live.seek(start)
            found = live.read(position - start).rfind(b"\n")
            if found >= 0:
                return base + start + found + 1
            position = start
    return base


def _live_chunks(segments: Segments, listing: list[Segment], live: BinaryIO, cursor: int) -> Iterator[bytes]:
    base, size = newest_end(listing), live.seek(0, os.SEEK_END)
    if cursor > base + size:
        raise CursorAhead(cursor=cursor, path=segments.live, end=base + size)
    live.seek(cursor - base)
    return read_chunks(live, segments.live)


def _records(
    chunks: Iterator[bytes], position: int, end: int | None, on_skip: Callable[[Skip], None]
) -> Iterator[Line]:
    """The records of one file, from `position`. `end`: where the file is known to end; None for the live file."""
    reason = "it is no record: a crash has torn it, or it was changed"
    try:
        for length, text in _whole_lines(chunks):
            after = position + length
            record = decode_json(text, dict[str, Any])
            if record is not None:
                yield Line(after, record)
            elif length > 1:
                on_skip(Skip(position, after - position, reason))
            position = after
    except SegmentDamaged as damage:
        reason = str(damage)
    if end is not None and position < end:
        on_skip(Skip(position, end - position, reason))


def _whole_lines(chunks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Each line that has its newline: its length with it, and its text without.

    A region of zeros may be of any size and have no newline. As no record has a zero in it, one is all that is kept.
    """
    pieces: list[bytes] = []
    length = 0
    for chunk in chunks:
        for number, piece in enumerate(chunk.split(b"\n")):
            if number:
                yield length + 1, b"".join(pieces)
                pieces, length = [], 0
            length += len(piece)
            if b"\0" in piece or pieces == [b"\0"]:
                pieces = [b"\0"]
            else:
                pieces.append(piece)
