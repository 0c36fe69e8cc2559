"""A control group for each start of an attempt, and one for the gates that judge it, where the machine has one to give:
nothing in it can get out unseen.

An agent inherits its group whatever it does to its session, its environment and its descriptors, so its members are
known when all else is gone. Both versions are served, with what is mounted and writable; nothing is ever mounted:

    version 2      a folder below our own group; `cgroup.freeze` and `cgroup.kill`
    version 1      the freezer's hierarchy; `freezer.state`, and a signal to each while they are frozen

In an attempt's group are two: `agent`, which is frozen while a snapshot is taken, and `git`, with the gits of ours that
take it. What they may use together is bounded (`controllers`). Where there is neither version, groups are not used.
What we write here is the kernel's, and on no disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import time
from pathlib import Path

import msgspec

from holdfast.clock import monotonic
from holdfast.domain.attempt_records import Resources
from holdfast.errors import DiskError
from holdfast.layout import Attempt, Layout
from holdfast.processes import controllers
from holdfast.storage.files import disk
from holdfast.storage.records import attempt_folder

POLL_S = 0.001
GATES = "gates"
AGENT, GIT = "agent", "git"
NO_LIMITS = Resources()


class Group(msgspec.Struct, frozen=True):
    """A group by its folder. `limiting`: groups of the same name in hierarchies of version 1 that only hold limits."""

    path: Path
    limiting: tuple[Path, ...] = ()

    @property
    def _is_new(self) -> bool:
        return (self.path / "cgroup.kill").exists()

    def join(self, part: str = AGENT) -> None:
        """Puts this process in, and whatever it becomes. Where it may be made and not joined, all is as without one."""
        for file in self.doors(part):
            with contextlib.suppress(DiskError):
                disk.write_kernel_file(file, b"0")

    def doors(self, part: str = AGENT) -> list[Path]:
        """The files by which a process comes in: a process that writes 0 to one is in."""
        return [folder / "cgroup.procs" for folder in (self._inner(part), *self.limiting)]

    def _inner(self, part: str) -> Path:
        return inner if (inner := self.path / part).is_dir() else self.path

    @property
    def held(self) -> frozenset[str]:
        """The controllers whose limits hold for it."""
        return controllers.held((self.path, *self.limiting))

    def reached(self) -> dict[str, int]:
        """Counts how often each of its limits was reached."""
        return controllers.reached((self.path, *self.limiting))

    def members(self) -> list[int]:
        """Also those that are in groups below it."""
        pids: list[int] = []
        for folder, _, _ in os.walk(self.path):
            with contextlib.suppress(OSError):
                pids += map(int, Path(folder, "cgroup.procs").read_text().split())
        # A process of another pid namespace is listed as 0.
        return [pid for pid in pids if pid]

    def end_rest(self) -> None:
        """Kills what a git of ours has left behind."""
        for pid in Group(self.path / GIT).members():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def freeze(self, wait_s: float) -> None:
        """Stands the agent's still, and gives them the moment that it takes; there is no waking one by a signal."""
        with contextlib.suppress(DiskError):
            self._set_frozen(True)
            deadline = monotonic() + wait_s
            while not self._is_frozen() and monotonic() < deadline:
                time.sleep(POLL_S)

    def thaw(self) -> None:
        with contextlib.suppress(DiskError):
            self._set_frozen(False)

    def kill(self) -> None:
        """Kills all at once, those that come while we look too."""
        with contextlib.suppress(DiskError):
            if self._is_new:
                disk.write_kernel_file(self.path / "cgroup.kill", b"1")
                return
        self.freeze(1.0)
        for pid in self.members():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self.thaw()

    def remove(self) -> None:
        """Removes it where nobody is left in it."""
        for top in (self.path, *self.limiting):
            for folder, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(DiskError):
                    disk.remove_group(Path(folder))

    def _set_frozen(self, frozen: bool) -> None:
        if self._is_new:
            disk.write_kernel_file(self._inner(AGENT) / "cgroup.freeze", b"1" if frozen else b"0")
        else:
            disk.write_kernel_file(self._inner(AGENT) / "freezer.state", b"FROZEN" if frozen else b"THAWED")

    def _is_frozen(self) -> bool:
        try:
            if self._is_new:
                return "frozen 1" in (self._inner(AGENT) / "cgroup.events").read_text()
            return (self._inner(AGENT) / "freezer.state").read_text().strip() == "FROZEN"
        except OSError:
            return True


