"""Sets up submodules in a worktree (`submodules: init`): at the commits that a tree names, without any network.

    .git/modules/<name>                        the repository's own git dir of a submodule; only read
    .git/worktrees/<worktree>/modules/<name>   the worktree's: HEAD, index, settings, and commits made there
    <worktree>/<path>                          the files, and `.git`, which names the one above

The worktree's git dir refers to the repository's for all objects that exist there. Everything is made beside its place
and renamed into it: a crash leaves a submodule as it was, or missing, and the next start makes it. A submodule in the
wrong state is never changed in place: it is removed, and made again. Commits that only its git dir has are moved to the
quarantine first.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.clock import wall
from holdfast.crashpoints import point
from holdfast.errors import GitFailed, GitFault, SubmoduleMissing
from holdfast.git import command as git
from holdfast.git.tree_diff import GITLINK
from holdfast.snapshots.snapshots import files_below
from holdfast.snapshots.store import Store, core_settings, quoted
from holdfast.snapshots.submodule_state import (
    MODULES,
    Module,
    ModuleState,
    check_out,
    has_commit,
    head_of,
    is_empty,
    is_real,
    record,
    recorded,
    trusted,
)
from holdfast.storage.files import disk, plain

KEEP, INIT = "keep", "init"
SUBMODULE_POINTS = tuple(f"submodule.{step}.{when}" for step in ("clear", "make") for when in ("before", "after"))
_STAGED = "holdfast-module"
_UPDATE = "git submodule update --init --recursive"

Run = Callable[..., git.GitResult]


# -- which submodules -------------------------------------------------------------------------------------------------


class WantedModule(msgspec.Struct, frozen=True):
    """The wanted state of a submodule: at `commit` or, where `files` is not empty, with the files of that tree."""

    module: Module
    commit: str
    files: str = ""


def names(run: Run, commit: str) -> dict[str, str]:
    """The submodules that the `.gitmodules` of a commit or tree lists: path → name."""
    asked = ("config", "-z", "--blob", f"{commit}:.gitmodules", "--get-regexp", r"^submodule\..*\.path$")
    entries = (entry.partition("\n") for entry in run(*asked, codes=(0, 1, 128)).fields())
    found = {path: key.removeprefix("submodule.").removesuffix(".path") for key, _, path in entries}
    return {path: name for path, name in found.items() if _is_name(name)}


def _is_name(name: str) -> bool:
    """Whether git accepts the name: one that leads elsewhere is refused."""
    return bool(name) and not name.startswith("/") and ".." not in name.split("/") and "\0" not in name


def links(run: Run, tree: str) -> dict[str, str]:
    """The gitlinks of a commit or tree: path → commit."""
    listed = (line.split("\t", 1) for line in run("ls-tree", "-r", "-z", tree).fields())
    return {path: facts.split(" ")[2] for facts, path in listed if facts.startswith(GITLINK)}


def plan(store: Store, base: str, tree: str) -> list[WantedModule]:
    """The submodules of a worktree that is to hold `tree`, the outer ones first. Raises where the repository itself
    lacks one of `base`; others are set up where possible."""
    run, top = store.seen.run, store.repository.common_dir / MODULES
    if not (listed := names(run, tree)):
        return []
    before, now = links(run, base), links(run, tree)
    found: list[WantedModule] = []
    for path in sorted(listed.keys() & (before.keys() | now.keys())):
        name, commit = listed[path], now.get(path) or before[path]
        files = "" if path in now else _folder(run, tree, path)
        if path not in now and not files:
            continue
        module = Module(path, name, str(top / name))
        if reason := _lacking(module, commit):
            if path in before and not _is_left_out(store, tree, name):
                top_of_user = store.repository.worktree
                # Older git versions kept a submodule's git dir in the submodule's folder.
                is_old = (top_of_user / path / ".git").is_dir()
                command = f"git submodule absorbgitdirs {path}" if is_old else _UPDATE
                raise SubmoduleMissing(path=path, reason=reason, command=command, repo=top_of_user)
            continue
        found.append(WantedModule(module, commit, files))
        found += _nested(module, run, files) if files else _nested(module, _asking(module), commit)
    return found


def _folder(run: Run, tree: str, path: str) -> str:
    """The tree of a folder in a tree; empty where there is none."""
    facts = run("ls-tree", "-z", tree, "--", path).fields()
    return facts[0].split("\t", 1)[0].split(" ")[2] if facts and facts[0].startswith("040000 tree") else ""


def _nested(module: Module, run: Run, tree: str) -> Iterator[WantedModule]:
    found = links(run, tree)
    for path, name in sorted(names(run, tree).items()) if found else ():
        inner = Module(f"{module.path}/{path}", f"{module.name}/{MODULES}/{name}", f"{module.store}/{MODULES}/{name}")
        if path in found and not _lacking(inner, found[path]):
            yield WantedModule(inner, found[path])
            yield from _nested(inner, _asking(inner), found[path])


def _asking(module: Module) -> Run:
    store = Path(module.store)

    def run(*args: str, codes: Collection[int] = (0,)) -> git.GitResult:
        return git.run(*args, cwd=store, env=trusted(store), codes=codes)

    return run


def _lacking(module: Module, commit: str) -> str:
    if not (Path(module.store) / "HEAD").is_file():
        return "the repository itself has not initialised it"
    return "" if has_commit(Path(module.store), commit) else f"the repository has not fetched its commit {commit}"


def _is_left_out(store: Store, tree: str, name: str) -> bool:
    """Whether it is never checked out: `update = none` in the repository's settings or, without one, in the tree's."""
    key = f"submodule.{name}.update"
    setting = store.repository.run("config", key, codes=(0, 1)).line
    asked = ("config", "--blob", f"{tree}:.gitmodules", key)
    return (setting or store.seen.run(*asked, codes=(0, 1, 128)).line) == "none"


def differing(store: Store, module: Path, commit: str, files: str) -> list[str]:
    """The paths in which a tree differs from a submodule's commit; none where that is unknown."""
    seen = store.repository.with_objects(store.objects, store.alternates(module / "objects"))
    asked = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", f"{commit}^{{tree}}", files)
    answer = seen.run(*asked, codes=(0, 128))
    return [] if answer.failure else answer.fields()


