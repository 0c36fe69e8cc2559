"""While a landing moves the branch, the checkout's index is held: a `git commit` from the old one cannot undo it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest

from holdfast.app import App
from holdfast.checks.doctor import git_locks_part
from holdfast.domain.task import TaskState
from holdfast.engine import effects
from holdfast.landing.refresh import HOLD_POINTS
from holdfast.orchestrator.loop import Loop
from holdfast.wiring import run_context
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, landed, make_repo, settings, sound, state

# Whole runs, of seconds each.
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.usefixtures("home"),
    pytest.mark.repo(make=partial(make_repo, t="write new.txt x\nwrite README.md better")),
]


def is_locked(repo: Path) -> bool:
    return (repo / ".git" / "index.lock").exists()


def commits(repo: Path) -> int:
    done = subprocess.run(["git", "-C", str(repo), "commit", "-q", "-m", "mine"], capture_output=True, check=False)
    return done.returncode


def test_a_commit_between_the_landing_and_the_refresh_does_not_undo_it(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repo / "mine.txt").write_text("mine\n")
    git(repo, "add", "mine.txt")
    tried: list[int] = []
    before = effects.point

    def at(name: str) -> None:
        # The branch has moved; the checkout and its index have not.
        if name == "effect.land.after":
            tried.append(commits(repo))
        before(name)

    monkeypatch.setattr(effects, "point", at)
    with run_context(App.find(repo), lambda task, text: None) as context:
        Loop(context).run()
    assert len(tried) == 1 and landed(repo) == ["t"] and not is_locked(repo)
    assert git(repo, "show", "main:README.md") == "better"
    assert tried[0] != 0 and commits(repo) == 0
    assert git(repo, "show", "main:README.md") == "better" and git(repo, "status", "--porcelain") == ""
    sound(repo)


@pytest.mark.parametrize("point", [HOLD_POINTS[1], "land.swap.before", "land.swap.after", "effect.refresh.before"])
def test_a_killed_run_leaves_a_lock_that_the_next_one_takes_over(repo: Path, point: str) -> None:
    assert begin(repo, HOLDFAST_CRASH_AT=f"{point}:1").wait() == -signal.SIGKILL
    assert is_locked(repo) and "Sound" in holdfast(repo, "check")
    holdfast(repo, "run")
    assert landed(repo) == ["t"] and not is_locked(repo) and git(repo, "status", "--porcelain") == ""
    sound(repo)


def test_doctor_says_that_a_run_frees_the_lock_and_not_to_remove_it(repo: Path) -> None:
    """Who removes it and commits from the old index undoes the landing."""
    assert begin(repo, HOLDFAST_CRASH_AT="land.swap.after:1").wait() == -signal.SIGKILL
    lock = repo / ".git" / "index.lock"
    for age in (0, 3600):
        os.utime(lock, (lock.stat().st_mtime - age,) * 2)
        (found,) = git_locks_part(repo).findings
        assert str(lock) in found.said and found.next == "holdfast run"


def test_a_lock_of_a_landing_that_never_comes_goes_with_the_next_owner(repo: Path) -> None:
    assert begin(repo, HOLDFAST_CRASH_AT=f"{HOLD_POINTS[1]}:1").wait() == -signal.SIGKILL
    holdfast(repo, "cancel", "t")
    assert state(repo).tasks["t"].state is TaskState.CANCELLED
    assert landed(repo) == [] and not is_locked(repo)
    assert holdfast(repo, "check").endswith("Sound.\n")


def test_a_lock_that_a_landing_still_needs_is_reported_until_a_run_has_finished_it(repo: Path) -> None:
    """Also where the owner in between is no run: the checkout has yet to follow."""
    add(repo, "other", "write other.txt x", depends_on=["t"])
    assert begin(repo, HOLDFAST_CRASH_AT="land.swap.after:1").wait() == -signal.SIGKILL
    lock = repo / ".git" / "index.lock"
    for _ in range(2):
        told = holdfast(repo, "check")
        assert is_locked(repo) and f"pending: {lock} keeps git from committing" in told
        told = " ".join(holdfast(repo, "status").split())
        assert str(lock) in told and "holdfast run" in told
        assert json.loads(holdfast(repo, "status", "--json"))["locks"] == [str(lock)]
        holdfast(repo, "cancel", "other", code=None)
    holdfast(repo, "run")
    assert not is_locked(repo) and "index.lock" not in holdfast(repo, "status") + holdfast(repo, "check")
    assert json.loads(holdfast(repo, "status", "--json"))["locks"] == []


def test_a_lock_of_the_users_own_git_is_waited_for(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `git commit -a` holds it while its editor is open."""
    lock = repo / ".git" / "index.lock"
    editor = repo.parent / "editor.sh"
    editor.write_text(f'echo mine > "$1"; echo on; read answer < {repo.parent}/go\n')
    subprocess.run(["mkfifo", str(repo.parent / "go")], check=True)
    (repo / "README.md").write_text("mine\n")
    command = ["git", "-C", str(repo), "-c", f"core.editor=sh {editor}", "commit", "-a"]
    git(repo, "config", "user.name", "me")
    committing = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert committing.stdout is not None
    while committing.stdout.readline() != "on\n":
        pass
    assert lock.exists()
    notes: list[str] = []

    def note(task: str, text: str) -> None:
        notes.append(text)
        if "index.lock is held by process" in text:
            (repo.parent / "go").write_text("go\n")
            committing.communicate()

    settings(repo, max_attempts=5)
    add(repo, "t", "write new.txt x")
    with run_context(App.find(repo), note) as context:
        Loop(context).run()
    assert committing.returncode == 0 and any("index.lock is held by process" in each for each in notes)
    assert landed(repo) == ["t"] and git(repo, "show", "main:README.md") == "mine" and not is_locked(repo)
    sound(repo)
