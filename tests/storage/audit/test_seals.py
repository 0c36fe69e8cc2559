from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast import errors
from holdfast.storage.audit import log as audit
from holdfast.storage.audit import seals, verify
from holdfast.storage.audit.key import AuditKey
from holdfast.storage.audit.verify import AuditFinding
from holdfast.storage.files import disk
from holdfast.testing.recorder import Recorder
from kit.audit import D1, D2, D3, D4, DAY_S, KEY, NOON, Clock, fill, found, lines_of, read
from kit.disks import each_disk, record, scratch

# -- tier 3: every byte -----------------------------------------------------------------------------------------------


def damaged(content: bytes) -> Iterator[tuple[int, bool, bytes]]:
    for at in range(len(content)):
        yield at, True, content[:at]
        for bits in (0x01, 0xA8):
            yield at, False, content[:at] + bytes([content[at] ^ bits]) + content[at + 1 :]


@pytest.mark.parametrize("name", [D1, D2])
def test_a_cut_or_flip_of_any_byte_of_the_log_never_gives_a_wrong_record(name: str) -> None:
    with scratch() as folder:
        fill(folder, 2, 2)
        whole = list(read(folder, KEY))
        content = (folder / name).read_bytes()
        ends = {at for at in range(len(content) + 1) if at == 0 or content[at - 1 : at] == b"\n"}
        for at, cut, wrong in damaged(content):
            (folder / name).write_bytes(wrong)
            report, kept = seals.verify(folder, KEY), []
            with_error = True
            try:
                kept.extend(read(folder, KEY))
                with_error = False
            except errors.AuditCorrupt:
                pass
            assert kept == whole[: len(kept)]
            assert report.sound != with_error
            if name == D1 and kept != whole:
                assert report.findings[0].file == D1
            if name == D2 and report.sound and kept != whole:
                assert report.torn or (cut and {at, at + 1} & ends), (at, cut)


@pytest.mark.parametrize("keyed", [True, False])
def test_a_cut_or_flip_of_any_byte_of_a_sealed_log_is_reported(keyed: bool) -> None:
    key = KEY if keyed else None
    with scratch() as folder:
        fill(folder, 1, 2, seal_after=(1,))
        for name in (D1, D2):
            content = (folder / name).read_bytes()
            for at, cut, wrong in damaged(content):
                (folder / name).write_bytes(wrong)
                assert name in {file for file, _, _ in found(folder, key)}, (name, at, cut)
            (folder / name).write_bytes(content)


@pytest.mark.parametrize("keyed", [True, False])
def test_a_cut_or_flip_of_any_byte_of_a_seal_is_reported(keyed: bool) -> None:
    with scratch() as folder:
        old, _ = fill(folder, 1, 1, seal_after=(0, 1))
        path = folder / "merkle" / old.file
        content = path.read_bytes()
        for at, cut, wrong in damaged(content):
            path.write_bytes(wrong)
            files = {file for file, _, _ in found(folder, KEY if keyed else None)}
            assert f"merkle/{old.file}" in files and not files & {D1, D2}, (at, cut)


def test_a_cut_or_flip_of_any_byte_of_the_newest_seal_is_reported_with_the_key() -> None:
    with scratch() as folder:
        _, newest = fill(folder, 1, 1, seal_after=(0, 1))
        path = folder / "merkle" / newest.file
        content = path.read_bytes()
        for at, cut, wrong in damaged(content):
            path.write_bytes(wrong)
            assert found(folder) == [(f"merkle/{newest.file}", 0, "edited")], (at, cut)
        with pytest.raises(errors.AuditCorrupt):
            seals.seal(folder, KEY)


# -- tampering is named -----------------------------------------------------------------------------------------------

Tamper = Callable[[Path], object]


def swap(one: Path, two: Path) -> None:
    a, b = one.read_bytes(), two.read_bytes()
    one.write_bytes(b)
    two.write_bytes(a)


