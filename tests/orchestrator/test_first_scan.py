"""The backlog is read once when a run begins: the watch is open before, and tells what changes from then on."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holdfast.app import App
from holdfast.backlog.folder import Backlog
from holdfast.backlog.scanner import Scan
from holdfast.domain.task import TaskState
from holdfast.orchestrator.loop import Loop
from holdfast.orchestrator.wakeup import LEAVE, SignalWatch
from holdfast.wiring import prepare, run_context
from kit.project import add, layout
from kit.roots import short_run


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[Scan]:
    """Every scan of the backlog's folders from here on."""
    found: list[Scan] = []
    scan = Backlog.scan

    def counted(backlog: Backlog) -> Scan:
        found.append(scan(backlog))
        return found[-1]

    monkeypatch.setattr(Backlog, "scan", counted)
    return found


def test_a_run_scans_the_backlog_once_when_it_begins(repo: Path, scans: list[Scan]) -> None:
    add(repo, "a", "write a.txt x")
    after_first_round: list[int] = []

    def show(loop: Loop) -> None:
        after_first_round.append(len(scans))
        loop.stop(LEAVE)

    with run_context(App.find(repo), lambda task, text: None) as context:
        assert len(scans) == 1 and "a" in scans[0].tasks
        Loop(context, show=show, stays=True, works=False).run()
    assert after_first_round[0] == 1


def test_a_file_written_behind_the_first_scan_is_taken_in(repo: Path, scans: list[Scan]) -> None:
    def show(loop: Loop) -> None:
        if "late" in loop.board.tasks:
            loop.stop(LEAVE)

    with run_context(App.find(repo), lambda task, text: None) as context:
        assert len(scans) == 1 and "late" not in scans[0].tasks
        add(repo, "late", "write late.txt x")
        Loop(context, show=show, stays=True, works=False).run()
        assert "late" in context.board.tasks
    assert len(scans) > 1


def test_a_file_that_the_watch_has_not_told_of_is_taken_in_before_the_run_ends(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Loop, "_notice", lambda loop, paths: None)
    with run_context(App.find(repo), lambda task, text: None) as context:
        add(repo, "late", "write late.txt x")
        Loop(context, works=False).run()
        assert "late" in context.board.tasks


def test_a_file_that_was_mended_unnoticed_is_worked_on_before_the_run_ends(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Loop, "_notice", lambda loop, paths: None)
    add(repo, "a", "write a.txt x")
    file = layout(repo).backlog_open / "a.yaml"
    with short_run(App.find(repo)):
        text = file.read_bytes()
    file.write_bytes(b"id: a\ntitle: [\n")
    with run_context(App.find(repo), lambda task, text: None) as context:
        assert context.board.stopped == {"a"}
        file.write_bytes(text)
        Loop(context).run()
        assert context.board.tasks["a"].state is TaskState.CLOSED


def test_a_server_that_prepares_later_watches_from_the_beginning(repo: Path, scans: list[Scan]) -> None:
    with run_context(App.find(repo), lambda task, text: None, later=True) as context:
        assert scans == [] and context.watch is not None
        prepare(context)
        assert len(scans) == 1


def test_a_watch_keeps_what_changes_before_somebody_listens(tmp_path: Path) -> None:
    told, kept = threading.Event(), []

    def changed(paths: set[Path]) -> None:
        kept.extend(paths)
        told.set()

    with SignalWatch([tmp_path]) as watch:
        watch.await_open()
        (tmp_path / "early").write_text("x")
        watch.listen(changed)
        assert told.wait(60)
    assert tmp_path / "early" in kept
