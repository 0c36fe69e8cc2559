"""Limits how much of a worktree a snapshot may hold, before git reads a byte of it.

Only the sizes of the files that git would add are read. What the attempt began with does not count: a file that the
base has at that size is fine, however large, and the sums are of what was added. Names are read one by one, so memory
does not grow with their number.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from holdfast.domain.attempt_records import Resources
from holdfast.domain.wording import size
from holdfast.errors import SnapshotTooLarge
from holdfast.git import command as git
from holdfast.snapshots.shadow_parts import Excluded

FILE_LIMIT, ALL_LIMIT, COUNT_LIMIT = (
    "limits.file_bytes_max", "limits.snapshot_bytes_max", "limits.snapshot_files_max",
)  # fmt: skip
# Git gets each of them on its command line.
LEFT_OUT_MAX = 1000


class Bounds(msgspec.Struct, frozen=True):
    """None: no limit."""

    file_bytes: int | None = None
    all_bytes: int | None = None
    files: int | None = None

    @classmethod
    def of(cls, resources: Resources) -> Bounds:
        return cls(resources.file_bytes_max, resources.snapshot_bytes_max, resources.snapshot_files_max)

    @property
    def are_any(self) -> bool:
        return any(bound is not None for bound in (self.file_bytes, self.all_bytes, self.files))


class SizeCheck:
    """Finds files that are too large. `run` runs git where it sees the base's objects, with additional variables."""

    def __init__(self, bounds: Bounds, run: Callable[..., git.GitResult]) -> None:
        self.bounds, self._run = bounds, run
        self._sizes: dict[str, dict[str, int]] = {}

    def too_large(
        self, names: Iterable[str], folder: Path, base: str, variables: Mapping[str, str], *, leaves_out: bool
    ) -> dict[str, int]:
        """The files that are each too large, with their sizes. Reads the commit `base` only where something seems too
        large. Raises where the sum or the number of all others is too large; and for one file, too, unless
        `leaves_out`."""
        files_max, bytes_max, file_max = (
            math.inf if bound is None else bound
            for bound in (self.bounds.files, self.bounds.all_bytes, self.bounds.file_bytes)
        )
        count = total = 0
        large: dict[str, int] = {}
        for name in names:
            if (found := _size_of(folder, name)) is None:
                continue
            if found > file_max and found > self._of(base, variables).get(name, 0):
                large[name] = found
                if not leaves_out or len(large) > LEFT_OUT_MAX:
                    raise _refusal(folder, f"the file {name} has {size(found)}", FILE_LIMIT, self.bounds.file_bytes)
                continue
            count, total = count + 1, total + found
            if total > bytes_max:
                bytes_max = (self.bounds.all_bytes or 0) + sum(self._of(base, variables).values())
            if count > files_max:
                files_max = (self.bounds.files or 0) + len(self._of(base, variables))
            if total > bytes_max:
                what = "its new files have more than that in all"
                raise _refusal(folder, what, ALL_LIMIT, self.bounds.all_bytes)
            if count > files_max:
                raise _refusal(folder, "there are more new files than that", COUNT_LIMIT, self.bounds.files)
        return large

    def _of(self, base: str, variables: Mapping[str, str]) -> dict[str, int]:
        """The sizes of the files of `base`, by name."""
        if base not in self._sizes:
            found = self._run("ls-tree", "-r", "-l", "-z", base, variables=variables).fields() if base else []
            entries = (entry.split("\t", 1) for entry in found)
            self._sizes[base] = {name: int(word) for facts, name in entries if (word := facts.split()[3]).isdigit()}
        return self._sizes[base]


def _size_of(folder: Path, name: str) -> int | None:
    """The size of a regular file, else None."""
    try:
        found = os.lstat(os.path.join(folder, name))
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _refusal(folder: Path, what: str, limit: str, most: int | None) -> SnapshotTooLarge:
    bound = f"{most:,}" if limit == COUNT_LIMIT else size(most or 0)
    return SnapshotTooLarge(worktree=folder, what=what, limit=limit, most=bound)


def left_out(name: str, number: int) -> Excluded:
    return Excluded(name, f"it has {size(number)}, which is more than {FILE_LIMIT}")


def below(folder: Path, name: str) -> Iterable[str]:
    """The file itself, or all files in the folder of that name; follows no link."""
    top = folder / name
    if top.is_symlink() or not top.is_dir():
        yield name
        return
    for parent, _, files in os.walk(top):
        at = os.path.relpath(parent, folder)
        yield from (os.path.join(at, file) for file in files)
