"""Reads what a worktree holds, without running anything that an agent put there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from holdfast import identity
from holdfast.clock import wall
from holdfast.errors import GitFailed
from holdfast.git import command as git
from holdfast.git import lock_files, objects
from holdfast.git.tree_diff import GITLINK, joined
from holdfast.git.worktree_links import admin_of
from holdfast.layout import Layout
from holdfast.processes import bwrap
from holdfast.snapshots.snapshots import files_below
from holdfast.snapshots.store import Store
from holdfast.snapshots.submodule_state import ModuleState, is_empty, links_in
from holdfast.storage.files import disk

SCRATCH = ".scratch"


class UnneededTree(msgspec.Struct, frozen=True):
    """A worktree that no task needs, and why it still exists."""

    task: str
    path: Path
    reason: str


def unneeded_below(folder: Path, known: Collection[str], is_made: Callable[[str], bool]) -> list[UnneededTree]:
    """The worktrees in a folder whose names are not in `known`."""
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.name.startswith(".") or path.name in known or not path.is_dir():
            continue
        reason = "it holds work that has not landed" if is_made(path.name) else "it was never made whole"
        found.append(UnneededTree(path.name, path, reason))
    return found


def freed(common: Path, folder: Path) -> AbstractContextManager[None]:
    """Removes stale locks of a dead git in a worktree of ours; `worktree add` makes a git dir of its own. `common`: the
    repository's git dir."""
    admin = admin_of(folder)
    if admin is None or admin.parent.resolve() != (common / "worktrees").resolve():
        return contextlib.nullcontext()
    return lock_files.freed_below(common, admin, folder)


def is_tree(
    repository: git.Repository,
    wanted: str,
    store: Store,
    which: Callable[[Callable[..., git.GitResult]], Sequence[str]],
    states: Mapping[str, ModuleState],
    confine: git.Confine | None = None,
) -> bool:
    """Whether the worktree, as `git add` would take it, is this tree. `which`: the paths to compare; it is
    given git with the index of the comparison. `states`: the submodules that are set up in it."""
    path, index = repository.worktree, repository.git_dir / "holdfast-index"
    env = git.environment(without_own_filters(path), GIT_DIR=str(repository.git_dir), GIT_WORK_TREE=str(path))
    env["GIT_INDEX_FILE"] = str(index)

    def run(*args: str, stdin: bytes = b"") -> git.GitResult:
        return git.run(*args, cwd=path, env=env, stdin=stdin, confine=confine)

    try:
        # The objects of the comparison are discarded.
        locks = [index.with_name(f"{index.name}.lock")]
        with store.working() as folder, lock_files.freed_files(locks, [path, repository.git_dir]):
            env |= store.writing(folder / "objects")
            run("read-tree", wanted)
            # With a gitlink in the index, git would run inside, with the settings that it finds there.
            links = links_in(run("ls-files", "-s", "-z").fields())
            run("update-index", "--force-remove", "-z", "--stdin", stdin=joined(links))
            paths = which(run)
            # A new file makes it another tree, however large, so it is not read.
            new = run("ls-files", "-z", "-o", "--exclude-standard", "--", *paths).fields()
            if not all(name.endswith("/") for name in new):
                return False
            run("add", "-A", "--", *paths, *(f":(top,exclude,literal){name}" for name in states))
            back = [f"{facts}\t{name}" for name, facts in links.items() if is_empty(path / name)]
            back += [f"{GITLINK} {state.commit} 0\t{name}" for name, state in states.items() if not state.tree]
            run("update-index", "--add", "-z", "--index-info", stdin=joined(back))
            return run("write-tree").line == wanted
    except GitFailed:
        return False
    finally:
        disk.unlink(index, missing_ok=True)


