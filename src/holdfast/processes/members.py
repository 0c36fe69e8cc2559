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
from holdfast.processes.cgroups import Group

POLL_S = 0.02
Known = tuple[int, int]


class Signs(msgspec.Struct, frozen=True):
    """What makes a process a member. `group` and `cgroup` are asked at every look, because either may go.

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
        # Whoever stands still there hears nothing, and is not woken by a signal.
        group.thaw()
    # One that was just being left to us may be missed by one look, not by two.
    while found := find(signs) or (find(signs) if signs.top else []):
        if late is not None and late.is_over():
            return [pid for pid, _ in found]
        is_late = deadline.is_over()
        if is_late and group is not None:
            group.kill()
        with contextlib.ExitStack() as stack:
            pidfds = [stack.enter_context(_held(signs, known)) for known in found]
            alive = [(known, pidfd) for known, pidfd in zip(found, pidfds, strict=True) if pidfd is not None]
            for known, pidfd in alive:
                if is_late:
                    _send(pidfd, signal.SIGKILL)
                elif known not in asked:
                    _send(pidfd, signal.SIGTERM)
                    _send(pidfd, signal.SIGCONT)
                    asked.add(known)
            _await_one([pidfd for _, pidfd in alive])
    if group is not None:
        group.remove()
    return []


def stop_below(top: int, wait_s: float) -> list[Known]:
    """Stops every process that descends from `top`, those too that come while we look; returns all that were seen.

    One that waits for its vforked child cannot stop, so not for ever.
    """
    deadline, stopped = Deadline(wait_s, POLL_S), dict[Known, None]()
    while True:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        seen = {pid: stat for pid in pids if (stat := stat_of(pid)) is not None}
        signs = Signs(lambda _: False, Path("/"), top=top)
        below = [(pid, stat) for pid, stat in seen.items() if not stat.is_dead and _descends(signs, stat, seen)]
        running = [(pid, stat.ticks) for pid, stat in below if not stat.is_stopped]
        if not running or deadline.is_over():
            return list(stopped)
        for known in running:
            _signal_known(known, signal.SIGSTOP)
            stopped[known] = None


def used_below(top: int) -> tuple[int, int]:
    """Memory in bytes, and threads, of all that descend from `top`. What they share is counted for each."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    seen = {pid: stat for pid in pids if (stat := stat_of(pid)) is not None}
    signs = Signs(lambda _: False, Path("/"), top=top)
    below = [pid for pid, stat in seen.items() if not stat.is_dead and _descends(signs, stat, seen)]
    pages = threads = 0
    for pid in below:
        with contextlib.suppress(OSError):
            pages += int(_read(f"/proc/{pid}/statm").split()[1])
            threads += len(os.listdir(f"/proc/{pid}/task"))
    return pages * os.sysconf("SC_PAGE_SIZE"), threads


def wake(stopped: list[Known]) -> None:
    for known in stopped:
        _signal_known(known, signal.SIGCONT)


def _signal_known(known: Known, number: signal.Signals) -> None:
    try:
        pidfd = os.pidfd_open(known[0])
    except OSError:
        return
    try:
        stat = stat_of(known[0])
        if stat is not None and stat.ticks == known[1]:
            _send(pidfd, number)
    finally:
        os.close(pidfd)


