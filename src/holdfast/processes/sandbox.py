"""Confining an agent or a gate with bubblewrap: it reads everything but our data root, and writes in its worktree and a
/tmp of its own.

    <private>/own/<attempt>/git       the agent's own git dir: its index, HEAD and settings, begun as a copy
    <private>/own/<attempt>/objects   the objects that it makes; they refer to the repository's for all others
    <private>/own/<attempt>/store     empty; inside, the repository's objects stand here, to be read

Inside, these two lie over the worktree's git dir and the repository's objects, so that git works as ever: a commit goes
into its own folders, and what it writes there, settings and filters too, is never read by a git of ours. Of the
repository nothing is open to it, nor is the worktree's `.git`, which says where the repository is. A snapshot is of the
files, so it holds what was committed, too.

It sees no process but its own, has no capability, and no terminal. Agents that keep conversations below the home need
`sandbox_writable`; no path named there opens the repository's git dir or the data root.

Of the data root only its own attempt and its worktree are there: other attempts' files, blobs, the journal and the
tokens of the server (`runtime/secret/`) are not, nor is the key of the audit log. With an operator's token it could
have anything done outside. Whole folders are covered, because a file that is replaced outside would show itself inside.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.domain.attempt_records import Home, Order, folder_name
from holdfast.errors import NotWritable
from holdfast.git import command as git
from holdfast.layout import Attempt
from holdfast.processes import bwrap
from holdfast.snapshots.snapshots import files_below
from holdfast.snapshots.submodule_state import MODULES, Module, is_real, recorded
from holdfast.storage.files import disk, plain

KINDS = ("auto", "none", "bwrap")
OWN = "own"
PATH_BYTES_MAX = 1 << 16
_WAY_OUT = (
    "install bubblewrap (on Debian `apt-get install bubblewrap`) where user namespaces are allowed, "
    "or set `sandbox: none`"
)


# What builds and tests write in the home: what is there is shown to read, unless it must be written; and all that is
# written is gone with the sandbox.
_CACHES = (
    Home("~/.cache", forgotten=("go-build", "pip", "mypy", "ruff", "ccache", "golangci-lint", "node-gyp", "yarn")),
    Home("~/.npm", forgotten=("*",)),
)


def resolved(kind: str) -> str:
    """The sandbox that this word of the settings stands for on this machine."""
    if kind != "auto":
        return kind
    return "none" if bwrap.trouble() else bwrap.PROGRAM


def unconfined(kind: str) -> str:
    """The warning where a person did not choose to do without a sandbox, and there is none; or empty."""
    if kind != "auto" or not (why := bwrap.trouble()):
        return ""
    return f"NO SANDBOX: agents and gates may do all that this user may, because {why}; {_WAY_OUT}"


def missing(kind: str, *, tries: bool = False) -> str:
    """A sentence that says why such a sandbox cannot be used here; empty when it can. `tries`: whether one can be made
    is tried, too."""
    if kind not in KINDS:
        return f"There is no sandbox {kind!r}. Nothing was started; use {' or '.join(KINDS)}."
    if kind != bwrap.PROGRAM:
        return ""
    if shutil.which(bwrap.PROGRAM) is None:
        return f"There is no program `{bwrap.PROGRAM}` for the sandbox. Nothing was started; {_WAY_OUT}."
    if tries and (why := bwrap.trouble()):
        return f"There can be no sandbox: {why}. Nothing was started; {_WAY_OUT}."
    return ""


def in_words(kind: str) -> str:
    """Describes this sandbox for `doctor`, with what it means where Holdfast is run by root."""
    kind = resolved(kind)
    if kind == bwrap.PROGRAM:
        what = "bwrap: agents and gates write in their worktree only"
        if not bwrap.has_no_other_users():
            what += ", but can make namespaces of their own, where this bubblewrap is older than 0.8 or setuid"
        held = (
            "which reads every file and every socket inside, too, but has no capability, and no setting of the kernel"
        )
    else:
        what, held = "none: agents and gates may do all that this user may", "so they may do anything on this machine"
    return what if os.geteuid() != 0 else f"{what}. This is root, {held}; an account of its own is safer"


def own_index(order: Order) -> Path | None:
    """The index that a confined agent's git writes; None where it has the worktree's."""
    return None if order.sandbox == "none" else _own(order) / "git" / "index"


def wrapped(order: Order, argv: tuple[str, ...], files: Attempt) -> tuple[str, ...]:
    """The command line of the agent, confined as its order says; what it needs for that is made first."""
    if order.sandbox == "none":
        # An agent may be told to keep its conversations in such a folder, and need not make it.
        for home in (each for each in order.launch.homes if not each.marker):
            _writable(home, os.path.realpath(order.worktree))
        return argv
    repository, own = git.discover(Path(order.worktree)), _own(order)
    modules = recorded(Path(order.private))
    _make_own(repository, own, modules)
    _copy_modules(repository.git_dir, own / "git", modules)
    store = repository.stores[0].resolve()
    binds = [
        ("--ro-bind", files.root.resolve(), files.root.resolve()),
        ("--bind", own / "git", repository.git_dir),
        ("--ro-bind", store, own / "store"),
        ("--bind", own / "objects", store),
        ("--bind", files.asks.resolve(), files.asks.resolve()),
    ]
    if order.launch.has_hook or order.launch.links:
        # A hook speaks to the runner by a file there, and what has links is a home.
        binds.append(("--bind", files.agent.resolve(), files.agent.resolve()))
    root, opened = files.root.parent.parent, order.sandbox_writable
    # Who talks to a model needs the way to it.
    network = "open" if order.launch.uses_model else order.sandbox_network
    return _confined(
        argv, repository, root, opened, binds, key=order.audit_key, homes=order.launch.homes, network=network
    )


def gate(
    argv: Sequence[str],
    folder: Path,
    root: Path,
    writable: Sequence[str],
    network: str = "open",
    *,
    audit_key: str = "",
) -> tuple[str, ...]:
    """The command line of a confined gate in `folder`, a worktree. `root`: the data root."""
    return _confined(argv, git.discover(folder), root, writable, [], key=audit_key, network=network)


def _confined(
    argv: Sequence[str],
    repository: git.Repository,
    root: Path,
    writable: Sequence[str],
    more: list[tuple[str, Path, Path]],
    key: str,
    homes: Sequence[Home] = (),
    network: str = "open",
) -> tuple[str, ...]:
    """Later ones lie on top of earlier ones: what must stay shut comes after what the settings open, and after /tmp."""
    opened = [Path(os.path.expanduser(name)) for name in writable]
    if gone := [path for path in opened if not path.is_absolute() or not path.exists()]:
        raise NotWritable(path=gone[0])
    worktree = repository.worktree
    common = repository.common_dir
    shut = (common, *repository.stores)
    roots = bwrap.data_roots(root.resolve())
    # A setting that opens a CLI's whole folder does not open its settings; one that names a path in it does.
    inner = [path for path in opened if any(Path(each.folder) in path.parents for each in homes)]
    shown = bwrap.shown_below_covered(common.parent if common.name == ".git" else common)
    flat = bwrap.flat([("--ro-bind", path, path) for path in shown])
    flat += [part for each in _CACHES for part in _cache(each)]
    flat += bwrap.flat([("--bind", path, path) for path in opened if path not in inner])
    flat += [part for each in homes for part in _home(each, os.path.realpath(worktree))]
    flat += [*bwrap.flat([("--bind", path, path) for path in inner]), *bwrap.without_audit_key(key)]
    flat += [part for path in roots for part in ("--tmpfs", str(path))]
    binds = [("--ro-bind", path, path) for path in shut]
    binds += [("--bind", worktree, worktree), ("--ro-bind", worktree / ".git", worktree / ".git"), *more]
    flat += [*bwrap.flat(binds), *(part for path in roots for part in ("--remount-ro", str(path)))]
    flat += ["--unshare-net"] if network == "none" else []
    return (bwrap.PROGRAM, *bwrap.shut(), *bwrap.without_sessions(), *flat, "--chdir", str(worktree), "--", *argv)


def _home(home: Home, worktree: str) -> list[str]:
    """A CLI's own folder: what it needs to write, and no more, so that nothing planted there is run by the next one."""
    folder = Path(home.folder).resolve()
    marked = _marked(folder, home.marker, worktree) if home.marker else None
    writable = [marked] if marked else _writable(home, worktree)
    found = [path for path in sorted(folder.iterdir()) if path.exists() and path not in writable]
    shown = [("--ro-bind", path, path) for path in found if not any(map(path.match, home.forgotten))]
    shown += [("--bind", path, folder / home.seen_as if home.seen_as else path) for path in writable]
    if home.marker:
        (marker,) = (path / home.marker for path in writable)
        if not marked:
            disk.replace(marker, worktree.encode(), 0o600)
        # With another worktree in it, the folder would be taken for that one's.
        shown.append(("--ro-bind", marker, marker))
    return ["--tmpfs", str(folder), *bwrap.flat(shown)]


