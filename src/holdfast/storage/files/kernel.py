"""The system calls that change a disk.

They are one object, so that a simulated disk can replace all of them at once; and each is made in one way: short writes
continue where they stopped, a call that a signal interrupted is made again (but for `close`, which has done its work by
then), a failed sync never is, and an error names the operation and the path.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import TypeVar

from holdfast.errors import AlreadyExists, DiskError, DiskFault, DiskFull, FileMissing, SyncFailed

T = TypeVar("T")

# The modes of new files and folders. In the data root: only its owner reads there, whatever the umask.
OWN_FILE, OWN_FOLDER = 0o600, 0o700
# In the user's repository: the umask decides, as with any other program.
COMMON_FILE, COMMON_FOLDER = 0o666, 0o777
FOLDER = os.O_RDONLY | os.O_DIRECTORY
_SETTLED_MAX = 10_000
# Errors of an operation that would succeed on a sound machine.
_MACHINE = {errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENXIO, errno.ESTALE}
# The folders, by inode, whose entries this process knows to be durable.
_settled: set[tuple[Path, int, int]] = set()


class Kernel:
    """The real calls. `holdfast.testing.recorder` overrides those with lasting effects: to record, to fail or to die.

    `within`: a descriptor of the folder that `path` is in. The call is made there, wherever the path leads by now.
    """

    def open(self, path: Path, flags: int, mode: int = OWN_FILE, within: int | None = None) -> int:
        return os.open(_named(path, within), flags, mode, dir_fd=within)

    def close(self, fd: int) -> None:
        os.close(fd)

    # Straight to the system: these two are on the path of every durable append.
    write: Callable[[int, bytes | memoryview], int] = staticmethod(os.write)
    fdatasync: Callable[[int], None] = staticmethod(os.fdatasync)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def ftruncate(self, fd: int, length: int) -> None:
        os.ftruncate(fd, length)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def syncfs(self, fd: int) -> None:
        import ctypes  # only batches need it, and it takes a while to load

        if ctypes.CDLL(None, use_errno=True).syncfs(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def forget_cached(self, fd: int) -> None:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target)

    def symlink(self, target: Path, path: Path) -> None:
        os.symlink(target, path)

    def unlink(self, path: Path, within: int | None = None) -> None:
        os.unlink(_named(path, within), dir_fd=within)

    def mkdir(self, path: Path, mode: int = OWN_FOLDER) -> None:
        os.mkdir(path, mode)

    def rmdir(self, path: Path, within: int | None = None) -> None:
        os.rmdir(_named(path, within), dir_fd=within)


def _named(path: Path, within: int | None) -> Path | str:
    return path if within is None else path.name


calls = Kernel()


def write_all(fd: int, data: bytes, path: Path) -> None:
    try:
        written = calls.write(fd, data)
        while written < len(data):
            written += retried(calls.write, fd, memoryview(data)[written:])
    except InterruptedError:
        write_all(fd, data, path)
    except OSError as error:
        raise disk_error("write", path, error) from error


def perform_sync(act: Callable[[int], object], fd: int, operation: str, path: Path) -> None:
    try:
        act(fd)
    except OSError as error:
        forget_cached(fd)
        raise sync_failed(operation, path, error) from error


def sync_failed(operation: str, path: Path, error: OSError) -> SyncFailed:
    return SyncFailed(operation=operation, path=path, reason=error.strerror or str(error))


def perform(operation: str, path: Path, act: Callable[..., T], *args: object) -> T:
    try:
        return retried(act, *args)
    except OSError as error:
        raise disk_error(operation, path, error) from error


def retried(act: Callable[..., T], *args: object) -> T:
    while True:
        try:
            return act(*args)
        except InterruptedError:
            continue


def disk_error(operation: str, path: Path, error: OSError) -> DiskError:
    reason = error.strerror or str(error)
    if error.errno == errno.EEXIST:
        return AlreadyExists(operation=operation, path=path, reason=reason)
    if error.errno == errno.ENOENT:
        return FileMissing(operation=operation, path=path, reason=reason)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(operation=operation, path=path, reason=reason)
    if error.errno in _MACHINE:
        return DiskFault(operation=operation, path=path, reason=reason)
    return DiskError(operation=operation, path=path, reason=reason)


def forget_cached(fd: int) -> None:
    # Linux marks a page clean after a failed write-back: a later reader would take from memory what the disk never got.
    with contextlib.suppress(OSError):
        calls.forget_cached(fd)


def close(fd: int, path: Path) -> None:
    # Linux frees the descriptor before anything can interrupt the call: made again, it would close whatever another
    # thread has opened under that number since.
    try:
        calls.close(fd)
    except InterruptedError:
        pass
    except OSError as error:
        raise disk_error("close", path, error) from error


def is_at(fd: int, path: Path) -> bool:
    """Whether an open file has this name; false once it was removed, or another has its place."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


