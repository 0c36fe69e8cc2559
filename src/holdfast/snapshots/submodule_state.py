"""Submodules that are set up in a worktree: which ones, and their state.

    <private>/submodules.json             the submodules of the worktree, as they were set up
    <private>/modules-<boot id>/<hash>    for each an index and a git dir of our own, with which its files are read

An agent writes the files of a submodule and its git dir: a git that ran inside would take settings, filters and hooks
from there. So no git of ours does. The checked-out commit is read from `HEAD` as a file; the files are read with a git
dir of our own, as those of the worktree are; facts about a commit come from the repository's own git dir of the
submodule (`.git/modules/<name>`).

A submodule whose files are exactly those of its commit, and whose commit the repository has, is a gitlink in a
snapshot, as in git. Any other is held as plain files, so that the work in it is kept byte for byte.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast import identity
from holdfast.git import command as git
from holdfast.git.tree_diff import GITLINK, joined
from holdfast.snapshots.store import Store, make_git_dir
from holdfast.storage.files import disk, plain
from holdfast.storage.files.json_file import read_json

MODULES = "modules"
RECORD = "submodules.json"
_BYTES_MAX = 64 << 20
_REF = re.compile(r"ref: (refs/(?!.*\.\.)[^\s\x00]+)\s*")
_COMMIT = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64})\s*")


class Module(msgspec.Struct, frozen=True):
    """One submodule. `path`: from the top of the worktree. `name`: of its git dir, below `modules/` of the repository's
    git dir and of the worktree's alike. `store`: the repository's own git dir of it."""

    path: str
    name: str
    store: str

    def is_inside(self, other: Module) -> bool:
        return self.path.startswith(f"{other.path}/")


class ModuleState(msgspec.Struct, frozen=True):
    """The content of a submodule: exactly `commit` or, where `tree` is not empty, these files."""

    commit: str
    tree: str = ""


def recorded(private: Path) -> list[Module]:
    """The submodules that were set up in the worktree, the outer ones first."""
    return read_json(private / RECORD, list[Module], lenient=True) or []


def record(private: Path, modules: Sequence[Module]) -> None:
    if recorded(private) != list(modules):
        disk.mkdir(private)
        disk.replace(private / RECORD, msgspec.json.encode(modules))


def head_of(git_dir: Path) -> str:
    """The commit that is checked out; empty where that is unknown. Reads files, and runs nothing."""
    head = _text(git_dir, "HEAD")
    if found := _REF.fullmatch(head):
        loose = _text(git_dir, found[1])
        lines = (line.split(" ") for line in _text(git_dir, "packed-refs").splitlines())
        head = loose or next((line[0] for line in lines if line[1:] == [found[1]]), "")
    commit = _COMMIT.fullmatch(head)
    return commit[1] if commit else ""


def _text(git_dir: Path, name: str) -> str:
    """The text of a plain file that an agent may have put there; empty where there is none."""
    try:
        return os.fsdecode(plain.read(git_dir / name, _BYTES_MAX, git_dir))
    except OSError:
        return ""


def has_commit(store: Path, commit: str) -> bool:
    """Whether the repository's own git dir of a submodule has a commit."""
    if not commit or not (store / "HEAD").is_file():
        return False
    return not git.run("cat-file", "-e", f"{commit}^{{tree}}", cwd=store, env=trusted(store), codes=(0, 1, 128)).code


def trusted(store: Path, **variables: str) -> dict[str, str]:
    """The environment for git in the repository's own git dir of a submodule. It fetches nothing."""
    settings = {"core.fsync": "none", "submodule.recurse": "false", "protocol.allow": "never"}
    settings |= {"core.sparseCheckout": "false", "core.bare": "false"}
    return git.environment(settings, GIT_DIR=str(store), **{"GIT_WORK_TREE": str(store), **variables})


def is_real(path: Path, top: Path) -> bool:
    """Whether a path below `top` leads there through no symbolic link."""
    parts = path.relative_to(top).parts
    return not any(top.joinpath(*parts[: end + 1]).is_symlink() for end in range(len(parts)))


def links_in(lines: Sequence[str]) -> dict[str, str]:
    """The gitlinks in the output of `ls-files -s -z`, each with its facts."""
    listed = (line.split("\t", 1) for line in lines)
    return {name: facts for facts, name in listed if facts.startswith(GITLINK)}


def is_empty(path: Path) -> bool:
    """Whether it is a folder with nothing in it."""
    if path.is_symlink() or not path.is_dir():
        return False
    with os.scandir(path) as entries:
        return next(entries, None) is None


