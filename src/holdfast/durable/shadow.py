"""The shadow: a git dir of our own that looks at somebody else's worktree and writes into their object store.

    <private>/lock               flocked during every operation; inherited by each git process that it starts
    <private>/git/               HEAD, config, refs/ (empty), info/attributes, info/exclude (the repository's, copied)
    <private>/index-<boot id>    the private index

All of it can be deleted and is made again. The repository's own HEAD, index, configuration and hooks are never
touched: git runs with GIT_DIR = the shadow, GIT_OBJECT_DIRECTORY = the repository's. `info/attributes`, which wins
over any `.gitattributes`, turns off every conversion, so that what is stored is what stands on disk, byte for byte.

- The lock is free only when the operation *and* its git processes have ended, so whoever holds it knows that a
  leftover `index.lock` belongs to the dead, also when only the Python process was killed.
- The index is not synced, and belongs to one boot: after a power cut it could name objects that never reached the
  disk, so another boot starts from a new one.
- An index that git refuses, or that names an object which is gone, is dropped and built again from the last snapshot.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import MappingProxyType

import msgspec

from holdfast.durable import disk, git, process
from holdfast.errors import GitFailed, Locked, NotAWorktree, PathEscapes

GITLINK = "160000"
LOCK_WAIT_S_MAX = 60.0
LOCK_POLL_S = 0.01
_ATTRIBUTES = b"* -text -ident -filter !eol !working-tree-encoding !diff !merge\n"
# Loose objects are synced by the caller, because git syncs neither folders nor objects that were there before.
# Packs, which git makes of very large files, it has to sync itself. (Beside `all`, git would not heed the minus.)
_SETTINGS = {
    "core.fsync": "-loose-object,-index,pack,pack-metadata",
    "core.protectHFS": "false",
    "core.protectNTFS": "false",
    "advice.addEmbeddedRepo": "false",
    "submodule.recurse": "false",
}
_PASSED_ON = r"^core\.(excludesfile|sharedrepository)$"


class Excluded(msgspec.Struct, frozen=True):
    """A path whose content a snapshot does not hold, and why."""

    path: str
    reason: str


class Staged(msgspec.Struct, frozen=True):
    tree: str
    excluded: list[Excluded]


class Repository(msgspec.Struct, frozen=True):
    """Where the parts of the user's repository are. `stores` are its object folders, alternates included."""

    worktree: Path
    git_dir: Path
    common_dir: Path
    stores: tuple[Path, ...]
    hash_name: str
    env: dict[str, str]

    def run(
        self, *args: str, stdin: bytes = b"", codes: tuple[int, ...] = (0,), inherit: tuple[int, ...] = ()
    ) -> git.Result:
        """Runs git on the repository itself: only to ask, or for refs under refs/holdfast."""
        return git.run(*args, cwd=self.worktree, env=self.env, stdin=stdin, codes=codes, inherit=inherit)


def discover(worktree: Path) -> Repository:
    git.require_minimum()
    settings = {"core.fsync": "all", "core.filesRefLockTimeout": "500"}
    env = git.environment(settings)
    folders = ("--show-toplevel", "--absolute-git-dir", "--git-common-dir", "--git-path", "objects")
    asked = ("rev-parse", "--path-format=absolute", *folders, "--show-object-format")
    try:
        found = git.run(*asked, cwd=worktree, env=env).line.split("\n")
    except GitFailed as failure:
        raise NotAWorktree(path=worktree, reason=failure.stderr) from failure
    if len(found) != 5 or not os.path.samefile(found[0], worktree):
        raise NotAWorktree(path=worktree, reason=f"git says {found[0]}")
    top, git_dir, common_dir, objects = map(Path, found[:4])
    env = git.environment(settings, GIT_DIR=str(git_dir), GIT_WORK_TREE=str(top))
    stores = [objects]
    if (objects / "info" / "alternates").exists():
        counted = git.run("count-objects", "-v", cwd=top, env=env).line.split("\n")
        stores += [Path(line.removeprefix("alternate: ")) for line in counted if line.startswith("alternate: ")]
    return Repository(top, git_dir, common_dir, tuple(filter(Path.is_dir, stores)), found[4], env)


