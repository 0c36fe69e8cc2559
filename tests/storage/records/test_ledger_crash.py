from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast import errors
from holdfast.storage.files import disk
from holdfast.storage.records.ledger import Skip
from holdfast.testing.recorder import Recorder
from kit.disks import Struck, each_disk, each_fault, examples, record, scratch, striking
from kit.line_ledgers import grown, ledger_in, names, numbers, prune, rotate

# -- power cuts and faults --------------------------------------------------------------------------------------------


def is_true_history(found: list[int], acknowledged: list[int], tried: int) -> bool:
    """In order, each once, nothing acknowledged missing, nothing that was never appended."""
    return found == sorted(set(found)) and set(acknowledged) <= set(found) <= set(range(tried))


def check_goes_on(root: Path, acknowledged: list[int], tried: int, **options: Any) -> None:
    before = numbers(ledger_in(root))
    assert is_true_history(before, acknowledged, tried), (before, acknowledged, names(root))
    with ledger_in(root, **options) as ledger:
        cursor = ledger.append({"n": 99})
        assert ledger.upkeep_failure is None
    found = numbers(ledger)
    assert found[-1] == 99 and found.count(99) == 1 and set(before) <= set(found)
    assert is_true_history(found[:-1], acknowledged, tried)
    assert ledger.end() == cursor and not list(root.glob("events.0*.jsonl"))


@pytest.mark.parametrize("call", ["write", "fdatasync", "rename"])
def test_an_interrupted_append_is_the_ledgers_last(tmp_path: Path, call: str) -> None:
    """Its size or its name is not known any more: what would be acknowledged next could not be found again."""
    ledger = ledger_in(tmp_path, rotate_bytes_max=1 if call == "rename" else None)
    ledger.append({"n": 0})
    with disk.use_kernel(striking(call)), pytest.raises(Struck):
        ledger.append({"n": 1})
    for act in (lambda: ledger.append({"n": 2}), lambda: rotate(ledger), lambda: prune(ledger)):
        with pytest.raises(errors.Poisoned, match="interrupted"):
            act()
    ledger.close()
    check_goes_on(tmp_path, [0], 2)


def test_append_survives_every_power_cut(tmp_path: Path) -> None:
    def program(recorder: Recorder) -> None:
        ledger = ledger_in(recorder.root, clock=lambda: 1.0)
        for n in range(3):
            ledger.append({"n": n, "text": "x" * 150})
            recorder.mark(n)

    disks = 0
    for acknowledged, root in each_disk(record(tmp_path, program)):
        check_goes_on(root, acknowledged, 3, clock=lambda: 1.0)
        disks += 1
    assert disks > 20


def test_append_many_survives_every_power_cut_with_pages_lost_in_the_middle(tmp_path: Path) -> None:
    def program(recorder: Recorder) -> None:
        ledger = ledger_in(recorder.root, clock=lambda: 1.0)
        ledger.append({"n": 0})
        recorder.mark(0)
        ledger.append_many({"n": n, "text": "x" * 100} for n in range(1, 9))
        for n in range(1, 9):
            recorder.mark(n)

    found = set()
    for acknowledged, root in each_disk(record(tmp_path, program)):
        found.add(tuple(numbers(ledger_in(root))))
        check_goes_on(root, acknowledged, 9, clock=lambda: 1.0)
    assert any(kept and kept[-1] == 8 and len(kept) < 9 for kept in found), "a later page kept, an earlier one lost"


def test_rotation_survives_every_power_cut(tmp_path: Path) -> None:
    def program(recorder: Recorder) -> None:
        ledger = ledger_in(recorder.root, rotate_bytes_max=80, clock=lambda: 1.0)
        for n in range(8):
            ledger.append({"n": n})
            recorder.mark(n)

    states = set()
    for acknowledged, root in each_disk(record(tmp_path, program), limit=24):
        kinds = {"".join(Path(name).suffixes[-2:]) for name in names(root) if name.startswith("events.0")}
        states.add((len(kinds), (root / "events.jsonl").exists()))
        check_goes_on(root, acknowledged, 8, rotate_bytes_max=80, clock=lambda: 1.0)
    assert {(0, True), (1, False), (1, True), (2, True)} <= states


