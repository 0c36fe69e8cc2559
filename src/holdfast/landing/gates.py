"""Runs one gate, and ends all of its processes.

A gate is a command in the scratch worktree, in a process group of its own, at the `limits.nice` of the settings, with
nothing to read and only a few variables of ours. It inherits a flock on the attempt's `gates.lock`, so that after a
crash the next orchestrator finds it. When it has ended, or its time is over, everything that it started is ended too:
a process belongs to the gate when it is in its control group, which `gates.lock` names, or in its process group, when
its environment says so (`HOLDFAST_GATE`, and the scratch worktree of this data root), or when it holds the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.clock import Deadline, monotonic
from holdfast.domain.attempt_records import Resources
from holdfast.errors import BlobCorrupt, BlobMissing, GateStuck, NotABlobId, SandboxFailed
from holdfast.layout import Attempt
from holdfast.processes import bwrap, cgroups, members
from holdfast.processes.resources import reached
from holdfast.storage.files import disk, plain
from holdfast.storage.records import attempt_folder, redact
from holdfast.storage.records.blobs import Blobs

Outcome = Literal["passed", "failed", "timed_out", "not_run"]

OUTPUT_BYTES_MAX = 4 << 20
# How much of its end is shown.
TAIL_BYTES_MAX = 64 << 10
TIMEOUT_S = 600.0
GRACE_S = 5.0
KILL_WAIT_S_MAX = 30.0
POLL_S = 0.02
# How often the clock is read while a gate runs, so that a pause of our own process is noticed.
LOOK_S = 1.0
PASSED_ON = ("PATH", "HOME", "LANG", "TERM", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL")
# Joins the control group, if it can, and becomes the gate: with other threads running, only the new process can do it.
_JOIN = 'while [ "$1" != -- ]; do { echo 0 > "$1"; } 2>/dev/null; shift; done; shift; exec "$@"'
_NOT_FOUND = 127
PATH_BYTES_MAX = 1 << 16


class Gate(msgspec.Struct, frozen=True):
    """A command that judges. `required`: its failure stops the landing. `repeatable`: a crash may rerun it."""

    name: str
    command: str | tuple[str, ...]
    timeout_s: float = TIMEOUT_S
    required: bool = True
    repeatable: bool = True

    def without_run(self, outcome: Outcome, *, told: bool = False) -> GateRun:
        """The result that is recorded for a gate that was not run."""
        return GateRun(name=self.name, outcome=outcome, command=self.command, required=self.required, told=told)


class GateRun(msgspec.Struct, frozen=True, kw_only=True):
    """`output` is a blob: stdout and stderr as they came. `code` is as a shell counts it, None where it has none.
    `told`: it did not run, and counts as passed because a person said so."""

    name: str
    outcome: Outcome
    command: str | tuple[str, ...]
    code: int | None = None
    output: str = ""
    seconds: float = 0.0
    required: bool = True
    told: bool = False


class GatePlace(msgspec.Struct, frozen=True):
    """The place of the gates and their owner. `lock`: the descriptor that they inherit. `confine`: wraps a command line
    into a sandbox, if there is one. `cgroup`: the control group that they run in. `resources`: what they may use
    together. `variables`: those that it was prepared with. `leases`: descriptors of its ports, to be inherited.
    `is_hook`: its commands prepare a worktree, and have a lock of their own. `is_wanted`: asked now and then; once it
    is false, the command is ended as if its time were over."""

    task: str
    attempt: str
    files: Attempt
    folder: Path
    lock: int = -1
    grace_s: float = GRACE_S
    confine: Callable[[Sequence[str]], Sequence[str]] | None = None
    cgroup: cgroups.Group | None = None
    resources: Resources = cgroups.NO_LIMITS
    variables: Mapping[str, str] = {}
    leases: tuple[int, ...] = ()
    is_hook: bool = False
    is_wanted: Callable[[], bool] = lambda: True

    @property
    def lock_file(self) -> Path:
        return self.files.hooks_lock if self.is_hook else self.files.gates_lock

    def environment(self, passed_on: tuple[str, ...]) -> dict[str, str]:
        names = {*PASSED_ON, *passed_on, *(name for name in os.environ if name.startswith("LC_"))}
        kept = {name: os.environ[name] for name in sorted(names) if name in os.environ}
        ours = {"TASK": self.task, "ATTEMPT": self.attempt, "GATE": self.attempt, "WORKTREE": str(self.folder)}
        return {**kept, **self.variables, **{f"HOLDFAST_{name}": value for name, value in ours.items()}}


def output_lines(blobs: Blobs, result: GateRun) -> list[str]:
    """The end of the gate's output; empty where there is none, or it is gone."""
    try:
        return blobs.get(result.output)[-TAIL_BYTES_MAX:].decode(errors="replace").splitlines() if result.output else []
    except (BlobMissing, BlobCorrupt, NotABlobId):
        return []


