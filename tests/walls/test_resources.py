"""What the processes of an attempt use of the machine has an end, which the attempt's own end tells; nobody else's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.domain.attempt_records import AttemptLimits, Ending, Launch, Resources
from holdfast.landing import gates
from holdfast.layout import Layout
from holdfast.processes import cgroups, controllers, resources
from holdfast.storage.records.blobs import Blobs
from kit.runner import LIMITS, Bench

MB = 1 << 20
MEMORY, PIDS = 160 * MB, 60
OLD = controllers.old_homes()
HELD = {"memory", "pids"} <= (OLD.keys() or set()) or any(map(controllers.hands_on, cgroups.homes()))
needs_groups = pytest.mark.skipif(not HELD, reason="no control group with limits is to be had")
HOG = f"{sys.executable} -c 'x = bytearray(1 << 34); print(len(x))'"
# It ends by itself after a while, should nobody end it: 300 processes in all.
BOMB = "n=0; while [ $n -lt 300 ]; do n=$((n+1)); (sleep 60) & done; wait"


def limits(**more: float) -> AttemptLimits:
    bounded = Resources(memory_bytes_max=MEMORY, pids_max=PIDS)
    for name, value in more.items():
        bounded = Resources(**{**_facts(bounded), name: value})
    return AttemptLimits(grace_s=LIMITS.grace_s, resources=bounded)


def _facts(bounded: Resources) -> dict[str, object]:
    return {name: getattr(bounded, name) for name in bounded.__struct_fields__}


@pytest.fixture(params=["groups", "no groups"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """With control groups, and where there are none: then the runner sees no mount of them."""
    if request.param == "groups":
        return "groups" if HELD else pytest.skip("no control group with limits is to be had")
    (tmp_path / "sitecustomize.py").write_text(
        "from holdfast.processes import cgroups, controllers\n"
        "cgroups.homes = lambda: []\ncontrollers.place = lambda controller: None\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "no groups"


def test_an_agent_that_eats_memory_is_ended_and_its_end_names_the_limit(bench: Bench, by: str) -> None:
    hog = "import time; x = [bytearray(b'x' * (1 << 20)) for _ in range(1000)]; time.sleep(600)"
    launch = Launch((sys.executable, "-c", hog))
    ended = bench.run(agent="shell", launch=launch, limits=limits())
    assert ended.ending is Ending.OVER_LIMIT and ended.limit == "limits.memory_bytes_max", ended
    assert "160 MB of memory" in ended.detail and "holdfast retry T" in ended.detail
    assert bench.tree(ended.snapshot) == {"a"}


def test_a_fork_bomb_is_ended_and_its_end_names_the_limit(bench: Bench, by: str) -> None:
    ended = bench.run(f"write b 1\nrun {BOMB}", limits=limits())
    assert ended.ending is Ending.OVER_LIMIT and ended.limit == "limits.pids_max", ended
    assert f"came to {PIDS}" in ended.detail
    assert bench.tree(ended.snapshot) == {"a", "b"}


@needs_groups
def test_a_tool_that_eats_memory_is_ended_and_its_agent_goes_on(bench: Bench) -> None:
    ended = bench.run(f"run {HOG}\nwrite b 1", limits=limits())
    assert ended.ending is Ending.DONE and bench.tree(ended.snapshot) == {"a", "b"}
    assert len(bench.refusals()) == 1 and "limits.memory_bytes_max" in bench.refusals()[0]


@needs_groups
def test_others_go_on_beside_a_bomb(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Bench(tmp_path / "other")
    try:
        bomb = bench.start(bench.order(f"run {BOMB}", limits=limits()))
        assert other.run("run for i in $(seq 100); do true & done; wait\nwrite b 1").ending is Ending.DONE
        assert bomb.wait(120) == 0 and bench.exit().ending is Ending.OVER_LIMIT
    finally:
        other.end()


@needs_groups
def test_every_git_that_looks_at_the_tree_is_in_the_group_of_the_attempt(bench: Bench) -> None:
    """A git in the PATH writes down where it is: the agent's group is frozen meanwhile, so it is in one beside."""
    programs, log = bench.repo / ".git" / "bin", bench.repo / ".git" / "seen"
    programs.mkdir()
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    (programs / "git").write_text(f'#!/bin/sh\ncat /proc/self/cgroup >> {log}\necho >> {log}\nexec {real} "$@"\n')
    (programs / "git").chmod(0o755)
    order = bench.order("write b 1\nwrite c 2", limits=limits())
    assert bench.start(order, PATH=f"{programs}:{os.environ['PATH']}").wait(120) == 0
    assert bench.exit().ending is Ending.DONE
    seen = [each for each in log.read_text().split("\n\n") if each.strip()]
    name = cgroups.name_of(bench.files, "T.1", 1)
    outside = [each for each in seen if f"{name}/git" not in each]
    assert len(seen) > 5 and outside == []
    assert not OLD or all(each.count(f"/{name}\n") >= 2 for each in seen), "it is not bounded with the agent"