def test_a_second_cut_while_finishing_a_rotation_is_survived_too(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path, clock=lambda: 1.0)
    end = ledger.append_many({"n": n} for n in range(4))
    ledger.close()
    sealed = tmp_path / f"events.{0:016d}-{end:016d}.jsonl"
    ledger.path.rename(sealed)

    def program(recorder: Recorder) -> None:
        ledger_in(recorder.root, clock=lambda: 1.0).append({"n": 4})
        recorder.mark(4)

    for acknowledged, root in each_disk(record(tmp_path, program)):
        check_goes_on(root, [0, 1, 2, 3, *acknowledged], 5)


def test_a_segment_is_on_disk_before_it_has_its_name(tmp_path: Path) -> None:
    """What a killed writer left in the kernel's memory is sealed by the next one."""

    def program(recorder: Recorder) -> None:
        killed = disk.open_append(recorder.root / "events.jsonl")
        killed.append(b'{"n":0}\n' * 100)
        killed.close()
        rotate(ledger_in(recorder.root))
        recorder.mark("sealed")

    for acknowledged, root in each_disk(record(tmp_path, program)):
        segments = list(root.glob("events.0*"))
        skips: list[Skip] = []
        found = numbers(ledger_in(root), 0, skips)
        assert segments or not acknowledged
        assert not segments or (found == [0] * 100 and not skips)


def test_a_copy_made_by_a_killed_process_is_not_trusted_to_have_its_name_on_disk(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path, clock=lambda: 1.0)
    ledger.append_many({"n": n} for n in range(4))
    content = ledger.path.read_bytes()
    rotate(ledger)
    ledger.close()
    packed = next(tmp_path.glob("*.zst"))
    copy = packed.read_bytes()
    packed.rename(packed.with_suffix(""))
    packed.with_suffix("").write_bytes(content)

    def program(recorder: Recorder) -> None:
        with disk.StagedFile(recorder.root) as staged:
            staged.write(copy)
            staged.sync()
            staged.rename(packed)
        ledger_in(recorder.root, clock=lambda: 1.0).append({"n": 4})
        recorder.mark(4)

    for acknowledged, root in each_disk(record(tmp_path, program)):
        check_goes_on(root, [0, 1, 2, 3, *acknowledged], 5)


def test_prune_survives_every_power_cut_and_drops_from_the_oldest(tmp_path: Path) -> None:
    grown(tmp_path)

    def program(recorder: Recorder) -> None:
        prune(ledger_in(recorder.root, retain_bytes_max=0))
        recorder.mark("pruned")

    for acknowledged, root in each_disk(record(tmp_path, program)):
        found = numbers(ledger_in(root))
        assert found == list(range(5 if acknowledged else found[0], 7))
        check_goes_on(root, found, 7)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_after_a_fault_nothing_is_lost_and_a_failed_rotation_stops_no_append(code: int) -> None:
    """Every operation fails once; the program goes on appending, as an orchestrator that met the error would not."""

    messages: list[str] = []

    def program(recorder: Recorder) -> None:
        ledger = ledger_in(recorder.root / "new", rotate_bytes_max=40, retain_bytes_max=100, clock=lambda: 1.0)
        for n in range(8):
            try:
                ledger.append({"n": n})
                recorder.mark(n)
            except errors.DiskError as error:
                messages.append(str(error))
        ledger.close()

    faults = survived = opened = 0
    for recorder, raised in each_fault(program, code):
        assert raised is None
        failed, index = recorder.fired[0], len([0 for at, _ in recorder.marks if at <= _fault_index(recorder)])
        opened += failed.kind == "open"
        acknowledged = [fact for _, fact in recorder.marks]
        if failed.kind in ("sync", "write") and not failed.path.endswith(".tmp"):
            assert acknowledged == list(range(index)), "nothing is acknowledged after a failed write or sync"
        elif failed.kind in ("rename", "link", "unlink") or (failed.kind == "write" and failed.path.endswith(".tmp")):
            assert acknowledged == list(range(8)), f"a failed {failed.kind} stopped an append"
            survived += 1
        faults += 1
        found = numbers(ledger_in(recorder.root / "new"))
        kept = [n for n in acknowledged if n >= found[0]] if found else acknowledged
        check_goes_on(recorder.root / "new", kept, 8) if (recorder.root / "new").exists() else None
    assert faults > 50 and survived >= 9 and opened > 10
    assert messages and all("/holdfast-" in message for message in messages)


