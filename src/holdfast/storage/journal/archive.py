"""Ended run files, compressed: `runtime/wal/archive/<run>.wal.jsonl.zst`, byte for byte what the plain file was.

The chain goes on over the archive. A plain file is removed only when its copy is on disk and reads back the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import IO

from holdfast.errors import JournalCorrupt
from holdfast.storage.files import disk
from holdfast.storage.journal.reader import ARCHIVED, Chain, RunFile
from holdfast.storage.journal.writer import SUFFIX

_CHUNK = 1 << 20


def to_archive(wal: Path, keep: int) -> list[RunFile]:
    """The plain run files but for the `keep` newest, and never the newest of all: that one may be alive."""
    plain = [file for file in Chain(wal).runs() if file.path.name.endswith(SUFFIX)]
    return plain[: -max(keep, 1)]


def archive_ended_runs(wal: Path, keep: int = 1) -> list[str]:
    """Archives what `to_archive` tells; returns their names. The caller holds the data root; readers may go on."""
    files = to_archive(wal, keep)
    if files:
        disk.mkdir(wal / "archive")
    for file in files:
        target = wal / "archive" / f"{file.run}{ARCHIVED}"
        with file.open()[0] as source:
            disk.replace(target, _compressed(source))
        if _digest(RunFile(file.run, target)) != _digest(file):
            raise JournalCorrupt(path=target, offset=0, reason="the archived copy does not read back as it was written")
        disk.unlink(file.path)
    return [file.run for file in files]


def _compressed(source: IO[bytes]) -> Iterator[bytes]:
    from backports.zstd import CompressionParameter, ZstdCompressor

    options: dict[int, int] = {CompressionParameter.compression_level: 9, CompressionParameter.checksum_flag: 1}
    compressor = ZstdCompressor(options=options)
    yield from map(compressor.compress, _chunks(source))
    yield compressor.flush()


def _digest(file: RunFile) -> bytes:
    digest = sha256()
    with file.open()[0] as stream:
        for chunk in _chunks(stream):
            digest.update(chunk)
    return digest.digest()


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: stream.read(_CHUNK), b"")
