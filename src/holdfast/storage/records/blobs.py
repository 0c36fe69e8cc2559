"""Blobs: bytes stored once, under the name of their own SHA-256.

    cas/xx/<sha256>              the bytes themselves; xx are the digest's first two digits
    cas/xx/<sha256>.meta.json    one line of JSON: size, content_type, created (float Unix seconds), metadata

Invariants:

- A file has its final name only after its content was synced, so a crash never leaves half a blob there. One whose
  content does not match its name was damaged later: it is reported, never served, and mended by the next put of the
  same content.
- A blob counts as stored when its file exists. A crash inside a put may leave a description without a blob, or a blob
  without a description; neither was acknowledged, and the next put completes it.
- When a put returns, the bytes, the description and every folder entry up to the data root are on stable storage, also
  when another process put them there a moment ago. A failed sync is final: no later put is acknowledged; reads work.
- The first description stays: putting the same bytes again does not change it. Threads and processes need no lock.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

from holdfast import errors
from holdfast.storage.files import disk
from holdfast.storage.records import blob_meta
from holdfast.storage.records.blob_meta import UNKNOWN_TYPE, Meta

_DIGEST = re.compile(r"[0-9a-f]{64}")
_CHUNK_BYTES = 1 << 20
# A batch holds two open files for each blob: this stays far below the usual limit of 1,024.
_BATCH_MAX = 128
_REMEMBERED_MAX = 50_000


class NewBlob(NamedTuple):
    """A blob for `put_many` with a content type and metadata."""

    data: bytes
    content_type: str = UNKNOWN_TYPE
    metadata: Mapping[str, str] | None = None


class Blobs:
    """The store in `folder`, which the first put creates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._failure: errors.SyncFailed | None = None
        # The files, by inode, that are known to be durable, so that only the first repeat of a put costs a sync.
        self._durable: dict[str, tuple[int, int, int]] = {}

    # -- putting ------------------------------------------------------------------------------------------------------

    def put(self, data: bytes, *, content_type: str = UNKNOWN_TYPE, metadata: Mapping[str, str] | None = None) -> str:
        """Stores `data` and returns its digest."""
        blob = self._path(hashlib.sha256(data).hexdigest())
        meta = blob_meta.describe(len(data), content_type, metadata)
        with self._acknowledging():
            if not self._is_intact(blob, meta):
                with disk.StagedFile(self._ready_folder(blob)) as staged:
                    staged.write(data)
                    staged.sync()
                    _write_meta(blob, meta)
                    staged.rename(blob)
                    disk.sync_folder(blob.parent)
        return blob.name

    def put_many(self, items: Iterable[bytes | NewBlob]) -> list[str]:
        """Stores many small blobs for two syncs. When it fails, some may be stored; none was acknowledged."""
        rest = iter(items)
        digests: list[str] = []
        while batch := list(itertools.islice(rest, _BATCH_MAX)):
            blobs = [item if isinstance(item, NewBlob) else NewBlob(item) for item in batch]
            digests += self._put_batch(blobs)
        return digests

    def _put_batch(self, items: list[NewBlob]) -> list[str]:
        blobs = [self._path(hashlib.sha256(item.data).hexdigest()) for item in items]
        metas = [blob_meta.describe(len(item.data), item.content_type, item.metadata) for item in items]
        added: set[Path] = set()
        with self._acknowledging(), disk.Batch(self._settle(self.folder)) as batch:
            for blob, item, meta in zip(blobs, items, metas, strict=True):
                if blob not in added and not self._is_intact(blob, meta):
                    added.add(blob)
                    path = blob_meta.path_of(blob)
                    batch.add_folder(blob.parent)
                    batch.add(
                        path, blob_meta.encode(meta), keep=not path.exists() or blob_meta.is_good(blob, meta.size)
                    )
                    batch.add(blob, item.data)
            if added:
                batch.publish()
        return [blob.name for blob in blobs]

    def _is_intact(self, blob: Path, meta: Meta) -> bool:
        """Whether the blob is there and holds its bytes; then this makes sure that it is described and durable."""
        try:
            with _open_verified(blob) as file:
                stat = os.fstat(file.fileno())
        except (errors.BlobMissing, errors.BlobCorrupt):
            return False
        very_file = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        described = blob_meta.is_good(blob, meta.size)
        if not described or self._durable.get(blob.name) != very_file:
            # Another process may have named it a moment ago and not synced yet, or a person copied it here by hand.
            self._ready_folder(blob)
            if not described:
                _write_meta(blob, meta)
            disk.sync_file(blob)
            disk.sync_file(blob_meta.path_of(blob))
            disk.sync_folder(blob.parent)
            if len(self._durable) >= _REMEMBERED_MAX:
                self._durable.clear()
            self._durable[blob.name] = very_file
        return True

    def _ready_folder(self, blob: Path) -> Path:
        self._settle(self.folder)
        return self._settle(blob.parent)

    def _settle(self, folder: Path) -> Path:
        """Makes a folder and its entry durable: its maker may not have synced it yet."""
        disk.mkdir(folder)
        return folder

    @contextlib.contextmanager
    def _acknowledging(self) -> Iterator[None]:
        """Wraps every put. After a failed sync, another one could succeed over data that the disk never got."""
        self._refuse_if_poisoned()
        try:
            yield
        except errors.SyncFailed as failure:
            self._failure = failure
            raise
        self._refuse_if_poisoned()

    def _refuse_if_poisoned(self) -> None:
        if self._failure is not None:
            raise errors.Poisoned(path=self.folder, reason=self._failure.facts["reason"]) from self._failure

    # -- getting ------------------------------------------------------------------------------------------------------

    def get(self, digest: str) -> bytes:
        """The bytes, verified."""
        blob = self._path(digest)
        with _open(blob) as file, _reading(blob):
            data = file.read()
        _expect(blob, hashlib.sha256(data).hexdigest())
        return data

    def open_stream(self, digest: str) -> Iterator[bytes]:
        """The bytes in chunks, in constant memory, for the price of reading them twice.

        Verifies the whole blob before it returns, so that no byte of a corrupt one is handed out. Then reads the very
        file that was verified, whatever takes its name meanwhile; if that is changed in place while it is read,
        BlobCorrupt comes instead of the last chunk.
        """
        blob = self._path(digest)
        return _serve(_open_verified(blob), blob)

    def has(self, digest: str) -> bool:
        """Whether there is such a blob; only reading it shows whether it is intact."""
        blob = self._path(digest)
        with disk.reading(blob):
            return blob.is_file()

    def meta(self, digest: str) -> Meta:
        """The description. Raises BlobUndescribed if it is missing or damaged; the blob itself can still be read."""
        blob = self._path(digest)
        with _open(blob) as file:
            size = os.fstat(file.fileno()).st_size
        return blob_meta.read(blob, size)

    def digests(self) -> Iterator[str]:
        """The id of every blob, in order."""
        for shelf in _names(self.folder):
            for name in _names(self.folder / shelf):
                if _DIGEST.fullmatch(name) and name[:2] == shelf:
                    yield name

    def _path(self, digest: str) -> Path:
        if not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
            raise errors.NotABlobId(digest=digest)
        return self.folder / digest[:2] / digest


