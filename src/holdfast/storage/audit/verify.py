"""Reads the audit log: the record of a line, and the chain of records over lines and days.

A bad region is *torn* if the next good record follows the last good one before it, or if nothing follows: its content
was never acknowledged. Anything else that does not fit is a finding, which names the file, the line and what must have
happened. A complete JSON object without a valid hmac is never torn, because no crash writes one; nor is a day without a
record, because a day's file appears together with its first one.

Days are read in the order of their links: a day follows the one that its first record names. That is the order of their
dates, unless the clock has once been far ahead (see `audit`).

Without the key, a record counts as good by its form alone, and the links are all that is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import AuditCorrupt
from holdfast.storage.audit.days import day_files, misnamed_files
from holdfast.storage.audit.key import AuditKey, signature
from holdfast.storage.files import disk
from holdfast.storage.files.json_file import decode_json

LINE_BYTES_MAX = 1 << 20
FINDINGS_MAX = 1000
NO_HMAC = "0" * 64


class Previous(msgspec.Struct, frozen=True):
    """The end of the day before: its file, the seq of its last record, and the file's size with torn bytes."""

    file: str
    seq: int
    size: int


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    file: str | None = None
    previous: Previous | None = None
    prev_hmac: str
    timestamp: float
    event: str
    actor: str
    details: dict[str, Any]
    hmac: str


class Tail(msgspec.Struct, frozen=True):
    """The last good record so far. `file` is the name that its day was written under."""

    file: str
    seq: int
    hmac: str


class TornRecord(msgspec.Struct, frozen=True):
    """Lines that a crash left torn: bytes that were never acknowledged, and that no record follows."""

    file: str
    line: int
    line_last: int


class AuditFinding(msgspec.Struct, frozen=True):
    """Something that a crash cannot explain. `line` 0 means the file as a whole.

    `what` is one of removed, added, renamed, reordered, edited, truncated, unreadable.
    """

    file: str
    line: int
    what: str
    reason: str


def parse(line: bytes, key: AuditKey | None) -> AuditRecord | None:
    """The record of a line, or None for one that is not whole or, where the key is known, not signed with it."""
    if not (signature(line) if key is None else key.accepts(line)):
        return None
    return decode_json(line, AuditRecord)


def in_order(folder: Path, key: AuditKey | None) -> list[str]:
    """The days, each behind the one that its first record names. Days without a link are ordered by date."""
    names = dict.fromkeys(day_files(folder))
    after: dict[str, list[str]] = {}
    starts: list[str] = []
    for name in names:
        first = _first_record(folder / name, key)
        before = first.previous.file if first and first.file == name and first.previous else ""
        (after.setdefault(before, []) if before in names else starts).append(name)
    order: dict[str, None] = {}
    # Days that are linked in a ring have no start, so all are tried in the end.
    for start in [*starts, *names]:
        pending = [start]
        while pending:
            name = pending.pop()
            if name not in order:
                order[name] = None
                pending += reversed(after.get(name, []))
    return list(order)


def _first_record(path: Path, key: AuditKey | None) -> AuditRecord | None:
    try:
        return next((parse(piece.removesuffix(b"\n"), key) for _, piece in _pieces(path)), None)
    except OSError:
        # The walk over the days meets the same error, and reports it.
        return None


