"""The landing: moves the target branch from the commit that was merged onto to the one that was verified.

The order is: the commit's objects are on disk, then the branch moves if it is still where it was, then the ref and
every folder above it are on disk. Whatever dies in between, the branch names the old commit or the new, whole. The ref
itself shows afterwards what happened, so no landing is made twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec

from holdfast.crashpoints import point
from holdfast.domain.effect_entries import LandIntended
from holdfast.domain.task_record import Task
from holdfast.errors import FileMissing, GitFailed, GitFault, LandingLost
from holdfast.git import command as git
from holdfast.git import lock_files, objects
from holdfast.layout import Layout
from holdfast.ports import DidNotHappen, Happened, InDoubt, Reconciled
from holdfast.snapshots.store import Store
from holdfast.storage.files import disk
from holdfast.storage.journal.intents import OpenIntent
from holdfast.worktrees import merges, pins
from holdfast.worktrees.pins import sync_above

LAND_POINTS = tuple(f"land.{step}.{when}" for step in ("objects", "swap", "sync") for when in ("before", "after"))
SWAPS_MAX = 5
# How far back a rewritten landing is looked for.
COMMITS_MAX = 5000
_SYNCED = {"core.fsync": "all", "core.filesRefLockTimeout": "500", "core.logAllRefUpdates": "true"}


class Land:
    """The effect of landing, on one repository."""

    def __init__(self, repo: Path, layout: Layout) -> None:
        self._repo, self._layout = repo, layout

    def perform(self, intent: OpenIntent) -> dict[str, Any]:
        wanted = msgspec.convert(intent.entry.inputs, LandIntended)
        repository = git.discover(self._repo)
        objects.require_whole(repository, wanted.new, [_known(wanted)] if wanted.old else [])
        point("land.objects.before")
        self._hand_over(repository, wanted)
        merges.make_durable(self._repo)
        point("land.objects.after")
        point("land.swap.before")
        witness = pins.landed_ref(self._layout, intent.ref)
        for _ in range(SWAPS_MAX):
            older = [ref for ref in pins.landed_refs(self._repo, self._layout) if ref != witness]
            if _swap(repository, wanted, witness, older):
                break
        else:
            reason = "it says that the branch moved, and the branch is where it was"
            raise GitFailed(command="update-ref", path=repository.worktree, code=0, stderr=reason)
        point("land.swap.after")
        # The user's `git prune` in between would have found no ref to it.
        self._hand_over(repository, wanted)
        point("land.sync.before")
        _sync(repository, wanted.branch, witness)
        point("land.sync.after")
        return _result(wanted)

    def _hand_over(self, repository: git.Repository, wanted: LandIntended) -> None:
        if (store := Store(self._layout.snapshots, repository)).exists:
            store.hand_over(wanted.new, _known(wanted))

    def reconcile(self, intent: OpenIntent) -> Reconciled:
        """A branch at neither commit was moved by somebody else: the landing is planned again on top of it."""
        wanted = msgspec.convert(intent.entry.inputs, LandIntended)
        if not wanted.branch or not wanted.new:
            return InDoubt("its intent does not say what was to land where")
        repository, witness = git.discover(self._repo), pins.landed_ref(self._layout, intent.ref)
        # The process that moved it may have died before it removed its locks, or before the sync.
        with _freed(repository, wanted.branch, witness):
            has_moved = _reaches(repository, wanted.branch, wanted.new)
        if not (has_moved or _was_rewritten(repository, witness, wanted)):
            return DidNotHappen()
        self._hand_over(repository, wanted)
        _sync(repository, wanted.branch, witness)
        return Happened(_result(wanted))


def _was_rewritten(repository: git.Repository, witness: str, wanted: LandIntended) -> bool:
    """Whether the branch moved, as its witness did, and a person then amended or rebased the commit.

    The next run journals which commit it is now.
    """
    if not witness or _commit_at(repository, witness) != wanted.new:
        return False
    return bool(find_rewritten(repository, wanted.branch, wanted.new, wanted.task, wanted.attempt)[0])


def branch_of(task: Task) -> str:
    """The branch that a task has landed on."""
    return task.landing.branch or str(task.outcome.get("branch", "")) or "HEAD"


def _result(wanted: LandIntended) -> dict[str, Any]:
    return {"branch": wanted.branch, "old": wanted.old, "new": wanted.new}


def _commit_at(repository: git.Repository, branch: str) -> str:
    return repository.run("rev-parse", "--verify", "--quiet", f"{branch}^{{commit}}", codes=(0, 1, 128)).line


def reaches(repo: Path, branch: str, commit: str) -> bool:
    """Whether the branch leads to the commit."""
    return _reaches(git.discover(repo), branch, commit)


def _reaches(repository: git.Repository, branch: str, commit: str) -> bool:
    at = _commit_at(repository, branch)
    # Code 128: the commit itself is not there.
    return bool(at) and not repository.run("merge-base", "--is-ancestor", commit, at, codes=(0, 1, 128)).failure


# -- moving the branch ------------------------------------------------------------------------------------------------


def _known(wanted: LandIntended) -> str:
    """A commit that the repository has: for a new branch, the commit that the landing was merged onto."""
    return wanted.old if wanted.old.strip("0") else f"{wanted.new}^"


def _swap(repository: git.Repository, wanted: LandIntended, witness: str, older: Sequence[str]) -> bool:
    """Compares and moves the branch. Raises LandingLost where it is not at the commit that was merged onto.

    False: it moved, and a `git reset` that had begun before has moved it back already.
    """
    command = ("update-ref", "-m", f"holdfast: {wanted.task}", "--stdin")
    changes = [f"update {wanted.branch} {wanted.new} {wanted.old}", *(f"delete {ref}" for ref in older)]
    changes += [f"update {witness} {wanted.new}"] if witness else []
    text = "".join(f"{line}\n" for line in ("start", *changes, "commit")).encode()
    env = repository.env | git.environment(_SYNCED)
    failure: GitFailed | None
    with _freed(repository, wanted.branch, witness, *older):
        try:
            failure = git.run(*command, cwd=repository.worktree, env=env, stdin=text, codes=(0, 1, 128)).failure
        except GitFault as fault:
            # A killed git may have moved the branch all the same.
            failure = fault
    at = _commit_at(repository, wanted.branch)
    # Where git reports that it moved the branch, it did, also when a person has amended the commit since.
    if at == wanted.new or (failure is None and at != wanted.old):
        return True
    # Zeros mean that the branch must not exist yet.
    if at != (wanted.old if wanted.old.strip("0") else ""):
        found = f"is at {at}" if at else "is gone"
        raise LandingLost(task=wanted.task, branch=wanted.branch, old=wanted.old, found=found)
    if failure is not None:
        raise failure
    return False


def _freed(repository: git.Repository, branch: str, *own: str) -> AbstractContextManager[None]:
    folders = [repository.worktree, repository.common_dir]
    refs = [_real_name(repository, branch), *filter(None, own)]
    return lock_files.freed(repository.common_dir, repository.git_dir, folders, refs)


def _real_name(repository: git.Repository, branch: str) -> str:
    """Resolves a symbolic ref: the ref that it names moves, and it stays."""
    return repository.run("symbolic-ref", "--quiet", branch, codes=(0, 1, 128)).line or branch


def _sync(repository: git.Repository, branch: str, witness: str) -> None:
    """Syncs the ref, its log, the packed refs, and every folder from the ref up to the repository's own."""
    if witness:
        sync_above(repository, [witness])
    common = repository.common_dir
    ref = common / _real_name(repository, branch)
    tables = common / "reftable"
    names = [ref, common / "logs" / ref.relative_to(common), repository.git_dir / "logs" / "HEAD"]
    names += [common / "packed-refs", *(tables.iterdir() if tables.is_dir() else ())]
    for path in names:
        # A packed ref has no file, and neither has a log that is switched off.
        with contextlib.suppress(FileMissing):
            disk.sync_file(path)
    for folder in (tables, ref.parent, *ref.parent.parents):
        if folder.is_dir():
            disk.sync_folder(folder)
        if folder == common:
            break


