"""Twenty agents on one machine: they burn its cores and memory, its orchestrator is killed, its memory and its disk run
out; and everything lands."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.app import App
from holdfast.domain.task import TaskState
from holdfast.orchestrator.loop import Loop
from holdfast.processes import controllers
from holdfast.storage.journal.writer import Journal
from holdfast.wiring import run_context
from kit.git import git
from kit.mounts import mounts
from kit.program import begin, holdfast
from kit.project import add, landed, layout, settings, sound, state
from kit.waiting import wait_for

pytestmark = pytest.mark.heavy

AGENTS = 20
MB = 1 << 20


# -- twenty at once ---------------------------------------------------------------------------------------------------


def append_latency(folder: Path) -> str:
    """Appends to a journal as the orchestrator does, beside its agents."""
    folder.mkdir()
    with Journal.start(folder, "000001-test", None) as journal:
        took = []
        for _ in range(100):
            began = time.perf_counter()
            journal.append("task_flagged", {"task": "t"}, actor="loop")
            took.append(1e3 * (time.perf_counter() - began))
    return f"median {statistics.median(took):.2f} ms, slowest {max(took):.2f} ms"


def test_twenty_agents_that_burn_cores_and_memory_all_land_though_their_orchestrator_is_killed(
    repo: Path, record_property: Callable[[str, object], None]
) -> None:
    settings(repo, max_agents=AGENTS, memory_free_min=None)
    burn = f"{sys.executable} -c 'x = bytearray(40 << 20); sum(range(3000000))'"
    for number in range(AGENTS):
        add(repo, f"t{number:02}", f"write f{number}.txt one\nrun {burn}\nrun setsid {burn}\nappend f{number}.txt two")
    most, killed = 0, 0
    for turns in (AGENTS // 2, AGENTS * 2):
        run = begin(repo)

        def has_come(wanted: int = turns) -> bool:
            nonlocal most
            tasks = state(repo).tasks.values()
            most = max(most, sum(task.state is TaskState.IN_PROGRESS for task in tasks))
            return sum(task.spent.turns for task in tasks) >= wanted

        wait_for(has_come, f"{turns} turns")
        record_property("append_latency", append_latency(repo.parent / f"journal-{turns}"))
        run.kill()
        run.communicate()
        killed += 1
    holdfast(repo, "run")
    assert killed == 2 and most >= AGENTS // 2, most
    tasks = state(repo).tasks
    assert sorted(landed(repo)) == sorted(tasks) and len(tasks) == AGENTS
    assert {(task.state, task.attempts) for task in tasks.values()} == {(TaskState.CLOSED, 1)}
    sound(repo)


# -- a machine whose memory is used up --------------------------------------------------------------------------------


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A control group with little memory, in which a run is started."""
    home = controllers.old_homes().get(controllers.MEMORY)
    if home is None:
        home = controllers.place("")
        if home is None or not controllers.hands_on(home) or not controllers.is_open(home):
            pytest.skip("no control group with a limit of memory is to be had")
    group = home / f"holdfast-test-{os.getpid()}"
    group.mkdir()
    try:
        yield group
    finally:
        for each in [*group.glob("*/*/"), *group.glob("*/"), group]:
            with contextlib.suppress(OSError):
                each.rmdir()


def limit(group: Path, size: int) -> None:
    names = ("memory.limit_in_bytes", "memory.max")
    next(group / name for name in names if (group / name).exists()).write_text(str(size))


@contextlib.contextmanager
def running_in(group: Path, repo: Path) -> Iterator[subprocess.Popen[str]]:
    """A run that is a member of the group, with all that it starts."""
    line = f"echo $$ > {group}/cgroup.procs && exec {sys.executable} -m holdfast run --plain"
    log = (repo.parent / "run.log").open("a")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "GIT_"))}
    run = subprocess.Popen(["sh", "-c", line], cwd=repo, env=env, stdout=log, stderr=log, text=True)
    try:
        yield run
    finally:
        run.kill()
        run.wait()
        log.close()


