from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType

import msgspec
import pytest
from hypothesis import settings

from holdfast import errors
from holdfast.domain.state import State
from holdfast.ledgers import files
from holdfast.ledgers.files import FileLedger
from holdfast.ledgers.reader import read_state
from holdfast.storage.files import disk
from holdfast.storage.journal import checkpoint
from holdfast.storage.journal.checkpoint import Files
from holdfast.storage.journal.data_root import create_root
from holdfast.storage.journal.entry import Record, Ref
from holdfast.storage.journal.reader import Chain
from holdfast.storage.journal.writer import SUFFIX
from holdfast.testing.recorder import Recorder
from kit.disks import Struck, each_disk, record, scratch
from kit.ledger_contract import Clock, LedgerContract, added, claimers


def reopen(folder: Path, clock: Clock) -> FileLedger:
    return FileLedger.open(create_root(folder / ".sdd"), clock=clock, steady=clock)


def crash(ledger: FileLedger) -> None:
    """As a killed process leaves it: nothing saved, the lock free because its holder is gone."""
    ledger._lock.release()


class TestFileLedger(LedgerContract):
    reopen = staticmethod(reopen)
    crash = staticmethod(crash)


TestClaimers = claimers(TestFileLedger).TestCase
TestClaimers.settings = settings(stateful_step_count=30)


