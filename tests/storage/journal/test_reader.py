from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from backports import zstd

from holdfast import errors
from holdfast.storage.files import disk
from holdfast.storage.journal import archive
from holdfast.storage.journal import reader as chain_module
from holdfast.storage.journal.entry import GENESIS, Entry, Record, Ref, decode_sound, encode_middle, put_together, seal
from holdfast.storage.journal.reader import Chain, TornEnd
from holdfast.storage.journal.writer import Journal
from holdfast.testing.recorder import Recorder
from kit.disks import each_disk, record, scratch

RUN_A, RUN_B = "000001-a", "000002-b"


def build(wal: Path, *, runs: int = 1) -> list[tuple[str, Entry]]:
    """Runs of six entries: a batch of one, one of three, one of one."""
    previous = None
    for number in range(1, runs + 1):
        with Journal.start(wal, f"{number:06d}-{'abc'[number - 1]}", previous) as journal:
            journal.append("task_added", {"task": "ä", "run": number})
            journal.append_many([Record("turn_completed", {"turn": turn}) for turn in range(3)])
            previous = journal.append("task_closed", {"task": "ä"})
    return list(Chain(wal).entries())


def outcome(wal: Path) -> tuple[list[tuple[str, Entry]], Chain | errors.HoldfastError]:
    chain, found = Chain(wal), list[tuple[str, Entry]]()
    try:
        found.extend(chain.entries())
    except errors.JournalCorrupt as error:
        return found, error
    return found, chain


def test_an_empty_or_missing_folder_is_an_empty_journal(tmp_path: Path) -> None:
    for wal in (tmp_path, tmp_path / "missing"):
        chain = Chain(wal)
        assert list(chain.entries()) == [] and chain.end is None


def test_a_journal_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / f"{RUN_A}.wal.jsonl").mkdir()
    with pytest.raises(errors.DiskError, match=rf"Could not read .*{RUN_A}.wal.jsonl: Is a directory"):
        list(Chain(tmp_path).entries())
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.DiskError, match=r"Could not read .*file.*: Not a directory"):
        list(Chain(tmp_path / "file").entries())


def test_tier_3_cut_at_every_byte(memory_path: Path) -> None:
    whole = build(memory_path)
    path = memory_path / f"{RUN_A}.wal.jsonl"
    content = path.read_bytes()
    ends = [index + 1 for index, byte in enumerate(content) if byte == 10]
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        found, chain = outcome(memory_path)
        complete = sum(end <= cut for end in ends)
        assert found == whole[:complete]
        assert isinstance(chain, Chain)
        start = ends[complete - 1] if complete else 0
        assert chain.torn == ([TornEnd(RUN_A, start, cut - start)] if cut > start else [])


def test_tier_3_flip_every_byte(memory_path: Path) -> None:
    whole = build(memory_path)
    path = memory_path / f"{RUN_A}.wal.jsonl"
    content = path.read_bytes()
    last_batch = content.rindex(b'{"seq":5')
    verdicts = set()
    for at in range(len(content)):
        for flip in (0x01, 0x80, content[at] ^ 10):
            if flip == 0:
                continue
            path.write_bytes(content[:at] + bytes([content[at] ^ flip]) + content[at + 1 :])
            found, verdict = outcome(memory_path)
            assert found == whole[: len(found)], "a wrong record was read"
            assert len(found) < len(whole)
            # Only the last entry has nobody behind it to witness that it was acknowledged.
            assert isinstance(verdict, Chain) == (at >= last_batch), at
            if isinstance(verdict, errors.JournalCorrupt):
                assert verdict.facts["path"] == path and 0 <= verdict.facts["offset"] <= at
            verdicts.add(type(verdict))
    assert verdicts == {Chain, errors.JournalCorrupt}


