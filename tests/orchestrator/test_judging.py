"""Several candidates judged at once, in whole runs: they land in order, and each as it was verified."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, landed, layout, settings, sound, state
from kit.states import entries_of
from kit.waiting import wait_for

pytestmark = pytest.mark.usefixtures("no_agent_left")

# Waits until a second gate runs beside it, or there is nothing else to judge.
MEET = (
    "test ! -f broken && touch {0}/$HOLDFAST_TASK && n=0 && "
    "while [ $(ls {0} | wc -l) -lt 2 ] && [ $n -lt 2000 ]; do sleep 0.05; n=$((n+1)); done"
)
FINAL = {"a": "CLOSED", "b": "FAILED", "c": "CLOSED", "d": "CLOSED"}


def judged(repo: Path, name: str) -> list[dict[str, Any]]:
    """The intents of a task's verdicts."""
    found = [entry for entry in entries_of(layout(repo)) if entry.decision_type == "task_verify_intent"]
    return [dict(entry.inputs) for entry in found if entry.inputs["task"] == name]


def expect_only_verified_commits_landed(repo: Path) -> None:
    """Every commit of the branch passed its gates as it is, on top of exactly the commit before it."""
    passed = {
        (entry.output["merged"], entry.output["target"])
        for entry in entries_of(layout(repo))
        if entry.decision_type == "task_verify_confirmed" and entry.output["passed"]
    }
    lines = git(repo, "log", "--format=%H %P", "main").splitlines()
    made = {tuple(line.split()) for line in lines[: len(landed(repo))]}
    assert made <= passed, made - passed


@pytest.mark.heavy
def test_four_tasks_of_which_one_fails_land_in_order_with_two_judged_at_once(repo: Path, tmp_path: Path) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    settings(repo, judging=2, max_attempts=1, gates=[{"name": "unit", "command": MEET.format(meeting)}])
    for number, name in enumerate(FINAL):
        add(repo, name, f"write {'broken' if name == 'b' else name} x", priority=number)
    holdfast(repo, "run", "--max-agents", "1", code=20)
    sound(repo)
    tasks = state(repo).tasks
    assert {name: str(task.state) for name, task in tasks.items()} == FINAL
    assert landed(repo) == ["a", "c", "d"]
    expect_only_verified_commits_landed(repo)
    ahead = {name: [each["behind"] for each in judged(repo, name)] for name in FINAL}
    assert ahead["a"] == [""] and ahead["b"] == ["a"], "one that fails on what has landed is not judged again"
    assert "a" in ahead["c"], (
        "the first gate ends only once another runs beside it: that was judged without the one that failed"
    )
    assert {each["place"] for name in FINAL for each in judged(repo, name)} >= {0, 1}


# -- while two are judged ---------------------------------------------------------------------------------------------

WAIT = "while [ ! -f {0} ]; do sleep 0.05; done"


def judged_now(repo: Path) -> list[str]:
    return sorted(name for name, task in state(repo).tasks.items() if task.landing.judged)


@contextlib.contextmanager
def two_judged(repo: Path, go: Path, **second: Any) -> Iterator[subprocess.Popen[str]]:
    """A run that judges `a`, and `b` on top of it, until the file `go` is there; ended at the end."""
    settings(repo, judging=2, max_agents=1, max_attempts=1, gates=[{"name": "unit", "command": WAIT.format(go)}])
    add(repo, "a", "write a x", priority=0)
    add(repo, "b", "write b x", priority=1, **second)
    process = begin(repo)
    try:
        wait_for(lambda: judged_now(repo) == ["a", "b"], "both are judged")
        yield process
    finally:
        go.touch()
        process.communicate()
    sound(repo)


def test_status_shows_that_several_are_judged_and_on_what(repo: Path, tmp_path: Path) -> None:
    with two_judged(repo, tmp_path / "go"):
        told = holdfast(repo, "status")
        assert re.search(r"being judged\n  a  \w{12} on \w{12}\n  b  \w{12} on top of a, ahead of its turn\n", told)
        facts = msgspec.json.decode(holdfast(repo, "status", "--json"))
        assert [each["task"] for each in facts["judging"]] == ["a", "b"]
    assert landed(repo) == ["a", "b"] and judged_now(repo) == []


def test_one_that_is_cancelled_while_it_is_judged_ahead_is_withdrawn_and_the_first_lands(
    repo: Path, tmp_path: Path
) -> None:
    with two_judged(repo, tmp_path / "go"):
        holdfast(repo, "cancel", "b")
        assert judged_now(repo) == ["a"]
    assert landed(repo) == ["a"] and str(state(repo).tasks["b"].state) == "CANCELLED"


@pytest.mark.heavy
def test_a_run_that_is_stopped_withdraws_what_is_judged_ahead_and_the_next_one_lands_it(
    repo: Path, tmp_path: Path
) -> None:
    with two_judged(repo, tmp_path / "go") as process:
        process.terminate()
        wait_for(lambda: judged_now(repo) == ["a"], "the one ahead of its turn is withdrawn")
    assert landed(repo) == ["a"]
    holdfast(repo, "run")
    assert landed(repo) == ["a", "b"]
    expect_only_verified_commits_landed(repo)


@pytest.mark.heavy
def test_all_are_judged_anew_where_a_person_commits_to_the_target_meanwhile(repo: Path, tmp_path: Path) -> None:
    with two_judged(repo, tmp_path / "go"):
        (repo / "person").write_text("mine\n")
        git(repo, "add", "person")
        git(repo, "commit", "-qm", "a person's")
    assert landed(repo) == ["a", "b"] and len(judged(repo, "a")) == 2
    expect_only_verified_commits_landed(repo)


@pytest.mark.heavy
def test_one_that_waits_for_approval_is_neither_built_on_nor_waited_for(repo: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    settings(repo, judging=2, max_agents=1, gates=[{"name": "unit", "command": WAIT.format(go)}])
    add(repo, "a", "write a x", priority=0, approve=True)
    add(repo, "b", "write b x", priority=1)
    process = begin(repo)
    wait_for(lambda: judged_now(repo) == ["a", "b"], "both are judged")
    go.touch()
    process.communicate()
    assert landed(repo) == ["b"] and str(state(repo).tasks["a"].state) == "PENDING_APPROVAL"
    assert [each["behind"] for each in judged(repo, "b")] == [""]
    sound(repo)


@pytest.mark.heavy
def test_a_gate_that_must_not_run_twice_is_never_run_ahead_of_its_turn(repo: Path, tmp_path: Path) -> None:
    settings(repo, judging=3, max_agents=1, gates=[{"name": "unit", "command": "sleep 0.5"}])
    once = [{"command": f"echo >> {tmp_path}/ran", "repeatable": False}]
    for number, name in enumerate(("a", "b", "c")):
        add(repo, name, f"write {name} x", priority=number, **({"verify": once} if name == "b" else {}))
    holdfast(repo, "run")
    assert landed(repo) == ["a", "b", "c"] and [each["behind"] for each in judged(repo, "b")] == [""]
    assert (tmp_path / "ran").read_text() == "\n"
