"""What had landed when the journal was put back from an older backup is recognised, and nothing of it runs again."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.domain.task import TaskState
from holdfast.storage.journal.reader import Chain
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, landed, layout, sound, state

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy


def ran(repo: Path) -> int:
    log = repo.parent / "log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def back_up(repo: Path) -> None:
    shutil.copytree(layout(repo).wal, repo.parent / "backup")


def put_back(repo: Path) -> None:
    shutil.rmtree(layout(repo).wal)
    shutil.copytree(repo.parent / "backup", layout(repo).wal)
    for path in (layout(repo).tasks, layout(repo).uncommitted, layout(repo).idempotency):
        path.unlink(missing_ok=True)


def crashed(repo: Path, point: str) -> None:
    run = begin(repo, HOLDFAST_CRASH_AT=f"{point}:1")
    run.communicate()
    assert run.returncode == -9


def add_effect(repo: Path, name: str = "t") -> None:
    add(repo, name, f"run echo ran >> {repo.parent / 'log'}\nwrite one.txt 1")


def restored(repo: Path, point: str) -> str:
    """The task has landed, and the journal is of the kill at this point; returns the landed commit."""
    add_effect(repo)
    crashed(repo, point)
    back_up(repo)
    holdfast(repo, "run")
    assert landed(repo) == ["t"] and ran(repo) == 1
    put_back(repo)
    assert "is older than" in holdfast(repo, "run", code=4)
    holdfast(repo, "resolve", "--journal-restored")
    return git(repo, "rev-parse", "main")


@pytest.mark.parametrize(
    "point",
    [
        "append.task_claimed.before",
        "append.task_spawn_intent.after",
        "append.task_done.before",
        "append.task_verify_intent.before",
        "append.task_land_intent.before",
    ],
)
def test_a_found_landing_is_journalled_and_nothing_of_it_runs_again(repo: Path, point: str) -> None:
    at = restored(repo, point)
    assert "is its landing" in holdfast(repo, "run")
    task = state(repo).tasks["t"]
    assert (task.state, task.landing.commit, task.attempt.id) == (TaskState.CLOSED, at, "t.1")
    assert ran(repo) == 1 and git(repo, "rev-parse", "main") == at
    sound(repo)
    # It is reported once.
    assert "is its landing" not in holdfast(repo, "run") and ran(repo) == 1


def test_a_kill_while_it_is_journalled_repeats_nothing(repo: Path) -> None:
    at = restored(repo, "append.task_claimed.before")
    for point in ("task_claimed.after", "task_done.after", "task_land_intent.after", "task_closed.before"):
        crashed(repo, f"append.{point}")
    holdfast(repo, "run")
    assert state(repo).tasks["t"].state is TaskState.CLOSED and state(repo).tasks["t"].landing.commit == at
    assert ran(repo) == 1 and git(repo, "rev-parse", "main") == at
    sound(repo)


def test_a_landing_that_was_amended_is_recognised_without_the_audit_log(repo: Path) -> None:
    add_effect(repo)
    crashed(repo, "append.task_done.before")
    back_up(repo)
    holdfast(repo, "run")
    git(repo, "commit", "-q", "--amend", "--no-edit", "--date=2001-01-01T00:00:00")
    at = git(repo, "rev-parse", "main")
    put_back(repo)
    shutil.rmtree(layout(repo).audit)
    holdfast(repo, "resolve", "--journal-restored")
    assert "git's log of the branch" in holdfast(repo, "run")
    assert state(repo).tasks["t"].landing.commit == at and ran(repo) == 1


def colleagues(repo: Path, attempt: str) -> str:
    """A commit as a colleague's Holdfast makes it, pulled from elsewhere."""
    (repo / "theirs.txt").write_text("theirs")
    git(repo, "add", "theirs.txt")
    git(repo, "commit", "-q", "-m", f"Their work\n\nHoldfast-Task: t\nHoldfast-Attempt: {attempt}")
    return git(repo, "rev-parse", "main")


def in_doubt(repo: Path, attempt: str = "t.1") -> str:
    """The journal is put back, t has not landed here, and a commit of the same names is on the branch."""
    add_effect(repo)
    add(repo, "x", "write x.txt x")
    holdfast(repo, "cancel", "x")
    back_up(repo)
    holdfast(repo, "cancel", "t")
    put_back(repo)
    at = colleagues(repo, attempt)
    holdfast(repo, "resolve", "--journal-restored")
    holdfast(repo, "run", code=None)
    task = state(repo).tasks["t"]
    assert task.state is TaskState.OPEN and "It may have landed already" in task.parked and ran(repo) == 0
    return at


def test_a_colleagues_commit_is_not_taken_for_a_landing_of_ours(repo: Path) -> None:
    at = in_doubt(repo)
    assert "resolve t --happened" in holdfast(repo, "show", "t")
    holdfast(repo, "run", code=None)
    assert ran(repo) == 0
    holdfast(repo, "resolve", "t", "--happened")
    task = state(repo).tasks["t"]
    assert task.state is TaskState.CLOSED and not task.parked and task.outcome["commit"] == at
    holdfast(repo, "run")
    assert ran(repo) == 0 and git(repo, "rev-parse", "main") == at
    sound(repo)


def test_a_person_may_let_it_run(repo: Path) -> None:
    in_doubt(repo)
    holdfast(repo, "resolve", "t", "--retry")
    holdfast(repo, "run")
    assert ran(repo) == 1 and state(repo).tasks["t"].state is TaskState.CLOSED
    sound(repo)


def test_without_a_journal_that_was_put_back_trailers_say_nothing(repo: Path) -> None:
    colleagues(repo, "t.1")
    add_effect(repo)
    holdfast(repo, "run")
    assert ran(repo) == 1 and git(repo, "show", "main:one.txt") == "1"
    sound(repo)


def test_a_candidate_whose_own_commit_is_on_the_branch_has_landed(repo: Path) -> None:
    add(repo, "t", "write one.txt 1")
    crashed(repo, "append.task_verify_intent.before")
    candidate = state(repo).tasks["t"].candidate
    assert candidate
    (repo / "one.txt").write_text("1\n")
    message = "By hand\n\nHoldfast-Task: t\nHoldfast-Attempt: t.1"
    # With a git that does not see the objects of our store, or it would not write them anew.
    for asked in (["add", "one.txt"], ["commit", "-q", "-m", message]):
        subprocess.run(["git", "-C", str(repo), *asked], check=True)
    assert git(repo, "diff", "--stat", candidate, "main") == ""
    at = git(repo, "rev-parse", "main")
    assert "is its landing" in holdfast(repo, "run")
    task = state(repo).tasks["t"]
    assert (task.state, task.landing.commit, task.attempts) == (TaskState.CLOSED, at, 1)
    assert [e.decision_type for _, e in Chain(layout(repo).wal).entries()].count("task_land_confirmed") == 1
    sound(repo)