def test_tier_3_across_runs_a_change_anywhere_before_the_newest_run_is_corruption(memory_path: Path) -> None:
    whole = build(memory_path, runs=2)
    path = memory_path / f"{RUN_A}.wal.jsonl"
    content = path.read_bytes()
    for at in range(len(content)):
        for damaged in (content[:at], content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]):
            path.write_bytes(damaged)
            found, verdict = outcome(memory_path)
            assert isinstance(verdict, errors.JournalCorrupt)
            assert found == whole[: len(found)] and len(found) < 6


def test_a_lost_page_in_the_last_batch_is_torn_and_in_an_earlier_one_corrupt(tmp_path: Path) -> None:
    with Journal.start(tmp_path, RUN_A, None) as journal:
        journal.append_many([Record("turn_completed", {"turn": turn, "pad": "x" * 400}) for turn in range(4)])
        path = journal._file.path
        size = path.stat().st_size
        content = bytearray(path.read_bytes())
        second = content.index(b'{"seq":2')
        # Zeros in front of a line that is whole: the page before it is lost, and it still bears witness.
        content[second : content.index(b'{"seq":3')] = bytes(content.index(b'{"seq":3') - second)
        torn = bytes(content)
        journal.append("task_closed")
    corrupt = torn + path.read_bytes()[size:]
    path.write_bytes(torn)
    found, chain = outcome(tmp_path)
    assert [entry.seq for _, entry in found] == [0, 1] and isinstance(chain, Chain)
    assert chain.torn == [TornEnd(RUN_A, second, size - second)]
    path.write_bytes(corrupt)
    found, error = outcome(tmp_path)
    assert isinstance(error, errors.JournalCorrupt)
    assert error.facts["offset"] == second and "entry 2 is damaged" in str(error) and str(path) in str(error)


def test_the_only_witness_may_stand_right_behind_lost_bytes(tmp_path: Path) -> None:
    whole = build(tmp_path)
    path = tmp_path / f"{RUN_A}.wal.jsonl"
    content = bytearray(path.read_bytes())
    last = content.rindex(b'{"seq":5')
    before = content.rindex(b'{"seq":4')
    content[before:last] = bytes(last - before)  # the newline too: zeros and the witness are one line now
    path.write_bytes(content)
    found, error = outcome(tmp_path)
    assert found == whole[:4] and isinstance(error, errors.JournalCorrupt) and "entry 5 shows" in str(error)


@pytest.mark.parametrize("change", ["removed", "swapped", "doubled", "replaced"])
def test_sound_lines_that_do_not_follow_each_other_are_corrupt(tmp_path: Path, change: str) -> None:
    build(tmp_path)
    path = tmp_path / f"{RUN_A}.wal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    forged, _ = seal(put_together(5, GENESIS, b"1.0", encode_middle(Record("task_closed")), 4))
    changed = {
        "removed": lines[:2] + lines[3:],
        "swapped": [lines[0], lines[2], lines[1], *lines[3:]],
        "doubled": [*lines, lines[-1]],
        "replaced": [*lines[:-1], forged],
    }
    path.write_bytes(b"".join(changed[change]))
    _, error = outcome(tmp_path)
    assert isinstance(error, errors.JournalCorrupt) and "must follow" in str(error)


