"""The entries of the journal that concern one task."""

from __future__ import annotations

from holdfast.storage.journal.entry import Entry


class Concerns:
    """Decides, entry by entry, which concern a task: they name it, or close an intent that did."""

    def __init__(self, task: str) -> None:
        self._task = task
        self._intents: set[tuple[str, int]] = set()
        self.is_known = False

    def __call__(self, run: str, entry: Entry) -> bool:
        is_named = entry.inputs.get("task") == self._task
        self.is_known = self.is_known or is_named
        if is_named and not entry.committed:
            self._intents.add((run, entry.seq))
        intent = entry.inputs.get("intent")
        closed = (intent.get("run"), intent.get("seq")) if isinstance(intent, dict) else None
        # Compared, not looked up: an odd entry may name anything.
        closes = {each for each in self._intents if each == closed}
        self._intents -= closes
        return is_named or bool(closes)
