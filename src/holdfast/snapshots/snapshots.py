"""Snapshots: the working tree of an attempt as git objects, in `snapshots.git` as `refs/attempts/<attempt>/<name>`.

Each snapshot is a commit by "holdfast" whose tree is the worktree byte for byte and whose parent is the attempt's
snapshot before it. `<name>` is `turn-<n>`, `orphan-<n>`, or `start-<n>` and `end-<n>` of a start. When nothing has
changed, the new ref names the commit before it. Any git reads them:
`git --git-dir .sdd/snapshots.git diff attempts/T-1.1/turn-3 attempts/T-1.1/turn-4`.

- When `take` returns, the snapshot is on disk in the store: first every object of the tree that the attempt's base does
  not have, whichever process wrote it (git leaves the loose objects of an agent's own commits unsynced, and `git gc`
  may remove them), then its name, only then the ref. Of the user's repository only the base is needed.
- Not held: files that are ignored at the time (but those tracked by the user), the
  contents of submodules and of nested repositories, of which at most the commit is noted, empty folders, devices, pipes
  and sockets, and of a file's mode all but the right to execute. Plain files in the folder of a submodule are held.
- What a sparse checkout keeps out of the worktree is held as the user's index has it; a restore writes it only where
  the snapshot differs from that.
- Names in records are text: a byte that is not UTF-8 is shown as `\\xff`.
- Not noticed: a file rewritten in place to the same size within one second, whose time of change was then set back.
- One operation at a time, of all threads and processes: the others wait. A kill at any moment leaves at worst garbage
  objects, which `holdfast gc` removes.
- After a failed sync this object refuses everything: what was not on disk then must not count as durable later.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from holdfast.clock import wall
from holdfast.errors import (
    AlreadyExists,
    DiskError,
    GitFailed,
    InvalidName,
    Poisoned,
    RestoreIncomplete,
    SnapshotDamaged,
    SnapshotMissing,
    SyncFailed,
)
from holdfast.git import command as git
from holdfast.git import objects
from holdfast.git.command import readable
from holdfast.git.tree_diff import GITLINK, changes
from holdfast.snapshots.shadow import Large, Shadow
from holdfast.snapshots.shadow_parts import Excluded, Stamp, file_stamp
from holdfast.snapshots.size_limits import Bounds
from holdfast.snapshots.store import ATTEMPTS
from holdfast.snapshots.submodule_state import ModuleState, unborn
from holdfast.storage.files import disk

ROOT = ATTEMPTS
_PART = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9._-]{0,127}(?<!\.)(?<!\.lock)")
_REFERENCE = re.compile(r"refs/(attempts|candidates|merged)/[A-Za-z0-9._/-]+|[0-9a-f]{40}|[0-9a-f]{64}")


class Snapshot(msgspec.Struct, frozen=True):
    """`changed`: it differs from the attempt's snapshot before it. `excluded`: what it does not hold, and why."""

    ref: str
    commit: str
    tree: str
    changed: bool
    excluded: list[Excluded]


class _Saved(msgspec.Struct, frozen=True):
    commit: str
    tree: str


