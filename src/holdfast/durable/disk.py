"""The only door to the disk: every write, sync, rename, unlink and mkdir of Holdfast goes through this file.

What a function here returned from is on stable storage: file first, then every folder entry that leads to it. Short
writes go on where they stopped, and a call that a signal interrupted is made again; a sync that failed never is. Any
other error is a `DiskError` that names the operation and the path.

A file that is written whole is staged beside its target under a temporary name that carries its writer's identity, so
that `sweep` can tell a crash's leftovers from the work of a process that is still alive.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType

from holdfast.durable import kernel, process
from holdfast.durable.kernel import (
    FOLDER,
    Kernel,
    changing,
    disk_error,
    forget_cached,
    perform,
    perform_sync,
    remember,
    retried,
    settle,
    sync_failed,
    sync_path,
    write_all,
)
from holdfast.durable.kernel import in_memory as in_memory
from holdfast.durable.kernel import open_log as open_log
from holdfast.durable.kernel import symlink as symlink
from holdfast.durable.kernel import touch as touch
from holdfast.errors import AlreadyExists, DiskError, FileMissing, InUse, Poisoned

_serial = itertools.count()
_TEMP = re.compile(r"\.hf-(?P<pid>\d+)-(?P<ticks>\d+)-(?P<boot>[0-9a-f]{8})-\d+\.tmp")

# Before Linux 5.8 syncfs could swallow a write-back error, so older kernels sync file by file.
_SYNCFS_REPORTS_ERRORS = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2]) >= (5, 8)


@contextlib.contextmanager
def use_kernel(other: Kernel) -> Iterator[None]:
    """Sends every call of this process to another kernel, for the simulated disk."""
    before, kernel.calls = kernel.calls, other
    try:
        yield
    finally:
        kernel.calls = before


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Names the path and the operation in an error of reading, which needs no door."""
    try:
        yield
    except OSError as error:
        raise disk_error("read", path, error) from error


# -- whole files ------------------------------------------------------------------------------------------------------


class Staged:
    """A temporary file that becomes visible, whole and durable, or not at all. Use as a context manager."""

    def __init__(self, folder: Path, mode: int = 0o644) -> None:
        self.path = folder / temp_name()
        self._fd = perform(
            "create", self.path, kernel.calls.open, self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode
        )
        self._published = False

    def write(self, data: bytes) -> None:
        write_all(self._fd, data, self.path)

    def sync(self) -> None:
        perform_sync(kernel.calls.fsync, self._fd, "sync", self.path)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            perform("close", self.path, kernel.calls.close, fd)

    def publish(self, target: Path) -> None:
        """Gives the content its name, replacing what stood there."""
        self.sync()
        with changing(target.parent):
            self.rename(target)

    def publish_new(self, target: Path) -> None:
        """Gives the content its name, or raises AlreadyExists: of several writers exactly one succeeds."""
        self.sync()
        with changing(target.parent):
            self.link(target)

    def rename(self, target: Path) -> None:
        """Only the rename: the caller has synced the content, and syncs the folder before it acknowledges."""
        self.close()
        perform("rename to", target, kernel.calls.rename, self.path, target)
        self._published = True

    def link(self, target: Path) -> None:
        """Like `rename`, but raises AlreadyExists rather than replace anything."""
        self.close()
        perform("create", target, kernel.calls.link, self.path, target)
        self._published = True
        perform("unlink", self.path, kernel.calls.unlink, self.path)

    def __enter__(self) -> Staged:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # After a failure the leftover is swept at the next start anyway, and the first error is the one to show.
        with contextlib.suppress(DiskError):
            self.close()
        if not self._published:
            with contextlib.suppress(DiskError):
                perform("unlink", self.path, kernel.calls.unlink, self.path)


def replace(path: Path, data: bytes | Iterable[bytes], mode: int = 0o644) -> None:
    """Puts `data` at `path`: after a crash it holds the old content or the new, never a part of either."""
    with Staged(path.parent, mode) as staged:
        for piece in [data] if isinstance(data, bytes) else data:
            staged.write(piece)
        staged.publish(path)


def replace_together(contents: Mapping[Path, bytes]) -> None:
    """Replaces several files, each atomically, with as little as possible between the first rename and the last."""
    with contextlib.ExitStack() as leftovers:
        staged = [(leftovers.enter_context(Staged(path.parent)), path) for path in contents]
        for temp, path in staged:
            temp.write(contents[path])
            temp.sync()
        with changing(*(path.parent for path in contents)):
            for temp, path in staged:
                temp.rename(path)


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
        self._fd = perform("open", filesystem, kernel.calls.open, filesystem, FOLDER)

    def add(self, target: Path, data: bytes, *, keep: bool = False) -> None:
        """`keep`: when `target` exists by the time of publishing, it stays and `data` is dropped."""
        staged = Staged(target.parent)
        self._staged.append((staged, target, keep))
        staged.write(data)

    def add_folder(self, path: Path) -> None:
        """Makes a folder when it is missing; its entry is durable when the batch is published."""
        if not path.is_dir():
            with contextlib.suppress(AlreadyExists):
                perform("create the folder", path, kernel.calls.mkdir, path, 0o755)
        self._grown.add(path.parent)

    def publish(self) -> None:
        if _SYNCFS_REPORTS_ERRORS:
            perform_sync(kernel.calls.syncfs, self._fd, "sync the filesystem of", self._filesystem)
            self._name_all()
            perform_sync(kernel.calls.syncfs, self._fd, "sync the filesystem of", self._filesystem)
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
        kernel.calls.close(self._fd)


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
        if self._failure is not None:
            raise self._poisoned() from self._failure
        try:
            write_all(self._fd, data, self.path)
        except DiskError as failure:
            self._failure = failure
            raise
        self.size += len(data)

    def sync(self) -> None:
        if self._failure is not None:
            raise self._poisoned() from self._failure
        try:
            kernel.calls.fdatasync(self._fd)
        except OSError as error:
            self._failure = sync_failed("sync", self.path, error)
            forget_cached(self._fd)
            raise self._failure from error

    def _poisoned(self) -> Poisoned:
        return Poisoned(path=self.path, reason=self._failure.reason if self._failure else "")

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            perform("close", self.path, kernel.calls.close, fd)


