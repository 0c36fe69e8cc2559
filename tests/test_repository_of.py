"""Which repository a folder belongs to: what is found without asking git is what git says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.app import _asked_repository, _plain_repository, repository_of
from holdfast.errors import NotInRepository


@pytest.fixture(autouse=True)
def no_git_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)


def git(folder: Path, *options: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", "-C", str(folder), *who, *options], check=True, capture_output=True)


def made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    (folder / "deep" / "er").mkdir(parents=True)
    return folder


def test_a_plain_repository_is_found_without_git(tmp_path: Path) -> None:
    repo = made(tmp_path / "repo")
    git(repo, "commit", "-q", "--allow-empty", "-m", "x")
    git(tmp_path, "clone", "-q", "repo", "copy")
    (tmp_path / "link").symlink_to(repo / "deep")
    for folder in (repo, repo / "deep" / "er", tmp_path / "copy", tmp_path / "link"):
        assert _plain_repository(folder) == _asked_repository(folder)


def worktree(repo: Path) -> Path:
    git(repo, "commit", "-q", "--allow-empty", "-m", "x")
    git(repo, "worktree", "add", "-q", str(repo.parent / "second"))
    return repo.parent / "second"


def an_empty_git_folder_between(repo: Path) -> Path:
    (repo / "deep" / ".git").mkdir()
    return repo / "deep" / "er"


def a_bare_one(repo: Path) -> Path:
    git(repo, "config", "core.bare", "true")
    return repo


def set_to_another_tree(repo: Path) -> Path:
    git(repo, "config", "core.worktree", str(repo / "deep"))
    return repo / "deep"


def of_a_later_format(repo: Path) -> Path:
    git(repo, "config", "core.repositoryFormatVersion", "99")
    return repo


def damaged(repo: Path) -> Path:
    (repo / ".git" / "HEAD").write_text("nonsense")
    return repo


def a_submodule(repo: Path) -> Path:
    inner = made(repo / "inner")
    (inner / ".git").rename(repo / ".git" / "inner")
    (inner / ".git").write_text("gitdir: ../.git/inner\n")
    return inner


@pytest.mark.parametrize(
    "odd",
    [
        worktree,
        an_empty_git_folder_between,
        a_bare_one,
        set_to_another_tree,
        of_a_later_format,
        damaged,
        a_submodule,
        lambda repo: repo / ".git" / "objects",
        lambda repo: repo.parent,
    ],
)
def test_whatever_is_odd_is_asked_of_git(odd: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = odd(made(tmp_path / "repo"))
    assert _plain_repository(folder) is None
    try:
        expected = _asked_repository(folder)
    except NotInRepository:
        with pytest.raises(NotInRepository):
            repository_of(folder)
    else:
        assert repository_of(folder) == expected


def test_a_variable_that_speaks_to_git_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = made(tmp_path / "here"), made(tmp_path / "there")
    monkeypatch.setenv("GIT_DIR", str(there / ".git"))
    assert repository_of(here) == there
