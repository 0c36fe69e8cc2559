"""The only door to the disk: every write, sync, rename, unlink and mkdir of Holdfast goes through this file, with
`appender` for files that grow, on the calls of `kernel`.

When a function here returns, its work is on stable storage: the file first, then every folder entry that leads to it.
Short writes continue where they stopped, and a call that a signal interrupted is made again; a failed sync never is.
Any other error is a `DiskError` that names the operation and the path.

A file that is written whole is staged beside its target under a temporary name with its writer's identity, so that
`sweep` can tell a crash's leftovers from the files of a living process.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType

from holdfast import identity
from holdfast.errors import AlreadyExists, DiskError, FileMissing, SyncFailed
from holdfast.storage.files import filesystems, kernel
from holdfast.storage.files.appender import Appender as Appender
from holdfast.storage.files.appender import open_append as open_append
from holdfast.storage.files.kernel import (
    FOLDER,
    Kernel,
    changing,
    close,
    disk_error,
    forget_cached,
    opened,
    perform,
    perform_sync,
    remember,
    settle,
    sync_path,
    write_all,
)
from holdfast.storage.files.kernel import close_to_others as close_to_others
from holdfast.storage.files.kernel import in_memory as in_memory
from holdfast.storage.files.kernel import is_at as is_at
from holdfast.storage.files.kernel import make_group as make_group
from holdfast.storage.files.kernel import open_log as open_log
from holdfast.storage.files.kernel import remove_group as remove_group
from holdfast.storage.files.kernel import symlink as symlink
from holdfast.storage.files.kernel import touch as touch
from holdfast.storage.files.kernel import write_kernel_file as write_kernel_file

OWN_FILE, OWN_FOLDER = kernel.OWN_FILE, kernel.OWN_FOLDER
COMMON_FILE, COMMON_FOLDER = kernel.COMMON_FILE, kernel.COMMON_FOLDER
_serial = itertools.count()
# Above this number, one sync of the whole filesystem costs less than one for each file.
SYNCED_SINGLY_MAX = 64
_TRIES, _NAMED_AT_ONCE = 5, 200
_TEMP = re.compile(r"\.hf-(?P<pid>\d+)-(?P<ticks>\d+)-(?P<boot>[0-9a-f]{8})(?:-(?P<space>\d+))?-\d+\.tmp")


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
    """Turns an OSError of reading into a DiskError with path and operation. Reading needs no door."""
    try:
        yield
    except OSError as error:
        raise disk_error("read", path, error) from error


# -- whole files ------------------------------------------------------------------------------------------------------


class StagedFile:
    """A temporary file that becomes visible, whole and durable, or not at all. Use as a context manager."""

    def __init__(self, folder: Path, mode: int = OWN_FILE) -> None:
        self.path = folder / temp_name()
        self._fd = perform(
            "create", self.path, kernel.calls.open, self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode
        )
        self._published = False

    @property
    def descriptor(self) -> int:
        return self._fd

    def write(self, data: bytes) -> None:
        write_all(self._fd, data, self.path)

    def sync(self) -> None:
        perform_sync(kernel.calls.fsync, self._fd, "sync", self.path)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            close(fd, self.path)

    def publish(self, target: Path) -> None:
        """Gives the content its name, replacing any file of that name."""
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

    def __enter__(self) -> StagedFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # After a failure the leftover is swept at the next run anyway, and the first error is the one to show.
        with contextlib.suppress(DiskError):
            self.close()
        if not self._published:
            with contextlib.suppress(DiskError):
                perform("unlink", self.path, kernel.calls.unlink, self.path)


def replace(path: Path, data: bytes | Iterable[bytes], mode: int = OWN_FILE) -> None:
    """Writes `data` to `path`: after a crash it holds the old content or the new, never a part of either."""
    with StagedFile(path.parent, mode) as staged:
        for piece in [data] if isinstance(data, bytes) else data:
            staged.write(piece)
        staged.publish(path)


def replace_together(contents: Mapping[Path, bytes]) -> None:
    """Replaces several files, each atomically, with as little as possible between the first rename and the last."""
    with contextlib.ExitStack() as leftovers:
        staged = [(leftovers.enter_context(StagedFile(path.parent)), path) for path in contents]
        for temp, path in staged:
            temp.write(contents[path])
            temp.sync()
        with changing(*(path.parent for path in contents)):
            for temp, path in staged:
                temp.rename(path)


def create(path: Path, data: bytes, mode: int = OWN_FILE) -> None:
    """Creates `path` with `data`, or raises AlreadyExists. It appears whole: no reader sees it half-written."""
    with StagedFile(path.parent, mode) as staged:
        staged.write(data)
        staged.publish_new(path)


class Batch:
    """Many staged files of one filesystem, published together for the price of two syncs."""

    def __init__(self, filesystem: Path) -> None:
        self._filesystem = filesystem
        self._staged: list[tuple[StagedFile, Path, bool]] = []
        self._grown: set[Path] = set()
        # Opened before anything is written, so that a write-back error of ours is reported through it.
        self._fd = perform("open", filesystem, kernel.calls.open, filesystem, FOLDER)

    def add(self, target: Path, data: bytes, *, keep: bool = False) -> None:
        """`keep`: when `target` exists by the time of publishing, it stays and `data` is dropped."""
        staged = StagedFile(target.parent)
        self._staged.append((staged, target, keep))
        staged.write(data)

    def add_folder(self, path: Path) -> None:
        """Makes a folder when it is missing; its entry is durable when the batch is published."""
        if not path.is_dir():
            with contextlib.suppress(AlreadyExists):
                perform("create the folder", path, kernel.calls.mkdir, path, OWN_FOLDER)
        self._grown.add(path.parent)

    def publish(self) -> None:
        if filesystems.syncs_whole(self._filesystem):
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
        # All was synced before, or something else failed first.
        with contextlib.suppress(DiskError):
            close(self._fd, self._filesystem)


# -- files that are written in place -----------------------------------------------------------------------------------


def rewrite(fd: int, data: bytes, path: Path) -> None:
    """Overwrites an open file in place and syncs it. A crash may tear it: only for content that can be lost."""
    written = 0
    while written < len(data):
        written += perform("write", path, kernel.calls.pwrite, fd, data[written:], written)
    perform("truncate", path, kernel.calls.ftruncate, fd, len(data))
    perform_sync(kernel.calls.fsync, fd, "sync", path)


def open_lock_file(path: Path, mode: int = OWN_FILE) -> int:
    """A descriptor to flock: the file is created when missing and never truncated."""
    return perform("open", path, kernel.calls.open, path, os.O_RDWR | os.O_CREAT, mode)


def close_lock_file(fd: int, path: Path) -> None:
    close(fd, path)


# -- folders and entries ----------------------------------------------------------------------------------------------


def mkdir(path: Path, mode: int = OWN_FOLDER) -> None:
    """Creates `path` and its missing parents; each entry is durable in its parent before the next is made.

    An existing folder is synced too, once per process: its maker may not have done so.
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