def _writable(home: Home, worktree: str) -> list[Path]:
    """The folders in it that the CLI writes, which are there from now on."""
    folder = Path(home.folder).resolve()
    writable = [folder / name.replace("{worktree}", folder_name(worktree)) for name in home.writable]
    for path in (folder, *writable):
        disk.mkdir(path, 0o700)
    return writable


def _cache(home: Home) -> list[str]:
    folder = os.path.expanduser(home.folder)
    return _home(msgspec.structs.replace(home, folder=folder), "") if os.path.isdir(folder) else []


def _marked(folder: Path, marker: str, worktree: str) -> Path | None:
    for path in sorted(folder.glob(f"*/{marker}")):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if plain.read(path, PATH_BYTES_MAX, folder).decode().strip() == worktree:
                return path.parent
    return None


def _own(order: Order) -> Path:
    return Path(order.private) / OWN / order.attempt


def _make_own(repository: git.Repository, own: Path, modules: Sequence[Module]) -> None:
    """Once for each attempt: a later start finds what the earlier one committed. HEAD comes last: then it is whole."""
    for folder in (own / "objects", own / "objects" / "info", own / "store"):
        _make_real(folder)
    stores = [own / "store", *repository.stores[1:]]
    disk.replace(own / "objects" / "info" / "alternates", "".join(f"{store}\n" for store in stores).encode())
    if os.path.lexists(own / "git" / "HEAD"):
        return
    _make_anew(own / "git")
    _copy_git_dir(repository.git_dir, own / "git", [repository.git_dir / MODULES / module.name for module in modules])


