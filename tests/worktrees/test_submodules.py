"""Submodules stay as they are: a landing never replaces one by plain files, and a change below one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.git import git
from kit.program import holdfast
from kit.project import add, landed, make_repo, sound, state


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """With a submodule that is initialised in the user's checkout, and in no worktree of an agent's."""
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q", "-b", "main")
    (other / "inner.txt").write_text("1\n")
    git(other, "add", ".")
    git(other, "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-q", "-m", "inner")
    repo = make_repo(tmp_path / "repo")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "lib")
    git(repo, "commit", "-qm", "a submodule")
    return repo


def link(repo: Path) -> str:
    return git(repo, "ls-tree", "main", "lib")


@pytest.mark.heavy
@pytest.mark.parametrize("is_initialised", [True, False])
def test_a_landing_beside_a_submodule_leaves_it(repo: Path, is_initialised: bool) -> None:
    if not is_initialised:
        git(repo, "submodule", "deinit", "-q", "-f", "lib")
    before = link(repo)
    assert before.startswith("160000 commit")
    add(repo, "t", "write t.txt x")
    add(repo, "gone", "run rmdir lib\nwrite gone.txt x")
    holdfast(repo, "run")
    assert sorted(landed(repo)) == ["gone", "t"] and link(repo) == before
    assert (repo / "lib/inner.txt").exists() == is_initialised
    sound(repo)


@pytest.mark.heavy
@pytest.mark.parametrize("is_initialised", [True, False])
def test_a_change_below_a_submodule_is_refused_with_a_sentence(repo: Path, is_initialised: bool) -> None:
    if not is_initialised:
        git(repo, "submodule", "deinit", "-q", "-f", "lib")
    before = link(repo)
    add(repo, "t", "attempt 1: write lib/inner.txt mine\nattempt 2+: run rm -rf lib && mkdir lib\nwrite t.txt x")
    said = holdfast(repo, "run")
    assert "it changes lib/inner.txt, which is a submodule or below one" in said
    assert landed(repo) == ["t"] and link(repo) == before and state(repo).tasks["t"].attempts == 2
    assert git(repo, "show", "main:t.txt") == "x"
    sound(repo)


def test_a_change_below_a_submodule_that_stays_names_the_setting(repo: Path) -> None:
    add(repo, "t", "write lib/inner.txt mine", max_attempts=1)
    said = holdfast(repo, "run", code=20)
    refused = next(line for line in said.splitlines() if "which is a submodule or below one" in line)
    assert "`submodules: init` in config/settings.yaml" in refused
    assert "next: set `submodules: init` in config/settings.yaml" in said


def test_a_submodule_that_is_taken_out_with_its_entry_goes(repo: Path) -> None:
    add(repo, "t", "run git rm -qf lib")
    holdfast(repo, "run")
    assert landed(repo) == ["t"] and link(repo) == ""
