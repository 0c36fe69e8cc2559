"""A sentence for entries of one type, and how facts are written in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

TEXT_MAX = 400


class Sentence(NamedTuple):
    """The sentences for entries of one type: templates over their inputs.

    `plain`: empty where it need not be told; a function where a template does not do. `log`: what the log has instead
    of an empty `plain`.
    """

    words: str
    plain: str | Callable[[dict[str, Any]], str] = ""
    log: str = ""


def compact(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def cut(value: object) -> str:
    text = compact(value)
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "…"
