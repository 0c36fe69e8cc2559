"""The backlog's files and the journal: who is believed when they disagree, in both directions."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.app import App
from holdfast.config.layers import load
from holdfast.domain.entries import MOVE_TO
from holdfast.domain.task import TASK, TaskEvent
from holdfast.durable.entry import Record
from holdfast.stores.files import FileLedger
from holdfast.testing.recorder import Recorder
from support import each_disk, record, scratch


def git(repo: Path, *command: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", *identity, *command], cwd=repo, check=True, capture_output=True)


def make_app(repo: Path) -> App:
    if not (repo / ".git").exists():
        repo.mkdir(exist_ok=True)
        git(repo, "init", "-q")
    app = App(repo, load(repo, environ={"HOME": os.environ.get("HOME", "/")}))
    app.init()
    return app


@pytest.fixture
def app(tmp_path: Path) -> App:
    return make_app(tmp_path / "repo")


def write(app: App, name: str, text: str = "goal: do it\n", folder: str = "open") -> Path:
    path = app.layout.backlog / folder / f"{name}.yaml"
    path.write_text(text)
    return path


def states(app: App) -> dict[str, str]:
    return {name: str(task.state) for name, task in app.look().state.tasks.items()}


def places(app: App) -> dict[str, str]:
    return {path.stem: path.parent.name for path in sorted(app.layout.backlog.glob("*/*.yaml"))}


def drive(ledger: FileLedger, task: str, *events: TaskEvent, **outcome: str) -> None:
    for event in events:
        target = TASK.next(ledger.state.tasks[task].state, event)
        inputs = {"task": task, "event": event, "reason": "test", "attempt": f"{task}.1", "agent": "a"}
        ledger.append(ledger.epoch, [Record(MOVE_TO[target], {**inputs, "outcome": outcome})])


CLOSE = (TaskEvent.AGENT_CLAIMS_TASK, TaskEvent.FAST_COMPLETION, TaskEvent.JANITOR_VERIFIED_AND_MERGED)
FAIL = (TaskEvent.AGENT_CLAIMS_TASK, TaskEvent.IMMEDIATE_FAILURE)


def test_files_become_tasks_and_stand_where_their_state_says(app: App) -> None:
    for name in "abc":
        write(app, name, f"# by a person\ngoal: do {name}  # why\n")
    with app.session() as session:
        assert sorted(session.intake.added) == ["a", "b", "c"]
        drive(session.ledger, "a", *CLOSE, commit="abc")
        drive(session.ledger, "b", *FAIL, message="it broke")
        session.ledger.claim("worker", "c", lease_s=60)
    assert places(app) == {"a": "closed", "b": "failed", "c": "claimed"}
    closed = (app.layout.backlog / "closed" / "a.yaml").read_text()
    assert closed.startswith("# by a person\ngoal: do a  # why\n") and "commit: abc" in closed
    assert "it broke" in (app.layout.backlog / "failed" / "b.yaml").read_text()
    with app.session() as session:
        assert not session.intake.added and not session.intake.edited
    assert places(app)["c"] == "open", "a claim that nobody started was given back"
    assert "claim" not in (app.layout.backlog / "open" / "c.yaml").read_text()


def test_status_comes_from_the_journal_and_definition_from_the_file(app: App) -> None:
    write(app, "a")
    write(app, "b")
    with app.session() as session:
        drive(session.ledger, "a", *CLOSE)
    # The folder says otherwise, in both directions: the journal wins.
    shutil.move(app.layout.backlog / "closed" / "a.yaml", app.layout.backlog / "open" / "a.yaml")
    shutil.move(app.layout.backlog / "open" / "b.yaml", app.layout.backlog / "closed" / "b.yaml")
    with app.session():
        pass
    assert states(app) == {"a": "CLOSED", "b": "OPEN"} and places(app) == {"a": "closed", "b": "open"}
    # The file's words are changed: the file wins.
    path = write(app, "b", "goal: something else\n")
    with app.session() as session:
        assert session.intake.edited == ["b"]
        pinned = session.ledger.state.tasks["b"].definition
        assert session.blobs.get(pinned) == b"goal: something else\n"
    assert path.read_text() == "goal: something else\n"


def test_an_edit_while_claimed_is_taken_too_and_our_block_is_no_edit(app: App) -> None:
    write(app, "a")
    with app.session() as session:
        drive(session.ledger, "a", TaskEvent.AGENT_CLAIMS_TASK, TaskEvent.AGENT_STARTS_WORK)
    path = app.layout.backlog / "claimed" / "a.yaml"
    with app.session() as session:
        assert session.intake.edited == []
    path.write_text(path.read_text().replace("do it", "do it better"))
    with app.session() as session:
        assert session.intake.edited == ["a"]
    assert "claim:" in path.read_text() and "do it better" in path.read_text()


def test_a_deleted_open_file_cancels_and_any_other_is_put_back(app: App) -> None:
    for name in "abc":
        write(app, name, f"goal: do {name}\n")
    with app.session() as session:
        drive(session.ledger, "a", *CLOSE, commit="abc")
        drive(session.ledger, "b", TaskEvent.AGENT_CLAIMS_TASK, TaskEvent.AGENT_STARTS_WORK)
    for path in app.layout.backlog.glob("*/*.yaml"):
        path.unlink()
    with app.session() as session:
        assert session.intake.cancelled == ["c"] and sorted(session.intake.put_back) == ["a", "b"]
    assert states(app) == {"a": "CLOSED", "b": "IN_PROGRESS", "c": "CANCELLED"}
    assert places(app) == {"a": "closed", "b": "claimed", "c": "closed"}
    assert "commit: abc" in (app.layout.backlog / "closed" / "a.yaml").read_text()


def test_a_broken_file_is_reported_and_its_task_left_alone(app: App) -> None:
    write(app, "a")
    write(app, "b")
    with app.session():
        pass
    broken = write(app, "a", "goal: [unclosed\n")
    with app.session() as session:
        assert [problem.file for problem in session.intake.problems] == ["open/a.yaml"]
        assert session.intake.cancelled == []
    assert states(app) == {"a": "OPEN", "b": "OPEN"} and broken.read_text() == "goal: [unclosed\n"


def test_nothing_is_cancelled_while_a_file_or_folder_cannot_be_used(app: App, tmp_path: Path) -> None:
    for name in "ab":
        write(app, name)
    named = write(app, "file", "id: other\ngoal: g\n")
    with app.session():
        pass
    named.write_text("")
    with app.session() as session:
        assert session.intake.cancelled == [] and session.intake.problems
    named.write_text("id: other\ngoal: g\n")
    shutil.move(app.layout.backlog / "open", tmp_path / "elsewhere")
    (app.layout.backlog / "open").symlink_to(tmp_path / "elsewhere")
    with app.session() as session:
        assert session.intake.cancelled == [] and session.intake.problems
    assert set(states(app).values()) == {"OPEN"}


def test_a_task_whose_pinned_text_is_lost_is_left_as_it_is_and_stops_nobody(app: App) -> None:
    for name in "ab":
        write(app, name, f"goal: do {name}\n")
    with app.session():
        pass
    for path in [*app.layout.backlog.glob("*/*.yaml"), *app.layout.cas.glob("*/*")]:
        if path.is_file():
            path.unlink()
    with app.session() as session:
        assert session.intake.cancelled == []
    assert set(states(app).values()) == {"OPEN"}


def test_of_two_copies_the_closed_one_counts(app: App) -> None:
    write(app, "q", "goal: g\n")
    write(app, "q", "goal: g\nresult:\n  commit: abc\n", folder="closed")
    with app.session():
        pass
    assert states(app) == {"q": "CLOSED"} and places(app) == {"q": "closed"}


def test_a_clone_without_a_journal_keeps_what_is_closed_closed(app: App, tmp_path: Path) -> None:
    for name in "abcd":
        write(app, name)
    with app.session() as session:
        drive(session.ledger, "a", *CLOSE, commit="abc")
        drive(session.ledger, "b", *FAIL, message="it broke")
        drive(session.ledger, "c", TaskEvent.MANUAL_CANCEL)
    git(app.repo, "add", ".")
    git(app.repo, "commit", "-qm", "work")
    git(tmp_path, "clone", "-q", str(app.repo), "clone")
    clone = make_app(tmp_path / "clone")
    assert not any(clone.layout.wal.glob("*.wal.jsonl"))
    with clone.session() as session:
        assert sorted(session.intake.added) == ["a", "b", "c", "d"]
        assert session.ledger.state.tasks["a"].outcome["commit"] == "abc"
    assert states(clone) == {"a": "CLOSED", "b": "FAILED", "c": "CANCELLED", "d": "OPEN"}
    assert places(clone) == places(app)


def test_a_copy_of_the_backlog_alone_works_like_a_clone(app: App, tmp_path: Path) -> None:
    write(app, "a")
    with app.session() as session:
        drive(session.ledger, "a", *CLOSE)
    other = make_app(tmp_path / "other")
    shutil.copytree(app.layout.backlog, other.layout.backlog, dirs_exist_ok=True)
    with other.session():
        pass
    assert states(other) == {"a": "CLOSED"}


def test_taking_in_and_projecting_survive_a_power_cut_at_every_operation() -> None:
    with scratch() as base:
        repo = base / "repo"
        app = make_app(repo)
        write(app, "a", "goal: do a\n")
        write(app, "b", "goal: do b\n")

        def program(recorder: Recorder) -> None:
            with app.session() as session:
                recorder.mark("added")
                drive(session.ledger, "a", *CLOSE, commit="abc")
                recorder.mark("closed")

        disks = 0
        for acknowledged, root in each_disk(record(app.layout.root, program), limit=4):
            shutil.copytree(repo / ".git", root.parent / "again" / ".git", dirs_exist_ok=True)
            again = root.parent / "again" / ".sdd"
            shutil.rmtree(again, ignore_errors=True)
            shutil.copytree(root, again)
            second = make_app(again.parent)
            with second.session():
                pass
            found = states(second)
            assert set(found) == {"a", "b"} and found["b"] == "OPEN"
            assert found["a"] == "CLOSED" or "closed" not in acknowledged
            folder = {"OPEN": "open", "CLOSED": "closed", "CLAIMED": "claimed", "DONE": "claimed"}
            assert places(second) == {name: folder[state] for name, state in found.items()}
            texts = [path.read_text() for path in second.layout.backlog.glob("*/*.yaml")]
            assert sorted(text.splitlines()[0] for text in texts) == ["goal: do a", "goal: do b"]
            disks += 1
        assert disks > 50
