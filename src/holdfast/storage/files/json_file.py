"""Reads a JSON file of ours. It appears whole or not at all, so one that does not decode was damaged: it counts as
missing."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


def read_json(path: Path, kind: type[T], *, lenient: bool = False) -> T | None:
    """The record in a file; None where it is missing or damaged. `lenient`: also where it cannot be read at all."""
    try:
        return decode_json(path.read_bytes(), kind)
    except FileNotFoundError:
        return None
    except OSError:
        if lenient:
            return None
        raise


def decode_json(content: bytes, kind: type[T]) -> T | None:
    """The record in a file's content; None where it is damaged."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