class WorktreeSnapshots:
    """The snapshots of one worktree. `private` is a folder of our own; see `shadow` for what it holds. `store` is
    where they are kept. `base`: a commit that the user's repository keeps, so the store need not have its objects.

    `exclude`: paths that are never taken, such as the data root, relative to the worktree. `private` and `store`
    are never taken either. `index`: the index of the agent that works there, if it is not git's. `modules`: where
    git dirs of its submodules are searched first. `confine`: the sandbox of git processes that read files which a
    confined agent writes. `bounds`: how much a snapshot may hold beyond the base.
    """

    def __init__(
        self,
        worktree: Path,
        private: Path,
        store: Path,
        exclude: Sequence[str] = (),
        index: Path | None = None,
        base: str = "",
        modules: Path | None = None,
        confine: git.Confine | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self._shadow = Shadow(
            worktree, private, store, exclude, index=index, modules=modules, confine=confine, bounds=bounds
        )
        self._repository = self._shadow.repository
        self._store = self._shadow.store
        self._base = base
        self._unborn = unborn(self._repository.hash_name)
        self._no_tree = hashlib.new(self._repository.hash_name, b"tree 0\0").hexdigest()
        self._forget()

    def _forget(self) -> None:
        """Clears the caches, so that the next `take` reads everything again."""
        self._last: dict[str, tuple[Stamp, _Saved]] = {}
        # The tree whose objects are known to be kept, here or by the base; empty before the first use.
        self._kept_tree = ""
        self._gitlinks: dict[str, str] = {}
        self._of_base: frozenset[str] = frozenset()

    # -- taking -------------------------------------------------------------------------------------------------------

    def take(self, attempt: str, name: str, *, large: Large = "refuse") -> Snapshot:
        """Saves the worktree as it stands. A snapshot that has this name already is replaced.

        `large`: how to treat a file that is too large. `refuse` raises, and nothing is taken; `leave_out` leaves it in
        the worktree, and the snapshot has its content as of the snapshot before.
        """
        ref = reference(attempt, name)
        with self._at_work():
            try:
                return self._take(attempt, ref, f"{attempt} {name}", large)
            except GitFailed:
                # The caches may be stale: another process pruned the attempt, and git collected its objects.
                self._forget()
                self._shadow.forget_index()
                return self._take(attempt, ref, f"{attempt} {name}", large)

    def _take(self, attempt: str, ref: str, message: str, large: Large) -> Snapshot:
        before = self._newest(attempt)
        staged = self._shadow.stage(before.tree if before else None, large, self._began(attempt))
        saved = before
        if saved is None or saved.tree != staged.tree:
            saved = self._commit(staged.tree, before, message)
        if saved is not before or saved.tree != self._kept_tree:
            self._keep_objects(saved)
        self._store.name(ref, saved.commit)
        self._last[attempt] = (self._refs_stamp(attempt), saved)
        noted = {path: commit for path, commit in self._gitlinks.items() if commit != self._unborn}
        links = [Excluded(path, f"only its commit {commit} is noted") for path, commit in noted.items()]
        return Snapshot(ref, saved.commit, saved.tree, saved is not before, _public(links + staged.excluded))

    def _began(self, attempt: str) -> str:
        """The commit that the attempt began with, which may be any size. Filters may make its files differ from it."""
        first = self._store.path / ROOT / attempt / "start-1"
        return first.read_text().strip() if attempt and first.exists() else self._base

    def _newest(self, attempt: str) -> _Saved | None:
        """The end of the attempt's chain. Independent of clocks and names: each snapshot leads to all before it."""
        if attempt in self._last:
            stamp, saved = self._last[attempt]
            if stamp is not None and stamp == self._refs_stamp(attempt):
                return saved
            # Another process changed the refs, so what was durable may be gone by now.
            self._forget()
        asked = ("--topo-order", "--max-count=1", "--no-commit-header", "--format=%H %T")
        found = self._store.run("rev-list", *asked, f"--glob={ROOT}/{attempt}").line.split()
        return _Saved(*found) if found else None

    def _refs_stamp(self, attempt: str) -> Stamp:
        """The stamp of the refs' folder, which changes with each ref that is written or removed."""
        return file_stamp(self._store.path / ROOT / attempt)

    def _commit(self, tree: str, parent: _Saved | None, message: str) -> _Saved:
        now = f"@{int(wall())} +0000"
        who = {
            f"GIT_{role}_{what}": value
            for role in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", "holdfast"), ("EMAIL", "holdfast@localhost"), ("DATE", now))
        }
        parents = ["-p", parent.commit] if parent else []
        made = self._shadow.run("commit-tree", tree, *parents, "-F", "-", stdin=message.encode(), variables=who)
        return _Saved(made.line, tree)

    def _keep_objects(self, saved: _Saved) -> None:
        """Brings into the store the objects of `saved` that the last kept tree lacks, by any writer."""
        self._read_base()
        new = {saved.commit, saved.tree}
        for change in changes(self._shadow.run, self._kept_tree, saved.tree, "-t"):
            if change.was_gitlink:
                del self._gitlinks[change.path]
            if change.new is not None and change.is_gitlink:
                self._gitlinks[change.path] = change.new.object
            elif change.new is not None:
                new.add(change.new.object)
        staging = self._shadow.staging
        unwritten = (name for name in new - self._of_base if not (staging / name[:2] / name[2:]).exists())
        if borrowed := self._store.missing(unwritten):
            # Git packs very large files at once, so these are borrowed as well.
            self._store.borrow(borrowed, staging)
        self._store.publish(staging)
        self._kept_tree = saved.tree

    def _read_base(self) -> None:
        """Once: a pin in the user's repository keeps the base's objects; without a pin, all are copied here."""
        if self._kept_tree:
            return
        self._kept_tree = self._no_tree
        if not self._base or self._store.flaw_of(self._base):
            return
        tree = self._store.run("rev-parse", "-q", "--verify", f"{self._base}^{{tree}}").line
        listed = [entry.split("\t", 1) for entry in self._shadow.run("ls-tree", "-r", "-t", "-z", tree).fields()]
        self._gitlinks = {name: facts.split(" ")[2] for facts, name in listed if facts.startswith(GITLINK)}
        self._of_base = frozenset(facts.split(" ")[2] for facts, _ in listed) | {tree}
        self._kept_tree = tree

    # -- looking ------------------------------------------------------------------------------------------------------

    def names(self, attempt: str) -> dict[str, str]:
        """The snapshots of an attempt, as name → commit; numbers in order, so that turn-10 comes after turn-9."""
        folder = f"{ROOT}/{_checked('The attempt id', attempt)}/"
        return {ref.removeprefix(folder): commit for ref, commit in self._store.refs(folder).items()}

    def changed(self, old: str, new: str) -> list[str]:
        """The paths in which two snapshots differ, sorted; of a renamed file both."""
        trees = self._resolve(old).tree, self._resolve(new).tree
        return sorted(readable(change.path) for change in changes(self._shadow.run, *trees))

    def _resolve(self, name: str) -> _Saved:
        """`name` is a full ref of the store, or a full commit id."""
        if not _REFERENCE.fullmatch(name):
            raise InvalidName(what="The snapshot", name=name, rule="a ref under refs/attempts/ or a full commit id")
        asked = f"{name}^{{commit}}\n{name}^{{tree}}\n".encode()
        found = self._store.run("cat-file", "--batch-check=%(objectname)", stdin=asked).line.split("\n")
        if any(" " in answer for answer in found):
            raise SnapshotMissing(name=name, store=self._store.path)
        return _Saved(*found)

    # -- going back ---------------------------------------------------------------------------------------------------

    def restore(self, name: str) -> list[Excluded]:
        """Makes the worktree exactly the snapshot's; ignored files stay. Returns what is there and not part of it.

        What was there before is lost, unless a snapshot has it. Excluded paths are never touched, not even where the
        snapshot holds them. A crash may leave it half done; calling it again completes it.
        """
        target = self._resolve(name)
        with self._at_work():
            self._require_whole(name, target)
            self._forget()
            # Git removes only what the index knows, so the index has to know everything first.
            self._shadow.stage(target.tree, "leave_out", self._base)
            self._shadow.index_large()
            tree, excluded = self._shadow.without_excluded(target.tree)
            self._shadow.run("read-tree", "--reset", "-u", tree)
            left = self._shadow.left_out("--exclude-standard")
            wrong = [path for path in left if not os.path.lexists(self._shadow.worktree / path / ".git")]
            if wrong:
                paths = ", ".join(map(repr, wrong[:10]))
                raise RestoreIncomplete(path=self._shadow.worktree, name=name, paths=paths)
            disk.sync_filesystem(self._shadow.worktree, files_below(self._shadow.worktree))
            nested = [Excluded(path.rstrip("/"), "it is a nested repository") for path in left]
            return _public(nested + excluded)

    def _require_whole(self, name: str, target: _Saved) -> None:
        """Checks before anything is changed: a missing object would otherwise be found when half is done."""
        found = self._shadow.run("rev-list", "--objects", "--no-object-names", "--quiet", target.tree, codes=(0, 128))
        if found.failure:
            raise SnapshotDamaged(name=name, path=self._store.path, reason=found.failure.stderr)
        if unread := objects.unreadable(self._store.seen, [target.tree]):
            reason = f"{unread[0].name}: {unread[0].reason}"
            raise SnapshotDamaged(name=name, path=self._store.path, reason=reason)

    def export(self, name: str, folder: Path) -> None:
        """Writes the snapshot into `folder`, which must be absent or empty, and appears whole or not at all."""
        target, folder = self._resolve(name), folder.absolute()
        if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
            raise AlreadyExists(operation="export to", path=folder, reason="it is not an empty folder")
        with self._at_work():
            self._require_whole(name, target)
            disk.mkdir(folder.parent)
            for leftover in (folder.parent / name for name in os.listdir(folder.parent) if disk.is_leftover(name)):
                if leftover.is_dir() and not leftover.is_symlink():
                    disk.remove_tree(leftover)
            staging = folder.parent / disk.temp_name()
            disk.mkdir(staging)
            try:
                here = {"GIT_INDEX_FILE": str(self._shadow.scratch_index()), "GIT_WORK_TREE": str(staging)}
                self._shadow.run("read-tree", target.tree, variables=here)
                self._shadow.run("checkout-index", "-a", variables=here)
                disk.sync_filesystem(staging, files_below(staging))
                disk.rename(staging, folder)
            except BaseException:
                # The first error is the one to show, and the next export removes what is left.
                with contextlib.suppress(DiskError):
                    disk.remove_tree(staging)
                raise

    def standing(self, attempt: str = "") -> str:
        """The tree of the worktree as it is, kept nowhere; empty where a file is too large for a snapshot."""
        with self._at_work():
            staged = self._shadow.stage(None, "leave_out", self._began(attempt))
            return staged.tree if staged.is_whole else ""

    def submodules(self) -> dict[str, ModuleState]:
        """The state of each submodule that is set up in the worktree, by its path."""
        with self._at_work():
            return self._shadow.submodules.states()

    _failure: SyncFailed | None = None

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        with self._shadow.locked():
            if self._failure is not None:
                raise Poisoned(path=self._failure.path, reason=self._failure.reason) from self._failure
            try:
                yield
            except (GitFailed, DiskError) as failure:
                if isinstance(failure, SyncFailed):
                    self._failure = failure
                # The caches would vouch for objects that are gone, or that may never have reached the disk.
                self._forget()
                with contextlib.suppress(DiskError):
                    self._shadow.forget_index()
                raise


def reference(attempt: str, name: str) -> str:
    return f"{ROOT}/{_checked('The attempt id', attempt)}/{_checked('The snapshot name', name)}"


def _checked(what: str, part: str) -> str:
    if not _PART.fullmatch(part):
        rule = "up to 128 letters, digits, '.', '_' and '-', no '..' in it, not ending in '.' or '.lock'"
        raise InvalidName(what=what, name=part, rule=rule)
    return part


def files_below(top: Path) -> Iterator[Path]:
    for parent, _, files in os.walk(top):
        yield from (Path(parent, name) for name in files if not os.path.islink(os.path.join(parent, name)))
        yield Path(parent)


def _public(excluded: list[Excluded]) -> list[Excluded]:
    return sorted((Excluded(readable(left.path), left.reason) for left in excluded), key=lambda left: left.path)
