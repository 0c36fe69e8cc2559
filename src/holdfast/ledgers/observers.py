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
# Every observer there is, in the order in which they are told.
ORDER: dict[str, When] = {
    "board": "folded",
    "audit": "durable",
    "metric_files": "durable",
    "metrics": "durable",
    "events": "durable",
    "traces": "durable",
    "outbox": "durable",
}
_PLACES = {name: place for place, name in enumerate(ORDER)}


class Observers:
    """The observers of one ledger, sorted as in `ORDER`. Changed by assignment: other threads may be reading it."""

    def __init__(self) -> None:
        self.present: Sequence[Observer] = ()

    def add(self, observer: Observer) -> None:
        """A second observer of the same name takes the place of the first."""
        if observer.name not in ORDER:
            raise InputError(detail=f"the observer {observer.name!r} is not in ledgers/observers.py:ORDER")
        others = [each for each in self.present if each.name != observer.name]
        self.present = tuple(sorted([*others, observer], key=lambda each: _PLACES[each.name]))

    def remove(self, observer: Observer) -> None:
        self.present = tuple(each for each in self.present if each is not observer)

    def tell(self, when: When, run: str, entry: Entry) -> None:
        for observer in self.present:
            if ORDER[observer.name] == when:
                observer.observe(run, entry)
