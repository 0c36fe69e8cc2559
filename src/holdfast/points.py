"""Named places where a test may kill this process. Without `HOLDFAST_CRASH_AT` a point does nothing.

`HOLDFAST_CRASH_AT=<name>:<n>` kills the process with SIGKILL when it comes to the point for the n-th time.
`HOLDFAST_CRASH_LOG=<file>` gets the name of every point that is reached, one on a line.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

_AT = os.environ.get("HOLDFAST_CRASH_AT", "")
_LOG = os.environ.get("HOLDFAST_CRASH_LOG", "")
_reached: Counter[str] = Counter()


def point(name: str) -> None:
    if _AT or _LOG:
        _reach(name)


def _reach(name: str) -> None:
    _reached[name] += 1
    if _LOG:
        _note(name)
    wanted, _, count = _AT.rpartition(":")
    if name == wanted and _reached[name] == int(count):
        if _LOG:
            _note(f"killed {name}")
        os.kill(os.getpid(), signal.SIGKILL)


def _note(line: str) -> None:
    log = os.open(_LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(log, f"{line}\n".encode())
    os.close(log)