def test_a_second_owner_is_refused_by_name(tmp_path: Path) -> None:
    root = create_root(tmp_path / ".sdd")
    script = "import sys, time; from pathlib import Path; from holdfast.storage.journal.data_root import open_root\n"
    script += "from holdfast.ledgers.files import FileLedger\n"
    script += "ledger = FileLedger.open(open_root(Path(sys.argv[1]))); print('open', flush=True); time.sleep(600)"
    other = subprocess.Popen([sys.executable, "-c", script, str(root.root)], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None and other.stdout.readline() == "open\n"
    try:
        with pytest.raises(errors.Locked, match=f"pid {other.pid} "):
            FileLedger.open(root)
        with FileLedger.open(root, take_over=True) as ledger:
            assert ledger.epoch == 2
        assert other.wait(120) == -9
    finally:
        other.kill()
        other.wait()


def test_a_lock_file_that_is_gone_ends_the_epoch(tmp_path: Path) -> None:
    ledger = reopen(tmp_path, Clock())
    ledger.layout.lock.unlink()
    with pytest.raises(errors.StaleEpoch, match="is over: somebody else owns the data root now"):
        ledger.append(ledger.epoch, [added("a")])
    crash(ledger)


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_journal_file_that_is_gone_is_noticed_at_the_next_append(tmp_path: Path, how: str) -> None:
    ledger = reopen(tmp_path, Clock())
    ledger.append(ledger.epoch, [added("a")])
    [path] = ledger.layout.wal.glob("*.wal.jsonl")
    content = path.read_bytes()
    path.unlink()
    if how == "replaced":
        path.write_bytes(b"somebody else's\n")
    with pytest.raises(errors.JournalRemoved, match="put back" if how == "removed" else "Another file"):
        ledger.append(ledger.epoch, [added("b")])
    with pytest.raises(errors.Poisoned):
        ledger.append(ledger.epoch, [added("b")])
    assert path.read_bytes() == (content if how == "removed" else b"somebody else's\n")
    ledger.close()
    if how == "removed":
        with reopen(tmp_path, Clock()) as after:
            assert list(after.state.tasks) == ["a"]


def test_a_start_reads_only_what_stands_behind_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CHECKPOINT_EVERY", 10)
    clock = Clock()
    ledger = reopen(tmp_path, clock)
    ledger.append(ledger.epoch, [added("t")])
    for number in range(24):
        ledger.append(ledger.epoch, [Record("task_flagged", {"task": "t", "not_before": number})])
    crash(ledger)
    state, found = read_state(ledger.layout)
    assert found.scanned == "" and found.entries_read < 10 and state.tasks == ledger.state.tasks
    again = reopen(tmp_path, clock)
    again.close()
    assert read_state(ledger.layout)[1].entries_read == 0


class FlatState(State):
    """The fold of version 15, in whose checkpoint a task's claim, attempt and landing were no records of their own."""

    version = 15

    def dump(self) -> Iterable[bytes]:
        yield next(iter(super().dump()))
        for task in self.tasks.values():
            facts = {"id": task.id, "state": task.state, "definition": "", "added_at": 0.0, "changed_at": 0.0}
            work = {"agent": "someone else", "attempt": task.attempt.id, "claims": 9, "landed": "", "usd": 0.0}
            yield msgspec.json.encode(facts | work)


def test_a_checkpoint_of_an_older_fold_costs_one_scan(tmp_path: Path) -> None:
    with reopen(tmp_path, Clock()) as ledger:
        ledger.append(ledger.epoch, [added("a"), added("b")])
        ledger.claim("worker", "a", lease_s=5.0)
    layout = ledger.layout
    places, chain = Files(layout.tasks, layout.uncommitted, layout.idempotency), Chain(layout.wal)
    older, found = checkpoint.recover(chain, places, FlatState)
    assert "another version" in found.scanned and older.tasks == ledger.state.tasks
    checkpoint.write(chain, places, found.end, older, found.pairing)
    assert b'"fold_version":15' in layout.tasks.read_bytes() and b'"claims":9' in layout.tasks.read_bytes()
    state, found = read_state(layout)
    assert "another version" in found.scanned and found.entries_read > 3 and state.tasks == ledger.state.tasks
    with reopen(tmp_path, Clock()) as again:
        assert again.state.tasks.keys() == {"a", "b"} and again.state.tasks["a"].claim.worked_by == "worker"
    assert read_state(layout)[1].scanned == "", "the next owner has written one of its own"


def test_the_state_is_the_fold_of_the_journal(tmp_path: Path) -> None:
    """Entry for entry, hashes and all: the index of open intents is written from memory."""
    with reopen(tmp_path, Clock()) as ledger:
        ledger.append(ledger.epoch, [added("a"), added("b")])
        intents = [Record("task_land_intent", {"task": name}, committed=False) for name in "ab"]
        ledger.append(ledger.epoch, intents)
        held = ledger.pairing.open_intents()
    ledger.layout.tasks.unlink()
    scanned, found = read_state(ledger.layout)
    assert found.scanned and found.pairing.open_intents() == held and scanned.tasks == ledger.state.tasks


def test_looking_writes_nothing(tmp_path: Path) -> None:
    with reopen(tmp_path, Clock()) as ledger:
        ledger.append(ledger.epoch, [added("a")])
    recorder = record(tmp_path, lambda _: read_state(ledger.layout))
    assert recorder.calls == []


def test_power_cut_at_every_operation() -> None:
    with scratch() as base:
        reopen(base, Clock()).close()

        def program(recorder: Recorder) -> None:
            clock = Clock()
            ledger = reopen(base, clock)
            ledger.append(ledger.epoch, [added("a"), added("b")])
            recorder.mark(("a", "OPEN"))
            ledger.claim("w", "a", lease_s=5.0)
            recorder.mark(("a", "CLAIMED"))
            ledger.close()

        for acknowledged, root in each_disk(record(base, program), limit=16):
            with reopen(root, Clock()) as again:
                found = {name: str(task.state) for name, task in again.state.tasks.items()}
                # Of the batch of two, an unacknowledged first part may have been kept.
                assert found in ({}, {"a": "OPEN"}, {"a": "OPEN", "b": "OPEN"}, {"a": "CLAIMED", "b": "OPEN"})
                if acknowledged:
                    assert found["a"] in (acknowledged[-1][1], "CLAIMED") and "b" in found


class Strike:
    """Raises at the call or return with this number, of all that the ledger, the journal and the fold make while it
    is on. Those are the moments at which Python lets a signal's handler run."""

    PARTS = ("/ledgers/files.py", "/journal/writer.py", "/journal/intents.py", "/domain/state.py")

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if frame.f_code.co_filename.endswith(self.PARTS):
            self.left -= 1
            if self.left == 0:
                sys.setprofile(None)
                raise Struck

    def __enter__(self) -> None:
        sys.setprofile(self)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


def _append_plainly(ledger: FileLedger) -> None:
    ledger.append(ledger.epoch, [added("a"), added("b")])


def _append_together(ledger: FileLedger) -> None:
    with ledger.together():
        ledger.append(ledger.epoch, [added("a")])
        ledger.append(ledger.epoch, [added("b"), added("c")])


@pytest.mark.heavy
@pytest.mark.parametrize("work", [_append_plainly, _append_together])
def test_an_interrupt_at_any_call_leaves_no_checkpoint_that_differs_from_the_journal(
    work: Callable[[FileLedger], None],
) -> None:
    at, kept = 0, set[int]()
    while True:
        at += 1
        strike, is_acknowledged = Strike(at), False
        with scratch() as folder:
            try:
                with reopen(folder, Clock()) as ledger:
                    ledger.append(ledger.epoch, [added("first")])
                    with strike:
                        work(ledger)
                    is_acknowledged = True
            except Struck:
                pass
            shown, _ = read_state(ledger.layout)
            ledger.layout.tasks.unlink(missing_ok=True)
            scanned, found = read_state(ledger.layout)
            assert found.scanned and shown.tasks == scanned.tasks, f"struck at call {at}"
            assert "first" in shown.tasks and ("b" in shown.tasks or not is_acknowledged)
            kept.add(len(shown.tasks))
            with reopen(folder, Clock()) as ledger:
                ledger.append(ledger.epoch, [added("last")])
            assert read_state(ledger.layout)[0].tasks.keys() == {*shown.tasks, "last"}
        if strike.left > 0:
            break
    assert is_acknowledged and len(kept) > 1, "it was struck before and behind the sync"


def test_threads_that_append_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    refs: list[tuple[str, Ref]] = []
    with reopen(tmp_path, Clock()) as ledger:

        def work(worker: int) -> None:
            for number in range(20):
                name = f"{worker}-{number}"
                [ref] = ledger.append(ledger.epoch, [added(name)])
                refs.append((name, ref))

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in threads)
    entries = {entry.entry_hash: entry for _, entry in Chain(ledger.layout.wal).entries()}
    assert len(refs) == 160 and all(entries[ref.entry_hash].inputs["task"] == name for name, ref in refs)


