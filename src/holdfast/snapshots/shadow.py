"""The shadow: a git dir of our own that reads an attempt's worktree and writes into the store of snapshots.

    <private>/lock               flocked during every operation; inherited by each git process that it starts
    <private>/git/               HEAD, config, refs/ (empty), info/attributes, info/exclude (the repository's, copied)
    <private>/index-<boot id>    the private index
    <private>/staging-<boot id>  objects that git has written and the store does not have yet

All of it can be deleted and is made again. The repository's own HEAD, index, configuration and hooks are never
touched: git runs with GIT_DIR = the shadow, GIT_OBJECT_DIRECTORY = the staging folder, and sees the objects of the
store and of the repository. `info/attributes`, which wins over any `.gitattributes`, turns off every conversion, so
that what is stored is what is on disk, byte for byte.

- The lock is free only when the operation *and* its git processes have ended, so a lock of git's is then a leftover.
- The index and the staging folder are not synced, and belong to one boot: after a power cut the index could name
  objects that never reached the disk, so another boot starts from new ones.
- An index that git refuses, or that names an object which is gone, is built again from the last snapshot.
- Before git reads the worktree, the index loses what must not be in it: excluded paths, files that are ignored by now
  and not tracked by the user, and every gitlink: with one in the index, git would run
  inside that repository, with the settings that it finds there. Each is found again, by its HEAD alone; one without a
  commit, which git refuses to add, is noted as `unborn`, so that it is missed like any other when it is gone.
- Files that a sparse checkout keeps out of the worktree are held as the user's index has them while they are absent.
  In a partial clone their content may be absent, too; then they are left out.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Literal

import msgspec

from holdfast import identity
from holdfast.errors import GitFailed, Locked
from holdfast.git import command as git
from holdfast.git import objects
from holdfast.git.tree_diff import GITLINK, joined
from holdfast.snapshots import size_limits
from holdfast.snapshots.shadow_parts import Excluded, Stamp, file_stamp, is_below, relative, unopened
from holdfast.snapshots.store import Store, clear, keep, make_git_dir, reads_files
from holdfast.snapshots.submodule_state import MODULES, Submodules, is_empty, unborn_links
from holdfast.storage.files import disk
from holdfast.storage.journal.lock import flocked

LOCK_WAIT_S_MAX = 60.0
LOCK_POLL_S = 0.01
# We sync what git writes, before it has its name in the store.
_SETTINGS = {
    "core.fsync": "none",
    "core.protectHFS": "false",
    "core.protectNTFS": "false",
    "advice.addEmbeddedRepo": "false",
    "submodule.recurse": "false",
}
_TRACKED_AND_IGNORED = ("ls-files", "-z", "-c", "-i", "--exclude-standard")
_PASSED_ON = r"^core\.(excludesfile|sharedrepository)$"


Large = Literal["refuse", "leave_out", "take"]


class StagedTree(msgspec.Struct, frozen=True):
    """`is_whole`: no file was left out for its size."""

    tree: str
    excluded: list[Excluded]
    is_whole: bool = True


class Shadow:
    def __init__(
        self,
        worktree: Path,
        private: Path,
        store: Path,
        exclude: Sequence[str],
        index: Path | None = None,
        modules: Path | None = None,
        confine: git.Confine | None = None,
        bounds: size_limits.Bounds | None = None,
    ) -> None:
        """`index`: the index of the agent that works there, if it is not the worktree's own; ignored if unreadable.
        `modules`: where git dirs of submodules are searched first, before the place beside that index. `confine`: the
        sandbox of git processes that read the files. `bounds`: how much a snapshot may hold."""
        self._confine, self._size_check = confine, size_limits.SizeCheck(bounds or size_limits.Bounds(), self.run)
        self._large: dict[str, int] = {}  # for the snapshot that is being taken
        self._large_mode: Large = "refuse"
        self.repository = git.discover(worktree)
        self._their_index = index or self.repository.git_dir / "index"
        self._is_trusted = index is None
        self.worktree = self.repository.worktree
        self._exclude = [relative(name, self.worktree) for name in exclude]
        self._private = private.absolute()
        self.store = Store(store, self.repository).prepare()
        self.store.inherited = self._inherited
        for own in (self._private, self.store.path):
            with contextlib.suppress(ValueError):
                self._exclude.append(str(own.resolve().relative_to(self.worktree.resolve())))
        self._git_dir = self._private / "git"
        self._index = self._private / f"index-{identity.boot_id()}"
        self.staging = self._private / f"staging-{identity.boot_id()}"
        self._mutex = threading.Lock()
        self._lock_fd, self._holder = -1, -1
        self._forget()
        disk.mkdir(self.staging)
        make_git_dir(self._git_dir, self.repository.hash_name)
        self._env = self._environment()
        places = [*([modules] if modules else []), self._their_index.parent / MODULES]
        self.submodules = Submodules(self.worktree, self._private, places, self.store, self.run, staging=self.staging)
        self.submodules.large = self._too_large

    def _forget(self) -> None:
        self._written: tuple[Stamp, str] | None = None
        # Of the private index, as it was when it had the stamp: gitlinks, and absent files that are held.
        self._listed: Stamp = None
        self._links: dict[str, str] = {}
        # Submodules that are set up in the worktree: they are read by themselves, and added at the end.
        self._apart: list[str] = []
        self._held: dict[str, str] = {}
        self._ignored: set[str] = set()
        # Of the user's index: what it tracks though ignored, what it keeps out of the worktree, and of that what is
        # not in the object store.
        self._user_index: Stamp = None
        self._tracked: set[str] = set()
        self._sparse: dict[str, str] = {}
        self._unfetched: list[Excluded] = []

    # -- running git --------------------------------------------------------------------------------------------------

    def run(
        self,
        *args: str,
        stdin: bytes = b"",
        codes: tuple[int, ...] = (0,),
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> git.GitResult:
        """Runs git in the shadow; `variables` are set on top of its environment."""
        env, confine = {**self._env, **variables}, self._confine if reads_files(args) else None
        if confine is not self._confine:
            env["GIT_WORK_TREE"] = str(self._git_dir)
        at, inherit = Path(env["GIT_WORK_TREE"]), self._inherited()
        return git.run(*args, cwd=at, env=env, stdin=stdin, codes=codes, inherit=inherit, confine=confine)

    def _too_large(self, variables: Mapping[str, str], base: str, *wanted: str) -> dict[str, int]:
        """Finds the files too large to add. `base`: a commit whose files may have any size; `wanted`:
        names that are added though ignored."""
        if self._large_mode == "take" or not self._size_check.bounds.are_any:
            return {}
        env = {**self._env, **variables}
        at = Path(env["GIT_WORK_TREE"])
        asked = ("ls-files", "-z", "-c", "-o", "--exclude-standard", "--", *([] if variables else self._everything()))
        more = itertools.chain.from_iterable(size_limits.below(at, name) for name in wanted)
        with git.listed(*asked, cwd=at, env=env, inherit=self._inherited(), confine=self._confine) as names:
            every = itertools.chain(names, more)
            return self._size_check.too_large(every, at, base, variables, leaves_out=self._large_mode == "leave_out")

    def _run_user(self, *args: str) -> git.GitResult:
        """Reads the user's index. A confined agent's is read as data only, and no other file of its git dir is. A torn
        one counts as empty."""
        if not self._is_trusted and (self._their_index.is_symlink() or not self._their_index.is_file()):
            return git.GitResult(0, b"", None)
        env, inherit = {**self.repository.env, "GIT_INDEX_FILE": str(self._their_index)}, self._inherited()
        return git.run(*args, cwd=self.worktree, env=env, codes=(0, 128), inherit=inherit, confine=self._confine)

    def _inherited(self) -> tuple[int, ...]:
        """The lock, for git processes of the operation that holds it: another thread may only be reading."""
        return (self._lock_fd,) if self._holder == threading.get_ident() else ()

    def scratch_index(self) -> Path:
        return self._private / "index-scratch"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Waits until no other thread or process, and no git process of a killed one, works here."""
        path = self._private / "lock"
        refusal = Locked(path=path, holder="another snapshot of this worktree, or its git process")
        with self._mutex, flocked(path, LOCK_WAIT_S_MAX, LOCK_POLL_S, refusal) as fd:
            try:
                self._lock_fd, self._holder = fd, threading.get_ident()
                self._sweep()
                yield
            finally:
                self._lock_fd, self._holder = -1, -1

    # -- the private index --------------------------------------------------------------------------------------------

    def stage(self, seed: str | None, large: Large = "take", began: str = "") -> StagedTree:
        """Makes the private index equal to the worktree. A new index starts from the tree `seed`, or from HEAD.

        `large`: how to treat files that are too large; those of the commit `began` may have any size."""
        self._large_mode, self._began = large, began
        if self._index.exists():
            try:
                return self._stage()
            except GitFailed:
                self.forget_index()
        self._seed(seed)
        return self._stage()

    def index_large(self) -> None:
        """Adds to the index what was left out for its size, as empty files: `read-tree --reset -u` then removes it."""
        empty = self.run("hash-object", "--stdin").line
        self._put(f"100644 {empty} 0\t{name}" for name in self._large)

    def forget_index(self) -> None:
        """Removes the index and the objects that are not in the store yet: the next index has them written again."""
        self._forget()
        disk.unlink(self._index, missing_ok=True)
        disk.remove_tree(self.staging)
        disk.mkdir(self.staging)
        self.submodules.forget()

    def left_out(self, *which: str) -> list[str]:
        """The paths that still differ from the index. A name that ends in a slash is a nested repository."""
        return self.run("ls-files", "-z", "-m", "-o", *which, "--", *self._everything()).fields()

    def without_excluded(self, tree: str) -> tuple[str, list[Excluded]]:
        """The tree without what is excluded here, and without what could not be written without removing that."""
        exclude = [*self._exclude, *self._apart]
        if not exclude:
            return tree, []
        names = self.run("ls-tree", "-r", "-z", "--name-only", tree).fields()
        above = {str(parent) for name in exclude for parent in PurePosixPath(name).parents}
        dropped = [name for name in names if name in above or is_below(name, exclude)]
        if not dropped:
            return tree, []
        here = {"GIT_INDEX_FILE": str(self.scratch_index())}
        self.run("read-tree", tree, variables=here)
        self._remove(dropped, here)
        excluded = [Excluded(name, "it is excluded, and stays as it stands") for name in dropped]
        return self.run("write-tree", variables=here).line, excluded

    def _stage(self) -> StagedTree:
        self._read_user_index()
        links = self._tidy()
        self._large = {}
        self._large = self._too_large({}, self._began, *(self._tracked - self._ignored))
        added = self.run("add", "-A", "--ignore-errors", "--", *self._everything(), codes=(0, 1))
        excluded = unopened(added) + [size_limits.left_out(name, size) for name, size in self._large.items()]
        excluded += self._explain(added, self.left_out("--exclude-standard")) if added.code else []
        excluded += self._stage_ignored()
        self._put(f"{facts}\t{name}" for name, facts in links.items() if is_empty(self.worktree / name))
        before = file_stamp(self._index)
        if self._written is None or self._written[0] != before:
            tree = self.run("write-tree").line
            self._written = (file_stamp(self._index), tree)
        tree = self.submodules.put_into(self._written[1], self.scratch_index())
        return StagedTree(tree, list(dict.fromkeys(excluded + self._unfetched)), not self._large)

    def _tidy(self) -> dict[str, str]:
        """Removes from the index what must not be in it, so that git sees what is in the worktree instead. Returns the
        gitlinks among that."""
        dropped: list[str] = []
        stamp, before = file_stamp(self._index), self._apart
        self._apart = [module.path for module in self.submodules.standing()]
        if stamp is None or stamp != self._listed or self._apart != before:
            listed = [entry.split("\t", 1) for entry in self.run("ls-files", "-z", "-s", "-t").fields()]
            self._listed = stamp
            self._links = {name: facts[2:] for facts, name in listed if facts[2:].startswith(GITLINK)}
            self._held = {name: facts[2:] for facts, name in listed if facts.startswith("S ")}
            dropped += [name for _, name in listed if is_below(name, [*self._exclude, *self._apart])]
        unseen = {name for name in self._sparse if not os.path.lexists(self.worktree / name)}
        links = {name: facts for name, facts in self._links.items() if name not in unseen}
        dropped += links
        self._held = {name: facts for name, facts in self._held.items() if name not in links}
        self._ignored = set(self.run(*_TRACKED_AND_IGNORED).fields())
        if self._unwanted():
            # The rules may have changed, and the user's index not.
            self._tracked = set(self._run_user(*_TRACKED_AND_IGNORED).fields())
        self._remove(dropped + self._unwanted())
        self._hold_absent()
        return links

    def _unwanted(self) -> list[str]:
        wanted = self._tracked
        return [name for name in self._ignored if not is_below(name, wanted)]

    def _hold_absent(self) -> None:
        """Has git ignore the absence of files that a sparse checkout keeps out of the worktree."""
        absent = {name: facts for name, facts in self._sparse.items() if not os.path.lexists(self.worktree / name)}
        if back := [name for name in self._held if name not in absent]:
            self.run("update-index", "--no-skip-worktree", "-z", "--stdin", stdin=joined(back))
        if new := [name for name, facts in absent.items() if self._held.get(name) != facts]:
            self._put(f"{absent[name]}\t{name}" for name in new)
            self.run("update-index", "--skip-worktree", "-z", "--stdin", stdin=joined(new))
        self._held = absent

    def _stage_ignored(self) -> list[Excluded]:
        """Adds ignored files that the user tracks."""
        excluded, wanted = [], []
        for name in sorted(self._tracked - self._ignored):
            path = self.worktree / name
            if path.parent.resolve() != self.worktree.resolve() / PurePosixPath(name).parent:
                excluded.append(Excluded(name, "it lies behind a symbolic link"))
            elif os.path.lexists(path) and not is_below(name, [*self._exclude, *self._large]):
                wanted.append(name)
        if wanted:
            args = ("add", "-A", "-f", "--ignore-errors", "--pathspec-from-file=-", "--pathspec-file-nul")
            added = self.run(*args, stdin=joined(wanted), codes=(0, 1), variables={"GIT_LITERAL_PATHSPECS": "1"})
            excluded += unopened(added)
            if added.code:
                excluded += self._explain(added, [name for name in self.left_out() if is_below(name, wanted)])
        return excluded

    def _read_user_index(self) -> None:
        """Reads the user's index again when it has changed."""
        stamp = file_stamp(self._their_index)
        if stamp == self._user_index:
            return
        self._tracked = set(self._run_user(*_TRACKED_AND_IGNORED).fields())
        listed = [entry[2:] for entry in self._run_user("ls-files", "-z", "-s", "-t").fields() if entry[:2] == "S "]
        entries = {name: facts for facts, name in (entry.split("\t", 1) for entry in listed)}
        sparse = {name: facts for name, facts in entries.items() if not is_below(name, self._exclude)}
        wanted = {facts.split(" ")[1] for facts in sparse.values() if not facts.startswith(GITLINK)}
        missing = objects.missing(self.run, wanted)
        self._sparse = {name: facts for name, facts in sparse.items() if facts.split(" ")[1] not in missing}
        reason = "it is outside the sparse checkout, and its content is not in the repository"
        self._unfetched = [Excluded(name, reason) for name in sparse if name not in self._sparse]
        self._user_index = stamp

    def _explain(self, added: git.GitResult, names: list[str]) -> list[Excluded]:
        """Says why git could not add these, and removes them from the index; raises where no good reason is found."""
        excluded, links = [], unborn_links(self.worktree, names, self.repository.hash_name)
        for name in names:
            path = self.worktree / name
            try:
                mode = path.lstat().st_mode
            except (FileNotFoundError, NotADirectoryError):
                continue
            if name in links:
                excluded.append(Excluded(name.rstrip("/"), "it is a nested repository without a commit"))
            elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
                excluded.append(Excluded(name, "it is neither a file nor a symbolic link"))
            elif not stat.S_ISLNK(mode) and not os.access(path, os.R_OK):
                excluded.append(Excluded(name, "it cannot be read"))
            elif added.failure:
                raise added.failure
        self._remove([left.path for left in excluded])
        self._put(links.values())
        return excluded

    def _seed(self, tree: str | None) -> None:
        asked = ("rev-parse", "-q", "--verify", "HEAD^{tree}")
        tree = tree or self.repository.run(*asked, codes=(0, 1), inherit=self._inherited()).line
        if not tree or self.run("read-tree", tree, codes=(0, 128)).failure:
            self.forget_index()  # A power cut took a part of it; everything in the worktree is stored again.

    def _put(self, entries: Iterable[str], variables: Mapping[str, str] = MappingProxyType({})) -> None:
        if lines := list(entries):
            self.run("update-index", "--add", "-z", "--index-info", stdin=joined(lines), variables=variables)

    def _remove(self, names: list[str], variables: Mapping[str, str] = MappingProxyType({})) -> None:
        if names:
            self.run("update-index", "--force-remove", "-z", "--stdin", stdin=joined(names), variables=variables)

    def _everything(self) -> list[str]:
        return [":/", *(f":(top,exclude,literal){name}" for name in (*self._exclude, *self._apart, *self._large))]

    # -- setting up ---------------------------------------------------------------------------------------------------

    def _environment(self) -> dict[str, str]:
        asked = self.repository.run("config", "-z", "--type=path", "--get-regexp", _PASSED_ON, codes=(0, 1)).fields()
        passed_on = dict(entry.split("\n", 1) for entry in asked if "\n" in entry)
        return git.environment(
            {**_SETTINGS, **passed_on},
            GIT_CONFIG_GLOBAL="/dev/null",
            GIT_CONFIG_NOSYSTEM="1",
            GIT_DIR=str(self._git_dir),
            GIT_WORK_TREE=str(self.worktree),
            GIT_INDEX_FILE=str(self._index),
            **self.store.writing(self.staging),
        )

    def _sweep(self) -> None:
        for path in self._private.glob("index-*"):
            if path != self._index:
                disk.unlink(path)
        for path in self._private.glob("staging-*"):
            if path != self.staging:
                disk.remove_tree(path)
        clear(self.staging)
        exclude = self.repository.common_dir / "info" / "exclude"
        keep(self._git_dir / "info" / "exclude", exclude.read_bytes() if exclude.is_file() else b"")
