"""Pages of the journal: whatever the direction, the page's size and the place, none is missing and none comes twice."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from holdfast.storage.journal import pages
from holdfast.storage.journal.archive import archive_ended_runs
from holdfast.storage.journal.entry import Record
from holdfast.storage.journal.pages import Cursor, Page, WantedPage
from holdfast.storage.journal.reader import Chain
from holdfast.storage.journal.writer import Journal, epoch_of, run_id

RUNS, ENTRIES = 4, 60


@pytest.fixture(scope="module")
def wal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two archived runs and two plain ones; behind the last entry a line that is still being written."""
    folder = tmp_path_factory.mktemp("paging") / "wal"
    folder.mkdir()
    for epoch in range(1, RUNS + 1):
        previous = None
        if epoch > 1:
            chain = Chain(folder)
            list(chain.entries())
            assert chain.end is not None
            previous = chain.end.ref
        with Journal.start(folder, run_id(epoch, time.time()), previous) as journal:
            # Lines of very different lengths: a place in the file says little about the sequence there.
            records = [
                Record("turn_completed", {"task": f"t{n % 7}", "text": "x" * (n * n * 13 % 9000)})
                for n in range(ENTRIES)
            ]
            journal.append_many(records)
        if epoch == RUNS // 2 + 1:
            assert len(archive_ended_runs(folder)) == RUNS // 2
    newest = Chain(folder).runs()[-1].path
    with open(newest, "ab") as file:
        file.write(b'{"seq":999,"prev_')
    return folder


def places(wal: Path) -> list[tuple[str, int]]:
    return [(run, entry.seq) for run, entry in Chain(wal).entries()]


def end_of(wal: Path) -> Cursor:
    run, seq = places(wal)[-1]
    return epoch_of(run), seq


def parsed(cursor: str) -> Cursor:
    run, _, seq = cursor.rpartition(":")
    return epoch_of(run), int(seq)


def walk(wal: Path, go: str, limit: int, wanted: WantedPage) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    cursor = None
    while True:
        page: Page = getattr(pages, go)(Chain(wal), cursor, wanted, limit, end_of(wal))
        assert len(page.items) <= limit
        found += [(run, entry.seq) for run, entry in page.items]
        if not page.next:
            return found
        cursor = parsed(page.next)


@pytest.mark.heavy
@pytest.mark.parametrize("limit", [1, 7, 100, 10_000])
@pytest.mark.parametrize("task", ["", "t3"])
def test_every_entry_comes_once_in_either_direction(wal: Path, limit: int, task: str) -> None:
    wanted = [(run, entry.seq) for run, entry in Chain(wal).entries() if not task or entry.inputs.get("task") == task]
    assert len(wanted) > RUNS
    assert walk(wal, "forward", limit, WantedPage(task)) == wanted
    assert walk(wal, "backward", limit, WantedPage(task)) == wanted[::-1]


@pytest.mark.heavy
def test_a_page_begins_behind_any_cursor(wal: Path) -> None:
    everything = places(wal)
    for place, (run, seq) in enumerate(everything):
        cursor = (epoch_of(run), seq)
        after = pages.forward(Chain(wal), cursor, WantedPage(), 1, end_of(wal)).items
        before = pages.backward(Chain(wal), cursor, WantedPage(), 1, end_of(wal)).items
        assert [(run, entry.seq) for run, entry in after] == everything[place + 1 : place + 2]
        assert [(run, entry.seq) for run, entry in before] == everything[max(0, place - 1) : place]


def test_entries_not_known_to_be_durable_are_not_shown(wal: Path) -> None:
    run, seq = places(wal)[-5]
    end = epoch_of(run), seq
    for go in (pages.forward, pages.backward):
        found = [(run, entry.seq) for run, entry in go(Chain(wal), None, WantedPage(), 10_000, end).items]
        assert (run, seq) in found and len(found) == len(places(wal)) - 4


def test_a_page_that_looked_far_enough_says_where_to_go_on(wal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "SCAN_BYTES_MAX", 20_000)
    for go in ("forward", "backward"):
        page = getattr(pages, go)(Chain(wal), None, WantedPage("nobody"), 10, end_of(wal))
        assert page.items == [] and page.next
        assert walk(wal, go, 10, WantedPage("nobody")) == []
        assert len(walk(wal, go, 10, WantedPage("t1"))) == sum(
            entry.inputs.get("task") == "t1" for _, entry in Chain(wal).entries()
        )


def test_a_long_archived_run_is_gone_through_in_parts(wal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_ARCHIVED_LINES_MAX", 7)
    assert walk(wal, "backward", 5, WantedPage()) == places(wal)[::-1]
