"""Git is asked once where a repository is, and again as soon as its answer could be another one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import NotAWorktree
from holdfast.git import command
from kit.git import git
from kit.project import make_repo


def _asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The questions that git is asked from now on."""
    asked: list[tuple[str, ...]] = []
    real = command.run

    def run(*args: str, **more: object) -> command.GitResult:
        asked.append(args)
        return real(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(command, "run", run)
    return asked


def _linked(top: Path) -> Path:
    repo = make_repo(top / "repo")
    git(repo, "worktree", "add", "-q", "--detach", str(top / "linked"))
    return top / "linked"


@pytest.mark.parametrize("make", [lambda top: make_repo(top / "repo"), _linked])
def test_an_unchanged_repository_is_not_asked_again(
    make: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path)
    asked = _asked(monkeypatch)
    first = command.discover(folder)
    assert asked
    asked.clear()
    assert command.discover(folder) == first
    assert not asked


def _other_repository(linked: Path) -> None:
    other = make_repo(linked.parent / "other")
    git(other, "worktree", "add", "-q", "--detach", str(linked.parent / "theirs"))
    shutil.copy(linked.parent / "theirs" / ".git", linked / ".git")


def _moved_common(linked: Path) -> None:
    shutil.copytree(linked.parent / "repo" / ".git", linked.parent / "moved.git")
    (linked.parent / "repo" / ".git" / "worktrees" / "linked" / "commondir").write_text(f"{linked.parent}/moved.git\n")


@pytest.mark.parametrize("change", [_other_repository, _moved_common])
def test_a_worktree_that_belongs_elsewhere_is_found_there(change: Callable[[Path], None], tmp_path: Path) -> None:
    linked = _linked(tmp_path)
    before = command.discover(linked)
    change(linked)
    found = command.discover(linked)
    assert found.common_dir != before.common_dir
    assert found == command._ask_git(linked)


def test_objects_lent_by_another_repository_are_seen_at_once(tmp_path: Path) -> None:
    repo, other = make_repo(tmp_path / "repo"), make_repo(tmp_path / "other")
    assert len(command.discover(repo).stores) == 1
    (repo / ".git" / "objects" / "info" / "alternates").write_text(f"{other}/.git/objects\n")
    assert other / ".git" / "objects" in command.discover(repo).stores


@pytest.mark.parametrize(
    "spoil",
    [
        lambda repo: shutil.rmtree(repo / ".git"),
        lambda repo: (repo / ".git" / "HEAD").write_text("nothing\n"),
        lambda repo: (repo / ".git" / "HEAD").unlink(),
        lambda repo: git(repo, "config", "core.bare", "true"),
        lambda repo: git(repo, "config", "core.worktree", "/"),
        lambda repo: (shutil.rmtree(repo / ".git"), os.mkfifo(repo / ".git")),
    ],
)
def test_a_repository_that_is_none_any_more_is_refused(spoil: Callable[[Path], object], tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    command.discover(repo)
    spoil(repo)
    with pytest.raises(NotAWorktree):
        command.discover(repo)


def test_another_repository_in_the_same_place_is_another_one(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    command.discover(repo)
    repo.rename(tmp_path / "away")
    repo.mkdir()
    git(repo, "init", "-q", "--object-format=sha256")
    assert command.discover(repo).hash_name == "sha256"


def test_the_cache_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_DISCOVERED_MAX", 2)
    monkeypatch.setattr(command, "_discovered", {})
    for number in range(3):
        command.discover(make_repo(tmp_path / str(number)))
    assert len(command._discovered) == 1
