from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies

from holdfast import errors
from holdfast.storage.files import disk
from holdfast.storage.journal import checkpoint
from holdfast.storage.journal.checkpoint import Files
from holdfast.storage.journal.entry import (
    GENESIS,
    Record,
    Ref,
    decode_sound,
    encode,
    encode_middle,
    put_together,
    seal,
)
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
def test_a_line_reads_back_as_it_was_given(inputs: dict[str, Any], seq: int, timestamp: float) -> None:
    record = Record("task_ädded", inputs, {"n": [1]}, "loop", committed=False)
    line, digest = seal(put_together(seq, GENESIS, encode(timestamp), encode_middle(record), seq - 1))
    entry = decode_sound(line)
    assert entry is not None and (entry.seq, entry.prev_hash, entry.timestamp) == (seq, GENESIS, timestamp)
    assert (entry.decision_type, entry.inputs, entry.output) == ("task_ädded", inputs, {"n": [1]})
    assert (entry.actor, entry.committed, entry.synced, entry.entry_hash) == ("loop", False, seq - 1, digest)


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


def test_values_without_a_json_form_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with Journal.start(tmp_path, "000001-a", None) as journal:
        before = journal.position()
        recursive: dict[str, Any] = {}
        recursive["self"] = recursive
        for bad in ({"x": object()}, {"x": "\ud800"}, {("a", "b"): 1}, recursive):
            with pytest.raises(errors.InputError, match="task_added"):
                journal.append_many([Record("task_added"), Record("task_added", bad)])
        assert journal.position() == before
        assert journal.append("task_added").seq == 1


def test_an_append_after_closing_is_refused(tmp_path: Path) -> None:
    journal = Journal.start(tmp_path, "000001-a", None)
    journal.close()
    with pytest.raises(errors.JournalClosed, match="000001-a is closed"):
        journal.append("task_added")
    journal.close()


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


def test_a_signal_handler_that_raises_leaves_a_journal_that_answers(hits: None) -> None:
    """Struck at any moment of an append, the journal acknowledges or refuses the next one."""
    chance = random.Random(0)
    for _ in range(40):
        with scratch() as wal:
            journal = Journal.start(wal, "000001-a", None)
            acknowledged: list[Ref] = []
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0001, 0.0008))
                while True:
                    acknowledged.append(journal.append("main"))
            except (Hit, errors.Poisoned):
                signal.setitimer(signal.ITIMER_REAL, 0)
            with contextlib.suppress(errors.Poisoned):
                acknowledged.append(journal.append("asked"))
            journal.close()
            assert {ref.entry_hash for ref in acknowledged} <= {entry.entry_hash for _, entry in Chain(wal).entries()}


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
        except errors.Poisoned as error:
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
    assert "a write was interrupted" in str(answers[0])
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
def test_entries_that_the_reader_would_reject_are_refused(tmp_path: Path, record: Record) -> None:
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


def test_a_failed_write_or_sync_poisons_the_journal(tmp_path: Path) -> None:
    for fault in ("write", "sync"):
        wal = tmp_path / fault
        wal.mkdir()
        recorder = Recorder(wal)
        with disk.use_kernel(recorder):
            journal = Journal.start(wal, "000001-a", None)
            recorder.fail_at(len(recorder.calls) + (fault == "sync"), errno.EIO)
            with pytest.raises(errors.DiskError):
                journal.append("work")
            for _ in range(2):
                with pytest.raises(errors.Poisoned, match="Input/output error"):
                    journal.append("work")
        assert [call.kind for call in recorder.fired] == [fault]


def test_staged_entries_are_not_written_behind_later_ones(tmp_path: Path) -> None:
    with Journal.start(tmp_path, "000001-a", None) as journal:
        staged = journal.stage()
        staged.add([encode_middle(Record("late"))], encode(1.0))
        journal.append("first")
        with pytest.raises(errors.InputError, match="has grown since"):
            journal.append_staged(staged)
    assert [kind for _, _, kind in read(tmp_path)] == ["run_started", "first"]


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
