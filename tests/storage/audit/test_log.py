from __future__ import annotations

import errno
import hashlib
import hmac
import json
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import errors
from holdfast.storage.audit import log as audit
from holdfast.storage.audit import seals, verify
from holdfast.storage.audit.days import day_files
from holdfast.storage.audit.key import AuditKey
from holdfast.storage.files import disk
from holdfast.testing.recorder import Recorder
from kit.audit import D1, D2, D3, DAY_S, KEY, NOON, Clock, events, fill, found, lines_of, read
from kit.disks import Struck, each_disk, each_fault, examples, record, scratch, striking


def test_the_format_on_disk(tmp_path: Path) -> None:
    fill(tmp_path, 2, 1)
    first, second = (json.loads(line) for line in lines_of(tmp_path / D1))
    third = json.loads((tmp_path / D2).read_bytes())
    assert list(first) == ["seq", "file", "previous", "prev_hmac", "timestamp", "event", "actor", "details", "hmac"]
    assert list(second) == ["seq", "prev_hmac", "timestamp", "event", "actor", "details", "hmac"]
    assert (first["file"], first["previous"], first["prev_hmac"]) == (D1, None, "0" * 64)
    assert (second["seq"], second["prev_hmac"]) == (1, first["hmac"])
    assert (third["seq"], third["prev_hmac"]) == (0, second["hmac"])
    assert (third["file"], third["previous"]) == (D2, {"file": D1, "seq": 1, "size": (tmp_path / D1).stat().st_size})


def test_the_hmac_is_over_the_exact_bytes_before_it(tmp_path: Path) -> None:
    fill(tmp_path, 1)
    line = lines_of(tmp_path / D1)[0].rstrip(b"\n")
    body, _, rest = line.rpartition(b',"hmac":"')
    expected = hmac.new(b"a key for tests, not for anything else", body, hashlib.sha256).hexdigest()
    assert rest.decode() == expected + '"}'


def test_appending_goes_on_where_an_earlier_life_ended(tmp_path: Path) -> None:
    for event in ("one", "two", "three"):
        with audit.AuditLog(tmp_path, KEY, clock=Clock()) as log:
            made = log.append(event, "tests")
    assert made.seq == 2 and events(tmp_path) == ["one", "two", "three"]
    assert seals.verify(tmp_path, KEY).sound


def write_at(folder: Path, *moments_s: float, seal: bool = False) -> list[str]:
    """One record at each moment, each in a life of its own; returns the file of each."""
    files = []
    for number, now in enumerate(moments_s):
        before = {path.name: path.stat().st_size for path in folder.glob("*.jsonl")}
        with audit.AuditLog(folder, KEY, clock=Clock(now)) as log:
            log.append(f"{number}", "tests")
        files += [path.name for path in folder.glob("*.jsonl") if before.get(path.name) != path.stat().st_size]
        if seal:
            seals.seal(folder, KEY, clock=Clock(now))
    return files


@pytest.mark.parametrize("one_life", [True, False])
def test_a_clock_that_goes_back_a_little_never_writes_into_an_older_day(tmp_path: Path, one_life: bool) -> None:
    clock = Clock()
    log = audit.AuditLog(tmp_path, KEY, clock=clock)
    for days in (0, 2, 1, 0, 1):
        clock.now = NOON + days * DAY_S
        if not one_life:
            log = audit.AuditLog(tmp_path, KEY, clock=clock)
        log.append(f"{days}", "tests")
    assert day_files(tmp_path) == [D1, D3]
    assert len(lines_of(tmp_path / D3)) == 4 and seals.verify(tmp_path, KEY).sound


