"""Confining an agent with bubblewrap: it reads everything, and writes in its worktree and where git needs it to.

Of the repository these are open to it: the objects, into which anybody may add, and the worktree's own index and HEAD.
Branches, configuration and hooks are not. /tmp is its own, empty, and gone with it.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.domain.attempt import Order
from holdfast.durable import git

KINDS = ("none", "bwrap")
PROGRAM = "bwrap"


def missing(kind: str, path: str | None = None) -> str:
    """Why such a sandbox cannot be used here, as a sentence with the way out; empty when it can. `path`: for PATH."""
    if kind not in KINDS:
        return f"There is no sandbox {kind!r}. Nothing was started; use {' or '.join(KINDS)}."
    if kind == "none":
        return ""
    import shutil  # slow to import, and most runners need none

    if shutil.which(PROGRAM, path=path) is None:
        way_out = "install bubblewrap (on Debian `apt-get install bubblewrap`), or set `sandbox: none`"
        return f"There is no program `{PROGRAM}` for the sandbox. Nothing was started; {way_out}."
    return ""


def wrapped(order: Order, argv: tuple[str, ...], files: Path) -> tuple[str, ...]:
    """The command line of the confined agent. `files`: the attempt's folder, which it may read wherever it is."""
    if order.sandbox == "none":
        return argv
    repository = git.discover(Path(order.worktree))
    # Later ones lie on top of earlier ones, and a folder below /tmp has to come after it.
    seen = [("--ro-bind", path) for path in (repository.common_dir, *repository.stores[1:], files)]
    open_to_it = (repository.worktree, repository.git_dir, repository.stores[0])
    binds = [*seen, *(("--bind", path) for path in open_to_it)]
    flat = [part for option, path in binds for part in (option, str(path), str(path))]
    fixed = ("--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--tmpfs", "/tmp")
    own_folder = ("--setenv", "TMPDIR", "/tmp")
    return (PROGRAM, *fixed, *own_folder, *flat, "--chdir", order.worktree, "--", *argv)
