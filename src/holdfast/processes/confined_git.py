"""Confines a git of ours that reads or writes files which a confined agent, or a confined gate, has written.

Git runs programs that settings and files name: filters, and git itself inside a nested repository. Over such a tree it
therefore runs in a sandbox like the agent's. It reads what the agent can read, without the data root and the key of the
audit log; so a symbolic link that appears while git reads leads to nothing that the agent may not know. It writes in
the worktree and in the few folders that it is given.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from holdfast.durable import audit_key, git

PROGRAM = "bwrap"
_FIXED = (
    "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev",
    "--dev-bind", "/dev/null", "/dev/tty", "--proc", "/proc", "--ro-bind-try", "/proc/sys", "/proc/sys",
    "--tmpfs", "/tmp", "--setenv", "TMPDIR", "/tmp",
)  # fmt: skip
_SESSIONS = Path("/run/user")


def over(
    repository: git.Repository, root: Path, key: str, shown: Sequence[Path], opened: Sequence[Path] = ()
) -> git.Confine:
    """Makes of git's command line one that is confined. `root`: the data root, of which only the worktree is there,
    `shown` to read, and `opened` to write. `key`: where the settings put the key of the audit log."""

    def confine(argv: Sequence[str], folder: Path) -> list[str]:
        return [PROGRAM, *_FIXED, *covered, *_binds(repository, shown, opened), "--chdir", str(folder), "--", *argv]

    covered = _covered(root.resolve(), key)
    return confine


def _covered(root: Path, key: str) -> list[str]:
    beside = (found.parent for found in root.parent.glob("+*/format.json"))
    default = audit_key.default_path(os.environ)
    folders = [default.parent.resolve(), *({_SESSIONS} if _SESSIONS.is_dir() else ()), root, *beside]
    keys = (path for path in (default.resolve(), *([Path(key).resolve()] if key else [])) if path.is_file())
    # Bound without its device, a file cannot even be opened.
    files = [part for path in keys for part in ("--ro-bind", "/dev/null", str(path))]
    return [*files, *(part for path in folders if path.is_dir() for part in ("--tmpfs", str(path)))]


def _binds(repository: git.Repository, shown: Sequence[Path], opened: Sequence[Path]) -> list[str]:
    """Later ones lie on top of earlier ones."""
    worktree = repository.worktree
    reading = [path.resolve() for path in (repository.common_dir, *repository.stores, *shown)]
    binds = [("--ro-bind", path) for path in reading if path.exists()]
    binds += [("--bind", path.resolve()) for path in (worktree, *opened)]
    binds += [("--ro-bind-try", worktree / ".git")]
    return [part for how, path in binds for part in (how, str(path), str(path))]
