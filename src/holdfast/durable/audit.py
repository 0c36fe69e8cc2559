"""The audit log: who did what, one file for each UTC day, every record signed and chained to the one before.

`audit/<YYYY-MM-DD>.jsonl` holds one JSON object per line, fields in this order:

    seq  [file  previous]  prev_hmac  timestamp  event  actor  details  hmac

`hmac` is the HMAC-SHA256 of the exact bytes of the line before `,"hmac"`, in hexadecimal: verifying needs no
re-serialising. `prev_hmac` is the hmac of the record before, also across days, and 64 zeros for the very first. A
day's first record (seq 0) also names its own `file` and the `previous` one with the seq of its last record, so that a
day that is missing, renamed, cut or extended is seen even without a seal.

- An append returns only when its record is on stable storage. The first failed write or sync is final.
- One process writes at a time (it holds the data root's lock); its threads share one `Log`.
- No record is ever written into an older file than the newest, whatever the clock says.
- Torn is not corrupt: a crash may leave half a line, or zeros where pages were lost. The next record starts on a fresh
  line, and `audit_chain` tells the two apart.

A cut exactly at a line's end of the newest day can only be seen against a seal (`seals`).
"""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from holdfast.durable import disk
from holdfast.durable.audit_chain import LINE_BYTES_MAX, NO_HMAC, Previous, Record, Tail, Walk, day_files, decode_record
from holdfast.durable.audit_key import Key
from holdfast.errors import DiskError, InputError, Poisoned


class Log:
    """Appends to the newest day. Opening it verifies that day, and refuses a damaged one."""

    def __init__(self, folder: Path, key: Key, *, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._key = key
        self._clock = clock
        self._mutex = threading.Lock()
        self._appender: disk.Appender | None = None
        self._failure: DiskError | None = None
        disk.mkdir(folder)
        names = day_files(folder)
        self._newest = names[-1] if names else ""
        self._tail = _last_record(folder, key, names)
        if self._tail is not None:
            # A record that a dead process wrote but never synced could still be lost, and nothing may follow it then.
            disk.sync_file(folder / self._tail.file)

    def append(self, event: str, actor: str, details: dict[str, Any] | None = None) -> Record:
        """Writes one record, and returns it when it is on stable storage."""
        with self._mutex:
            if self._failure is not None:
                raise Poisoned(path=self._folder, reason=self._failure.facts["reason"]) from self._failure
            now = self._clock()
            today = datetime.datetime.fromtimestamp(now, datetime.UTC).strftime("%Y-%m-%d.jsonl")
            name = max(today, self._newest)
            content = {"timestamp": now, "event": event, "actor": actor, "details": details or {}}
            line, record = self._next(name, content)
            try:
                self._write(name, line + b"\n")
            except DiskError as failure:
                # The record may be on disk all the same: only a fresh start can tell.
                self._failure = failure
                raise
            self._tail = Tail(name, record.seq, record.hmac)
            return record

    def _next(self, name: str, content: dict[str, Any]) -> tuple[bytes, Record]:
        tail = self._tail
        if tail is not None and tail.file == name:
            head: dict[str, Any] = {"seq": tail.seq + 1}
        else:
            head = {"seq": 0, "file": name, "previous": Previous(tail.file, tail.seq) if tail else None}
        head["prev_hmac"] = tail.hmac if tail else NO_HMAC
        try:
            line = self._key.signed(head | content)
            record = decode_record(line)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InputError(detail=f"the audit record cannot be written as JSON ({error})") from error
        if len(line) >= LINE_BYTES_MAX:
            detail = f"an audit record of {len(line)} bytes is too long; keep it below {LINE_BYTES_MAX}, or name a blob"
            raise InputError(detail=detail)
        return line, record

    def _write(self, name: str, data: bytes) -> None:
        path = self._folder / name
        if self._appender is None or self._appender.path != path:
            self.close()
            self._appender = disk.open_append(path)
            self._newest = name
            if _ends_inside_a_line(path):
                data = b"\n" + data
        self._appender.append(data)
        self._appender.sync()

    def close(self) -> None:
        appender, self._appender = self._appender, None
        if appender is not None:
            appender.close()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _last_record(folder: Path, key: Key, names: list[str]) -> Tail | None:
    """The record that the next one follows. Only the newest day that has one is read, and it must be sound."""
    for name in reversed(names):
        walk = Walk(folder, key, whole=False)
        for _ in walk.day(name):
            pass
        walk.finish()
        walk.findings.require_none(folder)
        if walk.tail is not None:
            return walk.tail
    return None


def _ends_inside_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 1))
        return file.read(1) not in (b"", b"\n")
