"""Only processes of an attempt are ended with it, whatever its gates write where they are looked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from holdfast.domain.task import TaskState
from kit.confined import needs_bwrap
from kit.git import git
from kit.program import holdfast
from kit.project import add, layout, make_repo, settings, state

pytestmark = needs_bwrap

# It holds the lock in which the control group of its kind is named, and names a folder of its own instead.
GATE = """
import hashlib, os, pathlib
root = pathlib.Path(os.environ["HOLDFAST_WORKTREE"]).parents[1]
prefix = hashlib.sha256(os.fsencode(os.path.realpath(root))).hexdigest()[:12]
group = pathlib.Path.cwd() / f"holdfast-{prefix}-{os.environ['HOLDFAST_ATTEMPT']}-gates"
group.mkdir()
(group / "cgroup.procs").write_text("VICTIM\\n")
(group / "cgroup.kill").symlink_to("FILE")
held = [fd for fd in range(3, 256) if os.path.lexists(f"/proc/self/fd/{fd}")]
lock = [fd for fd in held if "gates.lock" in os.readlink(f"/proc/self/fd/{fd}")][0]
os.ftruncate(lock, 0)
os.pwrite(lock, os.fsencode(group) + b"\\n", 0)
print("planted")
"""


def test_a_gate_does_not_name_whom_we_end(tmp_path: Path) -> None:
    repo, mine = make_repo(tmp_path), tmp_path / "mine.txt"
    mine.write_text("mine\n")
    with subprocess.Popen(["sleep", "1000"]) as victim:
        try:
            (repo / "gate.py").write_text(GATE.replace("VICTIM", str(victim.pid)).replace("FILE", str(mine)))
            git(repo, "add", "gate.py")
            git(repo, "commit", "-qm", "a gate")
            gate = {"name": "judge", "command": f"{sys.executable} gate.py"}
            settings(repo, max_agents=1, gates=[gate])
            add(repo, "t", "write a.txt x")
            told = holdfast(repo, "run", "--plain", code=None, env={"HOLDFAST_SANDBOX": "bwrap"})
            assert "t" in state(repo).tasks and state(repo).tasks["t"].state is TaskState.CLOSED, told
            assert "planted" in holdfast(repo, "gates", "t", "--full")
            assert str(layout(repo).worktrees).encode() in layout(repo).attempt_files("t.1").gates_lock.read_bytes()
            assert victim.poll() is None and mine.read_text() == "mine\n"
        finally:
            victim.kill()
