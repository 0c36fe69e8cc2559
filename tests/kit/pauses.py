"""An attempt that was stopped in the middle of its work, and goes on when a test lets it."""

from __future__ import annotations

from pathlib import Path

from holdfast.domain.task import TaskState
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, layout, state
from kit.waiting import wait_for


def stop_after(repo: Path, task: str, script: str, count: int, here: Path) -> None:
    """Runs the script until so many turns are done and `here` is there, and then stops its agent."""
    add(repo, task, script)
    process = begin(repo)
    wait_for(lambda: turns(repo, task) >= count and here.exists(), f"{count} turns, and {here.name}")
    holdfast(repo, "stop", "--agents")
    process.communicate()
    assert state(repo).tasks[task].state is TaskState.OPEN and state(repo).tasks[task].continues


def paused(repo: Path, task: str = "a") -> Path:
    """Two turns are done, something more was written, and its agent was stopped. Returns what lets it go on."""
    go = repo.parent / "go"
    wait = f"touch half.txt; while [ ! -e {go} ]; do sleep 0.05; done"
    script = f"write one.txt 1\nwrite two.txt 2\nrun {wait}\nwrite three.txt 3"
    stop_after(repo, task, script, 2, layout(repo).worktree(task) / "half.txt")
    return go


def turns(repo: Path, task: str) -> int:
    known = state(repo).tasks.get(task)
    return known.turn if known is not None else 0


def files_landed(repo: Path) -> set[str]:
    return set(git(repo, "ls-tree", "--name-only", "main").split())
