"""Who a process is: pid, start ticks and boot id together name one process for good.

A pid alone is recycled, and a wall-clock start time shifts when the clock is set. The raw start ticks of
`/proc/<pid>/stat` count from boot, so with the boot id they never point at somebody else.
"""

from __future__ import annotations

import functools
import os
import pwd
from pathlib import Path

import msgspec


class Identity(msgspec.Struct, frozen=True):
    pid: int
    start_ticks: int
    boot_id: str
    host: str

    def is_alive(self) -> bool:
        """True only for this very process on this very boot; never for another that was given the same pid."""
        return self.boot_id == boot_id() and self.start_ticks == start_ticks(self.pid)


def start_ticks(pid: int) -> int | None:
    """The kernel's start time of a running process, or None when there is none (a zombie has ended)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name stands in brackets and may hold anything, so the fields are counted from the last bracket.
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def is_stopped(pid: int) -> bool:
    """Whether somebody has stopped the process (SIGSTOP): it lives, and does nothing until it is told to go on."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat[stat.rindex(b")") + 2 :][:1] in (b"T", b"t")


@functools.cache
def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def current() -> Identity:
    return _identity_of(os.getpid())


@functools.lru_cache(maxsize=1)
def _identity_of(pid: int) -> Identity:
    return Identity(pid, start_ticks(pid) or 0, boot_id(), os.uname().nodename)


def pid_namespace() -> int:
    """The number of the namespace that our pids count in: a container has one of its own, on the same boot."""
    return _pid_namespace_of(os.getpid())


@functools.lru_cache(maxsize=1)
def _pid_namespace_of(pid: int) -> int:
    return os.stat(f"/proc/{pid}/ns/pid").st_ino


def user(uid: int | None = None) -> str:
    """The name of a user of this machine, of ours where none is given; the number where it has no name."""
    uid = os.geteuid() if uid is None else uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
