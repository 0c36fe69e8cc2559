"""The audit log: one file for each UTC day, every record signed and chained to the one before.

`audit/<YYYY-MM-DD>.jsonl` holds one JSON object per line, fields in this order:

    seq  [file  previous]  prev_hmac  timestamp  event  actor  details  hmac

`hmac` is the HMAC-SHA256 of the exact bytes of the line before `,"hmac"`, in hexadecimal: verifying needs no
re-serialising. `prev_hmac` is the hmac of the record before, also across days, and 64 zeros for the very first. A
day's first record (seq 0) also names its own `file` and the `previous` one, with the `seq` of its last record and its
`size` in bytes, so that a missing, renamed, cut or extended day is noticed even without a seal.

- An append returns only when its record is on stable storage. The first failed or interrupted one is final.
- One process writes at a time (it holds the data root's lock); its threads share one `AuditLog`.
- A day's file appears together with its first record, so a file without one is not part of this log.
- Torn is not corrupt: a crash may leave half a line, or zeros where pages were lost. The next record starts on a fresh
  line, and `verify` tells the two apart.
- A day is closed as soon as another follows it. After a step back of the clock the log continues in its last day, if
  that is at most DAYS_AHEAD_MAX days ahead. A last day further ahead comes from a clock that was wrong: the log
  continues in the first day from today on that has no file, and the links, not the dates, order the days.

Nothing protects the end of the chain: that the newest records were cut off at a line's end, or that the newest days
were removed altogether, only a seal that covers them shows (`seals`), and that the newest seals were removed with them,
only a root that is kept elsewhere.
"""

from __future__ import annotations

import datetime
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from holdfast.clock import wall
from holdfast.errors import DiskError, InputError, Poisoned
from holdfast.storage.audit.days import date_of, moment, name_of
from holdfast.storage.audit.key import AuditKey
from holdfast.storage.audit.verify import (
    LINE_BYTES_MAX,
    NO_HMAC,
    AuditRecord,
    Previous,
    Tail,
    Walk,
    in_order,
)
from holdfast.storage.files import disk

DAYS_AHEAD_MAX = 2


class AuditLog:
    """Appends to the last day. Opening it verifies that day, and refuses a damaged one."""

    def __init__(self, folder: Path, key: AuditKey, *, clock: Callable[[], float] = wall) -> None:
        self._folder = folder
        self._key = key
        self._clock = clock
        self._mutex = threading.Lock()
        self._appender: disk.Appender | None = None
        self._unsure = ""
        disk.mkdir(folder)
        self._tail = _last_record(folder, key)
        self._tail_size = 0
        if self._tail is not None:
            # A record that a dead process wrote but never synced could still be lost, so it is synced before the next.
            path = folder / self._tail.file
            disk.sync_file(path)
            disk.sync_folder(folder)
            with disk.reading(path):
                self._tail_size = path.stat().st_size

    def append(self, event: str, actor: str, details: dict[str, Any] | None = None) -> AuditRecord:
        """Writes one record, and returns it when it is on stable storage."""
        with self._mutex:
            if self._unsure:
                raise Poisoned(path=self._folder, reason=self._unsure)
            now = self._clock()
            name = self._file_for(moment(now).date())
            content = {"timestamp": now, "event": event, "actor": actor, "details": details or {}}
            line, record = self._next(name, content)
            # Stays set when anything below raises: the record may be on disk all the same, and only a new run can
            # find out.
            self._unsure = "a write was interrupted"
            try:
                self._write(name, line + b"\n")
            except DiskError as failure:
                self._unsure = failure.reason
                raise
            self._tail = Tail(name, record.seq, record.hmac)
            self._unsure = ""
            return record

    def _file_for(self, today: datetime.date) -> str:
        last = date_of(self._tail.file) if self._tail else None
        if last is not None and 0 <= (last - today).days <= DAYS_AHEAD_MAX:
            return name_of(last)
        day = today
        while day != last and os.path.lexists(self._folder / name_of(day)):
            if day == datetime.date.max:
                raise InputError(detail=f"the audit log {self._folder} has a file for each day from {today} on")
            day += datetime.timedelta(days=1)
        return name_of(day)

    def _next(self, name: str, content: dict[str, Any]) -> tuple[bytes, AuditRecord]:
        tail = self._tail
        if tail is not None and tail.file == name:
            head: dict[str, Any] = {"seq": tail.seq + 1}
        else:
            head = {"seq": 0, "file": name, "previous": tail and Previous(tail.file, tail.seq, self._tail_size)}
        head["prev_hmac"] = tail.hmac if tail else NO_HMAC
        try:
            line = self._key.signed(head | content)
            record = msgspec.json.decode(line, type=AuditRecord)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InputError(detail=f"the audit record cannot be written as JSON ({error})") from error
        if len(line) >= LINE_BYTES_MAX:
            detail = f"an audit record of {len(line)} bytes is too long; keep it below {LINE_BYTES_MAX}, or name a blob"
            raise InputError(detail=detail)
        return line, record

    def _write(self, name: str, data: bytes) -> None:
        path = self._folder / name
        if self._tail is None or self._tail.file != name:
            self.close()
            disk.create(path, data)
            self._tail_size = len(data)
            return
        if self._appender is None:
            self._appender = disk.open_append(path)
            if _ends_inside_a_line(path):
                data = b"\n" + data
        self._appender.append(data)
        self._appender.sync()
        self._tail_size = self._appender.size

    def close(self) -> None:
        appender, self._appender = self._appender, None
        if appender is not None:
            appender.close()

    def __enter__(self) -> AuditLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _last_record(folder: Path, key: AuditKey) -> Tail | None:
    """The record that the next one follows. Reads only the last day that has one whole; it must be sound."""
    for name in reversed(in_order(folder, key)):
        walk = Walk(folder, key, whole=False)
        for _ in walk.day(name):
            pass
        walk.finish()
        walk.findings.require_none(folder)
        if walk.tail is not None:
            return walk.tail
    return None


def _ends_inside_a_line(path: Path) -> bool:
    with disk.reading(path), path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 1))
        return file.read(1) not in (b"", b"\n")