def rename_together(moves: Mapping[Path, Path]) -> None:
    """Moves many files for one sync of each folder. A crash may leave some where they were."""
    folders = dict.fromkeys([target.parent for target in moves.values()] + [source.parent for source in moves])
    with changing(*folders):
        for source, target in moves.items():
            perform("rename to", target, kernel.calls.rename, source, target)


def unlink(path: Path, *, missing_ok: bool = False) -> None:
    if not missing_ok or os.path.lexists(path):
        with changing(path.parent):
            perform("unlink", path, kernel.calls.unlink, path)


def rmdir(path: Path) -> None:
    with changing(path.parent):
        perform("remove the folder", path, kernel.calls.rmdir, path)


def remove_tree(path: Path) -> None:
    """Removes a folder and all below it; syncs only the removal of `path` itself. Another process may do it too."""
    kernel.empty(path)
    with contextlib.suppress(FileMissing):
        rmdir(path)


def sync_folder(path: Path) -> None:
    """Makes the entries of a folder durable."""
    sync_path(path, FOLDER)


def sync_file(path: Path) -> None:
    """Makes the content of a file durable that another process wrote."""
    sync_path(path, os.O_RDONLY)


def sync_filesystem(folder: Path, paths: Iterable[Path]) -> None:
    """Makes everything that other processes wrote on the filesystem of `folder` durable, by one call.

    Where the kernel could hide an error of that call, or the filesystem ignores it, syncs `paths` instead, files and
    folders, one by one.
    """
    if not filesystems.syncs_whole(folder):
        for path in paths:
            sync_file(path)
        return
    try:
        sync_path(folder, FOLDER, kernel.calls.syncfs)
    except SyncFailed:
        for path in paths:
            with contextlib.suppress(DiskError), opened(path, os.O_RDONLY) as fd:
                forget_cached(fd)
        raise


