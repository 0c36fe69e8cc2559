"""The backlog's files and the journal: who is believed when they disagree, in both directions."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from holdfast.app import GITIGNORE, App
from holdfast.backlog.folder import Backlog
from holdfast.checks.check import Section, check
from holdfast.config.layers import load
from holdfast.domain.entries import MOVE_TO
from holdfast.domain.task import TASK, TaskEvent
from holdfast.errors import BacklogAlone
from holdfast.ledgers.files import FileLedger
from holdfast.storage.journal.entry import Record
from holdfast.testing.recorder import Recorder
from holdfast.views.rows import read_overview
from kit.disks import each_disk, record, scratch
from kit.git import git, repository
from kit.roots import short_run


def later(seconds: int) -> dict[str, str]:
    """For git, which dates a commit to the second: a test takes less between two things that come in turn."""
    return {"GIT_COMMITTER_DATE": f"@{int(time.time()) + seconds} +0000"}


def make_app(repo: Path) -> App:
    if not (repo / ".git").exists():
        repository(repo)
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
    return {name: str(task.state) for name, task in app.read().state.tasks.items()}


def places(app: App) -> dict[str, str]:
    return {path.stem: path.parent.name for path in sorted(app.layout.backlog.glob("*/*.yaml"))}


def check_backlog(app: App) -> Section:
    sections = check(app.layout, Backlog(app.layout.backlog), None).sections
    return next(section for section in sections if section.name == "backlog")


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
    with short_run(app) as session:
        assert sorted(session.intake.added) == ["a", "b", "c"]
        drive(session.ledger, "a", *CLOSE, commit="abc")
        drive(session.ledger, "b", *FAIL, message="it broke")
        session.ledger.claim("worker", "c", lease_s=60)
    assert places(app) == {"a": "closed", "b": "failed", "c": "claimed"}
    closed = (app.layout.backlog / "closed" / "a.yaml").read_text()
    assert closed.startswith("# by a person\ngoal: do a  # why\n") and "commit: abc" in closed
    assert "it broke" in (app.layout.backlog / "failed" / "b.yaml").read_text()
    with short_run(app) as session:
        assert not session.intake.added and not session.intake.edited
    assert places(app)["c"] == "open", "a claim that nobody started was given back"
    assert "claim" not in (app.layout.backlog / "open" / "c.yaml").read_text()


def test_status_comes_from_the_journal_and_definition_from_the_file(app: App) -> None:
    write(app, "a")
    write(app, "b")
    with short_run(app) as session:
        drive(session.ledger, "a", *CLOSE)
    # The folder says otherwise, in both directions: the journal wins.
    shutil.move(app.layout.backlog / "closed" / "a.yaml", app.layout.backlog / "open" / "a.yaml")
    shutil.move(app.layout.backlog / "open" / "b.yaml", app.layout.backlog / "closed" / "b.yaml")
    with short_run(app):
        pass
    assert states(app) == {"a": "CLOSED", "b": "OPEN"} and places(app) == {"a": "closed", "b": "open"}
    # The file's words are changed: the file wins.
    path = write(app, "b", "goal: something else\n")
    with short_run(app) as session:
        assert session.intake.edited == ["b"]
        pinned = session.ledger.state.tasks["b"].definition
        assert session.blobs.get(pinned) == b"goal: something else\n"
    assert path.read_text() == "goal: something else\n"


def test_an_edit_while_claimed_is_taken_too_and_our_block_is_no_edit(app: App) -> None:
    write(app, "a")
    with short_run(app) as session:
        drive(session.ledger, "a", TaskEvent.AGENT_CLAIMS_TASK, TaskEvent.AGENT_STARTS_WORK)
    path = app.layout.backlog / "claimed" / "a.yaml"
    with short_run(app) as session:
        assert session.intake.edited == []
    path.write_text(path.read_text().replace("do it", "do it better"))
    with short_run(app) as session:
        assert session.intake.edited == ["a"]
    assert "claim:" in path.read_text() and "do it better" in path.read_text()


@pytest.mark.parametrize("at", ["1763240000.25", "1763240000", "2025-11-15T20:53:20.250000Z"])
def test_a_closed_file_without_a_journal_is_imported_whatever_its_time_is_written_as(app: App, at: str) -> None:
    path = write(app, "old", f"goal: do it\nresult:\n  state: CLOSED\n  at: {at}\n", folder="closed")
    text = path.read_text()
    for _ in range(2):
        with short_run(app):
            pass
    assert states(app) == {"old": "CLOSED"} and path.read_text() == text and check_backlog(app).findings == []


_ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"


def test_times_in_our_blocks_are_iso_times(app: App) -> None:
    for name in ("claimed", "failed", "closed"):
        write(app, name)
    with short_run(app) as session:
        drive(session.ledger, "claimed", TaskEvent.AGENT_CLAIMS_TASK, TaskEvent.AGENT_STARTS_WORK)
        drive(session.ledger, "failed", *FAIL)
        drive(session.ledger, "closed", *CLOSE)
    texts = {path.stem: path.read_text() for path in app.layout.backlog.rglob("*.yaml")}
    assert re.search(rf"since: '?{_ISO}", texts["claimed"]), texts
    for name in ("failed", "closed"):
        assert re.search(rf"at: '?{_ISO}", texts[name]), texts
    assert check_backlog(app).findings == []


def test_unix_times_of_older_files_still_hold(app: App) -> None:
    """A file that says the same moment as Unix seconds is neither rewritten nor found to differ."""
    write(app, "gone")
    with short_run(app) as session:
        drive(session.ledger, "gone", *CLOSE)
        changed_at = session.ledger.state.tasks["gone"].changed_at
    path = app.layout.backlog / "closed/gone.yaml"
    old = re.sub(rf"at: '?{_ISO}'?", f"at: {changed_at!r}", path.read_text())
    path.write_text(old)
    assert f"at: {changed_at!r}" in old and check_backlog(app).findings == []
    with short_run(app):
        pass
    assert path.read_text() == old


def test_a_deleted_open_file_cancels_and_any_other_is_put_back(app: App) -> None:
    for name in "abc":
        write(app, name, f"goal: do {name}\n")
    with short_run(app) as session:
        drive(session.ledger, "a", *CLOSE, commit="abc")
        drive(session.ledger, "b", TaskEvent.AGENT_CLAIMS_TASK, TaskEvent.AGENT_STARTS_WORK)
    for path in app.layout.backlog.glob("*/*.yaml"):
        path.unlink()
    with short_run(app) as session:
        assert session.intake.cancelled == ["c"] and sorted(session.intake.put_back) == ["a", "b"]
    assert states(app) == {"a": "CLOSED", "b": "IN_PROGRESS", "c": "CANCELLED"}
    assert places(app) == {"a": "closed", "b": "claimed", "c": "closed"}
    assert "commit: abc" in (app.layout.backlog / "closed" / "a.yaml").read_text()


def commit(app: App, message: str) -> None:
    git(app.repo, "add", "-A")
    git(app.repo, "add", "-f", str(app.layout.backlog))
    git(app.repo, "commit", "-qm", message)


@pytest.fixture
def versioned(app: App) -> App:
    """Three open tasks, all in git on `main`, one file with a name of its own; the branch `before` has none."""
    git(app.repo, "checkout", "-qb", "main")
    (app.layout.root / ".gitignore").write_text("*\n!/backlog/\n!/backlog/**\n")
    git(app.repo, "commit", "-q", "--allow-empty", "-m", "before all tasks")
    git(app.repo, "branch", "before")
    for name in "ab":
        write(app, name, f"goal: do {name}\n")
    write(app, "named", "id: c\ngoal: do c\n")
    with short_run(app):
        pass
    commit(app, "tasks")
    return app


def assert_kept(app: App, *kept: str) -> list[str]:
    with short_run(app) as session:
        assert session.intake.cancelled == []
        assert sorted(name for problem in session.intake.problems for name in problem.tasks) == sorted(kept)
        told = [str(problem) for problem in session.intake.problems]
    assert set(states(app).values()) == {"OPEN"}
    return told


def test_a_checkout_that_takes_files_away_cancels_nothing(versioned: App) -> None:
    git(versioned.repo, "checkout", "-q", "before")
    assert "named" not in places(versioned)
    told = "\n".join(assert_kept(versioned, "a", "b", "c"))
    [command] = re.findall("`(git checkout .*/a.yaml)`", told)
    assert "open/named.yaml`" in told and "`holdfast cancel c`" in told
    assert_kept(versioned, "a", "b", "c")
    subprocess.run(command, shell=True, cwd=versioned.repo, check=True)
    assert_kept(versioned, "b", "c")
    git(versioned.repo, "checkout", "-q", "-f", "main")
    assert assert_kept(versioned) == []
    assert places(versioned) == {"a": "open", "b": "open", "named": "open"}


def test_a_checkout_that_takes_the_pinned_texts_too_cancels_nothing(versioned: App) -> None:
    versioned.repo.joinpath(".sdd", ".gitignore").write_text("/runtime/\n")
    git(versioned.repo, "add", "-f", str(versioned.layout.cas))
    commit(versioned, "all of the data root")
    git(versioned.repo, "branch", "-f", "before", "HEAD~2")
    git(versioned.repo, "checkout", "-q", "before")
    assert not list(versioned.layout.cas.glob("*/*"))
    versioned.init()
    assert_kept(versioned, "a", "b", "c")
    told = "\n".join(assert_kept(versioned, "a", "b", "c"))
    assert "neither this file nor its copy" in told


def test_a_reset_or_a_stash_cancels_nothing(versioned: App) -> None:
    git(versioned.repo, "reset", "-q", "--hard", "before")
    assert_kept(versioned, "a", "b", "c")
    git(versioned.repo, "reset", "-q", "--hard", "ORIG_HEAD")
    write(versioned, "b", "goal: do b, but never committed\n")
    with short_run(versioned) as session:
        assert session.intake.edited == ["b"]
    # Pinned is what was never committed; the branch has the file by its name.
    git(versioned.repo, "checkout", "-q", "-f", "before")
    assert_kept(versioned, "a", "b", "c")
    git(versioned.repo, "checkout", "-q", "main")
    git(versioned.repo, "rm", "-q", "--cached", str(versioned.layout.backlog_open / "b.yaml"))
    write(versioned, "fresh", "goal: do something fresh\n")
    with short_run(versioned):
        pass
    git(versioned.repo, "stash", "-q", "-u")
    assert "fresh" not in places(versioned)
    with short_run(versioned) as session:
        assert session.intake.put_back == ["fresh"] and session.intake.cancelled == []
    assert places(versioned)["fresh"] == "open"


def test_a_task_whose_file_a_person_deletes_is_cancelled_however_git_is_configured(versioned: App) -> None:
    write(versioned, "untracked", "goal: never told git\n")
    write(versioned, "staged", "goal: only added\n")
    with short_run(versioned):
        pass
    git(versioned.repo, "add", str(versioned.layout.backlog_open / "staged.yaml"))
    for name in ("untracked", "staged", "named"):
        (versioned.layout.backlog_open / f"{name}.yaml").unlink()
    git(versioned.repo, "rm", "-q", str(versioned.layout.backlog_open / "a.yaml"))
    with short_run(versioned) as session:
        assert sorted(session.intake.cancelled) == ["a", "c", "staged"]
        assert session.intake.put_back == session.intake.swept == ["untracked"], "`git clean` could have taken it"
        assert session.intake.problems == []
    commit(versioned, "less to do")
    git(versioned.repo, "rm", "-q", str(versioned.layout.backlog_open / "b.yaml"))
    git(versioned.repo, "commit", "-qm", "nothing to do", env=later(1))
    with short_run(versioned) as session:
        assert session.intake.cancelled == ["b"]


def test_a_deletion_before_the_first_commit_cancels(app: App) -> None:
    for name in "ab":
        write(app, name, f"goal: do {name}\n")
    with short_run(app):
        pass
    git(app.repo, "add", "-f", str(app.layout.backlog_open / "a.yaml"))
    for name in "ab":
        (app.layout.backlog_open / f"{name}.yaml").unlink()
    with short_run(app) as session:
        assert session.intake.cancelled == ["a"]
        assert session.intake.put_back == session.intake.swept == ["b"], "`git clean` could have taken it"


def test_a_deletion_merged_into_the_present_branch_cancels(versioned: App) -> None:
    git(versioned.repo, "checkout", "-qb", "side")
    git(versioned.repo, "rm", "-q", str(versioned.layout.backlog_open / "a.yaml"))
    git(versioned.repo, "commit", "-qm", "without a", env=later(1))
    git(versioned.repo, "checkout", "-q", "main")
    assert assert_kept(versioned) == []
    git(versioned.repo, "commit", "-q", "--allow-empty", "-m", "meanwhile")
    git(versioned.repo, "merge", "-q", "--no-ff", "-m", "merged", "side")
    with short_run(versioned) as session:
        assert session.intake.cancelled == ["a"] and session.intake.problems == []


def test_a_deletion_from_before_the_task_was_taken_in_is_none_of_its_own(app: App) -> None:
    for name in "az":
        write(app, name, f"goal: do {name}\n")
    git(app.repo, "checkout", "-qb", "main")
    commit(app, "both")
    git(app.repo, "rm", "-q", str(app.layout.backlog_open / "a.yaml"))
    git(app.repo, "commit", "-qm", "without a")
    git(app.repo, "checkout", "-qb", "feat")
    git(app.repo, "revert", "-n", "HEAD")
    git(app.repo, "commit", "-qm", "with a after all")
    with short_run(app) as session:
        assert sorted(session.intake.added) == ["a", "z"]
    git(app.repo, "checkout", "-q", "main")
    [told] = assert_kept(app, "a")
    assert "a checkout took this file away" in told
    git(app.repo, "checkout", "-q", "feat")
    assert assert_kept(app) == []


@pytest.mark.parametrize("how", ["renamed", "removed"])
def test_a_folder_that_is_gone_cancels_nothing_and_is_put_back(app: App, how: str) -> None:
    for name in "ab":
        write(app, name, f"goal: do {name}\n")
    with short_run(app):
        pass
    folder, aside = app.layout.backlog_open, app.layout.backlog / "aside"
    folder.rename(aside)
    if how == "removed":
        shutil.rmtree(aside)
    with short_run(app) as session:
        assert session.intake.put_back == ["a", "b"] and session.intake.cancelled == []
    assert assert_kept(app) == [] and set(states(app).values()) == {"OPEN"}
    assert sorted(path.name for path in folder.iterdir()) == ["a.yaml", "b.yaml"]
    for path in folder.iterdir():
        path.unlink()
    with short_run(app) as session:
        assert session.intake.cancelled == ["a", "b"], "an empty folder says that its files were deleted"


def test_a_folder_that_is_gone_with_nothing_in_it_comes_back(app: App) -> None:
    write(app, "a")
    with short_run(app):
        pass
    app.layout.backlog_issues.rmdir()
    assert assert_kept(app) == [] and app.layout.backlog_issues.is_dir()
    (app.layout.backlog_open / "a.yaml").unlink()
    with short_run(app) as session:
        assert session.intake.cancelled == ["a"]


def test_a_broken_file_is_reported_and_its_task_left_alone(app: App) -> None:
    write(app, "a")
    write(app, "b")
    with short_run(app):
        pass
    broken = write(app, "a", "goal: [unclosed\n")
    with short_run(app) as session:
        assert [problem.file for problem in session.intake.problems] == ["open/a.yaml"]
        assert session.intake.cancelled == []
    assert states(app) == {"a": "OPEN", "b": "OPEN"} and broken.read_text() == "goal: [unclosed\n"


def test_nothing_is_cancelled_while_a_file_or_folder_cannot_be_used(app: App, tmp_path: Path) -> None:
    for name in "ab":
        write(app, name)
    named = write(app, "file", "id: other\ngoal: g\n")
    with short_run(app):
        pass
    named.write_text("")
    with short_run(app) as session:
        assert session.intake.cancelled == [] and session.intake.problems
    named.write_text("id: other\ngoal: g\n")
    shutil.move(app.layout.backlog / "open", tmp_path / "elsewhere")
    (app.layout.backlog / "open").symlink_to(tmp_path / "elsewhere")
    with short_run(app) as session:
        assert session.intake.cancelled == [] and session.intake.problems
    assert set(states(app).values()) == {"OPEN"}


def test_the_file_that_keeps_a_task_from_being_cancelled_is_named_and_no_other_does(app: App, tmp_path: Path) -> None:
    a, b = write(app, "a"), write(app, "b")
    with short_run(app):
        pass
    empty = write(app, "foo", "", folder="closed")
    a.unlink()
    told = (
        "open/a.yaml:1:1: there is no such file, and a is not cancelled while closed/foo.yaml cannot be used: it might"
    )
    with short_run(app) as session:
        assert session.intake.cancelled == []
        assert any(str(problem).startswith(told) for problem in session.intake.problems)
    assert any(str(problem).startswith(told) for problem in read_overview(app).problems)
    notes = check_backlog(app).notes
    assert any(note.startswith(told) for note in notes) and not any("which cancels it" in note for note in notes)

    # Each of these can be told to be another task's: by its name, or by the id that is written in it.
    empty.write_text("goal: [unclosed\n")
    write(app, "bar", "id: other\ngoal: [unclosed\n", folder="closed")
    (app.layout.backlog_open / "link.yaml").symlink_to(tmp_path)
    assert any("a was deleted, which cancels it" in note for note in check_backlog(app).notes)
    with short_run(app) as session:
        assert session.intake.cancelled == ["a"]

    b.unlink()
    write(app, "baz", "id: b\ngoal: [unclosed\n", folder="closed")
    with short_run(app) as session:
        assert session.intake.cancelled == []
    assert states(app) == {"a": "CANCELLED", "b": "OPEN"}


def test_a_task_whose_pinned_text_is_lost_is_left_as_it_is_and_stops_nobody(app: App) -> None:
    for name in "ab":
        write(app, name, f"goal: do {name}\n")
    with short_run(app):
        pass
    for path in [*app.layout.backlog.glob("*/*.yaml"), *app.layout.cas.glob("*/*")]:
        if path.is_file():
            path.unlink()
    with short_run(app) as session:
        assert session.intake.cancelled == []
    assert set(states(app).values()) == {"OPEN"}


def test_of_two_copies_the_closed_one_counts(app: App) -> None:
    write(app, "q", "goal: g\n")
    write(app, "q", "goal: g\nresult:\n  commit: abc\n", folder="closed")
    with short_run(app):
        pass
    assert states(app) == {"q": "CLOSED"} and places(app) == {"q": "closed"}


def test_a_clone_without_a_journal_keeps_what_is_closed_closed(app: App, tmp_path: Path) -> None:
    for name in "abcd":
        write(app, name)
    with short_run(app) as session:
        drive(session.ledger, "a", *CLOSE, commit="abc")
        drive(session.ledger, "b", *FAIL, message="it broke")
        drive(session.ledger, "c", TaskEvent.MANUAL_CANCEL)
    settings = app.layout.settings.read_text() + "# ours\n"
    app.layout.settings.write_text(settings)
    git(app.repo, "add", "-f", ".sdd/.gitignore")
    app.init()
    commit(app, "work")
    git(tmp_path, "clone", "-q", str(app.repo), "clone")
    top = {path.name for path in (tmp_path / "clone" / ".sdd").iterdir()}
    assert top == {".gitignore", "backlog", "config"}, "what people write, and nothing of the other machine's journal"
    clone = App(tmp_path / "clone", load(tmp_path / "clone", environ={}))
    for act in (clone.read, short_run(clone).__enter__):
        with pytest.raises(BacklogAlone, match="type `holdfast init`, which makes it and keeps every file as it is"):
            act()
    assert {path.name for path in clone.layout.root.iterdir()} == top
    before = {path: path.read_bytes() for path in clone.layout.backlog.glob("*/*")}
    assert clone.init() == [] and {path: path.read_bytes() for path in before} == before
    assert clone.layout.settings.read_text() == settings
    with short_run(clone) as session:
        assert sorted(session.intake.added) == ["a", "b", "c", "d"]
        assert session.ledger.state.tasks["a"].outcome["commit"] == "abc"
    assert states(clone) == {"a": "CLOSED", "b": "FAILED", "c": "CANCELLED", "d": "OPEN"}
    assert places(clone) == places(app)


def test_a_switch_of_branches_leaves_the_data_root_sound(app: App) -> None:
    git(app.repo, "checkout", "-qb", "main")
    git(app.repo, "commit", "-q", "--allow-empty", "-m", "before all")
    git(app.repo, "branch", "before")
    write(app, "a")
    write(app, "b")
    commit(app, "tasks")
    git(app.repo, "checkout", "-qb", "f")
    with short_run(app) as session:
        drive(session.ledger, "a", TaskEvent.MANUAL_CANCEL)
    commit(app, "without a")
    git(app.repo, "checkout", "-q", "main")
    assert places(app) == {"a": "open", "b": "open"}
    report = check(app.layout, Backlog(app.layout.backlog), None)
    assert report.sound, report
    [note] = check_backlog(app).notes
    assert "a is cancelled, which belongs in closed: git has it so in this checkout" in note

    # From before there was a data root: what is decided stays, and what is open waits.
    git(app.repo, "checkout", "-q", "before")
    assert not app.layout.backlog_open.exists() and not app.layout.settings.exists()
    assert app.layout.format_file.exists() and states(app) == {"a": "CANCELLED", "b": "OPEN"}
    report = check(app.layout, Backlog(app.layout.backlog), None)
    assert report.sound, report
    with short_run(app) as session:
        assert session.intake.cancelled == []
        assert [problem.tasks for problem in session.intake.problems] == [("b",)]
    git(app.repo, "checkout", "-q", "f")
    assert places(app) == {"a": "closed", "b": "open"}
    git(app.repo, "checkout", "-q", "main")
    with short_run(app):
        pass
    assert states(app) == {"a": "CANCELLED", "b": "OPEN"} and places(app) == {"a": "closed", "b": "open"}
    assert check(app.layout, Backlog(app.layout.backlog), None).sound


def test_a_file_out_of_place_that_git_does_not_explain_is_pending(app: App) -> None:
    write(app, "a")
    with short_run(app) as session:
        drive(session.ledger, "a", *CLOSE)
    commit(app, "closed")
    (app.layout.backlog / "closed" / "a.yaml").rename(app.layout.backlog_open / "a.yaml")
    assert len(check_backlog(app).pending) == 1
    (app.layout.backlog_open / "a.yaml").unlink()
    assert len(check_backlog(app).pending) == 1


def test_init_replaces_only_its_own_old_gitignore(app: App) -> None:
    path = app.layout.root / ".gitignore"
    assert path.read_bytes() == GITIGNORE
    path.write_text("/runtime/\n/worktrees/\n/cache/\n.hf-*.tmp\n")
    assert app.init() == [path] and path.read_bytes() == GITIGNORE and app.init() == []
    path.write_text("/runtime/\n")
    assert app.init() == [] and path.read_text() == "/runtime/\n"


def test_a_copy_of_the_backlog_alone_works_like_a_clone(app: App, tmp_path: Path) -> None:
    write(app, "a")
    with short_run(app) as session:
        drive(session.ledger, "a", *CLOSE)
    other = make_app(tmp_path / "other")
    shutil.copytree(app.layout.backlog, other.layout.backlog, dirs_exist_ok=True)
    with short_run(other):
        pass
    assert states(other) == {"a": "CLOSED"}


@pytest.mark.heavy
@pytest.mark.parametrize("every", [14, pytest.param(1, marks=pytest.mark.crash)], ids=["some", "all"])
def test_takeovers_in_and_projecting_survive_a_power_cut_at_every_operation(every: int) -> None:
    with scratch() as base:
        repo = base / "repo"
        app = make_app(repo)
        write(app, "a", "goal: do a\n")
        write(app, "b", "goal: do b\n")

        def program(recorder: Recorder) -> None:
            with short_run(app) as session:
                recorder.mark("added")
                drive(session.ledger, "a", *CLOSE, commit="abc")
                recorder.mark("closed")

        disks = 0
        recorded = record(app.layout.root, program)
        for acknowledged, root in itertools.islice(each_disk(recorded, limit=4), 0, None, every):
            shutil.copytree(repo / ".git", root.parent / "again" / ".git", dirs_exist_ok=True)
            again = root.parent / "again" / ".sdd"
            shutil.rmtree(again, ignore_errors=True)
            shutil.copytree(root, again)
            second = make_app(again.parent)
            with short_run(second):
                pass
            found = states(second)
            assert set(found) == {"a", "b"} and found["b"] == "OPEN"
            assert found["a"] == "CLOSED" or "closed" not in acknowledged
            folder = {"OPEN": "open", "CLOSED": "closed", "CLAIMED": "claimed", "DONE": "claimed"}
            assert places(second) == {name: folder[state] for name, state in found.items()}
            texts = [path.read_text() for path in second.layout.backlog.glob("*/*.yaml")]
            assert sorted(text.splitlines()[0] for text in texts) == ["goal: do a", "goal: do b"]
            disks += 1
        assert disks > 150 // every
