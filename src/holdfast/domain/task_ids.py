"""A definition from values instead of a file, and the id of a task that was given none."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Container, Mapping
from typing import Any

import msgspec

from holdfast.domain.definition import Definition, from_mapping, parse
from holdfast.errors import InputError

ID_LENGTH_MAX = 24
# They say nothing about a task that its other words do not say.
_FILLERS = frozenset(
    ("a", "an", "and", "as", "at", "by", "for", "from", "in", "into", "of", "on", "or", "our", "please", "so", "that",
     "the", "their", "this", "to", "when", "which", "with", "your")
)  # fmt: skip


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
    """The task's title, or its goal, or its command."""
    return str(values.get("title") or values.get("goal") or values.get("command") or "")


def slug(words: str) -> str:
    """A short name made of whole words, as many of the first ones as fit; `Fix the login` gives `fix-login`."""
    every: list[str] = re.findall(r"[a-z0-9]+", words.lower()) or ["task"]
    telling = [word for word in every if word not in _FILLERS] or every
    made = telling[0][:ID_LENGTH_MAX]
    for word in telling[1:]:
        if len(made) + 1 + len(word) > ID_LENGTH_MAX:
            break
        made += f"-{word}"
    return made


def free_id(words: str, taken: Container[str], first: int = 1) -> str:
    """An id that says what the task is about, and that no task has. `first`: the number to begin looking with."""
    made, number = slug(words), first
    while (name := numbered(made, number)) in taken:
        number += 1
    return name


def numbered(made: str, number: int) -> str:
    """The name itself as the first of its kind; the others with their number, and no longer for it."""
    end = "" if number == 1 else f"-{number}"
    return made[: ID_LENGTH_MAX - len(end)].rstrip("-") + end
