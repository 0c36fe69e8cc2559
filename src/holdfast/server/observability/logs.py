"""`runtime/logs/server.log`: what the server did, one JSON object per line, for people and for log collectors.

A thread of its own writes, so that a slow disk keeps nobody waiting: lines that come faster than it takes them are
counted, and left out. Secrets are scrubbed before anything is written. Nothing depends on the log, so it is not synced,
and a disk that refuses it stops nobody.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from pathlib import Path
from typing import Any, Literal

import msgspec

from holdfast.clock import wall
from holdfast.errors import HoldfastError
from holdfast.storage.files import disk
from holdfast.storage.records.redact import Scrubber

Level = Literal["info", "warning", "error"]
BYTES_MAX = 8 << 20
KEPT = 3
WAITING_MAX = 10_000
BATCH_MAX = 500
TEXT_MAX = 1000
_encode = msgspec.json.Encoder(enc_hook=str).encode


class ServerLog:
    """`secrets`: values that must never be written, beside all that looks like one."""

    def __init__(self, path: Path, *secrets: str, bytes_max: int = BYTES_MAX) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._scrubber = Scrubber(secrets)
        self._lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._dropped = 0
        self._file: disk.Appender | None = None
        self._thread = threading.Thread(target=self._serve, name="log", daemon=True)
        self._thread.start()

    def register(self, *secrets: str) -> None:
        """More that must never be written."""
        self._scrubber.register(*secrets)

    def write(self, event: str, level: Level = "info", **fields: Any) -> None:
        """From any thread, at once. A field that is empty is left out."""
        if self._lines.qsize() >= WAITING_MAX:
            self._dropped += 1
            return
        told = {name: value for name, value in fields.items() if value not in ("", None)}
        self._lines.put({"ts": round(wall(), 6), "level": level, "event": event, **told})

    def close(self) -> None:
        """Returns when all is written."""
        self._lines.put(None)
        self._thread.join()

    def _serve(self) -> None:
        is_last = False
        while not is_last:
            batch = [self._lines.get()]
            with contextlib.suppress(queue.Empty):
                while batch[-1] is not None and len(batch) < BATCH_MAX:
                    batch.append(self._lines.get_nowait())
            is_last = batch[-1] is None
            if dropped := self._dropped:
                self._dropped -= dropped
                batch.insert(0, {"ts": wall(), "level": "warning", "event": "lines_dropped", "count": dropped})
            content = b"".join(self._encoded(line) for line in batch if line is not None)
            # The journal reports a full disk; the log only stops.
            with contextlib.suppress(HoldfastError):
                self._append(content)
        if self._file is not None:
            with contextlib.suppress(HoldfastError):
                self._file.close()

    def _encoded(self, line: dict[str, Any]) -> bytes:
        """Scrubbed first and cut then: the beginning of a secret looks like none."""
        clean = self._scrubber.clean(line).items()
        cut = {name: value[:TEXT_MAX] if isinstance(value, str) else value for name, value in clean}
        return _encode(cut) + b"\n"

    def _append(self, content: bytes) -> None:
        file = self._file or self._open()
        if file.size >= self._bytes_max:
            self._rotate()
            file = self._open()
        try:
            file.append(content)
        except HoldfastError:
            # Opened anew for the next line: it may fit again by then.
            self._close()
            raise

    def _open(self) -> disk.Appender:
        disk.mkdir(self._path.parent)
        self._file = disk.Appender(self._path, disk.open_log(self._path), 0)
        self._file.size = self._path.stat().st_size
        return self._file

    def _rotate(self) -> None:
        self._close()
        names = [self._path, *(self._path.with_name(f"{self._path.name}.{number}") for number in range(1, KEPT + 1))]
        for older, newer in zip(reversed(names[1:]), reversed(names[:-1]), strict=True):
            if newer.exists():
                disk.rename(newer, older)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
