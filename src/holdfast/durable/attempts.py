"""Who is alive in an attempt's folder, and how all of an attempt is ended.

    alive.lock     flocked by the runner, and by the agent, which inherits it; its time of change is the heartbeat
    start-<n>      one line of JSON: who took the start with this number, for which intent, and which process that was
    process.json   the agent's process, written by itself before it became the agent

- A runner takes `alive.lock` first and only then `start-<n>`: who sees a runner's start sees its lock held, too.
- A name is no identity: `t5.1` may be of a journal that was put back from a backup since. So each of these files names
  the journal entry that its start was intended with, and one that names another is of no use to whoever asks for it.
- An attempt is dead only when the lock is free, whatever its files say.
- A process is of an attempt when it says so in its environment (the attempt, and a worktree of this data root), when it
  is in the group of the very agent that `process.json` names, or when the kernel shows the lock in its hands; to its
  runner, which adopts what its parents leave behind (`adopt_orphans`), also when it descends from it. It is looked at
  again once a pidfd holds it, so that nobody else is ever signalled.
- What is in the folder is the user's text: it is for nobody else to read.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import msgspec

from holdfast.clock import monotonic, wall
from holdfast.domain.attempt import Exit
from holdfast.durable import disk, process
from holdfast.errors import AlreadyExists, DiskError
from holdfast.layout import Attempt

T = TypeVar("T", bound=msgspec.Struct)

RUNNER, RECOVERY = "runner", "recovery"
POLL_S = 0.02
# Of an attempt's files; its folder has the right to be entered, too.
PRIVATE = 0o600
_PR_SET_CHILD_SUBREAPER = 36


class Seen(StrEnum):
    ABSENT = "absent"
    ALIVE = "alive"
    ENDED = "ended"
    DEAD = "dead"
    HEADLESS = "headless"


class Started(process.Identity, frozen=True):
    """The line in `start-<n>`."""

    who: str
    intent: str = ""


class Running(msgspec.Struct, frozen=True):
    """process.json. `group`: the agent's process group."""

    attempt: str
    start: int
    runner: process.Identity
    agent: process.Identity
    group: int
    intent: str = ""


# -- looking ----------------------------------------------------------------------------------------------------------


def look(files: Attempt, start: int, intent: str = "") -> Seen:
    """What has become of the attempt's newest start. Without an `intent`, of whichever start has this number."""
    if not files.start(start).exists():
        return Seen.ABSENT
    owner = read_start(files, start)
    if owner is not None and not is_of(owner, intent):
        return Seen.ABSENT
    # In this order: a runner that ends between two of these answers is then seen as ended, never as something else.
    is_alive = owner is not None and owner.who == RUNNER and owner.is_alive()
    is_held = not _is_free(files.alive)
    if read_exit(files, start, intent) is not None:
        return Seen.ENDED
    if not is_held:
        return Seen.DEAD
    return Seen.ALIVE if is_alive else Seen.HEADLESS


def read_start(files: Attempt, start: int) -> Started | None:
    return _read(files.start(start), Started)


def read_process(files: Attempt) -> Running | None:
    return _read(files.process, Running)


def read_exit(files: Attempt, start: int, intent: str = "") -> Exit | None:
    """How that very start ended; None while it has not, and where the file tells of another one."""
    found = last_exit(files)
    return found if found is not None and found.start == start and is_of(found, intent) else None


def is_of(found: Started | Running | Exit, intent: str) -> bool:
    """Whether a file is of the start that was intended with this entry; any is where that is not known."""
    return not intent or found.intent == intent


def strangers(files: Attempt, start: int, intent: str) -> list[Path]:
    """What stands in the way of a start and is of none that the journal has: files of a later one, or of another one
    with its number. With the first start of an attempt in the way, nothing in the folder is the attempt's."""
    numbers = (path.name.removeprefix("start-") for path in files.root.glob("start-*"))
    later = [int(number) for number in numbers if number.isdigit() and int(number) >= start]
    taken = ((files.start(number), read_start(files, number)) for number in sorted(later))
    told = ((files.exit, last_exit(files)), (files.process, read_process(files)))
    found = [path for path, each in taken if each is not None and each.intent != intent]
    found += [path for path, each in told if each is not None and each.start >= start and each.intent != intent]
    return [files.root] if found and start == 1 else found


