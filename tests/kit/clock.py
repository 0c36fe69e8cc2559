"""A clock for `holdfast` and its runners that a test can set while they run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from holdfast import identity
from kit.waiting import wait_for


class SetClock:
    """`env` goes to every process that is to follow it: `begin(repo, **clock.env)`, `holdfast(repo, …, env=clock.env)`.

    `later` is the time after a machine was switched off and on again; `set_wall` is somebody who sets its clock."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._wall = self._monotonic = 0.0
        self.env = {"HOLDFAST_CLOCK": str(self._file)}
        self._write()

    @property
    def passed_s(self) -> float:
        return self._monotonic

    def later(self, seconds: float) -> None:
        """So much later, by every clock."""
        self._monotonic += seconds
        self.set_wall(seconds)

    def set_wall(self, seconds: float) -> None:
        """The time of day is set by so much, forth or back; nothing else is."""
        self._wall += seconds
        self._write()

    def _write(self) -> None:
        # Whole or not at all: others read it all the time.
        new = self._file.with_suffix(".new")
        new.write_text(f"{self._wall} {self._monotonic}\n")
        os.replace(new, self._file)


def stop_below(pid: int) -> list[int]:
    """Stops a process, and then all that descends from it, which by then is all that ever will."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: identity.is_stopped(pid) or identity.start_ticks(pid) is None, f"process {pid} to stand still")
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(each for child in children for each in stop_below(int(child)))]


def suspend(running: subprocess.Popen[str], clock: SetClock, seconds: float) -> None:
    """The run and all below it stand still, so much time passes, and all go on."""
    pids = stop_below(running.pid)
    clock.later(seconds)
    go_on(pids)


def go_on(pids: list[int]) -> None:
    """Continues what `stop_below` has stopped."""
    for pid in reversed(pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