# -- running ----------------------------------------------------------------------------------------------------------


def run(gate: Gate, place: GatePlace, blobs: Blobs, passed_on: tuple[str, ...] = ()) -> GateRun:
    """Runs the gate to its end, and then ends everything that it started."""
    began = monotonic()
    argv: Sequence[str] = ["sh", "-c", gate.command] if isinstance(gate.command, str) else list(gate.command)
    argv = place.confine(argv) if place.confine is not None else argv
    kept = _Kept()
    code: int | None
    try:
        child = _start_process(argv, place, place.environment(passed_on))
    except OSError as error:
        kept.add(f"{argv[0]} cannot be run: {error.strerror or error}\n".encode())
        code, in_time = _NOT_FOUND, True
    else:
        in_time, code = _see_through(child, place, Deadline(gate.timeout_s, LOOK_S), kept)
        if place.confine is not None and (why := bwrap.own_failure(code if in_time else None, kept.content())):
            raise SandboxFailed(reason=why)
    seconds = round(monotonic() - began, 3)
    output = blobs.put(kept.content(), content_type="text/plain", metadata={"gate": gate.name[:100]})
    outcome: Outcome = "timed_out" if not in_time else "passed" if code == 0 else "failed"
    return GateRun(
        name=gate.name,
        outcome=outcome,
        command=gate.command,
        code=code if in_time else None,
        output=output,
        seconds=seconds,
        required=gate.required,
    )


def _start_process(argv: Sequence[str], place: GatePlace, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        _wrapped(argv, place, env),
        cwd=place.folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        pass_fds=(place.lock, *place.leases),
        process_group=0,
    )


def _wrapped(argv: Sequence[str], place: GatePlace, env: Mapping[str, str]) -> Sequence[str]:
    """The command line that first makes the gate nice, and part of its control group: gates may use every core, and the
    journal's sync must not wait for them. Unchanged where the command cannot be run anyway."""
    program = str(place.folder / argv[0]) if "/" in argv[0] else argv[0]
    if shutil.which(program, path=env.get("PATH")) is None:
        return argv
    if nice := (shutil.which("nice") or shutil.which("nice", path=os.defpath)):
        argv = [nice, "-n", str(place.resources.nice), *argv]
    if place.cgroup is None:
        return argv
    # The gate before this one was ended, and the control group with it.
    group = cgroups.make(place.files, place.attempt, cgroups.GATES, place.resources)
    doors = group.doors(cgroups.GATES) if group is not None else []
    return ["/bin/sh", "-c", _JOIN, "sh", *map(str, doors), "--", *argv]


def _see_through(child: subprocess.Popen[bytes], place: GatePlace, deadline: Deadline, kept: _Kept) -> tuple[bool, int]:
    """Waits: whether it ended by itself in time, and its code. Reaped last, so that its group stays its own."""
    assert child.stdout is not None
    pipe = child.stdout.fileno()
    os.set_blocking(pipe, False)
    with child.stdout:
        in_time = _watch(child.pid, pipe, deadline, kept, place.is_wanted)
        over = reached(place.cgroup, place.resources)
        end(place, child.pid)
        kept.drain(pipe)
        if over is not None:
            kept.add(f"\n[holdfast: over a limit: {over.told}]\n".encode())
    code = child.wait()
    return in_time, code if code >= 0 else 128 - code


