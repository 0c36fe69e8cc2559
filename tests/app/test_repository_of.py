"""Which repository a folder belongs to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.app import repository_of
from holdfast.errors import NotInRepository
from kit.git import git


@pytest.fixture(autouse=True)
def no_git_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)


def made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    (folder / "deep" / "er").mkdir(parents=True)
    return folder


def test_any_folder_of_a_repository_leads_to_its_top(tmp_path: Path) -> None:
    repo = made(tmp_path / "repo")
    git(repo, "commit", "-q", "--allow-empty", "-m", "x")
    git(tmp_path, "clone", "-q", "repo", "copy")
    (tmp_path / "link").symlink_to(repo / "deep")
    for folder in (repo, repo / "deep" / "er", tmp_path / "link"):
        assert repository_of(folder) == repo
    assert repository_of(tmp_path / "copy") == tmp_path / "copy"


def worktree(repo: Path) -> Path:
    git(repo, "commit", "-q", "--allow-empty", "-m", "x")
    git(repo, "worktree", "add", "-q", str(repo.parent / "second"))
    return repo.parent / "second"


def an_empty_git_folder_between(repo: Path) -> Path:
    (repo / "deep" / ".git").mkdir()
    return repo / "deep" / "er"


def a_submodule(repo: Path) -> Path:
    inner = made(repo / "inner")
    (inner / ".git").rename(repo / ".git" / "inner")
    (inner / ".git").write_text("gitdir: ../.git/inner\n")
    return inner


def set_to_another_tree(repo: Path) -> Path:
    git(repo, "config", "core.worktree", str(repo / "deep"))
    return repo / "deep"


@pytest.mark.parametrize(
    ("folder_of", "top"),
    [(worktree, "."), (an_empty_git_folder_between, "."), (a_submodule, "inner"), (set_to_another_tree, ".")],
)
def test_the_top_is_the_one_git_names(folder_of: Callable[[Path], Path], top: str, tmp_path: Path) -> None:
    repo = made(tmp_path / "repo")
    assert repository_of(folder_of(repo)) == repo / top


def a_bare_one(repo: Path) -> Path:
    git(repo, "config", "core.bare", "true")
    return repo


def of_a_later_format(repo: Path) -> Path:
    git(repo, "config", "core.repositoryFormatVersion", "99")
    return repo


def damaged(repo: Path) -> Path:
    (repo / ".git" / "HEAD").write_text("nonsense")
    return repo


@pytest.mark.parametrize(
    "folder_of",
    [
        a_bare_one,
        of_a_later_format,
        damaged,
        lambda repo: repo / ".git" / "objects",
        lambda repo: repo.parent,
    ],
)
def test_a_missing_work_tree_is_reported_with_gits_reason(folder_of: Callable[[Path], Path], tmp_path: Path) -> None:
    with pytest.raises(NotInRepository, match=r"(?i)bare|expected git repo version|not a git repository|work tree"):
        repository_of(folder_of(made(tmp_path / "repo")))


def test_a_variable_that_speaks_to_git_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = made(tmp_path / "here"), made(tmp_path / "there")
    monkeypatch.setenv("GIT_DIR", str(there / ".git"))
    assert repository_of(here) == there