def test_a_run_in_a_full_control_group_starts_nothing_says_so_and_goes_on_when_there_is_memory(
    repo: Path, small_memory: Path
) -> None:
    settings(repo, memory_free_min=300 * MB)
    add(repo, "a", "write a.txt x")
    limit(small_memory, 301 * MB)
    log = repo.parent / "run.log"
    with running_in(small_memory, repo) as run:
        wait_for(lambda: "No more agents are started now" in log.read_text(), "the hold")
        told = " ".join(holdfast(repo, "status").split())
        assert "in the control group of this run, and memory_free_min is 300 MB" in told
        assert state(repo).tasks["a"].attempts == 0 and run.poll() is None
        limit(small_memory, 2000 * MB)
        assert run.wait(120) == 0
    assert "There is room on this machine again" in log.read_text() and landed(repo) == ["a"]
    sound(repo)


def test_agents_that_use_up_the_memory_are_ended_and_the_run_lives_on(repo: Path, small_memory: Path) -> None:
    settings(repo, max_agents=2, memory_free_min=16 * MB, limits={"memory_bytes_max": 120 * MB})
    hog = f"{sys.executable} -c 'x = [bytearray(b\"x\" * (1 << 20)) for _ in range(4000)]'"
    for name in ("a", "b"):
        add(repo, name, f"write {name}.txt x\nattempt 1: run {hog}\nappend {name}.txt y")
    add(repo, "c", "write c.txt x")
    limit(small_memory, 400 * MB)
    with running_in(small_memory, repo) as run:
        assert run.wait(240) == 0, (repo.parent / "run.log").read_text()
    events = [(layout(repo).attempt_files(f"{name}.1").events).read_text() for name in ("a", "b")]
    assert all("limits.memory_bytes_max" in each for each in events), "the limit was not reached"
    assert sorted(landed(repo)) == ["a", "b", "c"]
    sound(repo)


# -- a disk that is full ----------------------------------------------------------------------------------------------


def small_disk(folder: Path, repo: Path) -> Path:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(folder)], check=True)
    shutil.copytree(repo, folder / "repo", symlinks=True)
    return folder / "repo"


def fill(filler: Path, left: int) -> str:
    """The command that leaves so much room on the disk."""
    return f"head -c $(($(df --output=avail -B1 {filler.parent} | tail -1) - {left})) /dev/zero > {filler}"


@pytest.mark.parametrize("when", ["spawn", "turn", "landing"])
@mounts
def test_a_disk_that_fills_up_pauses_the_run_which_goes_on_when_there_is_room(
    repo: Path, tmp_path: Path, when: str
) -> None:
    """It fills up when the start, the turn or the gates need room for a file of 4 MB, and the journal has enough. It
    is emptied when the run says that it cannot go on."""
    here = small_disk(tmp_path / "disk", repo)
    filler, fired = here.parent / "filler", list[str]()
    settings(here, sandbox="none", max_agents=1, disk_free_min=0)
    big, once = "head -c 4000000 /dev/urandom > big.bin", f"once {here.parent}/once:"
    if when == "spawn":
        subprocess.run(["sh", "-c", big], cwd=here, check=True)
        git(here, "add", ".")
        git(here, "commit", "-q", "-m", "something big")
        subprocess.run(["sh", "-c", fill(filler, 3 * MB)], check=True)
    scripts = {
        "spawn": "write a.txt x",
        "turn": f"write a.txt x\n{once} run {fill(filler, 5 * MB)}; {big}\nappend a.txt y",
        "landing": f"run {big}\n{once} run {fill(filler, 3 * MB)}\nwrite a.txt x",
    }
    add(here, "a", scripts[when], verify=["test -e a.txt"])
    add(here, "b", "write b.txt x", depends_on=["a"])

    def note(task: str, text: str) -> None:
        if filler.exists() and any(words in text for words in ("No space left", "unable to write", " MB and ")):
            fired.append(text)
            filler.unlink()

    with run_context(App.find(here), note) as context:
        Loop(context).run()
    assert fired, "the disk was never full"
    assert landed(here) == ["a", "b"]
    assert [task.attempts for task in state(here).tasks.values()] == [1, 1]
    sound(here)
