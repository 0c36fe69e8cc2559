"""Reads a checkout of the user's, and changes single paths of it. Uses git's plumbing only.

Git makes the files in a folder of our own, with the filters and attributes of the commit that they come from; a rename
puts each in its place. The index is changed in a copy that replaces it whole, under git's own `index.lock`. So a path
is always the old one or the new one, and a kill leaves at worst that folder and a lock that names its owner.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import msgspec

from holdfast.errors import DiskError, GitLocked
from holdfast.git import command as git
from holdfast.git import lock_files
from holdfast.git.tree_diff import Slot, index_lines, joined
from holdfast.storage.files import disk

Stamp = tuple[int, ...] | None


class Indexed(msgspec.Struct, frozen=True):
    """`skipped`: kept out of the checkout (sparse). `assumed`: the user told git to take it for unchanged."""

    slot: Slot
    skipped: bool
    assumed: bool


class Checkout:
    def __init__(self, path: Path) -> None:
        self.repository = git.discover(path)
        self.top = self.repository.worktree
        self._env = git.environment(
            {"core.fsync": "none", "index.sparse": "false", "submodule.recurse": "false"},
            GIT_DIR=str(self.repository.git_dir),
            GIT_WORK_TREE=str(self.top),
            GIT_LITERAL_PATHSPECS="1",
        )

    def _run(self, *args: str, index: Path, stdin: bytes = b"", fails: bool = False, top: Path | None = None) -> str:
        env = self._env | {"GIT_INDEX_FILE": str(index)} | ({"GIT_WORK_TREE": str(top)} if top else {})
        codes = (0, 1) if fails else (0,)
        return os.fsdecode(git.run(*args, cwd=top or self.top, env=env, stdin=stdin, codes=codes).out)

    # -- looking ------------------------------------------------------------------------------------------------------

    def branch(self) -> str:
        """The ref that is checked out; empty when HEAD is detached."""
        return self.repository.run("symbolic-ref", "--quiet", "HEAD", codes=(0, 1)).line

    def head_has(self, commit: str) -> bool:
        """Whether HEAD is this commit or builds on it."""
        return not self.repository.run("merge-base", "--is-ancestor", commit, "HEAD", codes=(0, 1, 128)).failure

    def index(self) -> dict[str, Indexed]:
        """The entries of the index. A path with a conflict has a slot that equals no commit's."""
        found: dict[str, Indexed] = {}
        listed = self._run("ls-files", "-z", "-s", "-v", index=self.index_path)
        for line in listed.split("\0")[:-1]:
            facts, path = line.split("\t", 1)
            tag, mode, name, stage = facts.split(" ")
            slot = Slot(mode, name) if stage == "0" else Slot("conflict", "")
            found[path] = Indexed(slot, tag.upper() == "S", tag.islower())
        return found

    @property
    def index_path(self) -> Path:
        return self.repository.git_dir / "index"

    def stands(self, path: str) -> bool:
        """Whether a file, link or folder exists there, not reached through a link."""
        return os.path.lexists(self.top / path) and not self.obstacle(path)

    def obstacle(self, path: str) -> str:
        """The first parent of the path that is a file or a link instead of a folder."""
        for parent in reversed(list(Path(path).parents)[:-1]):
            place = self.top / parent
            if os.path.lexists(place) and (place.is_symlink() or not place.is_dir()):
                return str(parent)
        return ""

    def stamp(self, path: str) -> Stamp:
        """Changes whenever the file at `path` does; None where there is neither file nor link."""
        if not self.stands(path):
            return None
        found = (self.top / path).lstat()
        if stat.S_ISDIR(found.st_mode):
            return None
        return found.st_dev, found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def same(self, private: Path, slots: Mapping[str, Slot]) -> set[str]:
        """The paths whose file git would call unchanged if its index had these slots; git applies filters and modes."""
        if not slots:
            return set()
        index = private / disk.temp_name()
        self._run("update-index", "-z", "--index-info", index=index, stdin=index_lines(slots))
        self._run("update-index", "-q", "--refresh", index=index, fails=True)
        differ = self._run("diff-files", "-z", "--name-only", index=index).split("\0")
        return slots.keys() - set(differ)

    def same_as_made(self, private: Path, commit: str, paths: Collection[str]) -> set[str]:
        """The paths whose file is, byte for byte, what a checkout of the commit makes.

        While a landing changes `.gitattributes`, git judges old files by new rules and takes them for the user's.
        """
        made = self.make(private, commit, paths)
        return {path for path in paths if _alike(made / path, self.top / path)}

    def outside(self, private: Path, slots: Mapping[str, Slot]) -> set[str]:
        """The paths that a sparse checkout leaves out."""
        if self.repository.run("config", "--bool", "core.sparseCheckout", codes=(0, 1)).line != "true" or not slots:
            return set()
        index, fresh = private / disk.temp_name(), private / disk.temp_name()
        self._run("update-index", "-z", "--index-info", index=index, stdin=index_lines(slots))
        tree = self._run("write-tree", "--missing-ok", index=index).strip()
        top = private / disk.temp_name()
        disk.mkdir(top)
        self._run("read-tree", "-m", "-u", tree, index=fresh, top=top)
        listed = self._run("ls-files", "-z", "-v", index=fresh).split("\0")[:-1]
        return {line[2:] for line in listed if line[0] in "Ss"}

    # -- changing -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the index against every other git. Raises GitLocked where another process holds it."""
        lock = self.repository.git_dir / "index.lock"
        if owner := lock_files.acquire(lock, [self.top, self.repository.git_dir]):
            raise GitLocked(path=lock, holder=owner)
        try:
            yield
        finally:
            disk.unlink(lock, missing_ok=True)

    @contextlib.contextmanager
    def private(self, *, for_files: bool = False) -> Iterator[Path]:
        """A folder of our own beside the index, or on the filesystem of the files, to rename from."""
        git_dir = self.repository.git_dir
        elsewhere = for_files and git_dir.stat().st_dev != self.top.stat().st_dev
        home = self.top if elsewhere else git_dir
        for name in filter(disk.is_leftover, os.listdir(home)):
            # A git that a killed process had started may still be writing there; the next call removes it.
            with contextlib.suppress(DiskError):
                disk.remove_tree(home / name) if (home / name).is_dir() else disk.unlink(home / name)
        folder = home / disk.temp_name()
        disk.mkdir(folder)
        try:
            yield folder
        finally:
            with contextlib.suppress(DiskError):
                disk.remove_tree(folder)

    def make(self, private: Path, commit: str, paths: Collection[str]) -> Path:
        """Writes the commit's files, as a checkout would, below a folder of its own."""
        index, top = private / disk.temp_name(), private / disk.temp_name()
        disk.mkdir(top)
        self._run("read-tree", commit, index=index)
        # Paths that this commit does not have are no error here.
        self._run("checkout-index", "-q", "-z", "--stdin", index=index, stdin=joined(paths), fails=True, top=top)
        return top

    def put(self, made: Path, path: str) -> None:
        """Moves a file that was made to its place, over a file, a link, an empty folder or nothing."""
        target = self.top / path
        if not made.is_symlink():
            disk.sync_file(made)
        if target.is_dir() and not target.is_symlink():
            for folder, _, _ in os.walk(target, topdown=False):
                disk.rmdir(Path(folder))
        disk.mkdir(target.parent, disk.COMMON_FOLDER)
        disk.rename(made, target)

    def put_folder(self, path: str) -> None:
        """Makes the empty folder of a submodule that was not fetched; anything already there stays."""
        if not os.path.lexists(self.top / path):
            disk.mkdir(self.top / path, disk.COMMON_FOLDER)

    def remove(self, path: str) -> None:
        """Removes a file or a link."""
        disk.unlink(self.top / path, missing_ok=True)

    def prune(self, path: str) -> None:
        """Removes the parent folders of a path that are empty."""
        for folder in (self.top / path).parents:
            if folder == self.top or folder.is_symlink() or not folder.is_dir() or any(folder.iterdir()):
                break
            disk.rmdir(folder)

    def settle(self, paths: Collection[str]) -> None:
        """Makes the directory entries of these paths and of the index durable; a crash may have prevented it before."""
        folders = {folder for path in paths for folder in Path(path).parents}
        for folder in sorted((self.top / folder for folder in folders), reverse=True):
            if folder.is_dir():
                disk.sync_folder(folder)
        disk.sync_folder(self.repository.git_dir)

    def set_index(
        self, private: Path, updates: Mapping[str, Slot | None], flags: Mapping[str, Collection[str]]
    ) -> None:
        """Replaces the index by one with these paths changed; `flags` are options of update-index, each with paths.

        Only under `locked`, and with a private folder beside the index.
        """
        index = private / "index"
        if self.index_path.exists():
            disk.create(index, self.index_path.read_bytes(), self.index_path.stat().st_mode & 0o777)
        nothing = "0" * len(hashlib.new(self.repository.hash_name).hexdigest())
        # Removals first, as they may make room.
        ordered = sorted(updates.items(), key=lambda each: each[1] is not None)
        entries = index_lines({path: slot or Slot("0", nothing) for path, slot in ordered})
        self._run("update-index", "-z", "--index-info", index=index, stdin=entries)
        for option, paths in flags.items():
            if paths:
                self._run("update-index", option, "-z", "--stdin", index=index, stdin=joined(paths))
        self._run("update-index", "-q", "--refresh", index=index, fails=True)
        disk.sync_file(index)
        disk.rename(index, self.index_path)


def _alike(made: Path, found: Path) -> bool:
    try:
        one, other = made.lstat().st_mode, found.lstat().st_mode
        if stat.S_ISLNK(one) or stat.S_ISLNK(other):
            return stat.S_IFMT(one) == stat.S_IFMT(other) and os.readlink(made) == os.readlink(found)
        return one & 0o100 == other & 0o100 and made.read_bytes() == found.read_bytes()
    except OSError:
        return False
