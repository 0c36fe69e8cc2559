"""A definition from values instead of a file, and the id of a task that was given none."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from holdfast.domain.definition import Definition, from_mapping, parse
from holdfast.errors import InputError

SLUG_LENGTH_MAX = 48


def from_values(values: Mapping[str, Any]) -> Definition:
    """The definition that these values give, by the rules of a file: a JSON value is one of YAML, too."""
    with contextlib.suppress(msgspec.ValidationError):
        # Nearly always nothing is wrong with them; if something is, the slow way says what.
        made = from_mapping(values)
        if isinstance(made, Definition):
            return made
    try:
        made = parse(b"".join(b"%b: %b\n" % (key.encode(), msgspec.json.encode(values[key])) for key in values), "")
    except UnicodeEncodeError:
        raise InputError(detail="a value holds what is no UTF-8 text") from None
    if isinstance(made, Definition):
        return made
    # Without the lines: values have none.
    raise InputError(detail="; ".join(each.message for each in made))


def words_of(values: Mapping[str, Any]) -> str:
    """What a task is about, in its own words."""
    return str(values.get("title") or values.get("goal") or values.get("command") or "")


def slug(words: str) -> str:
    made = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "task"
    if len(made) > SLUG_LENGTH_MAX:
        made = made[: SLUG_LENGTH_MAX + 1].rpartition("-")[0] or made[:SLUG_LENGTH_MAX]
    return made


def free_id(words: str, taken: Collection[str], first: int = 1) -> str:
    """An id that says what the task is about, and that no task has. `first`: the number to begin looking with."""
    made, number = slug(words), first
    while (name := made if number == 1 else f"{made}-{number}") in taken:
        number += 1
    return name
