"""The cost of work: dollars, tokens, turns and seconds, counted together wherever they are counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class Spend(msgspec.Struct, frozen=True, gc=False):
    usd: float = 0.0
    tokens: int = 0
    turns: int = 0
    seconds: float = 0.0

    def __add__(self, other: Spend) -> Spend:
        return Spend(
            self.usd + other.usd,
            self.tokens + other.tokens,
            self.turns + other.turns,
            self.seconds + other.seconds,
        )


class Caps(msgspec.Struct, frozen=True, gc=False):
    """The most that may be spent of each; None: no limit."""

    usd: float | None = None
    tokens: int | None = None
    turns: int | None = None
    seconds: float | None = None

    def exceeded(self, spent: Spend) -> str:
        """The name of the first that is used up, or nothing. What is used to the last bit is used up."""
        for name in ("usd", "tokens", "turns", "seconds"):
            cap: Any = getattr(self, name)
            if cap is not None and getattr(spent, name) >= cap:
                return name
        return ""

    def less(self, spent: Spend) -> Caps:
        """The remainder of each, never below zero."""
        return self._each(lambda name, cap: max(cap - getattr(spent, name), type(cap)(0)))

    def share(self, parts: int) -> Caps:
        """One part of `parts`; of what is counted in whole numbers at least one."""
        return self._each(lambda name, cap: cap / parts if isinstance(cap, float) else max(cap // parts, min(cap, 1)))

    def least(self, other: Caps) -> Caps:
        return self._each(
            lambda name, cap: cap if getattr(other, name) is None else min(cap, getattr(other, name)), other
        )

    def _each(self, change: Any, otherwise: Caps | None = None) -> Caps:
        values = {}
        for name in self.__struct_fields__:
            cap = getattr(self, name)
            values[name] = (getattr(otherwise, name) if otherwise else None) if cap is None else change(name, cap)
        return Caps(**values)


# Dollars, tokens, turns and seconds, as in a `Spend`, to be counted in place.
Tally = list[Any]


DAYS_KEPT = 400
DAY_S = 86_400


class SpendCounter:
    """What the run that is alive has spent, and each UTC day, numbered from 1970.

    Both grow with each turn, so they are counted in place, and made into records on request.
    """

    def __init__(self, run: Spend = Spend(), days: Mapping[int, Spend] = {}) -> None:  # noqa: B008 (frozen)
        self._run = _tally(run)
        self._days = {day: _tally(spent) for day, spent in days.items()}

    @property
    def run(self) -> Spend:
        return Spend(*self._run)

    @property
    def days(self) -> dict[int, Spend]:
        return {day: Spend(*spent) for day, spent in self._days.copy().items()}

    def begin_run(self) -> None:
        self._run = _tally(Spend())

    def count(self, usd: float, tokens: int, turns: int, seconds: float, moment: float) -> None:
        day = int(moment // DAY_S)
        of_day = self._days.get(day)
        if of_day is None:
            of_day = self._days[day] = _tally(Spend())
            if len(self._days) > DAYS_KEPT:
                del self._days[min(self._days)]
        for counted in (self._run, of_day):
            counted[0] += usd
            counted[1] += tokens
            counted[2] += turns
            counted[3] += seconds


def _tally(spent: Spend) -> Tally:
    return [spent.usd, spent.tokens, spent.turns, spent.seconds]
