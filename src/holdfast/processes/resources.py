"""Limits for the processes of one attempt, enforced by the best means that the machine has.

A control group holds memory, processes and cores for all of them together. Where there is none, each process gets what
`setrlimit` can do, and the runner checks what they use together; so a limit may be passed for a moment.
The size of one file is always a matter of `setrlimit`.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from holdfast.domain.attempt_records import Resources
from holdfast.domain.wording import size
from holdfast.layout import Attempt
from holdfast.processes import cgroups, members
from holdfast.processes.controllers import CPU, MEMORY, PIDS, hands_on, machine_memory, old_homes

NOTHING: Mapping[str, int] = MappingProxyType({})
MEMORY_LIMIT, PIDS_LIMIT = "limits.memory_bytes_max", "limits.pids_max"


def of_machine(resources: Resources) -> Resources:
    """With three quarters of the machine's memory where none was named."""
    if resources.memory_bytes_max is not None or not (there := machine_memory()):
        return resources
    return msgspec.structs.replace(resources, memory_bytes_max=there // 4 * 3)


class LimitReached(msgspec.Struct, frozen=True):
    """A limit that was come up against: the setting, and what happened, as words that follow a colon. `is_over`: the
    kernel does not hold them back enough, so all of them have to end."""

    limit: str
    told: str
    is_over: bool


class AttemptResources:
    """The limits of one start of an attempt, in the hands of its runner, from which all of its processes descend."""

    def __init__(self, files: Attempt, attempt: str, start: int, resources: Resources) -> None:
        self._facts, self._resources = (files, attempt, start), resources
        self.group: cgroups.Group | None = None
        self._looks: set[str] = set()
        self.found: LimitReached | None = None

    def open(self) -> None:
        """Makes the control group, where there is one to be had; also anew, once all that were in it have ended."""
        self.group = cgroups.make(*self._facts, self._resources)
        held = self.group.held if self.group is not None else frozenset()
        most = {MEMORY: self._resources.memory_bytes_max, PIDS: self._resources.pids_max}
        self._looks = {name for name, bound in most.items() if bound is not None and name not in held}

    def close(self) -> None:
        if self.group is not None:
            self.group.remove()

    def join_as_git(self) -> None:
        """Moves a git of ours into the group: bounded with the agent's processes, and not frozen with them."""
        if self.group is not None:
            self.group.join(cgroups.GIT)

    def newly_reached(self) -> LimitReached | None:
        """A limit that they have come up against, told once."""
        before, self.found = self.found, self.reached() or self.found
        return self.found if self.found != before else None

    def limit_myself(self) -> None:
        """Limits this process and all that it begins; in the group, if there is one, it is already."""
        bounded = self._resources
        if bounded.written_bytes_max is not None:
            _lower(resource.RLIMIT_FSIZE, bounded.written_bytes_max)
        if PIDS in self._looks and bounded.pids_max is not None:
            # It counts all processes of this user. It does not bind a privileged process.
            _lower(resource.RLIMIT_NPROC, _of_user(os.getuid()) + bounded.pids_max)

    def reached(self) -> LimitReached | None:
        """The limit that they have come up against so far."""
        used, tasks = members.used_below(os.getpid()) if self._looks else (0, 0)
        seen = {name: number for name, number in ((MEMORY, used), (PIDS, tasks)) if name in self._looks}
        return reached(self.group, self._resources, seen)


def reached(
    group: cgroups.Group | None, resources: Resources, seen: Mapping[str, int] = NOTHING
) -> LimitReached | None:
    """The limit that was reached: by a group, or by what was seen where no group holds it."""
    counted = group.reached() if group is not None else {MEMORY: 0, PIDS: 0}
    memory, pids = resources.memory_bytes_max, resources.pids_max
    if pids is not None and (counted[PIDS] or seen.get(PIDS, 0) > pids):
        # A process that has begun so many goes on trying.
        return LimitReached(PIDS_LIMIT, f"its processes and threads came to {pids:,}, which is {PIDS_LIMIT}", True)
    if memory is not None and (counted[MEMORY] or seen.get(MEMORY, 0) > memory):
        told = f"its processes used up {size(memory)} of memory, which is {MEMORY_LIMIT}"
        return LimitReached(MEMORY_LIMIT, told, is_over=not counted[MEMORY])
    return None


def _lower(which: int, most: int) -> None:
    _, hard = resource.getrlimit(which)
    least = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (least, least))


def _of_user(uid: int) -> int:
    """Counts the threads of all processes of a user."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == uid:
                    count += len(os.listdir(f"/proc/{name}/task"))
            except OSError:
                continue
    return count


def in_words(resources: Resources) -> str:
    """The limits that hold here, for `doctor`."""
    found = of_machine(resources)
    by = _means()
    parts = []
    if found.memory_bytes_max is not None:
        parts.append(f"memory {size(found.memory_bytes_max)} ({by[MEMORY]})")
    if found.pids_max is not None:
        parts.append(f"processes {found.pids_max:,} ({by[PIDS]})")
    if found.cpus_max is not None:
        parts.append(f"cores {found.cpus_max:g} ({by[CPU]})")
    if found.written_bytes_max is not None:
        parts.append(f"a file {size(found.written_bytes_max)} (rlimit)")
    return "; ".join(parts)


def _means() -> dict[str, str]:
    """The means by which each controller's limit is kept here."""
    looked = "no control group here: looked at once a second"
    none = {MEMORY: looked, PIDS: looked + ", and an rlimit", CPU: "not held: no control group here"}
    best = next(iter(cgroups.homes()), None)
    if best is None:
        return none
    if hands_on(best):
        return dict.fromkeys(none, "control group, version 2")
    return {**none, **dict.fromkeys(old_homes(), "control group, version 1")}
