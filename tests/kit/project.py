"""A small repository with a data root: its tasks, its settings, and what has become of them."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from holdfast.domain.state import State
from holdfast.layout import Layout
from holdfast.ledgers.reader import read_state
from kit.git import git, repository
from kit.program import holdfast


def make_repo(folder: Path, **tasks: str) -> Path:
    """A repository with one commit, an identity of its own, a data root, and a task for each script.

    It is a copy of one that is made only once."""
    shutil.copytree(_template(), folder, symlinks=True, dirs_exist_ok=True)
    # The index knows its files by inode and time: it learns those of the copies.
    git(folder, "update-index", "-q", "--refresh")
    for task, script in tasks.items():
        add(folder, task, script)
    return folder


def make_tracked_repo(folder: Path) -> Path:
    """One that does not ignore the data root as a whole: git would carry backlog and settings, if asked to."""
    repo = make_repo(folder)
    (repo / ".gitignore").unlink()
    git(repo, "add", "-f", ".sdd/.gitignore")
    git(repo, "commit", "-qam", "track the data root")
    holdfast(repo, "init")
    settings(repo, max_agents=1)
    return repo


def make_bare_repo(folder: Path) -> Path:
    """A repository with one commit and an identity of its own, in which `holdfast init` is still to be typed."""
    repository(folder)
    for key, value in (("user.name", "Ada"), ("user.email", "ada@example.org"), ("commit.gpgsign", "false")):
        git(folder, "config", key, value)
    (folder / "README.md").write_text("A small project.\n")
    (folder / ".gitignore").write_text("/.sdd/\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "begin")
    return folder


@functools.cache
def _template() -> Path:
    top = tempfile.mkdtemp(prefix="holdfast-tests-")
    atexit.register(shutil.rmtree, top, ignore_errors=True)
    folder = make_bare_repo(Path(top, "repo"))
    holdfast(folder, "init")
    return folder


def add(repo: Path, task: str, script: str, **more: Any) -> None:
    """Writes a task's file as a person would: the agent is the script."""
    content = {"id": task, "goal": task, **more}
    if script.replace("\n", "").isprintable() and not script.startswith(" "):
        block = "".join(f"  {line}\n" for line in script.split("\n"))
        text = f"{msgspec.yaml.encode(content).decode()}script: |-\n{block}"
    else:
        text = msgspec.yaml.encode({**content, "script": script}).decode()
    (layout(repo).backlog_open / f"{task}.yaml").write_text(text)


def layout(repo: Path) -> Layout:
    return Layout(repo / ".sdd")


def settings(repo: Path, **values: Any) -> None:
    layout(repo).settings.write_bytes(msgspec.yaml.encode(values))


def state(repo: Path) -> State:
    return read_state(layout(repo))[0]


def landed(repo: Path, branch: str = "main") -> list[str]:
    """The task of each landing, oldest first."""
    text = git(repo, "log", "--reverse", "--format=%(trailers:key=Holdfast-Task,valueonly,separator=)", branch)
    return [line for line in text.splitlines() if line]


def sound(repo: Path) -> None:
    """The oracle has nothing to say."""
    holdfast(repo, "check")
