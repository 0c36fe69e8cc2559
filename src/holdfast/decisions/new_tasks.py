"""Tasks that come through the API: judged like a file, journalled with their text, and written to the backlog later.

The journal has them first, so that one append makes them durable, many for one sync. Their files follow in the loop;
until then `Task.unfiled` holds what will be written, and a crash in between leaves that to the next run.
"""

from __future__ import annotations

import itertools
from collections import ChainMap
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from holdfast.decisions.context import DecisionContext
from holdfast.domain.definition import Definition, parse, problems_of, render
from holdfast.domain.task_ids import free_id, from_values, slug, words_of
from holdfast.domain.task_record import Task
from holdfast.errors import DefinitionInvalid, InputError, TaskExists

# What would make the journal grow by more than it should; a longer text can be given as a file.
TEXT_BYTES_MAX = 1 << 16


class Catalogue:
    """The ids that are taken, also but for their case, and the numbers that made ids have come to."""

    def __init__(self) -> None:
        self._folded: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._seen = 0

    def learn(self, tasks: dict[str, Task]) -> None:
        """Tasks are only ever added, so it is enough to look at the new ones."""
        for name in itertools.islice(reversed(tasks), len(tasks) - self._seen):
            self._folded[name.casefold()] = name
        self._seen = len(tasks)

    def shadow(self, name: str) -> str:
        """The task whose id differs from this one only by case."""
        found = self._folded.get(name.casefold(), "")
        return found if found != name else ""

    def free(self, words: str, taken: dict[str, Any], also: dict[str, Any]) -> str:
        base = slug(words)
        name = free_id(words, ChainMap(taken, also), self._numbers.get(base, 1))
        _, _, number = name.rpartition("-")
        self._numbers[base] = int(number) if name != base and number.isdecimal() else 1
        return name


def create(
    decision: DecisionContext,
    catalogue: Catalogue,
    given: Sequence[Mapping[str, Any]],
    parent: str = "",
    facts: Mapping[str, Any] = {},
) -> list[str]:
    """Journals new tasks: all of them or, if one cannot be, none. Returns their ids. `facts`: of each entry, beside."""
    if (before := _created(decision, len(given))) is not None:
        return before
    catalogue.learn(decision.ledger.state.tasks)
    made: dict[str, Definition] = {}
    for values in given:
        named = {**values, "parent": parent} if parent else dict(values)
        if not named.get("id"):
            named["id"] = catalogue.free(words_of(named), decision.ledger.state.tasks, made)
        definition = from_values(named)
        _expect_new(decision, catalogue, definition, made)
        made[definition.id] = definition
    _expect_sound(decision, made)
    texts = {name: _text(definition) for name, definition in made.items()}
    decision.board.early.update(made)
    decision.append(
        [
            decision.record(
                "task_added",
                number,
                {"task": name, "definition": sha256(text).hexdigest(), "text": text.decode(), **facts},
            )
            for number, (name, text) in enumerate(texts.items())
        ]
    )
    return list(made)


def _text(made: Definition) -> bytes:
    """The text of its file, which says the same."""
    try:
        text = render(made)
    except UnicodeEncodeError:
        raise InputError(detail=f"the definition of {made.id!r} holds what is no UTF-8 text") from None
    if len(text) > TEXT_BYTES_MAX:
        raise InputError(detail=f"the definition of {made.id!r} is longer than {TEXT_BYTES_MAX:,} bytes")
    if parse(text, made.id) != made:
        raise InputError(detail=f"the definition of {made.id!r} does not survive being written as YAML")
    return text


def _created(decision: DecisionContext, count: int) -> list[str] | None:
    """The tasks that this request made before a crash lost its answer; None where it made none."""
    if not decision.has_done("task_added", 0):
        return None
    found = []
    for number in range(count):
        entry = decision.journalled("task_added", number)
        if entry is None:
            raise InputError(detail="a crash kept a part of these tasks; send the others under a new key")
        found.append(entry.inputs["task"])
    return found


def _expect_new(
    decision: DecisionContext, catalogue: Catalogue, made: Definition, others: Mapping[str, Definition]
) -> None:
    name = made.id
    if name in decision.tasks or name in others:
        raise TaskExists(task=name, path=decision.layout.backlog)
    if other := catalogue.shadow(name) or next((each for each in others if each.casefold() == name.casefold()), ""):
        raise InputError(detail=f"the id {name!r} differs only by case from {other!r}; choose another")
    if made.claim or made.result or made.error:
        raise InputError(detail="claim, result and error are written by Holdfast; leave them out")
    if any(name in problem.tasks for problem in decision.problems):
        raise DefinitionInvalid(name=name, problems="there is a file of this name that cannot be used")


def _expect_sound(decision: DecisionContext, made: Mapping[str, Definition]) -> None:
    """Refuses an unknown dependency, or a cycle among the new tasks."""
    asked = {name for each in made.values() for name in (*each.depends_on, *([each.parent] if each.parent else []))}
    known = [(name, Definition(name)) for name in asked if name in decision.tasks]
    problems = problems_of([*known, *made.items()])
    if problems:
        raise InputError(detail="; ".join(each.message for each in problems))
