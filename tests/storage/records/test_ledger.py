from __future__ import annotations

import itertools
import shutil
import subprocess
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from holdfast import errors
from holdfast.storage.records.ledger import LineLedger, Skip
from holdfast.storage.records.redact import Scrubber
from kit.line_ledgers import ledger_in, numbers

# -- records ----------------------------------------------------------------------------------------------------------


def test_a_line_is_plain_json_with_its_time_first(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path, clock=lambda: 12.5)
    ledger.append({"n": 1, "text": 'a "b"\n\u2028é', "big": 10**30})
    ledger.append({"n": 2, "ts": 3})
    lines = (tmp_path / "events.jsonl").read_bytes().split(b"\n")
    assert lines[0].startswith(b'{"ts":12.5,"n":1,"text":') and lines[1] == b'{"ts":3,"n":2}' and lines[2:] == [b""]
    assert [line.record for line in ledger.read()] == [
        {"ts": 12.5, "n": 1, "text": 'a "b"\n\u2028é', "big": 10**30},
        {"ts": 3, "n": 2},
    ]
    if jq := shutil.which("jq"):
        assert subprocess.run([jq, "-c", ".n", ledger.path], capture_output=True, check=True).stdout == b"1\n2\n"


def test_secrets_are_scrubbed_on_append(tmp_path: Path) -> None:
    with LineLedger(tmp_path / "spend.jsonl", scrub=Scrubber(['pa"ss\nwörd'], environ={})) as ledger:
        ledger.append({"note": 'it was pa"ss\nwörd', "api_key": "x"})
    assert b"w\xc3\xb6rd" not in ledger.path.read_bytes()
    assert next(ledger.read()).record["note"] == "it was [redacted]"


def deep(levels: int) -> Any:
    return [] if levels == 0 else [deep(levels - 1)]


circle: dict[str, Any] = {}
circle["self"] = circle


@pytest.mark.parametrize(
    "bad",
    [
        {"x": float("nan")},
        {"x": [float("inf")]},
        {"x": b"bytes"},
        {"x": {1, 2}},
        {"x": "\ud800"},
        {("a", "b"): 1},
        {"ts": "yesterday"},
        {"ts": True},
        {"ts": 10**400},
        {"x": deep(300)},
        circle,
        ["no mapping"],
    ],
)
def test_a_record_that_cannot_be_a_line_is_refused_and_nothing_is_written(tmp_path: Path, bad: Any) -> None:
    ledger = ledger_in(tmp_path / "new")
    with pytest.raises(errors.RecordUnfit, match=r"events\.jsonl: .+Nothing was written"):
        ledger.append_many([{"n": 1}, bad])
    assert not (tmp_path / "new").exists()
    ledger.append({"n": 2, "deep": deep(150)})
    assert numbers(ledger) == [2]


def test_a_very_long_record_passes_whole(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path, rotate_bytes_max=1000)
    for n in range(3):
        ledger.append({"n": n, "text": str(n) * 3_000_000})
    assert [(line.record["n"], len(line.record["text"])) for line in ledger.read()] == [
        (n, 3_000_000) for n in range(3)
    ]


def test_a_name_that_is_no_ledger_is_refused(tmp_path: Path) -> None:
    for name in ("events.log", ".jsonl"):
        with pytest.raises(errors.InvalidName):
            LineLedger(tmp_path / name)


def test_an_unusable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ledger = ledger_in(tmp_path / "file")
    with pytest.raises(errors.DiskError, match="file"):
        ledger.append({"n": 1})
    with pytest.raises(errors.DiskError, match="file"):
        list(ledger.read())
    (tmp_path / "events.jsonl").mkdir()
    with pytest.raises(errors.DiskError, match=r"events\.jsonl"):
        ledger_in(tmp_path).append({"n": 1})


def test_threads_share_one_ledger(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path, rotate_bytes_max=600)

    def write(thread: int) -> None:
        for n in range(20):
            ledger.append({"n": n, "thread": thread})

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        assert [line.record["n"] for line in ledger.read() if line.record["thread"] == number] == list(range(20))
    assert len(list(ledger.read())) == 80


# -- torn tails, cuts and flips ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tail", [b'{"ts":1,"n":', b"\0" * 700, b"\xff{}", b'{"a":' * 5000, b'{"n":9}\n\0\0{"n":9}', b"7"]
)
def test_a_torn_tail_never_swallows_the_next_record(tmp_path: Path, tail: bytes) -> None:
    with ledger_in(tmp_path) as before:
        whole = before.append({"n": 1})
    with before.path.open("ab") as file:
        file.write(tail)
    assert numbers(before) == ([1, 9] if b"\n" in tail else [1])
    ledger = ledger_in(tmp_path)
    ledger.append({"n": 2})
    skips: list[Skip] = []
    assert [n for n in numbers(ledger, 0, skips) if n != 9] == [1, 2]
    torn = len(tail.rpartition(b"\n")[2]) + 1
    assert [(skip.offset, skip.length) for skip in skips] == [(whole + len(tail) + 1 - torn, torn)]
    assert b"\n\n" not in ledger.path.read_bytes()


