"""Limits of a control group: memory, processes and cores, and which of these it has come up against.

    version 2      files of the group itself, where a group above it hands its controllers on (`cgroup.subtree_control`)
    version 1      a group of the same name in each controller's own hierarchy: memory, pids, cpu

A limit that cannot be set here does not hold, and is kept by other means (`resources`), as far as there are any.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from holdfast.domain.attempt_records import Resources
from holdfast.errors import DiskError
from holdfast.storage.files import disk

MEMORY, PIDS, CPU = "memory", "pids", "cpu"
_PERIOD_US = 100_000
_UNLIMITED = 1 << 60


def _shares(nice: int) -> int:
    """The share that the kernel gives a nice value: in a group of its own, the value says nothing to those outside."""
    return round(1024 / 1.25**nice)


def _weight(nice: int) -> bytes:
    return str(max(1, round(_shares(nice) * 100 / 1024))).encode()


def wanted(resources: Resources) -> dict[str, dict[str, bytes]]:
    """The files of either version by controller, and what is written to them. A file that is not there is left out."""
    found: dict[str, dict[str, bytes]] = {}
    if (most := resources.memory_bytes_max) is not None:
        size = str(most).encode()
        # With memory alone bounded, it would go on into the swap.
        new = {"memory.max": size, "memory.swap.max": b"0"}
        found[MEMORY] = {**new, "memory.limit_in_bytes": size, "memory.memsw.limit_in_bytes": size}
    if resources.pids_max is not None:
        found[PIDS] = {"pids.max": str(resources.pids_max).encode()}
    if resources.cpus_max is not None:
        quota = max(1000, int(resources.cpus_max * _PERIOD_US))
        new = {"cpu.weight": _weight(resources.nice), "cpu.max": f"{quota} {_PERIOD_US}".encode()}
        period = str(_PERIOD_US).encode()
        found[CPU] = {
            **new, "cpu.shares": str(_shares(resources.nice)).encode(),
            "cpu.cfs_period_us": period, "cpu.cfs_quota_us": str(quota).encode(),
        }  # fmt: skip
    return found


def set_new(group: Path, resources: Resources) -> None:
    """Sets the limits of version 2, for whatever controllers the group has."""
    for files in wanted(resources).values():
        _write(group, files)
    if resources.cpus_max is None:
        _write(group, {"cpu.weight": _weight(resources.nice)})


def make_old(name: str, resources: Resources) -> tuple[Path, ...]:
    """Makes, for version 1, a group in each hierarchy that is wanted and can be written to."""
    made, homes = [], old_homes()
    for controller, files in wanted(resources).items():
        if controller not in homes:
            continue
        folder = homes[controller] / name
        with contextlib.suppress(DiskError):
            disk.make_group(folder)
            _write(folder, files)
            made.append(folder)
    return tuple(made)


def _write(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        if (folder / name).exists():
            with contextlib.suppress(DiskError):
                disk.write_kernel_file(folder / name, content)


def old_homes() -> dict[str, Path]:
    """Our own group in the hierarchy of each controller of version 1, where groups can be made in it."""
    found = {name: place(name) for name in (MEMORY, PIDS, CPU)}
    return {name: path for name, path in found.items() if path is not None and is_open(path)}


def place(controller: str, pid: int | str = "self") -> Path | None:
    """The group of a process in the hierarchy of a controller; "" is version 2's. None where it is not mounted."""
    ours = [line.split(":", 2) for line in _text(Path(f"/proc/{pid}/cgroup")).splitlines()]
    kind = "cgroup" if controller else "cgroup2"
    tops = [
        mount[1] for mount in mounts() if mount[2] == kind and (not controller or controller in mount[3].split(","))
    ]
    groups = [line[2] for line in ours if (controller in line[1].split(",") if controller else line[0] == "0")]
    return Path(tops[0] + groups[0]) if tops and groups else None


