"""The description beside each blob, `<sha256>.meta.json`: one line of JSON, fields in the order of `Meta`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from holdfast import errors
from holdfast.clock import wall

UNKNOWN_TYPE = "application/octet-stream"


class Meta(msgspec.Struct, frozen=True):
    size: int
    content_type: str
    created: float
    metadata: dict[str, str]


_decoder = msgspec.json.Decoder(Meta)


def describe(size: int, content_type: str, metadata: Mapping[str, str] | None) -> Meta:
    fields = {"size": size, "content_type": content_type, "created": wall(), "metadata": dict(metadata or {})}
    try:
        meta = msgspec.convert(fields, Meta)
        encode(meta)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise errors.InputError(detail=f"a blob's content type and metadata must be text ({error})") from error
    return meta


def encode(meta: Meta) -> bytes:
    return msgspec.json.encode(meta) + b"\n"


def path_of(blob: Path) -> Path:
    return blob.with_name(blob.name + ".meta.json")


def read(blob: Path, size: int) -> Meta:
    """The description of a blob of `size` bytes. Raises BlobUndescribed."""
    path = path_of(blob)
    try:
        meta = _decoder.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.BlobUndescribed(path=path, reason=getattr(error, "strerror", None) or str(error)) from error
    if meta.size != size:
        raise errors.BlobUndescribed(path=path, reason=f"it says {meta.size} bytes, and the blob has {size}")
    return meta


def is_good(blob: Path, size: int) -> bool:
    try:
        read(blob, size)
    except errors.BlobUndescribed:
        return False
    return True