def _fault_index(recorder: Recorder) -> int:
    """How many operations had been done when the fault fired: marks made by then were acknowledged before it."""
    return int(recorder.root.name.split("-")[0])


def test_a_failed_sync_of_the_folder_poisons_the_ledger(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    ledger = ledger_in(tmp_path)
    with disk.use_kernel(recorder):
        ledger.append({"n": 1})
        recorder.fail_at(len(recorder.calls) + 2, errno.EIO)
        with pytest.raises(errors.SyncFailed):
            rotate(ledger)
        assert [call.kind for call in recorder.fired] == ["sync"]
        for act in (lambda: rotate(ledger), lambda: prune(ledger), lambda: ledger.append({"n": 2})):
            with pytest.raises(errors.Poisoned, match=r"events\.jsonl takes no more records"):
                act()
    assert numbers(ledger_in(tmp_path)) == [1]


def test_settle_syncs_what_a_reader_saw(tmp_path: Path) -> None:
    ledger_in(tmp_path).settle()
    ledger_in(tmp_path).append({"n": 1})
    recorder = record(tmp_path, lambda _: ledger_in(tmp_path).settle())
    assert [(call.kind, call.path) for call in recorder.calls] == [("sync", "events.jsonl")]


# -- against a model --------------------------------------------------------------------------------------------------


class LedgerMachine(RuleBasedStateMachine):
    """Appends, rotations, reopenings, torn tails and prunes in any order: every cursor ever given stays true."""

    @initialize(size=st.sampled_from([None, 1, 60, 200]))
    def start(self, size: int | None) -> None:
        self.scratch = scratch()
        self.folder = self.scratch.__enter__()
        self.options = {"rotate_bytes_max": size, "retain_bytes_max": 0, "clock": lambda: 1.0}
        self.ledger = ledger_in(self.folder, **(self.options | {"retain_bytes_max": None}))
        self.model: list[tuple[int, int]] = []
        self.dropped_before = 0
        self.is_torn = False
        self.count = itertools.count()

    @rule(texts=st.lists(st.text(max_size=20), max_size=4))
    def append(self, texts: list[str]) -> None:
        given = [(next(self.count), text) for text in texts]
        end = self.ledger.append_many({"n": n, "text": text} for n, text in given)
        lengths = [
            len(json.dumps({"ts": 1.0, "n": n, "text": text}, ensure_ascii=False, separators=(",", ":")).encode()) + 1
            for n, text in given
        ]
        self.model += [(end - sum(lengths[at + 1 :]), n) for at, (n, _) in enumerate(given)]

    @rule()
    def rotate(self) -> None:
        rotate(self.ledger)

    @rule(tail=st.sampled_from([b"", b'{"ts":1.0,"n":-', b"\0\0", b"x\n", b"\n"]))
    def crash(self, tail: bytes) -> None:
        self.ledger.close()
        if self.ledger.path.exists():
            with self.ledger.path.open("ab") as file:
                file.write(tail)
        self.ledger = ledger_in(self.folder, **(self.options | {"retain_bytes_max": None}))

    @rule()
    def prune(self) -> None:
        dropped = prune(ledger_in(self.folder, **self.options))
        self.dropped_before = max([self.dropped_before, *(segment.end for segment in dropped)])

    @invariant()
    def every_cursor_is_true(self) -> None:
        if not hasattr(self, "model"):
            return
        kept = [(cursor, n) for cursor, n in self.model if cursor > self.dropped_before]
        reader = ledger_in(self.folder)
        assert [(line.cursor, line.record["n"]) for line in reader.read()] == kept
        for at, (cursor, _) in enumerate(kept[-3:], len(kept[-3:]) and len(kept) - len(kept[-3:])):
            assert [line.record["n"] for line in reader.read(cursor)] == [n for _, n in kept[at + 1 :]]

    def teardown(self) -> None:
        if hasattr(self, "scratch"):
            self.ledger.close()
            self.scratch.__exit__(None, None, None)


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=examples(60), stateful_step_count=20, deadline=None)


