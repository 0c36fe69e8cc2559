"""One orchestrator owns a data root: a second is refused, also by one that was stopped, and may only take over."""

from __future__ import annotations

import os
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest

from holdfast.errors import Locked
from holdfast.identity import Identity
from holdfast.storage.records.attempt_folder import read_process
from kit.crash import BESIDE, STEP, left_alive
from kit.one_agent import ticks
from kit.program import begin, holdfast
from kit.project import add, landed, layout, make_repo, sound, state
from kit.waiting import wait_for

UNTIL_LET_GO = f"run until test -e {BESIDE}/go; do sleep 0.02; done"
# At work until there is a file `go` beside the repository.
LONG = f"{STEP} 1\nwrite long.txt x\n{UNTIL_LET_GO}\n{STEP} 2"

# Whole runs, of seconds each.
pytestmark = [pytest.mark.heavy, pytest.mark.repo(make=partial(make_repo, long=LONG))]


def agent_of(repo: Path) -> Identity | None:
    found = read_process(layout(repo).attempt_files("long.1"))
    return found.agent if found else None


def at_work(repo: Path) -> Identity:
    """The agent, once its second turn is journalled."""
    wait_for(lambda: "long" in state(repo).tasks and state(repo).tasks["long"].attempt.turn == 2, "turn 2")
    found = agent_of(repo)
    assert found is not None
    return found


def let_go(repo: Path) -> None:
    (repo.parent / "go").touch()


def expect_landed_once(repo: Path) -> None:
    assert landed(repo) == ["long"]
    sound(repo)
    assert not (repo.parent / "agents" / "doubled").exists()
    assert left_alive(repo) == []


def agents(repo: Path) -> set[str]:
    """The pid of every agent that did a step."""
    return {line.split()[0] for line in (repo.parent / "agents" / "long.1").read_text().splitlines()}


def refused(repo: Path, owner: subprocess.Popen[str]) -> None:
    entries = sorted(layout(repo).wal.iterdir())
    told = holdfast(repo, "run", "--plain", code=Locked.exit_code)
    assert f"pid {owner.pid}" in told
    assert sorted(layout(repo).wal.iterdir()) == entries, "the one that was refused began a run"


def test_a_second_run_is_refused_and_told_who_has_the_data_root(repo: Path) -> None:
    first = begin(repo)
    at_work(repo)
    refused(repo, first)
    let_go(repo)
    first.communicate(timeout=120)
    assert first.returncode == 0
    expect_landed_once(repo)


def test_a_stopped_run_keeps_the_data_root_until_it_is_taken_over(repo: Path) -> None:
    first = begin(repo)
    agent = at_work(repo)
    os.kill(first.pid, signal.SIGSTOP)
    refused(repo, first)
    second = begin(repo, "--take-over")
    first.communicate(timeout=120)
    assert first.returncode == -signal.SIGKILL
    wait_for(lambda: state(repo).epoch == 2, "the second run")
    assert agent_of(repo) == agent and agent.is_alive(), "the agent was not left at work"
    let_go(repo)
    told, _ = second.communicate(timeout=120)
    assert second.returncode == 0, told
    assert agents(repo) == {str(agent.pid)}
    assert state(repo).tasks["long"].start.number == 1
    expect_landed_once(repo)


def test_a_run_that_was_stopped_while_a_gate_judges_is_taken_over(repo: Path) -> None:
    """The gate goes on without its orchestrator: it is ended, and the judgement made again, before anything lands."""
    judged = repo.parent / "judged"
    gate = f"echo $$ >> {judged}; test $(wc -l < {judged}) -gt 1 || sleep 1000"
    add(repo, "long", f"{STEP} 1\nwrite long.txt x", verify=[gate])
    first = begin(repo)
    wait_for(lambda: judged.exists() and judged.read_text() != "", "the gate")
    os.kill(first.pid, signal.SIGSTOP)
    refused(repo, first)
    assert len(judged.read_text().split()) == 1
    second = begin(repo, "--take-over")
    told, _ = second.communicate(timeout=120)
    assert second.returncode == 0, told
    first.communicate(timeout=120)
    assert first.returncode == -signal.SIGKILL
    gates = [int(pid) for pid in judged.read_text().split()]
    assert len(gates) == 2 and all(ticks(pid) is None for pid in gates)
    expect_landed_once(repo)
