"""Measures how long runners have given no sign of life, and tasks have waited for subtasks, by the observer's clock.

What a runner shows is that its last sign is another one than before; since when it has been the same, is counted here.
So nobody is silent before a whole interval has passed under our eyes: not who was continued a day after its last sign,
not who works under another clock, and not who was stopped when we were stopped ourselves.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.clock import GAP_S, Awake, gap_of

# While somebody works, the loop looks as often as this: the death of a runner that an earlier orchestrator began, for
# one, comes without a sign.
LOOK_S = 1.0


class Silence:
    def __init__(self, timeout_s: float) -> None:
        self._awake = Awake(LOOK_S + gap_of(timeout_s))
        self._now = self._awake.now()
        self._since: dict[str, tuple[tuple[int, int | None], float]] = {}

    def look(self, attempt: str, start: int, sign: int | None) -> float:
        """Takes the last sign of life of a start, None while it has shown none; the seconds since it was new."""
        gaps = self._awake.gaps
        self._now = self._awake.now()
        if self._awake.gaps > gaps:
            self._since.clear()
        known = self._since.get(attempt)
        if known is None or known[0] != (start, sign):
            self._since[attempt] = (start, sign), self._now
            return 0.0
        return self._now - known[1]

    def forget(self, attempt: str) -> None:
        self._since.pop(attempt, None)

    def seconds(self, attempt: str) -> float:
        """As of the last look."""
        known = self._since.get(attempt)
        return self._now - known[1] if known is not None else 0.0


class Waits:
    """How long tasks have waited. Counted while a run lives, and begun anew by each run and after each gap in it."""

    def __init__(self, look_s: float) -> None:
        self._awake = Awake(look_s + GAP_S)
        self._since: dict[str, float] = {}

    def overdue(self, limits: Mapping[str, float]) -> set[str]:
        """Takes all who wait, and how long each may; those who have waited so long."""
        gaps, now = self._awake.gaps, self._awake.now()
        if self._awake.gaps > gaps:
            self._since.clear()
        self._since = {name: self._since.get(name, now) for name in limits}
        return {name for name, seconds in limits.items() if now - self._since[name] >= seconds}