# -- one blob's files -------------------------------------------------------------------------------------------------


def _write_meta(blob: Path, meta: Meta) -> None:
    """Writes or mends the description. The caller syncs the folder."""
    path = blob_meta.path_of(blob)
    with disk.StagedFile(path.parent) as staged:
        staged.write(blob_meta.encode(meta))
        staged.sync()
        try:
            staged.link(path)
        except errors.AlreadyExists:
            # A good one is of a faster writer, and may be acknowledged already: it stays.
            if not blob_meta.is_good(blob, meta.size):
                staged.rename(path)


def _open(blob: Path) -> BufferedReader:
    try:
        return open(blob, "rb")
    except FileNotFoundError:
        raise errors.BlobMissing(digest=blob.name, path=blob.parent.parent) from None
    except OSError as error:
        raise errors.DiskError(operation="read", path=blob, reason=error.strerror) from error


def _open_verified(blob: Path) -> BufferedReader:
    file = _open(blob)
    try:
        with _reading(blob):
            found = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
        _expect(blob, found)
    except BaseException:
        file.close()
        raise
    return file


def _serve(file: BufferedReader, blob: Path) -> Iterator[bytes]:
    hasher, held = hashlib.sha256(), b""
    with file, _reading(blob):
        while chunk := file.read(_CHUNK_BYTES):
            hasher.update(chunk)
            if held:
                yield held
            held = chunk
    _expect(blob, hasher.hexdigest())
    if held:
        yield held


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise errors.DiskError(operation="read", path=folder, reason=error.strerror or str(error)) from error


def _expect(blob: Path, found: str) -> None:
    if found != blob.name:
        raise errors.BlobCorrupt(path=blob, reason=f"its SHA-256 is {found}")


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raises BlobCorrupt for a file that opens, but cannot be read to its end."""
    try:
        yield
    except OSError as error:
        raise errors.BlobCorrupt(path=path, reason=error.strerror or str(error)) from error
