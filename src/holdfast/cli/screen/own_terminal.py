"""Runs a program in a terminal of its own, shown in the person's.

The program gets a new pseudo-terminal. What it might push into the input of its terminal (TIOCSTI) reaches only itself,
never the shell of the person.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType

READ_BYTES = 1 << 16
# After the program has ended, what it wrote last is read until nothing more comes for so long.
LAST_S = 0.1


def run_in_own_terminal(
    argv: Sequence[str], folder: str, env: Mapping[str, str], inherited: Sequence[int], on_end: Callable[[int], None]
) -> int:
    """Returns the program's exit code. SIGHUP, SIGTERM and SIGINT from elsewhere end the program, not this process.

    `inherited`: descriptors that the program keeps. `on_end` is called with the pid of a program that shall end.
    """
    master, slave = pty.openpty()
    _copy_size(master)
    process = subprocess.Popen(
        argv,
        cwd=folder,
        env=env,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        pass_fds=tuple(inherited),
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(slave)

    def end(number: int, frame: FrameType | None) -> None:
        on_end(process.pid)

    before = {number: signal.signal(number, end) for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)}
    before[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda *_: _copy_size(master))
    try:
        with _raw(sys.stdin.fileno()):
            _copy(master, process)
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(master)


def _copy_size(master: int) -> None:
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(sys.stdin.fileno(), termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(master, termios.TIOCSWINSZ, size)


@contextlib.contextmanager
def _raw(terminal: int) -> Iterator[None]:
    """Every key goes to the program, Ctrl-C too."""
    before = termios.tcgetattr(terminal)
    try:
        # What was typed ahead is kept.
        tty.setraw(terminal, termios.TCSADRAIN)
        yield
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _copy(master: int, process: subprocess.Popen[bytes]) -> None:
    pidfd, stdin, stdout = os.pidfd_open(process.pid), sys.stdin.fileno(), sys.stdout.fileno()
    sources = [master, stdin, pidfd]
    try:
        while True:
            is_over = pidfd not in sources
            ready = select.select(sources, [], [], LAST_S if is_over else None)[0]
            if is_over and not ready:
                return
            if pidfd in ready:
                # Only what it wrote last is left to be read.
                sources = [master]
                continue
            if master in ready and not _pass_on(master, stdout):
                return
            if stdin in ready and not _pass_on(stdin, master):
                sources.remove(stdin)
    finally:
        os.close(pidfd)


def _pass_on(source: int, target: int) -> bool:
    """Copies what is there; False at the end."""
    try:
        data = os.read(source, READ_BYTES)
        with io.FileIO(target, "w", closefd=False) as terminal:
            rest = data
            while rest:
                rest = rest[terminal.write(rest) or 0 :]
    except OSError:
        return False
    return bool(data)
