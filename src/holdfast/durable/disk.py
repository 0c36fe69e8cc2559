"""The only door to the disk: every write, sync, rename, unlink and mkdir of Holdfast goes through this file.

What a function here returned from is on stable storage: file first, then every folder entry that leads to it. Short
writes go on where they stopped, and a call that a signal interrupted is made again; a sync that failed never is. Any
other error is a `DiskError` that names the operation and the path.

A file that is written whole is staged beside its target under a temporary name that carries its writer's identity, so
that `sweep` can tell a crash's leftovers from the work of a process that is still alive.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from holdfast.durable import process
from holdfast.durable.kernel import Kernel
from holdfast.errors import AlreadyExists, DiskError, DiskFull, FileMissing, Poisoned, SyncFailed

T = TypeVar("T")

_kernel = Kernel()
_serial = itertools.count()
_TEMP = re.compile(r"\.hf-(?P<pid>\d+)-(?P<ticks>\d+)-(?P<boot>[0-9a-f]{8})-\d+\.tmp")

# Before Linux 5.8 syncfs could swallow a write-back error, so older kernels sync file by file.
_SYNCFS_REPORTS_ERRORS = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2]) >= (5, 8)


@contextlib.contextmanager
def use_kernel(kernel: Kernel) -> Iterator[None]:
    """Sends every call of this process to another kernel, for the simulated disk."""
    global _kernel
    before, _kernel = _kernel, kernel
    try:
        yield
    finally:
        _kernel = before


# -- whole files ------------------------------------------------------------------------------------------------------


class Staged:
    """A temporary file that becomes visible, whole and durable, or not at all. Use as a context manager."""

    def __init__(self, folder: Path, mode: int = 0o644) -> None:
        self.path = folder / temp_name()
        self._fd = _call("create", self.path, _kernel.open, self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        self._published = False

    def write(self, data: bytes) -> None:
        write_all(self._fd, data, self.path)

    def sync(self) -> None:
        _sync(_kernel.fsync, self._fd, "sync", self.path)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            _call("close", self.path, _kernel.close, fd)

    def publish(self, target: Path) -> None:
        """Gives the content its name, replacing what stood there."""
        self.sync()
        self.rename(target)
        sync_folder(target.parent)

    def publish_new(self, target: Path) -> None:
        """Gives the content its name, or raises AlreadyExists: of several writers exactly one succeeds."""
        self.sync()
        self.link(target)
        sync_folder(target.parent)

    def rename(self, target: Path) -> None:
        """Only the rename: the caller has synced the content, and syncs the folder before it acknowledges."""
        self.close()
        _call("rename to", target, _kernel.rename, self.path, target)
        self._published = True

    def link(self, target: Path) -> None:
        """Like `rename`, but raises AlreadyExists rather than replace anything."""
        self.close()
        _call("create", target, _kernel.link, self.path, target)
        self._published = True
        _call("unlink", self.path, _kernel.unlink, self.path)

    def __enter__(self) -> Staged:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # After a failure the leftover is swept at the next start anyway, and the first error is the one to show.
        with contextlib.suppress(DiskError):
            self.close()
        if not self._published:
            with contextlib.suppress(DiskError):
                _call("unlink", self.path, _kernel.unlink, self.path)


def replace(path: Path, data: bytes | Iterable[bytes], mode: int = 0o644) -> None:
    """Puts `data` at `path`: after a crash it holds the old content or the new, never a part of either."""
    with Staged(path.parent, mode) as staged:
        for piece in [data] if isinstance(data, bytes) else data:
            staged.write(piece)
        staged.publish(path)


def create(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Creates `path` with `data`, or raises AlreadyExists. It appears whole: nobody ever sees it half-written."""
    with Staged(path.parent, mode) as staged:
        staged.write(data)
        staged.publish_new(path)


