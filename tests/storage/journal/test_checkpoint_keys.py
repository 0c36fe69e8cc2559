"""The executed keys of a checkpoint, which stay in their file until somebody asks for one."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast import errors
from holdfast.storage.journal import checkpoint, intents
from holdfast.storage.journal.reader import Chain
from holdfast.storage.journal.writer import Journal
from holdfast.testing.recorder import Recorder
from kit.checkpoints import build, by_scan, files, keyed, recover, save, view
from kit.disks import each_disk, each_fault, record


def stored_keys(root: Path) -> list[bytes]:
    return files(root).idempotency.read_bytes().splitlines()[1:]


def flips(content: bytes, step: int = 1) -> Iterator[bytes]:
    for at in range(0, len(content), step):
        yield content[:at] + bytes([content[at] ^ 2]) + content[at + 1 :]


def test_a_start_that_needs_no_key_reads_none(tmp_path: Path) -> None:
    """The keys are damaged, which nobody who read them could miss."""
    journal = build(tmp_path)
    save(tmp_path, journal)
    journal.append("task_added", {"idempotency_key": "k2"})
    path = files(tmp_path).idempotency
    path.write_bytes(list(flips(path.read_bytes()))[-9])
    fold, recovered = recover(tmp_path)
    assert [item.entry.inputs["task"] for item in recovered.pairing.open_intents()] == ["two"]
    trial = recovered.pairing.trial()
    assert trial.open_intents() == recovered.pairing.open_intents()
    assert (recovered.scanned, recovered.entries_read) == ("", 1) and fold.counts["task_added"] == 2
    assert recovered.pairing.find_executed("task_added", "k1") is not None
    assert "idempotency.jsonl does not hold what its SHA-256 says" in recovered.scanned and recovered.entries_read == 6


def test_keys_that_prove_damaged_when_asked_for_are_taken_from_the_journal(tmp_path: Path) -> None:
    """Behind the checkpoint there is a new key, and one that comes again. Each flip is found late, or at the start."""
    journal = build(tmp_path)
    save(tmp_path, journal)
    keyed(journal, "k2", "k1")
    truth, path = by_scan(tmp_path), files(tmp_path).idempotency
    content, late = path.read_bytes(), 0
    for damaged in flips(content):
        path.write_bytes(damaged)
        found = recover(tmp_path)
        late += found[1].scanned == ""
        assert found[1].pairing.find_executed("task_added", "none") is None
        assert view(*found) == view(*truth) and found[1].scanned and found[1].entries_read == 7
    assert late >= len(content.partition(b"\n")[2])


@pytest.mark.parametrize("few", [0, 32], ids=["read", "unread"])
def test_damaged_keys_are_never_written_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(intents, "_FEW", few)
    journal = build(tmp_path)
    save(tmp_path, journal)
    kept = [path.read_bytes() for path in (files(tmp_path).tasks, files(tmp_path).uncommitted)]
    keyed(journal, "k2", "k1")
    truth, path = by_scan(tmp_path), files(tmp_path).idempotency
    for damaged in flips(path.read_bytes(), 7):
        files(tmp_path).tasks.write_bytes(kept[0])
        files(tmp_path).uncommitted.write_bytes(kept[1])
        path.write_bytes(damaged)
        save(tmp_path, journal)
        again = recover(tmp_path)
        assert view(*again) == view(*truth) and (again[1].scanned, again[1].entries_read) == ("", 0)


def test_a_start_sees_keys_of_another_size_and_a_wrong_count_does_not_spread(tmp_path: Path) -> None:
    journal = build(tmp_path)
    save(tmp_path, journal)
    path, truth = files(tmp_path).idempotency, by_scan(tmp_path)
    content = path.read_bytes()
    for damaged in (content[:-1], content + b"x"):
        path.write_bytes(damaged)
        assert "bytes behind its first line" in recover(tmp_path)[1].scanned
    path.write_bytes(content.replace(b'"lines":2', b'"lines":7'))
    assert path.read_bytes() != content and recover(tmp_path)[1].scanned == ""
    save(tmp_path, journal)
    assert path.read_bytes() == content and view(*recover(tmp_path)) == view(*truth)


def test_keys_that_go_or_are_replaced_after_the_start_are_taken_from_the_journal(tmp_path: Path) -> None:
    journal, path = build(tmp_path), files(tmp_path).idempotency
    save(tmp_path, journal)
    older = path.read_bytes()
    keyed(journal, "k2")
    save(tmp_path, journal)
    written = path.read_bytes()
    keyed(journal, "k3")
    gone, stale, overtaken, newer = (recover(tmp_path) for _ in range(4))
    truth = by_scan(tmp_path)
    path.unlink()
    assert view(*gone) == view(*truth) and "No such file" in gone[1].scanned
    path.write_bytes(older)
    assert view(*stale) == view(*truth) and "is another than at the start" in stale[1].scanned
    path.write_bytes(written)
    keyed(journal, "k4")
    save(tmp_path, journal)
    assert view(*overtaken) == view(*truth) and "is another than at the start" in overtaken[1].scanned
    path.write_bytes(written)
    assert view(*newer) == view(*truth) and newer[1].scanned == ""


def test_keys_cannot_be_had_from_a_journal_that_lost_them(tmp_path: Path) -> None:
    journal = build(tmp_path)
    save(tmp_path, journal)
    journal.close()
    _, recovered = recover(tmp_path)
    files(tmp_path).idempotency.unlink()
    path = tmp_path / "000001-a.wal.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    for _ in range(2):
        with pytest.raises(errors.JournalCorrupt, match="on which the checkpoint stands, is missing"):
            recovered.pairing.find_executed("task_added", "k1")


@pytest.mark.parametrize("few", [0, 2, 32])
def test_keys_written_on_unread_are_those_of_a_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """Over many short sessions: keys that come again, also after they were forgotten, and that look like others."""
    monkeypatch.setattr(intents, "EXECUTED_MAX", 6)
    monkeypatch.setattr(intents, "_FEW", few)
    names = ["a", "aa", 'a","run":"', "\n", "ä", "b", "c", "d", "e", 'x\\"']
    choice = random.Random(few)
    forgotten = 0
    with Journal.start(tmp_path, "000001-a", None) as journal:
        save(tmp_path, journal)
        for _ in range(20):
            fold, recovered = recover(tmp_path)
            for _ in range(2):
                keyed(journal, *choice.choices(names, k=choice.randrange(1, 5)))
                for run, entry in Chain(tmp_path).entries(recovered.end):
                    fold.apply(run, entry)
                    recovered.pairing.apply(run, entry)
                recovered.end = journal.position()
                checkpoint.write(Chain(tmp_path), files(tmp_path), journal.position(), fold, recovered.pairing)
                truth = by_scan(tmp_path)
                assert stored_keys(tmp_path) == [msgspec.json.encode(done) for done in truth[1].pairing.executed()]
                assert view(*recover(tmp_path)) == view(*truth) and recover(tmp_path)[1].scanned == ""
                forgotten += len(stored_keys(tmp_path)) == 6
            assert recovered.scanned == "" and recovered.pairing.executed() == truth[1].pairing.executed()
    assert forgotten > 20


def test_power_cut_at_every_operation_of_a_checkpoint_with_keys_unread(tmp_path: Path) -> None:
    """The second takes the keys over from the first. Each disk that a cut leaves is then asked, and written on."""
    journal = build(tmp_path)
    save(tmp_path, journal)
    keyed(journal, "k2", "k1")

    def program(recorder: Recorder) -> None:
        save(tmp_path, journal)
        recorder.mark("second")

    truth, kinds = by_scan(tmp_path), set()
    for acknowledged, root in each_disk(record(tmp_path, program), limit=24):
        asked, unasked = recover(root), recover(root)
        assert view(*asked) == view(*truth)
        kinds.add((len(acknowledged), asked[1].scanned, asked[1].entries_read))
        checkpoint.write(Chain(root), files(root), journal.position(), unasked[0], unasked[1].pairing)
        assert view(*recover(root)) == view(*truth) and recover(root)[1].scanned == ""
    mixed = "the three checkpoint files stand at different positions"
    assert kinds == {(0, "", 2), (0, mixed, 7), (0, "", 0), (1, "", 0)}


def test_after_a_checkpoint_that_failed_half_way_the_keys_are_still_known() -> None:
    def program(recorder: Recorder) -> None:
        root = recorder.root
        journal = build(root)
        save(root, journal)
        keyed(journal, "k2", "k1")
        fold, recovered = recover(root)
        recorder.mark(recovered)
        checkpoint.write(Chain(root), files(root), journal.position(), fold, recovered.pairing)

    scans = []
    for recorder, raised in each_fault(program, errno.ENOSPC):
        assert isinstance(raised, errors.DiskError)
        for _, recovered in recorder.marks:
            assert recovered.pairing.executed() == by_scan(recorder.root)[1].pairing.executed()
            scans.append(recovered.scanned)
    assert {"", "idempotency.jsonl is another than at the start"} == set(scans)
