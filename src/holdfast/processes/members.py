"""The processes that belong to something, a start of an attempt or a gate, and ending all of them.

A process is a member by any of these signs: its cgroup, its process group, a mark in its environment, a lock in its
hands, or that it descends from a process. Each is known by pid and start ticks, and looked at again once a pidfd holds
it, so that nobody else is ever signalled.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from holdfast.clock import Deadline
from holdfast.identity import ProcessStat, has_open, processes, stat_of
from holdfast.processes.cgroups import Group

POLL_S = 0.02
Known = tuple[int, int]


class Signs(msgspec.Struct, frozen=True):
    """The signs of a member process. `group` and `cgroup` are asked at every look, because either may go.

    `marked`: whether an environment has the mark. `lock`: a file that members hold flocked. `top`: the process that
    took the lock, and all that descends from it is a member; 0 for none. `spares_children`: a child of ours that has
    the lock is none, because between fork and exec it has all that we have.
    """

    marked: Callable[[Mapping[bytes, bytes]], bool]
    lock: Path
    group: Callable[[], int | None] = lambda: None
    cgroup: Callable[[], Group | None] = lambda: None
    top: int = 0
    spares_children: bool = False


def end(signs: Signs, grace_s: float, give_up_s: float | None = None) -> list[int]:
    """Asks every member to end, kills what is left after `grace_s`, and returns when none is found.

    A stopped process is woken, because it could not hear otherwise. This process is left alone. Those that are left
    after `give_up_s` more are returned.
    """
    deadline = Deadline(grace_s, POLL_S)
    late = Deadline(grace_s + give_up_s, POLL_S) if give_up_s is not None else None
    asked: set[Known] = set()
    group = signs.cgroup()
    if group is not None:
        # A frozen process does not receive signals, so none wakes it.
        group.thaw()
    # One that was just being left to us may be missed by one look, not by two.
    while found := find(signs) or (find(signs) if signs.top else []):
        if late is not None and late.is_over():
            return [pid for pid, _ in found]
        is_late = deadline.is_over()
        if is_late and group is not None:
            group.kill()
        with contextlib.ExitStack() as stack:
            held = [(known, stack.enter_context(_held(known))) for known in found]
            alive = [
                (known, one[0]) for known, one in held if one is not None and _is_still_member(signs, known, one[1])
            ]
            for known, pidfd in alive:
                if is_late:
                    _send(pidfd, signal.SIGKILL)
                elif known not in asked:
                    _send(pidfd, signal.SIGTERM)
                    _send(pidfd, signal.SIGCONT)
                    asked.add(known)
            # Until one of them has ended, and not for long: others may have come since.
            poll = select.poll()
            for _, pidfd in alive:
                poll.register(pidfd, select.POLLIN)
            poll.poll(POLL_S * 1000)
    if group is not None:
        group.remove()
    return []


def stop_below(top: int, wait_s: float) -> list[Known]:
    """Stops every process that descends from `top`, those too that come while we look; returns all that were seen.

    One that waits for its vforked child cannot stop, so not for ever.
    """
    deadline, stopped = Deadline(wait_s, POLL_S), dict[Known, None]()
    while True:
        running = [(pid, stat.ticks) for pid, stat in _below(top) if not stat.is_stopped]
        if not running or deadline.is_over():
            return list(stopped)
        for known in running:
            _signal_known(known, signal.SIGSTOP)
            stopped[known] = None


def used_below(top: int) -> tuple[int, int]:
    """Memory in bytes, and threads, of all that descend from `top`. What they share is counted for each."""
    pages = threads = 0
    for pid, _ in _below(top):
        with contextlib.suppress(OSError):
            pages += int(Path(f"/proc/{pid}/statm").read_bytes().split()[1])
            threads += len(os.listdir(f"/proc/{pid}/task"))
    return pages * os.sysconf("SC_PAGE_SIZE"), threads


def _below(top: int) -> list[tuple[int, ProcessStat]]:
    seen = processes()
    return [(pid, stat) for pid, stat in seen.items() if not stat.is_dead and _descends(top, stat, seen)]


def wake(stopped: list[Known]) -> None:
    for known in stopped:
        _signal_known(known, signal.SIGCONT)


def _signal_known(known: Known, number: signal.Signals) -> None:
    with _held(known) as held:
        if held is not None:
            _send(held[0], number)


def find(signs: Signs) -> list[Known]:
    """The cheap signs first: whose descriptors are looked at only where nobody else is left."""
    seen = processes()
    group, cgroup, me = signs.group(), _in_cgroup(signs), os.getpid()
    living = [(pid, stat) for pid, stat in seen.items() if pid != me and not stat.is_dead]
    found = [(pid, stat.ticks) for pid, stat in living if _is_member(signs, pid, stat, group, cgroup, seen=seen)]
    # A lock is handed on by fork only: who is older than the one who took it cannot have it.
    since = seen[signs.top].ticks if signs.top in seen else 0
    return found or [(pid, stat.ticks) for pid, stat in living if stat.ticks >= since and _has_lock(signs, pid, stat)]


def _in_cgroup(signs: Signs) -> set[int]:
    group = signs.cgroup()
    return set(group.members()) if group is not None else set()


def _is_member(
    signs: Signs, pid: int, stat: ProcessStat, group: int | None, cgroup: set[int], seen: Mapping[int, ProcessStat]
) -> bool:
    return pid in cgroup or stat.group == group or _descends(signs.top, stat, seen) or _is_marked(signs, pid)


def _has_lock(signs: Signs, pid: int, stat: ProcessStat) -> bool:
    if signs.spares_children and stat.parent == os.getpid():
        return False
    try:
        return bool(has_open(pid, os.stat(signs.lock), flocked=True))
    except OSError:
        return False


def _is_marked(signs: Signs, pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    # Most processes are none of ours, and this is asked of all of them.
    if b"HOLDFAST_" not in text:
        return False
    return signs.marked(dict(each.split(b"=", 1) for each in text.split(b"\0") if b"=" in each))


def _descends(top: int, stat: ProcessStat, seen: Mapping[int, ProcessStat]) -> bool:
    """A parent that ends while we look has left its children to us, and is found at the next look."""
    above: ProcessStat | None = stat
    while top and above is not None and above.parent > 1:
        if above.parent == top:
            return True
        above = seen.get(above.parent) or stat_of(above.parent)
    return False


def _is_still_member(signs: Signs, known: Known, stat: ProcessStat) -> bool:
    pid, group, cgroup = known[0], signs.group(), _in_cgroup(signs)
    return _is_member(signs, pid, stat, group, cgroup, seen={}) or _has_lock(signs, pid, stat)


@contextlib.contextmanager
def _held(known: Known) -> Iterator[tuple[int, ProcessStat] | None]:
    """A pidfd of a process that still is the one that was found, and how it is now; None: it is gone."""
    pid, ticks = known
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        yield None
        return
    try:
        stat = stat_of(pid)
        yield (pidfd, stat) if stat is not None and not stat.is_dead and stat.ticks == ticks else None
    finally:
        os.close(pidfd)


def _send(pidfd: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        signal.pidfd_send_signal(pidfd, number)