def mounts() -> list[list[str]]:
    """The fields of each mount: its device, its place, its kind, its options."""
    return [line.split() for line in _text(Path("/proc/self/mounts")).splitlines()]


def is_open(path: Path) -> bool:
    """Whether groups can be made in it, and processes moved there."""
    return os.access(path / "cgroup.procs", os.W_OK) and os.access(path, os.W_OK)


def hand_on(group: Path) -> None:
    """Lets groups below a group of version 2 have limits. The kernel refuses that while processes are in it, but for
    the topmost."""
    if {MEMORY, PIDS} <= set(_text(group / "cgroup.controllers").split()) and not hands_on(group):
        with contextlib.suppress(DiskError):
            disk.write_kernel_file(group / "cgroup.subtree_control", b"+memory +pids +cpu")


def hands_on(group: Path) -> bool:
    return {MEMORY, PIDS} <= set(_text(group / "cgroup.subtree_control").split())


def above(own: Path) -> Path | None:
    """The nearest group, this one first, in which groups have limits; none where to go there would leave a limit of
    memory behind that somebody has set for us."""
    for path in (own, *own.parents):
        if not is_open(path):
            return None
        if hands_on(path):
            return path
        if _number(path / "memory.max"):
            return None
    return None


# -- what was reached -------------------------------------------------------------------------------------------------


def held(folders: Iterable[Path]) -> frozenset[str]:
    """The controllers that these groups have."""
    names = {MEMORY: ("memory.max", "memory.limit_in_bytes"), PIDS: ("pids.max",), CPU: ("cpu.max", "cpu.shares")}
    found = list(folders)
    return frozenset(
        controller for controller, files in names.items() if any((at / name).exists() for at in found for name in files)
    )


def reached(folders: Iterable[Path]) -> dict[str, int]:
    """Counts the processes that were ended because the memory was used up, and those that could not be begun."""
    counted = {MEMORY: 0, PIDS: 0}
    for folder in folders:
        for controller, file, word in (
            (MEMORY, "memory.events", "oom_kill"),
            (MEMORY, "memory.oom_control", "oom_kill"),
            (PIDS, "pids.events", "max"),
        ):
            counted[controller] = max(counted[controller], _counted(folder / file, word))
    return counted


def _counted(path: Path, word: str) -> int:
    lines = (line.split() for line in _text(path).splitlines())
    return next((int(line[1]) for line in lines if line[:1] == [word] and line[1:2] and line[1].isdigit()), 0)


def machine_memory() -> int:
    """The machine's memory, or what our own groups may have where that is less; 0 where it is unknown."""
    limits = [1024 * _counted(Path("/proc/meminfo"), "MemTotal:")]
    if (old := place(MEMORY)) is not None:
        limits += [_number(at / "memory.limit_in_bytes") for at in (old, *old.parents)]
    if (new := place("")) is not None:
        limits += [_number(at / "memory.max") for at in (new, *new.parents)]
    return min((each for each in limits if each), default=0)


def memory_free(pid: int | str = "self") -> tuple[int | None, int | None]:
    """What processes could still take: of the machine, and in the groups of a process that have a limit; None where
    nobody says. What the kernel could write back or drop counts as free."""
    machine = 1024 * _counted(Path("/proc/meminfo"), "MemAvailable:")
    groups = []
    for controller, limit, used, cached in (
        (MEMORY, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ("", "memory.max", "memory.current", "inactive_file"),
    ):
        own = place(controller, pid)
        for at in (own, *own.parents) if own is not None else ():
            most = _number(at / limit)
            # Version 1 says "no limit" by a number that no machine has.
            if 0 < most < _UNLIMITED:
                left = most - _number(at / used) + _counted(at / "memory.stat", cached)
                groups.append(max(0, left))
    return machine or None, min(groups, default=None)


def _number(path: Path) -> int:
    found = _text(path).strip()
    return int(found) if found.isdigit() else 0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
