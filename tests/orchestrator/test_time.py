"""Time: a run that was stopped goes on later, after any sleep and under any clock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.domain.task import TaskState
from holdfast.storage.journal.reader import Chain
from kit.clock import SetClock, go_on, stop_below, suspend
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, landed, layout, settings, sound, state
from kit.server import served
from kit.tasks import turns_journalled
from kit.waiting import shell_wait, wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy

DAY_S = 86_400.0
# Of the one test in which time really passes: long enough for a busy machine to look in between.
LEASE_S = 8.0


@pytest.fixture
def clock(tmp_path: Path) -> SetClock:
    return SetClock(tmp_path)


def expect_one_start(repo: Path, start: int = 1) -> None:
    """Nobody was taken for silent: no start was lost, no attempt spent, and the work has landed."""
    task, files = state(repo).tasks["t"], layout(repo).attempt_files("t.1")
    assert (task.state, task.attempts, task.start.number, task.attempt.resumes) == (TaskState.CLOSED, 1, start, 0)
    assert not files.start(start + 1).exists() and landed(repo) == ["t"]
    sound(repo)


# -- stopped, and continued much later ---------------------------------------------------------------------------------


def test_a_stopped_agent_continues_a_day_later_and_does_nothing_twice(repo: Path, clock: SetClock) -> None:
    go, log = repo.parent / "go", repo.parent / "log"
    add(repo, "t", f"run echo 1 >> {log}\nrun {shell_wait(go)}\nrun echo 3 >> {log}\nwrite done.txt x")
    running = begin(repo, **clock.env)
    wait_for(lambda: turns_journalled(repo, "t") >= 1, "the first turn")
    holdfast(repo, "stop", "--agents")
    running.communicate()
    assert state(repo).tasks["t"].continues
    clock.later(DAY_S)
    go.touch()
    holdfast(repo, "run", env=clock.env)
    assert log.read_text() == "1\n3\n"
    expect_one_start(repo, start=2)


def test_after_a_long_pause_the_same_conversation_goes_on(repo: Path, clock: SetClock) -> None:
    log = repo.parent / "log"
    add(repo, "t", f"write a.txt x\nonce marker: rate-limit 3600\nrun echo 1 >> {log}\nwrite b.txt x")
    running = begin(repo, **clock.env)
    wait_for(lambda: "t" in state(repo).tasks and state(repo).tasks["t"].not_before > 0, "the pause")
    clock.later(3700)
    (layout(repo).signals / "WAKEUP").touch()
    out = running.communicate()[0]
    assert running.returncode == 0, out
    assert log.read_text() == "1\n"
    expect_one_start(repo, start=2)


# -- everybody sleeps --------------------------------------------------------------------------------------------------


def at_second_step(repo: Path, clock: SetClock, **more: object) -> tuple[subprocess.Popen[str], Path, Path]:
    go, log = repo.parent / "go", repo.parent / "log"
    add(repo, "t", f"run echo 1 >> {log}\nrun {shell_wait(go)}\nrun echo 3 >> {log}\nwrite done.txt x", **more)
    running = begin(repo, **clock.env)
    wait_for(lambda: turns_journalled(repo, "t") >= 1, "the first turn")
    return running, go, log


def expect_went_on(repo: Path, running: subprocess.Popen[str], go: Path, log: Path) -> None:
    """Lets the second step end: the same start does the third, and nothing twice."""
    go.touch()
    out = running.communicate()[0]
    assert running.returncode == 0, out
    assert log.read_text() == "1\n3\n"
    expect_one_start(repo)


def looked_again(repo: Path) -> None:
    """The loop has looked at everybody once more: it answers only at the end of a round."""
    holdfast(repo, "retry", "nobody", code=None)


@pytest.mark.parametrize("timeout", ["heartbeat_timeout_s", "stall_timeout_s", "timeout_s", "budgets.seconds_per_task"])
def test_the_time_in_which_all_were_stopped_does_not_count(repo: Path, clock: SetClock, timeout: str) -> None:
    long = {"heartbeat_timeout_s": 1e6, "stall_timeout_s": 1e6, "timeout_s": 1e6, "heartbeat_s": 0.1}
    section, _, name = timeout.rpartition(".")
    settings(repo, **{**long, **({section: {name: 60}} if section else {name: 60})})
    running, go, log = at_second_step(repo, clock)
    suspend(running, clock, 3600)
    files = layout(repo).attempt_files("t.1")
    before = files.alive.stat().st_mtime_ns
    wait_for(lambda: files.alive.stat().st_mtime_ns != before or files.exit.exists(), "the runner to look again")
    looked_again(repo)
    expect_went_on(repo, running, go, log)


def test_a_gate_is_not_judged_by_the_time_in_which_all_were_stopped(repo: Path, clock: SetClock) -> None:
    go, begun = repo.parent / "go", repo.parent / "begun"
    check = f"echo begun >> {begun}; {shell_wait(go)}"
    add(repo, "t", "write a.txt x", verify=[{"command": check, "timeout_s": 60}])
    running = begin(repo, **clock.env)
    wait_for(begun.exists, "the gate")
    suspend(running, clock, 3600)
    looked_again(repo)
    go.touch()
    out = running.communicate()[0]
    assert running.returncode == 0, out
    assert begun.read_text() == "begun\n"
    expect_one_start(repo)


@pytest.mark.heavy
def test_a_stop_of_all_longer_than_a_lease_ends_no_worker(repo: Path) -> None:
    """By the machine's own clock: a worker through the API keeps its task, and an agent of ours works on."""
    timeouts = {"lease_s": LEASE_S, "heartbeat_timeout_s": LEASE_S, "stall_timeout_s": LEASE_S}
    # One agent at most, so that nobody but the worker can take `r`.
    settings(repo, **timeouts, heartbeat_s=0.1, max_agents=1)
    go, log = repo.parent / "go", repo.parent / "log"
    with served(repo, "run", "--stay", "--plain") as server:
        ask = server.operator
        add(repo, "t", f"run echo 1 >> {log}\nrun {shell_wait(go)}\nrun echo 3 >> {log}\nwrite done.txt x")
        wait_for(lambda: turns_journalled(repo, "t") >= 1, "the first turn")
        ask.post("/tasks", {"id": "r", "goal": "x"})
        held = ask.post("/tasks/claim", {"worker": "w"})
        assert held["task"]["id"] == "r"
        while True:
            beaten = time.monotonic()
            ask.post("/tasks/r/heartbeat", {"claim": held["claim"]})
            pids = stop_below(server.process.pid)
            if time.monotonic() - beaten < LEASE_S / 2:
                break
            # The machine is so busy that the lease may have run out meanwhile.
            go_on(pids)
        # What is tested is that so much time passes for those who are stopped.
        time.sleep(LEASE_S * 1.2)
        go_on(pids)
        beat = ask.ask("POST", "/tasks/r/heartbeat", {"claim": held["claim"]})
        assert beat.status == 200, beat
        looked_again(repo)
        known = state(repo).tasks
        assert known["r"].state is TaskState.CLAIMED and known["r"].attempts == 1
        assert known["t"].state is TaskState.IN_PROGRESS
        ask.post("/tasks/r/cancel")
        go.touch()
        wait_for(lambda: state(repo).tasks["t"].state is TaskState.CLOSED, "the landing")
    assert log.read_text() == "1\n3\n"
    expect_one_start(repo)