def find(signs: Signs) -> list[Known]:
    """The cheap signs first: whose descriptors are looked at only where nobody else is left."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    group, cgroup, me = signs.group(), _in_cgroup(signs), os.getpid()
    seen = {pid: stat for pid in pids if (stat := stat_of(pid)) is not None}
    living = [(pid, stat) for pid, stat in seen.items() if pid != me and not stat.is_dead]
    found = [(pid, stat.ticks) for pid, stat in living if _is_member(signs, pid, stat, group, cgroup, seen)]
    # A lock is handed on by fork only: who is older than the one who took it cannot have it.
    since = seen[signs.top].ticks if signs.top in seen else 0
    return found or [(pid, stat.ticks) for pid, stat in living if stat.ticks >= since and _has_lock(signs, pid, stat)]


def _in_cgroup(signs: Signs) -> set[int]:
    group = signs.cgroup()
    return set(group.members()) if group is not None else set()


def _is_member(
    signs: Signs, pid: int, stat: Stat, group: int | None, cgroup: set[int], seen: Mapping[int, Stat]
) -> bool:
    return pid in cgroup or stat.group == group or _descends(signs, stat, seen) or _is_marked(signs, pid)


def _has_lock(signs: Signs, pid: int, stat: Stat) -> bool:
    return not (signs.spares_children and stat.parent == os.getpid()) and holds(pid, signs.lock)


def _is_marked(signs: Signs, pid: int) -> bool:
    try:
        text = _read(f"/proc/{pid}/environ")
    except OSError:
        return False
    # Most processes are none of ours, and this is asked of all of them.
    if b"HOLDFAST_" not in text:
        return False
    return signs.marked(dict(each.split(b"=", 1) for each in text.split(b"\0") if b"=" in each))


def _descends(signs: Signs, stat: Stat, seen: Mapping[int, Stat]) -> bool:
    """A parent that ends while we look has left its children to us, and is found at the next look."""
    above: Stat | None = stat
    while signs.top and above is not None and above.parent > 1:
        if above.parent == signs.top:
            return True
        above = seen.get(above.parent) or stat_of(above.parent)
    return False


@contextlib.contextmanager
def _held(signs: Signs, known: Known) -> Iterator[int | None]:
    """A pidfd of a process that still is the one that was found, and still a member; None: it is neither."""
    pid, ticks = known
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        yield None
        return
    try:
        stat = stat_of(pid)
        is_same = stat is not None and not stat.is_dead and stat.ticks == ticks
        is_member = stat is not None and (
            _is_member(signs, pid, stat, signs.group(), _in_cgroup(signs), {}) or _has_lock(signs, pid, stat)
        )
        yield pidfd if is_same and is_member else None
    finally:
        os.close(pidfd)


def _send(pidfd: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        signal.pidfd_send_signal(pidfd, number)


def _await_one(pidfds: list[int]) -> None:
    """Until one of them has ended, and not for long: others may have come since."""
    poll = select.poll()
    for pidfd in pidfds:
        poll.register(pidfd, select.POLLIN)
    poll.poll(POLL_S * 1000)


# -- one process ------------------------------------------------------------------------------------------------------


class Stat(msgspec.Struct, frozen=True):
    parent: int
    group: int
    ticks: int
    is_dead: bool
    is_stopped: bool = False


def stat_of(pid: int) -> Stat | None:
    try:
        text = _read(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The command's name stands in brackets and may hold anything, so the fields are counted from the last bracket.
    fields = text[text.rindex(b")") + 2 :].split(maxsplit=20)
    is_dead, is_stopped = fields[0] in (b"Z", b"X"), fields[0] in (b"T", b"t")
    return Stat(int(fields[1]), int(fields[2]), int(fields[19]), is_dead, is_stopped)


def holds(pid: int, lock: Path) -> bool:
    """Whether the kernel shows the lock, taken for good, in this process's hands; who only asks holds a shared one."""
    try:
        wanted, folder = os.stat(lock), f"/proc/{pid}/fd"
        descriptors = os.listdir(folder)
    except OSError:
        return False
    for fd in descriptors:
        # Descriptors come and go while we look.
        try:
            if os.path.samestat(os.stat(f"{folder}/{fd}"), wanted):
                facts = _read(f"/proc/{pid}/fdinfo/{fd}")
                if any(b"FLOCK" in line and b"WRITE" in line for line in facts.splitlines()):
                    return True
        except OSError:
            continue
    return False


def _read(path: str) -> bytes:
    """All of a file of the kernel's. Every process there is is looked at, and often: this is the short way."""
    descriptor, parts = os.open(path, os.O_RDONLY | os.O_CLOEXEC), []
    try:
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
    finally:
        os.close(descriptor)
    return b"".join(parts)