# -- setting up -------------------------------------------------------------------------------------------------------


class ModulePlace(msgspec.Struct, frozen=True):
    """A worktree. `git_dir`: its own; `own`: the one that a confined agent has instead, or None. `gone` makes the path
    of a folder that the next operation removes; `aside` is one in the quarantine."""

    repo: Path
    worktree: Path
    git_dir: Path
    own: Path | None
    private: Path
    gone: Callable[[], Path]
    aside: Path

    def git_dirs(self, module: Module) -> list[Path]:
        return [top / MODULES / module.name for top in (self.git_dir, self.own) if top is not None]


def clear(place: ModulePlace, wanted: Sequence[WantedModule], states: Mapping[str, ModuleState]) -> None:
    """Removes every submodule in the wrong state. A snapshot has what they held."""
    point("submodule.clear.before")
    known = {each.module: each for each in wanted}
    kept: list[Module] = []
    for module in recorded(place.private):
        outer = next((each for each in kept if module.is_inside(each)), None)
        is_wanted = module in known and _is_at(place, module)
        if is_wanted and (outer is not None or _is_as(known[module], states.get(module.path))):
            kept.append(module)
        else:
            _remove_module(place, module)
    record(place.private, kept)
    point("submodule.clear.after")


def _is_at(place: ModulePlace, module: Module) -> bool:
    """Whether its folder and its git dir exist, and refer to each other."""
    path, git_dir = place.worktree / module.path, place.git_dir / MODULES / module.name
    pointer = _pointer(git_dir)
    try:
        return plain.read(path / ".git", len(pointer), place.worktree) == pointer and bool(head_of(git_dir))
    except OSError:
        return False