class Batch:
    """Many staged files of one filesystem, published together for the price of two syncs."""

    def __init__(self, filesystem: Path) -> None:
        self._filesystem = filesystem
        self._staged: list[tuple[Staged, Path, bool]] = []
        self._grown: set[Path] = set()
        # Opened before anything is written, so that a write-back error of ours is reported through it.
        self._fd = _call("open", filesystem, _kernel.open, filesystem, os.O_RDONLY | os.O_DIRECTORY)

    def add(self, target: Path, data: bytes, *, keep: bool = False) -> None:
        """`keep`: when `target` exists by the time of publishing, it stays and `data` is dropped."""
        staged = Staged(target.parent)
        self._staged.append((staged, target, keep))
        staged.write(data)

    def add_folder(self, path: Path) -> None:
        """Makes a folder when it is missing; its entry is durable when the batch is published."""
        if not path.is_dir():
            with contextlib.suppress(AlreadyExists):
                _call("create the folder", path, _kernel.mkdir, path, 0o755)
        self._grown.add(path.parent)

    def publish(self) -> None:
        if _SYNCFS_REPORTS_ERRORS:
            _sync(_kernel.syncfs, self._fd, "sync the filesystem of", self._filesystem)
            self._name_all()
            _sync(_kernel.syncfs, self._fd, "sync the filesystem of", self._filesystem)
        else:
            for staged, _, _ in self._staged:
                staged.sync()
            self._name_all()
            for folder in self._grown | {target.parent for _, target, _ in self._staged}:
                sync_folder(folder)

    def _name_all(self) -> None:
        for staged, target, keep in self._staged:
            if keep:
                with contextlib.suppress(AlreadyExists):
                    staged.link(target)
            else:
                staged.rename(target)

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for staged, _, _ in self._staged:
            staged.__exit__(kind, error, at)
        _kernel.close(self._fd)


# -- appending --------------------------------------------------------------------------------------------------------


class Appender:
    """An open file that only grows. The first failed write or sync poisons it: every later call raises Poisoned."""

    def __init__(self, path: Path, fd: int, size: int) -> None:
        self.path = path
        self.size = size
        self._fd = fd
        self._failure: DiskError | None = None

    def append(self, data: bytes) -> None:
        """Hands `data` to the kernel; it is durable only once `sync` returned."""
        self._refuse_if_poisoned()
        try:
            write_all(self._fd, data, self.path)
        except DiskError as failure:
            self._failure = failure
            raise
        self.size += len(data)

    def sync(self) -> None:
        self._refuse_if_poisoned()
        try:
            _sync(_kernel.fdatasync, self._fd, "sync", self.path)
        except DiskError as failure:
            self._failure = failure
            _forget_cached(self._fd)
            raise

    def _refuse_if_poisoned(self) -> None:
        if self._failure is not None:
            raise Poisoned(path=self.path, reason=self._failure.facts["reason"]) from self._failure

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            _call("close", self.path, _kernel.close, fd)


