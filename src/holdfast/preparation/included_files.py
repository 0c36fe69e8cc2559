"""Copies the files that `.worktreeinclude` names from the main checkout into a worktree: `.env` and the like.

Its patterns have the syntax of .gitignore. It is read from a commit of the target branch, never from what an agent
wrote. Copied are files that it matches and that git ignores in the checkout; no link is followed, on neither side. What
was copied is noted before it exists in the worktree, so that no snapshot and no candidate ever has it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from holdfast.domain.wording import plural, size
from holdfast.errors import IncludeTooLarge
from holdfast.git import command as git
from holdfast.storage.files import disk, plain
from holdfast.worktrees.left_out import LeftOut, left_out, note_left_out

NAME = ".worktreeinclude"
PATTERN_BYTES_MAX = 1 << 16
FILES_MAX = 10_000
BYTES_MAX = 256 << 20
# Each name is an argument of git's, which leaves it out of a snapshot; all of them must fit into one command line.
NAMES_BYTES_MAX = 1 << 20
_ARGUMENT_BYTES = 32
# Git's command line has so many paths at most.
_PATHS_AT_ONCE = 1000


class IncludeFrom(msgspec.Struct, frozen=True):
    """`target`: the commit that has the patterns. `tree`: the commit that the worktree holds: what it has is not
    copied. `apart`: paths of the checkout that are never copied, such as the data root."""

    repository: git.Repository
    target: str
    tree: str
    apart: tuple[str, ...]


def copy(source: IncludeFrom, worktree: Path, private: Path, *, anew: bool = False) -> list[str]:
    """Brings the worktree's copies up to date; returns the names of all. The caller guarantees that no process works
    in it. A file that changed in the worktree stays until it changes in the checkout, unless it is copied `anew`."""
    known = left_out(private)
    top = source.repository.worktree
    found: dict[str, tuple[int, ...]] = {}
    total = named = 0
    for name in _wanted(source):
        facts = _stamp(top, name)
        if facts is None or not _has_place(worktree, name):
            continue
        found[name] = facts
        total += facts[0]
        named += len(os.fsencode(name)) + _ARGUMENT_BYTES
        if len(found) > FILES_MAX or total > BYTES_MAX or named > NAMES_BYTES_MAX:
            raise IncludeTooLarge(
                path=top / NAME,
                files=plural(len(found), "file"),
                size=size(total),
                files_most=plural(FILES_MAX, "file"),
                size_most=size(BYTES_MAX),
            )
    is_there = {name: os.path.lexists(worktree / name) and not anew for name in found}
    due = [name for name, facts in found.items() if known.get(name) != facts or not is_there[name]]
    if not due:
        return sorted(found)
    # Before it is there: a kill in between must not leave a file that a snapshot would take.
    note_left_out(private, LeftOut({**known, **{name: known.get(name, ()) for name in due}}))
    for name in due:
        _copy(top, worktree, name, private)
    note_left_out(private, LeftOut({**known, **found}))
    return sorted(found)


def _wanted(source: IncludeFrom) -> Iterator[str]:
    patterns = _patterns(source)
    if not patterns.strip():
        return
    repository = source.repository
    ignored = repository.run("ls-files", "-z", "-o", "-i", "--exclude-standard", "--directory").fields()
    inside = [name for name in ignored if not _is_apart(name, source.apart)]
    listing = disk.in_memory(patterns)
    try:
        found: list[str] = []
        for first in range(0, len(inside), _PATHS_AT_ONCE):
            paths = [f":(top,literal){name}" for name in inside[first : first + _PATHS_AT_ONCE]]
            asked = ("ls-files", "-z", "-o", "-i", f"--exclude-from=/proc/self/fd/{listing}", "--", *paths)
            found += repository.run(*asked, inherit=(listing,)).fields()
    finally:
        os.close(listing)
    # A name with a slash at its end is a repository inside.
    names = [name for name in dict.fromkeys(found) if not name.endswith("/") and not _is_apart(name, source.apart)]
    tracked = _tracked(source, names)
    yield from (name for name in names if name not in tracked)


def _patterns(source: IncludeFrom) -> bytes:
    row = source.repository.run("ls-tree", "-z", source.target, "--", NAME).fields()
    if not row or not row[0].startswith("100"):
        return b""
    blob = row[0].split("\t")[0].split()[2]
    return source.repository.first_bytes(PATTERN_BYTES_MAX, "cat-file", "blob", blob)


def _tracked(source: IncludeFrom, names: Collection[str]) -> set[str]:
    found: set[str] = set()
    listed = list(names)
    for first in range(0, len(listed), _PATHS_AT_ONCE):
        some = listed[first : first + _PATHS_AT_ONCE]
        found |= set(source.repository.run("ls-tree", "-r", "-z", "--name-only", source.tree, "--", *some).fields())
    return found


def _is_apart(name: str, apart: Collection[str]) -> bool:
    plain_name = name.rstrip("/")
    return ".git" in plain_name.split("/") or any(
        plain_name == each or plain_name.startswith(f"{each}/") for each in apart
    )


def _stamp(top: Path, name: str) -> tuple[int, ...] | None:
    """Changes when the file does; None where it is no plain file."""
    try:
        with plain.opened(top / name, top) as file:
            facts = os.fstat(file.fileno())
    except OSError:
        return None
    return facts.st_size, facts.st_mtime_ns, facts.st_ino


def _has_place(worktree: Path, name: str) -> bool:
    """Whether the file can stand there: no parent is a link or a file, and it is no folder itself."""
    place = worktree
    for part in Path(name).parts[:-1]:
        place = place / part
        if os.path.lexists(place) and not stat.S_ISDIR(place.lstat().st_mode):
            return False
    target = worktree / name
    return not os.path.lexists(target) or not stat.S_ISDIR(target.lstat().st_mode)


def _copy(top: Path, worktree: Path, name: str, private: Path) -> None:
    """Written outside of the worktree and moved in: a kill leaves nothing there that a snapshot could take."""
    target = worktree / name
    with plain.opened(top / name, top) as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o700
        disk.mkdir(target.parent, disk.COMMON_FOLDER)
        with disk.StagedFile(private, mode | 0o600) as staged:
            while data := file.read(1 << 20):
                staged.write(data)
            staged.publish(target)