def _is_as(wanted: WantedModule, state: ModuleState | None) -> bool:
    if state is None:
        return False
    return state.tree == wanted.files if wanted.files else state == ModuleState(wanted.commit)


def _remove_module(place: ModulePlace, module: Module) -> None:
    path = place.worktree / module.path
    if is_real(path, place.worktree) and os.path.lexists(path / ".git"):
        disk.rename(path, place.gone())
        disk.mkdir(path)
    for number, git_dir in enumerate(place.git_dirs(module)):
        if git_dir.is_dir() and is_real(git_dir, git_dir.parents[len(Path(module.name).parts)]):
            _save_commits(git_dir, place.aside / f"{module.name.replace('/', '-')}-{number}")
            disk.remove_tree(git_dir)


def _save_commits(git_dir: Path, target: Path) -> None:
    """Copies a git dir that has objects of its own to the quarantine: it may be their only place."""
    if not has_objects(git_dir):
        return
    disk.mkdir(target / "refs")
    for path in files_below(git_dir):
        if stat.S_ISREG(path.lstat().st_mode):
            copy = target / path.relative_to(git_dir)
            disk.mkdir(copy.parent)
            disk.replace(copy, plain.pieces(path, git_dir))
    # Its own settings name a worktree that is removed, and whatever else the agent put there.
    hash_name = "sha256" if len(head_of(git_dir)) > 40 else "sha1"
    disk.replace(target / "config", core_settings(hash_name, is_bare=True).encode())


def has_objects(git_dir: Path) -> bool:
    """Whether it, or one inside it, holds objects of its own."""
    for parent, _, files in os.walk(git_dir):
        inside = Path(parent).relative_to(git_dir).parts
        if files and "objects" in inside and inside[-1] != "info":
            return True
    return False


def has_work(modules: Path, known: Collection[Module]) -> bool:
    """Whether `modules` of a worktree's git dir has a submodule that we did not set up, or commits made in one."""
    tops = {module.name.split("/")[0] for module in known}
    return any(path.name not in tops or has_objects(path) for path in modules.glob("*"))


def empty(store: Store, path: Path, tree: str, gone: Callable[[str], Path], *, whole: bool = False) -> None:
    """Removes plain files from the folders of submodules for which a tree has only the commit; a snapshot has them.
    `whole`: repositories, too."""
    listed = names(store.seen.run, tree)
    for name in links(store.seen.run, tree).keys() & listed.keys() if listed else ():
        folder = path / name
        is_kept = not whole and os.path.lexists(folder / ".git")
        if is_real(folder, path) and folder.is_dir() and not is_empty(folder) and not is_kept:
            disk.rename(folder, gone(path.name))
            disk.mkdir(folder)


def fill(place: ModulePlace, wanted: Sequence[WantedModule]) -> None:
    """Makes every submodule that is missing. Those that `clear` has left are in the right state."""
    standing = set(recorded(place.private))
    record(place.private, [each.module for each in wanted])
    for each in wanted:
        if each.module not in standing or not _is_at(place, each.module):
            point("submodule.make.before")
            _make(place, each)
            point("submodule.make.after")
        elif not each.files and head_of(place.git_dir / MODULES / each.module.name) != each.commit:
            # A confined agent moved it, in a git dir of its own.
            git_dir, store = place.git_dir / MODULES / each.module.name, Path(each.module.store)
            index = _staged(place) / "index"
            git.run("read-tree", each.commit, cwd=store, env=trusted(store, GIT_INDEX_FILE=str(index)))
            disk.rename(index, git_dir / "index")
            disk.replace(git_dir / "HEAD", f"{each.commit}\n".encode())


