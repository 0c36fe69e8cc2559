"""A patch for a terminal: in colours, and without anything that the terminal would obey."""

from __future__ import annotations

import os

import click

from holdfast.domain.wording import plain_lines

# The colour of a line by its beginning; the first that fits.
_COLOURS: tuple[tuple[tuple[str, ...], dict[str, object]], ...] = (
    (("diff --git", "index ", "--- ", "+++ ", "new file", "deleted file", "rename ", "similarity"), {"bold": True}),
    (("@@",), {"fg": "cyan"}),
    (("+<<<<<<<", "+=======", "+>>>>>>>"), {"fg": "magenta", "bold": True}),
    (("+",), {"fg": "green"}),
    (("-",), {"fg": "red"}),
)


def coloured(patch: str) -> str:
    """The lines, each in its colour, unless NO_COLOR is set or the terminal has none."""
    lines = plain_lines(patch).split("\n")
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return "\n".join(lines)
    return "\n".join(_styled(line) for line in lines)


def _styled(line: str) -> str:
    for beginnings, style in _COLOURS:
        if line.startswith(beginnings):
            return click.style(line, **style)  # type: ignore[arg-type]
    return line
