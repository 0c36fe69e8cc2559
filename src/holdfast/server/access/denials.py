"""Denials, on record: one by one as long as there are few, and by their number where there are many.

A stranger who guesses tokens fills no disk, and hides nothing either: what is left out is counted, the count
is written when the minute is over, and owners of a token are counted apart from strangers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

SPAN_S = 60.0
STRANGERS_MAX = 100
KNOWN_MAX = 1000
STRANGER = "nobody"

Write = Callable[[str, dict[str, Any]], None]


class Denials:
    """In the server's thread; `write` puts an event on record."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._seen: dict[str, int] = {}
        self._ends: asyncio.TimerHandle | None = None
        self.total = 0

    def add(self, by: str, code: str, asked: str) -> None:
        self.total += 1
        if self._ends is None:
            self._ends = asyncio.get_running_loop().call_later(SPAN_S, self._end_span)
        # A name is one of ours: a role, or an attempt at work. So there are only so many.
        self._seen[by] = self._seen.get(by, 0) + 1
        if self._seen[by] <= _most(by):
            self._write("access_denied", {"code": code, "asked": asked[:200], "by": by})

    def _end_span(self) -> None:
        self._ends = None
        self.end(self._write)

    def end(self, write: Write) -> None:
        """Tells how many were left out, by `write`, which need not be our own; then counting begins anew."""
        seen, self._seen = self._seen, {}
        for by, count in seen.items():
            if count > _most(by):
                write("access_denied_more", {"by": by, "count": count - _most(by)})


def _most(by: str) -> int:
    return STRANGERS_MAX if by == STRANGER else KNOWN_MAX