ENDS = """import sys; from pathlib import Path
from holdfast.layout import Attempt
from holdfast.processes import starts
starts.end_processes(Attempt(Path(sys.argv[1])), "t.1", 1, 60.0)"""


def test_an_agent_asked_to_end_has_the_whole_grace_after_all_were_stopped(tmp_path: Path, clock: SetClock) -> None:
    asked, go, files = tmp_path / "asked", tmp_path / "go", tmp_path / ".sdd" / "attempts" / "t.1"
    files.mkdir(parents=True)
    marks = {"HOLDFAST_ATTEMPT": "t.1", "HOLDFAST_START": "1", "HOLDFAST_WORKTREE": str(tmp_path / ".sdd" / "x")}
    # Nothing but what the shell does itself: every new process is asked to end, too.
    line = f"trap ': > {asked}; while [ ! -e {go} ]; do :; done; exit 7' TERM; echo on; while :; do :; done"
    member = subprocess.Popen(["sh", "-c", line], env={**os.environ, **marks}, stdout=subprocess.PIPE, text=True)
    assert member.stdout is not None and member.stdout.readline() == "on\n"
    ending = subprocess.Popen([sys.executable, "-c", ENDS, str(files)], env={**os.environ, **clock.env})
    wait_for(asked.exists, "the member to hear it")
    for each in (ending, member):
        stop_below(each.pid)
    clock.later(3600)
    os.kill(ending.pid, signal.SIGCONT)
    # It looks at the one that stands still, and gives it the whole time again.
    looks = f"/proc/{ending.pid}/stat"
    used = Path(looks).read_text().split()[13:15]
    wait_for(lambda: Path(looks).read_text().split()[13:15] != used, "looks")
    os.kill(member.pid, signal.SIGCONT)
    go.touch()
    assert member.wait() == 7 and ending.wait() == 0


