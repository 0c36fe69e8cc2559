"""Compares trees on their way to the target: what a candidate changes, and whether two landings change the same.

Names of files are as the filesystem has them; `git.readable` makes text of one. Nothing is checked out, and no program
of the repository runs: neither filters nor diff drivers.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence

import msgspec

from holdfast.domain.reviews.hunks import change_lines
from holdfast.git import command as git
from holdfast.snapshots.store import Store
from holdfast.worktrees import merges

FIXED = ("--no-color", "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/")
# A larger diff counts as another one than any before: a person looks at it again.
COMPARED_BYTES_MAX = 32 << 20
_US = merges.GitAuthor("holdfast", "holdfast@localhost")
_STATUS = {"A": "added", "D": "removed", "R": "renamed", "C": "added", "T": "type"}


class ChangedFile(msgspec.Struct, frozen=True, kw_only=True):
    """`added` and `removed` count lines; None for a file that is not text. A blob is empty where there is no file."""

    path: str
    old_path: str
    status: str
    old_blob: str
    new_blob: str
    old_mode: str
    new_mode: str
    added: int | None
    removed: int | None

    @property
    def name(self) -> str:
        return git.readable(self.path)

    @property
    def is_binary(self) -> bool:
        return self.added is None


def changed_files(store: Store, old: str, new: str) -> list[ChangedFile]:
    """The files in which two commits or trees differ; a rename is one file."""
    asked = ("diff", *FIXED, "-M", "--raw", "--numstat", "--no-abbrev", "-z", old, new)
    rest = iter(os.fsdecode(store.seen.run(*asked).out).split("\0")[:-1])
    raw: list[tuple[list[str], str, str]] = []
    counts: dict[str, tuple[int | None, int | None]] = {}
    for field in rest:
        if field.startswith(":"):
            facts = field[1:].split(" ")
            first = next(rest)
            raw.append((facts, first, next(rest)) if facts[4][0] in "RC" else (facts, "", first))
            continue
        added, removed, path = field.split("\t", 2)
        if not path:
            next(rest)
            path = next(rest)
        counts[path] = (None, None) if added == "-" else (int(added), int(removed))
    return [_file(facts, before, path, counts.get(path, (0, 0))) for facts, before, path in raw]


def _file(facts: Sequence[str], before: str, path: str, count: tuple[int | None, int | None]) -> ChangedFile:
    old_mode, new_mode, old, new, kind = facts
    blobs = [each if each.strip("0") else "" for each in (old, new)]
    status = _STATUS.get(kind[0], "changed")
    if status == "changed" and old_mode != new_mode and blobs[0] == blobs[1]:
        status = "mode"
    places = {"old_blob": blobs[0], "new_blob": blobs[1], "old_mode": old_mode, "new_mode": new_mode}
    return ChangedFile(path=path, old_path=before, status=status, **places, added=count[0], removed=count[1])


def file_patch(store: Store, old: str, new: str, file: ChangedFile, *, most: int, context: int = 3) -> bytes:
    """The diff of one file, no more than so many bytes of it."""
    names = [f":(top,literal){name}" for name in (file.old_path, file.path) if name]
    asked = ("diff", *FIXED, "-M", "--full-index", f"-U{context}", old, new, "--", *names)
    return store.seen.first_bytes(most, *asked)


def blob_text(store: Store, blob: str, most: int) -> str:
    """The content of a file by its blob, no more than so many bytes of it; empty where there is none."""
    found = store.seen.first_bytes(most, "cat-file", "blob", blob) if blob else b""
    return found.decode(errors="backslashreplace")


@functools.lru_cache(maxsize=64)
def _onto(path: str, repo: str, target: str, candidate: str) -> tuple[str, tuple[str, ...]]:
    from pathlib import Path

    merged = merges.merge(Store.of(Path(path), Path(repo)), target, candidate, "as it was reviewed", _US)
    return merged.commit or merged.marked, tuple(merged.conflicts)


def merged_onto(store: Store, target: str, candidate: str) -> tuple[str, tuple[str, ...]]:
    """The candidate on another target, and the files in which they conflict: those have conflict markers."""
    return _onto(str(store.path), str(store.repository.worktree), target, candidate)


# -- whether two landings change the same -----------------------------------------------------------------------------


def differing(
    store: Store, before: tuple[str, str], now: tuple[str, str]
) -> dict[str, tuple[Sequence[str], Sequence[str]]]:
    """The files in which the change from one target to its merge is another than that of a second pair, by name, with
    what each of the two changes.

    Lines around a change and their numbers do not count: they are the target's.
    """
    first, second = (dict(_changes(store, *pair)) for pair in (before, now))
    both = {name: (first.get(name, ()), second.get(name, ())) for name in sorted(first.keys() | second.keys())}
    return {name: (then, here) for name, (then, here) in both.items() if then != here}


def _changes(store: Store, old: str, new: str) -> Iterator[tuple[str, list[str]]]:
    """Each file's name with the lines of its diff that are the change itself."""
    asked = ("diff", *FIXED, "--no-renames", "--full-index", "-U0", old, new)
    text = store.seen.first_bytes(COMPARED_BYTES_MAX + 1, *asked)
    if len(text) > COMPARED_BYTES_MAX:
        # Its name differs with every pair of commits.
        yield f"(more than {COMPARED_BYTES_MAX >> 20} MB)", [old, new]
        return
    lines: list[str] = []
    for line in change_lines(text.decode(errors="backslashreplace")):
        if line.startswith("diff --git "):
            if lines:
                yield _name(lines[0]), lines
            lines = []
        lines.append(line)
    if lines:
        yield _name(lines[0]), lines


def _name(header: str) -> str:
    """Of `diff --git a/x b/x`, where both names are the same."""
    both = header.removeprefix("diff --git ")
    return both[: len(both) // 2].removeprefix('"').removeprefix("a/").removesuffix('"')