def publish(files: Mapping[Path, Path]) -> None:
    """Gives files that another process wrote their names, source → target: none has its name before it is on disk.

    In the order given, so that files which refer to others come last. Existing targets are replaced.
    """
    sources = list(files)
    if len(sources) > SYNCED_SINGLY_MAX:
        sync_filesystem(sources[0].parent, sources)
    for source in sources if len(sources) <= SYNCED_SINGLY_MAX else ():
        sync_file(source)
    # In portions that stay far below the limit of open files.
    for first in range(0, len(sources), _NAMED_AT_ONCE):
        some = {source: files[source] for source in sources[first : first + _NAMED_AT_ONCE]}
        for tries_left in reversed(range(_TRIES)):
            # The user's `git gc` removes empty folders, also those that were just made.
            with contextlib.suppress(*[FileMissing] if tries_left else []):
                _give_names(some)
                break


def _give_names(files: Mapping[Path, Path]) -> None:
    """Skips files that already have their name; syncs their folders all the same."""
    folders = list(dict.fromkeys(target.parent for target in files.values()))
    for folder in folders:
        mkdir(folder, COMMON_FOLDER)
    with changing(*folders):
        for source, target in files.items():
            if os.path.lexists(source):
                perform("rename to", target, kernel.calls.rename, source, target)


# -- leftovers of a crash ---------------------------------------------------------------------------------------------


def temp_name() -> str:
    """A name that is unique among processes and calls, and that identifies its process."""
    me = identity.current()
    return f".hf-{me.pid}-{me.start_ticks}-{me.boot_id[:8]}-{identity.pid_namespace()}-{next(_serial)}.tmp"


def is_leftover(name: str) -> bool:
    """True for a temporary file whose writer has died.

    Whether a process of another pid namespace (a container's) lives is unknown here, so files of this boot stay.
    """
    found = _TEMP.fullmatch(name)
    if found is None:
        return False
    if found["boot"] != identity.boot_id()[:8]:
        return True
    if found["space"] not in (None, str(identity.pid_namespace())):
        return False
    return identity.start_ticks(int(found["pid"])) != int(found["ticks"])


def sweep(folder: Path, *, skip: frozenset[str] = frozenset(), deep: bool = True) -> list[Path]:
    """Removes the temporary files that dead processes left below `folder`, and returns them.

    Folders named in `skip` are not entered; without `deep`, none is. Files of living processes and all others stay.
    """
    swept: list[Path] = []
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if deep and name not in skip]
        for name in filter(is_leftover, files):
            path = Path(parent, name)
            # Another process may sweep at the same time and be faster.
            with contextlib.suppress(FileMissing):
                perform("unlink", path, kernel.calls.unlink, path)
                swept.append(path)
    return swept
