"""Who is alive in an attempt's folder.

    alive.lock     flocked by the runner, and by the agent, which inherits it; one line of JSON: which start that is,
                   and which process; it changes as often as the runner shows that it is at work
    start-<n>      one line of JSON: who took the start with this number, for which intent, and which process that was
    process.json   the agent's process, written by itself before it became the agent

- A runner takes `alive.lock` first and only then `start-<n>`: who sees a runner's start sees its lock held, too.
- A name is no identity: `t5.1` may be of a journal that was put back from a backup since. So each of these files names
  the journal entry that its start was intended with, and one that names another is of no use to whoever asks for it.
- An attempt is dead only when the lock is free, whatever its files say.
- What is in the folder is the user's text: it is for nobody else to read.
"""

from __future__ import annotations

import fcntl
import os
import time
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import msgspec

from holdfast import identity
from holdfast.clock import Deadline
from holdfast.domain.attempt_records import Exit
from holdfast.errors import AlreadyExists, DiskError
from holdfast.layout import Attempt
from holdfast.storage.files import disk, plain

T = TypeVar("T", bound=msgspec.Struct)

RUNNER, RECOVERY = "runner", "recovery"
POLL_S = 0.02
# Of an attempt's files; its folder has the right to be entered, too.
PRIVATE = 0o600
# More than any of these files has. An agent holds its lock, and so may write to it.
BYTES_MAX = 64 << 20


class Liveness(StrEnum):
    ABSENT = "absent"
    ALIVE = "alive"
    ENDED = "ended"
    DEAD = "dead"
    HEADLESS = "headless"


class Started(identity.Identity, frozen=True):
    """The line in `start-<n>`."""

    who: str
    intent: str = ""


class Sign(identity.Identity, frozen=True):
    """The line in `alive.lock`: whose it is. It is written in place, because the lock is on the inode."""

    start: int


class Running(msgspec.Struct, frozen=True):
    """process.json. `group`: the agent's process group. `cgroup`: its control group, where it has one."""

    attempt: str
    start: int
    runner: identity.Identity
    agent: identity.Identity
    group: int
    intent: str = ""
    cgroup: str = ""
    # The device and inode of the `alive.lock` that it holds: a copy of this file lies beside another.
    lock: str = ""


# -- looking ----------------------------------------------------------------------------------------------------------


def look(files: Attempt, start: int, intent: str = "") -> Liveness:
    """What has become of the attempt's newest start. Without an `intent`, of whichever start has this number."""
    if not files.start(start).exists():
        return Liveness.ABSENT
    owner = read_start(files, start)
    if owner is not None and not is_of(owner, intent):
        return Liveness.ABSENT
    # In this order: a runner that ends between two of these answers is then seen as ended, never as something else.
    is_alive = owner is not None and owner.who == RUNNER and owner.is_alive()
    is_held = not plain.is_free(files.alive)
    if read_exit(files, start, intent) is not None:
        return Liveness.ENDED
    if not is_held:
        return Liveness.DEAD
    return Liveness.ALIVE if is_alive else Liveness.HEADLESS


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


def lock_id(fd_or_path: int | Path) -> str:
    found = os.stat(fd_or_path)
    return f"{found.st_dev}:{found.st_ino}"


def is_lock_of(files: Attempt, running: Running) -> bool:
    """Whether the process that is named held the lock of this very folder, and not of one that it is a copy of."""
    try:
        return running.lock == lock_id(files.alive)
    except FileNotFoundError:
        return False


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


def sign(files: Attempt, start: int, lock: int) -> None:
    """Says in the lock, which is ours, whose signs of life are seen from now on; the first of them is this."""
    me = identity.current()
    disk.rewrite(
        lock, msgspec.json.encode(Sign(me.pid, me.start_ticks, me.boot_id, me.host, start)) + b"\n", files.alive
    )


def beat(files: Attempt) -> None:
    disk.touch(files.alive)


def last_sign(files: Attempt, start: int) -> int | None:
    """The last sign of life of this very start, which another follows while its runner works; None: none yet.

    A sign is told from the next by the file's time of change. That is no time to count from: clocks are set, and
    machines sleep.
    """
    try:
        changed = files.alive.stat().st_mtime_ns
    except FileNotFoundError:
        return None
    found, owner = _read(files.alive, Sign), read_start(files, start)
    if found is None or owner is None or found.start != start:
        return None
    is_owners = (found.pid, found.start_ticks, found.boot_id) == (owner.pid, owner.start_ticks, owner.boot_id)
    return changed if is_owners else None


def _read(path: Path, kind: type[T]) -> T | None:
    """These files appear whole or not at all, so one that cannot be read was damaged: it tells nothing."""
    try:
        return msgspec.json.decode(plain.read(path, BYTES_MAX), type=kind)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None


# -- beginning --------------------------------------------------------------------------------------------------------


def make_folder(files: Attempt) -> None:
    disk.mkdir(files.root.parent)
    disk.mkdir(files.root, 0o700)


def claim_start(files: Attempt, start: int, who: str, intent: str = "") -> bool:
    """Takes the start for good; False: somebody was first, and it is theirs."""
    me = identity.current()
    line = msgspec.json.encode(Started(me.pid, me.start_ticks, me.boot_id, me.host, who, intent=intent)) + b"\n"
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
    deadline = Deadline(timeout_s, POLL_S)
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            disk.sync_folder(files.root)
            return fd
        except BlockingIOError:
            if files.start(start).exists() or deadline.is_over():
                disk.close_lock_file(fd, files.alive)
                return None
            time.sleep(POLL_S)
        except OSError as error:
            raise DiskError(operation="lock", path=files.alive, reason=error.strerror or str(error)) from error
