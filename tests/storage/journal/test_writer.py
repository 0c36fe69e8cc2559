from __future__ import annotations

import asyncio
import errno
import functools
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies

from holdfast import errors
from holdfast.storage.files import disk
from holdfast.storage.journal import checkpoint
from holdfast.storage.journal.awaiting import AwaitingJournal
from holdfast.storage.journal.checkpoint import Files
from holdfast.storage.journal.entry import GENESIS, Head, Record, Ref, encode, encode_middle, put_together
from holdfast.storage.journal.reader import Chain
from holdfast.storage.journal.writer import Journal, run_id
from holdfast.testing.recorder import Recorder
from kit.disks import each_disk, each_fault, record, scratch
from kit.journal_writer import Counts


def read(wal: Path) -> list[tuple[str, int, str]]:
    return [(run, entry.seq, entry.decision_type) for run, entry in Chain(wal).entries()]


def end_of(wal: Path) -> Ref | None:
    chain = Chain(wal)
    for _ in chain.entries():
        pass
    return chain.end.ref if chain.end else None


def test_a_line_is_exactly_the_documented_format(tmp_path: Path) -> None:
    with Journal.start(tmp_path, "000001-a", None, clock=lambda: 1731699600.25) as journal:
        journal.append("task_spawn_intent", {"task": "t"}, {"n": 1}, actor="loop", committed=False)
    lines = (tmp_path / "000001-a.wal.jsonl").read_bytes().splitlines()
    entry = json.loads(lines[1])
    assert list(entry) == [
        "seq", "prev_hash", "timestamp", "decision_type", "inputs",
        "output", "actor", "committed", "synced", "entry_hash",
    ]  # fmt: skip
    assert entry["timestamp"] == 1731699600.25 and entry["committed"] is False and entry["synced"] == 0
    assert entry["entry_hash"] == sha256(lines[1].split(b',"entry_hash"')[0]).hexdigest()
    first = json.loads(lines[0])
    assert first["prev_hash"] == "0" * 64 and first["synced"] == -1 and first["decision_type"] == "run_started"
    assert entry["prev_hash"] == first["entry_hash"]
    assert first["inputs"]["previous"] is None and first["inputs"]["epoch"] == 1


@pytest.mark.fuzz
@given(
    inputs=strategies.dictionaries(
        strategies.text(),
        strategies.none() | strategies.text() | strategies.floats(allow_nan=False, allow_infinity=False),
    ),
    seq=strategies.integers(min_value=0, max_value=1 << 60),
    timestamp=strategies.floats(min_value=0, max_value=1e12),
)
def test_a_lone_writer_and_a_batch_write_the_same_bytes(inputs: dict[str, Any], seq: int, timestamp: float) -> None:
    record = Record("task_ädded", inputs, {"n": [1]}, "loop", committed=False)
    alone = encode(
        Head(
            seq,
            GENESIS,
            timestamp,
            record.decision_type,
            inputs,
            output={"n": [1]},
            actor="loop",
            committed=False,
            synced=seq - 1,
        )
    )
    assert alone[:-1] == put_together(seq, GENESIS, encode(timestamp), encode_middle(record), seq - 1)


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("inputs", [lambda n: {"a": n}, lambda n: {"a": [None, {"b": (1, n)}]}])
def test_a_number_that_would_be_written_as_none_is_refused(
    tmp_path: Path, number: float, inputs: Callable[[float], dict[str, Any]]
) -> None:
    with Journal.start(tmp_path, "000001-a", None) as journal:
        with pytest.raises(errors.InputError, match="not finite"):
            journal.append("work", inputs(number))
        journal.append("work", inputs(1e308))
    assert len(read(tmp_path)) == 2


def test_runs_are_tied_into_one_chain(tmp_path: Path) -> None:
    previous = None
    for epoch in (1, 2, 3):
        with Journal.start(tmp_path, run_id(epoch, 0.0), previous) as journal:
            previous = journal.append("task_added", {"task": str(epoch)})
    assert read(tmp_path) == [
        (run_id(epoch, 0.0), seq, kind) for epoch in (1, 2, 3) for seq, kind in enumerate(["run_started", "task_added"])
    ]
    chain = Chain(tmp_path)
    starts = [entry.inputs["previous"] for _, entry in chain.entries() if entry.seq == 0]
    assert starts[0] is None and starts[2] == {"run": run_id(2, 0.0), "seq": 1, "entry_hash": starts[2]["entry_hash"]}
    assert chain.count == 6 and chain.torn == []


