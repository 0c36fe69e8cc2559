"""Printing a stream for people: columns, colours, local times; and nothing that a terminal would obey.

What the journal holds was written by others: titles, reasons, what an agent said. A control character in it could move
the cursor, repaint the screen or answer in the user's name, so none reaches the terminal; it is shown as `\\x1b`.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import click

from holdfast.clock import monotonic, wall
from holdfast.domain.wording import plain, plain_json, plain_lines

FLUSH_AFTER_S = 0.1
_UNIT_S = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
_RELATIVE = re.compile(r"(?:[0-9]+[wdhms])+")
_UNIX_S = re.compile(r"[0-9]+(?:\.[0-9]+)?")


def local_time(unix_s: float) -> str:
    try:
        return datetime.fromtimestamp(unix_s).isoformat(" ", "milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{unix_s}"


def clock_now() -> str:
    return time.strftime("%H:%M:%S")


def moment(ctx: click.Context, param: click.Parameter | None, given: str | None) -> float | None:
    """An option's callback: the time that was given, as Unix seconds."""
    try:
        return None if given is None else parse_moment(given.strip(), wall())
    except (ValueError, OverflowError):
        rule = "an ISO time such as 2026-01-31T12:00 (local unless it names a zone), Unix seconds, or how long ago"
        raise click.BadParameter(f"{given!r} is no time. Give {rule}, such as 2h or 1d12h.", ctx, param) from None


def parse_moment(text: str, now: float) -> float:
    """Unix seconds of an ISO time, of Unix seconds, or of how long ago; raises ValueError for anything else."""
    if _UNIX_S.fullmatch(text):
        return float(text)
    if _RELATIVE.fullmatch(text):
        parts = re.findall(r"([0-9]+)([wdhms])", text)
        return now - timedelta(seconds=sum(int(count) * _UNIT_S[unit] for count, unit in parts)).total_seconds()
    return datetime.fromisoformat(text).timestamp()


class Printer:
    """Standard output as a stream: what there is to see is seen soon, and a long listing is still written in blocks."""

    def __init__(self) -> None:
        self._widths: list[int] = []
        self._flushed_at = -FLUSH_AFTER_S
        self.is_terminal = sys.stdout.isatty()
        self._colours = self.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="backslashreplace")

    def reserve(self, *rows: Sequence[str]) -> None:
        """Makes the columns wide enough for these rows from the beginning."""
        self._widths = [max(len(plain(cell)) for cell in column) for column in zip(*rows, strict=True)]

    def columns(self, cells: Sequence[str], colours: Sequence[str | None] = ()) -> None:
        """One line of aligned cells. The columns grow with what comes: a stream does not know its widest cell."""
        shown = [plain(cell) for cell in cells]
        self._widths = self._widths or [0] * len(shown)
        self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, shown, strict=True)]
        padded = [cell.ljust(width) for cell, width in zip(shown[:-1], self._widths, strict=False)] + shown[-1:]
        if self._colours:
            filled = [*colours, *[None] * len(padded)]
            padded = [click.style(cell, fg=fg) if fg else cell for cell, fg in zip(padded, filled, strict=False)]
        self._write("  ".join(padded).rstrip() + "\n")

    def text(self, text: str, indent: str) -> None:
        """A text of several lines, indented; its tabs and line ends are kept, and nothing else that controls."""
        for line in plain_lines(text).split("\n"):
            self._write(f"{indent}{line}\n")

    def line(self, json_line: bytes) -> None:
        self._write(plain_json(json_line.decode()) + "\n")

    def entry(self, json_line: bytes) -> None:
        """A line of the journal, of which its hash is made: the bytes as they are, but for a terminal."""
        self._write((plain_json(json_line.decode()) if self.is_terminal else json_line.decode()) + "\n")

    def flush(self) -> None:
        sys.stdout.flush()

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        now = monotonic()
        if now - self._flushed_at >= FLUSH_AFTER_S:
            sys.stdout.flush()
            self._flushed_at = now


def wait_for_reader(wait_s: float) -> bool:
    """Flushes standard output and waits; False at once when nobody reads it any more."""
    sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):
        reader = select.poll()
        reader.register(sys.stdout.fileno(), 0)
        return not reader.poll(int(wait_s * 1000))
    return False


@contextlib.contextmanager
def printing() -> Iterator[Printer]:
    """A printer whose lines are all out before an error is printed."""
    printer = Printer()
    try:
        yield printer
    finally:
        printer.flush()
