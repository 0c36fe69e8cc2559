"""One owner per data root: `runtime/lock` is flocked for its owner's life, and says inside who that is.

The file holds one JSON line: pid, start_ticks, boot_id, host, run, epoch, since, journal. It is written in place,
because the lock is on the inode and a renamed file would be another lock.

- The kernel's flock alone decides who owns the root; the line is only for messages. A crash may tear it, so of
  what it says only the epoch is used again, and only above the floor that the caller takes from the run files.
- Each owner has a greater epoch than every owner before it, durable before the lock is handed out.
- The descriptor never reaches a child: a lock is free the moment its owner has died, whatever the owner had started.
- Nobody is killed by guess: only a process of this machine and boot, with the very start ticks of the line, that the
  kernel shows with this lock in its hands.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Annotated

import msgspec

from holdfast import identity
from holdfast.clock import monotonic, wall
from holdfast.errors import DiskError, HoldfastError, Locked, TakeOverFailed, TakeOverRefused
from holdfast.storage.files import disk
from holdfast.storage.files.json_file import decode_json
from holdfast.storage.journal.entry import Ref

# A new owner has the lock a moment before its name is in the file; for so long nobody draws conclusions from the line.
NAMING_S = 0.5
POLL_S = 0.005

NameRun = Callable[[int], str]


class Holder(identity.Identity, frozen=True):
    """The line in the lock file. `since` is in Unix seconds.

    `journal`: an entry that was on stable storage when this was written, the last one where the owner let go in order.
    A journal that does not have it was put back from an older backup. `journal_sum` is the hash of `journal`: the file
    is written in place, so that a power cut may leave a line made of two, and that names no entry.
    """

    run: str
    epoch: int
    since: Annotated[float, msgspec.Meta(ge=0, le=253402300799)]
    journal: Ref | None = None
    journal_sum: str = ""

    @property
    def reached(self) -> Ref | None:
        return self.journal if self.journal is not None and self.journal_sum == _sum(self.journal) else None

    def reaching(self, journal: Ref | None) -> Holder:
        return msgspec.structs.replace(self, journal=journal, journal_sum=_sum(journal) if journal else "")


def _sum(journal: Ref) -> str:
    return sha256(msgspec.json.encode(journal)).hexdigest()


@contextlib.contextmanager
def flocked(path: Path, seconds: float, poll_s: float, refusal: HoldfastError) -> Iterator[int]:
    """Holds the flock of a file, and yields its descriptor. Raises `refusal` where others have it for so long."""
    fd, deadline = disk.open_lock_file(path), monotonic() + seconds
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if monotonic() > deadline:
                    raise refusal from None
                time.sleep(poll_s)
        yield fd
    finally:
        disk.close_lock_file(fd, path)


class DataLock:
    """The lock, held until `release` or the end of the process. Dropping the object does not let go."""

    holder: Holder
    # What the file said before.
    before: Holder | None = None
    # The run whose process was killed for it.
    took_over = ""

    def __init__(self, path: Path) -> None:
        """Opens only: get one from `acquire` or `take_over`."""
        self.path = path
        _guard_forks()
        with _gate:
            self._fd = disk.open_lock_file(path)
            _open_locks.add(self)

    @classmethod
    def acquire(cls, path: Path, name_run: NameRun, epoch_min: int = 0) -> DataLock:
        """Takes the lock or raises `Locked`, which names the holder in words and as `identity`.

        The epoch is above the one in the file and above `epoch_min`; `name_run` makes the run's id of it.
        """
        deadline = monotonic() + NAMING_S
        while (lock := cls._try(path)) is None:
            holder = read_holder(path)
            certain = is_held_by(path, holder)
            if certain or monotonic() > deadline:
                raise Locked(path=path, holder=in_words(path, holder), identity=holder, certain=certain)
            time.sleep(POLL_S)
        return lock._signed(name_run, epoch_min)

    @classmethod
    def take_over(cls, path: Path, name_run: NameRun, epoch_min: int = 0, timeout_s: float = 10.0) -> DataLock:
        """Takes the lock, and kills its holder for it if there is one.

        Raises `TakeOverRefused` where the holder is not surely known, with nothing done; `TakeOverFailed` where
        the holder is gone and somebody else has the lock, or where it does not end within `timeout_s`.
        """
        try:
            return cls.acquire(path, name_run, epoch_min)
        except Locked as held:
            found: Holder | None = held.identity
            certain: bool = held.certain
        deadline = monotonic() + timeout_s
        holder = _kill(path, found, certain, timeout_s)
        while (lock := cls._try(path)) is None:
            now = read_holder(path)
            if (now != holder and is_held_by(path, now)) or monotonic() > deadline:
                reason = f"the lock is now held by {in_words(path, now)}"
                raise TakeOverFailed(path=path, holder=_name(holder), reason=reason, identity=now)
            time.sleep(POLL_S)
        signed = lock._signed(name_run, epoch_min)
        signed.took_over = holder.run
        return signed

    @property
    def epoch(self) -> int:
        return self.holder.epoch

    @property
    def run(self) -> str:
        return self.holder.run

    def is_intact(self) -> bool:
        """False once released, or once the lock file was removed or replaced: then another may own the root too."""
        return self._fd >= 0 and disk.is_at(self._fd, self.path)

    def note(self, journal: Ref) -> None:
        """Writes down how far the journal reaches, which is on stable storage."""
        self.holder = self.holder.reaching(journal)
        disk.rewrite(self._fd, msgspec.json.encode(self.holder) + b"\n", self.path)

    def release(self) -> None:
        """Lets go; does nothing when that was done already. The line stays, for its epoch."""
        with _gate:
            fd, self._fd = self._fd, -1
            _open_locks.discard(self)
            if fd >= 0:
                # A child between its fork and its exec still has the descriptor, so closing ours is not enough.
                fcntl.flock(fd, fcntl.LOCK_UN)
                disk.close_lock_file(fd, self.path)

    @classmethod
    def _try(cls, path: Path) -> DataLock | None:
        lock = cls(path)
        try:
            fcntl.flock(lock._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The file may have been removed between the opening and the lock, which is then a lock on nothing.
            if lock.is_intact():
                return lock
        except BlockingIOError:
            pass
        except OSError as error:
            lock.release()
            raise DiskError(operation="lock", path=path, reason=error.strerror or str(error)) from error
        lock.release()
        return None

    def _signed(self, name_run: NameRun, epoch_min: int) -> DataLock:
        """Makes the new epoch and the owner's name durable."""
        try:
            self.before = before = read_holder(self.path)
            epoch = max(before.epoch if before else 0, epoch_min) + 1
            me = identity.current()
            holder = Holder(me.pid, me.start_ticks, me.boot_id, me.host, name_run(epoch), epoch=epoch, since=wall())
            self.holder = holder.reaching(before.reached if before else None)
            disk.rewrite(self._fd, msgspec.json.encode(self.holder) + b"\n", self.path)
            disk.sync_folder(self.path.parent)
        except BaseException:
            self.release()
            raise
        return self

    def __enter__(self) -> DataLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def read_holder(path: Path) -> Holder | None:
    """The process that the file names, lock held or not; None without a whole line (none yet, or torn by a crash)."""
    try:
        line, end, _ = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    return decode_json(line, Holder) if end else None


