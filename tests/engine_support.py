"""A small repository with tasks, and the real `holdfast` over it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast.domain.state import State
from holdfast.layout import Layout
from holdfast.stores.files import read_state

WAIT_S = 60.0


def git(repo: Path, *args: str) -> str:
    done = subprocess.run(["git", "-C", str(repo), *args], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def make_repo(folder: Path) -> Path:
    """A repository with one commit, an identity of its own, and a data root."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    for key, value in (("user.name", "Ada"), ("user.email", "ada@example.org"), ("commit.gpgsign", "false")):
        git(folder, "config", key, value)
    (folder / "README.md").write_text("A small project.\n")
    (folder / ".gitignore").write_text("/.sdd/\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "begin")
    holdfast(folder, "init")
    return folder


def environment(repo: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "GIT_"))}
    return {**kept, "HOME": str(repo.parent), **more}


def holdfast(repo: Path, *args: str, code: int | None = 0, env: Mapping[str, str] = {}, stdin: str = "") -> str:
    """Runs the command to its end and returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *args],
        cwd=repo, env=environment(repo, **env), input=stdin, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    if code is not None:
        assert done.returncode == code, f"{args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def begin(repo: Path, *args: str, **env: str) -> subprocess.Popen[str]:
    """Begins `holdfast run` and returns its process."""
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast", "run", "--plain", *args],
        cwd=repo, env=environment(repo, **env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def add(repo: Path, task: str, script: str, **more: Any) -> None:
    """Writes a task's file as a person would: the agent is the script."""
    content = {"id": task, "title": f"Do {task}", "script": script, **more}
    (layout(repo).backlog_open / f"{task}.yaml").write_bytes(msgspec.yaml.encode(content))


def layout(repo: Path) -> Layout:
    return Layout(repo / ".sdd")


def settings(repo: Path, **values: Any) -> None:
    layout(repo).settings.write_bytes(msgspec.yaml.encode(values))


def state(repo: Path) -> State:
    return read_state(layout(repo))[0]


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.02)


def landed(repo: Path, branch: str = "main") -> list[str]:
    """The task of each landing, oldest first."""
    text = git(repo, "log", "--reverse", "--format=%(trailers:key=Holdfast-Task,valueonly,separator=)", branch)
    return [line for line in text.splitlines() if line]


def sound(repo: Path) -> None:
    """The oracle has nothing to say."""
    holdfast(repo, "check")
