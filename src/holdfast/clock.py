"""The two clocks, read in one place.

`wall` is the time of day: for dates, records, and moments that a person named. It may be set, and it continues while
the machine sleeps. `monotonic` is for ages and deadlines: it is never set, and stands still while the machine sleeps.
It means nothing in another boot.

`HOLDFAST_CLOCK=<file>` moves both for a test: two numbers in the file, by how many seconds. The file may be written at
any time, and every process with the variable follows it; where it is missing, nothing is moved. Without the
variable these are the functions of the standard library.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

_FILE = os.environ.get("HOLDFAST_CLOCK", "")
_read: tuple[tuple[int, int] | None, float, float] = (None, 0.0, 0.0)


def _offsets() -> tuple[float, float]:
    global _read
    try:
        found = os.stat(_FILE)
    except FileNotFoundError:
        return 0.0, 0.0
    very_file = found.st_ino, found.st_mtime_ns
    if _read[0] != very_file:
        with open(_FILE) as file:
            of_wall, of_monotonic = map(float, file.read().split())
        _read = very_file, of_wall, of_monotonic
    return _read[1], _read[2]


def _moved_wall() -> float:
    return time.time() + _offsets()[0]


def _moved_monotonic() -> float:
    return time.monotonic() + _offsets()[1]


wall = _moved_wall if _FILE else time.time
monotonic = _moved_monotonic if _FILE else time.monotonic


# A process whose checks are this much later than planned was stopped itself; less is a busy machine.
GAP_S, GAP_S_MIN = 5.0, 1.0


def gap_of(seconds: float) -> float:
    """The length from which a gap counts, for a measured time of `seconds`."""
    return max(GAP_S_MIN, min(GAP_S, seconds / 2))


class Awake:
    """Seconds as they pass for a process that checks regularly, without the time in which it was stopped itself.

    A stop signal, a frozen group or a paused machine mostly meets all processes at once, so none can have given a sign
    of life meanwhile. `gap_s`: the longest time between two checks that is no gap. `gaps` counts the gaps.
    """

    def __init__(self, gap_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._gap_s, self._clock = gap_s, clock
        self._checked_at, self._left_out = clock(), 0.0
        self.gaps = 0

    def now(self) -> float:
        now = self._clock()
        if now - self._checked_at > self._gap_s:
            self._left_out += now - self._checked_at
            self.gaps += 1
        self._checked_at = now
        return now - self._left_out


class Deadline:
    """A deadline for a caller that checks at least every `check_s`; after a gap of its own it begins again."""

    def __init__(self, seconds: float, check_s: float = 0.0) -> None:
        self._seconds, self._gaps = seconds, 0
        self._awake = Awake(check_s + gap_of(seconds))
        self._end = self._awake.now() + seconds

    def left_s(self) -> float:
        now = self._awake.now()
        if self._awake.gaps > self._gaps:
            self._gaps, self._end = self._awake.gaps, now + self._seconds
        return max(self._end - now, 0.0)

    def is_over(self) -> bool:
        return not self.left_s()