@pytest.mark.parametrize("seal", [False, True], ids=["unsealed", "sealed"])
def test_a_clock_that_was_far_ahead_does_not_draw_later_records_there(tmp_path: Path, seal: bool) -> None:
    far = 4e9  # 2096-10-02
    moments = (NOON, far, NOON, NOON, NOON + DAY_S, far + DAY_S, NOON + 2 * DAY_S, far, far + DAY_S, far + 2 * DAY_S)
    expected = [D1, "2096-10-02", D2, D2, D2, "2096-10-03", D3, "2096-10-04", "2096-10-04", "2096-10-04"]
    files = write_at(tmp_path, *moments, seal=seal)
    assert files == [name.removesuffix(".jsonl") + ".jsonl" for name in expected]
    assert events(tmp_path) == [str(number) for number in range(len(moments))] == events(tmp_path, None)
    report = seals.verify(tmp_path, KEY)
    assert report.sound and (report.days, report.records) == (6, len(moments))
    seals.seal(tmp_path, KEY)
    # The order of the links is as good as that of the dates: what is tampered with in between is named.
    name = "2096-10-03.jsonl"
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content + b"garbage")
    assert (name, 0, "added") in found(tmp_path)
    (tmp_path / name).unlink()
    assert (name, 0, "removed") in found(tmp_path)
    (tmp_path / name).write_bytes(content)
    assert found(tmp_path) == []
    (tmp_path / D2).write_bytes(b"")
    assert found(tmp_path)[0] == (D2, 0, "truncated")


def test_a_clock_that_lost_its_date_does_not_break_the_order(tmp_path: Path) -> None:
    assert write_at(tmp_path, NOON, 0.0, NOON, NOON + DAY_S) == [D1, "1970-01-01.jsonl", D2, D2]
    assert events(tmp_path) == ["0", "1", "2", "3"] and seals.verify(tmp_path, KEY).sound


def test_days_in_a_row_that_are_taken_are_passed_over_without_a_file_for_each_record(tmp_path: Path) -> None:
    ahead = [NOON + (20 + day) * DAY_S for day in range(6)]
    write_at(tmp_path, NOON, *ahead, NOON + DAY_S)
    assert write_at(tmp_path, *[NOON + 20 * DAY_S] * 3) == ["2026-12-11.jsonl"] * 3
    assert seals.verify(tmp_path, KEY).sound


@pytest.mark.parametrize("name", ["9999-99-99.jsonl", "2026-02-30.jsonl", "2096-01-01.jsonl", D2, "2020-01-01.jsonl"])
@pytest.mark.parametrize("content", [b"", b"garbage, an added day\n"], ids=["empty", "garbage"])
def test_a_file_that_somebody_added_draws_no_record_and_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    fill(tmp_path, 1)
    (tmp_path / name).write_bytes(content)
    written = write_at(tmp_path, NOON + DAY_S, NOON + 2 * DAY_S)
    assert written == ([D3, D3] if name == D2 else [D2, D3])
    assert (tmp_path / name).read_bytes() == content
    assert found(tmp_path) == found(tmp_path, None) == [(name, 0, "added")]
    with pytest.raises(errors.AuditCorrupt, match="added"):
        list(read(tmp_path, KEY))


@pytest.mark.parametrize("now", [1e20, -1e20, float("nan"), float("inf"), -float("inf"), 253402300800.0, -1.0])
def test_a_clock_out_of_range_writes_nothing(tmp_path: Path, now: float) -> None:
    log = audit.AuditLog(tmp_path, KEY, clock=lambda: now)
    with pytest.raises(errors.InputError, match="the clock says"):
        log.append("x", "tests")
    assert list(tmp_path.iterdir()) == []
    fill(tmp_path, 1)
    with pytest.raises(errors.InputError, match="the clock says"):
        seals.seal(tmp_path, KEY, clock=lambda: now)
    assert seals.seal_files(tmp_path) == []


def test_the_last_day_of_all_may_be_taken(tmp_path: Path) -> None:
    (tmp_path / "9999-12-31.jsonl").write_bytes(b"")
    with pytest.raises(errors.InputError, match="a file for each day"):
        audit.AuditLog(tmp_path, KEY, clock=lambda: 253402300799.0).append("x", "tests")