def test_epochs_beyond_six_digits_still_sort(tmp_path: Path) -> None:
    with Journal.start(tmp_path, run_id(999_999, 0.0), None) as first:
        previous = first.position().ref
    Journal.start(tmp_path, run_id(1_000_000, 0.0), previous).close()
    assert [run for run, _, _ in read(tmp_path)] == [run_id(999_999, 0.0), run_id(1_000_000, 0.0)]


@pytest.mark.parametrize("run", ["../x", "a/b", "1-a", "000001", "", "000001-a\n", "000001-../../x"])
def test_a_run_id_cannot_climb_out(tmp_path: Path, run: str) -> None:
    with pytest.raises(errors.InvalidName):
        Journal.start(tmp_path, run, None)
    assert list(tmp_path.iterdir()) == []


def test_a_run_must_have_a_newer_epoch_than_the_one_before(tmp_path: Path) -> None:
    with Journal.start(tmp_path, "000007-a", None) as journal:
        previous = journal.position().ref
    with pytest.raises(errors.InvalidName, match="epoch must be greater"):
        Journal.start(tmp_path, "000007-b", previous)


def test_position_points_at_the_last_durable_entry(tmp_path: Path) -> None:
    with Journal.start(tmp_path, "000001-a", None) as journal:
        ref = journal.append_many([Record("task_added", {"n": n}) for n in range(5)])[-1]
        position = journal.position()
    content = (tmp_path / "000001-a.wal.jsonl").read_bytes()
    assert position.ref == ref and position.end == len(content)
    assert json.loads(content[position.start : position.end])["entry_hash"] == ref.entry_hash


def test_what_json_cannot_hold_is_refused_and_nothing_written(tmp_path: Path) -> None:
    with Journal.start(tmp_path, "000001-a", None) as journal:
        before = journal.position()
        recursive: dict[str, Any] = {}
        recursive["self"] = recursive
        for bad in ({"x": object()}, {"x": "\ud800"}, {("a", "b"): 1}, recursive):
            with pytest.raises(errors.InputError, match="task_added"):
                journal.append_many([Record("task_added"), Record("task_added", bad)])
        assert journal.position() == before
        assert journal.append("task_added").seq == 1


class SlowDisk(Recorder):
    """Syncs take a moment, as on a real disk, so that others arrive meanwhile."""

    def fdatasync(self, fd: int) -> None:
        time.sleep(0.001)
        super().fdatasync(fd)


def test_an_append_after_closing_is_refused(tmp_path: Path) -> None:
    journal = Journal.start(tmp_path, "000001-a", None)
    journal.close()
    with pytest.raises(errors.JournalClosed, match="000001-a is closed"):
        journal.append("task_added")
    journal.close()


def test_threads_share_syncs_and_lose_nothing(tmp_path: Path) -> None:
    refs: list[tuple[int, int, Ref]] = []
    start = threading.Barrier(16)

    def program(recorder: Recorder) -> None:
        journal = Journal.start(tmp_path, "000001-a", None)

        def work(worker: int) -> None:
            start.wait()
            for number in range(30):
                refs.append((worker, number, journal.append("work", {"worker": worker, "number": number})))

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        journal.close()

    recorder = SlowDisk(tmp_path)
    with disk.use_kernel(recorder):
        program(recorder)
    entries = {entry.seq: entry for _, entry in Chain(tmp_path).entries()}
    assert len(refs) == 480 and len(entries) == 481
    for worker, number, ref in refs:
        assert entries[ref.seq].inputs == {"worker": worker, "number": number}
        assert entries[ref.seq].entry_hash == ref.entry_hash
    for worker in range(16):
        own = [ref.seq for who, _, ref in refs if who == worker]
        assert own == sorted(own)
    kinds = [call.kind for call in recorder.calls if call.path.endswith(".jsonl") and call.kind in ("write", "sync")]
    assert kinds.count("sync") < 300, "threads did not share syncs"
    assert all(a != b for a, b in zip(kinds[::2], kinds[1::2], strict=True)), "a batch came before the sync of the last"


