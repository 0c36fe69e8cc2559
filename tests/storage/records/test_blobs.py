from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import errors
from holdfast.storage.files import disk
from holdfast.storage.records import blob_meta
from holdfast.storage.records.blobs import Blobs, NewBlob
from holdfast.testing.recorder import Recorder
from kit.blobs import ONE, PUTS, TWO, damage, file_of, flaws, sha
from kit.disks import record, scratch

# -- what is put can be got -------------------------------------------------------------------------------------------


def test_a_stored_blob_can_be_read_and_is_described(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "deep" / "cas")
    assert list(blobs.digests()) == [] and flaws(blobs) == {} and not blobs.has(sha(ONE))
    before = time.time()
    assert blobs.put(ONE, content_type="text/plain", metadata={"task": "a.1"}) == sha(ONE)
    assert blobs.get(sha(ONE)) == ONE and blobs.has(sha(ONE))
    raw = (tmp_path / "deep" / "cas" / sha(ONE)[:2] / f"{sha(ONE)}.meta.json").read_bytes()
    assert raw.endswith(b"}\n") and list(json.loads(raw)) == ["size", "content_type", "created", "metadata"]
    meta = blobs.meta(sha(ONE))
    assert (meta.size, meta.content_type, meta.metadata) == (600, "text/plain", {"task": "a.1"})
    assert before <= meta.created <= time.time()


def test_a_large_blob_is_served_in_chunks(tmp_path: Path) -> None:
    whole = b"a" * 1000 + b"b" * 3_000_000 + b"c"
    blobs = Blobs(tmp_path / "cas")
    digest = blobs.put(whole, content_type="text/plain")
    assert digest == sha(whole) and blobs.meta(digest).size == len(whole)
    served = list(blobs.open_stream(digest))
    assert b"".join(served) == whole and len(served) > 1
    assert sorted(path.name for path in (tmp_path / "cas").iterdir()) == [digest[:2]]


def test_the_empty_blob_is_stored_like_any_other(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "cas")
    assert {blobs.put(b""), *blobs.put_many([b"", b""])} == {sha(b"")}
    assert blobs.get(sha(b"")) == b"" and list(blobs.open_stream(sha(b""))) == []
    assert blobs.meta(sha(b"")).size == 0 and flaws(blobs) == {}


def test_many_at_once_keep_their_order_and_options(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "cas")
    first = blobs.put(b"0")
    items = [b"%d" % (number % 300) for number in range(400)]
    described = NewBlob(b"said", "text/plain", {"k": "v"})
    assert blobs.put_many([*items, described]) == [*map(sha, items), sha(b"said")]
    assert blobs.meta(sha(b"said")).metadata == {"k": "v"} and blobs.meta(first).content_type == blob_meta.UNKNOWN_TYPE
    assert sorted(blobs.digests()) == list(blobs.digests()) and len(list(blobs.digests())) == 301
    assert blobs.put_many([]) == []