def test_many_threads_share_one_log(tmp_path: Path) -> None:
    log = audit.AuditLog(tmp_path, KEY)
    threads = [
        threading.Thread(target=lambda name=name: [log.append(f"{name}.{n}", "tests") for n in range(25)])
        for name in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(events(tmp_path)) == sorted(f"{name}.{n}" for name in range(8) for n in range(25))


@pytest.mark.parametrize(
    "details", [{"x": object()}, {"x": "\ud800"}, {"x": "y" * verify.LINE_BYTES_MAX}], ids=["type", "text", "size"]
)
def test_a_record_that_cannot_be_written_changes_nothing(tmp_path: Path, details: dict[str, object]) -> None:
    log = audit.AuditLog(tmp_path, KEY, clock=Clock())
    with pytest.raises(errors.InputError, match="audit record"):
        log.append("bad", "tests", details)
    assert day_files(tmp_path) == []
    assert log.append("good", "tests").seq == 0


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(40), deadline=None)
@given(st.lists(st.dictionaries(st.text(), anything, max_size=3), min_size=1, max_size=4))
def test_any_json_comes_back_from_the_log(details: list[dict[str, object]]) -> None:
    with scratch() as folder:
        with audit.AuditLog(folder, KEY) as log:
            wrote = [log.append("e\n\0\"'", "ü", each) for each in details]
        assert list(read(folder, KEY)) == wrote and [each.details for each in wrote] == details
        assert list(read(folder, None)) == wrote


def test_a_file_in_the_place_of_a_folder_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    for act in (lambda: seals.verify(tmp_path / "file", KEY), lambda: audit.AuditLog(tmp_path / "file", KEY)):
        with pytest.raises(errors.DiskError, match=f"{tmp_path / 'file'}:"):
            act()
    (tmp_path / "merkle").write_bytes(b"x")
    with pytest.raises(errors.DiskError, match="merkle: Not a directory"):
        seals.verify(tmp_path, KEY)


def test_a_folder_that_may_not_be_read_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, 1, seal_after=(0,))

    def refuse(path: object) -> object:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("os.scandir", refuse)
    for act in (lambda: seals.verify(tmp_path, KEY), lambda: audit.AuditLog(tmp_path, KEY)):
        with pytest.raises(errors.DiskError, match=f"Could not read {tmp_path}: Permission denied"):
            act()
    monkeypatch.undo()
    monkeypatch.setattr("os.listdir", refuse)
    with pytest.raises(errors.DiskError, match="merkle: Permission denied"):
        seals.verify(tmp_path, KEY)


def test_verifying_a_day_takes_constant_memory() -> None:
    with scratch() as folder:
        fill(folder, 4000)
        with (folder / D1).open("ab") as file:
            file.write(bytes(20 * verify.LINE_BYTES_MAX))
        tracemalloc.start()
        report = seals.verify(folder, KEY)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert report.records == 4000 and len(report.torn) == 1 and peak < 5 * verify.LINE_BYTES_MAX


# -- torn is not corrupt ----------------------------------------------------------------------------------------------

GARBAGE = [b'{"seq":2,"prev', bytes(700), b"\0\0\n\0", b"\xff\xfe\n\xff", b"\n\n", bytes(300) + b'"actor":"x"}\n']


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_torn_tail_never_swallows_the_next_record(tmp_path: Path, garbage: bytes) -> None:
    fill(tmp_path, 2)
    with (tmp_path / D1).open("ab") as file:
        file.write(garbage)
    report = seals.verify(tmp_path, KEY)
    assert report.sound and [(torn.file, torn.line) for torn in report.torn] == [(D1, 3)]
    for now in (NOON, NOON + DAY_S):
        audit.AuditLog(tmp_path, KEY, clock=Clock(now)).append("after", "tests")
    report = seals.verify(tmp_path, KEY)
    assert report.sound and (report.records, len(report.torn)) == (4, 1)
    assert events(tmp_path) == ["0.0", "0.1", "after", "after"]


