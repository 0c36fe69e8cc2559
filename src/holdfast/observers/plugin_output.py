"""Keeps what plugins print off the screen: it goes to `runtime/logs/plugins.log`, with the plugin's name, and bounded.

`sys.stdout` and `sys.stderr` belong to the whole process, so they are replaced while plugins are called: what a
plugin's thread writes is collected, and what any other thread writes goes on as ever. What a plugin writes to the file
descriptors themselves, or has a program or a thread of its own write, is not caught.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO, cast

import msgspec

from holdfast.clock import wall
from holdfast.errors import HoldfastError
from holdfast.storage.files import disk
from holdfast.storage.records.redact import Scrubber

# Of one hook call, and of the file; of that, as much again is kept as plugins.log.1.
PRINTED_MAX, LOG_BYTES_MAX = 4000, 1 << 20
_sinks: dict[int, Printed] = {}


class Printed:
    """What one hook call printed: its beginning, and how much more there was."""

    def __init__(self) -> None:
        self._text = ""
        self._dropped = 0

    def write(self, text: str) -> None:
        room = PRINTED_MAX - len(self._text)
        self._text += text[:room]
        self._dropped += max(0, len(text) - room)

    def __str__(self) -> str:
        more = f" … and {self._dropped} more characters" if self._dropped else ""
        return f"{self._text.rstrip()}{more}"


class _Parted:
    """Writes to the stream that was there, but for threads that have a sink. It is no file object of Python's own: one
    of those would close the stream when it is collected."""

    def __init__(self, usual: TextIO) -> None:
        self._usual = usual

    def write(self, text: str) -> int:
        sink = _sinks.get(threading.get_ident())
        if sink is None:
            return self._usual.write(text)
        sink.write(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._usual, name)


@contextlib.contextmanager
def parted_output() -> Iterator[None]:
    """While here, threads inside `printed_by_this_thread` do not reach the screen."""
    before = sys.stdout, sys.stderr
    ours = tuple(cast("TextIO", _Parted(stream)) for stream in before)
    sys.stdout, sys.stderr = ours
    try:
        yield
    finally:
        if sys.stdout is ours[0]:
            sys.stdout = before[0]
        if sys.stderr is ours[1]:
            sys.stderr = before[1]


@contextlib.contextmanager
def printed_by_this_thread() -> Iterator[Printed]:
    thread = threading.get_ident()
    _sinks[thread] = printed = Printed()
    try:
        yield printed
    finally:
        _sinks.pop(thread, None)


class PluginLog:
    """`runtime/logs/plugins.log`: a JSON object a line. Nothing depends on it: it is not synced, and a disk that
    refuses it stops nobody."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._scrubber = Scrubber(())
        self._writing = threading.Lock()

    def write(self, plugin: str, event: str, **fields: Any) -> None:
        told = {name: value for name, value in fields.items() if value not in ("", None)}
        line = self._scrubber.clean({"ts": round(wall(), 6), "plugin": plugin, "event": event, **told})
        with self._writing, contextlib.suppress(HoldfastError, OSError):
            disk.mkdir(self._path.parent)
            if self._path.exists() and self._path.stat().st_size > LOG_BYTES_MAX:
                disk.rename(self._path, self._path.with_name(f"{self._path.name}.1"))
            file = disk.Appender(self._path, disk.open_log(self._path), 0)
            file.size = self._path.stat().st_size
            try:
                file.append(msgspec.json.encode(line) + b"\n")
            finally:
                file.close()