# -- no child gets the descriptor -------------------------------------------------------------------------------------
# An exec closes it by itself (O_CLOEXEC); a fork without exec closes it here. The gate keeps a fork in one thread from
# falling between the opening and the noting of a descriptor in another.

_gate = threading.RLock()
_open_locks: set[DataLock] = set()
_guarded = False


def _guard_forks() -> None:
    global _guarded
    with _gate:
        if not _guarded:
            _guarded = True
            os.register_at_fork(
                before=_gate.acquire, after_in_parent=_gate.release, after_in_child=_close_in_forked_child
            )


def _close_in_forked_child() -> None:
    # Closing is all: to unlock here would take the lock from the parent.
    for lock in _open_locks:
        fd, lock._fd = lock._fd, -1
        disk.close_lock_file(fd, lock.path)
    _open_locks.clear()
    _gate.release()


# -- the holder -------------------------------------------------------------------------------------------------------


def live_owner(path: Path) -> Holder | None:
    """The process that owns the root now, where that can be found out from here."""
    holder = read_holder(path)
    return holder if is_held_by(path, holder) else None


def is_held_by(path: Path, holder: Holder | None) -> bool:
    """True for a living process of this machine, unless the kernel shows that it has not got the lock."""
    return (
        holder is not None and not _is_foreign(holder) and holder.is_alive() and _holds(holder.pid, path) is not False
    )


