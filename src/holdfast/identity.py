"""Process identity: pid, start ticks and boot id together name one process for good. And what the kernel shows of any
process: its parent, its group, whether it lives, and whether it has a file open or locked.

A pid alone is recycled, and a wall-clock start time shifts when the clock is set. The raw start ticks of
`/proc/<pid>/stat` count from boot, so with the boot id they never match another process.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import signal
from pathlib import Path

import msgspec


class Identity(msgspec.Struct, frozen=True):
    pid: int
    start_ticks: int
    boot_id: str
    host: str

    def is_alive(self) -> bool:
        """True only for this very process in this very boot; never for another with the same pid."""
        return self.boot_id == boot_id() and self.start_ticks == start_ticks(self.pid)


class ProcessStat(msgspec.Struct, frozen=True):
    """`/proc/<pid>/stat`. `name`: of its program, 15 bytes at most. `is_dead`: ended, or a zombie."""

    name: str
    parent: int
    group: int
    ticks: int
    is_dead: bool
    is_stopped: bool


def stat_of(pid: int) -> ProcessStat | None:
    """None where there is no such process, or none that we may inspect."""
    try:
        # Called for every process of the machine, and often: this is the fast way to read.
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    try:
        text = os.read(fd, 4096)
    except ProcessLookupError:
        return None
    finally:
        os.close(fd)
    # The name is in brackets and may hold anything, so the fields are counted from the last bracket.
    name, _, rest = text.partition(b"(")[2].rpartition(b")")
    state, parent, group, *fields = rest.split(maxsplit=20)
    is_dead, is_stopped = state in (b"Z", b"X"), state in (b"T", b"t")
    return ProcessStat(
        name.decode(errors="replace"), int(parent), int(group), int(fields[16]), is_dead, is_stopped=is_stopped
    )


def processes() -> dict[int, ProcessStat]:
    """Every process, by pid."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return {pid: stat for pid in pids if (stat := stat_of(pid)) is not None}


def start_ticks(pid: int) -> int | None:
    """The kernel's start time of a living process; None when there is none."""
    stat = stat_of(pid)
    return None if stat is None or stat.is_dead else stat.ticks


def is_stopped(pid: int) -> bool:
    """Whether the process is stopped (SIGSTOP): it is alive, and does nothing until it is continued."""
    stat = stat_of(pid)
    return stat is not None and stat.is_stopped


def has_open(pid: int, file: os.stat_result, *, flocked: bool = False) -> bool | None:
    """Whether the process has this file open, and `flocked`: with an exclusive lock. None: we may not inspect it.

    A shared lock, which a mere check holds for a moment, does not count.
    """
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except PermissionError:
        return None
    except OSError:
        return False
    for fd in descriptors:
        # Descriptors come and go meanwhile.
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(f"/proc/{pid}/fd/{fd}"), file):
                facts = Path(f"/proc/{pid}/fdinfo/{fd}").read_bytes() if flocked else b""
                if not flocked or any(b"FLOCK" in line and b"WRITE" in line for line in facts.splitlines()):
                    return True
    return False


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@functools.cache
def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def current() -> Identity:
    return _identity_of(os.getpid())


@functools.lru_cache(maxsize=1)
def _identity_of(pid: int) -> Identity:
    return Identity(pid, start_ticks(pid) or 0, boot_id(), os.uname().nodename)


def pid_namespace() -> int:
    """The namespace of our pids: a container has one of its own, on the same boot."""
    return _pid_namespace_of(os.getpid())


@functools.lru_cache(maxsize=1)
def _pid_namespace_of(pid: int) -> int:
    return os.stat(f"/proc/{pid}/ns/pid").st_ino


def user(uid: int | None = None) -> str:
    """The name of a user of this machine, by default ours; the number where it has no name."""
    uid = os.geteuid() if uid is None else uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
