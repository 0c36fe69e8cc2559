"""What the fold makes of entries about landings: one that waits, and one that a person's git command rewrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.domain import entries
from holdfast.domain.entries import EntryLike

if TYPE_CHECKING:
    from holdfast.domain.state import State


def wait(state: State, entry: EntryLike, waiting: entries.LandingWaiting) -> None:
    state.known(waiting.task).landing_waits = tuple(waiting.paths)


def begin(state: State, entry: EntryLike, intended: entries.LandIntended) -> None:
    state.known(intended.task).landing_waits = ()


def settle(state: State, entry: EntryLike, settled: entries.LandingSettled) -> None:
    """From now on the rewritten commit is the landing; a dropped one is none any more."""
    state.known(settled.task).landed = settled.rewritten


HANDLERS: dict[type[msgspec.Struct], Callable[[State, EntryLike, Any], None]] = {
    entries.LandingWaiting: wait,
    entries.LandIntended: begin,
    entries.LandingSettled: settle,
}
