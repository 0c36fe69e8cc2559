"""An attempt's events and turns in one order, for `attach` and the dashboard. Read-only.

`events.jsonl` and `turns.jsonl` are two files. A turn's line is written after its events, so the turns are always read
first: all events of a turn that was read are there.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import msgspec

from holdfast.layout import Attempt
from holdfast.storage.files.json_file import decode_json
from holdfast.storage.records.at_work import numbered_from

# How many bytes of events one read takes, beyond the line that it ends in.
READ_BYTES_MAX = 512 << 10
_STEP = 64 << 10

Records = list[dict[str, Any]]
_Numbered = list[tuple[int, dict[str, Any]]]


class TranscriptPlace(msgspec.Struct, frozen=True):
    """A place between two records: how far each of the two files is read."""

    events: int = 0
    turns: int = 0

    def __str__(self) -> str:
        return f"{self.events}-{self.turns}"

    @classmethod
    def parse(cls, text: str) -> TranscriptPlace | None:
        events, dash, turns = text.partition("-")
        is_place = dash and all(each.isascii() and each.isdecimal() and len(each) < 16 for each in (events, turns))
        return cls(int(events), int(turns)) if is_place else None


def end_of(files: Attempt) -> TranscriptPlace:
    """The place behind everything written by now."""
    turns = _size(files.turns)
    return TranscriptPlace(_size(files.events), turns)


def after(files: Attempt, place: TranscriptPlace, most: int = READ_BYTES_MAX) -> tuple[Records, TranscriptPlace]:
    """The records behind the place, and the place behind them; at most about `most` bytes of events."""
    turns = list(numbered_from(files.turns, place.turns))
    events: _Numbered = []
    for end, record in numbered_from(files.events, place.events):
        events.append((end, record))
        if end - place.events >= most:
            # There may be more: later turns come with their events.
            turns = list(takewhile(lambda each: _ts(each[1]) <= _ts(record), turns))  # noqa: B023
            break
    behind = TranscriptPlace(events[-1][0] if events else place.events, turns[-1][0] if turns else place.turns)
    return _merged(events, turns), behind


def before(files: Attempt, place: TranscriptPlace, limit: int) -> tuple[Records, TranscriptPlace]:
    """The last records before the place, at most `limit` events, and the place before them."""
    events, start = _lines_before(files.events, place.events, limit)
    known = [each for each in numbered_from(files.turns, 0) if each[0] <= place.turns]
    first = _ts(events[0][1]) if events and start else float("-inf")
    earlier = [end for end, record in known if _ts(record) < first]
    turns = [each for each in known if _ts(each[1]) >= first]
    return _merged(events, turns), TranscriptPlace(start, max(earlier, default=0))


def _merged(events: _Numbered, turns: _Numbered) -> Records:
    records = [*(record for _, record in events), *({**record, "type": "turn"} for _, record in turns)]
    return sorted(records, key=_ts)


def _ts(record: dict[str, Any]) -> float:
    found = record.get("ts")
    return float(found) if isinstance(found, int | float) else 0.0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _lines_before(path: Path, end: int, limit: int) -> tuple[_Numbered, int]:
    """The last records that end at or before an offset, each with its own end, and where the first of them begins."""
    try:
        with open(path, "rb") as file:
            data, start = b"", min(end, _size(path))
            while start and data.count(b"\n") <= limit and (len(data) < READ_BYTES_MAX or b"\n" not in data[:-1]):
                step = min(_STEP, start)
                start -= step
                file.seek(start)
                data = file.read(step) + data
    except FileNotFoundError:
        return [], 0
    if start:
        # Begins inside a line, or at its end.
        cut = data.find(b"\n") + 1
        data, start = data[cut:], start + cut
    found = list(_numbered(data, start))
    kept = found[-limit:]
    begins = start if len(kept) == len(found) else kept[0][0]
    return [(end, record) for _, end, record in kept], begins


def _numbered(data: bytes, offset: int) -> Iterator[tuple[int, int, dict[str, Any]]]:
    for line in data.split(b"\n")[:-1]:
        begin, offset = offset, offset + len(line) + 1
        if (record := decode_json(line, dict[str, Any])) is not None:
            yield begin, offset, record
