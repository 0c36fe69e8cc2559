from __future__ import annotations

import errno
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast import errors
from holdfast.storage.files import disk
from holdfast.storage.records import blob_meta
from holdfast.storage.records.blobs import Blobs
from holdfast.testing.powercut import Crash, lay
from holdfast.testing.recorder import Recorder
from kit import TESTS
from kit.blobs import ONE, PUTS, THREE, TWO, damage, file_of, flaws, sha
from kit.disks import each_disk, each_fault, examples, record, scratch

WRITER = TESTS / "kit" / "blob_writer.py"


# -- tier 1: power cuts and faults at every operation -----------------------------------------------------------------


def holds(acknowledged: list[bytes], root: Path, everything: list[bytes]) -> None:
    """What must be true on every disk, and that the store can go on from there."""
    blobs = Blobs(root / "cas")
    for data in acknowledged:
        assert blobs.get(sha(data)) == data and b"".join(blobs.open_stream(sha(data))) == data
        assert blobs.meta(sha(data)).size == len(data)
    assert set(flaws(blobs).values()) <= {errors.BlobUndescribed}
    disk.sweep(root)
    assert blobs.put_many(everything[:1]) == [sha(everything[0])]
    assert [blobs.put(data) for data in everything] == list(map(sha, everything))
    assert [blobs.get(sha(data)) for data in everything] == everything and flaws(blobs) == {}


def puts_of_each_kind(recorder: Recorder) -> None:
    blobs = Blobs(recorder.root / "cas")
    blobs.put(ONE, metadata={"by": "one"})
    recorder.mark(ONE)
    blobs.put(TWO)
    recorder.mark(TWO)
    blobs.put_many([THREE, b"four" * 100, ONE])
    recorder.mark(THREE)
    recorder.mark(b"four" * 100)


def walk(tmp_path: Path, program: Callable[[Recorder], object], everything: list[bytes], disks_min: int) -> None:
    disks = 0
    for acknowledged, root in each_disk(record(tmp_path, program), limit=24):
        holds(acknowledged, root, everything)
        disks += 1
    assert disks >= disks_min


def test_a_power_cut_at_any_operation_loses_nothing_acknowledged(tmp_path: Path) -> None:
    walk(tmp_path, puts_of_each_kind, [ONE, TWO, THREE, b"four" * 100], 100)


def test_without_a_syncfs_that_reports_errors_a_batch_is_as_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.storage.files.filesystems._SYNCFS_REPORTS_ERRORS", False)

    def program(recorder: Recorder) -> None:
        Blobs(recorder.root / "cas").put_many([ONE, TWO])
        recorder.mark(ONE)
        recorder.mark(TWO)

    walk(tmp_path, program, [ONE, TWO], 40)


@pytest.mark.parametrize("put", PUTS.values(), ids=PUTS)
def test_a_blob_that_another_process_has_named_but_not_synced_is_durable_too(
    tmp_path: Path, put: Callable[[Blobs, bytes], object]
) -> None:
    def program(recorder: Recorder) -> None:
        blob = file_of(recorder.root / "cas", ONE)
        meta = blob_meta.describe(len(ONE), "text/plain", None)
        recorder.mkdir(recorder.root / "cas")
        recorder.mkdir(blob.parent)
        for path, data in ((blob_meta.path_of(blob), blob_meta.encode(meta)), (blob, ONE)):
            with disk.StagedFile(blob.parent) as staged:
                staged.write(data)
                staged.rename(path)
        put(Blobs(recorder.root / "cas"), ONE)
        recorder.mark(ONE)

    acked = 0
    for acknowledged, root in each_disk(record(tmp_path, program)):
        blobs = Blobs(root / "cas")
        acked += bool(acknowledged)
        for data in acknowledged:
            assert blobs.get(sha(data)) == data and blobs.meta(sha(data)).content_type == "text/plain"
    assert acked


