"""The answer of `check` about one part of the data root, and its draft."""

from __future__ import annotations

import msgspec

REPAIR = "`holdfast check --repair` rebuilds it"
RUN = "the next `holdfast run` settles it"
RESTORE = "restore it from a backup"
LOOK = "look at it with `holdfast log`"


class Section(msgspec.Struct, frozen=True):
    name: str
    counted: dict[str, int]
    findings: list[str]
    notes: list[str]
    # What a crash left half done and the next run finishes.
    pending: list[str] = []
    # Why it was not checked, or not all of it.
    not_checked: str = ""


class Draft:
    """A section in the making. `passing` holds findings, and `pending` unfinished work, that count only if the root has
    no owner and nothing changes during the check."""

    def __init__(self, name: str, **counted: int) -> None:
        self.name, self.counted = name, counted
        self.findings: list[str] = []
        self.passing: list[str] = []
        self.pending: list[str] = []
        self.notes: list[str] = []
        self.not_checked = ""

    def section(self, calm: bool) -> Section:
        if calm:
            findings = self.findings + self.passing
            return Section(self.name, self.counted, findings, self.notes, self.pending, not_checked=self.not_checked)
        in_flight = [f"in flight, perhaps: {words}" for words in (*self.passing, *self.pending)]
        return Section(self.name, self.counted, self.findings, self.notes + in_flight, [], not_checked=self.not_checked)
