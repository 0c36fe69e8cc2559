"""A landing that waits for a person's changes: everybody sees it, and it can be left in every direction."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.decisions.mailbox import is_served
from holdfast.domain.task import TaskState
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, landed, layout, make_repo, sound, state
from kit.waiting import wait_for


@pytest.fixture
def repo(repo: Path) -> Path:
    """A result whose landing waits, after a run that was stopped."""
    add(repo, "t", "attempt 1: append README.md more\nattempt 2+: write other.txt x")
    (repo / "README.md").write_text("mine\n")
    process = begin(repo)
    wait_for(lambda: "t" in state(repo).tasks and bool(state(repo).tasks["t"].landing.waits), "the wait")
    holdfast(repo, "stop")
    process.communicate()
    return repo


def test_a_waiting_landing_shows_everywhere_without_a_run(repo: Path) -> None:
    assert state(repo).tasks["t"].state is TaskState.DONE and state(repo).tasks["t"].landing.waits == ("README.md",)
    for command in (("list",), ("status",), ("show", "t"), ("history", "t")):
        assert "README.md" in holdfast(repo, *command), command
    for command in (("status",), ("show", "t")):
        said = holdfast(repo, *command)
        assert "holdfast promote t --branch NAME" in said and "holdfast retry t --reason" in said, command
    said = holdfast(repo, "doctor", code=None)
    assert "the landing of t waits: you have changed README.md" in said
    [row] = json.loads(holdfast(repo, "list", "--json"))["tasks"]
    assert row["landing_waits"] == ["README.md"] and "commit or put away" in row["next_step"]
    sound(repo)


def test_a_waiting_landing_lands_once_the_changes_are_committed(repo: Path) -> None:
    git(repo, "checkout", "README.md")
    holdfast(repo, "run")
    assert landed(repo) == ["t"] and state(repo).tasks["t"].landing.waits == ()


def test_a_waiting_landing_can_be_cancelled(repo: Path) -> None:
    holdfast(repo, "cancel", "t")
    assert state(repo).tasks["t"].state is TaskState.CANCELLED and state(repo).tasks["t"].landing.waits == ()
    holdfast(repo, "run")
    assert landed(repo) == [] and (repo / "README.md").read_text() == "mine\n"
    sound(repo)


def test_a_waiting_landing_can_be_sent_back_with_a_reason(repo: Path) -> None:
    assert "--reason" in holdfast(repo, "retry", "t", code=9)
    holdfast(repo, "retry", "t", "--reason", "leave the README alone")
    task = state(repo).tasks["t"]
    assert task.state is TaskState.OPEN and not task.landing.waits
    assert "leave the README alone" in holdfast(repo, "prompt", "t")
    assert "leave the README alone" in holdfast(repo, "history", "t")


def test_a_waiting_landing_can_go_to_a_new_branch(repo: Path) -> None:
    assert "already" in holdfast(repo, "promote", "t", "--branch", "main", code=2)
    before = git(repo, "rev-parse", "main")
    said = holdfast(repo, "promote", "t", "--branch", "later/one")
    assert "landed on later/one" in said
    assert landed(repo, "later/one") == ["t"] and git(repo, "rev-parse", "main") == before
    assert (repo / "README.md").read_text() == "mine\n"
    task = state(repo).tasks["t"]
    assert task.state is TaskState.CLOSED and task.landing.branch == "refs/heads/later/one"
    assert task.outcome["branch"] == "refs/heads/later/one"
    sound(repo)
    holdfast(repo, "run")


def test_a_run_cancels_it_too(repo: Path) -> None:
    process = begin(repo, "--stay")
    wait_for(lambda: is_served(layout(repo)), "the run")
    assert "cancelled" in holdfast(repo, "cancel", "t")
    holdfast(repo, "stop")
    process.communicate()
    assert state(repo).tasks["t"].state is TaskState.CANCELLED


def test_deleting_the_file_of_a_failed_task_cancels_it(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "failing")
    add(repo, "t", "fail on purpose", max_attempts=1)
    add(repo, "u", "fail on purpose", max_attempts=1)
    add(repo, "v", "write v.txt x", depends_on=["u"])
    said = holdfast(repo, "run", code=20)
    lines = said.splitlines()
    at = next(n for n, line in enumerate(lines) if "v is open: it depends on u, which is failed" in line)
    # Cancelling u would leave v where it is.
    assert lines[at + 1].strip() == "next: holdfast retry u | holdfast cancel v"
    assert "holdfast retry u | holdfast cancel v" in holdfast(repo, "show", "v")
    (layout(repo).backlog / "failed" / "t.yaml").unlink()
    holdfast(repo, "cancel", "u")
    assert {name: str(task.state) for name, task in state(repo).tasks.items()} == {
        "t": "CANCELLED",
        "u": "CANCELLED",
        "v": "OPEN",
    }
    assert "holdfast edit v --depends-on OTHER | holdfast cancel v" in holdfast(repo, "show", "v")
    sound(repo)
