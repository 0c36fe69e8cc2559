"""The real `holdfast`: typed in this process, as a process of its own, or on a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from click.testing import CliRunner

from holdfast.cli.commands import run
from kit.waiting import wait_for

HOLDFAST = [sys.executable, "-m", "holdfast"]
# The sandbox has tests of its own; elsewhere it would only cost each start some time.
# Nor do agents give way to all else: on a busy machine they would come to nothing for minutes.
_EVERYWHERE = {"HOLDFAST_SANDBOX": "none", "HOLDFAST_LIMITS__NICE": "0"}
# Nor has a run a server, which has its tests, too.
QUICK = {"HOLDFAST_SERVER__ENABLED": "false", **_EVERYWHERE}


# What a command that only looks has no use for, and what takes long to load.
SLOW_LIBRARIES = {
    "yaml", "difflib", "holdfast.storage.records.blobs", "holdfast.snapshots.snapshots", "holdfast.engine",
}  # fmt: skip


class Typed(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def type_in(
    folder: Path, *arguments: str, stdin: str | IO[bytes] = "", environ: Mapping[str, str | None] | None = None
) -> Typed:
    """What a person would see, without the price of a process. Settings of this shell do not reach the command."""
    ours: dict[str, str | None] = {
        name: None for name in os.environ if name.startswith("HOLDFAST_") and name not in _EVERYWHERE
    }
    code: str | int | None = None
    with CliRunner().isolation(stdin, {**ours, **(environ or {})}) as (out, err, _), contextlib.chdir(folder):
        try:
            run(arguments)
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int)
    return Typed(code, out.getvalue().decode(), err.getvalue().decode())


class Beforehand(io.BytesIO):
    """Standard input that does something at the moment it is read: after the command has looked around."""

    def __init__(self, content: bytes, act: Callable[[], object]) -> None:
        super().__init__(content)
        self._act = act
        self.acted = False

    def read(self, size: int | None = -1, /) -> bytes:
        # Reading nothing is how click finds out what kind of stream it has.
        if size != 0 and not self.acted:
            self.acted = True
            self._act()
        return super().read(size)


def loaded_by(folder: Path, *arguments: str, **env: str) -> set[str]:
    """The modules that a command loads."""
    script = (
        "import sys; from holdfast.cli.main import work\ntry: work()\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    asked = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(asked, cwd=folder, env={**os.environ, **env}, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def environment(repo: Path, **more: str) -> dict[str, str]:
    """Without settings of this shell, and without anybody's git identity."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "GIT_"))}
    return {**kept, "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(repo.parent), **QUICK, **more}


def holdfast(repo: Path, *args: str, code: int | None = 0, env: Mapping[str, str] = {}, stdin: str = "") -> str:
    """Runs the command to its end and returns what it printed: in this process, unless it has settings of its own."""
    if env or "--detach" in args:
        done = subprocess.run(
            [*HOLDFAST, *args],
            cwd=repo, env=environment(repo, **env), input=stdin, capture_output=True, text=True, timeout=300,
            check=False,
        )  # fmt: skip
        typed = Typed(done.returncode, done.stdout, done.stderr)
    else:
        others = dict.fromkeys(name for name in os.environ if name.startswith("GIT_"))
        typed = type_in(repo, *args, stdin=stdin, environ={**others, "HOME": str(repo.parent), **QUICK})
    if code is not None:
        assert typed.returncode == code, f"{args}: {typed.returncode}\n{typed.stdout}\n{typed.stderr}"
    return typed.stdout + typed.stderr


def start(repo: Path, *args: str, stderr: int = subprocess.STDOUT, **env: str) -> subprocess.Popen[str]:
    """Starts the command as a process of its own."""
    return subprocess.Popen(
        [*HOLDFAST, *args],
        cwd=repo, env=environment(repo, **env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
        text=True,
    )  # fmt: skip


def begin(repo: Path, *args: str, **env: str) -> subprocess.Popen[str]:
    """Begins `holdfast run` and returns its process."""
    return start(repo, "run", "--plain", *args, **env)


@contextlib.contextmanager
def started(repo: Path, *args: str) -> Iterator[subprocess.Popen[str]]:
    """The command as a process of its own, which is ended at the end."""
    process = start(repo, *args, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


class Terminal:
    """A command on a pseudo-terminal; `seen` is all that it has written there."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        columns: int = 80,
        rows: int = 24,
        program: Sequence[str] = HOLDFAST,
        env: Mapping[str, str] = {},
    ) -> None:
        self._fd, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        given = environment(folder, TERM="xterm-256color", HOLDFAST_SERVER__ENABLED="true", **env)
        env = {name: value for name, value in given.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
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
