"""What `check` says of one part of the data root, and how it is put together."""

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
    # Why it was not checked, or not all of it.
    not_checked: str = ""


class Draft:
    """A section in the making. `passing` holds what is a finding only if nothing moves."""

    def __init__(self, name: str, **counted: int) -> None:
        self.name, self.counted = name, counted
        self.findings: list[str] = []
        self.passing: list[str] = []
        self.notes: list[str] = []
        self.not_checked = ""

    def section(self, calm: bool) -> Section:
        findings = self.findings + (self.passing if calm else [])
        in_flight = [] if calm else [f"in flight, perhaps: {words}" for words in self.passing]
        return Section(self.name, self.counted, findings, self.notes + in_flight, self.not_checked)