class Findings:
    """Findings, each place and kind once, with the first reason given; a flood is only counted."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, int, str], AuditFinding] = {}
        self.unlisted = 0

    def note(self, file: str, line: int, what: str, reason: str) -> None:
        if len(self.found) >= FINDINGS_MAX:
            self.unlisted += 1
        else:
            self.found.setdefault((file, line, what), AuditFinding(file, line, what, reason))

    def concern(self, file: str) -> bool:
        return any(finding.file == file for finding in self.found.values())

    def require_none(self, folder: Path) -> None:
        for finding in self.found.values():
            path = folder / finding.file
            place = f"{path}, line {finding.line}" if finding.line else str(path)
            more = len(self.found) + self.unlisted - 1
            reason = f"{finding.what}: {finding.reason}" + (f" (and {more} more)" if more else "")
            raise AuditCorrupt(path=path, line=finding.line, place=place, reason=reason)


class _Bad(msgspec.Struct):
    """A run of bad lines in one file, not yet judged. `whole`: one of them is a complete JSON object."""

    file: str
    line: int
    line_last: int
    whole: bool = False


class Walk:
    """Reads days in order, line by line, in constant memory: yields the good records and notes all else.

    With `whole` false, accepts the first record as it is, without reading what is before it.
    """

    def __init__(
        self, folder: Path, key: AuditKey | None, *, whole: bool = True, findings: Findings | None = None
    ) -> None:
        self.folder = folder
        self.names = in_order(folder, key) if whole else day_files(folder)
        self.tail: Tail | None = None
        self._places = {name: place for place, name in enumerate(self.names)}
        self._sizes: dict[str, int] = {}
        self._recorded: set[str] = set()
        self.torn: list[TornRecord] = []
        self.findings = findings or Findings()
        self._key = key
        self._anchored = whole
        self._bad: list[_Bad] = []

    def day(self, name: str, feed: Callable[[bytes], object] = len) -> Iterator[tuple[bytes, AuditRecord]]:
        """`feed` gets every byte of the file, in pieces, each before the record that it ends."""
        self._sizes[name] = 0
        try:
            for number, piece in _pieces(self.folder / name):
                self._sizes[name] += len(piece)
                feed(piece)
                line = piece.removesuffix(b"\n")
                record = parse(line, self._key)
                if record is None:
                    if not self._bad or self._bad[-1].file != name:
                        self._bad.append(_Bad(name, number, number))
                    bad = self._bad[-1]
                    bad.line_last = number
                    if not bad.whole and decode_json(line, dict[str, Any]) is not None:
                        bad.line, bad.whole = number, True
                    continue
                self._meet_good(name, number, record, started=name in self._recorded)
                self._recorded.add(name)
                yield line, record
        except OSError as error:
            self.findings.note(name, 0, "unreadable", error.strerror or str(error))

    def finish(self) -> None:
        """Judges bad lines at the very end, which nothing follows."""
        self._judge_bad(missed="")

    def note_strays(self) -> None:
        """Notes the files that are no days of this log, once all days are read and have no other finding."""
        for name in misnamed_files(self.folder):
            self.findings.note(name, 0, "added", "its name is no date, so nothing was ever written there")
        for name in self.names:
            if name not in self._recorded and not self.findings.concern(name):
                self.findings.note(name, 0, "added", "it does not start with a record, and no record follows it")

    def _meet_good(self, name: str, number: int, record: AuditRecord, started: bool) -> None:
        follows = self._follows(record, name, started)
        if self._bad or not follows:
            missed = "" if follows else _file_of_the_record_before(record, name)
            explained = self._judge_bad(missed)
            if not follows and not explained:
                self._explain(name, number, record, started)
        if not started and record.previous is not None:
            self._check_size(name, record.previous)
        self._anchored = True
        written_as = record.file or (self.tail.file if self.tail and started else name)
        self.tail = Tail(written_as, record.seq, record.hmac)

    def _follows(self, record: AuditRecord, name: str, started: bool) -> bool:
        tail = self.tail
        if not self._anchored and record.seq == 0:
            return record.file == name
        if record.prev_hmac != (tail.hmac if tail else NO_HMAC):
            return False
        if started:
            return tail is not None and record.seq == tail.seq + 1
        before = (tail.file, tail.seq) if tail else None
        named = (record.previous.file, record.previous.seq) if record.previous else None
        return record.seq == 0 and record.file == name and named == before

    def _check_size(self, name: str, previous: Previous) -> None:
        """Checks a closed day's size: not even torn bytes may come or go there any more."""
        size = self._sizes.get(previous.file, previous.size)
        if size != previous.size and not self.findings.concern(previous.file):
            what = "added" if size > previous.size else "truncated"
            reason = f"it has {size} bytes, and had {previous.size} when {name} followed it"
            self.findings.note(previous.file, 0, what, reason)

    def _judge_bad(self, missed: str) -> bool:
        """Judges all pending bad lines as torn or edited. `missed`: the file without the record that the next follows.

        True if a bad region is in that file, and so explains what is missing there.
        """
        pending, self._bad = self._bad, []
        for bad in pending:
            lines = f"line {bad.line}" if bad.line == bad.line_last else f"lines {bad.line} to {bad.line_last}"
            if bad.whole:
                reason = f"{lines}: not signed with this key, or changed since"
                self.findings.note(bad.file, bad.line, "edited", reason)
            elif bad.file == missed:
                self.findings.note(bad.file, bad.line, "edited", f"{lines}: damaged, and a later record follows it")
            else:
                self.torn.append(TornRecord(bad.file, bad.line, bad.line_last))
        return any(bad.file == missed for bad in pending)

    def _explain(self, name: str, number: int, record: AuditRecord, started: bool) -> None:
        """Says what must have happened for a good record not to follow the one before it."""
        note, tail = self.findings.note, self.tail
        if record.file is not None and record.file != name:
            note(name, number, "renamed", f"it was written as {record.file}")
        elif started and tail is not None:
            if record.seq > tail.seq + 1:
                missing = f"records {tail.seq + 1} to {record.seq - 1} are missing before this line"
                note(name, number, "removed", missing)
            elif record.seq <= tail.seq:
                note(name, number, "reordered", f"record {record.seq} stands after record {tail.seq}")
            else:
                note(name, number, "edited", "it does not follow the record before it")
        elif record.seq != 0:
            note(name, number, "removed", f"records 0 to {record.seq - 1} of the day are missing")
        else:
            self._explain_the_day_before(name, number, record.previous)

    def _explain_the_day_before(self, name: str, number: int, previous: Previous | None) -> None:
        note, tail = self.findings.note, self.tail
        if previous is None:
            first = tail.file if tail else "another"
            note(name, number, "reordered", f"it was written as the first of all days, but {first} stands before it")
        elif previous.file not in self.names:
            note(previous.file, 0, "removed", f"{name} follows it")
        elif tail is None or self._stands_before(tail.file, previous.file):
            note(previous.file, 0, "truncated", f"no record is left, but {name} follows record {previous.seq} of it")
        elif self._stands_before(previous.file, tail.file):
            note(tail.file, 0, "added", f"{name} follows {previous.file}, and no day follows this one")
        elif previous.seq > tail.seq:
            note(tail.file, 0, "truncated", f"it ends with record {tail.seq}, but {name} follows record {previous.seq}")
        elif previous.seq < tail.seq:
            note(tail.file, 0, "added", f"it goes on to record {tail.seq}, but {name} follows record {previous.seq}")
        else:
            note(tail.file, 0, "edited", f"its last record is not the one that {name} follows")

    def _stands_before(self, one: str, other: str) -> bool:
        """Compares places, or dates where a renamed day was written under another name."""
        if one in self._places and other in self._places:
            return self._places[one] < self._places[other]
        return one < other


def _file_of_the_record_before(record: AuditRecord, name: str) -> str:
    if record.seq == 0 and record.file == name and record.previous is not None:
        return record.previous.file
    return name if record.seq else f"before {name}"


def _pieces(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines with their numbers and line ends; overlong lines in pieces."""
    number = 1
    with path.open("rb") as file:
        # A region of zeros may be of any size and have no line end, so no read is unbounded.
        while piece := file.readline(LINE_BYTES_MAX):
            yield number, piece
            number += piece.endswith(b"\n")


def last_first(folder: Path, key: AuditKey | None) -> Iterator[tuple[str, AuditRecord]]:
    """Every record with its day's file, the last one first. Lines that are no record are passed over."""
    for name in reversed(in_order(folder, key)):
        with disk.reading(folder / name):
            lines = (folder / name).read_bytes().splitlines()
        for line in reversed(lines):
            if (record := parse(line, key)) is not None:
                yield name, record