def test_records_appended_together_share_one_sync(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    with disk.use_kernel(recorder), reopen(tmp_path, Clock()) as ledger:
        before = len(recorder.calls)
        with ledger.together():
            for number in range(64):
                ledger.append(ledger.epoch, [added(f"t{number}")])
        calls = [call for call in recorder.calls[before:] if call.path.endswith(SUFFIX)]
    assert [call.kind for call in calls] == ["write", "sync"]


def test_a_ledger_that_was_interrupted_takes_nothing_more(tmp_path: Path) -> None:
    with reopen(tmp_path, Clock()) as ledger:

        def interrupt(seconds: float, count: int) -> None:
            raise Struck

        ledger.on_append = interrupt
        with pytest.raises(Struck):
            ledger.append(ledger.epoch, [added("a")])
        ledger.on_append = lambda seconds, count: None
        with pytest.raises(errors.JournalClosed):
            ledger.append(ledger.epoch, [added("b")])
    with reopen(tmp_path, Clock()) as ledger:
        assert set(ledger.state.tasks) == {"a"}


def test_a_checkpoint_that_cannot_be_written_fails_no_append_and_keeps_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CHECKPOINT_EVERY", 2)
    told: list[errors.DiskError] = []
    with reopen(tmp_path, Clock()) as ledger:
        ledger.on_unsaved = told.append
        ledger.layout.tasks.unlink(missing_ok=True)
        ledger.layout.tasks.mkdir()
        for name in "abcd":
            ledger.append(ledger.epoch, [added(name)])
    assert told, "it was tried"
    ledger.layout.tasks.rmdir()
    with reopen(tmp_path, Clock()) as ledger:
        assert set(ledger.state.tasks) == set("abcd")
    assert ledger.layout.tasks.is_file()
