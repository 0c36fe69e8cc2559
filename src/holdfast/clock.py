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
