from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.storage.files import disk
from holdfast.storage.journal import checkpoint, intents
from holdfast.storage.journal.archive import archive_ended_runs
from holdfast.storage.journal.entry import Record, Ref
from holdfast.storage.journal.intents import Pairing
from holdfast.storage.journal.reader import Chain
from holdfast.storage.journal.writer import Journal
from holdfast.testing.recorder import Recorder
from kit.checkpoints import build, files, intent, recover, view
from kit.disks import each_disk, each_fault, record, scratch
from kit.journal_writer import Counts


class NewerCounts(Counts):
    version = 2


def test_without_a_checkpoint_one_scan_finds_everything(tmp_path: Path) -> None:
    build(tmp_path).close()
    fold, recovered = recover(tmp_path)
    assert fold.counts["task_spawn_intent"] == 2 and recovered.entries_read == 5
    assert "tasks.jsonl" in recovered.scanned
    assert [item.entry.inputs["task"] for item in recovered.pairing.open_intents()] == ["two"]
    assert recovered.pairing.find_executed("task_added", "k1") is not None
    assert recovered.pairing.find_executed("task_added", "k2") is None


def test_with_a_checkpoint_only_the_tail_is_read(tmp_path: Path) -> None:
    journal = build(tmp_path)
    fold, recovered = recover(tmp_path)
    checkpoint.write(Chain(tmp_path), files(tmp_path), journal.position(), fold, recovered.pairing)
    again, from_checkpoint = recover(tmp_path)
    assert view(again, from_checkpoint) == view(fold, recovered)
    assert from_checkpoint.entries_read == 0 and from_checkpoint.scanned == ""
    two = recovered.pairing.open_intents()[0].ref
    journal.append("task_spawn_failed", {"intent": two})
    journal.close()
    build(tmp_path, "000002-b", journal.position().ref).close()
    tail = recover(tmp_path)
    assert tail[1].entries_read == 6 and tail[1].scanned == ""
    for path in tmp_path.glob("*.json*"):
        if not path.name.endswith(".wal.jsonl"):
            path.unlink()
    assert view(*recover(tmp_path)) == view(*tail)


def test_intents_and_outcomes_pair_over_runs(tmp_path: Path) -> None:
    with Journal.start(tmp_path, "000001-a", None) as first:
        one, two = intent(first, "one"), intent(first, "two")
    with Journal.start(tmp_path, "000002-b", two) as second:
        second.append("task_spawn_abandoned", {"intent": one})
        three = intent(second, "three")
    _, recovered = recover(tmp_path)
    assert [item.ref for item in recovered.pairing.open_intents()] == [two, three]
    done = recovered.pairing.find_executed("task_spawn_intent", one.entry_hash)
    assert done is not None and (done.run, done.seq) == ("000002-b", 1)


@pytest.mark.parametrize("wrong", ["twice", "unknown", "other hash", "no reference"])
def test_an_outcome_that_fits_no_open_intent_is_an_error(tmp_path: Path, wrong: str) -> None:
    with Journal.start(tmp_path, "000001-a", None) as journal:
        ref = intent(journal, "one")
        named = {
            "twice": ref,
            "unknown": Ref("000001-a", 77, "0" * 64),
            "other hash": Ref(ref.run, ref.seq, "0" * 64),
            "no reference": "yesterday",
        }[wrong]
        if wrong == "twice":
            journal.append("task_spawn_confirmed", {"intent": ref})
        journal.append("task_spawn_confirmed", {"intent": named})
    with pytest.raises(errors.PairingBroken, match=r"entry [23] of run 000001-a: it closes the intent .* not open"):
        recover(tmp_path)