# -- somebody sets the clock -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jumps", [(10 * DAY_S,), (-10 * DAY_S,), (10 * DAY_S, -20 * DAY_S)])
def test_a_clock_that_is_set_makes_nobody_silent(repo: Path, clock: SetClock, jumps: tuple[float, ...]) -> None:
    running, go, log = at_second_step(repo, clock)
    for jump in jumps:
        clock.set_wall(jump)
        looked_again(repo)
    expect_went_on(repo, running, go, log)


def test_a_retry_does_not_wait_for_a_clock_that_was_set_back(repo: Path, clock: SetClock) -> None:
    add(repo, "t", "write README.md changed")
    (repo / "README.md").write_text("my own\n")
    running = begin(repo, **clock.env)
    wait_for(lambda: "t" in state(repo).tasks and bool(state(repo).tasks["t"].landing.verified), "the verdict")
    looked_again(repo)
    clock.set_wall(-10 * DAY_S)
    git(repo, "checkout", "README.md")
    out = running.communicate(timeout=120)[0]
    assert running.returncode == 0 and landed(repo) == ["t"], out


# -- subtasks that take too long --------------------------------------------------------------------------------------


def divided(repo: Path, go_on: Path, timeout_s: float) -> None:
    """A task that waits so long for its subtask, whose agent works until `go_on` is there."""
    add(repo, "top", "write top.txt x", subtask_timeout_s=timeout_s)
    add(repo, "sub", f"run {shell_wait(go_on)}\nwrite sub.txt x", parent="top")


def escalations(repo: Path) -> int:
    moves = (entry.inputs.get("event") for _, entry in Chain(layout(repo).wal).entries())
    return sum(event == "subtask_timeout_escalation" for event in moves)


def is_waiting(repo: Path) -> bool:
    tasks = state(repo).tasks
    return len(tasks) == 2 and [str(tasks[name].state) for name in ("top", "sub")] == [
        "WAITING_FOR_SUBTASKS",
        "IN_PROGRESS",
    ]


def test_a_night_without_a_run_is_no_time_that_subtasks_took(repo: Path, clock: SetClock, tmp_path: Path) -> None:
    divided(repo, tmp_path / "go", 3600)
    run = begin(repo, **clock.env)
    wait_for(lambda: is_waiting(repo), "the subtask is at work")
    holdfast(repo, "stop", "--agents", env=clock.env)
    run.communicate(timeout=120)
    clock.later(DAY_S)
    again = begin(repo, **clock.env)
    wait_for(lambda: state(repo).epoch >= 2 and is_waiting(repo), "the subtask is at work again")
    suspend(again, clock, DAY_S)
    clock.set_wall(DAY_S)
    (tmp_path / "go").touch()
    told, _ = again.communicate(timeout=120)
    assert escalations(repo) == 0, told
    assert [str(task.state) for task in state(repo).tasks.values()] == ["CLOSED", "CLOSED"] and landed(repo) == ["sub"]
    sound(repo)


def test_a_task_whose_subtasks_take_too_long_is_blocked_until_they_are_over(
    repo: Path, clock: SetClock, tmp_path: Path
) -> None:
    divided(repo, tmp_path / "go", 20)
    began = time.monotonic()
    run = begin(repo, **clock.env)
    wait_for(lambda: is_waiting(repo), "the subtask is at work")
    # In small steps, which are no gap.
    wait_for(lambda: clock.later(0.1) is None and escalations(repo) > 0, "the escalation")
    # The set clock goes on with the real one.
    assert clock.passed_s + time.monotonic() - began >= 10
    for asked in (["list"], ["show", "top"]):
        told = holdfast(repo, *asked, env=clock.env)
        assert "blocked" in told and "its subtask sub is in progress" in told
    (tmp_path / "go").touch()
    told, _ = run.communicate(timeout=120)
    assert escalations(repo) == 1, told
    assert [str(task.state) for task in state(repo).tasks.values()] == ["CLOSED", "CLOSED"], told
    sound(repo)
