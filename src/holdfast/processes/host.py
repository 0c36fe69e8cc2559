"""The machine as a whole: the memory that is free for another agent, its load, and whether there is room for a start.

A run asks before each start, and starts nothing while memory is short. `status`, `watch` and the page ask the same, and
so can say why no more agents are started without a word of the run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from holdfast.domain.task import AT_WORK
from holdfast.domain.task_record import Task
from holdfast.domain.wording import plural, size
from holdfast.processes import controllers

# An agent that was started within so many seconds has not taken its memory yet.
SETTLE_S = 10.0


class HostRoom(msgspec.Struct, frozen=True, kw_only=True):
    """`memory_free`: what processes could still take, in the machine or in the control groups of the run, whichever is
    less (`is_group`); None where nobody says. `load`: processes that ran or waited, on average over a minute."""

    memory_free: int | None
    is_group: bool = False
    load: float = 0.0
    cores: int = 1


def measure(pid: int | str = "self") -> HostRoom:
    """`pid`: the process whose control groups count, for readers who are in others."""
    machine, group = controllers.memory_free(pid)
    known = [each for each in (machine, group) if each is not None]
    return HostRoom(
        memory_free=min(known, default=None),
        is_group=group is not None and (machine is None or group < machine),
        load=os.getloadavg()[0],
        cores=os.cpu_count() or 1,
    )


def young(tasks: Iterable[Task], now: float) -> int:
    """Counts the agents that were started just now."""
    return sum(task.state in AT_WORK and 0 <= now - task.start.began < SETTLE_S for task in tasks)


def shortage(room: HostRoom, memory_free_min: int | None, young: int = 0) -> str:
    """The reason why no agent is started, as a sentence; empty where there is room. Each young agent is counted as if
    `memory_free_min` were still to be taken by it: otherwise many would start before the first has grown."""
    if memory_free_min is None or room.memory_free is None:
        return ""
    needed = memory_free_min * (1 + young)
    if room.memory_free >= needed:
        return ""
    where = " in the control group of this run" if room.is_group else ""
    told = f"No more agents are started now: {size(room.memory_free)} of memory are free{where}"
    if young:
        told += f", and {size(needed)} are needed: memory_free_min is {size(memory_free_min)} for each start, and "
        return f"{told}{plural(young, 'agent')} of the last {SETTLE_S:g} s may still take as much."
    return f"{told}, and memory_free_min is {size(memory_free_min)}. They are started when there is more."


def disk_free(folder: Path) -> int:
    """The bytes that this user can still write on the filesystem of a folder."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def disk_shortage(folder: Path, disk_free_min: int | None) -> str:
    """The reason why no agent is started, as a sentence; empty where there is room on the disk."""
    if not disk_free_min or (free := disk_free(folder)) >= disk_free_min:
        return ""
    return (
        f"No more agents are started now: {size(free)} are free on the disk of {folder}, and disk_free_min is "
        f"{size(disk_free_min)}. They are started when there is more; `holdfast gc` removes what is of no use."
    )