# -- other processes --------------------------------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from holdfast.storage.records.ledger import LineLedger as Ledger
from holdfast.storage.records.redact import Scrubber
path, count = Path(sys.argv[1]), int(sys.argv[2])
ledger = Ledger(path, scrub=Scrubber(environ={}), rotate_bytes_max=300)
first = max((line.record["n"] for line in ledger.read()), default=-1) + 1
print("ready", flush=True)
for n in range(first, count):
    ledger.append({"n": n, "text": "x" * (n % 50)})
    print(n, flush=True)
"""


def start_writer(path: Path, count: int) -> subprocess.Popen[bytes]:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(count)], stdout=subprocess.PIPE)
    assert writer.stdout is not None and writer.stdout.readline() == b"ready\n"
    return writer


@pytest.fixture
def shared() -> Iterator[Path]:
    with scratch() as folder:
        yield folder / "events.jsonl"


class Follower(threading.Thread):
    def __init__(self, path: Path, count: int) -> None:
        super().__init__(daemon=True)
        self.path, self.count = path, count
        self.stop = threading.Event()
        self.found: list[int] = []
        self.cursors: list[int] = []
        self.skips: list[Skip] = []

    def run(self) -> None:
        ledger = ledger_in(self.path.parent)
        while len(self.found) < self.count and not self.stop.wait(0.0005):
            for line in ledger.read(self.cursors[-1] if self.cursors else 0, self.skips.append):
                self.found.append(line.record["n"])
                self.cursors.append(line.cursor)


@pytest.mark.heavy
def test_followers_see_each_record_once_while_another_process_rotates(shared: Path) -> None:
    count = 1000
    followers = [Follower(shared, count) for _ in range(2)]
    for follower in followers:
        follower.start()
    writer = start_writer(shared, count)
    reads = 0
    while writer.poll() is None:
        found = numbers(ledger_in(shared.parent))
        assert found == list(range(len(found)))
        reads += 1
        assert writer.stdout is not None and os.read(writer.stdout.fileno(), 1 << 16) is not None
    assert writer.returncode == 0 and reads > 3
    for follower in followers:
        follower.join(120)
        assert follower.found == list(range(count)) and not follower.skips
        assert follower.cursors == [line.cursor for line in ledger_in(shared.parent).read()]
    assert len(list(shared.parent.glob("*.zst"))) > 100


def test_a_writer_killed_again_and_again_loses_nothing_it_acknowledged(shared: Path) -> None:
    count, kills, acknowledged = 10**6, 8, -1
    follower = Follower(shared, count)
    follower.start()
    for round_ in range(kills):
        writer = start_writer(shared, count)
        assert writer.stdout is not None
        for _ in range(5 + 7 * round_):
            acknowledged = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged = max([acknowledged, *map(int, writer.stdout.read().split(b"\n")[:-1])])
        assert writer.wait() == -signal.SIGKILL
        found = numbers(ledger_in(shared.parent))
        assert found == list(range(len(found))) and len(found) > acknowledged
    with ledger_in(shared.parent) as ledger:
        ledger.append({"n": len(found)})
    while len(follower.found) < len(found) + 1 and follower.is_alive():
        follower.stop.wait(0.001)
    follower.stop.set()
    follower.join(120)
    assert follower.found == list(range(len(found) + 1))
