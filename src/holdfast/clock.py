"""The time, asked for in one place.

`wall` is what people call the time: for dates, for records, and for moments that somebody named. It may be set, and it
goes on while the machine sleeps. `monotonic` is for ages and deadlines: nobody sets it, and it stands still while the
machine sleeps. It means nothing to another boot.

`HOLDFAST_CLOCK=<file>` moves both for a test: two numbers in the file, by how many seconds. The file may be written at
any time, and every process that has the variable follows it; where it is missing, nothing is moved. Without the
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


# Who has not looked for so much longer than it meant to was stopped itself; less is a busy machine.
GAP_S, GAP_S_MIN = 5.0, 1.0


def gap_of(seconds: float) -> float:
    """How long a gap has to be to count, for who measures so many seconds."""
    return max(GAP_S_MIN, min(GAP_S, seconds / 2))


class Awake:
    """Seconds as they pass for who keeps looking: those in which it was stopped itself are left out.

    A stop signal, a frozen group or a paused machine mostly meets everybody at once; nobody can have given a sign
    meanwhile. `gap_s`: the longest time between two looks that is none. `gaps` counts them.
    """

    def __init__(self, gap_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._gap_s, self._clock = gap_s, clock
        self._looked, self._left_out = clock(), 0.0
        self.gaps = 0

    def now(self) -> float:
        now = self._clock()
        if now - self._looked > self._gap_s:
            self._left_out += now - self._looked
            self.gaps += 1
        self._looked = now
        return now - self._left_out


class Deadline:
    """The end of somebody's time, for who looks at least every `look_s`; after a gap of its own it begins anew."""

    def __init__(self, seconds: float, look_s: float = 0.0) -> None:
        self._seconds, self._gaps = seconds, 0
        self._awake = Awake(look_s + gap_of(seconds))
        self._end = self._awake.now() + seconds

    def left_s(self) -> float:
        now = self._awake.now()
        if self._awake.gaps > self._gaps:
            self._gaps, self._end = self._awake.gaps, now + self._seconds
        return max(self._end - now, 0.0)

    def is_over(self) -> bool:
        return not self.left_s()