def test_a_run_that_is_missing_added_or_replaced_is_seen(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    build(source, runs=3)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    build(foreign, runs=2)
    a, b, c = sorted(path.name for path in source.iterdir())

    def damaged(name: str) -> Path:
        return Path(shutil.copytree(source, tmp_path / name))

    for name in (a, b):
        wal = damaged(f"without-{name}")
        (wal / name).unlink()
        assert isinstance(outcome(wal)[1], errors.JournalCorrupt)
    wal = damaged("added")
    shutil.copy(foreign / a, wal / "000002-0.wal.jsonl")
    assert isinstance(outcome(wal)[1], errors.JournalCorrupt)
    wal = damaged("replaced")
    shutil.copy(foreign / b, wal / b)
    assert isinstance(outcome(wal)[1], errors.JournalCorrupt)
    wal = damaged("stray")
    (wal / "notes.wal.jsonl").write_text("hello")
    _, error = outcome(wal)
    assert "notes.wal.jsonl" in str(error) and "does not belong" in str(error)
    wal = damaged("newest")
    (wal / c).unlink()
    assert isinstance(outcome(wal)[1], Chain), "only a checkpoint or a seal can tell that the newest run is gone"


def test_a_run_that_died_before_its_first_entry_is_passed_over(tmp_path: Path) -> None:
    build(tmp_path)
    (tmp_path / f"{RUN_B}.wal.jsonl").write_bytes(b'{"seq":0,"prev_h')
    found, chain = outcome(tmp_path)
    assert len(found) == 6 and isinstance(chain, Chain) and chain.torn == [TornEnd(RUN_B, 0, 16)]
    assert chain.end is not None
    Journal.start(tmp_path, "000003-c", chain.end.ref).close()
    found, chain = outcome(tmp_path)
    assert isinstance(chain, Chain) and [run for run, _ in found][-1] == "000003-c"


def test_a_newer_format_is_refused_by_name_and_nothing_changes(tmp_path: Path) -> None:
    Journal.start(tmp_path, RUN_A, None, facts={"format": 2}).close()
    before = (tmp_path / f"{RUN_A}.wal.jsonl").read_bytes()
    with pytest.raises(errors.NewerFormat, match="format 2, and this Holdfast reads up to format 1"):
        list(Chain(tmp_path).entries())
    # Also where the fields themselves have changed, and no line of it can be verified.
    (tmp_path / f"{RUN_A}.wal.jsonl").write_bytes(b'{"n":0,"inputs":{"format":3},"crc":7}\n')
    with pytest.raises(errors.NewerFormat, match="format 3"):
        list(Chain(tmp_path).entries())
    (tmp_path / f"{RUN_A}.wal.jsonl").write_bytes(before)
    assert [path.name for path in tmp_path.iterdir()] == [f"{RUN_A}.wal.jsonl"]


def test_reading_a_journal_that_is_being_written(tmp_path: Path) -> None:
    journal = Journal.start(tmp_path, RUN_A, None)
    stop = threading.Event()
    # On a disk that is quick the writer would leave every reader behind: each reading lets it go on by so much.
    allowed = threading.Semaphore(20)

    def write() -> None:
        while allowed.acquire() and not stop.is_set():
            journal.append_many([Record("turn_completed", {"pad": "x" * 3000})] * 3)

    writer = threading.Thread(target=write)
    writer.start()
    counts = [0]
    try:
        while len(counts) < 30 or counts[-1] < 100:
            found, chain = outcome(tmp_path)
            assert isinstance(chain, Chain)
            counts.append(len(found))
            allowed.release(20)
    finally:
        stop.set()
        allowed.release()
        writer.join()
    assert counts == sorted(counts)


def test_a_line_read_half_and_finished_meanwhile_is_not_called_corrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader meets half a line at the end of the file; before it can judge, the writer is three batches on."""
    build(tmp_path)
    path = tmp_path / f"{RUN_A}.wal.jsonl"
    content = path.read_bytes()
    half = content.index(b'{"seq":2') + 30
    path.write_bytes(content[:half])
    judged = []

    def finish_first(line: bytes) -> Entry | None:
        if not judged:
            path.write_bytes(content)
        judged.append(line)
        return decode_sound(line)

    monkeypatch.setattr(chain_module, "decode_sound", finish_first)
    found, chain = outcome(tmp_path)
    assert judged and [entry.seq for _, entry in found] == [0, 1]
    assert isinstance(chain, Chain) and chain.torn[0].offset == half - 30


def test_the_chain_goes_on_over_the_archive(tmp_path: Path) -> None:
    whole = build(tmp_path, runs=3)
    torn = tmp_path / f"{RUN_B}.wal.jsonl"
    torn.write_bytes(torn.read_bytes() + b"half a li")
    assert archive.archive_ended_runs(tmp_path) == [RUN_A, RUN_B]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000003-c.wal.jsonl", "archive"]
    found, chain = outcome(tmp_path)
    assert found == whole and isinstance(chain, Chain)
    assert [(item.run, item.length) for item in chain.torn] == [(RUN_B, 9)]
    assert archive.archive_ended_runs(tmp_path) == []
    (tmp_path / "archive" / f"{RUN_A}.wal.jsonl.zst").unlink()
    assert isinstance(outcome(tmp_path)[1], errors.JournalCorrupt)


def test_tier_3_of_an_archive_every_flipped_byte_is_an_error_that_names_it(memory_path: Path) -> None:
    whole = build(memory_path, runs=2)
    archive.archive_ended_runs(memory_path)
    path = memory_path / "archive" / f"{RUN_A}.wal.jsonl.zst"
    content = path.read_bytes()
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
        found, error = outcome(memory_path)
        assert found == whole[: len(found)]
        # A bit that means nothing to zstd changes nothing; any other is seen.
        assert found == whole or (isinstance(error, errors.JournalCorrupt) and RUN_A in str(error)), at
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        found, error = outcome(memory_path)
        # Only zstd's own checksum may be missing without the loss of a record.
        assert found == whole or (isinstance(error, errors.JournalCorrupt) and found == whole[: len(found)])


def test_a_copy_that_does_not_read_back_never_replaces_the_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path, runs=2)
    replace = disk.replace

    def write_another(path: Path, data: Iterable[bytes]) -> None:
        whole = zstd.decompress(b"".join(data))
        replace(path, zstd.compress(whole[:-1]))

    monkeypatch.setattr(disk, "replace", write_another)
    with pytest.raises(errors.JournalCorrupt, match="does not read back"):
        archive.archive_ended_runs(tmp_path)
    assert (tmp_path / f"{RUN_A}.wal.jsonl").exists()


def test_a_position_inside_an_archived_run_still_serves(tmp_path: Path) -> None:
    with Journal.start(tmp_path, RUN_A, None) as journal:
        journal.append("task_added")
        position = journal.position()
        previous = journal.append("task_closed")
    Journal.start(tmp_path, RUN_B, previous).close()
    archive.archive_ended_runs(tmp_path)
    chain = Chain(tmp_path)
    kinds = [entry.decision_type for _, entry in chain.entries(after=position)]
    assert kinds == ["task_closed", "run_started"] and chain.end is not None and chain.end.ref.run == RUN_B


def test_archiving_survives_a_power_cut_at_every_operation() -> None:
    with scratch() as wal:
        whole = build(wal, runs=2)

        def program(recorder: Recorder) -> None:
            archive.archive_ended_runs(wal)
            recorder.mark("archived")

        disks = 0
        for _, root in each_disk(record(wal, program)):
            found, chain = outcome(root)
            assert found == whole and isinstance(chain, Chain)
            archive.archive_ended_runs(root)
            assert outcome(root)[0] == whole
            disks += 1
        assert disks > 10


def test_entries_behind_a_position_are_only_the_tail(tmp_path: Path) -> None:
    with Journal.start(tmp_path, RUN_A, None) as journal:
        journal.append_many([Record("turn_completed", {"n": n}) for n in range(10)])
        position = journal.position()
        tail = [journal.append("task_closed", {"n": n}) for n in range(2)]
    chain = Chain(tmp_path)
    assert [Ref(run, e.seq, e.entry_hash) for run, e in chain.entries(after=position)] == tail
    assert chain.count == 2 and chain.end is not None and chain.end.ref == tail[-1]
    at_end = Chain(tmp_path)
    assert list(at_end.entries(after=chain.end)) == [] and at_end.end == chain.end