def test_serving_a_large_blob_takes_little_memory(tmp_path: Path) -> None:
    script = """
import resource, sys
from pathlib import Path
from typing import Any
from holdfast.storage.records.blobs import Blobs
blobs = Blobs(Path(sys.argv[1]))
blobs.put(b'warm')
digest = sys.argv[2]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
size = sum(len(chunk) for chunk in blobs.open_stream(digest))
print(size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    digest = Blobs(tmp_path / "cas").put(bytes(range(256)) * 1024 * 256)
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "cas", digest], check=True, capture_output=True)
    size, grown_kb = map(int, done.stdout.split())
    assert size == 64 << 20 and grown_kb < 12 << 10


# -- the same bytes again ---------------------------------------------------------------------------------------------


def test_the_same_bytes_are_stored_once_and_the_first_description_stays(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "cas")
    blobs.put(ONE, content_type="text/first", metadata={"by": "first"})
    stood = file_of(tmp_path / "cas", ONE).stat()
    blobs.put(ONE, content_type="text/second")
    blobs.put_many([NewBlob(ONE, "text/fourth"), ONE])
    assert file_of(tmp_path / "cas", ONE).stat().st_ino == stood.st_ino
    assert blobs.meta(sha(ONE)).content_type == "text/first" and blobs.meta(sha(ONE)).metadata == {"by": "first"}


def test_only_the_first_repeat_costs_a_sync(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "cas")
    blobs.put(ONE)

    def repeat(_: Recorder) -> None:
        blobs.put(ONE)
        blobs.put_many([ONE])

    assert {call.kind for call in record(tmp_path, repeat).calls} == {"sync"}
    assert record(tmp_path, repeat).calls == []
    blob_meta.path_of(file_of(tmp_path / "cas", ONE)).unlink()
    assert record(tmp_path, repeat).calls != [] and flaws(blobs) == {}
    os.utime(file_of(tmp_path / "cas", ONE))
    assert record(tmp_path, repeat).calls != [], "a file that was touched is another file, and not known to be durable"


def test_the_same_bytes_twice_in_one_batch_are_written_once(tmp_path: Path) -> None:
    recorder = record(tmp_path, lambda _: Blobs(tmp_path / "cas").put_many([ONE, TWO, ONE]))
    assert sum(call.kind == "create" for call in recorder.calls) == 4
    assert sum(call.kind == "syncfs" for call in recorder.calls) == 2


@pytest.mark.parametrize("put", PUTS.values(), ids=PUTS)
def test_a_corrupt_blob_is_reported_never_served_and_mended(
    tmp_path: Path, put: Callable[[Blobs, bytes], object]
) -> None:
    blobs = Blobs(tmp_path / "cas")
    blobs.put(ONE, metadata={"by": "first"})
    for bad in (b"", ONE[:-1], ONE + b"\0", ONE[:300] + b"X" + ONE[301:]):
        damage(file_of(tmp_path / "cas", ONE), bad)
        for serve in (blobs.get, blobs.open_stream):
            with pytest.raises(errors.BlobCorrupt, match=f"{sha(ONE)} does not hold .* is {sha(bad)}.* left as it is"):
                serve(sha(ONE))
        assert flaws(blobs) == {sha(ONE): errors.BlobCorrupt}
        assert file_of(tmp_path / "cas", ONE).read_bytes() == bad
        put(blobs, ONE)
        assert blobs.get(sha(ONE)) == ONE and flaws(blobs) == {}
    assert blobs.meta(sha(ONE)).metadata == {"by": "first"}


@pytest.mark.parametrize("put", PUTS.values(), ids=PUTS)
@pytest.mark.parametrize(
    "bad",
    [None, b"", b"{", b"\xff", b"[]", b'{"size":600}', b'{"size":599,"content_type":"a","created":1,"metadata":{}}'],
)
def test_a_description_that_is_missing_or_damaged(
    tmp_path: Path, put: Callable[[Blobs, bytes], object], bad: bytes | None
) -> None:
    blobs = Blobs(tmp_path / "cas")
    blobs.put(ONE)
    path = blob_meta.path_of(file_of(tmp_path / "cas", ONE))
    for blob_too in (False, True):
        path.unlink() if bad is None else damage(path, bad)
        assert blobs.get(sha(ONE)) == ONE and flaws(blobs) == {sha(ONE): errors.BlobUndescribed}
        with pytest.raises(errors.BlobUndescribed, match="put the same content again"):
            blobs.meta(sha(ONE))
        if blob_too:
            file_of(tmp_path / "cas", ONE).unlink()
        put(blobs, ONE)
        assert blobs.meta(sha(ONE)).size == 600 and blobs.get(sha(ONE)) == ONE and flaws(blobs) == {}


def test_a_cut_or_a_flip_at_any_byte_is_seen(memory_path: Path) -> None:
    blobs = Blobs(memory_path / "cas")
    digest = blobs.put(ONE[:60], metadata={"task": "a.1"})
    blob = file_of(memory_path / "cas", ONE[:60])
    for at in range(60):
        for bad in (ONE[:at], ONE[:at] + bytes([ONE[at] ^ 1 << at % 8]) + ONE[at + 1 : 60]):
            damage(blob, bad)
            with pytest.raises(errors.BlobCorrupt):
                blobs.get(digest)
    damage(blob, ONE[:60])
    whole = blob_meta.path_of(blob).read_bytes()
    for at in range(len(whole) - 2):
        damage(blob_meta.path_of(blob), whole[:at])
        with pytest.raises(errors.BlobUndescribed):
            blobs.meta(digest)
        assert blobs.get(digest) == ONE[:60]


@given(st.binary(max_size=40))
def test_a_description_of_any_bytes_is_an_error_that_names_it(bad: bytes) -> None:
    with scratch() as folder:
        digest = Blobs(folder).put(ONE)
        damage(blob_meta.path_of(file_of(folder, ONE)), b'{"size":600,"content_type":"' + bad)
        with pytest.raises(errors.BlobUndescribed, match=digest):
            Blobs(folder).meta(digest)


def test_a_stream_goes_on_from_the_file_that_was_verified(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "cas")
    whole = random.Random(1).randbytes(3_000_000)
    served = blobs.open_stream(blobs.put(whole))
    disk.replace(file_of(tmp_path / "cas", whole), b"something else")
    assert b"".join(served) == whole


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "digest",
    [
        "",
        "../x",
        "../" * 21 + "x",
        "a" * 63,
        "a" * 65,
        "A" * 64,
        "g" * 64,
        "a" * 64 + "\n",
        "a" * 62 + "/.",
        "\u0661" * 64,
        b"a" * 64,
        None,
        7,
    ],
)
def test_an_id_that_is_no_hash_reaches_no_path(tmp_path: Path, digest: str) -> None:
    blobs = Blobs(tmp_path / "cas")
    for call in (blobs.get, blobs.open_stream, blobs.meta, blobs.has):
        with pytest.raises(errors.NotABlobId, match="64 lower-case hexadecimal"):
            call(digest)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_blob_is_named(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "cas")
    for call in (blobs.get, blobs.open_stream, blobs.meta):
        with pytest.raises(errors.BlobMissing, match=f"no blob {sha(ONE)} in .*cas"):
            call(sha(ONE))


@pytest.mark.parametrize("options", [{"content_type": 7}, {"metadata": {"n": 1}}, {"metadata": {"n": "\ud800"}}])
def test_options_that_are_no_text_store_nothing(tmp_path: Path, options: dict[str, object]) -> None:
    blobs = Blobs(tmp_path / "cas")
    for put in (
        lambda: blobs.put(ONE, **options),  # type: ignore[arg-type]
        lambda: blobs.put_many([TWO, NewBlob(ONE, **options)]),  # type: ignore[arg-type]
    ):
        with pytest.raises(errors.InputError, match="must be text"):
            put()
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "cas").write_text("a file")
    for put in PUTS.values():
        with pytest.raises(errors.DiskError, match=r"tmp|cas"):
            put(Blobs(tmp_path / "cas"), ONE)
    with pytest.raises(errors.DiskError, match="Not a directory"):
        Blobs(tmp_path / "cas").get(sha(ONE))
    assert (tmp_path / "cas").read_text() == "a file"


def test_strangers_in_the_folder_are_passed_over(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "cas")
    blobs.put(ONE)
    (tmp_path / "cas" / "notes.txt").write_text("by hand")
    (tmp_path / "cas" / "zz").mkdir()
    (tmp_path / "cas" / "zz" / sha(TWO)).write_bytes(TWO)
    assert list(blobs.digests()) == [sha(ONE)]
    file_of(tmp_path / "cas", TWO).parent.mkdir()
    file_of(tmp_path / "cas", TWO).mkdir()
    assert flaws(blobs) == {sha(TWO): errors.DiskError}


@pytest.mark.parametrize("size", [512, 5 << 20])
def test_a_blob_changed_in_place_while_it_is_served_never_comes_to_its_end(tmp_path: Path, size: int) -> None:
    blobs = Blobs(tmp_path / "cas")
    data = bytes(range(256)) * (size // 256) + b"end"
    for change in (lambda file: file.seek(len(data) - 3) and file.write(b"rot"), lambda file: file.truncate(50)):
        digest = blobs.put(data)
        stream = blobs.open_stream(digest)
        with file_of(tmp_path / "cas", data).open("r+b") as file:
            change(file)
        served = b""
        with pytest.raises(errors.BlobCorrupt, match=digest):
            for chunk in stream:
                served += chunk
        assert data.startswith(served) and len(served) < len(data)


def test_a_store_that_cannot_be_looked_at_is_named(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / ("x" * 300))
    looks: list[Callable[[], object]] = [
        lambda: blobs.has(sha(ONE)),
        lambda: list(blobs.digests()),
    ]
    for look in looks:
        with pytest.raises(errors.DiskError, match=r"Could not read .*xxx.*File name too long"):
            look()