def last_exit(files: Attempt) -> Exit | None:
    """How the newest start that ended did."""
    return _read(files.exit, Exit)


def heartbeat_age(files: Attempt) -> float:
    """Seconds since the runner last showed that it is at work; infinite where none ever was."""
    try:
        return max(wall() - files.alive.stat().st_mtime, 0.0)
    except FileNotFoundError:
        return float("inf")


def beat(files: Attempt) -> None:
    disk.touch(files.alive)


def _read(path: Path, kind: type[T]) -> T | None:
    """These files appear whole or not at all, so one that cannot be read was damaged: it tells nothing."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _is_free(lock: Path) -> bool:
    """Asks by a shared lock for a moment, which does not disturb others that ask; who wants it for good tries again."""
    try:
        with open(lock, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    return True


# -- beginning --------------------------------------------------------------------------------------------------------


def make_folder(files: Attempt) -> None:
    disk.mkdir(files.root.parent)
    disk.mkdir(files.root, 0o700)


def claim_start(files: Attempt, start: int, who: str, intent: str = "") -> bool:
    """Takes the start for good; False: somebody was first, and it is theirs."""
    me = process.current()
    line = msgspec.json.encode(Started(me.pid, me.start_ticks, me.boot_id, me.host, who, intent)) + b"\n"
    make_folder(files)
    try:
        disk.create(files.start(start), line, PRIVATE)
    except AlreadyExists:
        return False
    return True


def take_alive(files: Attempt, start: int, timeout_s: float) -> int | None:
    """The descriptor that holds `alive.lock`; None: the start is somebody's already, or the lock did not come free."""
    make_folder(files)
    fd = disk.open_lock_file(files.alive, PRIVATE)
    deadline = monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            disk.sync_folder(files.root)
            return fd
        except BlockingIOError:
            if files.start(start).exists() or monotonic() > deadline:
                disk.close_lock_file(fd, files.alive)
                return None
            time.sleep(POLL_S)
        except OSError as error:
            raise DiskError(operation="lock", path=files.alive, reason=error.strerror or str(error)) from error


# -- ending -----------------------------------------------------------------------------------------------------------


def adopt_orphans() -> None:
    """From now on a process whose parent ends becomes a child of this one: whatever it does, it descends from here."""
    import ctypes  # only runners need it, and it takes a while to load

    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def bury_orphans(spare: int) -> None:
    """Reaps adopted children that have ended; not `spare`, and only where nobody waits for another child of ours."""
    seen = os.WEXITED | os.WNOHANG | os.WNOWAIT
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, seen)) is not None and ended.si_pid != spare:
            os.waitpid(ended.si_pid, 0)


def end_all(files: Attempt, attempt: str, grace_s: float) -> None:
    """Ends every process of the attempt, its runner too, and returns when nothing is alive and the lock is free."""
    while True:
        end_processes(files, attempt, grace_s)
        if _is_free(files.alive):
            return
        time.sleep(POLL_S)


def end_processes(files: Attempt, attempt: str, grace_s: float, *, descendants: bool = False) -> None:
    """Asks every process of the attempt to end, kills what is left after `grace_s`, and returns when none is found.

    A stopped process is woken, because it could not hear otherwise. This process is left alone. `descendants`: all that
    descends from it is of the attempt.
    """
    members = _Members(files, attempt, os.getpid() if descendants else 0)
    deadline = monotonic() + grace_s
    asked: set[tuple[int, int]] = set()
    # One that was just being left to us may be missed by one look, not by two.
    while found := members.find() or (descendants and members.find()):
        is_late = monotonic() >= deadline
        with contextlib.ExitStack() as stack:
            pidfds = [stack.enter_context(each) for each in map(members.held, found)]
            alive = [(known, pidfd) for known, pidfd in zip(found, pidfds, strict=True) if pidfd is not None]
            for known, pidfd in alive:
                if is_late:
                    _send(pidfd, signal.SIGKILL)
                elif known not in asked:
                    _send(pidfd, signal.SIGTERM)
                    _send(pidfd, signal.SIGCONT)
                    asked.add(known)
            _await_one([pidfd for _, pidfd in alive])


