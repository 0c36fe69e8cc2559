"""Which repository a data root belongs to: its first commit tells, wherever the folder stands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.app import App
from holdfast.storage.journal.data_root import read_format
from kit.git import git, repository
from kit.roots import short_run


def make_repo(path: Path, *messages: str) -> Path:
    repository(path)
    for message in messages:
        git(path, "commit", "-q", "--allow-empty", "-m", message)
    return path


def make_app(repo: Path, shared: Path | None = None) -> App:
    return App.find(repo, environ={"HOLDFAST_HOME": str(shared)} if shared else {})


def first_of(repo: Path) -> str:
    return git(repo, "rev-list", "--max-parents=0", "HEAD").splitlines()[-1]


def open_and_close(app: App) -> None:
    with short_run(app):
        pass


def test_the_first_commit_is_written_down_as_soon_as_there_is_one(tmp_path: Path) -> None:
    app = make_app(make_repo(tmp_path / "repo"))
    app.init()
    repository = read_format(app.layout).repository
    open_and_close(app)
    assert read_format(app.layout).root_commit == ""
    git(app.repo, "commit", "-q", "--allow-empty", "-m", "first")
    git(app.repo, "commit", "-q", "--allow-empty", "-m", "second")
    app.read()
    assert read_format(app.layout).root_commit == "", "read-only commands write nothing"
    open_and_close(app)
    assert read_format(app.layout).root_commit == first_of(app.repo) != git(app.repo, "rev-parse", "HEAD")
    assert read_format(app.layout).repository == repository

    later = make_app(make_repo(tmp_path / "later", "one", "two"))
    later.init()
    assert read_format(later.layout).root_commit == first_of(later.repo)


def test_another_repository_at_the_same_path_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    shared, repo = tmp_path / "no" / "shared", make_repo(tmp_path / "repo", "mine")
    app = make_app(repo, shared)
    app.init()
    (app.layout.backlog_open / "known.yaml").write_text("goal: do it\n")
    open_and_close(app)
    mine = first_of(repo)
    shutil.rmtree(repo)
    make_repo(repo, "of another")
    other = make_app(repo, shared)
    before = {path: path.stat().st_mtime_ns for path in shared.rglob("*")}
    for act in (other.init, lambda: open_and_close(other)):
        with pytest.raises(errors.RootOfAnother, match="Nothing was changed") as told:
            act()
        assert mine in str(told.value) and first_of(repo) in str(told.value) and "--data-root" in str(told.value)
    asked = [sys.executable, "-m", "holdfast", "--data-root", str(shared)]
    for command in (["check"], ["check", "--repair"], ["add", "--goal", "g"], ["edit", "known", "--role", "r"]):
        done = subprocess.run([*asked, *command], cwd=repo, capture_output=True, text=True)
        assert done.returncode == 2 and mine in done.stderr, done.stderr
    assert {path: path.stat().st_mtime_ns for path in shared.rglob("*")} == before

    # As the sentence says, for a history that was rewritten.
    text = app.layout.format_file.read_text()
    app.layout.format_file.write_text(text.replace(mine, ""))
    open_and_close(other)
    assert read_format(other.layout).root_commit == first_of(repo)


def test_a_repository_without_a_commit_is_no_repository_with_one(tmp_path: Path) -> None:
    app = make_app(make_repo(tmp_path / "repo", "mine"))
    app.init()
    shutil.rmtree(app.repo / ".git")
    git(app.repo, "init", "-q")
    with pytest.raises(errors.RootOfAnother, match="it has no commit yet"):
        open_and_close(app)


def test_any_first_commit_of_the_repository_counts_also_on_a_branch_without_it(tmp_path: Path) -> None:
    app = make_app(make_repo(tmp_path / "repo", "mine"))
    app.init()
    mine = first_of(app.repo)
    git(app.repo, "checkout", "-q", "--orphan", "apart")
    open_and_close(app)
    git(app.repo, "commit", "-q", "--allow-empty", "-m", "apart")
    open_and_close(app)
    git(app.repo, "merge", "-q", "--allow-unrelated-histories", "-m", "both", "main")
    open_and_close(app)
    assert read_format(app.layout).root_commit == mine
    assert len(git(app.repo, "rev-list", "--max-parents=0", "HEAD").split()) == 2


def test_a_shallow_clone_cannot_tell_and_writes_nothing_down(tmp_path: Path) -> None:
    app = make_app(make_repo(tmp_path / "repo", "mine", "more", "most"))
    app.init()
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{app.repo}", "shallow")
    clone = make_app(tmp_path / "shallow")
    clone.layout.root.mkdir()
    shutil.copy(app.layout.format_file, clone.layout.format_file)
    open_and_close(clone)
    assert read_format(clone.layout).root_commit == first_of(app.repo)

    apart = make_app(tmp_path / "shallow", tmp_path / "shared")
    apart.init()
    open_and_close(apart)
    assert read_format(apart.layout).root_commit == ""


def test_a_repository_that_moved_is_told_where_its_state_is(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    app = make_app(make_repo(tmp_path / "old place", "mine"), shared)
    app.init()
    (app.layout.backlog_open / "a.yaml").write_text("goal: do it\n")
    open_and_close(app)
    make_app(make_repo(tmp_path / "stranger", "another"), shared).init()

    git(tmp_path, "clone", "-q", str(app.repo), "clone")
    clone = make_app(tmp_path / "clone", shared)
    with pytest.raises(errors.NotInitialised) as told:
        clone.read()
    assert not isinstance(told.value, errors.RepositoryMoved), "the other one still lives where it was"

    moved = make_app(app.repo.rename(tmp_path / "new place"), shared)
    for act in (moved.read, lambda: open_and_close(moved)):
        with pytest.raises(errors.RepositoryMoved) as told:
            act()
    assert str(app.layout.root) in str(told.value) and "holdfast init" in str(told.value)
    asked = [sys.executable, "-m", "holdfast", "--data-root", str(shared), "check"]
    done = subprocess.run(asked, cwd=moved.repo, capture_output=True, text=True)
    assert done.returncode == 2 and told.value.command in done.stderr
    subprocess.run(told.value.command, shell=True, check=True)
    assert list(moved.read().state.tasks) == ["a"]
    open_and_close(moved)


def test_looking_asks_git_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app(make_repo(tmp_path / "repo", "mine"))
    app.init()
    open_and_close(app)
    monkeypatch.setenv("PATH", os.devnull)
    app.read()
    with pytest.raises(errors.GitUnusable):
        open_and_close(app)
