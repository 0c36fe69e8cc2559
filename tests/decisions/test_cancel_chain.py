"""A cancelled task takes its subtasks along, and a task may follow a dependency that failed; also over kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.decisions.cancel_chain import CHAIN_POINTS
from holdfast.storage.records import attempt_folder
from kit.crash import left_alive
from kit.program import begin, holdfast
from kit.project import add, landed, layout, sound, state
from kit.tasks import ask, failed, hanging, journal, living_run
from kit.waiting import wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy

CANCELLED = {"top": "cancelled", "mid": "parent_cancelled", "leaf": "parent_cancelled", "twig": "parent_cancelled"}


def family(repo: Path) -> None:
    """A task with subtasks of subtasks: `done` has landed, and the agent of `leaf` works until it is ended."""
    add(repo, "top", "write top.txt x")
    add(repo, "done", "write done.txt x", parent="top", priority=0)
    add(repo, "mid", "write mid.txt x", parent="top")
    add(repo, "twig", "write twig.txt x", parent="leaf", not_before=4e9)
    hanging(repo, "leaf", parent="mid", depends_on=["done"])
    # Its subtask comes later: until then it is worked on by itself.
    (layout(repo).backlog_open / "twig.yaml").rename(repo.parent / "twig.yaml")


def is_at_work(repo: Path, task: str) -> bool:
    return task in state(repo).tasks and state(repo).tasks[task].spent.turns > 0


def bring_twig(repo: Path) -> None:
    (repo.parent / "twig.yaml").rename(layout(repo).backlog_open / "twig.yaml")


def left_behind(repo: Path) -> None:
    """The family, and a run that was killed while the agent of `leaf` works on."""
    family(repo)
    run = begin(repo)
    wait_for(lambda: is_at_work(repo, "leaf"), "the first turn of leaf")
    run.kill()
    run.communicate()
    bring_twig(repo)


def expect_all_cancelled(repo: Path, first: str = "cancelled") -> None:
    moves = {entry.inputs["task"]: entry.inputs["reason"] for entry in journal(repo, "task_cancelled")}
    assert moves == {**CANCELLED, "top": first}
    assert len(journal(repo, "task_cancelled")) == 4
    assert str(state(repo).tasks["done"].state) == "CLOSED" and landed(repo) == ["done"]
    assert left_alive(repo) == []
    assert state(repo).tasks["leaf"].spent.turns == 1, "a turn of the agent that was ended is lost"
    sound(repo)


def test_a_cancelled_parent_takes_its_subtasks_along_through_any_depth(repo: Path) -> None:
    left_behind(repo)
    running = attempt_folder.read_process(layout(repo).attempt_files("leaf.1"))
    assert running is not None and running.agent.is_alive()
    told = ask(repo, "cancel", "top")
    assert [(each["id"], each["state"]) for each in told] == [
        (name, "CANCELLED") for name in ("top", "mid", "leaf", "twig")
    ]
    assert told[2]["note"] == "its parent mid was cancelled"
    assert not running.agent.is_alive() and not running.runner.is_alive()
    assert "its parent mid was cancelled" in (layout(repo).backlog / "closed" / "leaf.yaml").read_text()
    expect_all_cancelled(repo)


def test_a_run_that_lives_does_so_at_once(repo: Path) -> None:
    family(repo)
    with living_run(repo):
        wait_for(lambda: is_at_work(repo, "leaf"), "the first turn of leaf")
        assert [each["id"] for each in ask(repo, "cancel", "top")] == ["top", "mid", "leaf"]
        assert str(state(repo).tasks["leaf"].state) == "CANCELLED"
        assert [entry for entry in left_alive(repo) if "leaf" in entry] == []
        # One that comes later, too.
        bring_twig(repo)
        wait_for(lambda: str(getattr(state(repo).tasks.get("twig"), "state", "")) == "CANCELLED", "the end of twig")
    assert landed(repo) == ["done", "keeper"]


def test_deleting_the_parents_file_cancels_the_subtasks(repo: Path) -> None:
    left_behind(repo)
    assert str(state(repo).tasks["top"].state) == "WAITING_FOR_SUBTASKS"
    (layout(repo).backlog_open / "top.yaml").unlink()
    said = holdfast(repo, "run")
    assert "leaf: cancelled: its parent mid was cancelled" in said
    expect_all_cancelled(repo, "definition_deleted")


@pytest.mark.parametrize("point", [f"{name}:{n}" for n in (1, 2, 3) for name in CHAIN_POINTS])
def test_a_chain_that_was_cut_off_is_finished_by_the_next_start(repo: Path, tmp_path: Path, point: str) -> None:
    left_behind(repo)
    crash = {"HOLDFAST_CRASH_AT": point, "HOLDFAST_CRASH_ONCE": str(tmp_path)}
    holdfast(repo, "cancel", "top", code=-9, env=crash)
    assert (tmp_path / point).exists(), "the fault did not fire"
    rest = [name for name in CANCELLED if str(state(repo).tasks[name].state) != "CANCELLED"]
    if rest:
        # `show` says that it is not over.
        why = " ".join(ask(repo, "show", rest[0])["waits"])
        assert "was cancelled: the next `holdfast run` cancels it, too" in why
    holdfast(repo, "run")
    expect_all_cancelled(repo)


def test_a_run_killed_in_the_chain_is_followed_by_one_that_finishes_it(repo: Path, tmp_path: Path) -> None:
    left_behind(repo)
    (layout(repo).backlog_open / "top.yaml").unlink()
    for point in ("chain.ended:1", "chain.found:1", "chain.cancelled:1"):
        crash = {"HOLDFAST_CRASH_AT": point, "HOLDFAST_CRASH_ONCE": str(tmp_path)}
        holdfast(repo, "run", code=-9, env=crash)
        assert (tmp_path / point).exists(), "the fault did not fire"
    holdfast(repo, "run")
    expect_all_cancelled(repo, "definition_deleted")


# -- a dependency that came to nothing --------------------------------------------------------------------------------


def test_a_task_that_waits_for_a_failed_one_says_so_and_what_to_type(repo: Path) -> None:
    add(repo, "b", "write b.txt x", depends_on=["a"])
    add(repo, "c", "write c.txt x", depends_on=["b"])
    failed(repo)
    direct = "it depends on a, which is failed: `holdfast retry a` tries that again, `holdfast cancel b` gives this up"
    behind = "it waits for b, which is open and waits for a, which is failed: `holdfast retry a` tries that again"
    assert ask(repo, "show", "b")["waits"] == [direct] and ask(repo, "show", "c")["waits"] == [behind]
    assert direct in holdfast(repo, "status") and behind in holdfast(repo, "status")
    assert "it depends on a, which is failed" in holdfast(repo, "list")
    said = holdfast(repo, "run", "--plain", code=20)
    assert f"b is open: {direct}" in said and f"c is open: {behind}" in said
    assert str(state(repo).tasks["b"].state) == "OPEN"


def test_a_task_that_cancels_on_failed_dependencies_is_cancelled_through_the_chain(repo: Path) -> None:
    add(repo, "a", "attempt 1: fail once\nattempt 2: fail twice", max_attempts=2)
    holdfast(repo, "add", "--id", "b", "--goal", "x", "--depends-on", "a", "--on-dependency-failed", "cancel")
    add(repo, "c", "write c.txt x", depends_on=["b"], on_dependency_failed="cancel")
    add(repo, "part", "write part.txt x", parent="c", depends_on=["b"])
    add(repo, "waits", "write waits.txt x", depends_on=["b"])
    holdfast(repo, "run", code=20)
    moves = [(entry.inputs["task"], entry.inputs["reason"]) for entry in journal(repo, "task_cancelled")]
    assert moves == [("b", "dependency_failed"), ("c", "dependency_failed"), ("part", "parent_cancelled")]
    # Not when the first attempt had failed: another followed by itself.
    kinds = [(entry.decision_type, entry.inputs["task"]) for entry in journal(repo, "task_failed", "task_cancelled")]
    assert kinds[:3] == [("task_failed", "a"), ("task_failed", "a"), ("task_cancelled", "b")]
    assert "it depends on a, which failed or was cancelled" in holdfast(repo, "show", "b")
    assert "takes it out of depends_on" in ask(repo, "show", "waits")["waits"][0]
    sound(repo)


def test_cancelling_a_dependency_counts_like_its_failure(repo: Path) -> None:
    add(repo, "a", "write a.txt x", not_before=4e9)
    add(repo, "b", "write b.txt x", depends_on=["a"], on_dependency_failed="cancel")
    assert [each["id"] for each in ask(repo, "cancel", "a")] == ["a", "b"]
    sound(repo)
