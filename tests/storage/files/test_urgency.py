"""A write that goes first where this process may, and is made in any case."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.storage.files import urgency
from holdfast.storage.journal.writer import Journal

FLAG = os.SCHED_RESET_ON_FORK
# Tries, in a process of its own: its priority inside and behind, and that of a child that it begins inside.
PROBE = """
import os, sys
from holdfast.storage.files.urgency import urgent
flag = os.SCHED_RESET_ON_FORK
if sys.argv[1]:
    os.setuid(int(sys.argv[1]))
with urgent():
    inside = os.sched_getscheduler(0) & ~flag
    if not (child := os.fork()):
        os._exit(os.sched_getscheduler(0) & ~flag)
    of_child = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
with urgent():
    again = os.sched_getscheduler(0) & ~flag
print(inside, of_child, os.sched_getscheduler(0) & ~flag, again)
"""


def probe(policy: int = os.SCHED_OTHER, rtprio: int | None = None, uid: str = "") -> list[int]:
    def before() -> None:
        os.sched_setscheduler(0, policy, os.sched_param(0))
        if rtprio is not None:
            resource.setrlimit(resource.RLIMIT_RTPRIO, (rtprio, rtprio))

    argv = [sys.executable, "-c", PROBE, uid]
    done = subprocess.run(argv, preexec_fn=before, capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become others and raise priorities")


@needs_root
def test_a_write_goes_first_and_nothing_behind_it_does() -> None:
    assert probe() == [os.SCHED_RR, os.SCHED_OTHER, os.SCHED_OTHER, os.SCHED_RR]


@needs_root
@pytest.mark.parametrize(("rtprio", "policy"), [(0, os.SCHED_OTHER), (1, os.SCHED_RR)])
def test_a_user_may_go_first_where_the_limit_allows_it(rtprio: int, policy: int) -> None:
    try:
        resource.setrlimit(resource.RLIMIT_RTPRIO, (0, max(rtprio, resource.getrlimit(resource.RLIMIT_RTPRIO)[1])))
    except ValueError:
        pytest.skip("this root may not raise the limit")
    assert probe(rtprio=rtprio, uid="65534") == [policy, os.SCHED_OTHER, os.SCHED_OTHER, policy]


@needs_root
def test_a_policy_that_a_person_chose_is_left() -> None:
    assert probe(os.SCHED_BATCH) == [os.SCHED_BATCH, os.SCHED_BATCH, os.SCHED_BATCH, os.SCHED_BATCH]


def test_an_append_goes_first_in_its_own_thread_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not it may: it is made, and its thread is as before."""
    seen: list[int] = []
    with Journal.start(tmp_path, "000001-test", None) as journal:
        sync = journal._file.sync

        def look() -> None:
            seen.append(os.sched_getscheduler(0) & ~FLAG)
            seen.append(os.sched_getscheduler(os.getpid()) & ~FLAG)
            sync()

        monkeypatch.setattr(journal._file, "sync", look)
        thread = threading.Thread(target=lambda: journal.append("task_flagged", {"task": "t"}, actor="loop"))
        thread.start()
        thread.join()
        journal.append("task_flagged", {"task": "t"}, actor="loop")
    first = os.SCHED_OTHER if urgency._Permission.is_refused else os.SCHED_RR
    assert seen == [first, os.SCHED_OTHER, first, first]
    assert os.sched_getscheduler(0) & ~FLAG == os.SCHED_OTHER
