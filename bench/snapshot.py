"""Snapshots of a tree of 10,000 files: against copying it, and against merely looking at every file."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import shutil
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench.harness import Row, alternate, seconds
from holdfast.durable.snapshot import Snapshots

FILES, FOLDERS, SUBFOLDERS, CHANGED = 10_000, 25, 20, 10


def rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    chance = random.Random(1)
    repo, rounds = folder / "repo", 3 if quick else 9
    files = plant(repo, chance)
    snapshots = Snapshots(repo, folder / "private")
    turns = itertools.count()
    growth: list[tuple[int, int, int]] = []

    def take() -> float:
        return seconds(lambda: snapshots.take("bench.1", f"turn-{next(turns)}"))

    def take_changed() -> float:
        changed, before = change(files, chance), weight(repo / ".git")
        took = take()
        after = weight(repo / ".git")
        growth.append((changed, after[0] - before[0], after[1] - before[1]))
        return took

    def copy() -> float:
        took = seconds(lambda: shutil.copytree(repo, folder / "copy", ignore=shutil.ignore_patterns(".git")))
        shutil.rmtree(folder / "copy")
        return took

    first = take()
    ratio, mine, theirs = alternate(take_changed, copy, rounds)
    detail = f"{mine * 1e3:.0f} ms against {theirs * 1e3:.0f} ms; the first one {first * 1e3:.0f} ms"
    yield Row(f"snapshot, {CHANGED} of {FILES:,} files changed", "shutil.copytree", 1 / ratio, 12, False, detail)

    changed, grown, blocks = (statistics.median(column) for column in zip(*growth, strict=True))
    detail = f"{grown / 1e3:.0f} kB for {changed / 1e3:.0f} kB; {blocks / 1e3:.0f} kB in blocks of the disk"
    yield Row("snapshot, growth of the repository", "bytes of the changed files", grown / changed, 2, True, detail)

    ratio, mine, theirs = alternate(take, lambda: seconds(lambda: look(str(repo))), rounds * 3)
    detail = f"{mine * 1e3:.0f} ms against {theirs * 1e3:.0f} ms"
    yield Row("snapshot, nothing changed", "os.scandir + stat of the tree", ratio, 2, True, detail)


def plant(repo: Path, chance: random.Random) -> list[Path]:
    """A repository with one commit, packed as after a clone. Sizes are spread as in real sources: 5 kB on average."""
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz_", k=chance.randint(3, 10))) for _ in range(3000)]
    files = [repo / f"pkg{n % FOLDERS}" / f"mod{n // FOLDERS % SUBFOLDERS}" / f"file{n}.py" for n in range(FILES)]
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(" ".join(chance.choices(words, k=int(chance.lognormvariate(8, 1) / 7.5) + 1)))
    settings = ("-c", "gc.auto=0", "-c", "user.name=bench", "-c", "user.email=bench@localhost")
    for command in ("init -q", "add -A", "commit -q -m first", "gc -q"):
        subprocess.run(["git", *settings, *command.split()], cwd=repo, check=True)
    os.sync()
    return files


def change(files: list[Path], chance: random.Random) -> int:
    """Changes one word in each of some files; returns how many bytes they have together."""
    picked = chance.sample(files, CHANGED)
    for path in picked:
        words = path.read_text().split(" ")
        words[chance.randrange(len(words))] = hashlib.sha256(os.urandom(4)).hexdigest()[:8]
        path.write_text(" ".join(words))
    return sum(path.stat().st_size for path in picked)


def weight(top: Path) -> tuple[int, int]:
    found = [path.stat() for path in top.rglob("*") if path.is_file()]
    return sum(each.st_size for each in found), sum(each.st_blocks * 512 for each in found)


def look(top: str) -> None:
    with os.scandir(top) as entries:
        for entry in entries:
            if entry.name != ".git":
                entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    look(entry.path)
