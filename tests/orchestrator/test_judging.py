"""Several candidates judged at once, in whole runs: they land in order, and each as it was verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kit.git import git
from kit.program import holdfast
from kit.project import add, landed, layout, settings, sound, state
from kit.states import entries_of

pytestmark = pytest.mark.usefixtures("no_agent_left")

# Waits until a second gate runs beside it, or there is nothing else to judge.
MEET = (
    "test ! -f broken && touch {0}/$HOLDFAST_TASK && n=0 && "
    "while [ $(ls {0} | wc -l) -lt 2 ] && [ $n -lt 100 ]; do sleep 0.05; n=$((n+1)); done"
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