@pytest.mark.parametrize("put", PUTS.values(), ids=PUTS)
def test_mending_survives_a_power_cut(tmp_path: Path, put: Callable[[Blobs, bytes], object]) -> None:
    Blobs(tmp_path / "cas").put_many([ONE, TWO])
    damage(file_of(tmp_path / "cas", ONE))
    damage(blob_meta.path_of(file_of(tmp_path / "cas", ONE)))
    blob_meta.path_of(file_of(tmp_path / "cas", TWO)).unlink()

    def program(recorder: Recorder) -> None:
        blobs = Blobs(recorder.root / "cas")
        for data in (ONE, TWO):
            put(blobs, data)
            recorder.mark(data)

    seen = set()
    for acknowledged, root in each_disk(record(tmp_path, program)):
        blobs = Blobs(root / "cas")
        for data in (ONE, TWO):
            try:
                assert blobs.get(sha(data)) == data
            except errors.BlobCorrupt:
                seen.add(data)
                assert data == ONE and data not in acknowledged
            if data in acknowledged:
                assert blobs.meta(sha(data)).size == len(data)
        put(blobs, ONE), put(blobs, TWO)
        assert flaws(blobs) == {}
    assert seen == {ONE}


def test_nothing_is_acknowledged_after_a_fault_that_is_not_on_the_disk() -> None:
    steps = [("put", ONE), ("put", TWO), ("put_many", THREE), ("put", ONE), ("put_many", TWO)]

    def goes_on(recorder: Recorder) -> None:
        blobs = Blobs(recorder.root / "cas")
        for put, data in steps:
            try:
                PUTS[put](blobs, data)
            except errors.DiskError:
                continue
            assert not any(call.kind.startswith("sync") for call in recorder.fired), "acknowledged after a failed sync"
            recorder.mark(data)

    tried = went_on = 0
    for recorder, raised in each_fault(goes_on, errno.EIO, errno.ENOSPC):
        assert raised is None
        tried += 1
        went_on += len(recorder.marks) == len(steps) - 1
        acknowledged = recorder.marked_before(len(recorder.calls))
        for content in Crash(recorder, len(recorder.calls), limit=4).disks():
            with scratch() as root:
                lay(content, root)
                holds(acknowledged, root, [ONE, TWO, THREE])
    assert tried > 60 and went_on > 20


def test_a_failed_sync_ends_putting_but_not_getting(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "cas")
    blobs.put(ONE)
    recorder = Recorder(tmp_path)
    with disk.use_kernel(recorder):
        recorder.fail_at(2, errno.EIO)
        with pytest.raises(errors.SyncFailed):
            blobs.put(ONE)
        assert recorder.fired[0].kind == "sync"
        calls = len(recorder.calls)
        for put in PUTS.values():
            for data in (ONE, TWO):
                with pytest.raises(errors.Poisoned, match="Input/output error"):
                    put(blobs, data)
        assert len(recorder.calls) == calls
    assert blobs.get(sha(ONE)) == ONE


def test_a_put_that_was_under_way_when_a_sync_failed_is_not_acknowledged(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "cas")

    class FailsMeanwhile(Recorder):
        """While the first put waits for its sync, one of another thread fails."""

        is_armed = True

        def fsync(self, fd: int) -> None:
            if self.is_armed:
                self.is_armed = False
                self.fail_at(len(self.calls) + 1, errno.EIO)
                with pytest.raises(errors.SyncFailed):
                    blobs.put(TWO)
            super().fsync(fd)

    recorder = FailsMeanwhile(tmp_path)
    with disk.use_kernel(recorder):
        with pytest.raises(errors.Poisoned):
            blobs.put(ONE)
    assert recorder.fired


def test_a_full_disk_does_not_end_the_store(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "cas")
    blobs.put(ONE)
    recorder = Recorder(tmp_path)
    with disk.use_kernel(recorder):
        recorder.fail_at(3, errno.ENOSPC)
        with pytest.raises(errors.DiskFull, match="free some space"):
            blobs.put(TWO)
        assert recorder.fired[0].kind == "write"
        assert blobs.put(TWO) == sha(TWO)
    assert list((tmp_path / "cas").rglob("*.tmp")) == []


# -- a model ----------------------------------------------------------------------------------------------------------

CONTENTS = st.sampled_from([b"", b"a", b"bc" * 300])


