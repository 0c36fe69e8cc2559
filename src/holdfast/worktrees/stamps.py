"""The stamp of a worktree that was set up: what it was set up with, and what that has made."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from holdfast.storage.files.json_file import read_json


class SetupStamp(msgspec.Struct, frozen=True):
    """`made`: the ignored files and folders that stood there then; a worktree for gates keeps them. `unignored`: what
    the setup made in an attempt's worktree and git does not ignore, as far as it is named."""

    digest: str
    made: tuple[str, ...] = ()
    unignored: tuple[str, ...] = ()


def stamp_path(private: Path) -> Path:
    """`private`: the worktree's folder for files of ours, in which no agent writes."""
    return private / "setup.json"


def read_stamp(private: Path) -> SetupStamp | None:
    return read_json(stamp_path(private), SetupStamp)


# Compiled from the source of another candidate, and taken for this one's where size and time are the same.
_COMPILED = "__pycache__"


def kept_warm(private: Path) -> dict[str, str]:
    """What a worktree for gates keeps from one candidate to the next: as `git status` names it, with its rule as of
    .gitignore."""
    found = read_stamp(private)
    names = [name for name in found.made if _COMPILED not in name.split("/")] if found is not None else []
    return {f"!! {name}": "/" + re.sub(r"([\\*?\[ ])", r"\\\1", name) for name in names}