def rewrite(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path.write_bytes(b"".join(change(lines_of(path))))


def add_a_day(folder: Path) -> None:
    """A day of another log, signed with the very same key."""
    with scratch() as elsewhere:
        audit.AuditLog(elsewhere, KEY, clock=Clock(NOON - 3 * DAY_S)).append("forged", "tests")
        (folder / "2026-11-12.jsonl").write_bytes((elsewhere / "2026-11-12.jsonl").read_bytes())


def extend_a_closed_day(folder: Path) -> None:
    with scratch() as elsewhere:
        (elsewhere / D2).write_bytes((folder / D2).read_bytes())
        audit.AuditLog(elsewhere, KEY, clock=Clock(NOON + DAY_S)).append("forged", "tests")
        (folder / D2).write_bytes((elsewhere / D2).read_bytes())


def splice_a_fork(folder: Path) -> None:
    """A record that the same key signed, with the right seq, but in another life of the log."""
    with scratch() as elsewhere:
        (elsewhere / D2).write_bytes(lines_of(folder / D2)[0])
        with audit.AuditLog(elsewhere, KEY, clock=Clock(NOON + DAY_S)) as log:
            log.append("forged", "tests")
            log.append("forged", "tests")
        rewrite(folder / D2, lambda lines: [*lines[:2], lines_of(elsewhere / D2)[2]])


TAMPERING: dict[str, tuple[Tamper, tuple[str, int, str]]] = {
    "first day removed": (lambda f: (f / D1).unlink(), (D1, 0, "removed")),
    "middle day removed": (lambda f: (f / D2).unlink(), (D2, 0, "removed")),
    "middle day emptied": (lambda f: (f / D2).write_bytes(b""), (D2, 0, "truncated")),
    "day added in front": (add_a_day, (D1, 1, "reordered")),
    "day extended": (extend_a_closed_day, (D2, 0, "added")),
    "newest day renamed": (lambda f: (f / D3).rename(f / D4), (D4, 1, "renamed")),
    "days swapped": (lambda f: swap(f / D1, f / D2), (D1, 1, "renamed")),
    "day copied": (lambda f: (f / D4).write_bytes((f / D2).read_bytes()), (D4, 1, "renamed")),
    "record edited": (
        lambda f: rewrite(f / D2, lambda x: [x[0], x[1].replace(b"1.1", b"1.9"), x[2]]),
        (D2, 2, "edited"),
    ),
    "last of a day edited": (
        lambda f: rewrite(f / D2, lambda x: [*x[:2], x[2].replace(b"1.2", b"1.9")]),
        (D2, 3, "edited"),
    ),
    "last of a day damaged": (lambda f: rewrite(f / D2, lambda x: [*x[:2], x[2][:50]]), (D2, 3, "edited")),
    "record removed": (lambda f: rewrite(f / D2, lambda x: [x[0], x[2]]), (D2, 2, "removed")),
    "head removed": (lambda f: rewrite(f / D2, lambda x: x[1:]), (D2, 1, "removed")),
    "tail removed": (lambda f: rewrite(f / D2, lambda x: x[:2]), (D2, 0, "truncated")),
    "records swapped": (lambda f: rewrite(f / D2, lambda x: [x[0], x[2], x[1]]), (D2, 3, "reordered")),
    "record repeated": (lambda f: rewrite(f / D2, lambda x: [*x, x[1]]), (D2, 4, "reordered")),
    "record of a fork": (splice_a_fork, (D2, 3, "edited")),
    "edited after torn bytes": (
        lambda f: rewrite(f / D2, lambda x: [x[0], b'{"seq":1,\n', x[1].replace(b"1.1", b"1.9"), x[2]]),
        (D2, 3, "edited"),
    ),
    "line added": (lambda f: rewrite(f / D2, lambda x: [*x[:2], b'{"event":"forged"}\n', x[2]]), (D2, 3, "edited")),
}


@pytest.mark.parametrize("sealed", [False, True], ids=["unsealed", "sealed"])
@pytest.mark.parametrize("how", TAMPERING)
def test_tampering_is_named_with_and_without_a_seal(tmp_path: Path, how: str, sealed: bool) -> None:
    fill(tmp_path, 2, 3, 2, seal_after=(2,) if sealed else ())
    tamper, expected = TAMPERING[how]
    assert found(tmp_path) == []
    tamper(tmp_path)
    assert expected in found(tmp_path)
    with pytest.raises(errors.AuditCorrupt):
        list(read(tmp_path, KEY))
    with pytest.raises(errors.AuditCorrupt):
        seals.seal(tmp_path, KEY)


@pytest.mark.parametrize("how", TAMPERING)
def test_tampering_with_a_sealed_day_is_named_without_the_key(tmp_path: Path, how: str) -> None:
    fill(tmp_path, 2, 3, 2, seal_after=(2,))
    assert found(tmp_path, None) == []
    tamper, (file, _, _) = TAMPERING[how]
    tamper(tmp_path)
    report = seals.verify(tmp_path, None)
    assert file in {finding.file for finding in report.findings} and not report.keyed


def test_a_seal_names_what_the_chain_alone_cannot_see(tmp_path: Path) -> None:
    newest_cut: Tamper = lambda f: rewrite(f / D3, lambda x: x[:1])  # noqa: E731
    newest_gone: Tamper = lambda f: (f / D3).unlink()  # noqa: E731
    last_damaged: Tamper = lambda f: rewrite(f / D3, lambda x: [x[0], x[1][:40]])  # noqa: E731
    expected = [(D3, 0, "truncated"), (D3, 0, "removed"), (D3, 2, "edited")]
    for number, (tamper, finding) in enumerate(zip((newest_cut, newest_gone, last_damaged), expected, strict=True)):
        for sealed in (False, True):
            folder = tmp_path / f"{number}-{sealed}"
            folder.mkdir()
            fill(folder, 2, 3, 2, seal_after=(2,) if sealed else ())
            tamper(folder)
            assert found(folder) == ([finding] if sealed else [])


def test_a_seal_names_a_day_that_was_added_under_it(tmp_path: Path) -> None:
    fill(tmp_path, 2, 2, seal_after=(0, 1))
    add_a_day(tmp_path)
    assert ("2026-11-12.jsonl", 0, "added") in found(tmp_path)


def test_a_seal_names_a_closed_day_that_was_extended_and_the_days_after_it_removed(tmp_path: Path) -> None:
    fill(tmp_path, 2, 3, 2, seal_after=(2,))
    extend_a_closed_day(tmp_path)
    (tmp_path / D3).unlink()
    assert sorted(found(tmp_path)) == [(D2, 0, "added"), (D3, 0, "removed")]


def test_a_seal_names_changed_bytes_of_a_closed_day_when_the_days_after_it_are_removed(tmp_path: Path) -> None:
    fill(tmp_path, 2, 3, 2, seal_after=(2,))
    (tmp_path / D3).unlink()
    for wrong, what in (((c := (tmp_path / D2).read_bytes()) + b"x", "added"), (c[:-1], "truncated")):
        (tmp_path / D2).write_bytes(wrong)
        assert sorted(found(tmp_path)) == [(D2, 0, what), (D3, 0, "removed")]


def tear(path: Path, garbage: bytes = b'{"seq":9,"pre') -> None:
    with path.open("ab") as file:
        file.write(garbage)


INSERTED: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "in front": lambda x: [b"garbage\n", *x],
    "in between": lambda x: [x[0], b"garbage\n", *x[1:]],
    "behind": lambda x: [*x, b"garbage\n"],
    "line ends": lambda x: [x[0], b"\n\n", *x[1:]],
    "zeros": lambda x: [*x, bytes(9)],
}


