"""Clones folders such as `node_modules` from the main checkout into a worktree, where the filesystem can share blocks
(reflinks: btrfs, xfs, bcachefs). Elsewhere nothing is copied, and a sentence says so.

A clone is made outside of the worktree and moved in when it is whole and on disk. What stands there already stays.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import subprocess
from pathlib import Path, PurePosixPath

from holdfast.errors import DiskError, GitFailed
from holdfast.git import command as git
from holdfast.snapshots.snapshots import files_below
from holdfast.storage.files import disk

_FICLONE = 0x40049409
_NO_REFLINK = {errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM}
_LOOKED_AT_MAX = 1000


def clone(repository: git.Repository, worktree: Path, names: tuple[str, ...], staging: Path) -> list[str]:
    """Returns what was left undone and why, as sentences. `staging`: a path on the worktree's filesystem that does not
    exist; what is left of it after a kill is removed with worktrees that are gone."""
    notes: list[str] = []
    for name in names:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            notes.append(f"`worktree.clone` names {name}, which is no path in the repository; it was not cloned")
            continue
        if not _is_real_folder(repository.worktree, name) or os.path.lexists(worktree / name):
            continue
        why = _refusal(repository, worktree, name, staging)
        why = why or _clone(repository.worktree, name, worktree / name, staging)
        if why:
            notes.append(f"{name} was not cloned: {why}")
    return notes


def _refusal(repository: git.Repository, worktree: Path, name: str, staging: Path) -> str:
    if repository.run("check-ignore", "-q", "--", name, codes=(0, 1, 128)).code:
        return "git does not ignore it, so it would become a part of the work; list it in .gitignore"
    parent = os.path.dirname(name)
    if parent and os.path.lexists(worktree / parent) and not _is_real_folder(worktree, parent):
        return f"{parent} is no folder in the worktree"
    return _trouble(repository.worktree / name, staging)


def _is_real_folder(top: Path, name: str) -> bool:
    """Whether the path leads to a folder, and none of its parts is a link."""
    place = top
    for part in PurePosixPath(name).parts:
        place = place / part
        try:
            if not stat.S_ISDIR(place.lstat().st_mode):
                return False
        except OSError:
            return False
    return True


def _trouble(source: Path, staging: Path) -> str:
    """Tries to clone one file; the reason why that cannot be, or empty."""
    for number, path in enumerate(files_below(source)):
        if number > _LOOKED_AT_MAX:
            break
        if not path.is_file() or path.is_symlink():
            continue
        disk.mkdir(staging)
        try:
            with disk.StagedFile(staging) as staged, path.open("rb") as file:
                fcntl.ioctl(staged.descriptor, _FICLONE, file.fileno())
        except OSError as error:
            if error.errno not in _NO_REFLINK:
                raise
            return (
                f"the filesystem of {staging.parent} cannot share its blocks with {source} ({error.strerror}), and "
                "nothing was copied; keep both on one btrfs or xfs, or make it by `worktree.setup` with a shared cache"
            )
        finally:
            disk.remove_tree(staging)
        return ""
    return ""


def _clone(top: Path, name: str, target: Path, staging: Path) -> str:
    disk.mkdir(staging)
    try:
        copy = staging / "copy"
        argv = ["cp", "-a", "--reflink=always", "--", str(top / name), str(copy)]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"`cp --reflink=always` failed: {done.stderr.strip().splitlines()[-1:] or done.returncode}"
        disk.sync_filesystem(staging, files_below(copy))
        disk.mkdir(target.parent, disk.COMMON_FOLDER)
        disk.rename(copy, target)
        return ""
    except OSError as error:
        return f"`cp` cannot be run: {error.strerror}"
    finally:
        with contextlib.suppress(DiskError, GitFailed):
            disk.remove_tree(staging)
