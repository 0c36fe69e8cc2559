"""`git clean` beside tracked task files, and a stash that is popped after its files were put back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from holdfast.domain.task import TaskState
from kit.git import git
from kit.program import holdfast
from kit.project import add, layout, make_tracked_repo, sound, state

pytestmark = pytest.mark.repo(make=make_tracked_repo)


@pytest.fixture
def beside_tracked(repo: Path) -> Path:
    """Two open tasks that git does not know, beside one that it has."""
    add(repo, "tracked", "write a.txt x", depends_on=["missing"])
    (layout(repo).backlog / "issues").mkdir(exist_ok=True)
    (layout(repo).backlog / "issues" / ".gitkeep").touch()
    git(repo, "add", ".sdd/backlog")
    git(repo, "commit", "-qm", "a task")
    for name in ("one", "two"):
        add(repo, name, "write b.txt x", depends_on=["missing"])
    holdfast(repo, "run", code=20)
    return repo


def test_a_clean_beside_tracked_files_cancels_none(beside_tracked: Path) -> None:
    repo, place = beside_tracked, layout(beside_tracked).backlog_open
    texts = {path.name: path.read_bytes() for path in place.iterdir()}
    git(repo, "clean", "-fdq")
    assert [path.name for path in place.iterdir()] == ["tracked.yaml"]
    add(repo, "new", "write c.txt x", depends_on=["missing"])
    said = holdfast(repo, "run", code=20)
    assert "one: its file was gone, and is put back; `holdfast cancel one` gives it up" in said
    assert {str(task.state) for task in state(repo).tasks.values()} == {"OPEN"}
    assert {name: (place / name).read_bytes() for name in texts} == texts
    sound(repo)


def test_a_tracked_file_that_a_person_deletes_is_cancelled_and_another_is_put_back(beside_tracked: Path) -> None:
    for name in ("tracked", "one"):
        (layout(beside_tracked).backlog_open / f"{name}.yaml").unlink()
    assert "`holdfast cancel one` gives it up" in holdfast(beside_tracked, "run", code=20)
    tasks = state(beside_tracked).tasks
    assert [name for name in tasks if tasks[name].state is TaskState.CANCELLED] == ["tracked"]
    assert (layout(beside_tracked).backlog_open / "one.yaml").exists()


@pytest.mark.parametrize("is_tracked", [True, False])
def test_a_stash_that_is_popped_again_brings_everything_back(repo: Path, is_tracked: bool) -> None:
    """Put back in between or not: git refuses to pop over a file, and names it, and loses nothing."""
    add(repo, "one", "write b.txt x", depends_on=["missing"])
    if is_tracked:
        add(repo, "tracked", "write a.txt x", depends_on=["missing"])
        git(repo, "add", ".sdd/backlog/open/tracked.yaml")
        git(repo, "commit", "-qm", "a task")
    holdfast(repo, "run", code=20)
    place = layout(repo).backlog_open / "one.yaml"
    before = place.read_bytes()
    mine = {repo / "mine.txt": "mine", repo / "README.md": "changed"}
    for path, text in mine.items():
        path.write_text(text)
    git(repo, "stash", "-u")
    git(repo, "stash", "pop")
    assert place.read_bytes() == before and all(path.read_text() == text for path, text in mine.items())
    holdfast(repo, "run", code=20)
    git(repo, "stash", "-u")
    holdfast(repo, "run", code=20)
    assert place.read_bytes() == before and not (repo / "mine.txt").exists()
    told = subprocess.run(["git", "stash", "pop"], cwd=repo, capture_output=True, text=True)
    assert told.returncode == 1 and "one.yaml already exists, no checkout" in told.stderr
    assert place.read_bytes() == before and all(path.read_text() == text for path, text in mine.items())
    assert "stash@{0}" in git(repo, "stash", "list")
    git(repo, "stash", "drop")
    holdfast(repo, "run", code=20)
    assert {str(task.state) for task in state(repo).tasks.values()} == {"OPEN"}
    sound(repo)
