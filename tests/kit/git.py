"""Git as a person types it, and repositories without a data root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kit.waiting import wait_for

if TYPE_CHECKING:
    import pytest

_CONFIG = Path(__file__).with_name("gitconfig")


def git(folder: Path, *args: str, env: Mapping[str, str] = {}) -> str:
    """What it prints. Nobody's own settings count; while a run has the index, it is typed again."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    # It shows the commits of the store that belongs to the repository, where a test has one.
    stores = [place / "snapshots.git" for place in (folder / ".sdd", folder.parent / "data")]
    objects = ":".join(str(store / "objects") for store in stores if store.is_dir())
    seeing = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": objects} if objects else {}
    variables = {**kept, "GIT_CONFIG_GLOBAL": str(_CONFIG), **seeing, **env}

    def typed() -> subprocess.CompletedProcess[bytes] | None:
        done = subprocess.run(["git", *args], cwd=folder, env=variables, capture_output=True, check=False)
        return None if done.returncode == 128 and b"index.lock': File exists" in done.stderr else done

    done: subprocess.CompletedProcess[bytes] = wait_for(typed, f"the index, for git {args}")
    assert done.returncode == 0, (args, done.stderr)
    return os.fsdecode(done.stdout).strip()


def repository(path: Path, *options: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    git(path, "init", "-q", "-b", "main", *options)
    return path


def with_files(path: Path, **files: str) -> Path:
    """With these files in its first commit."""
    for name, content in files.items():
        (path / name).write_text(content)
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", "first")
    return path


def plain(**files: str) -> Callable[[Path], Path]:
    """For `@pytest.mark.repo(make=plain(a="1"))`: these files, and no data root."""
    return lambda folder: with_files(repository(folder), **files)


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
