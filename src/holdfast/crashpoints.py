"""Named places where a test may kill this process. Without `HOLDFAST_CRASH_AT` a point does nothing.

`HOLDFAST_CRASH_AT=<name>:<n>` kills the process with SIGKILL when it reaches the point for the n-th time; there may be
several, separated by commas. `append.*` matches every point whose name begins so.
`HOLDFAST_CRASH_ONCE=<folder>`: each of them kills one process in all, and leaves a file of its name in the folder.
`HOLDFAST_CRASH_LOG=<file>` gets the name of every point that is reached, one per line.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

_AT = os.environ.get("HOLDFAST_CRASH_AT", "")
_ONCE = os.environ.get("HOLDFAST_CRASH_ONCE", "")
_LOG = os.environ.get("HOLDFAST_CRASH_LOG", "")
_wanted = frozenset(_AT.split(",")) if _AT else frozenset()
_reached: Counter[str] = Counter()


def point(name: str) -> None:
    if _AT or _LOG:
        _reach(name)


def _reach(name: str) -> None:
    if _LOG:
        _note(name)
    for each in (name, f"{name.partition('.')[0]}.*"):
        _reached[each] += 1
        wanted = f"{each}:{_reached[each]}"
        if wanted in _wanted and (not _ONCE or _is_first(wanted)):
            if _LOG:
                _note(f"killed {name}")
            os.kill(os.getpid(), signal.SIGKILL)


def _is_first(wanted: str) -> bool:
    try:
        os.close(os.open(os.path.join(_ONCE, wanted), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    except FileExistsError:
        return False
    return True


def _note(line: str) -> None:
    log = os.open(_LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(log, f"{line}\n".encode())
    os.close(log)
