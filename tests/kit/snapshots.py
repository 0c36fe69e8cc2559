"""What the snapshot tests share: real repositories, and trees compared byte for byte."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Any

from holdfast.snapshots.snapshots import WorktreeSnapshots
from holdfast.snapshots.store import ATTEMPTS, Store
from kit.git import git

Tree = dict[bytes, tuple[str, bytes]]


def store_of(worktree: Path) -> Path:
    """Where the snapshots of a worktree are kept, in tests of them: beside it."""
    return worktree.parent / "snapshots.git"


def snapshots_at(worktree: Path, private: Path, *args: Any, **more: Any) -> WorktreeSnapshots:
    return WorktreeSnapshots(worktree, private, store_of(worktree), *args, **more)


def forget(worktree: Path, attempt: str) -> None:
    """Removes the refs of an attempt, as `holdfast gc` does."""
    store = Store.of(store_of(worktree), worktree)
    store.forget(store.refs(f"{ATTEMPTS}/{attempt}/"))


def tree_of(top: Path) -> Tree:
    """Every file and symlink below `top`, byte for byte, with the right to execute. Empty folders are not git's."""
    found: Tree = {}
    base = os.fsencode(top)
    for parent, folders, files in os.walk(base):
        if b".git" in folders + files:
            (folders if b".git" in folders else files).remove(b".git")
        for name in files + [folder for folder in folders if os.path.islink(os.path.join(parent, folder))]:
            path = os.path.join(parent, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                found[os.path.relpath(path, base)] = ("link", os.readlink(path))
            elif stat.S_ISREG(mode):
                kind = "program" if mode & 0o100 else "file"
                with open(path, "rb") as file:
                    found[os.path.relpath(path, base)] = (kind, file.read())
    return found


def make(top: Path, tree: Tree) -> None:
    """Makes the worktree equal to `tree`, without git."""
    for entry in top.iterdir():
        if entry.name != ".git":
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    for name, (kind, content) in tree.items():
        path = os.path.join(os.fsencode(top), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if kind == "link":
            os.symlink(content, path)
        else:
            with open(path, "wb") as file:
                file.write(content)
            os.chmod(path, 0o755 if kind == "program" else 0o644)


def user_state(repo: Path) -> dict[str, bytes]:
    """All of the user's git dir but objects and our own refs."""
    top = repo / ".git"
    ours = ("objects/",)
    files = {str(path.relative_to(top)): path for path in top.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if not name.startswith(ours)}


def tree_at(repo: Path, ref: str) -> dict[str, str]:
    repo = store_of(repo)
    return {
        name: git(repo, "cat-file", "blob", f"{ref}:{name}")
        for name in git(repo, "ls-tree", "--name-only", ref).splitlines()
    }
