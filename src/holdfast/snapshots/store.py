"""The store of snapshots: a bare git repository in the data root, `snapshots.git`.

    objects/                        objects that no other repository has to keep for us
    objects/info/alternates         the user's repository, which has the rest
    refs/attempts/<attempt>/<name>  keeps a snapshot alive, and lets people find it
    refs/candidates/<attempt>       a candidate, and `refs/merged/<attempt>` the commit that was judged
    refs/reviewed/<attempt>/<name>  what a person has reviewed, for the difference to the next candidate
    work/                           folders of running operations

- An object has its name only once it is on disk. Git writes into a folder of the operation's own; `publish` syncs
  what it wrote and only then gives it its name here. After a power cut no object is half there.
- Git leaves out objects that any store it sees has, such as those of an agent's own commit in the user's repository.
  `missing` finds what is not here, and `borrow` copies it, so that a snapshot needs nothing of the user's repository
  but the commit that its attempt began with, which is pinned there (`refs/holdfast/base/<root>/<attempt>`).
- Refs are plain files, written by us. The program takes commits from the journal, never from a ref.

A copy of the data root beside another clone works there: the alternates are relative where the root lies in the
repository, and otherwise written again by the next owner. Our own git processes get the object folders as variables.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from holdfast.errors import FileMissing
from holdfast.git import command as git
from holdfast.git import lock_files, objects
from holdfast.storage.files import disk

ATTEMPTS, CANDIDATES, MERGED, REVIEWED = "refs/attempts", "refs/candidates", "refs/merged", "refs/reviewed"
WORK = "work"
# From this many objects on, a pack is copied as such.
LOOSE_MAX = 100
_LOOSE = re.compile(r"[0-9a-f]{2}/([0-9a-f]{38}|[0-9a-f]{62})")
_PACK = re.compile(r"pack/pack-[0-9a-f]+\.(pack|rev|mtimes|bitmap|idx)")
# `info/attributes` wins over any `.gitattributes`, and turns off line ends, filters, `ident` and encodings.
_ATTRIBUTES = b"* -text -ident -filter !eol !working-tree-encoding !diff !merge\n"
_OBJECTS_ONLY = {"cat-file", "commit-tree", "diff-tree", "ls-tree", "rev-list", "write-tree"}
_READING_OPTIONS = {"-i", "-m", "-o"}
_NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


class Store:
    """The store of one data root. `repository` is the user's. Nothing is written before `prepare`."""

    def __init__(self, path: Path, repository: git.Repository) -> None:
        self.path = path.absolute()
        self.repository = repository
        self.objects, self.work = self.path / "objects", self.path / WORK
        self._packed: dict[Path, frozenset[str]] = {}
        # Descriptors that each git process of the current operation has to hold.
        self.inherited: Callable[[], tuple[int, ...]] = tuple
        # The sandbox for git processes in a folder of `working` that run filters over files of a confined agent.
        self.confine: Callable[[Path], git.Confine | None] = lambda folder: None

    # -- setting up ---------------------------------------------------------------------------------------------------

    def prepare(self) -> Store:
        """Makes what is missing, and records where the user's repository is now."""
        for folder in (self.objects / "info", self.objects / "pack", self.path / "refs", self.work):
            disk.mkdir(folder)
        # Git never collects by itself: an object without a ref may belong to a running operation.
        config = (
            core_settings(self.repository.hash_name, is_bare=True) + "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n"
        )
        keep(self.path / "HEAD", b"ref: refs/heads/none\n")
        keep(self.path / "config", config.encode())
        places = (self._as_alternate(store) for store in self.repository.stores)
        keep(self.objects / "info" / "alternates", b"".join(quoted(place) + b"\n" for place in places))
        return self

    @classmethod
    def of(cls, path: Path, repo: Path) -> Store:
        return cls(path, git.discover(repo))

    @property
    def exists(self) -> bool:
        return (self.path / "HEAD").exists()

    def _as_alternate(self, store: Path) -> bytes:
        """Relative to the objects where both lie in one work tree, so that they can be moved or copied together."""
        top = self.repository.worktree
        if self.objects.is_relative_to(top) and store.is_relative_to(top):
            return os.path.relpath(os.fsencode(store), os.fsencode(self.objects))
        return os.fsencode(store)

    # -- running git --------------------------------------------------------------------------------------------------

    def alternates(self, *more: Path) -> str:
        """The value of GIT_ALTERNATE_OBJECT_DIRECTORIES for a git process that has to see every object."""
        places = (*more, self.objects, *self.repository.stores)
        return os.fsdecode(b":".join(quoted(os.fsencode(place)) for place in places))

    def run(
        self,
        *args: str,
        stdin: bytes = b"",
        codes: Collection[int] = (0,),
        variables: Mapping[str, str] = _NO_VARIABLES,
    ) -> git.GitResult:
        """Runs git in the store, to read, or to write into the folder that `variables` name."""
        env = git.environment({}, GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1", GIT_DIR=str(self.path))
        env |= {"GIT_ALTERNATE_OBJECT_DIRECTORIES": self.alternates(), **variables}
        return git.run(*args, cwd=self.path, env=env, stdin=stdin, codes=codes, inherit=self.inherited())

    @property
    def seen(self) -> git.Repository:
        """The user's repository with our objects before its own: to read, not to write.

        Git reads the first copy of an object that it finds. After a power cut a copy in the user's repository may be
        empty, one of ours is not.
        """
        return self.repository.with_objects(self.objects, self.alternates()) if self.exists else self.repository

    # -- refs ---------------------------------------------------------------------------------------------------------

    def refs(self, prefix: str) -> dict[str, str]:
        """Refs below `prefix`, numbers in order, so that turn-10 comes after turn-9."""
        if not self.exists:
            return {}
        wanted = ("--sort=version:refname", "--format=%(refname) %(objectname)", prefix)
        lines = self.run("for-each-ref", *wanted).line.splitlines()
        return dict(line.split(" ", 1) for line in lines)

    def trees(self, pattern: str) -> set[str]:
        """The trees of all refs that match a pattern of git's."""
        return set(self.run("for-each-ref", "--format=%(tree)", pattern).line.split()) if self.exists else set()

    def name(self, ref: str, commit: str) -> None:
        """Points a ref at a commit whose objects are on disk."""
        path = self.path / ref
        disk.mkdir(path.parent)
        disk.replace(path, f"{commit}\n".encode())

    def forget(self, refs: Mapping[str, str]) -> None:
        """Removes refs, and an attempt's folder when it is empty."""
        for ref in refs:
            disk.unlink(self.path / ref, missing_ok=True)
        packed = self.path / "packed-refs"
        if packed.exists() and any(f" {ref}\n".encode() in packed.read_bytes() for ref in refs):
            lines = "".join(f"delete {ref}\n" for ref in refs)
            with lock_files.freed(self.path, self.path, [self.path], refs):
                self.run("update-ref", "--stdin", stdin=lines.encode())
        for folder in {(self.path / ref).parent for ref in refs}:
            if folder.is_dir() and not any(folder.iterdir()):
                disk.rmdir(folder)

    def collect(self) -> None:
        """Removes the objects without a ref, but for those of the last day, which may still get one."""
        self.run("prune", "--expire=1.day.ago")

    # -- which objects exist ------------------------------------------------------------------------------------------

    def missing(self, names: Iterable[str]) -> list[str]:
        """The objects that the store itself does not hold, whatever the user's repository has."""
        return self._missing_in(self.objects, names)

    def _missing_in(self, objects: Path, names: Iterable[str]) -> list[str]:
        found = [name for name in names if not (objects / name[:2] / name[2:]).exists()]
        if found and (packed := self._in_packs(objects)):
            found = [name for name in found if not any(name in pack for pack in packed)]
        return found

    def _in_packs(self, objects: Path) -> list[frozenset[str]]:
        indexes = sorted((objects / "pack").glob("pack-*.idx"))
        for index in indexes:
            if index not in self._packed:
                with contextlib.suppress(FileNotFoundError):
                    lines = self.run("show-index", stdin=index.read_bytes()).line.splitlines()
                    self._packed[index] = frozenset(line.split(" ")[1] for line in lines)
        return [self._packed[index] for index in indexes if index in self._packed]

    def flaw_of(self, commit: str) -> str:
        """The reason why the tree of a commit cannot be read whole; empty where it can."""
        asked = ("rev-list", "--objects", "--no-object-names", "--quiet", f"{commit}^{{tree}}")
        failure = self._asked_of()(*asked, codes=(0, 128)).failure
        return failure.stderr if failure is not None else ""

    def _asked_of(self) -> Callable[..., git.GitResult]:
        return self.run if self.exists else self.repository.run

    def incomplete(self, commits: Collection[str], *, is_older: bool = False) -> dict[str, str]:
        """The commits whose tree cannot be read whole, and why. Asks for all at once, as most share most objects.

        `is_older`: the root is of the format without a store, and the user's repository may have all objects.
        """
        if not self.exists and not is_older:
            return dict.fromkeys(commits, f"{self.path} is missing")
        text = "".join(f"{commit}^{{tree}}\n" for commit in commits).encode()
        asked = ("rev-list", "--objects", "--no-object-names", "--quiet", "--stdin")
        if not commits or not self._asked_of()(*asked, stdin=text, codes=(0, 128)).failure:
            return {}
        return {commit: why for commit in commits if (why := self.flaw_of(commit))}

    def descends(self, commit: str, ancestor: str) -> bool:
        """Whether a snapshot was taken after another of its attempt; no where one of them is gone."""
        return not self.run("merge-base", "--is-ancestor", ancestor, commit, codes=(0, 1, 128)).code

    # -- writing ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def working(self) -> Iterator[Path]:
        """A folder for one operation, with `objects` in it for git to write into. Removed afterwards."""
        self.prepare()
        top = self.work
        for name in os.listdir(top):
            if disk.is_leftover(name):
                disk.remove_tree(top / name)
        folder = top / disk.temp_name()
        disk.mkdir(folder / "objects")
        try:
            yield folder
        finally:
            disk.remove_tree(folder)

    def writing(self, staging: Path) -> dict[str, str]:
        """Variables with which git writes into `staging`, an object folder, and sees all others."""
        return {"GIT_OBJECT_DIRECTORY": str(staging), "GIT_ALTERNATE_OBJECT_DIRECTORIES": self.alternates()}

    def publish(self, staging: Path) -> None:
        """Makes what git has written into `staging` part of the store, each object on disk before it has its name."""
        publish(staging, self.objects)

    def complete(self, tree: str, known: str, staging: Path) -> None:
        """Copies into `staging` the objects of `tree` that `known` lacks and only the user's repository holds."""
        asked = ("rev-list", "--objects", "--no-object-names", tree, f"^{known}^{{tree}}")
        names = self.run(*asked, variables=self.writing(staging)).line.split()
        if borrowed := self.missing(self._missing_in(staging, names)):
            self.borrow(borrowed, staging)

    def hand_over(self, commit: str, target: str) -> None:
        """Copies a commit on top of `target` into the user's repository, with all objects that are missing there."""
        names = self.run("rev-list", "--objects", "--no-object-names", commit, f"^{target}").line.split()
        if lacking := objects.missing(self.repository.run, names):
            target_objects = self.repository.stores[0]
            with staging_in(target_objects) as staging:
                self.borrow(lacking, staging)
                publish(staging, target_objects)

    def borrow(self, names: Collection[str], staging: Path) -> None:
        """Copies objects of another store into `staging`: a few as loose objects, more as a pack."""
        env = self.writing(staging)
        asked = "".join(f"{name}\n" for name in names).encode()
        if len(names) > LOOSE_MAX:
            disk.mkdir(staging / "pack")
            self.run("pack-objects", "-q", str(staging / "pack" / "pack"), stdin=asked, variables=env)
            return
        packed = self.run("pack-objects", "-q", "--stdout", stdin=asked, variables=env).out
        # Without alternates: git leaves out what it finds elsewhere.
        alone = {"GIT_OBJECT_DIRECTORY": str(staging), "GIT_ALTERNATE_OBJECT_DIRECTORIES": ""}
        self.run("unpack-objects", "-q", stdin=packed, variables=alone)


@contextlib.contextmanager
def staging_in(objects: Path) -> Iterator[Path]:
    """A temporary folder among the objects, so certainly on their filesystem. Removed afterwards."""
    for name in os.listdir(objects):
        if disk.is_leftover(name):
            disk.remove_tree(objects / name)
    staging = objects / disk.temp_name()
    disk.mkdir(staging)
    try:
        yield staging
    finally:
        disk.remove_tree(staging)


def publish(staging: Path, objects: Path) -> None:
    """Moves whole objects and packs from one object folder into another, each on disk before it has its name there."""
    found = [str(path.relative_to(staging)) for path in _files(staging)]
    loose = [name for name in found if _LOOSE.fullmatch(name)]
    # Git uses a pack once it sees its index.
    packs = sorted((name for name in found if _PACK.fullmatch(name)), key=lambda name: name.endswith(".idx"))
    packs = [name for name in packs if f"{name.rpartition('.')[0]}.idx" in packs]
    if loose or packs:
        disk.publish({staging / name: objects / name for name in (*loose, *packs)})


def clear(staging: Path) -> None:
    """Removes what a killed git left half written."""
    for path in _files(staging):
        if path.name.startswith("tmp_"):
            with contextlib.suppress(FileMissing):
                disk.unlink(path)


def _files(staging: Path) -> list[Path]:
    return [Path(parent, name) for parent, _, files in os.walk(staging) for name in files]


def keep(path: Path, content: bytes) -> None:
    """Writes the file only if its content differs: nearly always it does not."""
    try:
        if path.read_bytes() == content:
            return
    except FileNotFoundError:
        pass
    disk.replace(path, content)


def quoted(path: bytes) -> bytes:
    """The path as git reads it in a list: in quotes unless all its characters are plain."""
    if re.fullmatch(rb"[A-Za-z0-9_./+@%=,~-]+", path):
        return path
    return b'"' + b"".join(b"\\%03o" % byte for byte in path) + b'"'


def reads_files(args: Sequence[str]) -> bool:
    """Whether the git command reads the worktree, and not just objects and the index."""
    return args[0] not in _OBJECTS_ONLY and (args[0] != "ls-files" or bool(_READING_OPTIONS & set(args)))


def core_settings(hash_name: str, *, is_bare: bool) -> str:
    """The settings that every git dir needs."""
    extension = "" if hash_name == "sha1" else f"[extensions]\n\tobjectFormat = {hash_name}\n"
    bare = "true" if is_bare else "false"
    return f"[core]\n\trepositoryFormatVersion = {int(bool(extension))}\n\tbare = {bare}\n{extension}"


def make_git_dir(folder: Path, hash_name: str, exclude: Path | None = None) -> None:
    """Makes a git dir of our own, or what is missing of it, that converts nothing: what it stores is what is on disk.
    `exclude`: a file of ignore rules to copy."""
    for name in ("refs", "objects", "info"):
        disk.mkdir(folder / name)
    keep(folder / "HEAD", b"ref: refs/heads/none\n")
    keep(folder / "config", core_settings(hash_name, is_bare=False).encode())
    keep(folder / "info" / "attributes", _ATTRIBUTES)
    if exclude is not None:
        keep(folder / "info" / "exclude", exclude.read_bytes() if exclude.is_file() else b"")