def all_but(names: Sequence[str], copied: Collection[str], run: Callable[..., git.GitResult]) -> list[str]:
    """Pathspecs for all of a worktree but these paths. `copied`: those of them that we have put there. `run`: git in
    there."""
    paths = [f":(top,literal){name}" for name in copied]
    # `git add` fails where a path that it is to leave out is ignored anyway.
    ignored = run("ls-files", "-z", "-o", "-i", "--exclude-standard", "--", *paths).fields() if paths else []
    return [":/", *(f":(top,exclude,literal){name}" for name in names if name not in ignored)]


def without_own_filters(folder: Path) -> dict[str, str]:
    """Settings that turn off the filters of a worktree's own configuration: an agent may have put them there, so that
    we run them. Those of the repository and of the user stay."""
    admin = admin_of(folder)
    if admin is None or not os.path.lexists(admin / "config.worktree"):
        return {}
    asked = ("config", "--show-scope", "--name-only", "-z", "--get-regexp", r"^filter\.")
    env = git.environment({}, GIT_CEILING_DIRECTORIES=str(folder.parent))
    words = git.run(*asked, cwd=folder, env=env, codes=(0, 1)).fields()
    found = {key.rpartition(".")[0] for scope, key in zip(words[::2], words[1::2], strict=True) if scope == "worktree"}
    off = {"clean": "", "smudge": "", "process": "", "required": "false"}
    return {f"{name}.{word}": value for name in sorted(found) for word, value in off.items()}


def rescue(repository: git.Repository, task: str, path: Path, base: str, quarantine: Path) -> None:
    """Moves a folder in the place of a worktree to the quarantine if it has files that the commit has not."""
    if not os.path.lexists(path):
        return
    tracked = set(repository.run("ls-tree", "-r", "-z", "--name-only", base).fields())
    found = {os.path.relpath(file, path) for file in files_below(path) if not file.is_dir()}
    if found - tracked - {".git"}:
        disk.mkdir(quarantine)
        disk.rename(path, quarantine / f"worktree-{task}-{int(wall())}-{os.getpid()}")


def mend(repository: git.Repository, base: str, run: Callable[..., git.GitResult]) -> None:
    """Repairs the git dir of a worktree. An agent's own git syncs nothing: after a power cut its locks are left, its
    index may be torn, and its last commits may be lost. Then HEAD goes back to the base; the files stay. `run`: git in
    there."""
    index = repository.git_dir / "index"
    at = run("rev-parse", "-q", "--verify", "HEAD", codes=(0, 1, 128)).line
    if at != base and not (at and objects.is_whole(repository, at, [base])):
        run("update-ref", "--no-deref", "HEAD", base)
        disk.unlink(index, missing_ok=True)
    if run("ls-files", "-z", codes=(0, 128)).code or not index.exists():
        disk.unlink(index, missing_ok=True)
        run("read-tree", "HEAD")


def judging_worktrees(layout: Layout) -> list[Path]:
    """The worktrees in which gates run: first the one that is always there, whether it is made yet or not."""
    first = layout.worktrees / SCRATCH
    return [first, *sorted(path for path in layout.worktrees.glob(f"{SCRATCH}-*") if path.name[9:].isdigit())]


def scratch_mark(*, is_confined: bool) -> bytes:
    """The mark of the worktree for gates: the boot in which it was made whole, and whether its users are confined."""
    return f"{identity.boot_id()}{' confined' if is_confined else ''}\n".encode()


def store_of(layout: Layout, repo: Path, audit_key: str) -> Store:
    """The store of snapshots. Once an agent was confined here, filters over files run in a sandbox."""
    store = Store.of(layout.snapshots, repo)

    def confine(folder: Path) -> git.Confine | None:
        if next(layout.inside("cache", "snapshots").glob("*/own/*/git"), None) is None:
            return None
        at = msgspec.structs.replace(store.repository, worktree=folder / "files")
        # Git LFS keeps a file's content there, and lands a pointer to it.
        kept = [path for path in [store.repository.common_dir / "lfs"] if path.is_dir()]
        return bwrap.confine_git(at, layout.root, audit_key, [store.path], [folder, *kept])

    store.confine = confine
    return store
