"""A small repository with tasks, and the real `holdfast` over it."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.domain.state import State
from holdfast.layout import Layout
from holdfast.ledgers.reader import read_state
from kit.cli import HOLDFAST, Typed, type_in
from kit.disks import wait_for as wait_for
from kit.snapshots import seeing

if TYPE_CHECKING:
    import pytest

# The server and the sandbox have tests of their own; here they would only cost each run some time.
# Nor do agents give way to all else: on a busy machine they would come to nothing for minutes.
QUICK = {"HOLDFAST_SERVER__ENABLED": "false", "HOLDFAST_SANDBOX": "none", "HOLDFAST_LIMITS__NICE": "0"}


def git(repo: Path, *args: str) -> str:
    """As a person types it, also beside a run: while that has the index, it is typed again."""
    env = {**os.environ, **seeing(repo)}

    def typed() -> subprocess.CompletedProcess[str] | None:
        done = subprocess.run(["git", "-C", str(repo), *args], env=env, capture_output=True, text=True, check=False)
        return None if done.returncode == 128 and "index.lock': File exists" in done.stderr else done

    done: subprocess.CompletedProcess[str] = wait_for(typed, f"the index, for git {args}")
    assert done.returncode == 0, (args, done.stderr)
    return done.stdout.strip()


def make_repo(folder: Path) -> Path:
    """A repository with one commit, an identity of its own, and a data root: a copy of one that is made only once."""
    shutil.copytree(_template(), folder, symlinks=True, dirs_exist_ok=True)
    # The index knows its files by inode and time: it learns those of the copies.
    git(folder, "update-index", "-q", "--refresh")
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


@functools.cache
def _template() -> Path:
    top = tempfile.mkdtemp(prefix="holdfast-tests-")
    atexit.register(shutil.rmtree, top, ignore_errors=True)
    folder = Path(top, "repo")
    folder.mkdir()
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
    return {**kept, "HOME": str(repo.parent), **QUICK, **more}


def holdfast(repo: Path, *args: str, code: int | None = 0, env: Mapping[str, str] = {}, stdin: str = "") -> str:
    """Runs the command to its end and returns what it printed: in this process, unless it has settings of its own."""
    if env or "--detach" in args:
        code_found, out, err = _run_apart(repo, args, env, stdin)
    else:
        others = dict.fromkeys(name for name in os.environ if name.startswith("GIT_"))
        here = {**others, "HOME": str(repo.parent), **QUICK}
        code_found, out, err = type_in(repo, *args, stdin=stdin, environ=here)
    if code is not None:
        assert code_found == code, f"{args}: {code_found}\n{out}\n{err}"
    return out + err


def _run_apart(repo: Path, args: Sequence[str], env: Mapping[str, str], stdin: str) -> Typed:
    done = subprocess.run(
        [*HOLDFAST, *args],
        cwd=repo, env=environment(repo, **env), input=stdin, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return Typed(done.returncode, done.stdout, done.stderr)


def begin(repo: Path, *args: str, **env: str) -> subprocess.Popen[str]:
    """Begins `holdfast run` and returns its process."""
    return subprocess.Popen(
        [*HOLDFAST, "run", "--plain", *args],
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


def landed(repo: Path, branch: str = "main") -> list[str]:
    """The task of each landing, oldest first."""
    text = git(repo, "log", "--reverse", "--format=%(trailers:key=Holdfast-Task,valueonly,separator=)", branch)
    return [line for line in text.splitlines() if line]


def sound(repo: Path) -> None:
    """The oracle has nothing to say."""
    holdfast(repo, "check")


def faulty_git(folder: Path, monkeypatch: pytest.MonkeyPatch, when: str, then: str) -> Path:
    """A git that does `then` instead of its work where its arguments are `when`; the file says how often it has."""
    real, fired = shutil.which("git"), folder / "fired"
    wrapper = folder / "bin" / "git"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f'#!/bin/sh\ncase "$*" in {when}) echo x >> {fired}; if [ ! -e {folder}/mended ]; then {then}; fi;; esac\n'
        f'exec {real} "$@"\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    return fired
