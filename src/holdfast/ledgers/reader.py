"""Reads the journal's files: the default implementation of `ports.LedgerReader`. Takes no lock and writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from holdfast.domain.state import State
from holdfast.errors import InputError
from holdfast.layout import Layout
from holdfast.storage.journal import checkpoint, pages
from holdfast.storage.journal.checkpoint import F, Files, Recovered
from holdfast.storage.journal.entry import Entry, Ref
from holdfast.storage.journal.pages import Cursor, Page, WantedPage
from holdfast.storage.journal.reader import Chain, TornEnd, find
from holdfast.storage.journal.writer import Position, epoch_of

# Readings end at few different entries: where the last ones did is remembered, so that the next go on from there.
_ENDS_MAX = 16


def read_state(layout: Layout) -> tuple[State, Recovered]:
    """The state as it is on disk, for read-only commands."""
    return checkpoint.recover(Chain(layout.wal), Files.of(layout), State, settle=False)


class FileLedgerReader:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.place = layout.wal
        self._ends: dict[Ref, Position] = {}
        # Of the last reading that came to its end: the last entry, and what crashes had torn.
        self.end: Ref | None = None
        self.torn: Sequence[TornEnd] = ()

    def read(self, after: Ref | None = None) -> Iterator[tuple[str, Entry]]:
        chain = Chain(self.place)
        yield from chain.entries(self._place(chain, after) if after is not None else None)
        self.torn = chain.torn
        if chain.end is not None:
            self.end = chain.end.ref
            self._ends[chain.end.ref] = chain.end
            for ref in list(self._ends)[:-_ENDS_MAX]:
                self._ends.pop(ref, None)

    def has(self, ref: Ref) -> bool:
        return ref in self._ends or find(Chain(self.place), ref) is not None

    def runs(self) -> list[str]:
        return [file.run for file in Chain(self.place).runs()]

    def page(
        self, wanted: WantedPage, after: Cursor | None, limit: int, *, end: Cursor, is_backward: bool = False
    ) -> Page:
        go = pages.backward if is_backward else pages.forward
        return go(Chain(self.place), after, wanted, limit, end)

    def entry(self, run: str, seq: int) -> Entry | None:
        """One entry, found without reading those before it."""
        epoch = epoch_of(run)
        found = self.page(WantedPage(), (epoch, seq - 1), 1, end=(epoch, seq)).items
        return next((entry for found_run, entry in found if (found_run, entry.seq) == (run, seq)), None)

    def fold(self, new_fold: Callable[[], F], after: Cursor) -> F:
        chain, files = Chain(self.place), Files.of(self.layout)
        stands = checkpoint.position_of(files)
        if stands is not None and (epoch_of(stands.ref.run), stands.ref.seq) <= after:
            return checkpoint.recover(chain, files, new_fold, settle=False)[0]
        fold = new_fold()
        for run, entry in chain.entries():
            fold.apply(run, entry)
        return fold

    def _place(self, chain: Chain, after: Ref) -> Position:
        place = self._ends.get(after) or find(chain, after)
        if place is None:
            raise InputError(detail=f"the journal has no entry {after.seq} of run {after.run} with that hash")
        return place
