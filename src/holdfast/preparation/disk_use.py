"""What worktrees and snapshots take of the disk. Bounded: a walk that takes too long is ended, and says so."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from holdfast.clock import monotonic
from holdfast.domain.wording import plural, size
from holdfast.layout import Layout

LOOK_S_MAX = 0.25
_OFTEN = 256


class DiskUse(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes. `is_whole`: false where there was too much to count, so there is more. `free`: on the filesystem of the
    data root. `free_min`: the setting disk_free_min."""

    worktrees: int
    worktree_count: int
    snapshots: int
    free: int
    free_min: int | None
    is_whole: bool

    @property
    def words(self) -> str:
        more = "" if self.is_whole else "more than "
        return (
            f"{more}{size(self.worktrees)} in {plural(self.worktree_count, 'worktree')}, {more}{size(self.snapshots)} "
            f"in snapshots, {size(self.free)} free"
        )


def measure(layout: Layout, free_min: int | None, seconds: float = LOOK_S_MAX) -> DiskUse:
    """Snapshots first: they are few large files."""
    until = monotonic() + seconds
    snapshots, snapshots_whole = _taken(layout.snapshots, until)
    worktrees, worktrees_whole = _taken(layout.worktrees, until)
    found = os.statvfs(layout.root)
    return DiskUse(
        worktrees=worktrees,
        worktree_count=sum(not name.startswith(".") for name in _names(layout.worktrees)),
        snapshots=snapshots,
        free=found.f_bavail * found.f_frsize,
        free_min=free_min,
        is_whole=snapshots_whole and worktrees_whole,
    )


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return []


def _taken(folder: Path, until: float) -> tuple[int, bool]:
    """The bytes on disk below a folder, and whether all of it was counted. Follows no link."""
    total, seen, left = 0, 0, [str(folder)]
    while left:
        # A folder may go while it is read.
        with contextlib.suppress(OSError), os.scandir(left.pop()) as entries:
            for entry in entries:
                seen += 1
                if seen % _OFTEN == 0 and monotonic() > until:
                    return total, False
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total, True