@pytest.mark.parametrize("how", INSERTED)
@pytest.mark.parametrize("sealed", [False, True], ids=["unsealed", "sealed"])
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "keyless"])
def test_a_closed_day_cannot_be_torn(tmp_path: Path, how: str, sealed: bool, keyed: bool) -> None:
    """Closed by the record that follows, also when the seal does not know of that one yet."""
    fill(tmp_path, 2, 2, 1, seal_after=(0, 1) if sealed else ())
    for name in (D1, D2):
        content = (tmp_path / name).read_bytes()
        rewrite(tmp_path / name, INSERTED[how])
        assert found(tmp_path, KEY if keyed else None) == [(name, 0, "added")]
        with pytest.raises(errors.AuditCorrupt):
            seals.seal(tmp_path, KEY)
        (tmp_path / name).write_bytes(content)
    assert found(tmp_path) == []


def test_the_sealed_part_of_the_open_day_keeps_its_bytes_and_the_rest_may_be_torn(tmp_path: Path) -> None:
    fill(tmp_path, 2, 2, seal_after=(1,))
    rewrite(tmp_path / D2, INSERTED["in between"])
    assert found(tmp_path) == [(D2, 0, "edited")]
    rewrite(tmp_path / D2, lambda x: [x[0], *x[2:]])
    tear(tmp_path / D2)
    report = seals.verify(tmp_path, KEY)
    assert report.sound and [torn.file for torn in report.torn] == [D2]


