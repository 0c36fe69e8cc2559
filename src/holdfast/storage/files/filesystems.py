"""The filesystem of a path, and the effect of a sync there.

`syncfs` makes everything on a filesystem durable by one call where the kernel itself writes it back. On FUSE and on
network filesystems it may do nothing at all, so each file and each folder is synced by itself. What is on tmpfs is lost
with the power in any case.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

MOUNTS = Path("/proc/self/mountinfo")

Trust = Literal["durable", "not durable", "unknown"]

_LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "bcachefs", "zfs", "jfs", "reiserfs", "overlay"})
_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_whole: dict[int, bool] = {}
# Before Linux 5.8 syncfs could swallow a write-back error, so older kernels sync file by file.
_SYNCFS_REPORTS_ERRORS = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2]) >= (5, 8)


def kind_of(path: Path) -> str:
    """The kernel's name of the filesystem, as in `ext4`, `fuse.sshfs` or `nfs4`; empty where it is unknown."""
    place, best, kind = os.path.realpath(path), -1, ""
    try:
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    for line in lines:
        fields, _, rest = line.partition(" - ")
        top = _unescaped(fields.split(" ")[4])
        is_above = place == top or place.startswith(top.rstrip("/") + "/")
        # Of several mounts on one place the last is visible.
        if is_above and len(top) >= best:
            best, kind = len(top), rest.split(" ")[0]
    return kind


def trust_of(kind: str) -> Trust:
    if kind in _MEMORY:
        return "not durable"
    return "durable" if kind in _LOCAL else "unknown"


def syncs_whole(folder: Path) -> bool:
    """Whether `syncfs` works where `folder` is. Asks once for each device."""
    try:
        device = os.stat(folder).st_dev
    except OSError:
        return False
    if device not in _whole:
        _whole[device] = kind_of(folder) in _LOCAL | _MEMORY
    return _SYNCFS_REPORTS_ERRORS and _whole[device]


def _unescaped(name: str) -> str:
    """Decodes blanks, tabs, newlines and backslashes, which are octal in the kernel's list."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        name = name.replace(code, character)
    return name
