"""Blobs: definitions, gates' outputs, verdicts and whatever else is kept under the name of its own SHA-256."""

from __future__ import annotations

import re

import msgspec
from starlette.responses import Response, StreamingResponse

from holdfast.errors import BlobUndescribed, Poisoned, SyncFailed
from holdfast.server.api_state import Api
from holdfast.server.operations import Ask, Operation
from holdfast.storage.records.blob_meta import UNKNOWN_TYPE, Meta

# What a browser cannot take for anything but text.
_SHOWN = ("text/plain", "application/json", "application/yaml")
_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,60}/[a-z0-9][a-z0-9.+-]{0,60}")


class Put(msgspec.Struct, frozen=True):
    digest: str
    size: int


def show(api: Api, ask: Ask) -> Response:
    """Sends a blob as an attachment, and never as something that a browser would run."""
    blobs, digest = api.context.blobs, ask.path["digest"]
    content = blobs.open_stream(digest)
    try:
        found = blobs.meta(digest).content_type.partition(";")[0].strip()
    except BlobUndescribed:
        found = UNKNOWN_TYPE
    kind = f"{found}; charset=utf-8" if found in _SHOWN else UNKNOWN_TYPE
    headers = {
        "x-content-type-options": "nosniff",
        "content-disposition": f'attachment; filename="{digest}"',
        "content-security-policy": "default-src 'none'; sandbox",
        "cache-control": "private, max-age=31536000, immutable",
    }
    return StreamingResponse(content, media_type=kind, headers=headers)


def meta(api: Api, ask: Ask) -> Meta:
    return api.context.blobs.meta(ask.path["digest"])


def put(api: Api, ask: Ask) -> Put:
    """Putting the same bytes again changes nothing, so it needs no key."""
    kind = ask.headers.get("content-type", "").partition(";")[0].strip().lower()
    found = kind if _TYPE.fullmatch(kind) else UNKNOWN_TYPE
    try:
        return Put(api.context.blobs.put(ask.body, content_type=found), len(ask.body))
    except (SyncFailed, Poisoned) as error:
        # The run could go on until it needs a blob itself; it ends with what is really wrong instead.
        api.loop.fail(error)
        raise


OPERATIONS = [
    Operation("GET", "/blobs/{digest}", "show_blob", "The bytes of a blob.", show, answer=bytes, lane="aside",
              tag="blobs",
              problems=(404,), media_type="application/octet-stream, text/plain, application/json, application/yaml"),
    Operation("GET", "/blobs/{digest}/meta", "show_blob_meta", "What is known of a blob.", meta, answer=Meta,
              lane="aside", tag="blobs", problems=(404,)),
    Operation("POST", "/blobs", "put_blob", "Keep bytes, up to 1 MiB.", put, answer=Put, right="operate", lane="aside",
              body=bytes, status=201, tag="blobs", problems=(503,)),
]  # fmt: skip
