"""Bubblewrap itself fails, at each kind of start that needs it: no attempt is spent, the cause is named, and the run
ends with what to type next."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast.domain.task import TaskState
from holdfast.orchestrator import holds
from kit.confined import needs_bwrap
from kit.project import add, landed, sound, state
from kit.roots import run_here

FULL = "bwrap: Creating new namespace failed: No space left on device"
# By a word of its command line, who is started: an agent, a gate, a git of ours; only `listed` lists with -z.
WHO = {"agent": "holdfast.agents.adapters.script", "gate": "the-gate", "git": "--chdir", "listed": " ls-files "}


@pytest.fixture
def repo(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(holds, "TRY_AGAIN_S", 0.01)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HOLDFAST_SANDBOX", "bwrap")
    return repo


def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str) -> Path:
    """A bwrap that fails for these while a file is there."""
    programs, real = tmp_path / "programs", shutil.which("bwrap")
    programs.mkdir()
    full = programs / "full"
    full.touch()
    fails = (
        f'[ -e {full} ] && case " $* " in *"{WHO[who]}"*) echo "{FULL}" >&2; echo x >> {programs}/fired; exit 1;; esac'
    )
    (programs / "bwrap").write_text(f'#!/bin/sh\n{fails}\nexec {real} "$@"\n')
    (programs / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    return full


@needs_bwrap
@pytest.mark.parametrize("who", ["agent", "gate", "git", "listed"])
def test_a_sandbox_that_cannot_be_made_costs_no_attempt_and_the_run_ends(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    full = failing(tmp_path, monkeypatch, who)
    add(repo, "a", "write a.txt x", verify=[{"command": "true the-gate"}], max_attempts=1)
    said = run_here(repo)
    assert (tmp_path / "programs" / "fired").exists(), "nothing of the kind was started"
    task = state(repo).tasks["a"]
    assert task.state in (TaskState.OPEN, TaskState.DONE) and task.attempts == 1, (task, said)
    assert "No space left on device" in task.cause, (task, said)
    assert any("No space left on device" in line and "next run" in line for line in said), said
    full.unlink()
    run_here(repo)
    assert landed(repo) == ["a"] and state(repo).tasks["a"].attempts == 1
    sound(repo)