def test_no_thread_is_left_waiting() -> None:
    """In memory a sync takes no time, so that leaders and followers meet at every possible moment."""
    with scratch() as wal:
        journal = Journal.start(wal, "000001-a", None)

        def work(worker: int) -> None:
            for number in range(400):
                refs = journal.append_many([Record("work")] * (number % 3))
                assert len(refs) == number % 3
                journal.append("work", {"worker": worker})

        threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in threads)
        journal.close()
        assert len(read(wal)) == 1 + 12 * (400 + sum(number % 3 for number in range(400)))


class Hit(Exception):
    """What a signal handler raises, wherever the main thread happens to be."""


@pytest.fixture
def hits() -> Iterator[None]:
    def raise_hit(*_: object) -> None:
        raise Hit

    previous = signal.signal(signal.SIGALRM, raise_hit)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, previous)


@pytest.mark.parametrize("others", [0, 2])
def test_a_signal_handler_that_raises_stops_nobody_else(hits: None, others: int) -> None:
    """Struck at any moment of an append, the journal answers the others: it acknowledges or refuses."""
    chance = random.Random(others)
    for _ in range(40):
        with scratch() as wal:
            journal = Journal.start(wal, "000001-a", None)
            stop, answers = threading.Event(), list[object]()

            def work() -> None:
                try:
                    while not stop.is_set():
                        journal.append("work")
                except errors.HoldfastError as error:
                    answers.append(error)

            def ask() -> None:
                try:
                    answers.append(journal.append("asked"))
                except errors.HoldfastError as error:
                    answers.append(error)

            threads = [threading.Thread(target=work, daemon=True) for _ in range(others)]
            for thread in threads:
                thread.start()
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0001, 0.0008))
                while True:
                    journal.append("main")
            except (Hit, errors.Poisoned):
                signal.setitimer(signal.ITIMER_REAL, 0)
            asking = threading.Thread(target=ask, daemon=True)
            asking.start()
            asking.join(120)
            stop.set()
            for thread in threads:
                thread.join(120)
            assert not any(thread.is_alive() for thread in [asking, *threads]), "somebody waits for ever"
            assert answers and not any(isinstance(answer, Hit) for answer in answers)
            journal.close()
            list(Chain(wal).entries())


def test_a_signal_handler_may_not_append_to_the_journal_that_it_interrupted(tmp_path: Path) -> None:
    answers: list[object] = []

    class Signalling(Recorder):
        def fdatasync(self, fd: int) -> None:
            if armed:
                armed.clear()
                os.kill(os.getpid(), signal.SIGUSR1)
            super().fdatasync(fd)

    def append_too(*_: object) -> None:
        try:
            journal.append("from the handler")
        except errors.InputError as error:
            answers.append(error)

    armed = [True]
    previous = signal.signal(signal.SIGUSR1, append_too)
    try:
        armed.clear()
        with disk.use_kernel(Signalling(tmp_path)):
            journal = Journal.start(tmp_path, "000001-a", None)
            armed.append(True)
            journal.append("work")
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert "a signal handler may not append" in str(answers[0])
    assert [kind for _, _, kind in read(tmp_path)] == ["run_started", "work"]


def test_a_forked_child_cannot_write_into_its_parents_journal(tmp_path: Path) -> None:
    journal = Journal.start(tmp_path, "000001-a", None)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            journal.append("from the child")
        except errors.JournalClosed:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    journal.append("from the parent")
    journal.close()
    assert [kind for _, _, kind in read(tmp_path)] == ["run_started", "from the parent"]