@needs_groups
def test_a_git_that_is_ended_for_its_agents_memory_is_no_fault_of_the_machine(bench: Bench) -> None:
    """Such a fault is waited for, again and again."""
    hog = "bytearray(b'x' * (1 << 20))"
    programs = bench.repo / ".git" / "bin"
    programs.mkdir()
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    script = f"""#!/bin/sh
        if [ -e {bench.worktree}/b ]; then
            touch {bench.repo}/.git/once
            exec {sys.executable} -c "x = [{hog} for _ in range(1000)]"
        fi
        exec {real} "$@"
    """
    (programs / "git").write_text(script)
    (programs / "git").chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    assert bench.start(bench.order("write b 1", limits=limits()), PATH=path).wait(120) == 0
    assert (bench.repo / ".git" / "once").exists()
    assert bench.exit().ending is Ending.OVER_LIMIT and bench.exit().limit == "limits.memory_bytes_max"


def test_no_file_may_be_larger_than_may_be_written(bench: Bench) -> None:
    """Wherever it is: a disk that is full holds everybody up."""
    script = "run truncate -s 1T huge || head -c 3000000 /dev/zero > large; ls -s huge large > said 2>&1\nwrite b 1"
    bench.run(script, limits=limits(written_bytes_max=MB))
    assert (bench.worktree / "large").stat().st_size == MB
    assert not (bench.worktree / "huge").exists() or (bench.worktree / "huge").stat().st_size == 0


@pytest.mark.skipif("cpu" not in OLD, reason="no control group for cores is to be had")
def test_cores_are_bounded_where_the_setting_says_so(tmp_path: Path) -> None:
    files = Layout(tmp_path / "data").attempt_files("T.1")
    group = cgroups.make(files, "T.1", 1, Resources(cpus_max=0.5))
    assert group is not None and [path.parent for path in group.limiting] == [OLD["cpu"]]
    try:
        assert (group.limiting[0] / "cpu.cfs_quota_us").read_text() == "50000\n"
        assert int((group.limiting[0] / "cpu.shares").read_text()) < 100, "as a nice process has"
    finally:
        group.remove()
    assert not group.path.exists() and not group.limiting[0].exists()


def test_limits_of_version_2_are_the_groups_own_files(tmp_path: Path) -> None:
    """This kernel may have none to try: what is written, and how what was reached is read."""
    group = tmp_path / "group"
    group.mkdir()
    for name in ("memory.max", "memory.swap.max", "pids.max", "cpu.max", "cpu.weight"):
        (group / name).write_text("")
    controllers.set_new(group, Resources(memory_bytes_max=MEMORY, pids_max=PIDS, cpus_max=1.5))
    found = {path.name: path.read_text() for path in group.iterdir()}
    assert found == {
        "memory.max": str(MEMORY), "memory.swap.max": "0", "pids.max": str(PIDS), "cpu.max": "150000 100000",
        "cpu.weight": "1",
    }  # fmt: skip
    assert controllers.held([group]) == {"memory", "pids", "cpu"}
    (group / "memory.events").write_text("low 0\nmax 7\noom 2\noom_kill 2\n")
    (group / "pids.events").write_text("max 3\n")
    assert controllers.reached([group]) == {"memory": 2, "pids": 3}


def test_a_group_above_ours_is_taken_only_where_no_limit_is_left_behind(tmp_path: Path) -> None:
    slice_, scope = tmp_path / "slice", tmp_path / "slice" / "scope"
    scope.mkdir(parents=True)
    for path in (slice_, scope):
        (path / "cgroup.procs").write_text("")
        (path / "cgroup.subtree_control").write_text("memory pids\n" if path == slice_ else "")
        (path / "memory.max").write_text("max\n")
    assert controllers.above(scope) == slice_
    (scope / "memory.max").write_text("1000000\n")
    assert controllers.above(scope) is None


def test_without_a_number_it_is_three_quarters_of_the_machine(bench: Bench) -> None:
    found = resources.of_machine(Resources()).memory_bytes_max
    assert found == controllers.machine_memory() // 4 * 3
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert found is not None and 0 < found <= pages * 3 // 4 + MB
    assert "memory" in resources.in_words(Resources(pids_max=5))


@needs_groups
def test_gates_are_bounded_too_and_their_output_says_so(tmp_path: Path) -> None:
    """They run what an agent has written."""
    layout = Layout(tmp_path / "data")
    blobs, folder = Blobs(layout.cas), tmp_path / "work"
    folder.mkdir()
    bounded = Resources(memory_bytes_max=MEMORY, pids_max=PIDS)
    place = gates.GatePlace("T", "T.1", layout.attempt_files("T.1"), folder, grace_s=0.1, resources=bounded)
    with gates.locked(place) as ready:
        result = gates.run(gates.Gate("hog", HOG), ready, blobs)
        assert result.outcome == "failed" and "limits.memory_bytes_max" in gates.output_lines(blobs, result)[-1]
        again = gates.run(gates.Gate("fine", "echo fine"), ready, blobs)
        assert again.outcome == "passed" and gates.output_lines(blobs, again) == ["fine"]