def _watch(pid: int, pipe: int, deadline: Deadline, kept: _Kept, is_wanted: Callable[[], bool]) -> bool:
    """Reads the gate's output until it has ended; False when its time was over before."""
    pidfd = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.register(pipe, select.POLLIN)
        while (left_s := deadline.left_s()) and is_wanted():
            ready = {fd for fd, _ in poll.poll(min(left_s, LOOK_S) * 1000)}
            if pipe in ready and not kept.drain(pipe, once=True):
                poll.unregister(pipe)
            if pidfd in ready:
                return True
        return False
    finally:
        os.close(pidfd)


class _Kept:
    """The first and the last part of the output; the part between them is only counted."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0
        self._flow = redact.Flow(redact.usual())

    def add(self, data: bytes) -> None:
        """Removes secrets before the output is cut: half of one would not be recognised."""
        self._keep(self._flow.feed(data))

    def _keep(self, data: bytes) -> None:
        half = OUTPUT_BYTES_MAX // 2
        room = half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        # Cut seldom: each cut moves the rest in memory.
        if len(self._tail) > 2 * half:
            self._cut(half)

    def drain(self, pipe: int, *, once: bool = False) -> bool:
        """Reads what is there; False at its end."""
        while True:
            try:
                data = os.read(pipe, 1 << 16)
            except BlockingIOError:
                return True
            self.add(data)
            if once or not data:
                return bool(data)

    def content(self) -> bytes:
        self._keep(self._flow.rest())
        self._cut(OUTPUT_BYTES_MAX // 2)
        gap = f"\n[holdfast: {self._dropped} bytes are left out here]\n".encode() if self._dropped else b""
        return bytes(self._head) + gap + bytes(self._tail)

    def _cut(self, size: int) -> None:
        surplus = max(len(self._tail) - size, 0)
        del self._tail[:surplus]
        self._dropped += surplus


# -- ending -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def locked(place: GatePlace) -> Iterator[GatePlace]:
    """Yields the place with the lock held. First ends what an earlier orchestrator left running there."""
    path = place.lock_file
    attempt_folder.make_folder(place.files)
    fd = disk.open_lock_file(path, attempt_folder.PRIVATE)
    try:
        end(place)
        deadline = Deadline(KILL_WAIT_S_MAX, POLL_S + place.grace_s)
        while not _try_lock(fd):
            end(place)
            if deadline.is_over():
                raise GateStuck(attempt=place.attempt, processes="a process that cannot be seen from here")
            time.sleep(POLL_S)
        cgroup = cgroups.make(place.files, place.attempt, cgroups.GATES, place.resources)
        try:
            disk.rewrite(fd, os.fsencode(cgroup.path) + b"\n" if cgroup is not None else b"", path)
            yield msgspec.structs.replace(place, lock=fd, cgroup=cgroup)
        finally:
            if cgroup is not None:
                cgroup.remove()
    finally:
        disk.close_lock_file(fd, path)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def end(place: GatePlace, group: int = 0) -> None:
    """Ends every process of the gate, and returns when none is left."""
    # Two data roots may each have an attempt of this name, but not this folder.
    wanted = {b"HOLDFAST_GATE": os.fsencode(place.attempt), b"HOLDFAST_WORKTREE": os.fsencode(place.folder)}

    def marked(variables: Mapping[bytes, bytes]) -> bool:
        return all(variables.get(name) == value for name, value in wanted.items())

    def cgroup() -> cgroups.Group | None:
        try:
            named = plain.read(place.lock_file, PATH_BYTES_MAX)
        except OSError:
            return None
        return cgroups.own(place.files, os.fsdecode(named).removesuffix("\n"), cgroups.GATES)

    signs = members.Signs(marked, place.lock_file, lambda: group or None, cgroup, spares_children=True)
    if left := members.end(signs, place.grace_s, KILL_WAIT_S_MAX):
        raise GateStuck(attempt=place.attempt, processes=", ".join(f"process {pid}" for pid in left))
