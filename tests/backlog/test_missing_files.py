"""A file that is gone for a moment: nothing final is decided on one look alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.backlog.folder import Backlog
from holdfast.backlog.scanner import Scan
from holdfast.backlog.sync import take_in
from holdfast.domain.task import TaskEvent, TaskState
from holdfast.ledgers.files import FileLedger
from holdfast.storage.records.blobs import Blobs
from kit.states import append, moves, opened

S = TaskState
TEXT = b"goal: do it\n"
CLOSE = (TaskEvent.AGENT_CLAIMS_TASK, TaskEvent.FAST_COMPLETION, TaskEvent.JANITOR_VERIFIED_AND_MERGED)
FAIL = (TaskEvent.AGENT_CLAIMS_TASK, TaskEvent.IMMEDIATE_FAILURE)


class Saved(Backlog):
    """A backlog one of whose files is there again once so many looks did not find it, as when an editor saves it."""

    def __init__(self, folder: Path, path: Path, looks: int) -> None:
        super().__init__(folder)
        self.path, self.looks, self.missed = path, looks, 0

    def scan(self) -> Scan:
        found = super().scan()
        if "t" not in found.tasks:
            self.missed += 1
            if self.missed == self.looks:
                self.path.write_bytes(TEXT)
        return found


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[FileLedger]:
    with opened(tmp_path) as ledger:
        Backlog(ledger.layout.backlog).add(TEXT, "t")
        Backlog(ledger.layout.backlog).add(TEXT, "other")
        take_in(ledger, Backlog(ledger.layout.backlog), Blobs(ledger.layout.cas))
        yield ledger


def seen_gone(ledger: FileLedger, looks: int, folder: str = "open") -> tuple[Saved, list[str], list[str]]:
    """The cancelled tasks, and those whose file was put back, when the file of `t` was gone for so many looks."""
    path = ledger.layout.backlog / "open" / "t.yaml"
    path.unlink()
    backlog = Saved(ledger.layout.backlog, path.parent.parent / folder / path.name, looks)
    report = take_in(ledger, backlog, Blobs(ledger.layout.cas))
    return backlog, report.cancelled, report.put_back


@pytest.mark.parametrize("looks", [1, 2])
def test_a_task_whose_file_is_there_again_at_the_next_look_is_not_cancelled(ledger: FileLedger, looks: int) -> None:
    backlog, cancelled, put_back = seen_gone(ledger, looks)
    assert backlog.missed == looks, "it was seen as gone so often"
    assert (cancelled, put_back) == ([], [])
    assert ledger.state.tasks["t"].state is S.OPEN and backlog.path.read_bytes() == TEXT


def test_a_task_whose_file_stays_away_is_cancelled(ledger: FileLedger) -> None:
    backlog, cancelled, put_back = seen_gone(ledger, looks=99)
    assert backlog.missed >= 2 and (cancelled, put_back) == (["t"], [])
    assert ledger.state.tasks["t"].state is S.CANCELLED and ledger.state.tasks["other"].state is S.OPEN


@pytest.mark.parametrize(("events", "folder"), [(CLOSE, "closed"), (CLOSE[:1], "claimed"), (CLOSE[:2], "claimed")])
def test_the_file_of_a_task_that_deleting_does_not_cancel_is_put_back_only_if_it_stays_away(
    ledger: FileLedger, events: tuple[TaskEvent, ...], folder: str
) -> None:
    append(ledger, *moves("t", S.OPEN, *events, started=False))
    _, cancelled, put_back = seen_gone(ledger, 1, folder)
    assert (cancelled, put_back) == ([], [])
    (ledger.layout.backlog / folder / "t.yaml").rename(ledger.layout.backlog / "open" / "t.yaml")
    _, cancelled, put_back = seen_gone(ledger, 99, folder)
    assert (cancelled, put_back) == ([], ["t"])
    assert (ledger.layout.backlog / folder / "t.yaml").exists()


@pytest.mark.parametrize(("again", "wanted"), [(False, S.CANCELLED), (True, S.FAILED)])
def test_deleting_the_file_of_a_failed_task_cancels_it_unless_another_attempt_follows(
    ledger: FileLedger, again: bool, wanted: TaskState
) -> None:
    append(ledger, *moves("t", S.OPEN, *FAIL, started=False, again=again))
    seen_gone(ledger, 99, "failed")
    assert ledger.state.tasks["t"].state is wanted