class Shadow:
    def __init__(self, worktree: Path, private: Path, include: Sequence[str], exclude: Sequence[str]) -> None:
        self.repository = discover(worktree)
        self.worktree = self.repository.worktree
        self._include = [_relative(name, self.worktree) for name in include]
        self._exclude = [_relative(name, self.worktree) for name in exclude]
        self._private = private.absolute()
        with contextlib.suppress(ValueError):
            self._exclude.append(str(self._private.resolve().relative_to(self.worktree.resolve())))
        self._git_dir = self._private / "git"
        self._index = self._private / f"index-{process.boot_id()}"
        self._lock_fd = -1
        self._user_index: tuple[int, ...] | None = None
        self._written: tuple[tuple[int, ...] | None, str] | None = None
        self._set_up()
        self._env = self._environment()

    # -- running git --------------------------------------------------------------------------------------------------

    def run(
        self,
        *args: str,
        stdin: bytes = b"",
        codes: tuple[int, ...] = (0,),
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> git.Result:
        """Runs git in the shadow; `variables` are set on top of its environment."""
        env = {**self._env, **variables}
        inherit = () if self._lock_fd < 0 else (self._lock_fd,)
        return git.run(*args, cwd=Path(env["GIT_WORK_TREE"]), env=env, stdin=stdin, codes=codes, inherit=inherit)

    def run_real(self, *args: str, stdin: bytes = b"", codes: tuple[int, ...] = (0,)) -> git.Result:
        inherit = () if self._lock_fd < 0 else (self._lock_fd,)
        return self.repository.run(*args, stdin=stdin, codes=codes, inherit=inherit)

    def scratch_index(self) -> Path:
        return self._private / "index-scratch"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Waits until no other operation, and no git process of a killed one, is at work here."""
        path = self._private / "lock"
        self._lock_fd = disk.open_lock_file(path)
        try:
            _await_flock(self._lock_fd, path)
            self._sweep()
            yield
        finally:
            fd, self._lock_fd = self._lock_fd, -1
            disk.close_lock_file(fd, path)

    # -- the private index --------------------------------------------------------------------------------------------

    def stage(self, seed: str | None) -> Staged:
        """Makes the private index equal to the worktree. A new index starts from the tree `seed`, or from HEAD."""
        if self._index.exists():
            try:
                return self._stage()
            except GitFailed:
                self.forget_index()
        self._seed(seed)
        return self._stage()

    def forget_index(self) -> None:
        self._written = self._user_index = None
        disk.unlink(self._index, missing_ok=True)

    def left_out(self, *which: str) -> list[str]:
        """What still differs from the index. A name that ends in a slash is a nested repository."""
        return self.run("ls-files", "-z", "-m", "-o", *which, "--", *self._everything()).fields()

    def _stage(self) -> Staged:
        added = self.run("add", "-A", "--ignore-errors", "--", *self._everything(), codes=(0, 1))
        excluded = self._explain(added, self.left_out("--exclude-standard")) if added.code else []
        excluded += self._stage_ignored()
        before = _stamp(self._index)
        if self._written is None or self._written[0] != before:
            tree = self.run("write-tree").line
            self._written = (_stamp(self._index), tree)
        return Staged(self._written[1], excluded)

    def _stage_ignored(self) -> list[Excluded]:
        """Adds what is ignored and wanted all the same: the include list, and what the user tracks."""
        excluded, wanted = [], []
        for name in dict.fromkeys([*self._include, *self._newly_tracked_and_ignored()]):
            path = self.worktree / name
            if path.parent.resolve() != self.worktree.resolve() / PurePosixPath(name).parent:
                excluded.append(Excluded(name, "it lies behind a symbolic link"))
            elif os.path.lexists(path) and not _is_below(name, self._exclude):
                wanted.append(name)
        if wanted:
            args = ("add", "-A", "-f", "--ignore-errors", "--pathspec-from-file=-", "--pathspec-file-nul")
            added = self.run(*args, stdin=_joined(wanted), codes=(0, 1), variables={"GIT_LITERAL_PATHSPECS": "1"})
            if added.code:
                excluded += self._explain(added, [name for name in self.left_out() if _is_below(name, wanted)])
        return excluded

    def _newly_tracked_and_ignored(self) -> list[str]:
        """Asked again only when the user's index has changed: what was added once stays in ours."""
        stamp = _stamp(self.repository.git_dir / "index")
        if stamp == self._user_index:
            return []
        names = self.run_real("ls-files", "-z", "-c", "-i", "--exclude-standard").fields() if stamp else []
        self._user_index = stamp
        return names

    def _explain(self, added: git.Result, names: list[str]) -> list[Excluded]:
        """Says why git could not add these, and takes them from the index; raises where no good reason is found."""
        excluded = []
        for name in names:
            path = self.worktree / name
            try:
                mode = path.lstat().st_mode
            except (FileNotFoundError, NotADirectoryError):
                continue
            if stat.S_ISDIR(mode) and os.path.lexists(path / ".git"):
                excluded.append(Excluded(name.rstrip("/"), "it is a nested repository without a commit"))
            elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
                excluded.append(Excluded(name, "it is neither a file nor a symbolic link"))
            elif not stat.S_ISLNK(mode) and not os.access(path, os.R_OK):
                excluded.append(Excluded(name, "it cannot be read"))
            elif added.failure:
                raise added.failure
        self._remove([left.path for left in excluded])
        return excluded

    def _seed(self, tree: str | None) -> None:
        tree = tree or self.run_real("rev-parse", "-q", "--verify", "HEAD^{tree}", codes=(0, 1)).line
        if not tree:
            return
        self.run("read-tree", tree)
        # Each nested repository is found anew, by its HEAD alone; one that is known is asked for its status by git,
        # and a broken one would then stop everything.
        listed = [entry.split("\t", 1) for entry in self.run("ls-files", "-z", "-s").fields()]
        links = [name for facts, name in listed if facts.startswith(GITLINK)]
        nested = [name for name in links if os.path.lexists(self.worktree / name / ".git")]
        self._remove(nested + [name for _, name in listed if _is_below(name, self._exclude)])

    def _remove(self, names: list[str]) -> None:
        if names:
            self.run("update-index", "--force-remove", "-z", "--stdin", stdin=_joined(names))

    def _everything(self) -> list[str]:
        return [":/", *(f":(top,exclude,literal){name}" for name in self._exclude)]

    # -- setting up ---------------------------------------------------------------------------------------------------

    def _set_up(self) -> None:
        for folder in (self._git_dir / "refs", self._git_dir / "objects", self._git_dir / "info"):
            disk.mkdir(folder)
        version, name = (0, "") if self.repository.hash_name == "sha1" else (1, self.repository.hash_name)
        extension = f"[extensions]\n\tobjectFormat = {name}\n" if name else ""
        config = f"[core]\n\trepositoryFormatVersion = {version}\n\tbare = false\n{extension}"
        _keep(self._git_dir / "HEAD", b"ref: refs/heads/none\n")
        _keep(self._git_dir / "config", config.encode())
        _keep(self._git_dir / "info" / "attributes", _ATTRIBUTES)

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
            GIT_OBJECT_DIRECTORY=str(self.repository.stores[0]),
        )

    def _sweep(self) -> None:
        for path in self._private.glob("index-*"):
            if path != self._index:
                disk.unlink(path)
        exclude = self.repository.common_dir / "info" / "exclude"
        _keep(self._git_dir / "info" / "exclude", exclude.read_bytes() if exclude.is_file() else b"")


def _await_flock(fd: int, path: Path) -> None:
    deadline = time.monotonic() + LOCK_WAIT_S_MAX
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Locked(path=path, holder="another snapshot of this worktree, or its git process") from None
            time.sleep(LOCK_POLL_S)


def _keep(path: Path, content: bytes) -> None:
    """Writes only what differs: nearly always nothing."""
    try:
        if path.read_bytes() == content:
            return
    except FileNotFoundError:
        pass
    disk.replace(path, content)


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Changes whenever git has written the file, which it always does by renaming a new one over it."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _is_below(name: str, tops: list[str]) -> bool:
    return any(name == top or name.startswith(f"{top}/") for top in tops)


def _joined(names: list[str]) -> bytes:
    return b"".join(os.fsencode(name) + b"\0" for name in names)


def _relative(name: str, root: Path) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or {"..", ".git"} & set(path.parts) or "\0" in name:
        raise PathEscapes(name=name, root=root)
    return str(path)
