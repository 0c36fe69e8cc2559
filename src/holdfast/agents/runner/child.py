"""The agent's process, for its runner: starts, stops and continues it, and watches its pidfd."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from holdfast import identity
from holdfast.clock import monotonic
from holdfast.crashpoints import point
from holdfast.domain.attempt_records import Order
from holdfast.layout import Attempt
from holdfast.processes import bwrap, members
from holdfast.processes.resources import AttemptResources
from holdfast.storage.files import disk
from holdfast.storage.records.attempt_folder import PRIVATE, Running, lock_id

# A process that waits for its vforked child cannot stop, and the child may be stopped by then, so the wait is bounded.
STOPPING_S_MAX = 0.05
STOPPING_POLL_S = 0.001
FREEZING_S_MAX = 1.0
COMPLAINT_BYTES_MAX = 1000


class Child:
    """A process in a group of its own, which inherits the runner's lock. Only `reap` reaps it: until then its pid, and
    so its group's number, is not reused."""

    def __init__(
        self,
        files: Attempt,
        order: Order,
        argv: Sequence[str],
        env: Mapping[str, str],
        lock: int,
        resources: AttemptResources,
        leases: Sequence[int] = (),
    ) -> None:
        """Raises OSError where it cannot be executed. process.json is on disk before the agent's program starts.

        `leases`: descriptors of its ports, which it inherits like the lock.
        """
        runner, self._argv = identity.current(), argv

        self._stopped: list[members.Known] = []
        self._cgroup = resources.group
        cgroup = str(self._cgroup.path) if self._cgroup is not None else ""

        def record_and_join() -> None:
            point("runner.process.before")
            me = identity.current()
            group, held = os.getpgid(0), lock_id(lock)
            running = Running(
                order.attempt, order.start, runner, me, group, intent=order.intent, cgroup=cgroup, lock=held
            )
            disk.replace(files.process, msgspec.json.encode(running) + b"\n", PRIVATE)
            if self._cgroup is not None:
                self._cgroup.join()
            resources.limit_myself()
            point("runner.process.after")

        talks = order.launch.talks
        stdin = None if talks else disk.in_memory(order.launch.stdin.encode())
        try:
            # Nothing but the child's last steps runs between fork and exec, and the runner has no threads.
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE if stdin is None else stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=order.worktree,
                env=env,
                pass_fds=(lock, *leases),
                process_group=0,
                preexec_fn=record_and_join,
                bufsize=0,
            )
        except ValueError as error:
            # A NUL in an argument: like a program that does not exist, it cannot be executed.
            raise OSError(errno.EINVAL, str(error)) from None
        finally:
            if stdin is not None:
                os.close(stdin)
        self.pid = self._process.pid
        self.pidfd = os.pidfd_open(self.pid)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.stdout, self.stderr = self._process.stdout.fileno(), self._process.stderr.fileno()
        os.set_blocking(self.stdout, False)
        os.set_blocking(self.stderr, False)
        if self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)

    _unsent = b""
    _is_reaped = False
    _has_spoken = False
    _complaint = b""

    @property
    def is_sending(self) -> bool:
        """Whether the agent has not taken all that it was sent."""
        return bool(self._unsent)

    def send(self, data: bytes) -> None:
        """Writes to an agent that is spoken with, as much as it takes now; the rest goes with the next call."""
        pipe = self._process.stdin
        self._unsent += data
        if pipe is None or pipe.closed or not self._unsent:
            return
        try:
            # None where it takes nothing now.
            self._unsent = self._unsent[pipe.write(self._unsent) or 0 :]
        except OSError:
            # It has ended, or closed its input: what its end was is seen elsewhere.
            self._unsent = b""

    @property
    def has_ended(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def hang_up(self) -> None:
        """Closes its standard input: it has nothing more to be told."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def heard(self, fd: int, data: bytes) -> None:
        """Keeps its first output on stderr, which may be the sandbox's own."""
        self._has_spoken = self._has_spoken or fd == self.stdout
        self._complaint += data[: max(0, COMPLAINT_BYTES_MAX - len(self._complaint))] if fd == self.stderr else b""

    def not_confined(self, code: int) -> str:
        """The reason why the sandbox could not be made; empty where that did not end it."""
        is_wrapped = self._argv[0] == bwrap.PROGRAM and not self._has_spoken
        return bwrap.own_failure(code, self._complaint) if is_wrapped else ""

    def stop(self) -> None:
        """Stops the group, and waits a moment for its leader to stop."""
        if self._is_reaped:
            return
        self._signal(signal.SIGSTOP)
        deadline = monotonic() + STOPPING_S_MAX
        seen = os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG
        while os.waitid(os.P_PID, self.pid, seen) is None and monotonic() < deadline:
            time.sleep(STOPPING_POLL_S)
        # Also those that have left the agent's process group.
        if self._cgroup is not None:
            self._cgroup.freeze(FREEZING_S_MAX)
            self._cgroup.end_rest()
        else:
            # The runner inherits the children of processes that have ended, so all of them descend from it.
            self._stopped = members.stop_below(os.getpid(), FREEZING_S_MAX)

    def resume(self) -> None:
        if self._cgroup is not None:
            self._cgroup.thaw()
        members.wake(self._stopped)
        self._stopped = []
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if not self._is_reaped:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def reap(self) -> int:
        """Waits for its end; returns its code, or the negative number of the signal that killed it."""
        code = self._process.wait()
        self._is_reaped = True
        os.close(self.pidfd)
        self.hang_up()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        return code


class OutputLines:
    """Splits an agent's output into lines as it comes, in bounded memory.

    `most`: a longer line is no event of any agent. It is kept with the output, but not held here.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._rest: dict[int, bytes] = {}
        self._too_long: set[int] = set()

    def feed(self, fd: int, data: bytes) -> Iterator[bytes | None]:
        """The lines that are complete by now; None once for a line that has become too long."""
        *lines, rest = (self._rest.get(fd, b"") + data).split(b"\n")
        # The caller may stop at a line: then none of it is read again.
        self._rest[fd] = b""
        for line in lines:
            if fd in self._too_long:
                self._too_long.discard(fd)
            else:
                yield line.removesuffix(b"\r") if len(line) <= self.most else None
        if fd not in self._too_long and len(rest) > self.most:
            self._too_long.add(fd)
            yield None
        self._rest[fd] = b"" if fd in self._too_long else rest

    def unended(self) -> list[int]:
        """The descriptors whose last line has no end yet."""
        return [fd for fd, rest in self._rest.items() if rest]
