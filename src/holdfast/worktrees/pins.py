"""Our refs in the user's repository. A pin, `refs/holdfast/base/<data root>/<attempt>`, and for the newest landing
`refs/holdfast/landed/<data root>/<run>.<seq>.<hash of its intent>`.

A pin points to the commit that an attempt began with, so that `git gc --prune=now` after a rewritten history cannot
remove the base of the attempt's snapshots. The data root's own id is part of the name: two roots on one repository have
nothing in common. A pin is removed when its task has ended.

The ref of a landing points to the commit that landed, and moves with the branch in one transaction, so it proves how
far the journal once reached, also where the whole data root was restored from a backup. The trailers of a commit could
not: they come with every `git pull` from a colleague. The id of the data root is the random one of `runtime/root.json`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from holdfast.domain.task import OVER
from holdfast.domain.task_record import Task
from holdfast.errors import GitFailed, GitLocked
from holdfast.git import command as git
from holdfast.git import lock_files, objects
from holdfast.layout import Layout
from holdfast.storage.files import disk
from holdfast.storage.journal import root_place
from holdfast.storage.journal.data_root import read_format
from holdfast.storage.journal.entry import Ref

PINS, LANDED = "refs/holdfast/base", "refs/holdfast/landed"


def pin(repo: Path, layout: Layout, attempt: str, base: str) -> None:
    """Pins the base, durably: from then on a snapshot may leave the base's objects to the repository."""
    repository, ref = git.discover(repo), f"{_folder(layout)}/{attempt}"
    if _pins(repository, layout).get(ref) != base:
        change(repository, [f"update {ref} {base}"], [ref])


def release(repo: Path, layout: Layout, tasks: Iterable[Task]) -> None:
    """Removes the pins of tasks that have ended, once that is journalled. The next run retries what fails now."""
    ended = {task.id for task in tasks if task.state in OVER and task.claim.number}
    if not ended:
        return
    with contextlib.suppress(GitFailed, GitLocked):
        repository = git.discover(repo)
        _remove(repository, {ref: base for ref, base in _pins(repository, layout).items() if _task(ref) in ended})


def tidy(repo: Path, layout: Layout, tasks: Mapping[str, Task]) -> None:
    """Pins every attempt that may continue, and removes the pins of tasks that have ended or are unknown."""
    repository = git.discover(repo)
    found, live = _pins(repository, layout), [task for task in tasks.values() if task.state not in OVER]
    wanted = {task.attempt.id: task.attempt.base for task in live if task.attempt.id and task.attempt.base}
    wanted |= {task.left.attempt: task.left.base for task in live if task.left is not None}
    kept = objects.present(repository, wanted.values())
    missing = {f"{_folder(layout)}/{attempt}": base for attempt, base in wanted.items() if base in kept}
    missing = {ref: base for ref, base in missing.items() if found.get(ref) != base}
    if missing:
        change(repository, [f"update {ref} {base}" for ref, base in missing.items()], missing)
    names = {task.id for task in live}
    _remove(repository, {ref: base for ref, base in found.items() if _task(ref) not in names})


def change(repository: git.Repository, commands: Iterable[str], refs: Iterable[str]) -> None:
    """Changes refs of ours in the user's repository, all or none, and syncs the folders that name them."""
    refs, lines = list(refs), "".join(f"{command}\n" for command in ("start", *commands, "commit"))
    folders = [repository.worktree, repository.common_dir]
    with lock_files.freed(repository.common_dir, repository.git_dir, folders, refs):
        repository.run("update-ref", "--stdin", stdin=lines.encode())
    sync_above(repository, refs)


def sync_above(repository: git.Repository, refs: Iterable[str]) -> None:
    above = {folder for ref in refs for folder in (repository.common_dir / ref).parents}
    for folder in sorted(above, reverse=True):
        if folder.is_relative_to(repository.common_dir) and folder.is_dir():
            disk.sync_folder(folder)


def _remove(repository: git.Repository, refs: Mapping[str, str]) -> None:
    if refs:
        change(repository, [f"delete {ref} {base}" for ref, base in refs.items()], refs)


def _folder(layout: Layout) -> str:
    return f"{PINS}/{read_format(layout).repository}"


def _task(ref: str) -> str:
    return ref.rpartition("/")[2].rpartition(".")[0]


def _pins(repository: git.Repository, layout: Layout) -> dict[str, str]:
    asked = ("for-each-ref", "--format=%(refname) %(objectname)", f"{_folder(layout)}/")
    return dict(line.split(" ", 1) for line in repository.run(*asked).line.splitlines())


# -- landings ---------------------------------------------------------------------------------------------------------


def landed_ref(layout: Layout, intent: Ref) -> str:
    """The name of the ref; empty where the data root has no id yet."""
    root = root_place.id_of(layout)
    return f"{LANDED}/{root}/{intent.run}.{intent.seq}.{intent.entry_hash}" if root else ""


def landed_refs(repo: Path, layout: Layout) -> dict[str, Ref]:
    """The refs of this data root, each with the intent that it names. A copied root has none of its own yet."""
    root = root_place.id_of(layout)
    if not root or root_place.original_of(layout) is not None:
        return {}
    asked = ("for-each-ref", "--format=%(refname)", f"{LANDED}/{root}/")
    names = git.run(*asked, cwd=repo, env=git.environment({}), codes=(0, 128)).line.splitlines()
    parts = {name: name.rpartition("/")[2].split(".") for name in names}
    return {name: Ref(run, int(seq), digest) for name, (run, seq, digest) in parts.items()}


def forget_landed(repo: Path, refs: Iterable[str]) -> None:
    names = list(refs)
    if names:
        change(git.discover(repo), [f"delete {name}" for name in names], names)
