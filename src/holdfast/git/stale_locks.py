"""Finds git locks in the user's repository that no living process can hold."""

from __future__ import annotations

from pathlib import Path

from holdfast.clock import wall
from holdfast.git import command as git
from holdfast.git import lock_files
from holdfast.git.worktree_links import place_of

LOCK_AGE_S_MIN = 60.0
_COMMON_LOCKS = ("index.lock", "HEAD.lock", "packed-refs.lock", "config.lock", "shallow.lock")


def stale_locks(repo: Path) -> list[Path]:
    """Locks in the repository that no living process can hold: made by a dead process of ours, or old and not open in
    any process. `doctor` shows them."""
    repository = git.discover(repo)
    top = repository.common_dir
    found = [top / name for name in _COMMON_LOCKS] + sorted((top / "refs").rglob("*.lock"))
    found += sorted(top.glob("worktrees/*/*.lock"))
    places = [place for admin in top.glob("worktrees/*") if (place := place_of(admin)) is not None]
    folders = [repository.worktree, top, *places]
    stale = (lock for lock in found if _is_old(lock) and not lock_files.holder(lock, folders))
    return sorted({*stale, *filter(lock_files.is_left_by_us, found)}, key=found.index)


def _is_old(lock: Path) -> bool:
    try:
        return wall() - lock.stat().st_mtime > LOCK_AGE_S_MIN
    except OSError:
        return False