def test_a_whole_record_that_lost_only_its_line_end_is_kept(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    (tmp_path / D1).write_bytes((tmp_path / D1).read_bytes()[:-1])
    audit.AuditLog(tmp_path, KEY, clock=Clock()).append("after", "tests")
    assert events(tmp_path) == ["0.0", "0.1", "after"] and not seals.verify(tmp_path, KEY).torn


def test_a_complete_object_without_a_valid_hmac_is_never_torn(tmp_path: Path) -> None:
    """No crash writes one: the last record was edited, though nothing follows it yet."""
    fill(tmp_path, 2)
    content = (tmp_path / D1).read_bytes()
    (tmp_path / D1).write_bytes(content.replace(b'"0.1"', b'"9.9"'))
    assert found(tmp_path) == [(D1, 2, "edited")]
    with pytest.raises(errors.AuditCorrupt, match=r"2026-11-15\.jsonl, line 2: edited"):
        audit.AuditLog(tmp_path, KEY)


def test_another_key_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    before = (tmp_path / D1).read_bytes()
    with pytest.raises(errors.AuditCorrupt, match="not signed with this key"):
        audit.AuditLog(tmp_path, AuditKey(b"another" * 5))
    assert (tmp_path / D1).read_bytes() == before


# -- tier 1: every disk that a power cut can leave --------------------------------------------------------------------


def append_and_seal(recorder: Recorder) -> None:
    folder, clock = recorder.root / "audit", Clock()
    with audit.AuditLog(folder, KEY, clock=clock) as log:
        for day in range(2):
            clock.now = NOON + day * DAY_S
            for number in range(2):
                log.append(f"{day}.{number}", "tests", {"why": "x" * 200})
                recorder.mark(("record", f"{day}.{number}"))
            recorder.mark(("seal", seals.seal(folder, KEY, clock=clock).file))
    with audit.AuditLog(folder, KEY, clock=clock) as log:
        log.append("1.2", "tests")
        recorder.mark(("record", "1.2"))


def test_append_and_seal_survive_a_power_cut_at_every_operation(tmp_path: Path) -> None:
    disks = torn = 0
    everything = ["0.0", "0.1", "1.0", "1.1", "1.2"]
    for acknowledged, root in each_disk(record(tmp_path, append_and_seal), page=128):
        folder = root / "audit"
        report = seals.verify(folder, KEY)
        assert report.sound, report
        kept = events(folder)
        assert kept == everything[: len(kept)]
        assert {name for kind, name in acknowledged if kind == "record"} <= set(kept)
        assert {name for kind, name in acknowledged if kind == "seal"} <= set(seals.seal_files(folder))
        with audit.AuditLog(folder, KEY, clock=Clock(NOON + DAY_S)) as log:
            log.append("after", "tests")
        seals.seal(folder, KEY)
        after = seals.verify(folder, KEY)
        assert after.sound and after.records == len(kept) + 1 and events(folder) == [*kept, "after"]
        disks += 1
        torn += bool(report.torn)
    assert disks > 100 and torn > 20


def test_nothing_is_acknowledged_after_a_fault() -> None:
    tried = 0
    for recorder, raised in each_fault(append_and_seal, errno.EIO, errno.ENOSPC):
        assert isinstance(raised, errors.DiskError)
        folder, acknowledged = recorder.root / "audit", [fact for _, fact in recorder.marks]
        kept = events(folder)
        assert {name for kind, name in acknowledged if kind == "record"} <= set(kept)
        assert {name for kind, name in acknowledged if kind == "seal"} <= set(seals.seal_files(folder))
        assert seals.verify(folder, KEY).sound
        tried += 1
    assert tried > 40


def test_a_log_whose_sync_failed_takes_no_more_records_not_even_on_another_day(tmp_path: Path) -> None:
    recorder, clock = Recorder(tmp_path), Clock()
    with disk.use_kernel(recorder):
        log = audit.AuditLog(tmp_path, KEY, clock=clock)
        log.append("one", "tests")
        log.append("and the file stays open", "tests")
        recorder.fail_at(len(recorder.calls) + 1, errno.EIO)
        with pytest.raises(errors.SyncFailed):
            log.append("two", "tests")
        assert [call.kind for call in recorder.fired] == ["sync"]
        for move in (0, DAY_S):
            clock.now += move
            with pytest.raises(errors.Poisoned, match="Input/output error"):
                log.append("three", "tests")
    assert day_files(tmp_path) == [D1]
    audit.AuditLog(tmp_path, KEY, clock=clock).append("four", "tests")
    assert seals.verify(tmp_path, KEY).sound


def die_before_the_sync(folder: Path) -> None:
    """Leaves a log of two records, the second one written but never synced, as a killed process does."""
    with scratch() as elsewhere:
        fill(elsewhere, 2)
        first, second = lines_of(elsewhere / D1)
    disk.create(folder / D1, first)
    killed = disk.open_append(folder / D1)
    killed.append(second)
    killed.close()


def test_a_record_of_a_dead_process_is_durable_before_another_follows_it(tmp_path: Path) -> None:
    """After a power cut, the next day must not follow a record that is gone."""
    (tmp_path / "audit").mkdir()

    def program(recorder: Recorder) -> None:
        die_before_the_sync(tmp_path / "audit")
        audit.AuditLog(tmp_path / "audit", KEY, clock=Clock(NOON + DAY_S)).append("next day", "tests")
        recorder.mark("next day")

    for acknowledged, root in each_disk(record(tmp_path, program)):
        assert seals.verify(root / "audit", KEY).sound
        if acknowledged:
            assert events(root / "audit") == ["0.0", "0.1", "next day"]


def test_a_record_that_a_failed_sync_lost_is_followed_by_nothing(tmp_path: Path) -> None:
    """The start whose sync fails refuses; the next one goes on from what is on the disk, not from what memory has."""
    (tmp_path / "audit").mkdir()

    def program(recorder: Recorder) -> None:
        die_before_the_sync(tmp_path / "audit")
        recorder.fail_at(len(recorder.calls), errno.EIO)
        with pytest.raises(errors.SyncFailed):
            audit.AuditLog(tmp_path / "audit", KEY, clock=Clock(NOON + DAY_S))
        audit.AuditLog(tmp_path / "audit", KEY, clock=Clock(NOON + DAY_S)).append("next day", "tests")
        recorder.mark("next day")

    recorder = record(tmp_path, program)
    assert [call.path for call in recorder.fired] == [f"audit/{D1}"]
    for acknowledged, root in each_disk(recorder):
        assert seals.verify(root / "audit", KEY).sound
        assert not acknowledged or events(root / "audit") == ["0.0", "next day"]


def test_a_seal_never_outlives_a_record_that_it_covers(tmp_path: Path) -> None:
    (tmp_path / "audit").mkdir()

    def program(recorder: Recorder) -> None:
        die_before_the_sync(tmp_path / "audit")
        seals.seal(tmp_path / "audit", KEY)
        recorder.mark("sealed")

    sealed = 0
    for acknowledged, root in each_disk(record(tmp_path, program)):
        assert seals.verify(root / "audit", KEY).sound
        sealed += bool(acknowledged) and len(seals.seal_files(root / "audit"))
    assert sealed


@pytest.mark.parametrize("call", ["write", "fdatasync", "link"])
def test_an_interrupted_append_is_the_logs_last(tmp_path: Path, call: str) -> None:
    """The record may be there: another with the same number would damage the log for good."""
    clock = Clock()
    log = audit.AuditLog(tmp_path, KEY, clock=clock)
    log.append("one", "tests")
    log.append("two", "tests")
    clock.now += DAY_S if call == "link" else 0
    with disk.use_kernel(striking(call)), pytest.raises(Struck):
        log.append("three", "tests")
    with pytest.raises(errors.Poisoned, match="interrupted"):
        log.append("four", "tests")
    log.close()
    with audit.AuditLog(tmp_path, KEY, clock=clock) as log:
        log.append("five", "tests")
    assert events(tmp_path) == ["one", "two", "three", "five"] and seals.verify(tmp_path, KEY).sound