# -- rewritten landings -----------------------------------------------------------------------------------------------


def find_rewritten(repository: git.Repository, branch: str, landed: str, task: str, attempt: str) -> tuple[str, str]:
    """The commit on the branch that `landed` was rewritten as, by an amend, a rebase or a squash, and the evidence:
    lines in its message, its tree or its patch. Both empty where there is none."""
    is_there = not repository.run("cat-file", "-e", f"{landed}^{{commit}}", codes=(0, 1, 128)).failure
    since = [f"^{landed}^@"] if is_there else []
    asked = ("log", f"--max-count={COMMITS_MAX}", "-z", "--format=%H%x01%T%x01%B", branch, *since, "--")
    found = repository.run(*asked, codes=(0, 128))
    if found.failure is not None:
        return "", ""
    commits = [field.strip("\n").split("\x01", 2) for field in found.fields() if field.strip()]
    ours = {f"Holdfast-Task: {task}", f"Holdfast-Attempt: {attempt}"}
    for commit, _, message in commits:
        # In a squash the lines are in the middle of the message, where git does not take them for trailers.
        if ours <= {line.strip() for line in message.splitlines()}:
            return commit, "its message names the task and the attempt"
    if not is_there:
        return "", ""
    tree = repository.run("rev-parse", f"{landed}^{{tree}}").line
    for commit, its_tree, _ in commits:
        if its_tree == tree:
            return commit, "it has the same tree"
    wanted = _patch_ids(repository, [landed])
    by_patch = {patch: commit for commit, patch in _patch_ids(repository, [each[0] for each in commits]).items()}
    commit = by_patch.get(wanted.get(landed, "-"), "")
    return commit, "it makes the same changes" if commit else ""


def _patch_ids(repository: git.Repository, commits: Iterable[str]) -> dict[str, str]:
    text = "".join(f"{commit}\n" for commit in commits).encode()
    if not text:
        return {}
    shown = repository.run("diff-tree", "--stdin", "--patch", "--no-ext-diff", "--no-textconv", "--root", stdin=text)
    lines = repository.run("patch-id", "--stable", stdin=shown.out).line.splitlines()
    return {commit: patch for patch, _, commit in (line.partition(" ") for line in lines)}