def _make(place: ModulePlace, wanted: WantedModule) -> None:
    path = place.worktree / wanted.module.path
    for parent in reversed(path.relative_to(place.worktree).parents):
        if (place.worktree / parent).is_symlink():
            # Not part of the tree, which has a folder there.
            disk.unlink(place.worktree / parent)
    if wanted.files:
        # They are in the folder by now, as every file of the tree is.
        _make_git_dir(place, wanted, None)
        disk.mkdir(path)
        disk.replace(path / ".git", _pointer(place.git_dir / MODULES / wanted.module.name))
        return
    files = place.gone()
    disk.mkdir(files)
    _make_git_dir(place, wanted, files)
    disk.replace(files / ".git", _pointer(place.git_dir / MODULES / wanted.module.name))
    disk.sync_filesystem(files, files_below(files))
    if os.path.lexists(path) and not is_empty(path):
        # A repository that we did not set up belongs to somebody; a snapshot has anything else here.
        is_foreign = os.path.lexists(path / ".git")
        disk.mkdir(place.aside.parent)
        disk.rename(path, place.aside if is_foreign else place.gone())
    elif os.path.lexists(path):
        disk.rmdir(path)
    disk.mkdir(path.parent)
    disk.rename(files, path)


def _staged(place: ModulePlace) -> Path:
    """Makes an empty folder in the worktree's git dir, and removes what a killed process left in it."""
    staged = place.git_dir / _STAGED
    if staged.exists():
        disk.remove_tree(staged)
    disk.mkdir(staged)
    return staged


def _make_git_dir(place: ModulePlace, wanted: WantedModule, files: Path | None) -> None:
    """Makes the worktree's git dir of a submodule, and checks its files out into `files` where that is given."""
    module, store, staged = wanted.module, Path(wanted.module.store), _staged(place)
    disk.mkdir(staged / "objects" / "info")
    disk.mkdir(staged / "refs")
    disk.mkdir(staged / "info")
    try:
        if files is not None:
            check_out(store, wanted.commit, files, staged / "index")
        else:
            env = trusted(store, GIT_INDEX_FILE=str(staged / "index"))
            git.run("read-tree", wanted.commit, cwd=store, env=env)
    except GitFault:
        raise
    except GitFailed as failure:
        facts = {"path": module.path, "reason": failure.stderr, "command": _UPDATE, "repo": place.repo}
        raise SubmoduleMissing(**facts) from failure
    asked = ("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/remotes", "refs/tags")
    refs = git.run(*asked, cwd=store, env=trusted(store)).out
    texts = {"packed-refs": refs, "HEAD": f"{wanted.commit}\n".encode()}
    texts["objects/info/alternates"] = quoted(os.fsencode(store / "objects")) + b"\n"
    texts["config"] = _config(store, place.worktree / module.path)
    for name in ("shallow", "info/exclude"):
        if (store / name).is_file():
            texts[name] = (store / name).read_bytes()
    for name, text in texts.items():
        disk.replace(staged / name, text)
    disk.sync_filesystem(staged, files_below(staged))
    target = place.git_dir / MODULES / module.name
    if target.exists():
        _save_commits(target, place.aside / module.name.replace("/", "-"))
        disk.remove_tree(target)
    disk.mkdir(target.parent)
    disk.rename(staged, target)


def _config(store: Path, path: Path) -> bytes:
    """The settings of a worktree's git dir: the path of its files, and those of the repository's that name remotes."""

    def ask(*args: str) -> git.GitResult:
        return git.run(*args, cwd=store, env=trusted(store), codes=(0, 1))

    text = core_settings(ask("rev-parse", "--show-object-format").line, is_bare=False)
    text += f"[core]\n\tworktree = {_value(str(path))}\n"
    for entry in ask(
        "config", "-z", "--local", "--get-regexp", r"^(submodule|remote)\..*\.(url|active|fetch)$"
    ).fields():
        key, _, value = entry.partition("\n")
        section, _, rest = key.partition(".")
        name, _, variable = rest.rpartition(".")
        text += f"[{section} {_value(name)}]\n\t{variable} = {_value(value)}\n"
    return os.fsencode(text)


def _value(text: str) -> str:
    """The text as git reads it in a settings file."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _pointer(git_dir: Path) -> bytes:
    return os.fsencode(f"gitdir: {git_dir}\n")


def aside(quarantine: Path, task: str) -> Path:
    return quarantine / f"submodule-{task}-{int(wall())}-{os.getpid()}"
