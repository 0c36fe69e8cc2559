"""`git stash -u` and `git clean -fd` fired at a data root that git does not track: nothing of it is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_support import add, begin, git, holdfast, landed, layout, make_repo, settings, sound, state, wait_for
from holdfast.domain.task import TaskState

TAKES = {"stash": ("stash", "-u"), "clean": ("clean", "-fdq")}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """One that does not ignore the data root as a whole: git would carry backlog and settings, if asked to."""
    repo = make_repo(tmp_path / "repo")
    (repo / ".gitignore").unlink()
    git(repo, "commit", "-qam", "track the data root")
    settings(repo, max_agents=1)
    return repo


@pytest.mark.parametrize("takes", TAKES)
def test_a_run_goes_on_with_its_tasks_and_sees_new_ones(repo: Path, takes: str) -> None:
    go = repo.parent / "go"
    add(repo, "first", f"run while [ ! -e {go} ]; do sleep 0.05; done\nwrite first.txt x", priority=1)
    add(repo, "second", "write second.txt x")
    process = begin(repo)
    wait_for(lambda: "first" in state(repo).tasks and state(repo).tasks["first"].started, "a start")
    place = layout(repo).backlog_open / "second.yaml"
    before = place.read_bytes()
    git(repo, *TAKES[takes])
    wait_for(lambda: place.exists() and layout(repo).settings.exists(), "what git took")
    assert place.read_bytes() == before and process.poll() is None
    add(repo, "third", "write third.txt x")
    go.touch()
    out, _ = process.communicate()
    assert process.returncode == 0, out
    assert "second: its file was gone, and is put back" in out
    assert sorted(landed(repo)) == ["first", "second", "third"]
    assert {path.name for path in layout(repo).backlog_closed.iterdir()} == {
        f"{name}.yaml" for name in state(repo).tasks
    }
    sound(repo)


@pytest.mark.parametrize("takes", TAKES)
def test_the_next_start_puts_back_what_was_taken_in_between(repo: Path, takes: str) -> None:
    add(repo, "held", "write held.txt x", depends_on=["missing"])
    add(repo, "done", "write done.txt x")
    holdfast(repo, "run", code=20)
    text = layout(repo).settings.read_bytes()
    # Twice: the second finds no .gitignore of the data root, which would hide the journal.
    for _ in range(2):
        git(repo, *TAKES[takes])
    assert not layout(repo).backlog_open.exists() and not layout(repo).settings.exists()
    assert layout(repo).wal.exists()
    holdfast(repo, "check")
    holdfast(repo, "run", code=20)
    assert layout(repo).settings.read_bytes() == text
    assert state(repo).tasks["held"].state is TaskState.OPEN
    assert (layout(repo).backlog_open / "held.yaml").exists() and (layout(repo).backlog_closed / "done.yaml").exists()
    sound(repo)


def test_a_stash_beside_tracked_files_takes_a_task_and_cancels_none(repo: Path) -> None:
    add(repo, "tracked", "write a.txt x", depends_on=["missing"])
    git(repo, "add", ".sdd/backlog")
    git(repo, "commit", "-qm", "a task")
    add(repo, "new", "write b.txt x", depends_on=["missing"])
    holdfast(repo, "run", code=20)
    git(repo, "stash", "-u")
    assert (layout(repo).backlog_open / "tracked.yaml").exists() and not (
        layout(repo).backlog_open / "new.yaml"
    ).exists()
    holdfast(repo, "run", code=20)
    assert {str(task.state) for task in state(repo).tasks.values()} == {"OPEN"}
    assert (layout(repo).backlog_open / "new.yaml").exists()
    (layout(repo).backlog_open / "new.yaml").unlink()
    git(repo, "stash", "drop")
    holdfast(repo, "run", code=20)
    assert state(repo).tasks["new"].state is TaskState.CANCELLED, "a person who deletes one file cancels its task"