def damage(root: Path) -> Iterable[tuple[str, Path]]:
    """Every way in which a checkpoint file can be wrong, one at a time."""
    for path in files(root).__struct_fields__:
        name = getattr(files(root), path).name
        content = (root / name).read_bytes()
        yield f"{name} missing", root / name
        (root / name).unlink()
        yield f"{name} gone", root / name
        for label, damaged in (
            ("empty", b""),
            ("truncated", content[:-3]),
            ("half", content[: len(content) // 2]),
            ("flipped", content[:40] + bytes([content[40] ^ 1]) + content[41:]),
            ("zeros", bytes(len(content))),
            ("grown", content + b"{}\n"),
            ("other format", content.replace(b'{"format":3', b'{"format":9')),
        ):
            assert damaged != content, label
            (root / name).write_bytes(damaged)
            yield f"{name} {label}", root / name
        (root / name).write_bytes(content)


def test_a_wrong_checkpoint_costs_one_scan_and_never_a_wrong_answer(tmp_path: Path) -> None:
    journal = build(tmp_path)
    truth = recover(tmp_path)
    checkpoint.write(Chain(tmp_path), files(tmp_path), journal.position(), truth[0], truth[1].pairing)
    scans = 0
    for label, path in damage(tmp_path):
        found = recover(tmp_path)
        assert view(*found) == view(*truth), label
        if "missing" not in label:
            assert path.name in found[1].scanned and found[1].entries_read == 5, label
            scans += 1
    assert scans == 24
    assert recover(tmp_path)[1].scanned == ""
    assert "another version" in recover(tmp_path, NewerCounts)[1].scanned


def test_every_flipped_byte_of_a_checkpoint_costs_a_scan(memory_path: Path) -> None:
    journal = build(memory_path)
    truth = recover(memory_path)
    checkpoint.write(Chain(memory_path), files(memory_path), journal.position(), truth[0], truth[1].pairing)
    for path in (files(memory_path).tasks, files(memory_path).uncommitted, files(memory_path).idempotency):
        content = path.read_bytes()
        for at in range(len(content)):
            path.write_bytes(content[:at] + bytes([content[at] ^ 2]) + content[at + 1 :])
            found = recover(memory_path)
            assert view(*found) == view(*truth) and found[1].scanned, (path.name, at)
        path.write_bytes(content)


def test_three_files_of_different_positions_do_not_count(tmp_path: Path) -> None:
    journal = build(tmp_path)
    fold, recovered = recover(tmp_path)
    checkpoint.write(Chain(tmp_path), files(tmp_path), journal.position(), fold, recovered.pairing)
    older = files(tmp_path).idempotency.read_bytes()
    journal.append("task_added", {"idempotency_key": "k2"})
    fold, recovered = recover(tmp_path)
    checkpoint.write(Chain(tmp_path), files(tmp_path), journal.position(), fold, recovered.pairing)
    files(tmp_path).idempotency.write_bytes(older)
    again, found = recover(tmp_path)
    assert "different positions" in found.scanned
    assert found.pairing.find_executed("task_added", "k2") is not None and again.counts == fold.counts


def test_a_journal_cut_at_a_line_end_is_seen_against_the_checkpoint(tmp_path: Path) -> None:
    journal = build(tmp_path)
    fold, recovered = recover(tmp_path)
    checkpoint.write(Chain(tmp_path), files(tmp_path), journal.position(), fold, recovered.pairing)
    journal.close()
    path = tmp_path / "000001-a.wal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    with pytest.raises(errors.JournalCorrupt, match=r"entry 4, on which the checkpoint stands, is missing"):
        recover(tmp_path)
    path.unlink()
    with pytest.raises(errors.JournalCorrupt, match=r"000001-a.wal.jsonl.* is missing"):
        recover(tmp_path)


@pytest.mark.parametrize("archived", [False, True], ids=["plain", "archived"])
@pytest.mark.parametrize("gone", [1, 2, 3, 4])
def test_a_run_that_is_missing_before_the_checkpoint_is_seen_at_the_start(
    tmp_path: Path, gone: int, archived: bool
) -> None:
    """The one that the checkpoint stands on is the fourth; a fifth follows it."""
    end = None
    for number in range(1, 5):
        with Journal.start(tmp_path, f"00000{number}-a", end) as journal:
            end = intent(journal, f"t{number}")
    fold, recovered = recover(tmp_path)
    checkpoint.write(Chain(tmp_path), files(tmp_path), journal.position(), fold, recovered.pairing)
    with Journal.start(tmp_path, "000005-a", end):
        pass
    before = recover(tmp_path)
    if archived:
        assert archive_ended_runs(tmp_path) == [f"00000{number}-a" for number in range(1, 5)]
    again = recover(tmp_path)
    assert view(*again) == view(*before) and again[1].scanned == "" and again[1].entries_read == 1
    [lost] = tmp_path.rglob(f"00000{gone}-a*")
    lost.rename(tmp_path / "elsewhere")
    left = sorted(tmp_path.rglob("*"))
    with pytest.raises(errors.JournalCorrupt, match=f"00000{gone}-a.* (is missing|a run is missing or added)"):
        recover(tmp_path)
    assert sorted(tmp_path.rglob("*")) == left
    (tmp_path / "elsewhere").rename(lost)
    assert view(*recover(tmp_path)) == view(*before) and recover(tmp_path)[1].scanned == ""


def test_a_run_file_without_an_entry_that_comes_or_goes_costs_one_scan(tmp_path: Path) -> None:
    """Nothing in it was ever acknowledged, so its absence is no loss."""
    with Journal.start(tmp_path, "000001-a", None) as first:
        end = first.position().ref
    journal = build(tmp_path, "000003-c", end)
    fold, recovered = recover(tmp_path)
    checkpoint.write(Chain(tmp_path), files(tmp_path), journal.position(), fold, recovered.pairing)
    (tmp_path / "000002-b.wal.jsonl").touch()
    again = recover(tmp_path)
    assert view(*again) == view(fold, recovered) and "other run files stand before" in again[1].scanned


def test_executed_keys_are_bounded_and_the_same_from_scan_and_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intents, "EXECUTED_MAX", 5)
    with Journal.start(tmp_path, "000001-a", None) as journal:
        journal.append_many([Record("task_added", {"idempotency_key": f"k{n}"}) for n in range(4)])
        fold, recovered = recover(tmp_path)
        checkpoint.write(Chain(tmp_path), files(tmp_path), journal.position(), fold, recovered.pairing)
        journal.append_many([Record("task_added", {"idempotency_key": f"k{n}"}) for n in range(4, 9)])
    tail = recover(tmp_path)[1].pairing.executed()
    shutil.copy(tmp_path / "000001-a.wal.jsonl", (tmp_path / "alone").mkdir() or tmp_path / "alone")
    assert [done.key for done in tail] == ["k4", "k5", "k6", "k7", "k8"]
    assert recover(tmp_path / "alone")[1].pairing.executed() == tail


def test_a_key_used_again_is_young_again_and_still_means_the_first_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intents, "EXECUTED_MAX", 2)
    with Journal.start(tmp_path, "000001-a", None) as journal:
        for key in "abac":
            journal.append("task_added", {"idempotency_key": key})
    executed = recover(tmp_path)[1].pairing.executed()
    assert [(done.key, done.seq) for done in executed] == [("a", 1), ("c", 4)]


