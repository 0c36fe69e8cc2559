"""Locks that a killed git of ours leaves in the repository: the next git is free of them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from holdfast.app import App
from holdfast.domain.task import TaskState
from holdfast.errors import GitFault, GitLocked
from holdfast.git import lock_files
from holdfast.landing.branch import Land
from holdfast.orchestrator.loop import Loop
from holdfast.ports import Happened
from holdfast.wiring import run_context
from holdfast.worktrees.worktrees import Worktrees
from kit.disks import require_strace
from kit.git import git
from kit.landing import intent
from kit.program import holdfast
from kit.project import add, landed, layout, sound, state

require_strace()
pytestmark = pytest.mark.usefixtures("home")


def dying_git(folder: Path, monkeypatch: pytest.MonkeyPatch, when: str, call: str, number: int) -> Path:
    """A git that, where its arguments are `when`, is killed at a system call, once; strace's log shows that it was."""
    real, log, wrapper = shutil.which("git"), folder / "strace.log", folder / "bin" / "git"
    wrapper.parent.mkdir()
    tracing = f"strace -o {log} -e trace={call} -e inject={call}:signal=KILL:when={number}"
    wrapper.write_text(
        f'#!/bin/sh\ncase "$*" in {when}) if [ ! -e {log} ]; then exec {tracing} {real} "$@"; fi;; esac\n'
        f'exec {real} "$@"\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    return log


def fired(log: Path) -> bool:
    return "killed by SIGKILL" in log.read_text()


def locks(repo: Path) -> list[str]:
    found = [*(repo / ".git").rglob("*.lock"), *(repo / ".git").glob("packed-refs.new")]
    return [str(path.relative_to(repo / ".git")) for path in found]


def two_commits(repo: Path) -> tuple[str, str]:
    old = git(repo, "rev-parse", "HEAD")
    (repo / "new.txt").write_text("new\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "new")
    new = git(repo, "rev-parse", "HEAD")
    git(repo, "reset", "-q", "--hard", old)
    return old, new


def test_a_git_killed_behind_the_landings_rename_has_landed_and_leaves_no_lock(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = two_commits(repo)
    # The branch is renamed into place; then git would unlink HEAD.lock.
    log = dying_git(tmp_path, monkeypatch, '"update-ref -m"*', "unlink", 1)
    wanted = intent("land", branch="refs/heads/main", old=old, new=new)
    assert Land(repo, layout(repo)).perform(wanted)["new"] == new
    assert fired(log) and git(repo, "rev-parse", "main") == new and locks(repo) == []


def test_recovery_frees_what_a_killed_landing_left(repo: Path) -> None:
    old, new = two_commits(repo)
    log = repo.parent / "strace.log"
    command = ["git", "-C", str(repo), "update-ref", "-m", "x", "refs/heads/main", new, old]
    tracing = ["strace", "-o", str(log), "-e", "trace=unlink", "-e", "inject=unlink:signal=KILL:when=1"]
    assert subprocess.run([*tracing, *command], check=False).returncode == -signal.SIGKILL
    assert fired(log) and "HEAD.lock" in locks(repo), "git left no lock, so there is nothing to free"
    assert isinstance(
        Land(repo, layout(repo)).reconcile(intent("land", branch="refs/heads/main", old=old, new=new)), Happened
    )
    assert locks(repo) == []
    git(repo, "commit", "-q", "--allow-empty", "-m", "the user's own")


def test_a_landing_goes_on_by_itself_after_its_git_was_killed(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(repo, "t", "write t.txt x")
    log = dying_git(tmp_path, monkeypatch, '"update-ref -m"*', "rename", 1)
    with run_context(App.find(repo), lambda task, text: None) as context:
        Loop(context).run()
    assert fired(log) and landed(repo) == ["t"] and locks(repo) == []
    assert state(repo).tasks["t"].state is TaskState.CLOSED and state(repo).tasks["t"].attempts == 1
    sound(repo)


@pytest.mark.parametrize(("call", "number"), [("write", 1), ("rename", 1), ("unlink", 1), ("unlink", 2)])
def test_refs_whose_removal_was_killed_can_be_removed_again(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    at = git(repo, "rev-parse", "HEAD")
    refs = [f"refs/holdfast/attempts/t.{each}/turn-1" for each in (1, 2)]
    for ref in refs:
        git(repo, "update-ref", ref, at)
    git(repo, "pack-refs", "--all")
    text = "".join(f"delete {ref} {at}\n" for ref in refs)
    common = repo / ".git"

    def remove() -> int:
        with lock_files.freed(common, common, [repo, common], refs):
            return subprocess.run(
                ["git", "-C", str(repo), "update-ref", "--stdin"], input=text, text=True, check=False
            ).returncode

    log = dying_git(tmp_path, monkeypatch, '*"update-ref --stdin"*', call, number)
    assert remove() != 0 and fired(log)
    left = git(repo, "for-each-ref", "--format=%(refname)", "refs/holdfast").split()
    text = "".join(f"delete {ref} {at}\n" for ref in left)
    assert remove() == 0 and not git(repo, "for-each-ref", "refs/holdfast") and locks(repo) == []


def test_a_lock_of_a_living_git_is_never_taken_away(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_files, "WAIT_S_MAX", 0.0)
    lock = repo / ".git" / "HEAD.lock"
    holding = subprocess.Popen(
        ["sh", "-c", f'exec 3> "{lock}"; echo held; read answer'], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holding.stdout is not None and holding.stdout.readline() == b"held\n"
    common = repo / ".git"
    try:
        with pytest.raises(GitLocked), lock_files.freed(common, common, [repo, common], ["refs/heads/main"]):
            pass
        assert lock.exists()
    finally:
        holding.communicate(b"\n")
    with lock_files.freed(common, common, [repo, common], ["refs/heads/main"]):
        assert not lock.exists()


def test_gc_removes_old_snapshots_although_an_earlier_one_was_killed(repo: Path) -> None:
    add(repo, "t", "write t.txt x")
    holdfast(repo, "run")
    store = layout(repo).snapshots
    git(store, "pack-refs", "--all")
    for name in ("packed-refs.lock", "packed-refs.new"):
        (store / name).touch()
    assert git(store, "for-each-ref", "refs/attempts")
    holdfast(repo, "gc", "--keep-days", "0")
    assert not git(store, "for-each-ref", "refs/attempts")
    assert not [path for path in store.rglob("*") if path.name.endswith((".lock", "packed-refs.new"))]


def test_a_git_killed_in_a_worktree_leaves_no_lock_there(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees, at = Worktrees(repo, layout(repo)), git(repo, "rev-parse", "HEAD")
    trees.prepare("t", at)
    log = dying_git(tmp_path, monkeypatch, '"read-tree --reset"*', "rename", 1)
    with pytest.raises(GitFault):
        trees.reset("t", at)
    assert fired(log) and "worktrees/t/index.lock" in log.read_text() and locks(repo) == []
    trees.reset("t", at)


def test_the_users_configuration_is_free_after_an_agents_git_was_killed(repo: Path, tmp_path: Path) -> None:
    trees, at = Worktrees(repo, layout(repo)), git(repo, "rev-parse", "HEAD")
    path, log = trees.prepare("t", at), tmp_path / "config.log"
    tracing = ["strace", "-o", str(log), "-e", "trace=rename", "-e", "inject=rename:signal=KILL:when=1"]
    killed = subprocess.run([*tracing, "git", "-C", str(path), "config", "user.name", "agent"], check=False)
    assert killed.returncode == -signal.SIGKILL and fired(log) and locks(repo) == ["config.lock"]
    with (repo / ".git" / "config.lock").open() as taken:
        held = subprocess.Popen(["sleep", "600"], stdin=taken)
    try:
        trees.reset("t", at)
        assert locks(repo) == ["config.lock"], "somebody has it"
    finally:
        held.kill()
        held.wait()
    trees.reset("t", at)
    assert locks(repo) == []
    git(repo, "config", "user.name", "the user")
