"""Stopping agents, with and without a run: after Ctrl-C they go on, and a person can end each of them."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from holdfast.domain.entries import STOPPED
from holdfast.domain.task import TaskState
from holdfast.storage.records import attempt_folder
from kit.program import begin, holdfast
from kit.project import add, landed, layout, sound, state
from kit.tasks import agent_is_alive
from kit.waiting import shell_wait, wait_for

# Whole runs, of seconds each.
pytestmark = [pytest.mark.heavy, pytest.mark.repo(grace_s=0.5)]


def begin_two(repo: Path) -> tuple[subprocess.Popen[str], Path]:
    go = repo.parent / "go"
    for name in ("one", "two"):
        add(repo, name, f"write {name}.txt x\nrun {shell_wait(go)}\nwrite {name}-2.txt x")
    process = begin(repo)
    for name in ("one", "two"):
        wait_for(lambda name=name: agent_is_alive(repo, f"{name}.1"), f"the agent of {name}")
        wait_for(lambda name=name: state(repo).tasks[name].spent.turns >= 1, f"the first turn of {name}")
    return process, go


def interrupted(repo: Path) -> Path:
    """Agents at work whose run was ended by Ctrl-C."""
    process, go = begin_two(repo)
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130 and agent_is_alive(repo, "one.1") and agent_is_alive(repo, "two.1")
    return go


def test_agents_that_outlived_their_run_are_ended_and_continued(repo: Path) -> None:
    go = interrupted(repo)
    said = holdfast(repo, "stop", code=7)
    assert "one.1, two.1" in said and "`holdfast stop --agents`" in said
    ended = json.loads(holdfast(repo, "stop", "--agents", "--json"))
    assert ended["agents"] == ["one.1", "two.1"]
    assert not agent_is_alive(repo, "one.1") and not agent_is_alive(repo, "two.1")
    tasks = state(repo).tasks
    assert all(task.state is TaskState.OPEN and task.continues and not task.parked for task in tasks.values())
    assert "No run is active" in holdfast(repo, "stop", "--agents", code=7)
    sound(repo)
    go.touch()
    holdfast(repo, "run")
    assert sorted(landed(repo)) == ["one", "two"]
    assert {task.attempts for task in state(repo).tasks.values()} == {1}


@pytest.mark.parametrize("with_run", [True, False])
def test_the_agent_of_one_task_is_ended_and_waits_for_resume(repo: Path, with_run: bool) -> None:
    process, go = begin_two(repo)
    if not with_run:
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert "holdfast resume one" in holdfast(repo, "stop", "one")
    wait_for(lambda: state(repo).tasks["one"].state is TaskState.OPEN, "what its runner said")
    assert not agent_is_alive(repo, "one.1") and agent_is_alive(repo, "two.1")
    assert state(repo).tasks["one"].parked == STOPPED and state(repo).tasks["one"].continues
    assert "cannot be stopped" in holdfast(repo, "stop", "one", code=9)
    go.touch()
    if with_run:
        process.communicate()
    holdfast(repo, "run", code=20)
    assert landed(repo) == ["two"]
    holdfast(repo, "resume", "one")
    holdfast(repo, "run")
    assert landed(repo) == ["two", "one"] and state(repo).tasks["one"].attempts == 1
    sound(repo)


def test_an_ended_agent_is_not_shown_at_work_and_the_next_run_names_the_adopted_ones(repo: Path) -> None:
    process, go = begin_two(repo)
    process.kill()
    process.communicate()
    shown = holdfast(repo, "status")
    # What a task was told last may hold a path, and that this test's name.
    words = shown.replace(repo.parent.name, "")
    assert "at work" in words and "ended" not in words and "`holdfast stop --agents` ends them" in shown
    assert not any(each["ended"] for each in json.loads(holdfast(repo, "status", "--json"))["at_work"])
    again = begin(repo)
    assert again.stdout is not None
    told = []
    while sum("adopted" in line for line in told) < 2:
        told.append(again.stdout.readline())
        assert told[-1], told
    go.touch()
    again.communicate()
    assert again.returncode == 0
    assert any("one: adopted one.1: scripted is at work since an earlier run" in line for line in told), told


def test_a_result_that_nobody_has_taken_is_shown_as_ended(repo: Path) -> None:
    _, go = begin_two(repo)[0].kill(), repo.parent / "go"
    go.touch()
    for name in ("one.1", "two.1"):
        files = layout(repo).attempt_files(name)
        wait_for(lambda files=files: attempt_folder.liveness(files, 1) is attempt_folder.Liveness.ENDED, "its end")
    shown = holdfast(repo, "status")
    assert "at work" not in shown and "ended; the next `holdfast run` takes the results" in shown
    assert all(each["ended"] for each in json.loads(holdfast(repo, "status", "--json"))["at_work"])
    said = holdfast(repo, "run")
    assert "one: one.1 has ended while nobody ran; its result is taken" in said
    assert sorted(landed(repo)) == ["one", "two"]


SLOW = """import os, sys, time
while "holdfast.agents.runner.runner" in sys.orig_argv and not os.path.exists({go!r}):
    time.sleep(0.02)
"""


def begin_slowly(repo: Path) -> tuple[subprocess.Popen[str], Path]:
    """A run whose runner is started, and begins only when the file is there."""
    go, slow = repo.parent / "go", repo.parent / "slow"
    slow.mkdir()
    (slow / "sitecustomize.py").write_text(SLOW.format(go=str(go)))
    process = begin(repo, PYTHONPATH=str(slow))
    wait_for(lambda: "t" in state(repo).tasks and state(repo).tasks["t"].state is TaskState.IN_PROGRESS, "the start")
    assert not layout(repo).attempt_files("t.1").start(1).exists()
    return process, go


def test_an_agent_that_is_stopped_while_its_runner_still_begins_is_ended(repo: Path) -> None:
    add(repo, "t", f"write one.txt x\nrun {shell_wait(repo.parent / 'on')}\nwrite two.txt x")
    process, go = begin_slowly(repo)
    holdfast(repo, "stop", "t")
    go.touch()
    wait_for(lambda: state(repo).tasks["t"].state is TaskState.OPEN, "the end of the agent")
    (repo.parent / "on").touch()
    process.communicate()
    assert state(repo).tasks["t"].parked == STOPPED and landed(repo) == []
    holdfast(repo, "resume", "t")
    holdfast(repo, "run")
    assert landed(repo) == ["t"] and state(repo).tasks["t"].attempts == 1
    sound(repo)


def test_a_runner_that_is_slow_to_begin_is_waited_for_and_goes_on_working(repo: Path) -> None:
    """Otherwise the next run takes it for one that never began, and starts another."""
    add(repo, "t", "write t.txt x")
    process, go = begin_slowly(repo)
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    out = ""
    for line in process.stdout:
        out += line
        if "still begins" in line:
            go.touch()
    go.touch()
    assert process.wait() == 130 and "1 agent goes on working" in out, out
    holdfast(repo, "run")
    task = state(repo).tasks["t"]
    assert landed(repo) == ["t"] and (task.attempts, task.start.number, task.attempt.resumes) == (1, 1, 0)
    sound(repo)
