"""A person's terminal: one bash on a pseudo-terminal, and the blocks of a page to type there.

A block is fenced as `console`. A line that begins with `$ ` is typed, with the `> ` lines behind it; the lines below
are what must be printed. Times, hashes, pids and the width of columns may differ; `…` stands for any text, and alone on
a line for any lines. A command must end with code 0, or with the one that its remark names: `# exit code 20`.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import NamedTuple

from kit.program import environment

_END = re.compile(r"\r?\n<ended (\d+)>\r\n")
# What is another one each time. Applied to the page's words and to those that were printed.
_VARIES = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?Z?"), "<moment>"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "<time>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{7,40}\b"), "<hash>"),
    (re.compile(r"\b\d+:\d+\b"), "<place>"),
    (re.compile(r"\bpid \d+"), "pid <pid>"),
    (re.compile(r"\s+"), " "),
)
_GITCONFIG = "[user]\nname = Ada\nemail = ada@example.org\n[core]\npager = cat\n[color]\nui = false\n"
# The shell's own remark about a process that it began in the background and that was killed.
_SHELL_REMARK = re.compile(r"^\S*bash: line \d+: +\d+ Killed .*$\n?", re.MULTILINE)


class Step(NamedTuple):
    command: str
    code: int
    printed: str


class Shell:
    """A login of one person: a home, an identity for git, and `holdfast` on the PATH."""

    def __init__(self, home: Path) -> None:
        self._home = home
        commands = home / ".local" / "bin"
        commands.mkdir(parents=True)
        (commands / "holdfast").write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast "$@"\n')
        (commands / "holdfast").chmod(0o755)
        (home / ".gitconfig").write_text(_GITCONFIG)
        env = environment(
            home / "any", NO_COLOR="1", LC_ALL="C.UTF-8", TERM="xterm", PATH=f"{commands}:{os.environ['PATH']}"
        )
        self._master, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
        self._bash = subprocess.Popen(
            [str(shutil.which("bash")), "--norc"],
            cwd=home, env=env, stdin=subprocess.PIPE, stdout=terminal, stderr=terminal, start_new_session=True,
        )  # fmt: skip
        os.close(terminal)

    def type(self, command: str) -> tuple[int, str]:
        """The exit code, and what was printed until then."""
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{{ {command}\n}} </dev/null\nprintf '\\n<ended %d>\\n' $?\n".encode())
        self._bash.stdin.flush()
        seen = b""
        while (found := _END.search(seen.decode(errors="replace"))) is None:
            seen += os.read(self._master, 65536)
        text = seen.decode(errors="replace")[: found.start()].replace("\r\n", "\n")
        return int(found[1]), _SHELL_REMARK.sub("", text).replace(str(self._home), "/home/ada")

    def close(self) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.close()
        self._bash.wait()
        os.close(self._master)


def steps_of(text: str) -> list[Step]:
    """What the `console` blocks of a page's text have typed, in order."""
    steps = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            more = next((place for place, line in enumerate(lines[1:], 1) if not line.startswith("> ")), len(lines))
            command = "\n".join([lines[0], *(line[2:] for line in lines[1:more])])
            code = re.search(r"# exit code (\d+)", command)
            steps.append(Step(command, int(code[1]) if code else 0, "\n".join(lines[more:])))
    return steps


def is_as_told(told: str, printed: str) -> bool:
    """Whether what was printed is what the page tells."""
    pattern = ""
    for line in filter(None, map(str.strip, told.splitlines())):
        pattern += r"(?:.*\n)*?" if line == "…" else ".*".join(map(re.escape, _plain(line).split("…"))) + r"\n"
    lines = filter(None, map(_plain, printed.splitlines()))
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


def _plain(line: str) -> str:
    for pattern, word in _VARIES:
        line = pattern.sub(word, line)
    return line.strip()
