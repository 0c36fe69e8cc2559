"""What the tests of the blob store share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from holdfast import errors
from holdfast.storage.records.blobs import Blobs

ONE, TWO, THREE = b"one" * 200, b"two" * 200, b""


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file_of(folder: Path, data: bytes) -> Path:
    return folder / sha(data)[:2] / sha(data)


def damage(path: Path, content: bytes = b"damaged") -> None:
    path.write_bytes(content)


def flaws(blobs: Blobs) -> dict[str, type[Exception]]:
    """Reads every blob and its description, in constant memory: what is wrong with each that is not whole."""
    found: dict[str, type[Exception]] = {}
    for digest in blobs.digests():
        try:
            for _ in blobs.open_stream(digest):
                pass
            blobs.meta(digest)
        except (errors.BlobCorrupt, errors.BlobMissing, errors.BlobUndescribed, errors.DiskError) as error:
            found[digest] = type(error)
    return found


PUTS: dict[str, Callable[[Blobs, bytes], object]] = {
    "put": lambda blobs, data: blobs.put(data),
    "put_many": lambda blobs, data: blobs.put_many([data]),
}
