"""Shared memory, semaphores and message queues of the machine are no files: the sandbox has others."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator

import pytest

from holdfast.domain.attempt_records import Ending, Launch
from kit.confined import needs_bwrap
from kit.runner import Bench

libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
IPC_PRIVATE, IPC_CREAT, IPC_RMID = 0, 0o1000, 0
SECRET = b"quebec-romeo-4711"
READ = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
at = libc.shmat(int(sys.argv[1]), None, 0)
print("seen", ctypes.string_at(at, 17) if at not in (None, ctypes.c_void_p(-1).value) else b"")
print("removed", libc.shmctl(int(sys.argv[1]), 0, None) == 0)
"""


@pytest.fixture
def segment() -> Iterator[int]:
    made = libc.shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0o600)
    if made < 0:
        pytest.skip("no shared memory is to be had")
    ctypes.memmove(libc.shmat(made, None, 0), SECRET, len(SECRET))
    yield made
    libc.shmctl(made, IPC_RMID, None)


@needs_bwrap
def test_a_confined_agent_neither_reads_nor_removes_shared_memory_of_others(bench: Bench, segment: int) -> None:
    launch = Launch((sys.executable, "-c", READ, str(segment)))
    ended = bench.run(agent="command", launch=launch, sandbox="bwrap")
    assert ended.ending is Ending.DONE, ended
    assert bench.files.output.read_text() == "seen b''\nremoved False\n"
