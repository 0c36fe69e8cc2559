"""What a snapshot reads while an agent swaps files for links: nothing that the agent may not read itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from holdfast import identity
from holdfast.agents.runner.attempt_writer import AttemptWriter
from holdfast.errors import SandboxFailed
from holdfast.git import command as our_git
from holdfast.processes import bwrap, members
from holdfast.storage.records import attempt_folder
from kit.confined import needs_bwrap
from kit.git import git
from kit.runner import Bench
from kit.waiting import wait_for


@needs_bwrap
def test_a_folder_that_leads_to_the_secrets_shows_a_snapshot_nothing(bench: Bench) -> None:
    """The race as it is when it is won: git has the index entry d/server.key, and d has become a link."""
    secret = bench.layout.secret / "server.key"
    secret.parent.mkdir(parents=True)
    secret.write_text("the operator's token\n")
    attempt_folder.make_folder(bench.files)
    order = bench.order(sandbox="bwrap")
    record = AttemptWriter(bench.files, order)
    shadow = record._snapshots._shadow
    assert shadow._confine is not None
    (bench.worktree / "d").symlink_to(secret.parent)
    seen = ["cat", str(bench.worktree / "d" / "server.key"), str(secret)]
    outside = subprocess.run(seen, capture_output=True, check=False)
    assert outside.stdout == b"the operator's token\n" * 2, "there is nothing to read"
    inside = subprocess.run(shadow._confine(seen, bench.worktree), capture_output=True, check=False)
    assert inside.stdout == b"" and b"No such file" in inside.stderr
    record.close()


@needs_bwrap
def test_all_git_that_looks_at_the_files_of_a_confined_agent_is_confined(bench: Bench) -> None:
    """A git in the PATH says for each call whether it sees the data root's secrets."""
    (bench.layout.secret).mkdir(parents=True)
    (bench.layout.secret / "server.key").write_text("x")
    programs, log = bench.repo / ".git" / "bin", bench.worktree / "calls.log"
    programs.mkdir()
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    script = f"""#!/bin/sh
        for word; do case "$word" in add|update-index|read-tree|checkout|status|clean|-i|-o|-m)
            if [ -e {bench.layout.secret}/server.key ]; then echo "outside $*"; else echo "inside $*"; fi >> {log}
            break;; esac; done
        exec {real} "$@"
    """
    (programs / "git").write_text(script)
    (programs / "git").chmod(0o755)
    order = bench.order("write b 1\nwrite c 2", sandbox="bwrap", exclude=("calls.log",))
    path = f"{programs}:{os.environ['PATH']}"
    assert bench.start(order, PATH=path).wait(120) == 0
    assert bench.tree(bench.exit().snapshot) >= {"a", "b", "c"}
    calls = log.read_text().splitlines()
    assert any(call.startswith("inside add") for call in calls), calls
    assert [call for call in calls if call.startswith("outside")] == []


def test_a_process_that_left_its_group_is_stopped_without_a_control_group(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"setsid sh -c 'echo $$ >> {pids}; setsid sleep 600 & echo $! >> {pids}; wait' & wait"
    top = subprocess.Popen(["sh", "-c", script], start_new_session=True)
    stopped: list[members.Known] = []
    try:
        wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 2, "both processes")
        found = [int(pid) for pid in pids.read_text().split()]
        stopped = members.stop_below(top.pid, 60.0)
        assert {pid for pid, _ in stopped} >= set(found)
        assert all(stat is not None and stat.is_stopped for stat in map(identity.stat_of, found))
        members.wake(stopped)
        wait_for(lambda: not any(stat is None or stat.is_stopped for stat in map(identity.stat_of, found)), "awake")
    finally:
        for pid in [*(pid for pid, _ in stopped), top.pid]:
            subprocess.run(["kill", "-9", str(pid)], check=False, capture_output=True)
        top.wait()


@needs_bwrap
def test_a_sandbox_that_does_not_start_is_no_answer_of_git(bench: Bench) -> None:
    confine = bwrap.confine_git(our_git.discover(bench.worktree), bench.layout.root, "", [], [bench.worktree / "none"])
    env = our_git.environment({})
    with pytest.raises(SandboxFailed, match="bwrap"):
        our_git.run("status", cwd=bench.worktree, env=env, codes=(0, 1), confine=confine)
    assert git(bench.worktree, "status", "--porcelain") == ""
