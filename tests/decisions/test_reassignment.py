"""`reassign`: the agent that works is ended, and another goes on with the same attempt from its last turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.storage.records import attempt_folder
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, landed, layout, settings, sound, state
from kit.tasks import ask, hanging, journal, living_run
from kit.waiting import shell_wait, wait_for

CLEVER = {"name": "clever", "command": ["sh", "-c", "cat > told.txt; echo clever > who.txt"], "prompt": "stdin"}

# Whole runs, of seconds each.
pytestmark = [pytest.mark.heavy, pytest.mark.repo(agents=[CLEVER])]


def at_work(repo: Path, task: str = "a") -> bool:
    return task in state(repo).tasks and state(repo).tasks[task].spent.turns > 0


def left_behind(repo: Path) -> None:
    """A run that was killed while the agent of `a` works on, after one turn."""
    hanging(repo, "a")
    run = begin(repo)
    wait_for(lambda: at_work(repo), "the first turn")
    run.kill()
    run.communicate()


def expect_gone_on(repo: Path) -> None:
    task = state(repo).tasks["a"]
    assert (str(task.state), task.attempts, task.attempt.id, task.claim.worked_by) == ("CLOSED", 1, "a.1", "clever")
    assert "a" in landed(repo)
    assert git(repo, "show", "main:a.txt") == "x", "the turn of the first agent is lost"
    assert git(repo, "show", "main:who.txt") == "clever"
    # Its prompt has what was done so far.
    assert "a.txt" in git(repo, "show", "main:told.txt")
    sound(repo)


def test_another_agent_goes_on_with_the_attempt_from_its_last_turn(repo: Path) -> None:
    left_behind(repo)
    running = attempt_folder.read_process(layout(repo).attempt_files("a.1"))
    assert running is not None and running.agent.is_alive()
    told = ask(repo, "reassign", "a", "--agent", "clever", "--reason", "it goes in circles")
    assert told[0]["state"] == "OPEN" and told[0]["note"] == "the next `holdfast run` goes on with a.1, by clever"
    assert not running.agent.is_alive() and not running.runner.is_alive()
    (move,) = [entry for entry in journal(repo, "task_opened") if entry.inputs["event"] == "force_reassign"]
    assert move.inputs["outcome"] == {"detail": "it goes in circles"} and move.inputs["agent"] == "clever"
    assert move.inputs["decided"]["kind"] == "reassign"
    assert "a person gave it the attempt" in holdfast(repo, "show", "a")
    holdfast(repo, "run")
    expect_gone_on(repo)


def test_a_run_that_lives_gives_it_away_at_once(repo: Path) -> None:
    hanging(repo, "a")
    with living_run(repo):
        wait_for(lambda: at_work(repo), "the first turn")
        assert ask(repo, "reassign", "a", "--agent", "clever")[0]["note"] == "the run goes on with a.1, by clever"
        wait_for(lambda: str(state(repo).tasks["a"].state) == "CLOSED", "the end of a")
    expect_gone_on(repo)


def test_without_a_name_it_is_the_next_step_of_the_cascade(repo: Path) -> None:
    go = repo.parent / "go"
    slow = {"name": "slow", "command": ["sh", "-c", f"{shell_wait(go)}"]}
    settings(repo, agents=[CLEVER, slow], cascade=[{"agent": "slow"}, {"agent": "clever"}])
    holdfast(repo, "add", "--id", "a", "--goal", "x")
    run = begin(repo)
    wait_for(lambda: "a" in state(repo).tasks and str(state(repo).tasks["a"].state) == "IN_PROGRESS", "its agent")
    assert ask(repo, "reassign", "a")[0]["note"].endswith("by clever")
    run.communicate(timeout=120)
    assert state(repo).tasks["a"].claim.worked_by == "clever" and landed(repo) == ["a"]


def test_a_task_that_cannot_be_reassigned_says_why_and_changes_nothing(repo: Path) -> None:
    add(repo, "open", "write open.txt x", not_before=4e9)
    left_behind(repo)
    assert "`holdfast edit open --agent NAME`" in holdfast(repo, "reassign", "open", "--agent", "clever", code=9)
    assert "there is no agent called nobody" in holdfast(repo, "reassign", "a", "--agent", "nobody", code=9)
    assert "scripted works on it already" in holdfast(repo, "reassign", "a", "--agent", "scripted", code=9)
    assert "name the agent: `holdfast reassign a --agent NAME`" in holdfast(repo, "reassign", "a", code=9)
    running = attempt_folder.read_process(layout(repo).attempt_files("a.1"))
    assert running is not None and running.agent.is_alive()
    holdfast(repo, "cancel", "a")


def test_a_kill_before_the_decision_is_journalled_leaves_it_to_the_first_agent(repo: Path, tmp_path: Path) -> None:
    left_behind(repo)
    crash = {"HOLDFAST_CRASH_AT": "append.task_opened.before:1", "HOLDFAST_CRASH_ONCE": str(tmp_path)}
    holdfast(repo, "reassign", "a", "--agent", "clever", code=-9, env=crash)
    assert (tmp_path / "append.task_opened.before:1").exists(), "the fault did not fire"
    (repo.parent / "a.go").write_text("")
    holdfast(repo, "run")
    task = state(repo).tasks["a"]
    assert (str(task.state), task.claim.worked_by, task.attempts) == ("CLOSED", "scripted", 1)
    sound(repo)
