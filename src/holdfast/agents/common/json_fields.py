"""Looking into what an agent has said, whatever it is: nothing here raises, and what is not there is empty."""

from __future__ import annotations

import math
from typing import Any

import msgspec

NUMBER_MAX = 1 << 53


def line(data: bytes) -> dict[str, Any]:
    """The JSON object of a line; an empty one where the line is something else."""
    if not data.lstrip().startswith(b"{"):
        return {}
    try:
        found = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


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
    """The objects of a list; nothing else in it counts."""
    found = at(value, *path)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def number(value: Any, *path: str) -> float:
    """Never negative, never endless."""
    found = at(value, *path)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return 0.0
    # A whole number may be too large for any other: only a float can be endless.
    if isinstance(found, float) and not math.isfinite(found):
        return 0.0
    return float(min(max(found, 0), NUMBER_MAX))


def count(value: Any, *path: str) -> int:
    return int(number(value, *path))


def as_text(value: Any) -> str:
    """Any value, for a person or a ledger to read: the texts of a list of parts, JSON for all else."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(text(part, "text") for part in value):
        return "\n".join(text(part, "text") for part in value)
    return "" if value is None else as_json(value)


def as_json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        # It could just be read, and is too deep to be written again.
        return ""
