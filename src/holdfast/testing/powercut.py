"""A disk that can lose power after any operation.

`recorder.Recorder` replaces the kernel of `storage.files.disk`, carries every call out on a real folder and notes it.
`Crash` replays the first n calls into a model of what the platter must hold, what it may hold, and yields every disk
that a power cut at that moment could leave:

- of a file, each page written since its last sync may be new, old or zero, each by itself, so a later page can be kept
  while an earlier one is lost; the last page may be cut anywhere; the size may have grown before the data came;
- of a folder, each entry made, moved or removed since the folder's last sync may be there or not;
- a rename inside one folder is one change; across folders the old entry may outlive the new one, and syncing only the
  old folder may leave neither;
- what a file's failed sync was to write is not written by a later one either, unless it was written again.

That allows more than any one filesystem does. Code that holds here relies on what POSIX promises and on nothing else.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.storage.files.kernel import Kernel
from holdfast.testing.recorder import PAGE, Call, File, Recorder


def cuts(recorder: Recorder, **options: Any) -> Iterator[tuple[list[Any], dict[str, bytes | None]]]:
    """Every disk of every moment, with what had been acknowledged by then. Equal pairs come once."""
    seen: set[tuple[int, tuple[tuple[str, bytes | None], ...]]] = set()
    for count in range(len(recorder.calls) + 1):
        acknowledged = recorder.marked_before(count)
        for disk in Crash(recorder, count, **options).disks():
            key = (len(acknowledged), tuple(sorted(disk.items())))
            if key not in seen:
                seen.add(key)
                yield acknowledged, disk


class Folder:
    def __init__(self) -> None:
        self.durable: dict[str, File | Folder] = {}
        self.entries: dict[str, File | Folder] = {}
        self.pending: list[DiskChange] = []

    def change(self, *halves: tuple[str, File | Folder | None], needs: DiskChange | None = None) -> DiskChange:
        change = DiskChange(halves, needs)
        self.pending.append(change)
        change.apply(self.entries)
        return change

    def sync(self) -> None:
        for change in self.pending:
            change.apply(self.durable)
            change.certain = True
        self.pending.clear()


class DiskChange:
    """Entries set (or removed, None) as one step. `needs`: the other half of a rename across folders."""

    def __init__(self, halves: tuple[tuple[str, File | Folder | None], ...], needs: DiskChange | None) -> None:
        self.halves = halves
        self.needs = needs
        self.certain = False

    def apply(self, entries: dict[str, File | Folder]) -> None:
        for name, node in self.halves:
            if node is None:
                entries.pop(name, None)
            else:
                entries[name] = node


class Crash:
    """The disks that a power cut after the first `count` calls could leave."""

    def __init__(self, recorder: Recorder, count: int, *, page: int = PAGE, limit: int = 48, seed: int = 0) -> None:
        self._page = page
        self._limit = limit
        self._random = random.Random(f"{seed}/{count}")
        self.root = Folder()
        self._files: dict[int, File] = {}
        for call in recorder.initial:
            self._replay(call)
        self._sync_all()
        for call in recorder.calls[:count]:
            self._replay(call)

    def disks(self) -> Iterator[dict[str, bytes | None]]:
        """Each possible disk, as relative path → content (None: a folder). Equal ones come once."""
        seen: set[tuple[tuple[str, bytes | None], ...]] = set()
        for disk in self._combinations():
            key = tuple(sorted(disk.items()))
            if key not in seen:
                seen.add(key)
                yield disk

    def _replay(self, call: Call) -> None:
        match call.kind:
            case "create":
                file = self._files[call.node] = File(call.data)
                folder, name = self._entry(call.path)
                folder.change((name, file))
            case "write" | "truncate" | "lost" | "forgotten":
                self._files[call.node].replay(call, self._page)
            case "sync" if call.node in self._files:
                self._files[call.node].replay(call, self._page)
            case "sync":
                self._folder(call.path).sync()
            case "syncfs":
                self._sync_all()
            case "mkdir":
                folder, name = self._entry(call.path)
                folder.change((name, Folder()))
            case "unlink":
                folder, name = self._entry(call.path)
                folder.change((name, None))
            case "link":
                folder, name = self._entry(call.target)
                source, old = self._entry(call.path)
                folder.change((name, source.entries[old]))
            case "rename":
                self._replay_rename(call)

    def _replay_rename(self, call: Call) -> None:
        source, old = self._entry(call.path)
        target, new = self._entry(call.target)
        node = source.entries[old]
        if source is target:
            source.change((new, node), (old, None))
        else:
            arrival = target.change((new, node))
            source.change((old, None), needs=arrival)

    def _sync_all(self) -> None:
        for node in self._all_nodes(self.root):
            if isinstance(node, File):
                node.sync(self._page)
            else:
                node.sync()

    def _entry(self, path: str) -> tuple[Folder, str]:
        parent, _, name = path.rpartition("/")
        return self._folder(parent), name

    def _folder(self, path: str) -> Folder:
        folder = self.root
        for part in Path(path).parts:
            child = folder.entries[part]
            assert isinstance(child, Folder), f"{path} is not a folder"
            folder = child
        return folder

    def _all_nodes(self, folder: Folder) -> list[File | Folder]:
        below = [self._all_nodes(child) if isinstance(child, Folder) else [child] for child in folder.entries.values()]
        return [folder, *itertools.chain.from_iterable(below)]

    # Combining: every choice where there are few, else the extremes, each choice alone against both, and a sample.

    def _combinations(self) -> Iterator[dict[str, bytes | None]]:
        changes = [change for folder in self._reachable() for change in folder.pending]
        for kept in self._choices(len(changes)):
            chosen = {id(change) for change, keep in zip(changes, kept, strict=True) if keep}
            tree = self._tree(self.root, "", chosen)
            files = [(path, node) for path, node in tree.items() if isinstance(node, File)]
            variants = [node.variants(self._page, self._choices) for _, node in files]
            for picked in self._picks([len(options) for options in variants]):
                disk: dict[str, bytes | None] = {path: None for path, node in tree.items() if isinstance(node, Folder)}
                for (path, _), options, index in zip(files, variants, picked, strict=True):
                    disk[path] = options[index]
                yield disk

    def _reachable(self) -> list[Folder]:
        found: dict[int, Folder] = {}

        def visit(folder: Folder) -> None:
            if id(folder) not in found:
                found[id(folder)] = folder
                for child in [*folder.durable.values(), *folder.entries.values()]:
                    if isinstance(child, Folder):
                        visit(child)

        visit(self.root)
        return list(found.values())

    def _tree(self, folder: Folder, prefix: str, chosen: set[int]) -> dict[str, File | Folder]:
        entries = dict(folder.durable)
        for change in folder.pending:
            arrived = change.needs is None or change.needs.certain or id(change.needs) in chosen
            if id(change) in chosen and arrived:
                change.apply(entries)
        tree: dict[str, File | Folder] = {}
        for name, node in entries.items():
            tree[prefix + name] = node
            if isinstance(node, Folder):
                tree |= self._tree(node, f"{prefix}{name}/", chosen)
        return tree

    def _choices(self, count: int) -> list[tuple[bool, ...]]:
        if 2**count <= self._limit:
            return list(itertools.product((False, True), repeat=count))
        picks = self._picks([2] * count)
        prefixes = [tuple(i < n for i in range(count)) for n in range(count + 1)]
        return list(dict.fromkeys([*prefixes, *(tuple(bool(bit) for bit in pick) for pick in picks)]))

    def _picks(self, sizes: list[int]) -> list[tuple[int, ...]]:
        total = 1
        for size in sizes:
            total *= size
        if total <= self._limit:
            return list(itertools.product(*map(range, sizes)))
        nothing, everything = tuple(0 for _ in sizes), tuple(size - 1 for size in sizes)
        picks = [nothing, everything]
        for at, size in enumerate(sizes):
            for base in (nothing, everything):
                picks += [base[:at] + (option,) + base[at + 1 :] for option in range(size)]
        picks += [tuple(self._random.randrange(size) for size in sizes) for _ in range(self._limit)]
        return list(dict.fromkeys(picks))


def lay(disk: dict[str, bytes | None], into: Path) -> None:
    """Writes a disk into an empty folder."""
    kernel = Kernel()
    for path in sorted(disk):
        content = disk[path]
        target = into / path
        if content is None:
            kernel.mkdir(target)
            continue
        fd = kernel.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        while content:
            content = content[kernel.write(fd, content) :]
        kernel.close(fd)
