"""A commit that a person makes from a checkout that was not brought up to date yet puts back what had just landed."""

from __future__ import annotations

import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from holdfast.domain.task import TaskState
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, landed, sound, state

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy


@pytest.fixture(params=["effect.land.after", "append.task_land_confirmed.after", "append.task_refresh_intent.after"])
def repo(repo: Path, request: pytest.FixtureRequest) -> Path:
    """Something has landed, the run died before the checkout followed, and a person has committed there."""
    (repo / "old.txt").write_text("old\n")
    git(repo, "add", "old.txt")
    git(repo, "commit", "-q", "-m", "something to remove")
    add(repo, "t", "write new.txt x\nwrite README.md better\ndelete old.txt")
    add(repo, "u", "write u.txt x", depends_on=["t"])
    assert begin(repo, HOLDFAST_CRASH_AT=f"{request.param}:1").wait() == -signal.SIGKILL
    assert landed(repo) == ["t"]
    (repo / "mine.txt").write_text("mine\n")
    for command in (["add", "mine.txt"], ["commit", "-q", "-a", "-m", "mine"]):
        refused = subprocess.run(["git", "-C", str(repo), *command], capture_output=True, text=True, check=False)
        assert refused.returncode == 128 and "index.lock" in refused.stderr
    # As git advises, and as a person does who knows no better.
    (repo / ".git" / "index.lock").unlink()
    git(repo, "add", "mine.txt")
    git(repo, "commit", "-q", "-a", "-m", "mine")
    assert git(repo, "ls-tree", "--name-only", "main", "new.txt") == "", "the fault did not fire"
    return repo


def held_at(repo: Path) -> str:
    assert "put back" in holdfast(repo, "check", code=4)
    said = holdfast(repo, "run", code=None)
    task = state(repo).tasks["t"]
    assert task.state is TaskState.DONE and "put back" in task.parked, said
    assert state(repo).tasks["u"].state is not TaskState.CLOSED, "it builds on what is not there"
    assert "put back" in holdfast(repo, "check", code=4)
    assert "holdfast resolve t" in holdfast(repo, "doctor", code=None)
    return task.parked


def test_a_reverted_landing_is_reported_and_the_named_command_brings_it_back(repo: Path) -> None:
    parked = held_at(repo)
    restore = next(each for each in parked.split("`") if each.startswith("git restore"))
    git(repo, *shlex.split(restore)[1:])
    git(repo, "commit", "-q", "-m", "with what had landed")
    holdfast(repo, "resolve", "t", "--retry")
    holdfast(repo, "run")
    assert sorted(landed(repo)) == ["t", "u"]
    there = git(repo, "ls-tree", "-z", "--name-only", "main").split("\0")
    assert {"new.txt", "mine.txt", "u.txt"} <= set(there) and "old.txt" not in there
    assert git(repo, "show", "main:README.md") == "better" and git(repo, "status", "--porcelain") == ""
    sound(repo)


def test_a_person_can_leave_it_so(repo: Path) -> None:
    held_at(repo)
    holdfast(repo, "resolve", "t", "--happened")
    holdfast(repo, "run")
    assert sorted(landed(repo)) == ["t", "u"] and state(repo).tasks["t"].state is TaskState.CLOSED
    assert git(repo, "ls-tree", "--name-only", "main", "old.txt") == "old.txt"
    sound(repo)
