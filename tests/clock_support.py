"""A clock for `holdfast` and its runners that a test can set while they run."""

from __future__ import annotations

import os
from pathlib import Path


class SetClock:
    """`env` goes to every process that is to follow it: `begin(repo, **clock.env)`, `holdfast(repo, …, env=clock.env)`.

    `later` is the time after a machine was switched off and on again; `set_wall` is somebody who sets its clock."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._wall = self._monotonic = 0.0
        self.env = {"HOLDFAST_CLOCK": str(self._file)}
        self._write()

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
