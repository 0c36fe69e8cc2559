"""The data root itself: is this folder one, may we write there, and is everything in its place?

`format.json` makes a folder a data root. It holds one JSON object: `format`, the version of all that is in the root;
`repository`, an id that never changes once anybody has been told it; and `root_commit`, the first commit of the
repository whose state this is, empty until there is one. It is created last: where it is, the root itself and its first
folders are durable.

The root commit tells a repository from another one that took its path, which in a shared data root is the same folder.
Writers and `check` compare it; read-only commands do not wait for git.

A wrong path is reported before anything is changed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from pathlib import Path

import msgspec

from holdfast.errors import (
    AlreadyExists,
    DiskError,
    DiskFull,
    FormatBroken,
    FormatMissing,
    InputError,
    NewerFormat,
    RootOfAnother,
    RootTracked,
    RootUnusable,
    SyncFailed,
)
from holdfast.layout import FOLDERS, Layout, unslug
from holdfast.storage.files import disk
from holdfast.storage.journal.reader import plain_files

# 2: snapshots are in `snapshots.git`. Before, they were in the user's repository.
FORMAT = 2
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_COMMIT = re.compile(r"|[0-9a-f]{40}|[0-9a-f]{64}")
_BLOCK = 4096
# Where the files of open tasks stand. One that is missing beside a journal may be on its way back.
_LEFT_MISSING = frozenset({"backlog/open/", "backlog/issues/"})

# Worktrees hold the agents' files, of which none is ours to remove.
_NOT_SWEPT = frozenset({"worktrees"})


class Format(msgspec.Struct, frozen=True):
    """The content of format.json."""

    format: int
    repository: str
    root_commit: str = ""


class _Version(msgspec.Struct, frozen=True):
    """All that a format of the future is asked to keep."""

    format: int


def read_root(path: Path) -> Layout:
    """Checks that `path` is a data root of a format we know. Reads only, so it serves a read-only copy too."""
    layout = Layout(_usable(path))
    read_format(layout)
    return layout


def open_root(path: Path, repo: Path | None = None, *, sweeps: bool = True) -> Layout:
    """Checks a data root, and that it is this `repo`'s, and prepares it for writing: missing folders made, leftovers
    of a crash swept, if not by `sweep` later."""
    layout = read_root(path)
    if repo is not None:
        expect_own_state(layout, repo)
        expect_repository(layout, repo)
    _prepare(layout)
    if sweeps:
        sweep(layout)
    return layout


def sweep(layout: Layout) -> None:
    """Removes what a crash left of files that were never finished. It looks at everything, so it takes a moment."""
    disk.sweep(layout.root, skip=_NOT_SWEPT)


def create_root(path: Path, *, repo: Path | None = None) -> Layout:
    """Makes `path` a data root, or opens it if it is one. Of two at once, both end with the same repository id."""
    layout = Layout(_usable(path, may_be_missing=True))
    is_new = not os.path.lexists(layout.format_file)
    if not is_new:
        read_format(layout)
        if repo is not None:
            expect_repository(layout, repo)
    root_commit = _first_commit(repo) if is_new and repo is not None else ""
    _prepare(layout)
    sweep(layout)
    if is_new:
        # The root may have been made by a process that died before its name was durable; so may the file.
        disk.sync_folder(layout.root.parent)
        try:
            disk.create(layout.format_file, _content(Format(FORMAT, os.urandom(16).hex(), root_commit)))
        except AlreadyExists:
            disk.sync_folder(layout.root)
            read_format(layout)
    return layout


# -- whose root it is -------------------------------------------------------------------------------------------------


def expect_repository(layout: Layout, repo: Path) -> None:
    """Refuses a root whose root commit is not in `repo`. A shallow clone does not have it, and cannot tell."""
    from holdfast.git.repository import commits_here, is_shallow

    recorded = read_format(layout).root_commit
    if recorded and not commits_here(repo, [recorded]) and not is_shallow(repo):
        own = _first_commit(repo)
        first = f"begins with {own}" if own else "has no commit yet"
        raise RootOfAnother(path=layout.root, file=layout.format_file, recorded=recorded, repo=repo, first=first)


# What people write of a data root, and may keep in git.
CARRIED = (".gitignore", "backlog/", "config/")


def expect_own_state(layout: Layout, repo: Path) -> None:
    """Refuses a root that git brought here: with its journal it would bring what others decided and started."""
    from holdfast.git.repository import tracked

    known = tracked(layout.root) if layout.within(repo) else ()
    if found := [name for name in known if not name.startswith(CARRIED)]:
        import shlex

        command = shlex.join(["git", "-C", str(layout.root), "rm", "-r", "--cached", "--", *found[:3]])
        raise RootTracked(path=layout.root, file=found[0], command=command, count=len(found))


def note_root_commit(layout: Layout, repo: Path) -> None:
    """Writes the root commit down once there is one. Only for the owner of the root."""
    known = read_format(layout)
    if not known.root_commit and (found := _first_commit(repo)):
        disk.replace(layout.format_file, _content(Format(known.format, known.repository, found)))


def raise_format(layout: Layout) -> None:
    """Says that all in the root is of this format by now. Only for the owner of the root."""
    known = read_format(layout)
    disk.replace(layout.format_file, _content(msgspec.structs.replace(known, format=FORMAT)))


def moved_from(layout: Layout, repo: Path) -> Path | None:
    """The folder beside `layout` that holds the state of `repo` from before it was moved here, if there is one.

    That is one with a root commit of this repository whose own repository is no longer where the folder's name says.
    """
    from holdfast.git.repository import commits_here

    candidates = {}
    for path in sorted(layout.root.parent.glob("*/format.json")):
        with contextlib.suppress(InputError):
            if (commit := read_format(Layout(path.parent)).root_commit) and not _is_lived_in(path.parent.name):
                candidates[path.parent] = commit
    here = commits_here(repo, candidates.values()) if candidates else set()
    return next((folder for folder, commit in candidates.items() if commit in here), None)


def _is_lived_in(slug: str) -> bool:
    try:
        return os.path.lexists(Path(unslug(slug), ".git"))
    except (InputError, ValueError):
        return False


def _first_commit(repo: Path) -> str:
    from holdfast.git.repository import first_commit

    return first_commit(repo)


# -- format.json ------------------------------------------------------------------------------------------------------


def read_format(layout: Layout) -> Format:
    """Reads format.json; the id is only worth keeping from a root that `create_root` or `open_root` returned."""
    path = layout.format_file
    try:
        content = path.read_bytes()
        version = msgspec.json.decode(content, type=_Version).format
        if version > FORMAT:
            raise NewerFormat(path=path, found=version, known=FORMAT)
        found = msgspec.json.decode(content, type=Format)
    except FileNotFoundError:
        if has_journal(layout):
            raise FormatMissing(path=path, wal=layout.wal) from None
        reason = "it has no format.json, so it is not a data root; `holdfast init` makes one"
        raise RootUnusable(path=layout.root, reason=reason) from None
    except OSError as error:
        raise FormatBroken(path=path, reason=error.strerror or str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FormatBroken(path=path, reason=f"it is damaged ({error})") from error
    if version < 1 or not _REPOSITORY.fullmatch(found.repository) or not _COMMIT.fullmatch(found.root_commit):
        raise FormatBroken(path=path, reason=f"it is damaged ({found})")
    return found


def has_journal(layout: Layout) -> bool:
    """True where anything was ever decided."""
    return bool(plain_files(layout.wal)) or any(layout.wal_archive.glob("*.wal.jsonl*"))


def _content(made: Format) -> bytes:
    return msgspec.json.encode(made) + b"\n"


# -- checking ---------------------------------------------------------------------------------------------------------


def _usable(path: Path, *, may_be_missing: bool = False) -> Path:
    """The absolute path of a folder; or of one that can be made, if it `may_be_missing`."""
    try:
        path = path.absolute()
        if stat.S_ISDIR(os.stat(path).st_mode):
            return path
        reason = "it is not a folder"
    except FileNotFoundError:
        if may_be_missing and not any(each.is_symlink() and not each.exists() for each in (path, *path.parents)):
            return path
        reason = _what_is_missing(path)
    except ValueError:
        reason = "its name holds a character that no file name can hold"
    except OSError as error:
        reason = _REASONS.get(error.errno or 0) or error.strerror or str(error)
    raise RootUnusable(path=path, reason=reason)


def _what_is_missing(path: Path) -> str:
    if path.is_symlink():
        return "it is a symbolic link to nothing"
    return "it does not exist" if path.parent.is_dir() else f"the folder {path.parent} does not exist"


_REASONS = {
    errno.ENOTDIR: "a part of its path is a file, not a folder",
    errno.ELOOP: "its path is a loop of symbolic links",
}


# -- preparing --------------------------------------------------------------------------------------------------------


def _prepare(layout: Layout) -> None:
    skipped = _LEFT_MISSING if has_journal(layout) else frozenset[str]()
    folders = [layout.root / entry.relative for entry in FOLDERS if entry.relative not in skipped]
    # In this order, because another process may be making the same folders right now.
    for folder in folders:
        if os.path.lexists(folder) and not folder.is_dir():
            raise RootUnusable(path=layout.root, reason=f"{folder} is not a folder")
    missing = sum(not folder.is_dir() for folder in folders)
    _claim(layout.root, missing + 2)
    for folder in folders:
        disk.mkdir(folder)
    if stat.S_IMODE(layout.root.stat().st_mode) != disk.OWN_FOLDER:
        # It is of an earlier version, or somebody has opened it. Behind the root's own mode nobody else gets in.
        disk.close_to_others(layout.root, _of_agents(layout))
    # What is there may have been made by a process that died before it was durable.
    for parent in sorted({folder.parent for folder in folders}):
        disk.sync_folder(parent)


def _of_agents(layout: Layout) -> set[Path]:
    """Folders in which git and agents write, with modes that mean something to them."""
    own = {layout.worktrees, layout.snapshots, layout.cache / "snapshots"}
    return own | {layout.attempt_files(path.name).agent for path in layout.attempts.iterdir()}


def _claim(root: Path, blocks: int) -> None:
    """Finds out whether we may write here and have room for so many new entries, or leaves all as it was."""
    new = [folder for folder in (root, *root.parents) if not folder.is_dir()]
    try:
        disk.mkdir(root)
        with disk.StagedFile(root) as probe:
            probe.write(bytes(_BLOCK * blocks))
            probe.sync()
    except DiskError as error:
        for folder in new:
            # Another process may be making the same root: then it is not empty, and stays.
            with contextlib.suppress(DiskError):
                disk.rmdir(folder)
        # A disk that is full or failing speaks for itself; any other refusal is about the folder.
        if isinstance(error, DiskFull | SyncFailed):
            raise
        reason = f"could not {error.operation} {error.path}: {error.reason}"
        raise RootUnusable(path=root, reason=reason) from error
