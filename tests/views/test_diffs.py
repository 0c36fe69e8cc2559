"""A task's whole change, as it would land or has landed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.git import git
from kit.program import Terminal, holdfast
from kit.project import add
from kit.tasks import ask, failed


def commit(repo: Path, name: str, text: str) -> str:
    (repo / name).write_text(text)
    git(repo, "add", name)
    git(repo, "commit", "-q", "-m", f"Change {name}")
    return git(repo, "rev-parse", "HEAD")


@pytest.mark.heavy
def test_a_change_is_shown_on_top_of_the_newest_target_and_then_as_it_landed(repo: Path) -> None:
    add(repo, "a", "write a.txt mine", approve=True)
    holdfast(repo, "run", code=20)
    newest = commit(repo, "other.txt", "theirs\n")
    change = ask(repo, "diff", "a")
    assert change["from"] == newest and [each["path"] for each in change["files"]] == ["a.txt"]
    assert change["conflicts"] == [] and not change["landed"] and "other.txt" not in change["patch"]
    holdfast(repo, "approve", "a")
    holdfast(repo, "run")
    landed = ask(repo, "diff", "a")
    assert landed["landed"] and landed["to"] == git(repo, "rev-parse", "main") and landed["patch"] == change["patch"]
    assert "a.txt | 1 +" in holdfast(repo, "diff", "a", "--stat")


@pytest.mark.heavy
def test_a_conflict_with_the_target_is_shown_with_its_markers(repo: Path) -> None:
    failed(repo, script="write README.md mine\n")
    commit(repo, "README.md", "theirs\n")
    change = ask(repo, "diff", "a")
    assert change["conflicts"] == ["README.md"] and "+<<<<<<<" in change["patch"] and "+mine" in change["patch"]
    assert "It conflicts with the newest target in README.md" in holdfast(repo, "diff", "a")


@pytest.mark.heavy
@pytest.mark.parametrize(("lines", "is_paged"), [(3, False), (60, True)])
def test_a_diff_in_a_terminal_has_colours_and_a_long_one_goes_to_the_pager(
    repo: Path, lines: int, is_paged: bool
) -> None:
    script = "\\n".join(f"line {number} \\x1b[31m" for number in range(lines))
    failed(repo, script=f"write long.txt {script}\n")
    with Terminal(repo, "diff", "a", env={"PAGER": "sed s/^/PAGED:/"}) as terminal:
        assert terminal.end() == 0
    assert "\x1b[32m+line 0" in terminal.seen and ("PAGED:" in terminal.seen) == is_paged
    assert "\x1b[31m\r" not in terminal.seen