class Submodules:
    """The submodules of one worktree. `places`: folders to search for their git dirs; the first match counts. `run`
    runs git with variables on top of the shadow's; `staging` takes the objects of submodules that are held as files."""

    def __init__(
        self,
        worktree: Path,
        private: Path,
        places: Sequence[Path],
        store: Store,
        run: Callable[..., git.GitResult],
        staging: Path,
    ) -> None:
        self._worktree, self._private, self._places = worktree, private, places
        self.store, self.run, self.staging = store, run, staging
        self._made: dict[tuple[str, str], str] = {}
        # Returns which files of a submodule are too large, given git's variables and its commit.
        self.large: Callable[[Mapping[str, str], str], Iterable[str]] = lambda variables, commit: ()

    def standing(self) -> list[Module]:
        """Those that were set up and still exist, as a folder with a `.git`."""
        found = recorded(self._private)
        return [module for module in found if self._is_standing(self._worktree / module.path)]

    def _is_standing(self, path: Path) -> bool:
        return is_real(path, self._worktree) and path.is_dir() and os.path.lexists(path / ".git")

    def states(self) -> dict[str, ModuleState]:
        """The state of each, by path; one inside another is part of that one."""
        modules = self.standing()
        # Caches of another boot, and locks: each is a killed git's, as no other process works here.
        here = f"{MODULES}-{identity.boot_id()}"
        _clear(*(folder for folder in self._private.glob(f"{MODULES}-*") if folder.name != here))
        _clear(*self._private.glob(f"{here}/*/index-*.lock"))
        outer = [each for each in modules if not any(each.is_inside(other) for other in modules)]
        return {module.path: self._state(module, modules) for module in outer}

    def put_into(self, tree: str, index: Path) -> str:
        """The tree with the submodules in it: a gitlink, or the files of one with work of its own."""
        states = self.states()
        if not states:
            return tree
        here = {"GIT_INDEX_FILE": str(index)}
        self.run("read-tree", tree, variables=here)
        links = [f"{GITLINK} {state.commit} 0\t{path}" for path, state in states.items() if not state.tree]
        self.run("update-index", "--add", "-z", "--index-info", stdin=joined(links), variables=here)
        for path, state in states.items():
            if state.tree:
                self.run("read-tree", f"--prefix={path}/", state.tree, variables=here)
        return self.run("write-tree", variables=here).line

    def forget(self) -> None:
        """Removes the cached state of their files."""
        for folder in self._private.glob(f"{MODULES}-*"):
            disk.remove_tree(folder)

    def _state(self, module: Module, modules: Sequence[Module]) -> ModuleState:
        inside = [each for each in modules if each.is_inside(module)]
        direct = [each for each in inside if not any(each.is_inside(other) for other in inside)]
        nested = {each.path[len(module.path) + 1 :]: self._state(each, modules) for each in direct}
        heads = (head_of(place / module.name) for place in self._places)
        head, store = next(filter(None, heads), ""), Path(module.store)
        folder = (
            self._private
            / f"{MODULES}-{identity.boot_id()}"
            / hashlib.sha256(os.fsencode(module.path)).hexdigest()[:16]
        )
        make_git_dir(folder / "git", self.store.repository.hash_name, store / "info" / "exclude")
        known = head if has_commit(store, head) else ""
        reader = _ModuleReader(self, module, folder, self._worktree / module.path, nested)
        tree = reader.tree(known)
        if known:
            recorded_tree = git.run("rev-parse", f"{known}^{{tree}}", cwd=store, env=trusted(store)).line
            if tree in (recorded_tree, self._tree_made(reader, known)):
                return ModuleState(known)
        return ModuleState(head, reader.held(known))

    def _tree_made(self, reader: _ModuleReader, commit: str) -> str:
        """The tree of the files as a checkout makes them, with line ends and filters."""
        key = reader.module.name, commit
        if key not in self._made:
            files, index = reader.folder / "made", reader.folder / "index-made"
            _clear(files, index, reader.folder / "other")
            disk.mkdir(files)
            check_out(Path(reader.module.store), commit, files, index)
            other = _ModuleReader(self, reader.module, reader.folder / "other", files, {})
            make_git_dir(reader.folder / "other" / "git", self.store.repository.hash_name)
            self._made[key] = other.tree(commit)
            _clear(files, index, reader.folder / "other")
        return self._made[key]


def check_out(store: Path, commit: str, files: Path, index: Path) -> None:
    """Writes the files of a commit into an empty folder, as a checkout does, and an index that knows them."""
    env = trusted(store, GIT_WORK_TREE=str(files), GIT_INDEX_FILE=str(index))
    git.run("read-tree", commit, cwd=files, env=env)
    git.run("checkout-index", "-a", "-u", "-q", cwd=files, env=env)


