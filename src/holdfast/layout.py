"""Every path of the data root, and of each whether it is durable.

- `durable`: the truth, or part of it. Losing it loses something.
- `projection`: derived from what is durable. It can be deleted, and is built again.
- `ephemeral`: of use to the living processes only.

This module names and checks; it writes nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, overload

from holdfast.errors import InvalidName, PathEscapes

Durability = Literal["durable", "projection", "ephemeral"]


@dataclass(frozen=True)
class Entry:
    """One name below the root. Read on a `Layout` it is a path; read on the class it is this row."""

    relative: str
    durability: Durability

    @property
    def is_folder(self) -> bool:
        """Folders are written with a slash at the end, and exist from the start."""
        return self.relative.endswith("/")

    @overload
    def __get__(self, layout: None, owner: type) -> Entry: ...
    @overload
    def __get__(self, layout: Layout, owner: type) -> Path: ...
    def __get__(self, layout: Layout | None, owner: type) -> Entry | Path:
        return self if layout is None else layout.root / self.relative


@dataclass(frozen=True)
class Layout:
    root: Path

    format_file = Entry("format.json", "durable")
    config = Entry("config/", "durable")
    backlog = Entry("backlog/", "durable")
    attempts = Entry("attempts/", "durable")
    cas = Entry("cas/", "durable")
    audit = Entry("audit/", "durable")
    seals = Entry("audit/merkle/", "durable")
    metrics = Entry("metrics/", "durable")
    sessions = Entry("sessions.jsonl", "durable")
    events = Entry("events.jsonl", "durable")
    runtime = Entry("runtime/", "ephemeral")
    lock = Entry("runtime/lock", "ephemeral")
    tasks = Entry("runtime/tasks.jsonl", "projection")
    wal = Entry("runtime/wal/", "durable")
    wal_archive = Entry("runtime/wal/archive/", "durable")
    idempotency = Entry("runtime/wal/idempotency.jsonl", "projection")
    uncommitted = Entry("runtime/wal/uncommitted.idx.json", "projection")
    worktrees = Entry("worktrees/", "durable")
    quarantine = Entry("quarantine/", "durable")

    def attempt(self, attempt: str) -> Path:
        if "/" in attempt:
            raise InvalidName(what="The attempt id", name=attempt, rule="it must be one name, without a slash")
        return self.inside("attempts", attempt)

    def inside(self, *parts: str) -> Path:
        """Joins relative names below the root, and refuses every one that leads out of it, also through a symlink."""
        names = [name for part in parts for name in part.split("/")]
        if not all(_is_plain(name) for name in names) or not names:
            raise PathEscapes(name="/".join(parts), root=self.root)
        path = self.root.joinpath(*names)
        real, top = os.path.realpath(path), os.path.realpath(self.root)
        if os.path.commonpath([real, top]) != top:
            raise PathEscapes(name="/".join(parts), root=self.root)
        return path


ENTRIES: tuple[Entry, ...] = tuple(entry for entry in vars(Layout).values() if isinstance(entry, Entry))
FOLDERS: tuple[Entry, ...] = tuple(entry for entry in ENTRIES if entry.is_folder)
DURABILITY: dict[str, Durability] = {entry.relative: entry.durability for entry in ENTRIES}


def _is_plain(name: str) -> bool:
    """True for a name that a folder can hold: not empty, no dots that move, nothing that the kernel cannot take."""
    try:
        return name not in ("", ".", "..") and b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        return False