def _is_foreign(holder: Holder) -> bool:
    me = identity.current()
    return (holder.host, holder.boot_id) != (me.host, me.boot_id)


def _holds(pid: int, path: Path) -> bool | None:
    try:
        return identity.has_open(pid, os.stat(path), flocked=True)
    except OSError:
        return False


def _found_holders(path: Path) -> str:
    found = [f"pid {pid} ({stat.name})" for pid, stat in sorted(identity.processes().items()) if _holds(pid, path)]
    return " and ".join(found) or "a process that cannot be seen from here"


def _name(holder: Holder) -> str:
    since = datetime.fromtimestamp(holder.since, UTC).isoformat(timespec="seconds")
    return f"pid {holder.pid} (run {holder.run}, epoch {holder.epoch}) on {holder.host} since {since}"


def in_words(path: Path, holder: Holder | None) -> str:
    if holder is None:
        return "a process that has not written its name yet"
    if _is_foreign(holder):
        return f"{_name(holder)}, which cannot be looked at from here"
    if not is_held_by(path, holder):
        return f"{_found_holders(path)}; the file still names {_name(holder)}, which is dead or has let go"
    state = "stopped" if identity.is_stopped(holder.pid) else "alive"
    return f"{_name(holder)}, which is {state}"


# -- ending it --------------------------------------------------------------------------------------------------------


def _kill(path: Path, holder: Holder | None, certain: bool, timeout_s: float) -> Holder:
    """Ends the holder and waits until it is gone. One that was `certain`, and has ended or let go since, is spared."""

    def refuse(reason: str) -> TakeOverRefused:
        return TakeOverRefused(path=path, holder=in_words(path, holder), reason=reason, identity=holder)

    if holder is None:
        raise refuse("the lock file does not say who it is")
    reason = _reason_to_spare(path, holder)
    if reason is not None and not (certain and not is_held_by(path, holder)):
        raise refuse(reason)
    try:
        pidfd = os.pidfd_open(holder.pid)
    except ProcessLookupError:
        return holder
    except OSError as error:
        raise refuse(f"it cannot be addressed ({error.strerror})") from error
    try:
        # From here on the descriptor means one process for good; only now it is certain that it is the holder.
        if _reason_to_spare(path, holder) is None:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            if not poll.poll(timeout_s * 1000):
                reason = f"it has not ended within {timeout_s:g} s"
                raise TakeOverFailed(path=path, holder=_name(holder), reason=reason, identity=holder)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise refuse("it belongs to another user") from error
    finally:
        os.close(pidfd)
    return holder


def _reason_to_spare(path: Path, holder: Holder) -> str | None:
    here = identity.current()
    if holder.host != here.host:
        return f"it was started on another host or in another container ({holder.host}; this is {here.host})"
    if holder.boot_id != here.boot_id:
        return "it was started on another machine of that name, or before this machine's last start"
    if (holder.pid, holder.start_ticks) == (here.pid, here.start_ticks):
        return "it is this very process"
    if not holder.is_alive():
        return f"the process named in the file is not alive; the lock is in the hands of {_found_holders(path)}"
    if not _holds(holder.pid, path):
        return f"the kernel does not show the lock in its hands, but in those of {_found_holders(path)}"
    return None