def _send(pidfd: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        signal.pidfd_send_signal(pidfd, number)


def _await_one(pidfds: list[int]) -> None:
    """Until one of them has ended, and not for long: others may have come since."""
    poll = select.poll()
    for pidfd in pidfds:
        poll.register(pidfd, select.POLLIN)
    poll.poll(POLL_S * 1000)


class _Members:
    """Finds the processes of an attempt, each named by pid and start ticks."""

    def __init__(self, files: Attempt, attempt: str, top: int) -> None:
        self._files, self._top = files, top
        self._mark = b"HOLDFAST_ATTEMPT=" + os.fsencode(attempt)
        # Two data roots may each have an attempt of this name.
        self._root = os.path.realpath(files.root.parent.parent)

    def find(self) -> list[tuple[int, int]]:
        """The cheap signs first: whose descriptors are looked at only where nobody else is left."""
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        group = self._group()
        me = os.getpid()
        living = [(pid, stat) for pid in pids if pid != me and (stat := _stat(pid)) is not None]
        found = [(pid, stat.ticks) for pid, stat in living if self._is_member(pid, stat, group)]
        return found or [(pid, stat.ticks) for pid, stat in living if _holds(pid, self._files.alive)]

    @contextlib.contextmanager
    def held(self, known: tuple[int, int]) -> Iterator[int | None]:
        """A pidfd of a process that still is the one that was found, and still of the attempt; None: it is neither."""
        pid, ticks = known
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            yield None
            return
        try:
            stat = _stat(pid)
            is_same = stat is not None and stat.ticks == ticks
            is_member = stat is not None and (
                self._is_member(pid, stat, self._group()) or _holds(pid, self._files.alive)
            )
            yield pidfd if is_same and is_member else None
        finally:
            os.close(pidfd)

    def _is_member(self, pid: int, stat: _Stat, group: int | None) -> bool:
        return stat.group == group or self._is_marked(pid) or self._descends(stat)

    def _descends(self, stat: _Stat) -> bool:
        """A parent that ends while we look has left its children to us, and is found at the next look."""
        above: _Stat | None = stat
        while self._top and above is not None and above.parent > 1:
            if above.parent == self._top:
                return True
            above = _stat(above.parent, dead_too=True)
        return False

    def _group(self) -> int | None:
        """The agent's group, while its leader is there, if only as a zombie: later the number may be another's."""
        running = read_process(self._files)
        if running is None or running.agent.boot_id != process.boot_id():
            return None
        leader = _stat(running.agent.pid, dead_too=True)
        is_leader = leader is not None and leader.ticks == running.agent.start_ticks
        return running.group if is_leader else None

    def _is_marked(self, pid: int) -> bool:
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False
        if self._mark not in variables:
            return False
        worktree = next((each for each in variables if each.startswith(b"HOLDFAST_WORKTREE=")), b"")
        if not worktree:
            return False
        place = os.path.realpath(os.fsdecode(worktree.partition(b"=")[2]))
        return os.path.commonpath([place, self._root]) == self._root


class _Stat(msgspec.Struct, frozen=True):
    parent: int
    group: int
    ticks: int


def _stat(pid: int, *, dead_too: bool = False) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The command's name stands in brackets and may hold anything, so the fields are counted from the last bracket.
    fields = text[text.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X") and not dead_too:
        return None
    return _Stat(int(fields[1]), int(fields[2]), int(fields[19]))


def _holds(pid: int, lock: Path) -> bool:
    """Whether the kernel shows the lock, taken for good, in this process's hands; who only asks holds a shared one."""
    with contextlib.suppress(OSError):
        wanted = os.stat(lock)
        for fd in os.listdir(f"/proc/{pid}/fd"):
            # Descriptors come and go while we look.
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(f"/proc/{pid}/fd/{fd}"), wanted):
                    facts = Path(f"/proc/{pid}/fdinfo/{fd}").read_bytes()
                    if any(b"FLOCK" in line and b"WRITE" in line for line in facts.splitlines()):
                        return True
    return False
