"""Blocks of ports, each for one worktree of this user on this machine, over all data roots.

    $XDG_STATE_HOME/holdfast/ports/<first port>     one file for each ten ports; its content is the worktree's path

A block is in use while somebody holds a flock on its files: the orchestrator while it prepares, and every process that
inherits the descriptors, so runner and agent keep it when the orchestrator is killed. The files are never removed. The
path in them only gives a worktree the same block again, as long as there are others.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from holdfast.errors import DiskError, PortsTaken
from holdfast.storage.files import disk, plain

# Below the ports that the kernel gives to outgoing connections.
FIRST, END, STEP = 20_000, 32_000, 10
PATH_BYTES_MAX = 1 << 13
VARIABLE = "HOLDFAST_PORT"


class PortLease(msgspec.Struct, frozen=True):
    """`descriptors` are those of the locks: the lease lasts until all their inheritors have ended."""

    first: int
    count: int
    descriptors: tuple[int, ...]

    def close(self) -> None:
        """Gives up our own part of the lease."""
        for descriptor in self.descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def variables(first: int, count: int) -> dict[str, str]:
    if not count:
        return {}
    return {VARIABLE: str(first), **{f"{VARIABLE}_{number}": str(first + number) for number in range(count)}}


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    state = environ.get("XDG_STATE_HOME", "")
    home = Path(state) if os.path.isabs(state) else Path(os.path.expanduser("~"), ".local", "state")
    return home / "holdfast" / "ports"


def take(place: Path, count: int, owner: Path) -> PortLease:
    """Leases `count` ports in a row: those that `owner` had last, if they are free, or others."""
    try:
        disk.mkdir(place, 0o700)
        for first in _candidates(place, count, str(owner)):
            if (lease := _try(place, first, count, str(owner))) is not None:
                return lease
    except DiskError as error:
        raise PortsTaken(count=count, path=place, reason=str(error)) from error
    raise PortsTaken(count=count, path=place, reason=f"all from {FIRST} to {END - 1} are in use")


def _files(first: int, count: int) -> range:
    return range(first, first + count, STEP)


def _candidates(place: Path, count: int, owner: str) -> Iterator[int]:
    """The owner's own block first, then blocks of nobody, then those of others, which may be free now."""
    owners: dict[int, str] = {}
    for name in os.listdir(place):
        if name.isdigit():
            with contextlib.suppress(OSError):
                owners[int(name)] = os.fsdecode(plain.read(place / name, PATH_BYTES_MAX))
    every = [first for first in range(FIRST, END, STEP) if first + count <= END]
    own = [first for first in every if all(owners.get(each) == owner for each in _files(first, count))]
    free = [first for first in every if not any(owners.get(each) for each in _files(first, count))]
    gone = {first for first, path in owners.items() if path and not os.path.isdir(path)}
    left = [first for first in every if all(not owners.get(each) or each in gone for each in _files(first, count))]
    yield from dict.fromkeys((*own[:1], *free, *left, *every))


def _try(place: Path, first: int, count: int, owner: str) -> PortLease | None:
    held: list[int] = []
    try:
        for number in _files(first, count):
            held.append(disk.open_lock_file(place / str(number), 0o600))
            fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        if all(map(_is_free, range(first, first + count))):
            for descriptor, number in zip(held, _files(first, count), strict=True):
                if os.pread(descriptor, PATH_BYTES_MAX, 0) != os.fsencode(owner):
                    disk.rewrite(descriptor, os.fsencode(owner), place / str(number))
            return PortLease(first, count, tuple(held))
    except BlockingIOError:
        pass
    except BaseException:
        PortLease(first, count, tuple(held)).close()
        raise
    PortLease(first, count, tuple(held)).close()
    return None


def _is_free(port: int) -> bool:
    """Whether no program listens there, of whatever origin."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as asked:
        asked.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            asked.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
