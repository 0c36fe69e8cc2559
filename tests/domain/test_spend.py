"""What work may cost: what is left, what is used up, and how it is shared."""

from __future__ import annotations

import pytest

from holdfast.domain.spend import Caps, Spend

FULL = Caps(usd=1.0, tokens=10, turns=3, seconds=60.0)


@pytest.mark.parametrize(
    ("spent", "wanted"),
    [
        (Spend(), ""),
        (Spend(0.99, 9, 2, 59.9), ""),
        (Spend(usd=1.0), "usd"),
        (Spend(tokens=10), "tokens"),
        (Spend(turns=3), "turns"),
        (Spend(seconds=60.0), "seconds"),
        # The first of several.
        (Spend(tokens=11, seconds=61.0), "tokens"),
    ],
)
def test_a_cap_used_to_the_last_bit_is_used_up(spent: Spend, wanted: str) -> None:
    assert FULL.exceeded(spent) == wanted
    assert Caps().exceeded(spent) == "", "without a limit nothing is"


def test_the_rest_of_a_budget_is_never_below_nothing() -> None:
    assert FULL.less(Spend(0.25, 4, 1, 10.0)) == Caps(0.75, 6, 2, 50.0)
    assert FULL.less(Spend(2.0, 11, 4, 61.0)) == Caps(0.0, 0, 0, 0.0)
    assert Caps(turns=3).less(Spend(5.0, 5, 1, 5.0)) == Caps(turns=2)


def test_a_share_of_whole_numbers_is_at_least_one_while_there_is_one() -> None:
    assert FULL.share(2) == Caps(0.5, 5, 1, 30.0)
    assert FULL.share(20) == Caps(0.05, 1, 1, 3.0)
    assert Caps(tokens=0, turns=1).share(3) == Caps(tokens=0, turns=1)


def test_the_least_of_two_limits_holds_and_one_that_is_not_set_is_none() -> None:
    assert FULL.least(Caps(usd=2.0, tokens=5)) == Caps(1.0, 5, 3, 60.0)
    assert Caps(tokens=5).least(FULL) == Caps(1.0, 5, 3, 60.0)


def test_spending_adds_up() -> None:
    assert Spend(0.5, 1, 2, 3.0) + Spend(0.25, 10, 20, 30.0) == Spend(0.75, 11, 22, 33.0)
