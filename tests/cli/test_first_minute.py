"""The first minute: each thing that may be missing is a sentence with the way out, and that way works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kit.git import git, repository
from kit.program import Typed, environment, type_in
from kit.project import add, make_bare_repo, make_repo

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy


def typed_apart(folder: Path, *arguments: str, **environ: str) -> Typed:
    """As a process of its own, in a home without any git identity."""
    env = environment(folder, **environ)
    done = subprocess.run([sys.executable, "-m", "holdfast", *arguments], cwd=folder, env=env, capture_output=True)
    return Typed(done.returncode, done.stdout.decode(), done.stderr.decode())


def path_without_git(tmp_path: Path) -> str:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "env"):
        os.symlink(str(shutil.which(name)), folder / name)
    return str(folder)


@pytest.mark.parametrize("is_repository", [True, False])
def test_a_missing_git_program_is_reported(is_repository: bool, tmp_path: Path) -> None:
    folder = make_repo(tmp_path / "repo", one="write x hi") if is_repository else tmp_path
    said = typed_apart(folder, "run", PATH=path_without_git(tmp_path))
    assert said.returncode == 8 and "git cannot be used" in said.stderr and "install git 2." in said.stderr


def test_a_folder_that_is_no_repository_is_reported(tmp_path: Path) -> None:
    said = typed_apart(tmp_path, "run", GIT_CEILING_DIRECTORIES=str(tmp_path.parent))
    assert said.returncode == 2 and "is not in a git work tree" in said.stderr and "`git init`" in said.stderr


def test_a_repository_without_a_data_root_is_reported(tmp_path: Path) -> None:
    said = type_in(make_bare_repo(tmp_path), "run")
    assert said.returncode == 2 and "type `holdfast init`" in said.stderr


def test_a_repository_without_a_commit_is_reported(tmp_path: Path) -> None:
    repo = repository(tmp_path)
    git(repo, "config", "user.name", "Ada")
    git(repo, "config", "user.email", "ada@example.org")
    type_in(repo, "init")
    add(repo, "one", "write x hi")
    said = type_in(repo, "run")
    assert said.returncode == 2 and "has no commit yet" in said.stderr
    git(repo, "commit", "-q", "--allow-empty", "-m", "First commit")
    assert type_in(repo, "run").returncode == 0


def test_a_branch_that_was_deleted_is_not_one_without_a_commit(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, one="write x hi")
    tip = git(repo, "rev-parse", "main")
    git(repo, "update-ref", "-d", "refs/heads/main")
    said = type_in(repo, "run")
    assert said.returncode == 2 and "was deleted" in said.stderr and f"`git branch main {tip}`" in said.stderr
    git(repo, "branch", "main", tip)
    assert type_in(repo, "run").returncode == 0
    # With a landing on it, and another branch checked out and left again meanwhile.
    tip = git(repo, "rev-parse", "main")
    git(repo, "branch", "other")
    git(repo, "update-ref", "-d", "refs/heads/main")
    add(repo, "two", "write y hi")
    said = type_in(repo, "run")
    assert "was deleted" in said.stderr and f"`git branch main {tip}`" in said.stderr
    git(repo, "branch", "main", tip)
    git(repo, "switch", "-q", "--orphan", "new")
    assert "has no commit yet" in type_in(repo, "run").stderr


def test_a_missing_identity_is_reported(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", one="write x hi")
    for name in ("user.name", "user.email"):
        git(repo, "config", "--unset", name)
    said = typed_apart(repo, "run")
    assert said.returncode == 2 and "git config user.name" in said.stderr
    assert git(repo, "for-each-ref", "refs/holdfast") == ""
    git(repo, "config", "user.name", "A Person")
    git(repo, "config", "user.email", "person@example.org")
    assert typed_apart(repo, "run").returncode == 0


def test_a_detached_head_is_reported(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, one="write x hi")
    git(repo, "checkout", "-q", "--detach")
    said = type_in(repo, "run")
    assert said.returncode == 2 and "`git switch main`" in said.stderr
    git(repo, "switch", "-q", "main")
    assert type_in(repo, "run").returncode == 0


def test_a_target_branch_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, one="write x hi")
    (repo / ".sdd/config/settings.yaml").write_text("git: {target_branch: release}\n")
    said = type_in(repo, "run")
    assert said.returncode == 2 and "type `git branch release`" in said.stderr
    git(repo, "branch", "release")
    assert type_in(repo, "run").returncode == 0
    assert git(repo, "show", "release:x") == "hi"


def test_changes_that_are_not_committed_are_fine(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, one="write x hi")
    (repo / "README.md").write_text("mine\n")
    said = type_in(repo, "run")
    assert said.returncode == 0 and "not committed (README.md)" in said.stdout
    assert "They stay as they are" in said.stdout
    assert (repo / "README.md").read_text() == "mine\n" and (repo / "x").read_text() == "hi\n"


def test_a_missing_agent_is_reported(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    (repo / ".sdd/config/settings.yaml").write_text(
        "agent: ghost\nagents: [{name: ghost, command: [no-such-program]}]\n"
    )
    said = type_in(repo, "run", "fix the login page")
    assert said.returncode == 2 and "'no-such-program'" in said.stderr
    assert "kept as the task fix-login-page" in said.stderr
    assert [path.name for path in (repo / ".sdd/backlog/open").iterdir()] == ["fix-login-page.yaml"]
    said = type_in(repo, "run")
    assert said.returncode == 2 and "`command:` or a `script:`" in said.stderr
    # One that can be worked on is worked on, and the other is reported.
    add(repo, "one", "write x hi")
    said = type_in(repo, "run")
    assert said.returncode == 20 and "one: landed on main as" in said.stdout and "no-such-program" in said.stdout