class AgainstAModel(RuleBasedStateMachine):
    """Puts, damage and new processes in any order: what was put and not damaged since is served, nothing else is."""

    def __init__(self) -> None:
        super().__init__()
        self.scratch = scratch()
        self.folder = self.scratch.__enter__() / "cas"
        self.blobs = Blobs(self.folder)
        self.model: dict[bytes, bool] = {}

    def teardown(self) -> None:
        self.scratch.__exit__(None, None, None)

    @rule(data=CONTENTS, put=st.sampled_from(sorted(PUTS)))
    def put(self, data: bytes, put: str) -> None:
        PUTS[put](self.blobs, data)
        self.model[data] = True

    @rule(many=st.lists(CONTENTS, max_size=6))
    def put_many(self, many: list[bytes]) -> None:
        assert self.blobs.put_many(many) == list(map(sha, many))
        self.model |= dict.fromkeys(many, True)

    @rule(data=CONTENTS)
    def damage(self, data: bytes) -> None:
        if data in self.model:
            damage(file_of(self.folder, data))
            self.model[data] = False

    @rule(data=CONTENTS)
    def lose(self, data: bytes) -> None:
        if self.model.pop(data, None) is not None:
            file_of(self.folder, data).unlink()

    @rule(data=CONTENTS)
    def undescribe(self, data: bytes) -> None:
        blob_meta.path_of(file_of(self.folder, data)).unlink(missing_ok=True)

    @rule()
    def start_again(self) -> None:
        self.blobs = Blobs(self.folder)

    @invariant()
    def serves_what_it_holds(self) -> None:
        assert sorted(map(sha, self.model)) == list(self.blobs.digests())
        for data, intact in self.model.items():
            if intact:
                assert self.blobs.get(sha(data)) == data
            else:
                with pytest.raises(errors.BlobCorrupt):
                    self.blobs.get(sha(data))


AgainstAModel.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=20, deadline=None)
test_against_a_model = AgainstAModel.TestCase


# -- real processes ---------------------------------------------------------------------------------------------------

RACER = """
import sys
from pathlib import Path
from holdfast.storage.records.blobs import Blobs
blobs = Blobs(Path(sys.argv[1]))
for line in sys.stdin:
    data = line.encode() * 100
    kind = int(line) % 2
    if kind == 0:
        digest = blobs.put(data, metadata={'by': sys.argv[2]})
    else:
        digest = blobs.put_many([data])[0]
    print(digest, blobs.meta(digest).metadata, flush=True)
"""


def test_two_processes_that_put_the_same_bytes_at_once_both_succeed(tmp_path: Path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, tmp_path / "cas", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("left", "right")
    ]
    for number in range(150):
        for racer in racers:
            assert racer.stdin
            racer.stdin.write(f"{number}\n")
            racer.stdin.flush()
        answers = [racer.stdout.readline() if racer.stdout else "" for racer in racers]
        assert answers[0] == answers[1], "the description changed after it was acknowledged"
        assert answers[0].startswith(sha(b"%d\n" % number * 100))
    for racer in racers:
        racer.communicate()
        assert racer.returncode == 0
    assert flaws(Blobs(tmp_path / "cas")) == {}
    assert not list((tmp_path / "cas").rglob("*.tmp"))


def test_many_threads_share_one_store(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "cas")
    contents = [b"%d" % number * 100 for number in range(20)]

    def work() -> None:
        for data in contents:
            blobs.put(data)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [blobs.get(sha(data)) for data in contents] == contents
    assert flaws(blobs) == {} and not list((tmp_path / "cas").rglob("*.tmp"))


@pytest.mark.heavy
def test_a_writer_killed_at_any_moment_loses_nothing_acknowledged(tmp_path: Path) -> None:
    chance = random.Random(7)
    acknowledged: set[str] = set()
    for seed in range(10):
        writer = subprocess.Popen([sys.executable, WRITER, tmp_path / "cas", str(seed)], stdout=subprocess.PIPE)
        assert writer.stdout
        # Half of them have done some work, however busy the machine is.
        for _ in range(20 if seed % 2 else 1):
            acknowledged.add(writer.stdout.readline().decode().strip())
        time.sleep(chance.uniform(0, 0.2))
        writer.send_signal(signal.SIGKILL)
        out = writer.communicate()[0]
        assert writer.returncode == -signal.SIGKILL
        acknowledged |= {line.decode() for line in out[: out.rfind(b"\n") + 1].split()}
        blobs = Blobs(tmp_path / "cas")
        for digest in acknowledged:
            assert sha(blobs.get(digest)) == digest and blobs.meta(digest).size >= 0
        assert set(flaws(blobs).values()) <= {errors.BlobUndescribed}
        disk.sweep(tmp_path)
        assert not list((tmp_path / "cas").rglob("*.tmp"))
    assert len(acknowledged) > 50
