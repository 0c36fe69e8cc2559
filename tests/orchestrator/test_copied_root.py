"""`run` in a copy of a repository with its data root touches nothing of the original, and goes on by itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.storage.journal.reader import Chain
from holdfast.storage.records import attempt_folder
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, landed, layout, sound, state
from kit.waiting import shell_wait, wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy


def agent_is_alive(repo: Path, start: int) -> bool:
    running = attempt_folder.read_process(layout(repo).attempt_files("t.1"))
    return running is not None and running.start == start and running.agent.is_alive()


def links(repo: Path) -> dict[str, str]:
    """How git and the worktrees of a repository know each other."""
    found = [*(repo / ".git" / "worktrees").glob("*/gitdir"), *layout(repo).worktrees.glob("*/.git")]
    return {str(path): path.read_text() for path in found}


def started_with(repo: Path) -> list[str]:
    entries = (entry for _, entry in Chain(layout(repo).wal).entries() if entry.decision_type == "run_started")
    return [str(entry.inputs.get("copied_from", "")) for entry in entries]


def test_a_copy_ends_no_agent_of_the_original_and_leaves_its_worktrees_alone(repo: Path, tmp_path: Path) -> None:
    go, copy = tmp_path / "go", tmp_path / "copy" / "repo"
    add(repo, "t", f"write a.txt a\nrun {shell_wait(go)}\nwrite b.txt b")
    original = begin(repo)
    wait_for(lambda: bool(state(repo).tasks.get("t")) and state(repo).tasks["t"].spent.turns == 1, "a turn")
    copy.parent.mkdir()
    subprocess.run(["cp", "-a", repo, copy], check=True)
    before = links(repo)
    assert agent_is_alive(repo, 1) and before
    other = begin(copy)
    wait_for(lambda: agent_is_alive(copy, 2), "the agent of the copy")
    assert agent_is_alive(repo, 1) and links(repo) == before
    assert all(str(repo) + "/" not in text for text in links(copy).values())
    go.touch()
    for process, where in ((original, repo), (other, copy)):
        out = process.communicate()[0]
        assert process.returncode == 0, out
        assert landed(where) == ["t"] and git(where, "show", "main:b.txt") == "b"
        sound(where)
        assert ("is a copy of" in out) is (where == copy)
    assert started_with(copy)[-1] == str(layout(repo).root) and not any(started_with(repo))
    assert "is a copy of" not in holdfast(copy, "run")
    assert not layout(repo).attempt_files("t.1").start(2).exists()


def test_a_moved_repository_goes_on_as_before(repo: Path, tmp_path: Path) -> None:
    go, moved = tmp_path / "go", tmp_path / "moved"
    add(repo, "t", f"write a.txt a\nrun {shell_wait(go)}\nwrite b.txt b")
    run = begin(repo)
    wait_for(lambda: bool(state(repo).tasks.get("t")) and state(repo).tasks["t"].spent.turns == 1, "a turn")
    holdfast(repo, "stop", "--agents")
    run.communicate()
    repo.rename(moved)
    go.touch()
    out = holdfast(moved, "run")
    assert landed(moved) == ["t"] and "is a copy of" not in out and not any(started_with(moved))
    sound(moved)


def test_a_process_of_a_copied_file_is_not_ours_to_signal(repo: Path, tmp_path: Path) -> None:
    add(repo, "t", "write a.txt a")
    holdfast(repo, "run")
    files = layout(repo).attempt_files("t.1")
    running = attempt_folder.read_process(files)
    assert running is not None and attempt_folder.is_lock_of(files, running)
    shutil.copytree(repo, tmp_path / "copy", symlinks=True)
    assert not attempt_folder.is_lock_of(layout(tmp_path / "copy").attempt_files("t.1"), running)
