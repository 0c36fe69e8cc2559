"""A `git reset --hard` that began before a landing and ends after it puts the branch back; nobody asked for that."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.domain.task import TaskState
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, landed, sound, state
from kit.waiting import shell_wait, wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy


def slow_reset(repo: Path) -> Callable[[], None]:
    """Begins a real `git reset --hard`, which waits where it has read the branch and not moved it; ended by a call."""
    hooks = repo.parent / "hooks"
    hooks.mkdir()
    waits, goes_on = hooks / "waits", hooks / "goes on"
    hook = hooks / "post-index-change"
    hook.write_text(f"#!/bin/sh\ntouch '{waits}'\n{shell_wait(goes_on)}\n")
    hook.chmod(0o755)
    # Something to do for it: an index that is up to date already is not written.
    (repo / "README.md").write_text("changed\n")
    reset = subprocess.Popen(["git", "-C", str(repo), "-c", f"core.hooksPath={hooks}", "reset", "-q", "--hard"])
    wait_for(waits.exists, "the reset has read the branch")

    def end() -> None:
        goes_on.touch()
        assert reset.wait() == 0
        entry = git(repo, "log", "--walk-reflogs", "-1", "--format=%gs", "main")
        assert entry == "reset: moving to HEAD", "the fault did not fire"

    return end


def test_the_next_run_lands_it_again(repo: Path) -> None:
    add(repo, "t", "write t.txt x")
    end = slow_reset(repo)
    holdfast(repo, "run")
    assert landed(repo) == ["t"]
    end()
    assert landed(repo) == []
    assert "Sound; the next start has" in holdfast(repo, "check")
    assert "undid its landing" in holdfast(repo, "run")
    assert landed(repo) == ["t"] and (repo / "t.txt").exists() and git(repo, "status", "--porcelain") == ""
    sound(repo)
    assert "Sound.\n" in holdfast(repo, "check")


def test_the_next_landing_of_the_same_run_comes_on_top_of_it(repo: Path) -> None:
    beside = repo.parent / "go"
    add(repo, "t", "write t.txt x")
    add(repo, "u", f"run {shell_wait(beside)}\nwrite u.txt x")
    end = slow_reset(repo)
    process = begin(repo)
    wait_for(lambda: "t" in state(repo).tasks and state(repo).tasks["t"].state is TaskState.CLOSED, "the landing of t")
    end()
    beside.touch()
    said = process.communicate()[0]
    assert landed(repo) == ["t", "u"], said
    assert git(repo, "status", "--porcelain") == ""
    sound(repo)


def test_a_reset_that_was_meant_is_left_to_a_person_also_after_one_that_was_not(repo: Path) -> None:
    add(repo, "t", "write t.txt x")
    end = slow_reset(repo)
    holdfast(repo, "run")
    end()
    holdfast(repo, "run")
    assert landed(repo) == ["t"]
    git(repo, "reset", "-q", "--hard", "HEAD~1")
    assert "is lost" in holdfast(repo, "check", code=4)
    assert "is lost" in holdfast(repo, "run", code=None)
    assert landed(repo) == []
