"""One git worktree for each task, at a path that never changes, and one for the gates.

    worktrees/<task>        where the task's agent works; HEAD is detached
    worktrees/.scratch      where gates run: exactly the commit to be judged; .scratch-1 and so on for more at once
    worktrees/.made/<task>  marks a worktree that was made whole and synced; written last, removed first
    worktrees/.gone-*       a worktree that is being removed; the next operation continues the removal
    worktrees/.lock         flocked during every operation, and inherited by its git processes

- An agent starts only once `.made` exists: without it there is no work in the folder, and it is made again. Files that
  git did not put there are moved to the quarantine all the same, never deleted.
- A worktree is removed only when its tree is that of the candidate that has landed. Ignored files go with it.
- When git has forgotten a worktree whose folder still exists (`git worktree prune`), it is registered again; nothing in
  the folder is touched.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from holdfast.crashpoints import point
from holdfast.errors import DiskError, GitFailed, Locked, NotAWorktree
from holdfast.git import command as git
from holdfast.git.worktree_links import admin_of, is_ours, link, place_of, relink
from holdfast.layout import Layout
from holdfast.processes import bwrap
from holdfast.snapshots.size_limits import Bounds
from holdfast.snapshots.snapshots import WorktreeSnapshots, files_below
from holdfast.snapshots.store import Store
from holdfast.snapshots.submodule_state import MODULES, record, recorded
from holdfast.storage.files import disk
from holdfast.storage.journal.lock import flocked
from holdfast.worktrees import content, submodules
from holdfast.worktrees.left_out import left_out
from holdfast.worktrees.stamps import kept_warm, stamp_path
from holdfast.worktrees.submodules import INIT, KEEP

LOCK_WAIT_S_MAX = 600.0
LOCK_POLL_S = 0.05
_STEPS = "add", "made", "reset", "remove", "drop", "scratch"
WORKTREE_POINTS = tuple(f"worktree.{step}.{when}" for step in _STEPS for when in ("before", "after"))
_SCRATCH = content.SCRATCH
# Git would run in a repository inside, with the settings that it finds there.
_STATUS = ("--ignored", "--untracked-files=all", "--ignore-submodules=all")
# Caches that a tool makes in any worktree, whatever its settings. They are not part of the work.
_CACHES = (".aider.tags.cache.v3", ".aider.tags.cache.v4")


class Worktrees:
    def __init__(
        self, repo: Path, layout: Layout, submodules: str = KEEP, audit_key: str = "", bounds: Bounds | None = None
    ) -> None:
        """`submodules`: the setting of this name. `audit_key`: that key's configured path. `bounds`: of snapshots."""
        self._repo, self._layout, self._audit_key = repo, layout, audit_key
        self._submodules, self._bounds, self.is_warm = submodules, bounds, True
        self._made = layout.worktrees / ".made"
        self._lock_fd = -1

    @property
    def exclude(self) -> tuple[str, ...]:
        """The data root as a path in the repository, and caches: never part of a snapshot or a candidate."""
        return (*self._layout.within(self._repo), *_CACHES)

    def left_out(self, task: str) -> tuple[str, ...]:  # also the files that were copied into the worktree
        return (*self.exclude, *left_out(self.private(task)))

    def path(self, task: str) -> Path:
        return self._layout.worktree(task)

    def judging_path(self, place: int = 0) -> Path:
        return self._layout.worktrees / (f"{_SCRATCH}-{place}" if place else _SCRATCH)

    def private(self, task: str) -> Path:
        """The folder for the snapshots' own files."""
        return self._layout.inside("cache", "snapshots", task)

    def snapshots(self, task: str, base: str) -> WorktreeSnapshots:
        """`base`: the commit that the task's attempt began with."""
        modules = own / MODULES if (own := self._own(task)) is not None else None
        path, private = self.path(task), self.private(task)
        confine = self._confine(path, [private])
        find = functools.partial(
            WorktreeSnapshots, path, private, self._layout.snapshots, exclude=self.left_out(task), base=base
        )
        return find(modules=modules, confine=confine, bounds=self._bounds)

    def _confine(self, path: Path, opened: Sequence[Path] = (), *, always: bool = False) -> git.Confine | None:
        """The sandbox for git over a worktree in which a confined process has worked; None: there was none."""
        is_judged, mark = path.name.startswith(_SCRATCH), content.scratch_mark(is_confined=True)
        if not (always or (self.is_made(path.name, mark) if is_judged else self._own(path.name) is not None)):
            return None
        repository = git.discover(path)
        shown, opened = [self.store.path], [*opened, repository.git_dir]
        return bwrap.confine_git(repository, self._layout.root, self._audit_key, shown, opened)

    def _own(self, task: str) -> Path | None:
        """The git dir of the last confined attempt that has begun."""
        found = self.private(task).glob("own/*/git")
        return max(found, key=lambda path: int(path.parent.name.rpartition(".")[2]), default=None)

    @property
    def modules(self) -> Path | None:
        """The repository's own git dirs of submodules, where submodules are set up in worktrees."""
        return self.store.repository.common_dir / MODULES if self._submodules == INIT else None

    @functools.cached_property
    def store(self) -> Store:
        return content.store_of(self._layout, self._repo, self._audit_key)

    # -- making -------------------------------------------------------------------------------------------------------

    def prepare(self, task: str, base: str) -> Path:
        """Makes the worktree at `base` unless it exists. The caller guarantees that no process works in it."""
        path = self.path(task)
        with self._locked():
            self._finish_removals()
            if not self._mended(task, path, base):
                self._add(task, path, base)
        return path

    def mend(self, task: str, base: str) -> bool:
        """Registers the worktree with git again after a power cut, its files unchanged; False: there is none."""
        with self._locked():
            return self._mended(task, self.path(task), base)

    def _mended(self, task: str, path: Path, base: str) -> bool:
        if not self.is_made(task) or not path.is_dir():
            return False
        if not self._is_known(path):
            self._register(path, base)
        content.mend(git.discover(path), base, functools.partial(self._git, path))
        return True

    def reset(self, task: str, commit: str, tree: str = "") -> None:
        """Makes the worktree `tree`, or `commit` itself, with HEAD detached at `commit`; ignored files stay.

        The caller has saved what was there, and guarantees that no process works in it. A crash may leave it half done;
        calling it again completes it.
        """
        path = self.path(task)
        with self._locked():
            point("worktree.reset.before")
            self._git(path, "read-tree", "--reset", "-u", f"{tree or commit}^{{tree}}")
            self._git(path, "clean", "-f", "-d", "-q", *self._but_left_out(task, functools.partial(self._git, path)))
            submodules.empty(self.store, path, tree or commit, self._gone)
            self._git(path, "update-ref", "--no-deref", "HEAD", commit)
            self._git(path, "read-tree", commit)
            # Only the times in the index: differences are the agent's work.
            self._git(path, "update-index", "-q", "--refresh", codes=(0, 1))
            disk.sync_filesystem(path, files_below(path))
            point("worktree.reset.after")

    @contextlib.contextmanager
    def holding(self, task: str, base: str, tree: str) -> Iterator[None]:
        """Gives the worktree the submodules of `tree`, and no others, while it is made equal to `tree`.

        A snapshot has what was there. Raises before anything is changed where a submodule cannot be set up.
        """
        if self._submodules != INIT and not recorded(self.private(task)):
            yield
            return
        wanted = submodules.plan(self.store, base, tree) if self._submodules == INIT else []
        place, states = self._place(self.path(task), task), self.snapshots(task, base).submodules()
        with self._locked():
            submodules.clear(place, wanted, states)
        yield
        with self._locked():
            submodules.fill(place, wanted)
            self._finish_removals()

    def expect_submodules(self, base: str) -> None:
        """Raises where the repository lacks a submodule of a commit that an attempt is to begin with."""
        if self._submodules == INIT:
            submodules.plan(self.store, base, base)

    def _place(self, path: Path, task: str) -> submodules.ModulePlace:
        own, aside = self._own(task), submodules.aside(self._layout.quarantine, task)
        git_dir = git.discover(path).git_dir
        return submodules.ModulePlace(
            self._repo, path, git_dir, own, self.private(task), gone=lambda: self._gone(task), aside=aside
        )

    def _gone(self, name: str) -> Path:
        """A path for a folder that is being removed."""
        return self._layout.worktrees / f".gone-{name.strip('.')}-{disk.temp_name().strip('.')}"

    def scratch(self, merged: str, place: int = 0, *, is_confined: bool = False) -> Path:
        """A worktree that is exactly this commit, with nothing else in it. `is_confined`: its users are. One that
        others have used is made again: no unconfined git reads what a confined gate wrote."""
        path, mark = self.judging_path(place), content.scratch_mark(is_confined=is_confined)
        with self._locked():
            self._finish_removals()
            point("worktree.scratch.before")
            if not (self.is_made(path.name, mark) and self._clean(path, merged)):
                # A crash, a power cut or a gate has left it so that git cannot clean it: made again.
                self._drop(path.name, path)
                # A filter may be a program of the commit itself: the files are written once it is confined.
                add = ("worktree", "add", "--detach", "--force", "--force", "--no-checkout", "-q", str(path), merged)
                self._git(self._repo, *add)
                self._mark(path.name, mark)
                self._git(path, "checkout", "--detach", "--force", "-q", merged)
            self._fill_scratch(path, merged)
            point("worktree.scratch.after")
        return path

    def _fill_scratch(self, path: Path, merged: str) -> None:
        """Makes the submodules again each time: gates may have left anything in them."""
        submodules.empty(self.store, path, merged, self._gone, whole=True)
        place = self._place(path, path.name)
        if (place.git_dir / MODULES).is_dir():
            disk.remove_tree(place.git_dir / MODULES)
        if self._submodules == INIT:
            record(place.private, [])
            submodules.fill(place, submodules.plan(self.store, merged, merged))
        self._finish_removals()

    def _add(self, task: str, path: Path, base: str) -> None:
        content.rescue(git.discover(self._repo), task, path, base, self._layout.quarantine)
        self._drop(task, path)
        point("worktree.add.before")
        self._git(self._repo, "worktree", "add", "--detach", "--force", "--force", "-q", str(path), base)
        point("worktree.add.after")
        repository = git.discover(path)
        for folder in {path, repository.git_dir}:
            disk.sync_filesystem(folder, files_below(folder))
        point("worktree.made.before")
        self._mark(task, f"{base}\n".encode())
        point("worktree.made.after")

    def _clean(self, path: Path, commit: str) -> bool:
        """Makes an existing worktree exactly the commit; False where that fails."""
        if not self._is_known(path):
            return False
        try:
            self._git(path, "checkout", "--detach", "--force", "--force", "-q", commit)
            warm = kept_warm(self.private(path.name)) if self.is_warm else {}
            self._git(path, "clean", "-f", "-f", "-d", "-x", "-q", *(f"--exclude={rule}" for rule in warm.values()))
            left = set(self._git(path, "status", "--porcelain", "-z", *_STATUS).fields()) - warm.keys()
        except (GitFailed, NotAWorktree):
            return False
        return not left and self._git(path, "rev-parse", "HEAD").line == commit

    def others_in(self, path: Path, *which: str, is_confined: bool = False) -> list[str]:
        """The untracked files and folders, `which` as ls-files calls them; a folder with no other kind in it is one.
        `is_confined`: confined commands have worked there, if no agent yet."""
        asked = ("ls-files", "-z", "-o", *which, "--exclude-standard", "--directory")
        with self._locked():
            return self._git(path, *asked, confine=self._confine(path, always=is_confined)).fields()

    def _register(self, path: Path, base: str) -> None:
        """Registers a worktree that git has forgotten again, under its old path and with its files unchanged."""
        beside = self._gone(path.name)
        if relink(path, git.discover(self._repo).common_dir) and self._is_known(path):
            return
        self._git(self._repo, "worktree", "add", "--detach", "--no-checkout", "-q", str(beside), base)
        old = admin_of(path)
        disk.replace(path / ".git", (beside / ".git").read_bytes())
        disk.remove_tree(beside)
        if old is not None and place_of(old) == path:
            # A power cut has left it unreadable for git.
            disk.remove_tree(old)
        if (admin := admin_of(path)) is not None:
            link(path, admin)
        self._git(path, "read-tree", base)

    def relink(self) -> None:
        """Links every worktree to this repository, after both were moved or copied together."""
        common = git.discover(self._repo).common_dir.resolve()
        with self._locked():
            for path in self._layout.worktrees.glob("*/.git"):
                admin = admin_of(path.parent)
                if admin is not None and admin.parent.parent.resolve() != common:
                    relink(path.parent, common)

    # -- removing -----------------------------------------------------------------------------------------------------

    def remove(self, task: str, *, landed: str) -> bool:
        """Removes the worktree if it holds exactly the landed candidate, a commit or a tree; False: it was kept."""
        path = self.path(task)
        with self._locked():
            self._finish_removals()
            if path.is_dir() and not self._holds(path, landed):
                return False
            point("worktree.remove.before")
            self._drop(task, path)
            point("worktree.remove.after")
            if (private := self.private(task)).is_dir():
                disk.remove_tree(private)
            return True

    def is_spent(self, task: str, *, landed: str) -> bool:
        """Whether `remove` would remove it: it holds exactly what has landed. Changes nothing."""
        with self._locked():
            return self._holds(self.path(task), landed)

    def unneeded(self, known: Collection[str]) -> list[content.UnneededTree]:
        """The worktrees of tasks that are not in `known`: gone, or closed with other content."""
        return content.unneeded_below(self._layout.worktrees, known, self.is_made)

    def drop_scratch(self) -> None:
        """Removes the gates' worktrees, which the next verdict makes again, and what removals left behind."""
        with self._locked():
            for path in content.judging_worktrees(self._layout):
                self._drop(path.name, path)

    def _holds(self, path: Path, landed: str) -> bool:
        """Whether the worktree, as `git add` would take it, is the landed tree; the data root is ignored."""
        if not (path.is_dir() and self.is_made(path.name) and self._is_known(path)):
            return False
        repository = git.discover(path)
        known = recorded(self.private(path.name))
        owned = self.private(path.name).glob("own/*/git")
        if any(submodules.has_work(git_dir / MODULES, known) for git_dir in (repository.git_dir, *owned)):
            # The commits that an agent made in a submodule are nowhere else.
            return False
        states = self.snapshots(path.name, landed).submodules() if known else {}
        wanted = self.store.seen.run("rev-parse", "-q", "--verify", f"{landed}^{{tree}}").line
        confine = self._confine(path, [self.store.prepare().work])
        # Not by the worktree's own index, to which an agent may have added a file that is left out.
        which = functools.partial(self._but_left_out, path.name)
        return content.is_tree(repository, wanted, self.store, which, states, confine=confine)

    def _but_left_out(self, task: str, ask: Callable[..., git.GitResult]) -> list[str]:
        return content.all_but(self.left_out(task), left_out(self.private(task)), ask)

    def _drop(self, task: str, path: Path) -> None:
        """Renames the worktree out of its place, then removes it; a crash leaves the rest for later."""
        point("worktree.drop.before")
        if os.path.lexists(path):
            disk.rename(path, self._gone(path.name))
        point("worktree.drop.after")
        # After the rename: a worktree that stood here without its mark would be nobody's, and stay for ever.
        disk.unlink(self._made / task, missing_ok=True)
        disk.unlink(stamp_path(self.private(task)), missing_ok=True)
        self._finish_removals()

    def _finish_removals(self) -> None:
        for path in self._layout.worktrees.glob(".gone-*"):
            admin = admin_of(path)
            if admin is not None and admin.is_dir() and is_ours(admin, path, self._layout.worktrees):
                disk.remove_tree(admin)
            # What cannot be removed (a folder without write permission) is out of the way.
            with contextlib.suppress(DiskError):
                disk.remove_tree(path) if path.is_dir() and not path.is_symlink() else disk.unlink(path)

    # -- reading ------------------------------------------------------------------------------------------------------

    def is_made(self, task: str, mark: bytes | None = None) -> bool:
        try:
            found = (self._made / task).read_bytes()
        except FileNotFoundError:
            return False
        return mark is None or found == mark

    def _mark(self, task: str, mark: bytes) -> None:
        disk.mkdir(self._made)
        disk.replace(self._made / task, mark)

    def _is_known(self, path: Path) -> bool:
        """Whether git takes the folder for a worktree of this repository."""
        try:
            return git.discover(path).common_dir.samefile(git.discover(self._repo).common_dir)
        except (NotAWorktree, GitFailed, FileNotFoundError):
            return False

    def _git(
        self, folder: Path, *args: str, codes: tuple[int, ...] = (0,), confine: git.Confine | None = None
    ) -> git.GitResult:
        settings = {"core.fsync": "all", "advice.detachedHead": "false", "submodule.recurse": "false"}
        if any(each.startswith(str(self.judging_path())) for each in (str(folder), *args)):
            # Gates judge the whole commit, however little of it the user has checked out.
            settings["core.sparseCheckout"] = "false"
        settings |= content.without_own_filters(folder)
        env = git.environment(settings, GIT_CEILING_DIRECTORIES=str(folder.parent))
        if self.store.exists:
            env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = self.store.alternates()
        with content.freed(self.store.repository.common_dir, folder):
            confine = confine or (self._confine(folder) if folder != self._repo else None)
            return git.run(*args, cwd=folder, env=env, codes=codes, inherit=(self._lock_fd,), confine=confine)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Waits until no other process, and no git process of a killed orchestrator, works on the worktrees."""
        disk.mkdir(self._layout.worktrees)
        path = self._layout.worktrees / ".lock"
        refusal = Locked(path=path, holder="a git process that makes a worktree")
        with flocked(path, LOCK_WAIT_S_MAX, LOCK_POLL_S, refusal) as self._lock_fd:
            try:
                yield
            finally:
                self._lock_fd = -1