def test_a_line_torn_before_its_day_was_closed_stays_torn_and_keeps_its_bytes(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    tear(tmp_path / D1)
    seals.seal(tmp_path, KEY, clock=Clock())
    audit.AuditLog(tmp_path, KEY, clock=Clock()).append("same day", "tests")
    tear(tmp_path / D1, b"torn again")
    assert seals.verify(tmp_path, KEY).sound
    for day in (1, 2):
        audit.AuditLog(tmp_path, KEY, clock=Clock(NOON + day * DAY_S)).append("later", "tests")
        assert seals.verify(tmp_path, KEY).sound
    seals.seal(tmp_path, KEY)
    report = seals.verify(tmp_path, KEY)
    assert report.sound and [(torn.file, torn.line) for torn in report.torn] == [(D1, 3), (D1, 5)]
    content = (tmp_path / D1).read_bytes()
    for wrong in (content.replace(b"torn again", b"TORN AGAIN"), content.replace(b'9,"pre', b'8,"pre')):
        assert wrong != content
        (tmp_path / D1).write_bytes(wrong)
        assert found(tmp_path) == [(D1, 0, "edited")]
    for wrong, what in ((content + b"x", "added"), (content[:-1], "truncated")):
        (tmp_path / D1).write_bytes(wrong)
        assert found(tmp_path) == [(D1, 0, what)]


def test_a_forged_seal_is_named_and_not_held_against_the_log(tmp_path: Path) -> None:
    """Its days and root agree with each other; only the next seal knows better, key or not."""
    first, _ = fill(tmp_path, 1, 1, seal_after=(0, 1))
    path = tmp_path / "merkle" / first.file
    days = [seals.SealedDay(D1, 1, "0" * 64, "1" * 64, 300, "2" * 64)]
    forged = msgspec.structs.replace(first, days=days, root=seals.day_root(days))
    path.write_bytes(msgspec.json.encode(forged) + b"\n")
    for key in (KEY, None):
        assert found(tmp_path, key) == [(f"merkle/{first.file}", 0, "edited")]


def test_a_log_may_grow_after_a_seal_within_the_day_and_beyond(tmp_path: Path) -> None:
    clock = Clock()
    with audit.AuditLog(tmp_path, KEY, clock=clock) as log:
        for number in range(6):
            clock.now = NOON + (number // 3) * DAY_S
            log.append(f"{number}", "tests")
            seals.seal(tmp_path, KEY, clock=clock)
    log.append("unsealed", "tests")
    report = seals.verify(tmp_path, KEY)
    assert report.sound and (report.days, report.records, report.seals) == (2, 7, 6)


def test_a_living_log_never_looks_damaged() -> None:
    """The seals are read before the days: whatever is written meanwhile, no day is shorter than they say."""
    with scratch() as folder:

        def live() -> None:
            clock = Clock()
            with audit.AuditLog(folder, KEY, clock=clock) as log:
                for number in range(60):
                    clock.now = NOON + (number // 10) * DAY_S
                    log.append(f"{number}", "tests")
                    seals.seal(folder, KEY, clock=clock)

        writer = threading.Thread(target=live)
        writer.start()
        verified = 0
        while writer.is_alive():
            assert found(folder) == []
            verified += 1
        assert verified > 0 and seals.verify(folder, KEY).seals == 60


def test_every_missing_or_changed_seal_but_the_newest_is_named(tmp_path: Path) -> None:
    made = fill(tmp_path, 1, 1, 1, seal_after=(0, 1, 2))
    names = [f"merkle/{seal.file}" for seal in made]
    for index, key in ((0, KEY), (1, KEY), (0, None), (1, None)):
        content = (tmp_path / names[index]).read_bytes()
        (tmp_path / names[index]).unlink()
        assert found(tmp_path, key) == [(names[index], 0, "removed")]
        (tmp_path / names[index]).write_bytes(content.replace(b'"sealed_at":"2026', b'"sealed_at":"2027'))
        assert {file for file, _, _ in found(tmp_path, key)} == {names[index]}
        (tmp_path / names[index]).write_bytes(content)
    assert found(tmp_path) == []


def test_a_seal_of_another_key_a_renamed_and_an_extra_one_are_named(tmp_path: Path) -> None:
    first, second = fill(tmp_path, 1, 1, seal_after=(0, 1))
    folder = tmp_path / "merkle"
    (folder / "seal-20270101T000000.000000Z.json").write_bytes((folder / second.file).read_bytes())
    assert ("merkle/seal-20270101T000000.000000Z.json", 0, "renamed") in found(tmp_path)
    (folder / "seal-20270101T000000.000000Z.json").unlink()
    (folder / first.file).rename(folder / "seal-20200101T000000.000000Z.json")
    assert ("merkle/seal-20200101T000000.000000Z.json", 0, "renamed") in found(tmp_path)
    (folder / "seal-20200101T000000.000000Z.json").rename(folder / first.file)
    assert found(tmp_path) == []
    report = seals.verify(tmp_path, AuditKey(b"another" * 5))
    assert {finding.what for finding in report.findings} == {"edited"}


def test_sealing_again_without_new_records_makes_no_new_seal(tmp_path: Path) -> None:
    (made,) = fill(tmp_path, 2, seal_after=(0,))
    assert seals.seal(tmp_path, KEY) == made and seals.seal_files(tmp_path) == [made.file]
    assert made.file.startswith("seal-20261115T1200") and made.root == seals.day_root(made.days)


def test_seals_sort_in_the_order_of_sealing_even_when_the_clock_goes_back(tmp_path: Path) -> None:
    made = []
    for number in range(3):
        audit.AuditLog(tmp_path, KEY, clock=Clock()).append("x", "tests")
        made.append(seals.seal(tmp_path, KEY, clock=lambda now=NOON - number * DAY_S: now).file)
    assert made == sorted(made) == seals.seal_files(tmp_path) and found(tmp_path) == []


def test_an_empty_log_verifies_and_cannot_be_sealed(tmp_path: Path) -> None:
    report = seals.verify(tmp_path / "none", KEY)
    assert report.sound and report.missing and (report.days, report.records, report.seals) == (0, 0, 0)
    (tmp_path / "none").mkdir()
    assert seals.verify(tmp_path / "none", KEY) == msgspec.structs.replace(report, missing=False)
    with pytest.raises(errors.InputError, match="no record to seal"):
        seals.seal(tmp_path / "none", KEY)


def test_an_unreadable_file_is_a_finding(tmp_path: Path) -> None:
    made = fill(tmp_path, 1, 1, seal_after=(0, 1))
    (tmp_path / "merkle" / made[0].file).unlink()
    (tmp_path / "merkle" / made[0].file).mkdir()
    assert found(tmp_path) == [(f"merkle/{made[0].file}", 0, "unreadable")]


def test_a_flood_of_findings_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "FINDINGS_MAX", 5)
    fill(tmp_path, 12)
    rewrite(tmp_path / D1, lambda lines: lines[::-1])
    report = seals.verify(tmp_path, KEY)
    assert len(report.findings) == 5 and report.unlisted > 0
    with pytest.raises(errors.AuditCorrupt, match="more"):
        seals.seal(tmp_path, KEY)


def test_a_finding_reads_as_a_sentence(tmp_path: Path) -> None:
    fill(tmp_path, 2, 1, 1)
    (tmp_path / D2).unlink()
    assert seals.verify(tmp_path, KEY).findings == [AuditFinding(D2, 0, "removed", f"{D3} follows it")]
    with pytest.raises(errors.AuditCorrupt) as caught:
        seals.seal(tmp_path, KEY)
    assert str(caught.value).startswith(
        f"The audit log does not verify at {tmp_path / D2}: removed: {D3} follows it. Nothing was changed or deleted"
    )


@pytest.mark.parametrize("more", [0, 1])
def test_a_seal_and_a_day_that_their_makers_did_not_live_to_sync_are_made_certain_of(tmp_path: Path, more: int) -> None:
    """`more` 0: the seal is found and returned. 1: another is made that follows it."""
    folder = tmp_path / "audit"
    with scratch() as elsewhere:
        made = fill(elsewhere, 1, seal_after=(0,))[0]
        day = (elsewhere / D1).read_bytes()
        seal = (seals.seals_folder(elsewhere) / made.file).read_bytes()

    def program(recorder: Recorder) -> None:
        for path, content in ((folder / D1, day), (seals.seals_folder(folder) / made.file, seal)):
            recorder.mkdir(path.parent)
            with disk.StagedFile(path.parent) as staged:
                staged.write(content)
                staged.sync()
                staged.link(path)
        if more:
            with audit.AuditLog(folder, KEY, clock=Clock(NOON + DAY_S)) as log:
                log.append("next day", "tests")
            recorder.mark("next day")
        seals.seal(folder, KEY, clock=Clock(NOON + DAY_S))
        recorder.mark("sealed")

    sealed = 0
    for acknowledged, root in each_disk(record(tmp_path, program)):
        if acknowledged:
            report = seals.verify(root / "audit", KEY)
            assert report.sound and report.days == 1 + more
            assert len(acknowledged) <= more or report.seals == 1 + more
            sealed += report.seals == 1 + more
    assert sealed
