"""Real processes that hold, lose and fight for a lock."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.runner import kill


def name_run(epoch: int) -> str:
    return f"run-{epoch}"


PRELUDE = """if True:
    import fcntl, os, signal, subprocess, sys, time
    from pathlib import Path
    from holdfast import errors
    from holdfast.storage.files import disk
    from holdfast.storage.journal import lock
    from holdfast import identity as process
    from holdfast.storage.journal.lock import DataLock, Holder, read_holder
    path = Path(sys.argv[1])
    name_run = lambda epoch: f"run-{epoch}"
    def say(*words): print(*words, flush=True)
"""
HOLD = "held = DataLock.acquire(path, name_run); say(held.epoch); time.sleep(600)"
# A lock that no `DataLock` took: without a name, and with a descriptor that children get.
RAW = "fd = disk.open_lock_file(path); os.set_inheritable(fd, True); fcntl.flock(fd, fcntl.LOCK_EX)\n"


class Children:
    """Real processes, each followed through what it says on its standard output."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._all: list[subprocess.Popen[str]] = []
        self.strays: list[int] = []

    def start(self, code: str) -> subprocess.Popen[str]:
        script = PRELUDE + "".join(f"    {line}\n" for line in code.splitlines())
        command = [sys.executable, "-c", script, str(self._path)]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._all.append(child)
        return child

    def holder(self, code: str = HOLD) -> subprocess.Popen[str]:
        child = self.start(code)
        hear(child)
        return child

    def end(self) -> None:
        for stray in self.strays:
            kill(stray)
        for child in self._all:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()


def hear(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line, f"the child ended with {child.wait()} before it spoke"
    return line.strip()


def tell(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()


def is_alive(child: subprocess.Popen[str]) -> bool:
    return child.poll() is None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


@pytest.fixture
def children(path: Path) -> Iterator[Children]:
    group = Children(path)
    yield group
    group.end()