def open_append(path: Path, *, exclusive: bool = False, alone: bool = False, mode: int = 0o644) -> Appender:
    """Opens `path` for appending and makes its entry and that of its folder durable.

    `exclusive` demands that it is new. `alone` holds its lock until it is closed, or raises InUse.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | (os.O_EXCL if exclusive else 0)
    settle(path.parent)
    with contextlib.ExitStack() as undo:
        with changing(path.parent):
            fd = perform("open", path, kernel.calls.open, path, flags, mode)
            undo.callback(kernel.calls.close, fd)
            if alone:
                _take_lock(fd, path)
        size = os.fstat(fd).st_size
        undo.pop_all()
    return Appender(path, fd, size)


def _take_lock(fd: int, path: Path) -> None:
    try:
        retried(fcntl.flock, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever held the lock until now may have moved the file away since it was opened here.
        is_ours = os.path.samestat(os.fstat(fd), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        is_ours = False
    except OSError as error:
        raise disk_error("lock", path, error) from error
    if not is_ours:
        raise InUse(path=path)


def rewrite(fd: int, data: bytes, path: Path) -> None:
    """Overwrites an open file in place and syncs it. A crash may tear it: only for content that can be lost."""
    written = 0
    while written < len(data):
        written += perform("write", path, kernel.calls.pwrite, fd, data[written:], written)
    perform("truncate", path, kernel.calls.ftruncate, fd, len(data))
    perform_sync(kernel.calls.fsync, fd, "sync", path)


def open_lock_file(path: Path, mode: int = 0o644) -> int:
    """A descriptor to flock: the file is created when missing and never truncated."""
    return perform("open", path, kernel.calls.open, path, os.O_RDWR | os.O_CREAT, mode)


def close_lock_file(fd: int, path: Path) -> None:
    perform("close", path, kernel.calls.close, fd)


# -- folders and entries ----------------------------------------------------------------------------------------------


def mkdir(path: Path, mode: int = 0o755) -> None:
    """Creates `path` and what is missing above it; each entry is durable in its parent before the next is made.

    A folder that is there already is made certain of too, once in a process: its maker may not have synced it.
    """
    if not path.is_dir():
        if path.parent != path:
            mkdir(path.parent, mode)
        try:
            with changing(path.parent):
                perform("create the folder", path, kernel.calls.mkdir, path, mode)
            remember(path)
        except AlreadyExists:
            if not path.is_dir():
                raise
    settle(path)


def rename(source: Path, target: Path) -> None:
    """Moves `source` to `target`, also across folders. The new entry is durable before the old one is gone."""
    with changing(target.parent, source.parent):
        perform("rename to", target, kernel.calls.rename, source, target)


def unlink(path: Path, *, missing_ok: bool = False) -> None:
    if missing_ok and not os.path.lexists(path):
        return
    with changing(path.parent):
        perform("unlink", path, kernel.calls.unlink, path)


def rmdir(path: Path) -> None:
    with changing(path.parent):
        perform("remove the folder", path, kernel.calls.rmdir, path)


def remove_tree(path: Path) -> None:
    """Removes a folder and all below it. Only the removal of `path` itself is synced."""
    kernel.empty(path)
    rmdir(path)


def sync_folder(path: Path) -> None:
    """Makes the entries of a folder durable."""
    sync_path(path, FOLDER)


def sync_file(path: Path) -> None:
    """Makes the content of a file durable that another process wrote."""
    sync_path(path, os.O_RDONLY)


def sync_filesystem(folder: Path, paths: Iterable[Path]) -> None:
    """Makes all that other processes wrote on the filesystem of `folder` durable, by one call.

    A kernel that would hide an error from it gets `paths` instead, files and folders, one by one.
    """
    if _SYNCFS_REPORTS_ERRORS:
        sync_path(folder, FOLDER, kernel.calls.syncfs)
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


def sweep(folder: Path, *, skip: frozenset[str] = frozenset(), deep: bool = True) -> list[Path]:
    """Removes the temporary files that dead processes left below `folder`, and returns them.

    Folders named in `skip` are not entered; without `deep`, none is. Files of living processes and all others stay.
    """
    swept: list[Path] = []
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if deep and name not in skip]
        for name in filter(is_leftover, files):
            path = Path(parent, name)
            # Two processes may sweep at once: the other's success is as good as ours.
            with contextlib.suppress(FileMissing):
                perform("unlink", path, kernel.calls.unlink, path)
                swept.append(path)
    return swept
