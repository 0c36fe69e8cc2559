"""A confined agent of root changes nothing of the kernel's: a written core_pattern runs a program outside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.domain.attempt_records import Ending
from kit.confined import needs_bwrap, outputs
from kit.program import holdfast
from kit.project import make_repo
from kit.runner import Bench

pytestmark = [needs_bwrap, pytest.mark.skipif(os.geteuid() != 0, reason="only root may write there at all")]

# Each writes back what it has read, so that the machine stays as it is where the wall is missing.
WRITES = """
    run f=/proc/sys/kernel/core_pattern; v=$(cat $f) && (echo "$v" > $f) 2>/dev/null && echo open; true
    run find /proc/sys /proc/sysrq-trigger /proc/irq /proc/bus /proc/fs /sys -type f -writable 2>/dev/null | head -n 3
    run unshare -Urmpf --mount-proc sh -c 'find /proc/sys -writable -type f | head -n 3' 2>/dev/null; true
    run (mount -t proc proc /proc || umount -l /proc/sys || mount -o remount,rw /) 2>/dev/null && echo open; true
"""


def test_no_setting_of_the_kernel_is_open_to_a_confined_agent_of_root(bench: Bench) -> None:
    before = Path("/proc/sys/kernel/core_pattern").read_text()
    ended = bench.run(WRITES, sandbox="bwrap")
    assert ended.ending is Ending.DONE
    assert outputs(bench) == [""] * 4
    assert Path("/proc/sys/kernel/core_pattern").read_text() == before


@pytest.mark.parametrize(("kind", "words"), [("none", "anything on this machine"), ("bwrap", "no capability")])
def test_doctor_says_what_being_root_means(tmp_path: Path, kind: str, words: str) -> None:
    repo = make_repo(tmp_path / "repo")
    told = holdfast(repo, "doctor", code=None, env={"HOLDFAST_SANDBOX": kind})
    line = next(line for line in told.splitlines() if " sandbox " in line)
    assert line.split()[2].startswith(kind) and "This is root" in told and words in told
