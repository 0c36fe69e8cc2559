"""What a newcomer sees in the first hour: the lists, the reasons, and the words."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from cli_support import type_in
from holdfast.domain.naming import ID_LENGTH_MAX, free_id
from work_support import Terminal, add, make_work

LONG = "Make the parser of the configuration files accept comments at the end of a line"
FAILS = "fail the compiler is missing on this machine"


def test_an_id_made_of_a_goal_is_short_and_unique() -> None:
    assert free_id("Fix the login", ()) == "fix-login"
    assert free_id("The", ()) == "the" and free_id("", ()) == "task" and free_id("???", ()) == "task"
    taken: list[str] = []
    for _ in range(120):
        taken.append(free_id(LONG, taken))
    assert max(map(len, taken)) <= ID_LENGTH_MAX == 24
    assert len(set(taken)) == 120
    assert taken[:2] == ["make-parser", "make-parser-2"]
    assert len(free_id("x" * 100, ())) == ID_LENGTH_MAX


def test_tasks_of_one_priority_come_in_the_order_in_which_they_were_added(tmp_path: Path) -> None:
    repo = make_work(tmp_path / "repo")
    for number, goal in enumerate(("zebra", "monkey", "ant")):
        path = Path(type_in(repo, "add", "--goal", goal, "--script", "say hello").stdout.strip())
        os.utime(path, ns=(10**18, 10**18 + number * 10**9))
    listed = json.loads(type_in(repo, "list", "--json").stdout)["tasks"]
    assert [row["id"] for row in listed] == ["zebra", "monkey", "ant"]
    assert type_in(repo, "cancel", "ant").returncode == 0, "this journals all three"
    listed = json.loads(type_in(repo, "list", "--ready", "--json").stdout)["tasks"]
    assert [row["id"] for row in listed] == ["zebra", "monkey"]


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One closed, one failed, one cancelled, one open."""
    repo = make_work(tmp_path_factory.mktemp("worked") / "repo", closes="write made\nsay it is there")
    add(repo, "breaks", FAILS, more="max_attempts: 1\n")
    assert type_in(repo, "run").returncode == 20
    add(repo, "left", "say no")
    assert type_in(repo, "cancel", "left").returncode == 0
    assert type_in(repo, "add", "--goal", LONG).returncode == 0
    return repo


def test_a_list_folds_away_what_has_ended(worked: Path) -> None:
    told = type_in(worked, "list").stdout
    assert "breaks" in told and "make-parser" in told
    assert "closes" not in told and "left  " not in told
    assert "1 closed, 1 cancelled: `holdfast list --all` shows them." in told
    assert {"closes", "left", "breaks"} <= {line.split()[0] for line in _lines(worked, "--all")}
    # Programs get everything, and choose for themselves.
    assert len(json.loads(type_in(worked, "list", "--json").stdout)["tasks"]) == 4


def test_several_states_can_be_asked_for_at_once(worked: Path) -> None:
    assert [line.split()[0] for line in _lines(worked, "--state", "failed,closed")[1:]] == ["closes", "breaks"]
    assert [line.split()[0] for line in _lines(worked, "--state", "FAILED", "--state", "closed")[1:]] == [
        "closes",
        "breaks",
    ]
    refused = type_in(worked, "list", "--state", "failed,lost")
    assert refused.returncode == 2 and "'lost'" in refused.stderr and "pending_approval" in refused.stderr


def test_a_failed_task_has_its_reason(worked: Path) -> None:
    (line,) = [line for line in _lines(worked) if line.startswith("breaks")]
    assert "the compiler is missing" in line


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (160, 50), (40, 12)])
def test_a_list_fits_the_terminal(worked: Path, columns: int, rows: int) -> None:
    with Terminal(worked, "list", columns=columns, rows=rows) as terminal:
        assert terminal.end() == 0
    lines = re.sub(r"\x1b\[[0-9;]*m", "", terminal.seen).splitlines()
    assert max(map(len, lines[:-1])) <= columns
    text = "\n".join(lines)
    assert "the compiler is missing" in text
    # Enough of the title to know the task by.
    assert "Make the pars" in text


def _lines(repo: Path, *options: str) -> list[str]:
    done = type_in(repo, "list", *options)
    assert done.returncode == 0, done
    return done.stdout.splitlines()
