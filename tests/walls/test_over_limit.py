"""A task whose agent goes over a limit, from the run's side: told, kept, and no fault that is waited for."""

from __future__ import annotations

from pathlib import Path

from holdfast.domain.task import TaskState
from kit.git import git
from kit.program import holdfast
from kit.project import add, landed, layout, make_repo, settings, sound, state

# Larger ones cannot even be made: `limits.written_bytes_max`.
HUGE = "truncate -s 60G huge"


def test_the_next_attempt_gets_the_limit_as_feedback_and_begins_with_the_last_turn(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    settings(repo, grace_s=0.5)
    add(repo, "t", f"attempt 1: write b 1\nattempt 1: run {HUGE}\nattempt 2: run ls > seen\nwrite t.txt x")
    said = holdfast(repo, "run")
    assert "No snapshot of" in said and "the file huge has 60 GB" in said
    assert landed(repo) == ["t"] and state(repo).tasks["t"].attempts == 2
    assert {"b", "t.txt"} <= set(git(repo, "ls-tree", "-r", "--name-only", "main").split())
    assert "huge" not in git(repo, "show", "main:seen").split()
    sound(repo)


def test_a_task_that_is_over_its_limit_again_and_again_has_failed_and_says_so(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    settings(repo, grace_s=0.5)
    add(repo, "t", f"write b 1\nrun {HUGE}", max_attempts=2)
    holdfast(repo, "run", code=None)
    task = state(repo).tasks["t"]
    assert task.state is TaskState.FAILED and task.attempts == 2 and task.outcome["kind"] == "over_limit"
    told = " ".join(holdfast(repo, "show", "t").split())
    for way in ("huge", "60 GB", ".gitignore", "limits.file_bytes_max", "holdfast retry t"):
        assert way in told, told
    assert (layout(repo).worktree("t") / "huge").exists() and (layout(repo).worktree("t") / "b").exists()
    assert "huge" in holdfast(repo, "promote", "t", code=8)
    assert "memory" in holdfast(repo, "doctor", code=None)
    sound(repo)