def test_bad_facts_leave_no_run_file(tmp_path: Path) -> None:
    with pytest.raises(errors.InputError):
        Journal.start(tmp_path, "000001-a", None, facts={"x": object()})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "record",
    [
        Record("x", [1]),  # type: ignore[arg-type]
        Record(None),  # type: ignore[arg-type]
        Record("x", actor=None),  # type: ignore[arg-type]
        Record("x", committed=1),  # type: ignore[arg-type]
        Record("x", {}, "output"),  # type: ignore[arg-type]
        Record("x", {"deep": functools.reduce(lambda inner, _: [inner], range(300), [])}),
    ],
)
def test_what_the_reader_would_not_take_is_refused(tmp_path: Path, record: Record) -> None:
    with Journal.start(tmp_path, "000001-a", None) as journal:
        for act in (
            lambda: journal.append_many([record]),
            lambda: journal.append(
                record.decision_type, record.inputs, record.output, actor=record.actor, committed=record.committed
            ),
        ):
            with pytest.raises(errors.InputError):
                act()
        journal.append("good", {"deep": functools.reduce(lambda inner, _: [inner], range(150), [])})
    assert [kind for _, _, kind in read(tmp_path)] == ["run_started", "good"]


def test_closing_waits_for_the_batch_under_way(tmp_path: Path) -> None:
    kernel, done = SlowDisk(tmp_path), list[object]()
    with disk.use_kernel(kernel):
        journal = Journal.start(tmp_path, "000001-a", None)

        def work() -> None:
            try:
                while True:
                    done.append(journal.append("work"))
            except errors.JournalClosed as closed:
                done.append(closed)

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        while not done:
            time.sleep(0.001)
        journal.close()
        for thread in threads:
            thread.join(120)
    assert sum(isinstance(item, errors.JournalClosed) for item in done) == 6
    acknowledged = {item.entry_hash for item in done if isinstance(item, Ref)}
    assert acknowledged and acknowledged <= {entry.entry_hash for _, entry in Chain(tmp_path).entries()}


def test_awaiting_writers_share_syncs(tmp_path: Path) -> None:
    async def work() -> list[Ref]:
        awaiting = AwaitingJournal(journal)

        async def one(worker: int) -> list[Ref]:
            return [await awaiting.append("work", {"worker": worker, "number": n}) for n in range(20)]

        refs = [ref for some in await asyncio.gather(*map(one, range(32))) for ref in some]
        cancelled = asyncio.ensure_future(awaiting.append("work", {"cancelled": True}))
        last = awaiting.append("work", {"last": True})
        cancelled.cancel()
        await awaiting.close()
        assert last.done()
        with pytest.raises(errors.JournalClosed):
            awaiting.append("work")
        return [*refs, last.result()]

    def program(recorder: Recorder) -> None:
        nonlocal journal
        journal = Journal.start(tmp_path, "000001-a", None)
        refs.extend(asyncio.run(work()))

    journal: Journal
    refs: list[Ref] = []
    recorder = record(tmp_path, program)
    hashes = {entry.seq: entry.entry_hash for _, entry in Chain(tmp_path).entries()}
    assert len(refs) == 641 and len(hashes) == 643, "the cancelled append is still written"
    assert all(hashes[ref.seq] == ref.entry_hash for ref in refs)
    assert sum(call.kind == "sync" for call in recorder.calls) < 60


def test_cancelled_waiters_have_still_appended(tmp_path: Path) -> None:
    async def work() -> None:
        awaiting = AwaitingJournal(journal)
        for number in range(3):
            awaiting.append("work", {"number": number}).cancel()
        await awaiting.close()

    with Journal.start(tmp_path, "000001-a", None) as journal:
        asyncio.run(work())
    assert [kind for _, _, kind in read(tmp_path)] == ["run_started", "work", "work", "work"]


def test_an_error_of_any_kind_reaches_those_who_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        awaiting = AwaitingJournal(journal)
        for _ in range(2):
            with pytest.raises(MemoryError):
                await asyncio.wait_for(awaiting.append("work"), 10)
        await awaiting.close()

    def fail(middles: list[bytes]) -> list[Ref]:
        raise MemoryError

    with Journal.start(tmp_path, "000001-a", None) as journal:
        monkeypatch.setattr(journal, "append_encoded", fail)
        asyncio.run(work())
        monkeypatch.undo()