def open_append(path: Path, *, exclusive: bool = False, mode: int = 0o644) -> Appender:
    """Opens `path` for appending and makes its folder entry durable. `exclusive` demands that it is new."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | (os.O_EXCL if exclusive else 0)
    fd = _call("open", path, _kernel.open, path, flags, mode)
    try:
        size = os.fstat(fd).st_size
        sync_folder(path.parent)
    except BaseException:
        _kernel.close(fd)
        raise
    return Appender(path, fd, size)


def rewrite(fd: int, data: bytes, path: Path) -> None:
    """Overwrites an open file in place and syncs it. A crash may tear it: only for content that can be lost."""
    written = 0
    while written < len(data):
        written += _call("write", path, _kernel.pwrite, fd, data[written:], written)
    _call("truncate", path, _kernel.ftruncate, fd, len(data))
    _sync(_kernel.fsync, fd, "sync", path)


def open_lock_file(path: Path) -> int:
    """A descriptor to flock: the file is created when missing and never truncated."""
    return _call("open", path, _kernel.open, path, os.O_RDWR | os.O_CREAT, 0o644)


def close_lock_file(fd: int, path: Path) -> None:
    _call("close", path, _kernel.close, fd)


# -- folders and entries ----------------------------------------------------------------------------------------------


def mkdir(path: Path, mode: int = 0o755) -> None:
    """Creates `path` and what is missing above it; each new entry is durable in its parent before the next."""
    if path.is_dir():
        return
    if path.parent != path:
        mkdir(path.parent, mode)
    try:
        _call("create the folder", path, _kernel.mkdir, path, mode)
    except AlreadyExists:
        if not path.is_dir():
            raise
    sync_folder(path.parent)


def rename(source: Path, target: Path) -> None:
    """Moves `source` to `target`, also across folders. The new entry is durable before the old one is gone."""
    _call("rename to", target, _kernel.rename, source, target)
    sync_folder(target.parent)
    if source.parent != target.parent:
        sync_folder(source.parent)


def unlink(path: Path, *, missing_ok: bool = False) -> None:
    if missing_ok and not os.path.lexists(path):
        return
    _call("unlink", path, _kernel.unlink, path)
    sync_folder(path.parent)


def rmdir(path: Path) -> None:
    _call("remove the folder", path, _kernel.rmdir, path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Makes the entries of a folder durable."""
    _sync_path(path, os.O_RDONLY | os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """Makes the content of a file durable that another process wrote."""
    _sync_path(path, os.O_RDONLY)


def _sync_path(path: Path, flags: int, sync: Callable[[int], object] | None = None) -> None:
    fd = _call("open", path, _kernel.open, path, flags)
    try:
        _sync(sync or _kernel.fsync, fd, "sync", path)
    finally:
        _kernel.close(fd)


def sync_filesystem(folder: Path, paths: Iterable[Path]) -> None:
    """Makes all that other processes wrote on the filesystem of `folder` durable, by one call.

    A kernel that would hide an error from it gets `paths` instead, files and folders, one by one.
    """
    if _SYNCFS_REPORTS_ERRORS:
        _sync_path(folder, os.O_RDONLY | os.O_DIRECTORY, _kernel.syncfs)
    else:
        for path in paths:
            sync_file(path)


# -- leftovers of a crash ---------------------------------------------------------------------------------------------


def temp_name() -> str:
    """A name that no other process and no other call has, and that says whose it is."""
    me = process.current()
    return f".hf-{me.pid}-{me.start_ticks}-{me.boot_id[:8]}-{next(_serial)}.tmp"


def is_leftover(name: str) -> bool:
    """True for a temporary file whose writer has died."""
    found = _TEMP.fullmatch(name)
    if found is None:
        return False
    same_boot = found["boot"] == process.boot_id()[:8]
    return not (same_boot and process.start_ticks(int(found["pid"])) == int(found["ticks"]))


def sweep(folder: Path, *, skip: frozenset[str] = frozenset()) -> list[Path]:
    """Removes the temporary files that dead processes left below `folder`, and returns them.

    Folders named in `skip` are not entered. Files of living processes, and any other file, stay.
    """
    swept: list[Path] = []
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in skip]
        for name in filter(is_leftover, files):
            path = Path(parent, name)
            # Two processes may sweep at once: the other's success is as good as ours.
            with contextlib.suppress(FileMissing):
                _call("unlink", path, _kernel.unlink, path)
                swept.append(path)
    return swept


# -- the calls themselves ---------------------------------------------------------------------------------------------


def write_all(fd: int, data: bytes, path: Path) -> None:
    try:
        written = _kernel.write(fd, data)
        while written < len(data):
            written += _retried(_kernel.write, fd, memoryview(data)[written:])
    except InterruptedError:
        write_all(fd, data, path)
    except OSError as error:
        raise _disk_error("write", path, error) from error


def _sync(call: Callable[[int], object], fd: int, operation: str, path: Path) -> None:
    try:
        call(fd)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SyncFailed(operation=operation, path=path, reason=reason) from error


def _call(operation: str, path: Path, call: Callable[..., T], *args: object) -> T:
    try:
        return _retried(call, *args)
    except OSError as error:
        raise _disk_error(operation, path, error) from error


def _retried(call: Callable[..., T], *args: object) -> T:
    while True:
        try:
            return call(*args)
        except InterruptedError:
            continue


def _disk_error(operation: str, path: Path, error: OSError) -> DiskError:
    reason = error.strerror or str(error)
    if error.errno == errno.EEXIST:
        return AlreadyExists(operation=operation, path=path, reason=reason)
    if error.errno == errno.ENOENT:
        return FileMissing(operation=operation, path=path, reason=reason)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(operation=operation, path=path, reason=reason)
    return DiskError(operation=operation, path=path, reason=reason)


def _forget_cached(fd: int) -> None:
    # Linux marks a page clean after a failed write-back: a later reader would take from memory what the disk never got.
    with contextlib.suppress(OSError):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