def test_a_last_line_without_newline_is_neither_yielded_nor_reported(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_bytes(b'{"n":1}\n{"n":2}')
    skips: list[Skip] = []
    assert numbers(ledger_in(tmp_path), 0, skips) == [1] and not skips
    assert ledger_in(tmp_path).end() == 8


def test_a_cut_at_any_byte_leaves_exactly_the_records_before_it(memory_path: Path) -> None:
    ledger = ledger_in(memory_path, clock=lambda: 1.0)
    ends = [0, *(ledger.append({"n": n, "text": 'é"\\' * n}) for n in range(4))]
    content = ledger.path.read_bytes()
    ledger.close()
    for cut in range(len(content) + 1):
        (memory_path / "events.jsonl").write_bytes(content[:cut])
        again, skips = ledger_in(memory_path, clock=lambda: 1.0), list[Skip]()
        whole = [n for n in range(4) if ends[n + 1] <= cut]
        assert numbers(again, 0, skips) == whole and not skips
        assert again.end() == ends[len(whole)]
        again.append({"n": 9})
        found = numbers(again, 0, skips)
        again.close()
        # Only a record that lacks nothing but its newline may come to life by the next one's fresh line.
        assert found == [*whole, 9] or (found == [*whole, len(whole), 9] and cut + 1 == ends[len(whole) + 1])


def test_a_flip_of_any_byte_stays_in_its_line(memory_path: Path) -> None:
    ledger = ledger_in(memory_path, clock=lambda: 1.0)
    ends = [0, *(ledger.append({"n": n, "text": ["a", {"b": n}]}) for n in range(3))]
    content = ledger.path.read_bytes()
    true = [line.record for line in ledger.read()]
    for at, flip in itertools.product(range(len(content)), (0x01, 0x08, 0x20, 0x80, content[0] ^ 0x0A, 0xFF)):
        changed = bytearray(content)
        changed[at] ^= flip
        (memory_path / "events.jsonl").write_bytes(changed)
        hit = next(n for n in range(3) if at < ends[n + 1])
        hurt = {hit, hit + 1} if content[at] == 0x0A else {hit}
        skips: list[Skip] = []
        by_cursor = {line.cursor: line.record for line in ledger_in(memory_path).read(0, skips.append)}
        for n in {0, 1, 2} - hurt:
            assert by_cursor[ends[n + 1]] == true[n]
        assert len(by_cursor) <= 3 and all(ends[hit] <= skip.offset < ends[hit] + 200 for skip in skips)


def test_a_cursor_inside_a_line_or_past_the_end(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path)
    first, last = ledger.append({"n": 1, "x": {"n": 5}}), ledger.append({"n": 2})
    for cursor in range(1, first):
        skips: list[Skip] = []
        assert numbers(ledger, cursor, skips) == [2]
        # From the newline alone nothing is missing.
        assert [(skip.offset, skip.length) for skip in skips] == [(cursor, first - cursor)][: first - cursor - 1]
    assert numbers(ledger, last) == []
    with pytest.raises(errors.CursorAhead, match=f"past the end of .*events.jsonl \\({last}\\)"):
        numbers(ledger, last + 1)
    with pytest.raises(errors.CursorAhead):
        numbers(ledger_in(tmp_path / "empty"), 1)
    with pytest.raises(errors.InputError, match="-1 is no cursor"):
        numbers(ledger, -1)


def test_a_path_with_a_nul_is_refused_in_a_sentence(tmp_path: Path) -> None:
    for path in (tmp_path / "a\0b.jsonl", tmp_path / "a\0b" / "events.jsonl"):
        with pytest.raises(errors.InvalidName, match="NUL"):
            LineLedger(path)


def test_a_lost_region_of_any_size_is_passed_over_in_constant_memory(tmp_path: Path) -> None:
    with ledger_in(tmp_path) as ledger:
        ledger.append({"n": 0})
    size, zeros = ledger.end(), 32 << 20
    with ledger.path.open("ab") as file:
        file.truncate(size + zeros)
        file.write(b'"n":1}\n{"ts":1,"n":2}\n')
    skips: list[Skip] = []
    tracemalloc.start()
    found = numbers(ledger, skips=skips)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [0, 2] and [(skip.offset, skip.length) for skip in skips] == [(size, zeros + 7)]
    assert peak < zeros // 4
