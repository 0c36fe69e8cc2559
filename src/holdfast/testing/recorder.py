"""The recording half of the simulated disk: a kernel that carries calls out, records them, fails on demand, or dies."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from holdfast.storage.files.kernel import Kernel


class PowerCut(BaseException):
    """The machine is gone. Not an Exception, so that no handler of the program survives it."""


# Folders are identified by path: their inode number may be that of a removed file.
FOLDER = -1
PAGE = 256


class Call(msgspec.Struct, frozen=True):
    """One recorded operation. `node` is a file's or folder's number; paths are relative to the recorder's root."""

    kind: str
    node: int = FOLDER
    path: str = ""
    target: str = ""
    offset: int = 0
    data: bytes = b""


class File:
    """`durable` is certain. The pages in `dirty` were written since the last sync, and may each be kept or lost.

    Those in `lost` were to be written by a failed sync: memory still has them and counts them as clean, so no later
    sync writes them, and whether the disk has them is unknown.
    """

    def __init__(self, durable: bytes = b"") -> None:
        self.durable = durable
        self.content = durable
        self.dirty: set[int] = set()
        self.lost: set[int] = set()

    def replay(self, call: Call, page: int) -> None:
        match call.kind:
            case "write":
                self._write(call.offset, call.data, page)
            case "truncate":
                self.content = self.content[: call.offset].ljust(call.offset, b"\0")
                self.dirty.add(call.offset // page)
            case "sync":
                self.sync(page)
            case "lost":
                self.lost |= self.dirty
                self.dirty.clear()
            case "forgotten":
                self.content = self._on_disk(page)
                self.lost.clear()

    def _write(self, offset: int, data: bytes, page: int) -> None:
        self.content = self.content[:offset].ljust(offset, b"\0") + data + self.content[offset + len(data) :]
        written = set(range(offset // page, (offset + len(data) - 1) // page + 1) if data else ())
        self.dirty |= written
        self.lost -= written

    def sync(self, page: int) -> None:
        self.durable = self._on_disk(page)
        self.dirty.clear()

    def _on_disk(self, page: int) -> bytes:
        """The content of the disk once all dirty pages have been written."""
        return self._with(dict.fromkeys(self.dirty, True), page) if self.lost else self.content

    def variants(self, page: int, choose: Callable[[int], list[tuple[bool, ...]]]) -> list[bytes]:
        pages = sorted(self.dirty | self.lost)
        found = [self._with(dict(zip(pages, kept, strict=True)), page) for kept in choose(len(pages))]
        if len(self.content) > len(self.durable):
            grown = self.content[len(self.durable) :]
            # The tail cut inside a page, and the size grown before any data arrived.
            found += [self.durable + grown[:cut] for cut in {1, len(grown) // 2, len(grown) - 1}]
            found.append(self.durable.ljust(len(self.content), b"\0"))
        elif len(self.content) < len(self.durable):
            found += [self.durable, self.content]
        return list(dict.fromkeys(found))

    def _with(self, kept: dict[int, bool], page: int) -> bytes:
        built = bytearray(self.durable)
        for number in sorted(number for number, keep in kept.items() if keep):
            start = number * page
            piece = self.content[start : start + page]
            if len(built) < start:
                built.extend(bytes(start - len(built)))
            built[start : start + len(piece)] = piece
        return bytes(built)


class Recorder(Kernel):
    """Carries out and records. Calls outside `root`, and calls that change nothing, are not recorded.

    Opening an existing file changes nothing, so no power cut falls there; but it can fail, and is counted by itself.

    A failed sync of a file loses what it was to write, as on a real disk. The program still reads it, from memory,
    until the cache is dropped. (A folder stays as it was: a filesystem that cannot write its own tables stops
    altogether.)
    """

    def __init__(self, root: Path, *, write_max: int | None = None) -> None:
        self.root = root
        self.calls: list[Call] = []
        self.marks: list[tuple[int, Any]] = []
        self.write_max = write_max
        self.opens: list[Call] = []
        self._faults: dict[int, int | None] = {}
        self._open_faults: dict[int, int] = {}
        self.fired: list[Call] = []
        self._dead = False
        self._mutex = threading.RLock()
        self._numbers = itertools.count()
        self._nodes: dict[tuple[int, int], int] = {}
        self._fds: dict[int, tuple[int, str]] = {}
        self.initial = [self._existing(path) for path in sorted(root.rglob("*"))]

    def mark(self, fact: Any) -> None:
        """Notes that the program acknowledged `fact` after the operations so far."""
        self.marks.append((len(self.calls), fact))

    def marked_before(self, count: int) -> list[Any]:
        return [fact for at, fact in self.marks if at <= count]

    def fail_at(self, index: int, code: int) -> None:
        """Makes operation `index` fail with an errno, without doing it."""
        self._faults[index] = code

    def fail_open_at(self, index: int, code: int) -> None:
        """Makes the opening of an existing file or folder, number `index` of these, fail with an errno."""
        self._open_faults[index] = code

    def die_at(self, index: int) -> None:
        """Cuts the power in place of operation `index`."""
        self._faults[index] = None

    # Each override: check for a fault before the operation, do it, record it.

    def open(self, path: Path, flags: int, mode: int = 0o666, within: int | None = None) -> int:
        inside = self._relative(path)
        if inside is None:
            return super().open(path, flags, mode, within)
        with self._mutex:
            creates = bool(flags & os.O_CREAT) and not os.path.lexists(path)
            if creates:
                self._before(Call("create", path=inside))
            else:
                self._before_opening(Call("open", path=inside))
            fd = super().open(path, flags, mode, within)
            node = self._node(os.fstat(fd), fresh=creates)
            self._fds[fd] = (node, inside)
            if creates:
                self.calls.append(Call("create", node, inside))
        return fd

    def close(self, fd: int) -> None:
        self._fds.pop(fd, None)
        super().close(fd)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        piece = bytes(data)[: self.write_max]
        with self._on_file("write", fd, os.fstat(fd).st_size, piece):
            return super().write(fd, piece)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        piece = data[: self.write_max]
        with self._on_file("write", fd, offset, piece):
            return super().pwrite(fd, piece, offset)

    def ftruncate(self, fd: int, length: int) -> None:
        with self._on_file("truncate", fd, length):
            super().ftruncate(fd, length)

    # A sync changes nothing that a living program can see: on the simulated disk it is only recorded.

    def fsync(self, fd: int) -> None:
        self._note_sync(fd)

    def fdatasync(self, fd: int) -> None:
        self._note_sync(fd)

    def syncfs(self, fd: int) -> None:
        with self._losing(set(self._nodes.values())), self._on_file("syncfs", fd):
            pass

    def forget_cached(self, fd: int) -> None:
        node, path = self._fds.get(fd, (FOLDER, ""))
        # Files that another program made since (git, say) are unknown here: their content, and what of it was synced.
        if node not in self._made():
            return
        with self._mutex:
            self.calls.append(Call("forgotten", node, path))
            content = self._replayed(node).content
            # Through /proc, as it may be open for reading only, or have no name any more.
            writing = super().open(Path(f"/proc/self/fd/{fd}"), os.O_WRONLY | os.O_TRUNC)
            try:
                while content:
                    content = content[super().write(writing, content) :]
            finally:
                super().close(writing)

    def _note_sync(self, fd: int) -> None:
        with self._losing({self._fds.get(fd, (FOLDER, ""))[0]}), self._on_file("sync", fd):
            pass

    @contextlib.contextmanager
    def _losing(self, nodes: set[int]) -> Iterator[None]:
        try:
            yield
        except OSError:
            self.calls += [Call("lost", node) for node in sorted(nodes & self._made())]
            raise

    def _made(self) -> set[int]:
        return {call.node for call in itertools.chain(self.initial, self.calls) if call.kind == "create"}

    def _replayed(self, node: int) -> File:
        """A file in memory and on disk, after all operations so far."""
        file = File()
        for call in itertools.chain(self.initial, self.calls):
            if call.kind == "create" and call.node == node:
                file = File(call.data)
            elif call.kind == "syncfs":
                file.sync(PAGE)
            elif call.node == node:
                file.replay(call, PAGE)
        return file

    def rename(self, source: Path, target: Path) -> None:
        with self._on_entry("rename", source, target):
            super().rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        with self._on_entry("link", source, target):
            super().link(source, target)

    def unlink(self, path: Path, within: int | None = None) -> None:
        with self._on_entry("unlink", path, path):
            super().unlink(path, within)

    def mkdir(self, path: Path, mode: int = 0o777) -> None:
        with self._on_entry("mkdir", path, path):
            super().mkdir(path, mode)

    def rmdir(self, path: Path, within: int | None = None) -> None:
        with self._on_entry("unlink", path, path):
            super().rmdir(path, within)

    @contextlib.contextmanager
    def _on_file(self, kind: str, fd: int, offset: int = 0, data: bytes = b"") -> Iterator[None]:
        if fd not in self._fds:
            yield
            return
        node, path = self._fds[fd]
        with self._recording(Call(kind, node, path, offset=offset, data=data)):
            yield

    @contextlib.contextmanager
    def _on_entry(self, kind: str, source: Path, target: Path) -> Iterator[None]:
        path, to = self._relative(source), self._relative(target)
        if path is None or to is None:
            yield
            return
        with self._recording(Call(kind, path=path, target=to)):
            yield

    @contextlib.contextmanager
    def _recording(self, call: Call) -> Iterator[None]:
        with self._mutex:
            self._before(call)
            yield
            self.calls.append(call)

    def _before(self, call: Call) -> None:
        index = len(self.calls)
        if self._dead:
            raise PowerCut
        if index in self._faults:
            self.fired.append(call)
            code = self._faults.pop(index)
            if code is None:
                self._dead = True
                raise PowerCut
            raise OSError(code, os.strerror(code), call.path)

    def _before_opening(self, call: Call) -> None:
        if self._dead:
            raise PowerCut
        code = self._open_faults.pop(len(self.opens), None)
        self.opens.append(call)
        if code is not None:
            self.fired.append(call)
            raise OSError(code, os.strerror(code), call.path)

    def _relative(self, path: Path) -> str | None:
        try:
            return str(Path(path).absolute().relative_to(self.root))
        except ValueError:
            return None

    def _node(self, found: os.stat_result, *, fresh: bool = False) -> int:
        if stat.S_ISDIR(found.st_mode):
            return FOLDER
        key = (found.st_dev, found.st_ino)
        # The filesystem gives the inode number of a removed file to the next new one.
        if fresh or key not in self._nodes:
            self._nodes[key] = next(self._numbers)
        return self._nodes[key]

    def _existing(self, path: Path) -> Call:
        relative = str(path.relative_to(self.root))
        if path.is_dir():
            return Call("mkdir", path=relative)
        return Call("create", self._node(path.stat()), relative, data=path.read_bytes())
