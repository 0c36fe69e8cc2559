"""`git stash -u` and `git clean -fd` fired at a data root that git does not track: nothing of it is lost."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.app import App
from holdfast.backlog import restore
from holdfast.backlog.sync import take_in
from holdfast.config.layers import load
from holdfast.domain.task import TaskState
from holdfast.git import repository
from holdfast.orchestrator import wakeup
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, landed, layout, make_repo, make_tracked_repo, settings, sound, state
from kit.roots import short_run
from kit.waiting import shell_wait, wait_for

# Whole runs, of seconds each.
pytestmark = [pytest.mark.heavy, pytest.mark.repo(make=make_tracked_repo)]

TAKES = {"stash": ("stash", "-u"), "clean": ("clean", "-fdq")}


def known(repo: Path, *tasks: str) -> None:
    """Tasks that a run has taken in, and that wait for one that there is not."""
    for name in tasks:
        add(repo, name, "write w.txt x", depends_on=["missing"])
    holdfast(repo, "run", code=20)


@pytest.mark.parametrize("takes", TAKES)
def test_files_that_git_does_not_carry_are_hidden_from_stash_and_clean(tmp_path: Path, takes: str) -> None:
    repo = make_repo(tmp_path / "repo")
    (repo / ".gitignore").unlink()
    git(repo, "commit", "-qam", "nothing ignored")
    settings(repo, max_agents=1)
    for name in ("gone", "stays"):
        add(repo, name, f"write {name}.txt x", depends_on=["missing"])
    holdfast(repo, "run", code=20)
    assert git(repo, "status", "--porcelain") == ""
    before = {path: path.read_bytes() for path in layout(repo).root.rglob("*") if path.is_file()}
    (repo / "mine.txt").write_text("mine")
    git(repo, *TAKES[takes])
    assert not (repo / "mine.txt").exists()
    assert {path: path.read_bytes() for path in before} == before
    (layout(repo).backlog_open / "gone.yaml").unlink()
    holdfast(repo, "run", code=20)
    assert state(repo).tasks["gone"].state is TaskState.CANCELLED and state(repo).tasks["stays"].state is TaskState.OPEN


@pytest.mark.parametrize("takes", TAKES)
def test_a_run_goes_on_with_its_tasks_and_sees_new_ones(repo: Path, takes: str) -> None:
    go = repo.parent / "go"
    add(repo, "first", f"run {shell_wait(go)}\nwrite first.txt x", priority=1)
    add(repo, "second", "write second.txt x")
    process = begin(repo)
    wait_for(lambda: "first" in state(repo).tasks and state(repo).tasks["first"].claim.started, "a start")
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
    git(repo, "add", "-f", ".sdd/backlog")
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
    assert "`holdfast cancel new` gives it up" in holdfast(repo, "run", code=20), "nothing is left to tell who took it"
    assert state(repo).tasks["new"].state is TaskState.OPEN and (layout(repo).backlog_open / "new.yaml").exists()
    (layout(repo).backlog_open / "tracked.yaml").unlink()
    holdfast(repo, "run", code=20)
    assert state(repo).tasks["tracked"].state is TaskState.CANCELLED, "a person who deletes a tracked file means it"


def test_settings_that_come_back_by_a_pop_meanwhile_are_left_as_they_are(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(repo, "t", "write t.txt x")
    holdfast(repo, "run")
    shutil.rmtree(layout(repo).settings.parent)

    def popped(root: Path, path: Path) -> bool:
        path.parent.mkdir(exist_ok=True)
        path.write_text("max_agents: 3\n")
        return False

    monkeypatch.setattr(restore, "is_in_a_branch", popped)
    assert restore.put_back_config(layout(repo)) == []
    assert layout(repo).settings.read_text() == "max_agents: 3\n"


def test_tasks_that_come_back_by_a_pop_meanwhile_are_left_as_they_are(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(repo, "waits")
    place = layout(repo).backlog_open
    shutil.rmtree(place)

    def popped(*_: object) -> set[str]:
        place.mkdir()
        add(repo, "waits", "write w.txt changed", depends_on=["missing"])
        return set()

    with short_run(App(repo, load(repo, environ={}))) as session:
        assert session.intake.put_back == ["waits"]
        shutil.rmtree(place)
        monkeypatch.setattr(restore, "removed", popped)
        assert restore.put_back_open(session.ledger, session.backlog, session.blobs) == []
    assert "changed" in (place / "waits.yaml").read_text()
    assert [path.name for path in layout(repo).backlog.iterdir() if path.name.startswith(".hf")] == []


def test_a_watch_whose_folder_is_away_begins_when_it_is_back(tmp_path: Path) -> None:
    folder, told = tmp_path / "backlog", threading.Event()
    (folder / "open").mkdir(parents=True)
    watch = wakeup.SignalWatch([folder])
    watch.listen(lambda paths: told.set())
    folder.rename(tmp_path / "away")
    with watch:
        wait_for(lambda: not watch._thread.is_alive(), "the end of the first watch")
        (tmp_path / "away").rename(folder)
        assert watch.renew()
        while not told.is_set():
            (folder / "open" / "t.yaml").write_text("title: t\n")
            told.wait(0.1)


def test_a_backlog_that_git_takes_while_it_is_asked_about_it_ends_no_run(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(repo, "a", "b")
    real, asked = repository._ask, list[str]()

    def taken(folder: Path, *args: str, **more: Any) -> Any:
        if not asked:
            git(repo, "stash", "-q", "-u")
        asked.append(args[0])
        return real(folder, *args, **more)

    with short_run(App(repo, load(repo, environ={}))) as session:
        (layout(repo).backlog_open / "a.yaml").unlink()
        monkeypatch.setattr(repository, "_ask", taken)
        report = take_in(session.ledger, session.backlog, session.blobs)
        assert asked and sorted({*report.put_back, *report.cancelled}) in (["a", "b"], ["a"])
        take_in(session.ledger, session.backlog, session.blobs)
    assert state(repo).tasks["b"].state is TaskState.OPEN and (layout(repo).backlog_open / "b.yaml").exists()


def test_a_file_that_is_back_when_git_was_asked_was_not_deleted(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known(repo, "a", "b")
    place = layout(repo).backlog_open / "a.yaml"
    content, real = place.read_bytes(), repository.find_gone

    def popped(*args: Any) -> Any:
        place.write_bytes(content)
        return real(*args)

    with short_run(App(repo, load(repo, environ={}))) as session:
        place.unlink()
        monkeypatch.setattr(repository, "find_gone", popped)
        assert take_in(session.ledger, session.backlog, session.blobs).cancelled == []
    assert state(repo).tasks["a"].state is TaskState.OPEN


def test_a_stash_that_is_dropped_while_git_is_asked_about_it_ends_no_run(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(repo, "a", "b")
    real, dropped = repository._ask, list[str]()

    def asked(folder: Path, *args: str, **more: Any) -> Any:
        if "--walk-reflogs" in args and not dropped:
            dropped.append(git(repo, "stash", "drop", "-q"))
        return real(folder, *args, **more)

    with short_run(App(repo, load(repo, environ={}))) as session:
        git(repo, "stash", "-q", "-u")
        (layout(repo).backlog_open).mkdir(parents=True)
        monkeypatch.setattr(repository, "_ask", asked)
        take_in(session.ledger, session.backlog, session.blobs)
    assert dropped and {str(task.state) for task in state(repo).tasks.values()} == {"OPEN"}


def test_a_worktree_whose_commit_a_gc_took_ends_no_run(repo: Path) -> None:
    known(repo, "t")
    git(repo, "worktree", "add", "-q", "--detach", str(repo.parent / "beside"))
    (repo / ".git" / "worktrees" / "beside" / "HEAD").write_text(f"{'1' * 40}\n")
    shutil.rmtree(layout(repo).settings.parent)
    (layout(repo).backlog_open / "t.yaml").unlink()
    holdfast(repo, "run", code=20)
    assert layout(repo).settings.exists() and (layout(repo).backlog_open / "t.yaml").exists()
