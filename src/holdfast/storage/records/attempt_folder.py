"""An attempt's folder: tells whether the attempt is alive.

    alive.lock     flocked by the runner, and by the agent, which inherits it; one line of JSON: the start and the
                   process that hold it; the runner touches it as a heartbeat
    start-<n>      one line of JSON: the claimant of the start with this number, its intent and its process
    process.json   the agent's process, written by itself before it became the agent

- A runner takes `alive.lock` first and only then `start-<n>`: a reader that sees a runner's start sees its lock held.
- A name is no identity: `t5.1` may belong to a journal that was restored from a backup since. So each of these files
  names the journal entry that its start was intended with, and readers ignore one that names another.
- An attempt is dead only when the lock is free, whatever its files say.
- The folder holds the user's text, so only its owner may read it.
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
from holdfast.domain.attempt_records import Exit, InboxFile
from holdfast.errors import AlreadyExists, DiskError
from holdfast.layout import Attempt
from holdfast.storage.files import disk, plain
from holdfast.storage.files.json_file import decode_json

T = TypeVar("T", bound=msgspec.Struct)

RUNNER, RECOVERY = "runner", "recovery"
POLL_S = 0.02
# The mode of an attempt's files; its folder also has the execute permission.
PRIVATE = 0o600
# More than any of these files has. An agent inherits its lock, and so may write to it.
BYTES_MAX = 64 << 20


class Liveness(StrEnum):
    """The state of one start of an attempt, as found.

    ABSENT: there is no such start. ALIVE: its runner lives. ENDED: `exit.json` says how. DEAD: the lock is free and
    nothing was said, also after a reboot. HEADLESS: the runner is dead, and a process of its agent holds the lock.
    """

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
    """The line in `alive.lock`: its holder. It is written in place, because the lock is on the inode."""

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
    # The device and inode of the `alive.lock` that it holds: a copied folder has another one.
    lock: str = ""


# -- reading ----------------------------------------------------------------------------------------------------------


def liveness(files: Attempt, start: int, intent: str = "") -> Liveness:
    """The state of the attempt's newest start. Without an `intent`, of whichever start has this number."""
    if not files.start(start).exists():
        return Liveness.ABSENT
    owner = read_start(files, start)
    if owner is not None and not is_of(owner, intent):
        return Liveness.ABSENT
    # In this order: a runner that ends between two of these reads then counts as ended, never as something else.
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
    """Reads how that very start ended; None while it has not, and where the file is about another one."""
    found = last_exit(files)
    return found if found is not None and found.start == start and is_of(found, intent) else None


def is_of(found: Started | Running | Exit, intent: str) -> bool:
    """Whether a file belongs to the start that was intended with this entry; yes where the intent is unknown."""
    return not intent or found.intent == intent


def lock_id(fd_or_path: int | Path) -> str:
    found = os.stat(fd_or_path)
    return f"{found.st_dev}:{found.st_ino}"


def is_lock_of(files: Attempt, running: Running) -> bool:
    """Whether the named process held the lock of this very folder, and not of the original of a copy."""
    try:
        return running.lock == lock_id(files.alive)
    except FileNotFoundError:
        return False


def last_start(files: Attempt) -> int:
    """The number of the newest start; 0 where there was none."""
    return max(_starts(files), default=0)


def _starts(files: Attempt) -> list[int]:
    numbers = (path.name.removeprefix("start-") for path in files.root.glob("start-*"))
    return sorted(int(number) for number in numbers if number.isdigit())


def strangers(files: Attempt, start: int, intent: str) -> list[Path]:
    """Files in the way of a start that belong to none that the journal has: of a later one, or of another one with its
    number. If the first start of an attempt is affected, the whole folder is."""
    taken = ((files.start(number), read_start(files, number)) for number in _starts(files) if number >= start)
    told = ((files.exit, last_exit(files)), (files.process, read_process(files)))
    found = [path for path, each in taken if each is not None and each.intent != intent]
    found += [path for path, each in told if each is not None and each.start >= start and each.intent != intent]
    return [files.root] if found and start == 1 else found


def last_exit(files: Attempt) -> Exit | None:
    """Reads how the newest ended start ended."""
    return _read(files.exit, Exit)


def read_inbox(files: Attempt) -> InboxFile | None:
    """Reads what a person has told the agent of a start."""
    return _read(files.inbox, InboxFile)


def write_inbox(files: Attempt, inbox: InboxFile) -> None:
    disk.replace(files.inbox, msgspec.json.encode(inbox) + b"\n", PRIVATE)


def sign(files: Attempt, start: int, lock: int) -> None:
    """Writes into the lock, which is ours, whose heartbeats follow; this is the first of them."""
    me = identity.current()
    disk.rewrite(
        lock, msgspec.json.encode(Sign(me.pid, me.start_ticks, me.boot_id, me.host, start)) + b"\n", files.alive
    )


def beat(files: Attempt) -> None:
    disk.touch(files.alive)


def last_sign(files: Attempt, start: int) -> int | None:
    """The last heartbeat of this very start, which another follows while its runner works; None: none yet.

    The file's time of change tells one heartbeat from the next. It is no time to count from: clocks are set, and
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
    """Reads like `read_json`, in a folder where the agent can write."""
    try:
        return decode_json(plain.read(path, BYTES_MAX), kind)
    except FileNotFoundError:
        return None


# -- beginning --------------------------------------------------------------------------------------------------------


def make_folder(files: Attempt) -> None:
    disk.mkdir(files.root.parent)
    disk.mkdir(files.root, 0o700)


def claim_start(files: Attempt, start: int, who: str, intent: str = "") -> bool:
    """Claims the start for good; False: another process was first."""
    me = identity.current()
    line = msgspec.json.encode(Started(me.pid, me.start_ticks, me.boot_id, me.host, who, intent=intent)) + b"\n"
    make_folder(files)
    try:
        disk.create(files.start(start), line, PRIVATE)
    except AlreadyExists:
        return False
    return True


def lock_alive(files: Attempt, start: int, timeout_s: float) -> int | None:
    """The descriptor that holds `alive.lock`; None: the start is claimed already, or the lock did not come free."""
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