def test_awaiting_writers_hear_of_a_failed_sync(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)

    async def work() -> None:
        awaiting = AwaitingJournal(journal)
        recorder.fail_at(len(recorder.calls) + 1, errno.EIO)
        results = await asyncio.gather(*(awaiting.append("work") for _ in range(4)), return_exceptions=True)
        assert all(isinstance(result, errors.SyncFailed) for result in results)
        with pytest.raises(errors.Poisoned):
            await awaiting.append("work")
        await awaiting.close()

    with disk.use_kernel(recorder):
        journal = Journal.start(tmp_path, "000001-a", None)
        asyncio.run(work())
    assert [call.kind for call in recorder.fired] == ["sync"]


def test_a_failed_write_or_sync_poisons_every_thread(tmp_path: Path) -> None:
    for fault in ("write", "sync"):
        wal = tmp_path / fault
        wal.mkdir()
        recorder = Recorder(wal)
        outcomes: list[object] = []
        with disk.use_kernel(recorder):
            journal = Journal.start(wal, "000001-a", None)
            recorder.fail_at(len(recorder.calls) + (fault == "sync"), errno.EIO)
            barrier = threading.Barrier(8)

            def work() -> None:
                barrier.wait()
                for _ in range(3):
                    try:
                        outcomes.append(journal.append("work"))
                    except errors.DiskError as error:
                        outcomes.append(error)

            threads = [threading.Thread(target=work) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert [call.kind for call in recorder.fired] == [fault]
        assert len(outcomes) == 24 and not any(isinstance(outcome, Ref) for outcome in outcomes)
        assert "Input/output error" in str(outcomes[-1]) and isinstance(outcomes[-1], errors.Poisoned)


def test_nothing_is_acknowledged_after_a_fault_and_the_next_run_goes_on() -> None:
    def program(recorder: Recorder) -> None:
        journal = Journal.start(recorder.root, "000001-a", None)
        recorder.mark(journal.position().ref)
        for number in range(3):
            for ref in journal.append_many([Record("task_added", {"n": number, "pad": "x" * 90})] * 2):
                recorder.mark(ref)
        journal.close()

    tried = 0
    for recorder, raised in each_fault(program, errno.EIO, errno.ENOSPC):
        assert isinstance(raised, errors.DiskError)
        acknowledged = recorder.marked_before(len(recorder.calls))
        entries = {entry.seq: entry.entry_hash for _, entry in Chain(recorder.root).entries()}
        assert all(entries[ref.seq] == ref.entry_hash for ref in acknowledged)
        Journal.start(recorder.root, "000002-b", end_of(recorder.root)).close()
        assert read(recorder.root)[-1] == ("000002-b", 0, "run_started")
        tried += 1
    assert tried >= 16


def test_an_interrupted_commit_poisons_the_journal(tmp_path: Path) -> None:
    class Interrupt(BaseException):
        pass

    class Interrupting(Recorder):
        armed = False

        def fdatasync(self, fd: int) -> None:
            if self.armed:
                raise Interrupt
            super().fdatasync(fd)

    kernel = Interrupting(tmp_path)
    with disk.use_kernel(kernel):
        journal = Journal.start(tmp_path, "000001-a", None)
        kernel.armed = True
        with pytest.raises(Interrupt):
            journal.append("work")
        kernel.armed = False
        with pytest.raises(errors.Poisoned, match="a write was interrupted"):
            journal.append("work")
    assert len(read(tmp_path)) == 2, "the written line is read, though it was never acknowledged"


def test_a_signal_while_waiting_does_not_stop_the_others(tmp_path: Path) -> None:
    """The main thread waits behind a slow leader; a handler raises there; the lead must not be lost with it."""
    slow, go = threading.Event(), threading.Event()

    class Slow(Recorder):
        def fdatasync(self, fd: int) -> None:
            if slow.is_set():
                go.wait(120)
            super().fdatasync(fd)

    class Alarm(Exception):
        pass

    def raise_alarm(*_: object) -> None:
        raise Alarm

    done: list[Ref] = []
    previous = signal.signal(signal.SIGALRM, raise_alarm)
    try:
        with disk.use_kernel(Slow(tmp_path)):
            journal = Journal.start(tmp_path, "000001-a", None)
            slow.set()
            threads = [threading.Thread(target=lambda: done.append(journal.append("work"))) for _ in range(3)]
            threads[0].start()
            while journal._free:
                pass
            with pytest.raises(Alarm):
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                journal.append("left")
            for thread in threads[1:]:
                thread.start()
            slow.clear()
            go.set()
            for thread in threads:
                thread.join(120)
            assert not any(thread.is_alive() for thread in threads)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert len(done) == 3
    assert [kind for _, _, kind in read(tmp_path)] == ["run_started", "work", "work", "work"]


# -- tier 1: every disk operation -------------------------------------------------------------------------------------


def follow_up(wal: Path, epoch: int) -> Ref:
    """Starts again as the product does: recovers what is there, and begins a run behind it."""
    _, found = checkpoint.recover(Chain(wal), Files(wal / "tasks", wal / "index", wal / "keys"), Counts)
    journal = Journal.start(wal, run_id(epoch, 0.0), found.end.ref if found.end else None)
    ref = journal.append("task_added", {"epoch": epoch})
    journal.close()
    return ref


def assert_holds(wal: Path, acknowledged: list[Ref]) -> None:
    entries = {(run, entry.seq): entry.entry_hash for run, entry in Chain(wal).entries()}
    for ref in acknowledged:
        assert entries.get((ref.run, ref.seq)) == ref.entry_hash


def test_power_cut_at_every_operation(tmp_path: Path) -> None:
    def program(recorder: Recorder) -> None:
        journal = Journal.start(tmp_path, "000001-a", None)
        recorder.mark(journal.position().ref)
        recorder.mark(journal.append("task_added", {"pad": "x" * 50}))
        for ref in journal.append_many([Record("turn_completed", {"pad": "y" * 120, "n": n}) for n in range(3)]):
            recorder.mark(ref)
        recorder.mark(journal.append("task_closed", {"pad": "z" * 300}))
        journal.close()
        recorder.mark(follow_up(tmp_path, 2))

    disks = torn = 0
    for acknowledged, root in each_disk(record(tmp_path, program)):
        assert_holds(root, acknowledged)
        chain = Chain(root)
        for _ in chain.entries():
            pass
        torn += bool(chain.torn)
        last = follow_up(root, 9)
        assert_holds(root, [*acknowledged, last])
        disks += 1
    assert disks > 80 and torn > 20, (disks, torn)


def test_a_second_power_cut_during_the_next_start(tmp_path: Path) -> None:
    def program(recorder: Recorder) -> None:
        journal = Journal.start(tmp_path, "000001-a", None)
        recorder.mark(journal.append("task_added", {"pad": "x" * 200}))

    second = 0
    for acknowledged, root in each_disk(record(tmp_path, program), limit=12):

        def restart(recorder: Recorder, root: Path = root) -> None:
            recorder.mark(follow_up(root, 2))

        for later, again in each_disk(record(root, restart), limit=12):
            assert_holds(again, [*acknowledged, *later])
            follow_up(again, 3)
            second += 1
    assert second > 200


def test_lines_left_unsynced_by_a_killed_run_are_settled_before_they_are_built_on(tmp_path: Path) -> None:
    """A kill loses nothing, a later power cut could: the next run may name only what is on the platter."""

    def program(recorder: Recorder) -> None:
        journal = Journal.start(tmp_path, "000001-a", None)
        original = journal._file.sync
        journal._file.sync = lambda: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            journal.append("task_added", {"pad": "x" * 300})
        journal._file.sync = original  # type: ignore[method-assign]
        assert end_of(tmp_path) == Ref("000001-a", 1, end_of(tmp_path).entry_hash)  # type: ignore[union-attr]
        recorder.mark(follow_up(tmp_path, 2))

    seen = 0
    for acknowledged, root in each_disk(record(tmp_path, program)):
        assert_holds(root, acknowledged)
        seen += bool(acknowledged)
    assert seen
