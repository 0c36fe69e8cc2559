"""Two data roots that work on one repository at once, with tasks of the same names."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from holdfast.layout import Layout
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, landed, layout, make_repo, sound
from kit.waiting import shell_wait, wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy


def test_both_land_all_their_work_and_lose_nothing(tmp_path: Path) -> None:
    repo, shared = make_repo(tmp_path / "repo"), tmp_path / "shared"
    elsewhere = {"HOLDFAST_HOME": str(shared)}
    holdfast(repo, "init", env=elsewhere)
    [format_file] = shared.rglob("format.json")
    other = Layout(format_file.parent)
    assert other.root != layout(repo).root
    # Each waits for a turn of the other's before it goes on, so that both are at work at once.
    for task in ("a", "b"):
        one, two = tmp_path / f"one-{task}", tmp_path / f"two-{task}"
        add(repo, task, _script(task, "mine", one, two))
        text = msgspec.yaml.encode({"id": task, "title": f"Do {task}", "script": _script(task, "theirs", two, one)})
        (other.backlog_open / f"{task}.yaml").write_bytes(text)
    first, second = begin(repo), begin(repo, **elsewhere)
    said = [process.communicate()[0] for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], said
    assert sorted(landed(repo)) == ["a", "a", "b", "b"]
    wanted = {f"{whose}-{task}-{turn}.txt" for whose in ("mine", "theirs") for task in ("a", "b") for turn in (1, 2)}
    assert set(git(repo, "ls-tree", "--name-only", "main").split()) == wanted | {"README.md", ".gitignore"}
    assert git(repo, "status", "--porcelain") == ""
    sound(repo)
    assert "Sound." in holdfast(repo, "check", env=elsewhere)
    git(repo, "fsck", "--strict")
    assert git(repo, "for-each-ref", "refs/holdfast/base", "refs/holdfast/attempts") == ""


def _script(task: str, whose: str, mine: Path, others: Path) -> str:
    wait = f"touch {mine}; {shell_wait(others)}"
    return f"write {whose}-{task}-1.txt x\nrun {wait}\nwrite {whose}-{task}-2.txt x"


def test_ending_one_attempt_leaves_the_other_roots_paused_attempt_alone(tmp_path: Path) -> None:
    repo, shared, go = make_repo(tmp_path / "repo"), tmp_path / "shared", tmp_path / "go"
    elsewhere = {"HOLDFAST_HOME": str(shared)}
    add(repo, "a", f"write one.txt 1\nrun {shell_wait(go)}\nwrite two.txt 2")
    process = begin(repo)
    wait_for(lambda: (layout(repo).attempt_files("a.1").turns).exists(), "a turn")
    holdfast(repo, "stop", "--agents")
    process.communicate()
    holdfast(repo, "init", env=elsewhere)
    [format_file] = shared.rglob("format.json")
    text = msgspec.yaml.encode({"id": "a", "title": "Do a", "script": "write theirs.txt x"})
    (Layout(format_file.parent).backlog_open / "a.yaml").write_bytes(text)
    holdfast(repo, "run", env=elsewhere)
    holdfast(repo, "gc", "--all", env=elsewhere, code=None)
    git(repo, "gc", "-q", "--prune=now")
    go.touch()
    holdfast(repo, "run")
    there = set(git(repo, "ls-tree", "--name-only", "main").split())
    assert {"one.txt", "two.txt", "theirs.txt"} <= there and landed(repo) == ["a", "a"]
    sound(repo)
    assert "Sound." in holdfast(repo, "check", env=elsewhere)
