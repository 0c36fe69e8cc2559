"""How a ratio is measured: subject and reference take turns, so that a noisy machine slows both alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """`ratio` is subject against reference. `bar` is what it must reach (`at least`) or must not pass (`at most`)."""

    name: str
    reference: str
    ratio: float
    bar: float
    at_most: bool
    detail: str

    @property
    def holds(self) -> bool:
        return self.ratio <= self.bar if self.at_most else self.ratio >= self.bar


def seconds(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def alternate(subject: Callable[[], float], reference: Callable[[], float], rounds: int) -> tuple[float, float, float]:
    """The median ratio over the rounds, and the medians of both. The order changes each round; one round warms up."""
    pairs = []
    for number in range(rounds + 1):
        if number % 2:
            mine, theirs = subject(), reference()
        else:
            theirs, mine = reference(), subject()
        pairs.append((mine, theirs))
    pairs = pairs[1:]
    ratio = statistics.median(mine / theirs for mine, theirs in pairs)
    return ratio, statistics.median(mine for mine, _ in pairs), statistics.median(theirs for _, theirs in pairs)
