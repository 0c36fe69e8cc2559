"""Notes which files of a worktree Holdfast has copied into it: they are never part of a snapshot or a candidate."""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.storage.files import disk
from holdfast.storage.files.json_file import read_json

NAME = "included.json"


class LeftOut(msgspec.Struct, frozen=True):
    """included.json: each path, with what its source was like when it was copied; empty before it was."""

    files: dict[str, tuple[int, ...]] = {}


def left_out(private: Path) -> dict[str, tuple[int, ...]]:
    """`private`: the worktree's folder for files of ours, in which no agent writes."""
    found = read_json(private / NAME, LeftOut)
    return found.files if found is not None else {}


def note_left_out(private: Path, files: LeftOut) -> None:
    disk.mkdir(private)
    disk.replace(private / NAME, msgspec.json.encode(files))
