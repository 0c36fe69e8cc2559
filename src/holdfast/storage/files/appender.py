"""The part of the door for append-only files. Other modules import it from `disk`."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from holdfast.errors import DiskError, InUse, Poisoned
from holdfast.storage.files import kernel
from holdfast.storage.files.kernel import (
    FOLDER,
    OWN_FILE,
    changing,
    close,
    disk_error,
    forget_cached,
    perform,
    perform_sync,
    retried,
    settle,
    sync_failed,
    sync_path,
    write_all,
)


class Appender:
    """An open append-only file. The first write or sync that fails or is interrupted poisons it: every later call
    raises Poisoned."""

    def __init__(self, path: Path, fd: int, size: int) -> None:
        self.path = path
        self.size = size
        self._fd = fd
        self._unsure = ""
        self._failure: DiskError | None = None

    def append(self, data: bytes) -> None:
        """Hands `data` to the kernel; it is durable only once `sync` returned."""
        if self._unsure:
            raise self._poisoned() from self._failure
        # Stays set when a signal handler raises in the middle: how much was written is then unknown.
        self._unsure = "a write was interrupted"
        try:
            write_all(self._fd, data, self.path)
        except DiskError as failure:
            self._unsure, self._failure = failure.reason, failure
            raise
        self.size += len(data)
        self._unsure = ""

    def sync(self) -> None:
        if self._unsure:
            raise self._poisoned() from self._failure
        self._unsure = "a sync was interrupted"
        try:
            kernel.calls.fdatasync(self._fd)
        except OSError as error:
            failure = sync_failed("sync", self.path, error)
            self._unsure, self._failure = failure.reason, failure
            forget_cached(self._fd)
            raise failure from error
        self._unsure = ""

    def is_in_place(self) -> bool:
        """False once the file was removed, or another has its name: what is appended then is lost."""
        return kernel.is_at(self._fd, self.path)

    def put_back(self) -> str:
        """Recreates a removed file with its content; returns what was done, as a sentence."""
        if os.path.lexists(self.path):
            return "Another file stands in its place, and was left."
        content = Path(f"/proc/self/fd/{self._fd}").read_bytes()[: self.size]
        fd = perform("create", self.path, kernel.calls.open, self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWN_FILE)
        try:
            write_all(fd, content, self.path)
            perform_sync(kernel.calls.fsync, fd, "sync", self.path)
        finally:
            close(fd, self.path)
        sync_path(self.path.parent, FOLDER)
        return "What it held is put back: every entry that was acknowledged is there."

    def _poisoned(self) -> Poisoned:
        return Poisoned(path=self.path, reason=self._unsure)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            close(fd, self.path)


def open_append(path: Path, *, exclusive: bool = False, alone: bool = False, mode: int = OWN_FILE) -> Appender:
    """Opens `path` for appending and makes its entry and that of its folder durable.

    `exclusive`: it must be new. `alone`: holds its lock until it is closed, or raises InUse.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | (os.O_EXCL if exclusive else 0)
    settle(path.parent)
    with contextlib.ExitStack() as undo:
        with changing(path.parent):
            fd = perform("open", path, kernel.calls.open, path, flags, mode)
            undo.callback(close, fd, path)
            if alone:
                _lock_alone(fd, path)
        size = os.fstat(fd).st_size
        undo.pop_all()
    return Appender(path, fd, size)


def _lock_alone(fd: int, path: Path) -> None:
    try:
        retried(fcntl.flock, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The previous holder of the lock may have moved the file away since it was opened here.
        is_ours = kernel.is_at(fd, path)
    except BlockingIOError:
        is_ours = False
    except OSError as error:
        raise disk_error("lock", path, error) from error
    if not is_ours:
        raise InUse(path=path)
