from __future__ import annotations

import errno
import fcntl
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.storage.files import disk
from holdfast.storage.records.ledger import Skip
from holdfast.testing.recorder import Recorder
from kit.line_ledgers import grown, ledger_in, names, numbers, prune, rotate


def test_rotation_by_size_reads_as_one_from_every_cursor(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path, rotate_bytes_max=100, clock=lambda: 1.0)
    cursors = [0, *(ledger.append({"n": n}) for n in range(20))]
    assert names(tmp_path)[0] == "events.0000000000000000-0000000000000085.jsonl.zst"
    assert all(name.endswith((".zst", "events.jsonl")) for name in names(tmp_path)) and len(names(tmp_path)) > 3
    assert cursors == sorted(set(cursors)) and ledger.end() == cursors[-1]
    for n, cursor in enumerate(cursors):
        assert numbers(ledger, cursor) == list(range(n, 20))
    assert numbers(ledger_in(tmp_path)) == list(range(20))


def test_rotation_by_age_counts_from_the_first_record(tmp_path: Path) -> None:
    now = [100.0]
    with ledger_in(tmp_path, rotate_age_s_max=10, clock=lambda: now[0]) as ledger:
        ledger.append({"n": 0})
    now[0] = 109.0
    ledger = ledger_in(tmp_path, rotate_age_s_max=10, clock=lambda: now[0])
    ledger.append({"n": 1})
    assert names(tmp_path) == ["events.jsonl"]
    now[0] = 110.0
    ledger.append({"n": 2})
    ledger.append({"n": 3})
    assert len(names(tmp_path)) == 2 and numbers(ledger) == [0, 1, 2, 3]


def test_archives_are_real_zstd_that_other_tools_read(tmp_path: Path) -> None:
    from backports import zstd

    ledger = ledger_in(tmp_path)
    ledger.append_many({"n": n, "text": "x" * 1000} for n in range(2500))
    content = ledger.path.read_bytes()
    rotate(ledger)
    rotate(ledger)
    packed = next(tmp_path.glob("*.zst"))
    assert names(tmp_path) == [packed.name, "events.jsonl"]
    assert zstd.decompress(packed.read_bytes()) == content
    assert packed.stat().st_size < len(content) / 20
    cursors = [0, *(line.cursor for line in ledger.read())]
    for n in (0, 1, 1000, 1100, 2499, 2500):
        assert numbers(ledger, cursors[n]) == list(range(n, 2500))


