"""Parts of the shadow: path names, file stamps, and records of what a snapshot leaves out."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path, PurePosixPath

import msgspec

from holdfast.errors import PathEscapes
from holdfast.git import command as git

# Identifies a version of a file that git writes, always by renaming a new one over it; None where there is none.
Stamp = tuple[int, ...] | None
_UNOPENED = re.compile(r"^warning: could not open directory '(.*)': [^']*$", re.MULTILINE)


class Excluded(msgspec.Struct, frozen=True):
    """A path whose content a snapshot does not hold, and why."""

    path: str
    reason: str


def unopened(added: git.GitResult) -> list[Excluded]:
    """The folders that git could not open, for which it only warns."""
    reason = "it cannot be opened, so what is new in it is not seen"
    return [Excluded(found[1].rstrip("/"), reason) for found in _UNOPENED.finditer(added.stderr)]


def file_stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def is_below(name: str, tops: Collection[str]) -> bool:
    while name and name not in tops:
        name = name.rpartition("/")[0]
    return bool(name)


def relative(name: str, root: Path) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or {"..", ".git"} & set(path.parts) or "\0" in name:
        raise PathEscapes(name=name, root=root)
    return str(path)
