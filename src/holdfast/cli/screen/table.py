"""Tables for people: on a terminal they fit its width; in a pipe they have one line per row, whatever the width."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

import click

PIPED_CELL_WIDTH_MAX = 60
CELL_WIDTH_MAX = 30
# The last column gets at least so much; else columns are left out, and then it goes on a line of its own.
LAST_WIDTH_MIN = 24
NOTE_LINES_MAX = 2
_GAP = "  "
_INDENT = "    "

Row = Sequence[str]


def print_table(columns: Row, rows: Sequence[Row], *, notes: Sequence[str] = (), drop: Sequence[str] = ()) -> None:
    """Prints rows under their columns.

    On a terminal the last column takes what is left of the width. Too little: the columns named in `drop` are left
    out, the first one first. A row's note stands under it, on at most two lines. In a pipe it is one more column.
    """
    lines: Iterable[str]
    if sys.stdout.isatty():
        lines = _fitted(columns, rows, notes, list(drop), terminal_width())
    else:
        lines = _piped([*columns, *(["WHY"] if any(notes) else [])], rows, notes)
    click.echo("\n".join(lines))


def terminal_width() -> int:
    return max(20, shutil.get_terminal_size().columns)


def cell_width(text: str) -> int:
    """The number of columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def cut(text: str, width: int) -> str:
    """The text in at most `width` columns, with an ellipsis where something is missing."""
    if cell_width(text) <= width:
        return text
    while text and cell_width(text) > width - 1:
        text = text[:-1]
    return text.rstrip() + "…"


def pad(text: str, width: int) -> str:
    return text + " " * (width - cell_width(text))


def column_widths(rows: Sequence[Row]) -> list[int]:
    """As wide as the widest cell, but no wider than a full screen bears."""
    return [min(max(map(cell_width, column)), CELL_WIDTH_MAX) for column in zip(*rows, strict=True)]


def aligned(cells: Row, widths: Sequence[int]) -> str:
    """A row of a full screen's table: the last cell whole, and a column of width 0 not at all."""
    shown = [pad(cut(cell, width), width) for cell, width in zip(cells[:-1], widths[:-1], strict=True) if width]
    return _GAP.join([*shown, cells[-1]])


def wrapped(text: str, width: int, lines_max: int) -> list[str]:
    """The text on at most so many lines; the last one is cut where more would follow."""
    lines = textwrap.wrap(text, max(1, width), break_long_words=True, break_on_hyphens=False) or [""]
    rest = " ".join(lines[lines_max - 1 :])
    return [*lines[: lines_max - 1], cut(rest, width)] if len(lines) > lines_max else lines


def echo_wrapped(first: str, text: str) -> None:
    """Prints a text behind `first`; on a terminal it is wrapped between words, and goes on under where it began."""
    if not sys.stdout.isatty():
        click.echo(f"{first}{text}".rstrip())
        return
    width = max(20, terminal_width() - cell_width(first))
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
    for number, line in enumerate(lines):
        click.echo((first if not number else " " * cell_width(first)) + line)


def _fitted(columns: Row, rows: Sequence[Row], notes: Sequence[str], drop: list[str], width: int) -> Iterator[str]:
    shown = list(range(len(columns)))
    while drop and width - _width_before_last(columns, rows, shown) < LAST_WIDTH_MIN:
        name = drop.pop(0)
        shown = [at for at in shown if columns[at] != name]
    room = width - _width_before_last(columns, rows, shown)
    last = shown.pop()
    is_under = room < min(LAST_WIDTH_MIN, max(cell_width(row[last]) for row in [columns, *rows])) // 2
    widths = [max(cell_width(row[at]) for row in [columns, *rows]) for at in shown]
    for number, row in enumerate([columns, *rows]):
        cells = [pad(row[at], size) for at, size in zip(shown, widths, strict=True)]
        under = [notes[number - 1]] if number and notes and notes[number - 1] else []
        if is_under:
            line, under = _GAP.join(cells), [*([row[last]] if number else []), *under]
        else:
            line = _GAP.join([*cells, cut(row[last], room)])
        yield _bold(cut(line.rstrip(), width)) if not number else line.rstrip()
        for text in under:
            yield from (_INDENT + each for each in wrapped(text, width - len(_INDENT), NOTE_LINES_MAX))


def _width_before_last(columns: Row, rows: Sequence[Row], shown: list[int]) -> int:
    """The width of all columns but the last."""
    return sum(max(cell_width(row[at]) for row in [columns, *rows]) + len(_GAP) for at in shown[:-1])


def _piped(columns: Row, rows: Sequence[Row], notes: Sequence[str]) -> list[str]:
    """Whole ids, and nothing is wrapped. The last column is as long as it is."""
    if len(columns) > len(rows[0] if rows else columns):
        rows = [[*row, note] for row, note in zip(rows, notes, strict=True)]
    short = [[*map(_cut_piped, row[:-1]), *row[-1:]] for row in [columns, *rows]]
    widths = [max(map(cell_width, column)) for column in zip(*short, strict=True)]
    return [_GAP.join(map(pad, row, widths)).rstrip() for row in short]


def _cut_piped(cell: str) -> str:
    # An id has up to 128 characters, and is there to be copied.
    return cell if " " not in cell else cut(cell, PIPED_CELL_WIDTH_MAX)


def _bold(text: str) -> str:
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if is_plain else click.style(text, bold=True)