# -- what is never durable --------------------------------------------------------------------------------------------


def touch(path: Path) -> None:
    """Sets a file's time to now, and creates it when missing. Not synced: only for signals between living processes."""
    with opened(path, os.O_WRONLY | os.O_CREAT) as fd:
        perform("touch", path, os.utime, fd)


def open_log(path: Path) -> int:
    """Opens a file at its end, for the output of another process. Not synced: nothing depends on it."""
    return perform("open", path, calls.open, path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, OWN_FILE)


def in_memory(data: bytes) -> int:
    """A descriptor of a nameless file in memory, positioned at the beginning of `data`."""
    fd = os.memfd_create("holdfast")
    write_all(fd, data, Path("/proc/self/fd", str(fd)))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def write_kernel_file(path: Path, data: bytes) -> None:
    """Writes to a file that the kernel itself offers, like a control group's: there is no disk below it."""
    with opened(path, os.O_WRONLY) as fd:
        perform("write", path, os.write, fd, data)


def make_group(path: Path) -> None:
    """Makes a control group's folder, unless it exists."""
    with contextlib.suppress(AlreadyExists):
        perform("create the folder", path, os.mkdir, path)


def remove_group(path: Path) -> None:
    perform("remove the folder", path, os.rmdir, path)


# -- who may read -----------------------------------------------------------------------------------------------------


def close_to_others(root: Path, skipped: Container[Path]) -> None:
    """Takes the permissions on all below `root`, and at last on itself, from all but its owner; skips `skipped`.

    Uses descriptors, and follows no link: a process may work there. Not synced: the next run does it again.
    """
    for parent, folders, files, fd in os.fwalk(root, follow_symlinks=False):
        folders[:] = [name for name in folders if Path(parent, name) not in skipped]
        for name in files:
            with contextlib.suppress(OSError):
                _close_file(name, fd)
        if Path(parent) != root:
            os.fchmod(fd, OWN_FOLDER)
    perform("close to others", root, os.chmod, root, OWN_FOLDER)


def _close_file(name: str, folder: int) -> None:
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    try:
        found = os.fstat(fd)
        # A file with other names may belong to somebody else.
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            os.fchmod(fd, found.st_mode & OWN_FOLDER)
    finally:
        os.close(fd)


# -- folders, whose entries are durable once they were synced themselves -----------------------------------------------


def sync_path(path: Path, flags: int, sync: Callable[[int], object] | None = None) -> None:
    with opened(path, flags) as fd:
        perform_sync(sync or calls.fsync, fd, "sync", path)


@contextlib.contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    fd = perform("open", path, calls.open, path, flags)
    try:
        yield fd
    except BaseException:
        # The first error is the one to report.
        with contextlib.suppress(DiskError):
            close(fd, path)
        raise
    close(fd, path)


