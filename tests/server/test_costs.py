"""Costs: what is far above the usual is shown."""

from __future__ import annotations

import pytest

from holdfast.server.routes.costs import far_from_usual


def test_costs_far_above_the_usual_are_shown() -> None:
    usual = {f"t{number}": 1.0 + number / 100 for number in range(9)}
    assert list(far_from_usual(usual, "a task")) == []
    ((name, (usd, expected, ratio, words)),) = far_from_usual({**usual, "dear": 5.0, "free": 0.0}, "a task")
    assert (name, usd) == ("dear", 5.0) and expected == pytest.approx(1.045)
    assert ratio == pytest.approx(usd / expected) and "4.8 times as much as a task usually does" in words
    # A few say nothing about what is usual.
    assert list(far_from_usual({"a": 1.0, "b": 1.0, "dear": 100.0}, "a task")) == []
