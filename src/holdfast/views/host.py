"""The machine beside the tasks: free memory, load, and why no more agents are started."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from holdfast.config.settings import Config
from holdfast.domain.task_record import Task
from holdfast.domain.wording import plural, size
from holdfast.processes import host


class HostRow(msgspec.Struct, frozen=True, kw_only=True):
    """`memory_free`: bytes that processes of the run could still take; null where nobody says. `short`: the reason why
    no agent is started now, as a sentence, or empty."""

    memory_free: int | None
    memory_free_min: int | None
    load: float
    cores: int
    short: str

    @property
    def words(self) -> str:
        memory = f"{size(self.memory_free)} of memory free, " if self.memory_free is not None else ""
        return f"{memory}load {self.load:.1f} on {plural(self.cores, 'core')}"


def host_row(
    config: Config, tasks: Iterable[Task], now: float, pid: int | str = "self", *, folder: Path | None = None
) -> HostRow:
    """`pid`: the run's process, whose control groups count. `folder`: the data root, whose disk counts."""
    room = host.measure(pid)
    short = host.disk_shortage(folder, config.disk_free_min) if folder is not None else ""
    return HostRow(
        memory_free=room.memory_free,
        memory_free_min=config.memory_free_min,
        load=room.load,
        cores=room.cores,
        short=short or host.shortage(room, config.memory_free_min, host.young(tasks, now)),
    )
