"""The session of a person who has taken a task: shell, variables and ports, and work that is given back as finished."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.app import App
from holdfast.decisions.takeovers import FINISH_POINTS
from holdfast.domain.task import TaskState
from holdfast.errors import InputError
from holdfast.preparation import port_leases
from holdfast.wiring import decide_here
from kit.confined import needs_bwrap
from kit.git import git
from kit.program import Terminal, holdfast
from kit.project import add, landed, layout, settings, sound, state
from kit.tasks import failed, hanging, journal, living_run, turns, worktree
from kit.waiting import wait_for

PORTS = {"ports": 3, "env": {"CACHE_DIR": "~/cache"}}


def take_by_hand(repo: Path) -> None:
    decide_here(App.find(repo, environ={}), "k1", "take", {"task": "a"}, print)


def is_leased(first: int) -> bool:
    file = os.open(port_leases.folder() / str(first), os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def type_line(terminal: Terminal, repo: Path, line: str, file: str) -> str:
    """Types a command that writes a file into the worktree; returns what that has once it is whole."""
    terminal.type(f"{line} > {file}.new; mv {file}.new {file}\n")
    wait_for((worktree(repo) / file).exists, terminal.seen)
    return (worktree(repo) / file).read_text()


@pytest.mark.heavy
@pytest.mark.repo(worktree=PORTS)
@pytest.mark.parametrize("sandbox", ["none", pytest.param("bwrap", marks=needs_bwrap)])
def test_the_session_has_the_ports_and_variables_of_the_worktree_and_holds_the_lease(repo: Path, sandbox: str) -> None:
    failed(repo, script="run echo $HOLDFAST_PORT > agent.txt\n", sandbox=sandbox)
    with Terminal(repo, "take", "a", "--shell", env={"SHELL": "/bin/bash"}) as terminal:
        terminal.read_until(f"a.1: /bin/bash, in {worktree(repo)}")
        words = "$HOLDFAST_PORT $HOLDFAST_PORT_2 $CACHE_DIR $HOLDFAST_TASK $HOLDFAST_ATTEMPT"
        first, third, cache, *names = type_line(terminal, repo, f"echo {words}", "env.txt").split()
        # The block is that of the worktree's agent.
        assert first == (worktree(repo) / "agent.txt").read_text().strip() and int(third) == int(first) + 2
        assert cache.endswith("/cache") and not cache.startswith("~") and names == ["a", "a.1"]
        assert is_leased(int(first))
        terminal.type("exit\n")
        assert terminal.end() == 0, terminal.seen
    assert not is_leased(int(first))
    sound(repo)


@pytest.mark.heavy
@pytest.mark.repo(worktree=PORTS)
def test_a_session_that_is_killed_frees_its_ports_once_the_task_is_given_back(repo: Path) -> None:
    failed(repo)
    with Terminal(repo, "take", "a", "--shell") as terminal:
        terminal.read_until(f"in {worktree(repo)}")
        # It outlives the terminal, and keeps the lease.
        first = int(type_line(terminal, repo, "setsid -f nohup sleep 300; echo $HOLDFAST_PORT", "env.txt"))
        terminal.process.kill()
        terminal.process.wait()
        assert is_leased(first)
    holdfast(repo, "run", code=20)
    assert not is_leased(first) and state(repo).tasks["a"].parked and landed(repo) == []
    assert "env.txt" in git(layout(repo).snapshots, "ls-tree", "--name-only", "refs/attempts/a.1/taken-1")
    sound(repo)


@pytest.mark.heavy
def test_the_shell_is_that_of_the_terminal_also_where_a_run_has_decided(repo: Path) -> None:
    settings(repo, grace_s=0.5)
    hanging(repo, "a")
    with living_run(repo, SHELL="/bin/dash"):
        wait_for(lambda: turns(repo, "a") == 1, "the first turn")
        with Terminal(repo, "take", "a", "--park", env={"SHELL": "/bin/bash"}) as terminal:
            terminal.read_until(f"a.1: /bin/bash, in {worktree(repo)}")
            terminal.type("exit\n")
            assert terminal.end() == 0, terminal.seen
        with Terminal(repo, "take", "a", "--shell", "--park", env={"SHELL": "/nowhere/sh"}) as terminal:
            terminal.read_until(f"a.1: /bin/sh, in {worktree(repo)}")
            terminal.type("exit\n")
            assert terminal.end() == 0, terminal.seen


# -- finished ----------------------------------------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize("sandbox", ["none", pytest.param("bwrap", marks=needs_bwrap)])
def test_work_that_is_finished_when_the_person_leaves_is_verified_and_lands(repo: Path, sandbox: str) -> None:
    failed(repo, verify=["test -f mine.txt"], sandbox=sandbox)
    with Terminal(repo, "take", "a", "--shell", "--done") as terminal:
        terminal.read_until(f"in {worktree(repo)}")
        # The code of a shell is that of its last command.
        terminal.type("echo mine > mine.txt; false; exit\n")
        assert terminal.end() == 0 and "the next `holdfast run` verifies and lands it" in terminal.seen, terminal.seen
    task = state(repo).tasks["a"]
    assert task.state is TaskState.DONE and not task.parked and task.taken is None
    assert [each.inputs["decided"]["kind"] for each in journal(repo, "task_done")] == ["give_back"]
    story = holdfast(repo, "history", "a")
    assert "A person says that it is done" in story and "The agent says that it is done" not in story
    holdfast(repo, "run")
    task = state(repo).tasks["a"]
    assert task.state is TaskState.CLOSED and task.attempts == 1 and len(journal(repo, "task_spawn_intent")) == 1
    assert (repo / "mine.txt").read_text() == "mine\n" and landed(repo) == ["a"]
    sound(repo)


@pytest.mark.heavy
def test_finished_work_that_fails_its_gates_goes_on_like_an_agents(repo: Path) -> None:
    add(repo, "a", "attempt 1: write a.txt x\nattempt 1: fail so\nattempt 2: write good.txt x",
        max_attempts=1, verify=["test -f good.txt"])  # fmt: skip
    holdfast(repo, "run", code=20)
    take_by_hand(repo)
    (worktree(repo) / "mine.txt").write_text("mine\n")
    holdfast(repo, "give-back", "a", "--done")
    holdfast(repo, "run", code=20)
    task = state(repo).tasks["a"]
    assert task.state is TaskState.FAILED and task.outcome["kind"] == "gate_failed" and landed(repo) == []
    holdfast(repo, "retry", "a")
    holdfast(repo, "run")
    # The next attempt begins with what the person made.
    assert (repo / "mine.txt").exists() and (repo / "good.txt").exists() and landed(repo) == ["a"]
    sound(repo)


@pytest.mark.heavy
@pytest.mark.parametrize(
    "cut",
    [lambda terminal: terminal.process.send_signal(signal.SIGHUP), lambda terminal: terminal.type("kill -9 $$\n")],
    ids=["SIGHUP", "the shell is killed"],
)
def test_a_session_that_is_cut_short_does_not_finish_the_work(repo: Path, cut: Callable[[Terminal], None]) -> None:
    failed(repo)
    with Terminal(repo, "take", "a", "--done") as terminal:
        terminal.read_until(f"in {worktree(repo)}")
        type_line(terminal, repo, "echo mine", "mine.txt")
        cut(terminal)
        assert terminal.end() == 0 and "is not taken as finished" in terminal.seen
    holdfast(repo, "run", code=20)
    task = state(repo).tasks["a"]
    assert task.state is TaskState.OPEN and task.parked and task.taken is None and landed(repo) == []
    holdfast(repo, "give-back", "a", "--done")
    holdfast(repo, "run")
    assert (repo / "mine.txt").exists() and landed(repo) == ["a"] and len(journal(repo, "task_spawn_intent")) == 1
    sound(repo)


@pytest.mark.heavy
def test_the_work_of_a_killed_session_is_finished_only_by_a_person(repo: Path) -> None:
    failed(repo)
    with Terminal(repo, "take", "a", "--done") as terminal:
        terminal.read_until(f"in {worktree(repo)}")
        type_line(terminal, repo, "echo mine", "mine.txt")
        terminal.process.kill()
        terminal.process.wait()
    assert "that process is gone: given back" in holdfast(repo, "run", code=20)
    assert state(repo).tasks["a"].parked and landed(repo) == []
    holdfast(repo, "give-back", "a", "--done")
    holdfast(repo, "run")
    assert (repo / "mine.txt").exists() and landed(repo) == ["a"] and len(journal(repo, "task_spawn_intent")) == 1
    sound(repo)


@pytest.mark.heavy
@pytest.mark.parametrize("way", ["take", "give-back"])
@pytest.mark.parametrize(
    "point", ["give_back.ended", "give_back.saved", *FINISH_POINTS, "append.task_done.before", "append.task_done.after"]
)
def test_a_kill_while_work_is_given_back_as_finished_loses_and_repeats_nothing(
    repo: Path, point: str, way: str
) -> None:
    failed(repo)
    env = {"HOLDFAST_CRASH_AT": f"{point}:1"}
    if way == "take":
        with Terminal(repo, "take", "a", "--shell", "--done", env=env) as terminal:
            terminal.read_until(f"in {worktree(repo)}")
            terminal.type("echo mine > mine.txt; exit\n")
            assert terminal.end() == -signal.SIGKILL, terminal.seen
    else:
        take_by_hand(repo)
        (worktree(repo) / "mine.txt").write_text("mine\n")
        holdfast(repo, "give-back", "a", "--done", code=-signal.SIGKILL, env=env)
    is_over = point in ("give_back.finished", "append.task_done.after")
    task = state(repo).tasks["a"]
    assert (task.state, bool(task.parked)) == ((TaskState.DONE, False) if is_over else (TaskState.OPEN, True))
    if not is_over:
        # Nobody lands what nobody has finished.
        holdfast(repo, "run", code=20)
        assert landed(repo) == []
        holdfast(repo, "give-back", "a", "--done")
    holdfast(repo, "run")
    assert (repo / "mine.txt").exists() and landed(repo) == ["a"] and len(journal(repo, "task_done")) == 1
    assert state(repo).tasks["a"].attempts == 1 and len(journal(repo, "task_spawn_intent")) == 1
    sound(repo)


def test_the_same_request_twice_finishes_once(repo: Path) -> None:
    failed(repo)
    take_by_hand(repo)
    app, asked = App.find(repo, environ={}), {"task": "a", "done": True}
    assert decide_here(app, "k2", "give_back", asked, print) == decide_here(app, "k2", "give_back", asked, print)
    assert len(journal(repo, "task_done")) == len(journal(repo, "task_given_back")) == 1
    with pytest.raises(InputError, match="leave out `park`"):
        decide_here(app, "k3", "give_back", {**asked, "park": True}, print)
    sound(repo)


@pytest.mark.heavy
@pytest.mark.repo(limits={"file_bytes_max": 1 << 20})
def test_work_that_cannot_land_is_given_back_and_waits_with_the_reason(repo: Path) -> None:
    failed(repo)
    take_by_hand(repo)
    (worktree(repo) / "large").write_bytes(b"x" * (2 << 20))
    told = " ".join(holdfast(repo, "give-back", "a", "--done", code=9).split())
    assert "is too large for a snapshot, and would not land" in told and "holdfast give-back a --done" in told
    task = state(repo).tasks["a"]
    assert task.parked and task.taken is None and task.state is TaskState.OPEN
    (worktree(repo) / "large").unlink()
    git(worktree(repo), "init", "-q", "inner")
    (worktree(repo) / "inner" / "x").write_text("x\n")
    told = " ".join(holdfast(repo, "give-back", "a", "--done", code=9).split())
    assert "it leaves a git repository of its own in inner" in told and landed(repo) == []
    git(worktree(repo) / "inner", "-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "x", "--allow-empty")
    (worktree(repo) / "inner").rename(repo.parent / "inner")
    holdfast(repo, "give-back", "a", "--done")
    holdfast(repo, "run")
    assert landed(repo) == ["a"]
    sound(repo)


def test_parked_and_finished_exclude_each_other(repo: Path) -> None:
    failed(repo)
    with Terminal(repo, "take", "a", "--park", "--done") as terminal:
        assert terminal.end() == 2 and "choose one" in terminal.seen
    assert "choose one" in holdfast(repo, "give-back", "a", "--park", "--done", code=2)