@contextlib.contextmanager
def changing(*folders: Path) -> Iterator[None]:
    """Makes a change of entries durable when the block ends: the first folder first.

    The folders are opened before the change, so that between it and the sync nothing can fail but the sync itself.
    """
    with contextlib.ExitStack() as stack:
        fds = {folder: stack.enter_context(opened(folder, FOLDER)) for folder in dict.fromkeys(folders)}
        yield
        for folder, fd in fds.items():
            perform_sync(calls.fsync, fd, "sync", folder)


def settle(folder: Path) -> None:
    """Makes the entry of a folder durable, once per process."""
    # What we may not even read, we cannot have made. A missing folder is an error of its user's call.
    if folder.is_dir() and _identity(folder) not in _settled and os.access(folder.parent, os.R_OK):
        sync_path(folder.parent, FOLDER)
        remember(folder)


def remember(folder: Path) -> None:
    if len(_settled) >= _SETTLED_MAX:
        _settled.clear()
    _settled.add(_identity(folder))


def _identity(folder: Path) -> tuple[Path, int, int]:
    found = perform("read", folder, folder.stat)
    return folder, found.st_dev, found.st_ino


def symlink(path: Path, target: Path) -> None:
    """Makes `path` a link to `target`. Not synced: only for what is made again after a crash."""
    perform("create the link", path, calls.symlink, target, path)


def empty(folder: Path) -> None:
    """Removes all below `folder`, symbolic links as such, and syncs nothing.

    Opens every folder from the one above it, never through a symbolic link: a folder that is swapped for a link
    meanwhile does not lead us elsewhere. Only one is open at a time, so any depth works. The way back up is `..`, and
    raises where that is another folder than the one that we came from.
    """
    try:
        fd = _open_folder(folder)
    except FileMissing:
        return None
    try:
        levels = [(folder, _place(fd), _remove_files(fd, folder))]
        while True:
            path, _, folders = levels[-1]
            if folders:
                inner = folders.pop()
                deeper = _open_or_remove(inner, fd)
                if deeper is not None:
                    fd = _exchange(fd, path, deeper)
                    levels.append((inner, _place(fd), _remove_files(fd, inner)))
                continue
            levels.pop()
            if not levels:
                return None
            try:
                fd = _exchange(fd, path, _open_folder(path / "..", fd))
            except FileMissing:
                # Another process has removed it, and perhaps its parent: once more, from the top.
                return empty(folder)
            if _place(fd) != levels[-1][1]:
                raise DiskError(operation="remove", path=path, reason="it was moved while it was being removed")
            with contextlib.suppress(FileMissing):
                perform("remove", path, calls.rmdir, path, fd)
    finally:
        close(fd, folder)


def _open_folder(path: Path, within: int | None = None) -> int:
    return perform("open", path, calls.open, path, FOLDER | os.O_NOFOLLOW, 0, within)


def _exchange(fd: int, path: Path, other: int) -> int:
    close(fd, path)
    return other


def _place(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _remove_files(fd: int, folder: Path) -> list[Path]:
    """Removes all but folders from an open folder; returns its folders."""
    with os.scandir(fd) as entries:
        found = [(folder / entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for path in (path for path, is_folder in found if not is_folder):
        with contextlib.suppress(FileMissing):
            perform("remove", path, calls.unlink, path, fd)
    return [path for path, is_folder in found if is_folder]


def _open_or_remove(path: Path, within: int) -> int | None:
    """Opens what was a folder just now; removes it if it no longer is one, or if it cannot be opened and is empty."""
    try:
        return _open_folder(path, within)
    except FileMissing:
        return None
    except DiskFault:
        raise
    except DiskError:
        with contextlib.suppress(FileMissing):
            mode = perform("read", path, lambda: os.stat(path.name, dir_fd=within, follow_symlinks=False)).st_mode
            perform("remove", path, calls.rmdir if stat.S_ISDIR(mode) else calls.unlink, path, within)
        return None
