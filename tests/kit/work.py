"""A repository with tasks to work on, and typing a command on a terminal of its own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from holdfast.layout import Layout
from holdfast.processes import starts
from kit.cli import HOLDFAST, type_in
from kit.disks import wait_for as wait_for
from kit.engine import git as git


def bare_environment(**more: str) -> dict[str, str]:
    """Without settings of this shell, anybody's git identity, and the sandbox, which has tests of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "GIT_", "XDG_"))}
    ours = {name: os.environ[name] for name in ("XDG_CONFIG_HOME", "HOLDFAST_SANDBOX", "HOLDFAST_LIMITS__NICE")}
    return {**kept, "GIT_CONFIG_NOSYSTEM": "1", **ours, **more}


def make_repository(top: Path, *, with_commit: bool = True) -> Path:
    top.mkdir(parents=True, exist_ok=True)
    git(top, "init", "-q", "-b", "main")
    git(top, "config", "user.name", "A Person")
    git(top, "config", "user.email", "person@example.org")
    if with_commit:
        (top / "a").write_text("1\n")
        git(top, "add", "-A")
        git(top, "commit", "-q", "-m", "first")
    return top


def make_work(top: Path, **tasks: str) -> Path:
    """A repository with Holdfast in it, and a task for each script."""
    make_repository(top)
    assert type_in(top, "init").returncode == 0
    for name, script in tasks.items():
        add(top, name, script)
    return top


@pytest.fixture
def repo(tmp_path: Path) -> Iterator[Path]:
    """Agents that a test leaves at work are ended."""
    repo = make_work(tmp_path / "repo")
    yield repo
    for files in map(Layout(repo / ".sdd").attempt_files, os.listdir(repo / ".sdd" / "attempts")):
        starts.end_all(files, files.root.name, None, 0.5)


def add(top: Path, name: str, script: str, more: str = "") -> None:
    steps = "".join(f"  {line}\n" for line in script.splitlines())
    (top / ".sdd" / "backlog" / "open" / f"{name}.yaml").write_text(f"goal: {name}\n{more}script: |\n{steps}")


@contextlib.contextmanager
def started(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command as a process of its own, which is ended at the end; a run serves nobody, which has its own tests."""
    process = subprocess.Popen(
        [*HOLDFAST, *arguments],
        cwd=folder,
        env=bare_environment(HOLDFAST_SERVER__ENABLED="false"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


class Terminal:
    """A command on a pseudo-terminal; `seen` is all that it has written there."""

    def __init__(
        self, folder: Path, *arguments: str, columns: int = 80, rows: int = 24, program: Sequence[str] = HOLDFAST
    ) -> None:
        self._fd, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        env = bare_environment(TERM="xterm-256color")
        env = {name: value for name, value in env.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            [*program, *arguments], cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs, process_group=0
        )
        os.close(theirs)
        self.seen = ""

    def read_until(self, text: str) -> None:
        wait_for(lambda: self._read() and text in self.seen, f"{text!r} is not in {self.seen!r}")

    def end(self) -> int:
        wait_for(lambda: self._read() and self.process.poll() is not None, self.seen)
        self._read()
        return self.process.returncode

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    @property
    def is_raw(self) -> bool:
        """Whether keys reach the program one by one, unseen."""
        return not termios.tcgetattr(self._fd)[3] & (termios.ICANON | termios.ECHO)

    def _read(self) -> bool:
        while select.select([self._fd], [], [], 0)[0]:
            try:
                self.seen += os.read(self._fd, 65536).decode(errors="replace")
            except OSError:
                break
        return True

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._fd)