def _copy_git_dir(source: Path, target: Path, apart: Sequence[Path]) -> None:
    inside = (path for path in files_below(source) if not any(map(path.is_relative_to, apart)))
    found = [path for path in inside if path.is_file() and path.suffix != ".lock"]
    for path in sorted(found, key=lambda path: path == source / "HEAD"):
        copy = target / path.relative_to(source)
        disk.mkdir(copy.parent)
        disk.replace(copy, path.read_bytes())


def _make_real(folder: Path) -> None:
    """An earlier start's agent may have put a link in its place, which would lead us out. Nobody of it lives now."""
    if folder.is_symlink():
        disk.unlink(folder)
    disk.mkdir(folder)


def _make_anew(folder: Path) -> None:
    """Empty, whatever a crash or an earlier start's agent left in it."""
    if folder.is_dir() and not folder.is_symlink():
        disk.remove_tree(folder)
    _make_real(folder)


def _copy_modules(git_dir: Path, own: Path, modules: Sequence[Module]) -> None:
    """The git dirs of submodules that are set up: each once, unless a start has made it anew. HEAD comes last."""
    for module in modules:
        source, target = git_dir / MODULES / module.name, own / MODULES / module.name
        if not is_real(target, own) or os.path.lexists(target / "HEAD"):
            continue
        _make_anew(target)
        disk.mkdir(target / "refs")
        _copy_git_dir(source, target, [source / MODULES])
