"""Reads fields of an agent's JSON, whatever it is: nothing here raises, and a missing field is empty."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from holdfast.storage.files.json_file import decode_json

NUMBER_MAX = 1 << 53


def line(data: bytes) -> dict[str, Any]:
    """The JSON object of a line; an empty one where the line is something else."""
    return (decode_json(data, dict[str, Any]) or {}) if data.lstrip().startswith(b"{") else {}


def at(value: Any, *path: str) -> Any:
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def text(value: Any, *path: str) -> str:
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def inner(value: Any, *path: str) -> dict[str, Any]:
    found = at(value, *path)
    return found if isinstance(found, dict) else {}


def each(value: Any, *path: str) -> list[dict[str, Any]]:
    """The objects of a list; anything else in it is ignored."""
    found = at(value, *path)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def number(value: Any, *path: str) -> float:
    """A finite number that is not negative; else 0."""
    found = at(value, *path)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return 0.0
    # A whole number may be too large for a float: only a float can be infinite.
    if isinstance(found, float) and not math.isfinite(found):
        return 0.0
    return float(min(max(found, 0), NUMBER_MAX))


def count(value: Any, *path: str) -> int:
    return int(number(value, *path))


def as_text(value: Any) -> str:
    """Any value as text for a person or a ledger: the texts of a list of parts, JSON for all else."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(text(part, "text") for part in value):
        return "\n".join(text(part, "text") for part in value)
    return "" if value is None else as_json(value)


def as_json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        # It could be read, but is too deep to be written again.
        return ""
