"""Confines a git of ours that reads or writes files which a confined agent, or a confined gate, has written.

Git runs programs that settings and files name: filters, and git itself inside a nested repository. Over such a tree it
therefore runs in a sandbox like the agent's. It reads what the agent can read, without the data root and the key of the
audit log; so a symbolic link that appears while git reads leads to nothing that the agent may not know. It writes in
the worktree and in the few folders that it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.git import command as git
from holdfast.processes import bwrap


def over(
    repository: git.Repository, root: Path, key: str, shown: Sequence[Path], opened: Sequence[Path] = ()
) -> git.Confine:
    """Makes of git's command line one that is confined. `root`: the data root, of which only the worktree is there,
    `shown` to read, and `opened` to write. `key`: where the settings put the key of the audit log."""

    covered = [*bwrap.without_audit_key(key), *bwrap.without_sessions()]
    covered += [part for path in bwrap.data_roots(root.resolve()) if path.is_dir() for part in ("--tmpfs", str(path))]

    def confine(argv: Sequence[str], folder: Path) -> list[str]:
        binds = _binds(repository, shown, opened)
        return [bwrap.PROGRAM, *bwrap.shut(), *covered, *binds, "--chdir", str(folder), "--", *argv]

    return confine


def _binds(repository: git.Repository, shown: Sequence[Path], opened: Sequence[Path]) -> list[str]:
    """Later ones lie on top of earlier ones."""
    worktree = repository.worktree
    reading = [path.resolve() for path in (repository.common_dir, *repository.stores, *shown)]
    binds = [("--ro-bind", path) for path in reading if path.exists()]
    binds += [("--bind", path.resolve()) for path in (worktree, *opened)]
    binds += [("--ro-bind-try", worktree / ".git")]
    return [part for how, path in binds for part in (how, str(path), str(path))]
