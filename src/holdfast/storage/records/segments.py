"""The files of one ledger: the live file, and the segments that were cut from it.

    events.jsonl                                              live: the only file that grows
    events.0000000000004096-0000000000008192.jsonl            sealed: renamed, not compressed yet
    events.0000000000004096-0000000000008192.jsonl.zst        archived

The two numbers are the logical offsets of a segment's first byte and of the byte after its last one, counted from the
ledger's beginning, with 16 digits so that names sort. The live file begins where the newest segment ends.

An archived segment is a row of zstd frames, each with a checksum over at most 1 MiB of content: `zstdcat` reads it, and
a frame is checked before any of it is served. Packing can stop at any step: while both files exist they hold the same
range, readers take either, and `pack` finishes the work.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from holdfast.errors import DiskError, InvalidName, SegmentDamaged
from holdfast.storage.files import disk

SUFFIX = ".jsonl"
_PACKED = ".zst"
_CHUNK = 1 << 20


class Segment(msgspec.Struct, frozen=True, order=True):
    """A range of logical offsets that was cut from the live file."""

    start: int
    end: int


class Segments:
    def __init__(self, live: Path) -> None:
        self.live = live
        self._folder = live.parent
        self._stem = live.name.removesuffix(SUFFIX)
        if not live.name.endswith(SUFFIX) or not self._stem:
            raise InvalidName(what="The ledger's file", name=live.name, rule=f"a name ending in {SUFFIX} is needed")
        if "\0" in str(live):
            raise InvalidName(what="The ledger's file", name=str(live), rule="a path cannot hold a NUL character")
        self._pattern = re.compile(rf"{re.escape(self._stem)}\.(\d{{16}})-(\d{{16}})\.jsonl(?:\.zst)?")

    def plain(self, segment: Segment) -> Path:
        return self._folder / f"{self._stem}.{segment.start:016d}-{segment.end:016d}{SUFFIX}"

    def packed(self, segment: Segment) -> Path:
        plain = self.plain(segment)
        return plain.with_name(plain.name + _PACKED)

    def listing(self) -> list[Segment]:
        """All segments, oldest first.

        A scan may miss a segment whose file is replaced by its archive meanwhile. That happens once in a segment's
        life, so two scans in a row that agree have seen all.
        """
        before, found = None, self._scan()
        while found != before:
            before, found = found, self._scan()
        return found

    def open_live(self) -> tuple[list[Segment], BinaryIO]:
        """The segments and the live file of one moment; an empty file when there is none at that moment."""
        while True:
            try:
                live = _open(self.live)
            except FileNotFoundError:
                return self.listing(), io.BytesIO()
            listing = self.listing()
            # The inode number of an open file is not reused: the same number means that no rotation came between.
            if disk.is_at(live.fileno(), self.live):
                return listing, live
            live.close()

    def unpacked(self) -> list[Segment]:
        return [segment for segment in self.listing() if self.plain(segment).exists()]

    def chunks(self, segment: Segment, offset: int) -> Iterator[bytes]:
        """The bytes from `offset` to the segment's end, or FileNotFoundError at once when it is gone by now.

        Raises SegmentDamaged where the content breaks off, does not match its checksum, or is behind a dead link.
        """
        skip, length = offset - segment.start, segment.end - offset
        path = self.plain(segment)
        try:
            source = _open(path)
        except FileNotFoundError:
            return self._packed_chunks(segment, skip, length)
        source.seek(skip)
        return _window(read_chunks(source, path), path, 0, length)

    def _packed_chunks(self, segment: Segment, skip: int, length: int) -> Iterator[bytes]:
        path = self.packed(segment)
        try:
            return _window(_unpacked(_open(path), path), path, skip, length)
        except FileNotFoundError:
            # A name that is still there does not vanish by itself: a caller that listed again would loop for ever.
            for link in filter(os.path.islink, (self.plain(segment), path)):
                return _nothing(link)
            raise

    def bytes_on_disk(self, segment: Segment) -> int:
        return sum(path.stat().st_size for path in (self.plain(segment), self.packed(segment)) if path.exists())

    def pack(self, segment: Segment) -> None:
        """Archives a sealed segment. Removes the plain file only after a whole copy is durable."""
        from backports.zstd import CompressionParameter, compress

        if not self._is_packed_whole(segment):
            options: dict[int, int] = {CompressionParameter.compression_level: 6, CompressionParameter.checksum_flag: 1}
            with _reading(self.plain(segment)):
                mode = stat.S_IMODE(self.plain(segment).stat().st_mode)
            with disk.StagedFile(self._folder, mode) as staged:
                for chunk in self.chunks(segment, segment.start):
                    staged.write(compress(chunk, options=options))
                staged.sync()
                staged.rename(self.packed(segment))
        # Also for an existing copy: the process that made it may have been killed before its name was on disk.
        disk.sync_folder(self._folder)
        disk.unlink(self.plain(segment))

    def drop(self, segment: Segment) -> None:
        for path in (self.plain(segment), self.packed(segment)):
            disk.unlink(path, missing_ok=True)

    def _scan(self) -> list[Segment]:
        try:
            with _reading(self._folder):
                names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        found = filter(None, map(self._pattern.fullmatch, names))
        return sorted({Segment(int(match[1]), int(match[2])) for match in found})

    def _is_packed_whole(self, segment: Segment) -> bool:
        path = self.packed(segment)
        try:
            return sum(map(len, _unpacked(_open(path), path))) == segment.end - segment.start
        except (FileNotFoundError, SegmentDamaged):
            return False


def newest_end(listing: list[Segment]) -> int:
    """The position at which the live file begins."""
    return listing[-1].end if listing else 0


def read_chunks(source: BinaryIO, path: Path) -> Iterator[bytes]:
    with source, _reading(path):
        yield from iter(lambda: source.read(_CHUNK), b"")


def _unpacked(source: BinaryIO, path: Path) -> Iterator[bytes]:
    """Yields the content frame by frame, each whole and after its checksum matched."""
    from backports.zstd import ZstdDecompressor, ZstdError

    chunks, pending = read_chunks(source, path), b""
    while pending or (pending := next(chunks, b"")):
        frame = ZstdDecompressor()
        content: list[bytes] = []
        try:
            while not frame.eof and (pending or (pending := next(chunks, b""))):
                content.append(frame.decompress(pending))
                pending = frame.unused_data
        except ZstdError as error:
            raise SegmentDamaged(path=path, reason=str(error)) from error
        if not frame.eof:
            raise SegmentDamaged(path=path, reason="it breaks off in the middle of a frame")
        yield b"".join(content)


def _window(chunks: Iterator[bytes], path: Path, skip: int, length: int) -> Iterator[bytes]:
    """`length` bytes of the content, after the first `skip`."""
    for chunk in chunks:
        piece = chunk[skip : skip + length]
        skip = max(0, skip - len(chunk))
        length -= len(piece)
        if piece:
            yield piece
        if length == 0:
            return
    if length:
        raise SegmentDamaged(path=path, reason=f"{length} bytes are missing at its end")


def _nothing(link: Path) -> Iterator[bytes]:
    yield from ()
    raise SegmentDamaged(path=link, reason="it is a symbolic link that leads to no file")


def _open(path: Path) -> BinaryIO:
    with _reading(path):
        return path.open("rb")


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Lets FileNotFoundError pass for the caller to judge; turns any other OSError into one that names the path."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DiskError(operation="read", path=path, reason=error.strerror or str(error)) from error