def unborn(hash_name: str) -> str:
    """The id that marks a nested repository without a commit: an empty commit object, which is never valid."""
    return hashlib.new(hash_name, b"commit 0\0").hexdigest()


def unborn_links(files: Path, names: Iterable[str], hash_name: str) -> dict[str, str]:
    """The nested repositories without a commit among names that git could not add, each with its index line."""
    tops = [name for name in names if not (files / name).is_symlink() and os.path.lexists(files / name / ".git")]
    return {name: f"{GITLINK} {unborn(hash_name)} 0\t{name.rstrip('/')}" for name in tops}


class _ModuleReader:
    """Reads the files of one submodule, with an index and a git dir of our own in `folder`."""

    def __init__(
        self, home: Submodules, module: Module, folder: Path, files: Path, nested: Mapping[str, ModuleState]
    ) -> None:
        self.module, self.folder = module, folder
        self._files, self._nested = files, nested
        self._run, self._staging, self._store, self._large = home.run, home.staging, home.store, home.large

    def tree(self, known: str) -> str:
        """The tree of the files. Its objects are not kept."""
        objects = self.folder / "objects"
        _clear(objects)
        disk.mkdir(objects)
        index = self.folder / f"index-{known or 'none'}"
        stores = (self._staging, Path(self.module.store) / "objects")
        see = self._variables(index, objects, *stores)
        if known and not index.exists() and self._run("read-tree", known, variables=see, codes=(0, 128)).failure:
            disk.unlink(index, missing_ok=True)
        self._add(see, known)
        found = self._run("write-tree", "--missing-ok", variables=see).line
        _clear(objects)
        return found

    def held(self, known: str) -> str:
        """The same tree, with all of its objects in the staging folder of the store of snapshots."""
        index = self.folder / "index-held"
        disk.unlink(index, missing_ok=True)
        see = self._variables(self.folder / f"index-{known or 'none'}", self._staging)
        listed = self._run("ls-files", "-s", "-z", variables=see).fields()
        files = [line for line in listed if not line.startswith(GITLINK) and not self._is_nested(line)]
        see |= {"GIT_INDEX_FILE": str(index)}
        # Without the files' times, so that git reads each of them and writes its object.
        self._run("update-index", "--add", "-z", "--index-info", stdin=joined(files), variables=see)
        self._add(see, known, links_in(listed))
        return self._run("write-tree", variables=see).line

    def _is_nested(self, line: str) -> bool:
        name = line.split("\t", 1)[1]
        return any(name.startswith(f"{path}/") for path in self._nested)

    def _add(self, see: Mapping[str, str], known: str, links: Mapping[str, str] | None = None) -> None:
        """Makes the index equal to the files. Removes gitlinks first: with one in the index, git would run inside."""
        listed = self._run("ls-files", "-s", "-z", variables=see).fields()
        found = links_in(listed)
        leaving = [*found, *(line.split("\t", 1)[1] for line in listed if self._is_nested(line))]
        self._run("update-index", "--force-remove", "-z", "--stdin", stdin=joined(leaving), variables=see)
        apart = [f":(top,exclude,literal){path}" for path in (*self._nested, *self._large(see, known))]
        added = self._run("add", "-A", "--ignore-errors", "--", ":/", *apart, codes=(0, 1), variables=see)
        asked = ("ls-files", "-z", "-o", "--exclude-standard", "--", ":/", *apart)
        left = self._run(*asked, variables=see).fields() if added.code else []
        empty = {**found, **(links or {})}
        back = [f"{facts}\t{name}" for name, facts in empty.items() if is_empty(self._files / name)]
        back += [f"{GITLINK} {state.commit} 0\t{path}" for path, state in self._nested.items() if not state.tree]
        back += unborn_links(self._files, left, self._store.repository.hash_name).values()
        self._run("update-index", "--add", "-z", "--index-info", stdin=joined(back), variables=see)
        for path, state in self._nested.items():
            if state.tree:
                self._run("read-tree", f"--prefix={path}/", state.tree, variables=see)

    def _variables(self, index: Path, objects: Path, *more: Path) -> dict[str, str]:
        return {
            "GIT_DIR": str(self.folder / "git"),
            "GIT_WORK_TREE": str(self._files),
            "GIT_INDEX_FILE": str(index),
            "GIT_OBJECT_DIRECTORY": str(objects),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": self._store.alternates(*more),
        }


def _clear(*paths: Path) -> None:
    for path in paths:
        disk.remove_tree(path) if path.is_dir() else disk.unlink(path, missing_ok=True)
