"""The secret of which the server makes its tokens and its links: `runtime/secret/server.key`, for its owner only."""

from __future__ import annotations

import secrets
from pathlib import Path

import msgspec

from holdfast.layout import Layout
from holdfast.storage.files import disk
from holdfast.storage.files.json_file import read_json


class ServerSecret(msgspec.Struct, frozen=True):
    """`operator` and `reader` count how often their tokens were revoked."""

    secret: str
    operator: int = 1
    reader: int = 1


def load_secret(layout: Layout) -> ServerSecret:
    """The secret of this data root, made where there is none."""
    path = layout.server_key
    if path.exists() and path.stat().st_mode & 0o077 == 0 and (known := read_json(path, ServerSecret)) is not None:
        return known
    return save_secret(path, ServerSecret(secrets.token_hex(32)))


def save_secret(path: Path, secret: ServerSecret) -> ServerSecret:
    disk.mkdir(path.parent, 0o700)
    disk.replace(path, msgspec.json.encode(secret), 0o600)
    return secret
