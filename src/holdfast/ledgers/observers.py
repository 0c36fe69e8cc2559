"""The observers of a ledger: their names, their order, and when each gets an entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from holdfast.errors import InputError
from holdfast.ports import Observer
from holdfast.storage.journal.entry import Entry

# An entry is folded when the state has it, and durable when it is on stable storage. Inside `together()` these are
# apart: only an observer that keeps its facts in memory, and loses them with the state, may be told of folded entries.
When = Literal["folded", "durable"]
# Every observer there is, in the order in which they are told. A name that ends in a colon is of a family: `plugin:`
# stands for `plugin:mail` and every other of that beginning, which are told in the order in which they came.
ORDER: dict[str, When] = {
    "board": "folded",
    "audit": "durable",
    "metric_files": "durable",
    "metrics": "durable",
    "events": "durable",
    "traces": "durable",
    "issue_results": "durable",
    "outbox": "durable",
    "plugin:": "durable",
}


def line_of(name: str) -> str | None:
    """The line of `ORDER` that an observer stands in: its own, or its family's; None where it has none."""
    family = f"{name.partition(':')[0]}:"
    return name if name in ORDER else family if name != family and family in ORDER else None


class Observers:
    """The observers of one ledger, sorted as in `ORDER`. Changed by assignment: other threads may be reading it."""

    def __init__(self) -> None:
        self.present: Sequence[Observer] = ()

    def add(self, observer: Observer) -> None:
        """A second observer of the same name takes the place of the first."""
        if line_of(observer.name) is None:
            raise InputError(detail=f"the observer {observer.name!r} is not in ledgers/observers.py:ORDER")
        others = [each for each in self.present if each.name != observer.name]
        lines = list(ORDER)
        self.present = tuple(sorted([*others, observer], key=lambda each: lines.index(line_of(each.name) or "")))

    def remove(self, observer: Observer) -> None:
        self.present = tuple(each for each in self.present if each is not observer)

    def tell(self, when: When, run: str, entry: Entry) -> None:
        for observer in self.present:
            if ORDER[line_of(observer.name) or ""] == when:
                observer.observe(run, entry)
