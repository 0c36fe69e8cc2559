"""The links between a worktree and its repository: two files, each with the other's path.

    <worktree>/.git                       gitdir: <git dir>/worktrees/<name>
    <git dir>/worktrees/<name>/gitdir     <worktree>/.git

After a repository was moved or copied, both still name the old place. `git worktree repair` does not help: it follows
every such path, and in a copy rewrites the worktrees of the original. So they are linked here, and nothing outside this
worktree and this repository is written.
"""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.storage.files import disk, plain

PATH_BYTES_MAX = 1 << 16


def admin_of(path: Path) -> Path | None:
    """The git dir that a worktree's `.git` file names."""
    try:
        line = os.fsdecode(plain.read(path / ".git", PATH_BYTES_MAX))
    except OSError:
        return None
    return Path(line.removeprefix("gitdir: ").removesuffix("\n")) if line.startswith("gitdir: ") else None


def place_of(admin: Path) -> Path | None:
    """The folder of the worktree that a git dir belongs to."""
    try:
        return Path(os.fsdecode(plain.read(admin / "gitdir", PATH_BYTES_MAX)).removesuffix("\n")).parent
    except OSError:
        return None


def link(path: Path, admin: Path) -> None:
    disk.replace(admin / "gitdir", os.fsencode(f"{path / '.git'}\n"), disk.COMMON_FILE)
    disk.replace(path / ".git", os.fsencode(f"gitdir: {admin}\n"), disk.COMMON_FILE)


def relink(path: Path, common: Path) -> bool:
    """Links a worktree to the git dir of its old name in this repository; False where none fits."""
    old = admin_of(path)
    if old is None:
        return False
    admin = common / "worktrees" / old.name
    if not (admin / "HEAD").is_file():
        return False
    place = place_of(admin)
    holder = admin_of(place) if place is not None and place != path else None
    if holder is not None and os.path.realpath(holder) == os.path.realpath(admin):
        # Another worktree of this repository has it.
        return False
    link(path, admin)
    return True


def is_ours(admin: Path, gone: Path, worktrees: Path) -> bool:
    """Whether this is the git dir of the worktree to remove, or of one of ours whose folder is empty."""
    place = place_of(admin)
    if place is None or place.parent.resolve() != worktrees.resolve():
        return False
    return admin.parent.name == "worktrees" and (place == gone or not os.path.lexists(place / ".git"))
