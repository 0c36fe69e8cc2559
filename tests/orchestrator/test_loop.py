"""The whole of it: `holdfast run` over real repositories, with real runners and agents."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from holdfast.app import App
from holdfast.domain.task import TaskState
from holdfast.identity import start_ticks
from holdfast.orchestrator.loop import Loop
from holdfast.orchestrator.wakeup import LEAVE
from holdfast.storage.journal.lock import read_holder
from holdfast.storage.records import attempt_folder
from holdfast.wiring import run_context
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, landed, layout, make_repo, settings, sound, state
from kit.tasks import agent_is_alive, turns_journalled
from kit.waiting import shell_wait, wait_for


def file(repo: Path, name: str) -> str:
    return git(repo, "show", f"main:{name}")


def agent_pid(repo: Path, attempt: str) -> int:
    wait_for(lambda: agent_is_alive(repo, attempt), f"the agent of {attempt}")
    running = attempt_folder.read_process(layout(repo).attempt_files(attempt))
    assert running is not None
    return running.agent.pid


def gate(repo: Path, name: str) -> Path:
    """A file that a script waits for, so that a test decides when the agent goes on."""
    return repo.parent / name


# -- work that goes well ----------------------------------------------------------------------------------------------


@pytest.mark.heavy
def test_a_graph_lands_in_its_order_and_the_checkout_follows(repo: Path) -> None:
    add(repo, "a", "write a.txt one")
    add(repo, "b", "append a.txt two", depends_on=["a"])
    add(repo, "c", "write c.txt three", verify=["test -e c.txt", "test -e README.md"])
    out = holdfast(repo, "run")
    assert sorted(landed(repo)) == ["a", "b", "c"] and landed(repo).index("a") < landed(repo).index("b")
    assert git(repo, "status", "--short") == "" and (repo / "c.txt").read_text().strip() == "three"
    assert "3 closed" in out and not list(layout(repo).worktrees.glob("[a-z]*"))
    assert {path.parent.name for path in layout(repo).backlog.rglob("*.yaml")} == {"closed"}
    sound(repo)


def test_a_command_is_an_agent_and_what_it_leaves_is_its_candidate(repo: Path) -> None:
    path = layout(repo).backlog_open / "c.yaml"
    path.write_text("title: by command\ncommand: echo made > made.txt\n")
    holdfast(repo, "run")
    assert file(repo, "made.txt") == "made" and landed(repo) == ["c"]


@pytest.mark.heavy
def test_agents_and_gates_are_as_nice_as_the_settings_say(repo: Path) -> None:
    add(repo, "t", "run nice > agent.txt", verify=[f"nice > {gate(repo, 'gate')}"])
    holdfast(repo, "run", env={"HOLDFAST_LIMITS__NICE": "3"})
    nice = str(os.nice(0) + 3)
    assert file(repo, "agent.txt") == nice and gate(repo, "gate").read_text().strip() == nice


def test_a_goal_in_words_is_one_task(repo: Path) -> None:
    agent = {"name": "echo", "command": ["sh", "-c", "cat > goal.txt"], "prompt": "stdin"}
    settings(repo, agent="echo", agents=[agent])
    add(repo, "other", "write other.txt x")
    holdfast(repo, "run", "write down what you were told")
    assert "write down what you were told" in file(repo, "goal.txt")
    assert len(landed(repo)) == 1 and state(repo).tasks["other"].state is TaskState.OPEN


def test_subtasks_are_the_work_of_their_parent(repo: Path) -> None:
    add(repo, "parent", "write never.txt x")
    add(repo, "child-1", "write one.txt x", parent="parent")
    add(repo, "child-2", "write two.txt x", parent="parent")
    holdfast(repo, "run")
    assert sorted(landed(repo)) == ["child-1", "child-2"]
    assert state(repo).tasks["parent"].state is TaskState.CLOSED
    sound(repo)


# -- work that goes wrong ---------------------------------------------------------------------------------------------


def test_a_failed_gate_wakes_the_same_work_with_what_failed(repo: Path) -> None:
    script = "attempt 1: write code.txt broken\nattempt 2: run cat code.txt\nattempt 2: write code.txt right"
    add(repo, "t", script, verify=["grep -q right code.txt"])
    out = holdfast(repo, "run")
    assert "ended with code 1; attempt 2 of 3 follows" in out and "gate_failed" not in out
    assert landed(repo) == ["t"] and file(repo, "code.txt") == "right"
    assert state(repo).tasks["t"].attempts == 2
    sound(repo)


@pytest.mark.heavy
def test_a_conflict_goes_back_to_the_agent(repo: Path) -> None:
    go = gate(repo, "go")
    again = "attempt 2: run grep -q '<<<<' same.txt\nattempt 2: write same.txt both"
    add(repo, "slow", f"write same.txt mine\nrun {shell_wait(go)}\n{again}")
    process = begin(repo)
    agent_pid(repo, "slow.1")
    (repo / "same.txt").write_text("theirs\n")
    git(repo, "add", "same.txt")
    git(repo, "commit", "-q", "-m", "meanwhile")
    go.touch()
    out = process.communicate()[0]
    assert process.returncode == 0, out
    assert "conflict" in out and file(repo, "same.txt") == "both" and landed(repo) == ["slow"]
    sound(repo)


# -- kill anything ----------------------------------------------------------------------------------------------------


def test_an_agent_outlives_the_orchestrator_and_is_adopted(repo: Path) -> None:
    go = gate(repo, "go")
    add(repo, "t", f"write a.txt x\nrun {shell_wait(go)}\nwrite b.txt x\nwrite c.txt x")
    process = begin(repo)
    pid = agent_pid(repo, "t.1")
    wait_for(lambda: turns_journalled(repo, "t") >= 1, "the first turn")
    process.kill()
    process.communicate()
    go.touch()
    files = layout(repo).attempt_files("t.1")
    wait_for(lambda: files.exit.exists(), "the end of the agent, with nobody watching")
    assert len(files.turns.read_text().splitlines()) == 4 and turns_journalled(repo, "t") < 4
    holdfast(repo, "run")
    exit = json.loads(files.exit.read_text())
    running = attempt_folder.read_process(files)
    assert running is not None and running.agent.pid == pid and exit["start"] == 1 and turns_journalled(repo, "t") == 4
    assert landed(repo) == ["t"] and not files.start(2).exists()
    sound(repo)


@pytest.mark.heavy
def test_a_living_agent_is_followed_by_the_next_orchestrator(repo: Path) -> None:
    go = gate(repo, "go")
    add(repo, "t", f"write a.txt x\nrun {shell_wait(go)}\nwrite b.txt x")
    first = begin(repo)
    pid = agent_pid(repo, "t.1")
    first.kill()
    first.communicate()
    second = begin(repo)
    wait_for(lambda: state(repo).epoch >= 2, "the second run")
    assert agent_pid(repo, "t.1") == pid
    go.touch()
    assert second.wait(120) == 0 and landed(repo) == ["t"]
    assert not layout(repo).attempt_files("t.1").start(2).exists()
    second.communicate()


def at_second_step(repo: Path) -> tuple[subprocess.Popen[str], int, Path, Path]:
    """A run whose agent has done its first step: process and agent, what it waits for, and the log of its steps."""
    go, log = gate(repo, "go"), gate(repo, "log")
    add(repo, "t", f"run echo 1 >> {log}\nrun {shell_wait(go)}\nrun echo 3 >> {log}\nwrite done.txt x")
    process = begin(repo)
    pid = agent_pid(repo, "t.1")
    wait_for(lambda: turns_journalled(repo, "t") >= 1, "the first turn")
    return process, pid, go, log


@pytest.mark.heavy
def test_a_killed_agent_goes_on_where_it_was(repo: Path) -> None:
    process, pid, go, log = at_second_step(repo)
    os.killpg(pid, signal.SIGKILL)
    go.touch()
    out = process.communicate()[0]
    assert process.returncode == 0, out
    assert log.read_text() == "1\n3\n" and landed(repo) == ["t"]
    assert layout(repo).attempt_files("t.1").start(2).exists() and state(repo).tasks["t"].attempts == 1
    sound(repo)


@pytest.mark.heavy
def test_the_agent_of_a_killed_runner_is_ended_before_anything_goes_on(repo: Path) -> None:
    process, pid, go, log = at_second_step(repo)
    runner = attempt_folder.read_start(layout(repo).attempt_files("t.1"), 1)
    assert runner is not None and runner.is_alive()
    os.kill(runner.pid, signal.SIGKILL)
    wait_for(lambda: layout(repo).attempt_files("t.1").start(2).exists(), "the next start")
    assert start_ticks(pid) is None
    go.touch()
    out = process.communicate()[0]
    assert process.returncode == 0, out
    assert log.read_text() == "1\n3\n" and landed(repo) == ["t"]
    sound(repo)


@pytest.mark.heavy
def test_all_is_lost_at_once_and_goes_on(repo: Path) -> None:
    """As when the machine goes down: orchestrator, runner and agent die together."""
    process, pid, go, log = at_second_step(repo)
    runner = attempt_folder.read_start(layout(repo).attempt_files("t.1"), 1)
    assert runner is not None
    process.kill()
    os.kill(runner.pid, signal.SIGKILL)
    os.killpg(pid, signal.SIGKILL)
    process.communicate()
    go.touch()
    holdfast(repo, "run")
    assert log.read_text() == "1\n3\n" and landed(repo) == ["t"]
    sound(repo)


# -- stopping ---------------------------------------------------------------------------------------------------------


def test_stopping_leaves_the_agents_at_work(repo: Path) -> None:
    go = gate(repo, "go")
    add(repo, "t", f"run {shell_wait(go)}\nwrite a.txt x")
    process = begin(repo)
    agent_pid(repo, "t.1")
    assert "has ended" in holdfast(repo, "stop")
    process.communicate()
    assert process.returncode == 20 and agent_is_alive(repo, "t.1")
    go.touch()
    holdfast(repo, "run")
    assert landed(repo) == ["t"]


@pytest.mark.heavy
def test_agents_that_were_stopped_go_on_later(repo: Path) -> None:
    go = gate(repo, "go")
    add(repo, "t", f"write a.txt x\nrun {shell_wait(go)}\nwrite b.txt x")
    process = begin(repo)
    agent_pid(repo, "t.1")
    wait_for(lambda: turns_journalled(repo, "t") >= 1, "the first turn")
    holdfast(repo, "stop", "--agents")
    process.communicate()
    task = state(repo).tasks["t"]
    assert not agent_is_alive(repo, "t.1") and task.state is TaskState.OPEN and task.continues
    go.touch()
    holdfast(repo, "run")
    assert landed(repo) == ["t"] and state(repo).tasks["t"].attempts == 1
    sound(repo)


def test_a_detached_run_lands_in_the_background(repo: Path) -> None:
    add(repo, "t", "write a.txt x")
    out = holdfast(repo, "run", "--detach")
    assert "pid" in out
    wait_for(lambda: landed(repo) == ["t"], "the landing")
    wait_for(lambda: not holds_lock(repo), "the end of the run")


def holds_lock(repo: Path) -> bool:
    holder = read_holder(layout(repo).lock)
    return holder is not None and holder.is_alive()


def test_a_task_added_while_it_runs_is_taken_in(repo: Path) -> None:
    go = gate(repo, "go")
    add(repo, "t", f"run {shell_wait(go)}\nwrite a.txt x")
    process = begin(repo)
    agent_pid(repo, "t.1")
    add(repo, "late", "write late.txt x")
    wait_for(lambda: "late" in landed(repo), "the task that came later")
    go.touch()
    assert process.wait(120) == 0 and sorted(landed(repo)) == ["late", "t"]
    process.communicate()


# -- projections ------------------------------------------------------------------------------------------------------


def test_each_attempts_state_is_rebuilt_equal(repo: Path) -> None:
    add(repo, "a", "write a.txt x\nspend 0.5 10\nwrite b.txt y")
    add(repo, "b", "fail", max_attempts=1)
    holdfast(repo, "run", code=20)
    files = [layout(repo).attempt_files(name).state for name in ("a.1", "b.1")]
    before = [file.read_bytes() for file in files]
    assert json.loads(before[0])["turn"] == 2
    files[0].unlink()
    files[1].write_bytes(b"{}")
    assert "is not what the journal says of a.1" in holdfast(repo, "check", code=None)
    holdfast(repo, "check", "--repair")
    assert [file.read_bytes() for file in files] == before
    sound(repo)


def test_a_turn_that_the_journal_pins_is_missed(repo: Path) -> None:
    add(repo, "a", "write a.txt x\nwrite b.txt y")
    holdfast(repo, "run")
    turns = layout(repo).attempt_files("a.1").turns
    turns.write_bytes(turns.read_bytes().splitlines(keepends=True)[0])
    assert "the journal has turns up to" in holdfast(repo, "check", code=None)


def test_spending_after_the_last_turn_counts(repo: Path) -> None:
    add(repo, "a", "write a.txt x\nspend 0.5 10\nwrite b.txt y\nspend 0.25 7")
    holdfast(repo, "run")
    task = state(repo).tasks["a"]
    assert (task.spent.usd, task.spent.tokens, task.spent.turns) == (0.75, 17, 2) and state(repo).run.usd == 0.75
    sound(repo)


def test_a_sandbox_that_is_not_there_is_reported_and_nothing_starts(repo: Path) -> None:
    add(repo, "a", "write a.txt x", sandbox="cage")
    out = holdfast(repo, "run", code=20)
    assert "no sandbox 'cage'" in out and state(repo).tasks["a"].attempts == 0


# -- what must not pass as done ---------------------------------------------------------------------------------------


def test_work_lands_where_the_run_began_whatever_is_checked_out_meanwhile(repo: Path) -> None:
    go = gate(repo, "go")
    add(repo, "t", f"write a.txt x\nrun {shell_wait(go)}")
    process = begin(repo)
    agent_pid(repo, "t.1")
    git(repo, "checkout", "-q", "-b", "side")
    go.touch()
    out = process.communicate()[0]
    assert process.returncode == 0 and "landed on main" in out and landed(repo, "main") == ["t"], out
    assert landed(repo, "side") == [] and not (repo / "a.txt").exists()


@pytest.mark.heavy
def test_an_attempt_that_cannot_be_continued_is_given_up(repo: Path) -> None:
    """Nobody is the author of what it made, from the middle of its work on."""
    add(repo, "t", f"write a.txt 1\nrun git -C {repo} config --unset user.name\nwrite b.txt 1", max_attempts=1)
    out = holdfast(repo, "run", code=20)
    task = state(repo).tasks["t"]
    assert task.state is TaskState.FAILED and task.outcome["kind"] == "unrecoverable", out
    assert "The author of what lands in" in task.outcome["detail"] and task.attempt.turn == 3


@pytest.mark.heavy
def test_an_attempt_resumed_after_an_undo_lands_all_its_turns_once(repo: Path) -> None:
    add(repo, "t", "write a.txt 1\nwrite b.txt 2\nonce ../marker: fail\nwrite c.txt 3", max_attempts=1)
    holdfast(repo, "run", code=20)
    holdfast(repo, "undo", "t", "--turn", "1")
    holdfast(repo, "resume", "t")
    holdfast(repo, "run")
    assert [file(repo, f"{name}.txt") for name in "abc"] == ["1", "2", "3"] and landed(repo) == ["t"]
    sound(repo)


@pytest.mark.heavy
def test_nothing_is_built_on_a_landing_that_is_lost(repo: Path) -> None:
    add(repo, "a", "write a.txt 1")
    add(repo, "b", "write b.txt 1", depends_on=["a"])
    holdfast(repo, "run", "--only", "a")
    lost = git(repo, "rev-parse", "HEAD")
    git(repo, "reset", "-q", "--hard", "HEAD~1")
    out = holdfast(repo, "run", code=20)
    assert "lost" in out and landed(repo) == [] and lost[:12] in holdfast(repo, "check", code=4)
    holdfast(repo, "promote", "a")
    holdfast(repo, "run")
    assert landed(repo) == ["a", "b"]
    sound(repo)


def test_a_stop_that_comes_while_it_looks_for_one_is_not_lost(tmp_path: Path) -> None:
    """A signal may come at any moment, also between asking the file and noting what it said."""
    app = App.find(make_repo(tmp_path))
    with run_context(app, lambda task, text: None) as context:
        loop = Loop(context, stays=True)

        def asked_to_stop(run: str) -> str:
            loop.stop(LEAVE)
            return ""

        loop.signals.asked_to_stop = asked_to_stop  # type: ignore[method-assign]
        running = threading.Thread(target=loop.run, daemon=True)
        running.start()
        running.join(120)
        assert not running.is_alive() and loop.stopping == LEAVE


# -- an orphan that may not be continued any more ---------------------------------------------------------------------


@pytest.mark.heavy
def test_a_salvaged_candidate_that_a_gate_refuses_is_what_the_next_attempt_begins_with(repo: Path) -> None:
    settings(repo, max_resumes=0)
    script = (
        "attempt 1: write t.txt half\nattempt 1: crash KILL\nattempt 2: run test $(cat t.txt) = half\nwrite t.txt right"
    )
    add(repo, "t", script, verify=["grep -q right t.txt"])
    holdfast(repo, "run")
    assert landed(repo) == ["t"] and state(repo).tasks["t"].attempts == 2 and file(repo, "t.txt") == "right"
    sound(repo)
