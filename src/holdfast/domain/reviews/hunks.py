"""Reads the hunks of a unified diff of one file, and follows lines from one version of a file to the next."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_HEADER = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


class DiffLine(NamedTuple):
    """One line of a hunk. `kind` is its first character; a number is 0 on the side that does not have the line."""

    kind: str
    text: str
    old: int
    new: int


class Hunk(NamedTuple):
    header: str
    lines: tuple[DiffLine, ...]


class LineSpan(NamedTuple):
    """Lines that were replaced: so many old ones from `old` on by so many new ones from `new` on.

    Of an addition, `old` is the line behind which it stands; of a removal, so is `new`.
    """

    old: int
    old_count: int
    new: int
    new_count: int


def hunks(patch: str) -> list[Hunk]:
    """The hunks of the diff of one file. A line is whatever ends with a line feed, as for git."""
    found: list[Hunk] = []
    begun: list[DiffLine] = []
    header, old, new = "", 0, 0
    for line in patch.removesuffix("\n").split("\n"):
        if head := _HEADER.match(line):
            if header:
                found.append(Hunk(header, tuple(begun)))
            header, begun, old, new = line, [], int(head[1]), int(head[3])
        elif header:
            kind = line[:1] or " "
            has_old, has_new = kind in " -", kind in " +"
            begun.append(DiffLine(kind, line[1:], old if has_old else 0, new if has_new else 0))
            old, new = old + has_old, new + has_new
    return [*found, Hunk(header, tuple(begun))] if header else found


def spans(patch: str) -> list[LineSpan]:
    """The replaced lines of a diff without context (`-U0`)."""
    heads = (head for line in patch.split("\n") if (head := _HEADER.match(line)))
    return [LineSpan(int(h[1]), int(h[2] or 1), int(h[3]), int(h[4] or 1)) for h in heads]


def is_touched(first: int, last: int, changed: Iterable[LineSpan]) -> bool:
    """Whether one of the old lines was replaced, or lines were added among them or right beside them."""
    for span in changed:
        begin, end = (span.old, span.old + span.old_count - 1) if span.old_count else (span.old, span.old)
        low = first if span.old_count else first - 1
        if begin <= last and end >= low:
            return True
    return False


def followed(line: int, changed: Sequence[LineSpan]) -> int:
    """The number of an old line in the new version; that of the replacement where it was replaced."""
    shift = 0
    for span in changed:
        end = span.old + max(span.old_count, 1) - 1
        if line <= span.old and not span.old_count:
            break
        if span.old_count and line < span.old:
            break
        if span.old_count and line <= end:
            return max(1, min(span.new + (line - span.old), span.new + max(span.new_count, 1) - 1))
        shift += span.new_count - span.old_count
    return line + shift


def change_lines(patch: str) -> Iterator[str]:
    """What a diff changes, without where: names, modes and the lines themselves, but neither context nor numbers."""
    index = ""
    for line in patch.split("\n"):
        if line.startswith("index "):
            index = line.rpartition("..")[2]
        elif line.startswith("Binary files "):
            # Its content stands nowhere else in the diff.
            yield f"{line} {index}"
        elif line and not line.startswith(("@@ ", " ", "similarity ", "dissimilarity ")):
            yield line
