"""Git's lock files: finds the owner of one, and removes those that a dead process left. Every git call of ours that
takes locks is made inside `freed` (refs), `freed_below` (a worktree) or `freed_files`, so only this module removes any.

Git makes `<file>.lock` exclusively, writes it, closes it and renames it over the file. So a lock counts as alive while
a process has it open, while a git process works in one of the folders named, or while it belongs to another user, whose
processes we cannot inspect. A lock of our own names its maker inside.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from holdfast import identity
from holdfast.clock import monotonic, wall
from holdfast.errors import AlreadyExists, GitLocked
from holdfast.storage.files import disk
from holdfast.storage.files.json_file import decode_json, read_json

WAIT_S_MAX = 3.0
POLL_S = 0.02
LOCK_AGE_S_MIN = 60.0
_COMMON_LOCKS = ("index.lock", "HEAD.lock", "packed-refs.lock", "config.lock", "shallow.lock")


def freed(
    common_dir: Path, git_dir: Path, folders: Sequence[Path], refs: Iterable[str]
) -> AbstractContextManager[None]:
    """Clears the way for a git call that changes these refs: removes stale locks that would block it."""
    # `packed-refs.new` last: it is written under `packed-refs.lock`, so while that is held it is in use.
    shared = ("packed-refs.lock", "packed-refs.new", "reftable/tables.list.lock")
    locks = [common_dir / f"{ref}.lock" for ref in refs]
    locks += [git_dir / "HEAD.lock", *(common_dir / name for name in shared)]
    return _freed(folders, lambda: locks, _config_lock(common_dir))


def freed_below(common_dir: Path, git_dir: Path, worktree: Path) -> AbstractContextManager[None]:
    """Clears the way for a git call that changes a worktree: its index, its HEAD and all else in its own git dir."""
    return _freed([worktree, git_dir], lambda: _locks_below(git_dir), _config_lock(common_dir))


def freed_files(locks: Sequence[Path], folders: Sequence[Path]) -> AbstractContextManager[None]:
    """Clears the way for a git call that takes just these locks."""
    return _freed(folders, lambda: locks, ())


@contextlib.contextmanager
def _freed(folders: Sequence[Path], taken: Callable[[], Sequence[Path]], unneeded: Sequence[Path]) -> Iterator[None]:
    """Removes what a dead process left locked, before and after, also where our git was killed. Raises GitLocked where
    a living process holds a lock that our git takes."""
    for lock in taken():
        if os.path.lexists(lock) and (owner := free(lock, folders, WAIT_S_MAX)):
            raise GitLocked(path=lock, holder=owner)
    try:
        yield
    finally:
        for lock in (*taken(), *unneeded):
            if os.path.lexists(lock):
                free(lock, folders, wait_s=0.0)


def _config_lock(common_dir: Path) -> list[Path]:
    """The lock of the repository's configuration, which no git of ours takes. An agent's git takes it in its worktree
    and may die with its agent; the user's own `git config` then fails until the lock is removed."""
    return [common_dir / "config.lock"]


def _locks_below(git_dir: Path) -> list[Path]:
    return [*git_dir.glob("*.lock"), *(lock for name in ("refs", "logs") for lock in (git_dir / name).rglob("*.lock"))]


def free(lock: Path, folders: Sequence[Path], wait_s: float = WAIT_S_MAX) -> str:
    """Waits until the lock is gone, and removes it if no living process can hold it. Otherwise names the holder."""
    deadline = monotonic() + wait_s
    while (found := _stamp(lock)) is not None:
        owner = holder(lock, folders)
        if owner == "" and _stamp(lock) == found:
            disk.unlink(lock, missing_ok=True)
            return ""
        if monotonic() > deadline:
            return owner
        time.sleep(POLL_S)
    return ""


def free_own(lock: Path) -> None:
    """Removes a lock that a dead process of ours made."""
    if is_left_by_us(lock):
        disk.unlink(lock, missing_ok=True)


def is_left_by_us(lock: Path) -> bool:
    """Whether a process of ours made the lock, and is dead."""
    maker = read_json(lock, identity.Identity, lenient=True)
    return maker is not None and not maker.is_alive()


def left_on_indexes(repo: Path) -> list[Path]:
    """Finds locks that dead processes of ours left on the indexes of the repository's checkouts."""
    common = repo / ".git"
    if not common.is_dir():
        from holdfast.git import command as git

        common = git.discover(repo).common_dir
    return list(filter(is_left_by_us, (common / "index.lock", *common.glob("worktrees/*/index.lock"))))


def acquire(lock: Path, folders: Sequence[Path], wait_s: float = WAIT_S_MAX) -> str:
    """Makes the lock, as git would; returns "", or the holder in words."""
    me = msgspec.json.encode(identity.current())
    deadline = monotonic() + wait_s
    while True:
        try:
            disk.create(lock, me, disk.COMMON_FILE)
            return ""
        except AlreadyExists:
            owner = free(lock, folders, max(deadline - monotonic(), 0.0))
            if owner or monotonic() > deadline:
                return owner or "another process"


def holder(lock: Path, folders: Sequence[Path]) -> str:
    """The possible holder of the lock in words; empty when no living process can hold it."""
    try:
        content, owner = lock.read_bytes()[:4096], lock.stat()
    except OSError:
        return "" if not os.path.lexists(lock) else "a process that cannot be inspected"
    if (maker := decode_json(content, identity.Identity)) is not None:
        return "another Holdfast" if maker.is_alive() else ""
    if owner.st_uid != os.geteuid() and os.geteuid() != 0:
        return "a process of another user"
    tops = [os.path.realpath(folder) for folder in folders]
    for pid, stat in identity.processes().items():
        is_git = stat.name.startswith("git") and not stat.is_dead
        is_at_work = is_git and (_works_in(pid, tops) or _is_pointed_at(pid, tops))
        if pid != os.getpid() and (is_at_work or identity.has_open(pid, owner)):
            return f"process {pid}"
    return ""


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _works_in(pid: int, tops: Sequence[str]) -> bool:
    try:
        where = os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return False
    return any(where == top or where.startswith(top + "/") for top in tops)


def _is_pointed_at(pid: int, tops: Sequence[str]) -> bool:
    """Whether a git that works elsewhere was pointed to one of the folders, by its arguments or its environment."""
    for name in ("cmdline", "environ"):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0")
            if any(os.fsencode(top) in word for word in words for top in tops):
                return True
    return False


def stale_locks(repo: Path) -> list[Path]:
    """Locks in the repository that no living process can hold: made by a dead process of ours, or old and not open in
    any process. `doctor` shows them."""
    from holdfast.git import command as git
    from holdfast.git.worktree_links import place_of

    repository = git.discover(repo)
    top = repository.common_dir
    found = [top / name for name in _COMMON_LOCKS] + sorted((top / "refs").rglob("*.lock"))
    found += sorted(top.glob("worktrees/*/*.lock"))
    places = [place for admin in top.glob("worktrees/*") if (place := place_of(admin)) is not None]
    folders = [repository.worktree, top, *places]
    stale = (lock for lock in found if _is_old(lock) and not holder(lock, folders))
    return sorted({*stale, *filter(is_left_by_us, found)}, key=found.index)


def _is_old(lock: Path) -> bool:
    try:
        return wall() - lock.stat().st_mtime > LOCK_AGE_S_MIN
    except OSError:
        return False
