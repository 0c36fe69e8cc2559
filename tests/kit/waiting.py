"""Waiting for something that happens, never for time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WAIT_S_MAX = 120.0
_LOOK_S, _LOOK_S_MAX = 0.01, 0.1


def wait_for(condition: Callable[[], Any], what: str = "") -> Any:
    """Looks until there is something, and returns it. What comes late is looked for less often: looking costs, too."""
    deadline, pause = time.monotonic() + WAIT_S_MAX, _LOOK_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never came: {what or condition}"
        time.sleep(pause)
        pause = min(pause * 1.2, _LOOK_S_MAX)
    return found


def shell_wait(path: Path) -> str:
    """The same for a shell: waits until the file is there."""
    return f"while [ ! -e '{path}' ]; do sleep 0.05; done"