def test_a_fold_line_with_a_line_end_in_it_costs_a_scan(tmp_path: Path) -> None:
    class Careless(Counts):
        def dump(self) -> Iterable[bytes]:
            return [b"one\ntwo"]

    journal = build(tmp_path)
    checkpoint.write(Chain(tmp_path), files(tmp_path), journal.position(), Careless(), Pairing())
    assert "2 lines, and says 1" in recover(tmp_path)[1].scanned


def test_power_cut_at_every_operation_of_a_checkpoint(tmp_path: Path) -> None:
    def program(recorder: Recorder) -> None:
        journal = build(tmp_path)
        fold, pairs = Counts(), Pairing()
        for run, entry in Chain(tmp_path).entries():
            fold.apply(run, entry)
            pairs.apply(run, entry)
        checkpoint.write(Chain(tmp_path), files(tmp_path), journal.position(), fold, pairs)
        recorder.mark(("checkpoint", journal.position().ref))
        closing = journal.append("task_spawn_confirmed", {"intent": pairs.open_intents()[0].ref})
        recorder.mark(("closed", closing))
        journal.close()
        disk.replace(files(tmp_path).tasks, b"damaged")

    kinds = set()
    for acknowledged, root in each_disk(record(tmp_path, program), limit=24):
        fold, recovered = recover(root)
        alone = root / "alone"
        alone.mkdir()
        for path in root.glob("*.wal.jsonl"):
            shutil.copy(path, alone)
        assert view(fold, recovered) == view(*recover(alone))
        if any(what == "closed" for what, _ in acknowledged):
            assert recovered.pairing.open_intents() == []
        kinds.add((len(acknowledged), recovered.scanned == ""))
    assert {(0, False), (1, True), (2, True), (2, False)} <= kinds


def test_a_checkpoint_that_fails_half_way_hurts_nothing() -> None:
    def program(recorder: Recorder) -> None:
        root = recorder.root
        journal = build(root)
        fold, recovered = Counts(), Pairing()
        for run, entry in Chain(root).entries():
            fold.apply(run, entry)
            recovered.apply(run, entry)
        checkpoint.write(Chain(root), files(root), journal.position(), fold, recovered)
        recorder.mark("written")

    with scratch() as root:
        whole = view(*recover(record(root, program).root))
    tried = 0
    for recorder, raised in each_fault(program, errno.ENOSPC):
        assert isinstance(raised, errors.DiskError) and not recorder.marks
        found = recover(recorder.root)
        tried += found[1].entries_read == 5
        if found[1].entries_read == 5:
            assert found[0].counts == whole[0]  # type: ignore[index]
    assert tried > 10
