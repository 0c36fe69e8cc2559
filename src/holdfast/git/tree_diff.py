"""The paths in which two trees differ, and entries of trees and indexes as git reads and prints them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

import msgspec

from holdfast.git import command as git

GITLINK = "160000"


class Slot(msgspec.Struct, frozen=True):
    """The entry of one path in a tree or the index."""

    mode: str
    object: str


class PathChange(msgspec.Struct, frozen=True):
    """One path that differs between two trees; None: that one does not have it."""

    path: str
    old: Slot | None
    new: Slot | None

    @property
    def was_gitlink(self) -> bool:
        return self.old is not None and self.old.mode == GITLINK

    @property
    def is_gitlink(self) -> bool:
        return self.new is not None and self.new.mode == GITLINK


def changes(run: Callable[..., git.GitResult], old: str, new: str, *options: str) -> list[PathChange]:
    """The differences between two commits or trees; a rename is a removal and an addition."""
    fields = run("diff-tree", "-r", "-z", "--no-renames", *options, old, new).fields()
    found = []
    for facts, path in zip(fields[::2], fields[1::2], strict=True):
        old_mode, new_mode, old_id, new_id, _ = facts.removeprefix(":").split(" ")
        found.append(PathChange(path, _slot(old_mode, old_id), _slot(new_mode, new_id)))
    return found


def _slot(mode: str, name: str) -> Slot | None:
    return None if mode == "000000" else Slot(mode, name)


def joined(lines: Iterable[str]) -> bytes:
    """Names or entries as git reads them with `-z`."""
    return b"".join(os.fsencode(line) + b"\0" for line in lines)


def index_lines(slots: Mapping[str, Slot]) -> bytes:
    """Entries as `update-index -z --index-info` reads them."""
    return joined(f"{slot.mode} {slot.object}\t{path}" for path, slot in slots.items())