def make(files: Attempt, attempt: str, part: int | str, resources: Resources = NO_LIMITS) -> Group | None:
    """A group for this start, or for the gates, alone; None where there is none to be had."""
    name = name_of(files, attempt, part)
    if (own := controllers.place("")) is not None:
        controllers.hand_on(own)
    for home in homes():
        group = Group(home / name)
        if group.path.is_dir():
            # A data root that stood at the same path may have left it, frozen, with an agent in it. A process that came
            # in would freeze with it, and the agent, woken, would write to this one's worktree. The caller is the only
            # one of this name.
            if part != GATES:
                group.kill()
            group.thaw()
        try:
            disk.make_group(group.path)
            for inner in () if part == GATES else (AGENT, GIT):
                disk.make_group(group.path / inner)
        except DiskError:
            group.remove()
            continue
        if any((group.path / file).exists() for file in ("cgroup.kill", "freezer.state")):
            controllers.set_new(group.path, resources)
            return Group(group.path, controllers.make_old(name, resources))
        group.remove()
    return None


def name_of(files: Attempt, attempt: str, part: int | str) -> str:
    """Another data root's attempt of the same name has another."""
    return f"{_prefix(files.root.parent.parent)}{attempt}-{part}"


def own(files: Attempt, path: str, part: int | str) -> Group | None:
    """The group that a file of the attempt names, if it is its own, and the kernel's: agents and gates may write to
    that file, and make a folder of that name in which any process is named."""
    found = Path(path)
    return _whole(found) if found.name == name_of(files, files.root.name, part) and _is_of_kernel(found) else None


def _is_of_kernel(path: Path) -> bool:
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return False
    tops = [mount[1] for mount in mounts if mount[2] in ("cgroup", "cgroup2")]
    return os.path.realpath(path) == str(path) and any(path.is_relative_to(top) for top in tops)


def _whole(path: Path) -> Group:
    """With its parts in other hierarchies."""
    beside = (home / path.name for home in controllers.old_homes().values())
    return Group(path, tuple(folder for folder in beside if folder != path and folder.is_dir()))


def _prefix(root: Path) -> str:
    return f"holdfast-{hashlib.sha256(os.fsencode(os.path.realpath(root))).hexdigest()[:12]}-"


def sweep(layout: Layout) -> None:
    """Removes the empty groups of this data root whose maker died before it could say that it had one.

    The caller owns the root and runs no gate.
    """
    prefix = _prefix(layout.root)
    for home in homes():
        for path in home.glob(f"{prefix}*"):
            attempt, _, start = path.name.removeprefix(prefix).rpartition("-")
            runner = attempt_folder.read_start(layout.attempt_files(attempt), int(start)) if start.isdigit() else None
            # Nobody else makes one; and a runner that lives may be about to join it.
            is_left = start == GATES or (runner is not None and not runner.is_alive())
            if is_left and not Group(path).members():
                _whole(path).remove()


def homes() -> list[Path]:
    """The folders in which groups can be made, the better ones first: our own groups, where they are writable; before
    them one above our own where groups have limits."""
    own, freezer = controllers.place(""), controllers.place("freezer")
    found = [controllers.above(own), own] if own is not None else []
    return list(dict.fromkeys(path for path in (*found, freezer) if path is not None and controllers.is_open(path)))


def in_words() -> str:
    """The kind of control groups here, in words, for `doctor`."""
    found = homes()
    if not found:
        return "none is writable here: an agent that hides from its runner may outlive it"
    version = 2 if (found[0] / "cgroup.controllers").exists() else 1
    return f"version {version}, below {found[0]}"