def test_a_damaged_archive_yields_no_wrong_record_and_hides_no_other(memory_path: Path) -> None:
    ledger = ledger_in(memory_path, clock=lambda: 1.0)
    for n in range(3):
        ledger.append({"n": n})
        end = ledger.append({"n": n + 10})
        rotate(ledger)
    last = ledger.append({"n": 3})
    victim = sorted(memory_path.glob("*.zst"))[1]
    content, start = victim.read_bytes(), end // 3
    for at in range(len(content)):
        for damaged in (content[:at], content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :]):
            victim.write_bytes(damaged)
            skips: list[Skip] = []
            found = numbers(ledger, 0, skips)
            # A flip in a reserved or unused bit of a header changes nothing.
            if found != [0, 10, 1, 11, 2, 12, 3]:
                assert found == [0, 10, 2, 12, 3]
                assert [(skip.offset, skip.length) for skip in skips] == [(start, end // 3)]
                assert victim.name in skips[0].reason or "missing" in skips[0].reason
    victim.unlink()
    skips = []
    assert numbers(ledger, 0, skips) == [0, 10, 2, 12, 3]
    assert [(skip.offset, skip.length) for skip in skips] == [(start, end // 3)]
    assert numbers(ledger, last) == []


def test_both_forms_of_a_segment_read_once_and_the_next_open_finishes(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path, clock=lambda: 1.0)
    ledger.append_many({"n": n} for n in range(5))
    content = ledger.path.read_bytes()
    rotate(ledger)
    ledger.append({"n": 5})
    ledger.close()
    packed = next(tmp_path.glob("*.zst"))
    plain = packed.with_suffix("")
    for whole in (packed.read_bytes(), packed.read_bytes()[:-7]):
        plain.write_bytes(content)
        packed.write_bytes(whole)
        assert numbers(ledger_in(tmp_path)) == list(range(6))
        with ledger_in(tmp_path) as again:
            again.append_many([])
        assert not plain.exists() and numbers(ledger_in(tmp_path)) == list(range(6))


def test_a_sealed_segment_that_lost_bytes_is_kept_and_stops_nothing(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path, clock=lambda: 1.0)
    ends = [ledger.append({"n": n}) for n in range(3)]
    ledger.close()
    short = tmp_path / f"events.{0:016d}-{ends[2]:016d}.jsonl"
    short.write_bytes(ledger.path.read_bytes()[: ends[1] + 5])
    ledger.path.unlink()
    ledger.append({"n": 3})
    skips: list[Skip] = []
    assert numbers(ledger, 0, skips) == [0, 1, 3]
    assert [(skip.offset, skip.length) for skip in skips] == [(ends[1], ends[2] - ends[1])]
    assert isinstance(ledger.upkeep_failure, errors.SegmentDamaged) and short.exists()


def test_nothing_is_dropped_unless_asked(tmp_path: Path) -> None:
    ledger = grown(tmp_path)
    assert prune(ledger, 1e12) == [] and numbers(ledger) == list(range(7))


def test_retention_by_age_drops_whole_segments_never_the_newest(tmp_path: Path) -> None:
    ledger = grown(tmp_path, retain_age_s_max=10)
    assert len(prune(ledger, 13.5)) == 3
    skips: list[Skip] = []
    assert numbers(ledger, 0, skips) == [3, 4, 5, 6]
    assert skips[0].offset == 0 and "retention" in skips[0].reason and len(skips) == 1
    prune(ledger, 1e9)
    assert numbers(ledger) == [5, 6]
    end = ledger.end()
    assert ledger.append({"n": 7, "ts": 7}) > end and numbers(ledger, end) == [7]


def test_retention_by_size_counts_all_files(tmp_path: Path) -> None:
    total = sum(path.stat().st_size for path in tmp_path.iterdir()) if grown(tmp_path) else 0
    assert prune(ledger_in(tmp_path, retain_bytes_max=total)) == []
    assert len(prune(ledger_in(tmp_path, retain_bytes_max=total - 1))) == 1
    ledger = ledger_in(tmp_path, retain_bytes_max=0, rotate_bytes_max=1, clock=lambda: 8.0)
    ledger.append({"n": 7})
    assert numbers(ledger) == [6, 7], "a rotation prunes too, and the newest segment stays"


# -- races, made to happen --------------------------------------------------------------------------------------------


def test_a_scan_that_misses_a_segment_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grown(tmp_path)
    real, scans = os.listdir, itertools.count()

    def listdir(path: Path) -> list[str]:
        found = sorted(real(path))
        return found if next(scans) else found[:2] + found[3:]

    monkeypatch.setattr(os, "listdir", listdir)
    assert numbers(ledger_in(tmp_path)) == list(range(7))
    assert next(scans) == 3


@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_a_rotation_at_any_moment_of_a_listing_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    ledger = ledger_in(tmp_path)
    cursor = ledger.append({"n": 0})
    real, scans = os.listdir, itertools.count()

    def listdir(path: Path) -> list[str]:
        monkeypatch.setattr(os, "listdir", real)
        at = next(scans)
        if at == step // 2 and step % 2 == 0:
            rotate(ledger)
            ledger.append({"n": 1})
        found = real(path)
        if at == step // 2 and step % 2 == 1:
            rotate(ledger)
            ledger.append({"n": 1})
        monkeypatch.setattr(os, "listdir", listdir)
        return found

    monkeypatch.setattr(os, "listdir", listdir)
    reader = ledger_in(tmp_path)
    assert numbers(reader, cursor) == [1]
    assert reader.end() == ledger.end() and next(scans) > step // 2


def test_segments_dropped_while_reading_are_reported(tmp_path: Path) -> None:
    skips: list[Skip] = []
    lines = grown(tmp_path).read(0, skips.append)
    assert next(lines).record["n"] == 0
    with ledger_in(tmp_path, retain_bytes_max=0, rotate_bytes_max=1) as writer:
        writer.append({"n": 7})
        writer.append({"n": 8})
    assert [line.record["n"] for line in lines] == [7, 8]
    assert len(skips) == 1 and "retention" in skips[0].reason


# -- one writer -------------------------------------------------------------------------------------------------------


def test_a_rotation_that_meets_the_descriptor_limit_loses_nothing(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    with disk.use_kernel(recorder):
        ledger = ledger_in(tmp_path, rotate_bytes_max=60, clock=lambda: 1.0)
        for n in range(3):
            ledger.append({"n": n})
        recorder.fail_open_at(len(recorder.opens), errno.EMFILE)
        for n in range(3, 9):
            ledger.append({"n": n})
        assert [call.kind for call in recorder.fired] == ["open"]
    assert numbers(ledger) == list(range(9))
    ledger.close()
    with ledger_in(tmp_path, rotate_bytes_max=60, clock=lambda: 1.0) as again:
        again.append({"n": 9})
    assert numbers(again) == list(range(10))


def test_a_second_writer_is_refused_and_nothing_is_lost_over_a_rotation(tmp_path: Path) -> None:
    one, two = ledger_in(tmp_path, rotate_bytes_max=60), ledger_in(tmp_path)
    for n in range(4):
        one.append({"n": n})
        with pytest.raises(errors.InUse, match=r"events\.jsonl is being written by another") as refused:
            two.append({"n": 99})
        assert isinstance(refused.value, errors.Locked)
    one.close()
    two.append({"n": 4})
    with pytest.raises(errors.InUse):
        one.append({"n": 99})
    assert numbers(one) == numbers(two) == [0, 1, 2, 3, 4]
    two.close()
    one.append({"n": 5})
    assert numbers(two) == list(range(6))


def test_a_writer_in_another_process_is_refused_too(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from holdfast.storage.records.ledger import LineLedger as Ledger
Ledger(Path(sys.argv[1])).append({"n": 99})
"""
    command = [sys.executable, "-c", program, tmp_path / "events.jsonl"]
    with ledger_in(tmp_path) as ledger:
        ledger.append({"n": 0})
        refused = subprocess.run(command, capture_output=True, text=True)
        assert refused.returncode == 1 and "InUse" in refused.stderr
    assert subprocess.run(command).returncode == 0 and numbers(ledger) == [0, 99]


def test_a_file_that_was_sealed_while_it_was_being_opened_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, late, real = ledger_in(tmp_path), ledger_in(tmp_path), fcntl.flock
    other.append({"n": 0})

    def flock(fd: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", real)
        rotate(other)
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(errors.InUse):
        late.append({"n": 99})
    other.append({"n": 1})
    assert numbers(other) == [0, 1]


def test_a_failed_opening_lets_go_of_the_live_file(tmp_path: Path) -> None:
    grown(tmp_path)
    recorder = Recorder(tmp_path)
    with disk.use_kernel(recorder):
        recorder.fail_at(0, errno.EIO)
        with pytest.raises(errors.SyncFailed):
            ledger_in(tmp_path, retain_bytes_max=0).append({"n": 99})
    with ledger_in(tmp_path) as ledger:
        ledger.append({"n": 7})
    assert numbers(ledger) == list(range(8))


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_an_archived_segment_is_as_private_as_the_ledger(tmp_path: Path, mode: int) -> None:
    with ledger_in(tmp_path, rotate_bytes_max=1, mode=mode) as ledger:
        for n in range(3):
            ledger.append({"n": n})
    assert len(names(tmp_path)) == 3
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {mode}


@pytest.mark.parametrize("suffix", ["", ".zst"])
def test_a_segment_that_is_a_link_to_nowhere_is_passed_over_and_told(tmp_path: Path, suffix: str) -> None:
    ledger = grown(tmp_path)
    first = tmp_path / names(tmp_path)[0]
    first.unlink()
    link = first.with_suffix("").with_name(first.with_suffix("").name + suffix)
    link.symlink_to(tmp_path / "not mounted" / "segment")
    skips: list[Skip] = []
    assert numbers(ledger, skips=skips) == [1, 2, 3, 4, 5, 6]
    assert [(skip.offset, str(link) in skip.reason) for skip in skips] == [(0, True)]
    assert ledger.append({"n": 7}) == ledger.end() and ledger.upkeep_failure is None and link.is_symlink()
    ledger.close()
