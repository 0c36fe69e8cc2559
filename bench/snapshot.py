"""Snapshots: what a turn costs in a tree of 10,000 files, in time and on disk."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench.harness import Row, alternate, seconds
from holdfast.snapshots.snapshots import WorktreeSnapshots

FILES = 10_000
CHANGED = 10
ATTEMPT = "bench.1"


def rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    tree = Tree(folder / "tree")
    store = folder / "snapshots.git"
    base = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tree.path, capture_output=True, text=True, check=True)
    snapshots = WorktreeSnapshots(tree.path, folder / "private", store, base=base.stdout.strip())
    names = (f"turn-{number}" for number in itertools.count(1))
    snapshots.take(ATTEMPT, next(names))
    copies = itertools.count()
    growth: list[float] = []

    def take_changed() -> float:
        before, written = bytes_stored(store), tree.change()
        os.sync()
        taken = seconds(lambda: snapshots.take(ATTEMPT, next(names)))
        growth.append((bytes_stored(store) - before) / written)
        return 1 / taken

    def copy() -> float:
        target = folder / f"copy-{next(copies)}"
        # What was removed and written before is not this copy's to pay for.
        os.sync()
        taken = seconds(lambda: shutil.copytree(tree.path, target, ignore=shutil.ignore_patterns(".git")))
        shutil.rmtree(target)
        return 1 / taken

    rounds = 2 if quick else 7
    ratio, mine, theirs = alternate(take_changed, copy, rounds)
    detail = f"{1e3 / mine:.0f} ms against {1e3 / theirs:.0f} ms"
    name = f"snapshot of {FILES:,} files, {CHANGED} changed"
    yield Row(name, "shutil.copytree", ratio, 12, False, detail)
    grown = statistics.median(growth)
    detail = f"loose objects, trees and commit included; {CHANGED} files of 4 to 8 KB"
    yield Row("disk growth of that snapshot", "the changed bytes", grown, 2, True, detail)

    ratio, mine, theirs = alternate(
        lambda: seconds(lambda: snapshots.take(ATTEMPT, next(names))), lambda: seconds(tree.walk), rounds * 3
    )
    detail = f"{mine * 1e3:.0f} ms against {theirs * 1e3:.0f} ms"
    yield Row("snapshot with nothing changed", "os.scandir + stat of the tree", ratio, 2, True, detail)


class Tree:
    """A repository of 100 folders with 100 text files each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._chance = random.Random(7)
        self._words = [f"word{number}" for number in range(5000)]
        self.files = [path / f"folder-{number // 100:02d}" / f"file-{number % 100:02d}.txt" for number in range(FILES)]
        for file in self.files:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self._text())
        for command in (
            ["init", "-q"],
            ["add", "."],
            ["-c", "user.name=b", "-c", "user.email=b@b", "commit", "-qm", "b"],
        ):
            subprocess.run(["git", "-c", "gc.auto=0", *command], cwd=path, check=True)

    def _text(self) -> str:
        return "\n".join(
            " ".join(self._chance.choices(self._words, k=8)) for _ in range(self._chance.randrange(60, 120))
        )

    def change(self) -> int:
        """Rewrites some files; returns how many bytes they hold now."""
        written = 0
        for file in self._chance.sample(self.files, CHANGED):
            text = self._text()
            file.write_text(text)
            written += len(text)
        return written

    def walk(self) -> int:
        return _walk(str(self.path))


def bytes_stored(store: Path) -> int:
    """What the store's objects take on disk, in the filesystem's blocks."""
    return sum(path.stat().st_blocks * 512 for path in (store / "objects").rglob("*") if path.is_file())


def _walk(folder: str) -> int:
    count = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != ".git":
                    count += _walk(entry.path)
            else:
                entry.stat(follow_symlinks=False)
                count += 1
    return count
