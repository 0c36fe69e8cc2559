"""A confined agent that makes namespaces of its own has every capability in them, and so can mount the hierarchies of
control groups with its own group on top. The limits that hold it are not in its own group."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.domain.attempt_records import AttemptLimits, Ending, Launch, Resources
from holdfast.landing import gates
from holdfast.processes import cgroups, controllers
from holdfast.storage.records.blobs import Blobs
from kit.confined import needs_bwrap
from kit.runner import LIMITS, Bench

PIDS = 40
OLD = controllers.old_homes()
HELD = "pids" in OLD or any(map(controllers.hands_on, cgroups.homes()))
pytestmark = [needs_bwrap, pytest.mark.skipif(not HELD, reason="no control group with limits is to be had")]
BOUNDED = Resources(pids_max=PIDS)

# It lifts every limit that it finds in its own group, and then has as many processes as it can.
LIFT = r"""
import ctypes, glob, os, signal
libc = ctypes.CDLL(None, use_errno=True)
# New namespaces of users, mounts and control groups.
if libc.unshare(0x10000000 | 0x20000 | 0x02000000):
    print("no namespace", flush=True)
libc.mount(b"none", b"/", None, 0x40000 | 0x4000, None)
for kind, option in ((b"cgroup2", None), (b"cgroup", b"pids"), (b"cgroup", b"memory"), (b"cgroup", b"cpu")):
    top = "/tmp/" + (option or kind).decode()
    os.makedirs(top)
    if libc.mount(b"none", top.encode(), kind, 0, option) == 0:
        print("mounted", top, flush=True)
for path in glob.glob("/tmp/*/*.max") + glob.glob("/tmp/memory/*limit_in_bytes") + glob.glob("/tmp/cpu/*quota_us"):
    try:
        with open(path, "w") as file:
            file.write("max" if path.endswith(".max") else "-1")
    except OSError:
        pass
begun = []
try:
    while len(begun) < 100:
        pid = os.fork()
        if not pid:
            signal.pause()
        begun.append(pid)
except OSError:
    pass
print("begun", len(begun), flush=True)
for pid in begun:
    os.kill(pid, 9)
"""


def begun(said: str) -> int:
    (line,) = [line for line in said.splitlines() if line.startswith("begun ")]
    return int(line.split()[1])


def test_an_agent_cannot_lift_its_own_limits(bench: Bench) -> None:
    limits = AttemptLimits(grace_s=LIMITS.grace_s, resources=BOUNDED)
    ended = bench.run(agent="command", launch=Launch((sys.executable, "-c", LIFT)), sandbox="bwrap", limits=limits)
    said = bench.files.output.read_text()
    assert ended.ending in (Ending.DONE, Ending.OVER_LIMIT), (ended, said)
    assert begun(said) < PIDS, said


def test_a_gate_cannot_lift_its_own_limits(bench: Bench) -> None:
    from holdfast.processes import sandbox

    folder, root = bench.worktree, bench.layout.root
    (folder / "lift.py").write_text(LIFT)
    gate = gates.Gate("g", f"{sys.executable} lift.py")
    with gates.locked(place_of(bench)) as place:
        confined = msgspec.structs.replace(place, confine=lambda argv: sandbox.gate(argv, folder, root, ()))
        result = gates.run(gate, confined, Blobs(bench.layout.cas))
    said = Blobs(bench.layout.cas).get(result.output).decode()
    assert begun(said) < PIDS, said


def place_of(bench: Bench) -> gates.GatePlace:
    bench.files.root.mkdir(parents=True, exist_ok=True)
    return gates.GatePlace("T", "T.1", bench.files, Path(bench.worktree), grace_s=0.2, resources=BOUNDED)
