"""The records of the journal's entries."""

from __future__ import annotations

import pytest

from holdfast import errors
from holdfast.domain.entries import STOPPED, is_lost


@pytest.mark.parametrize(
    ("parked", "expected"),
    [
        (errors.SnapshotLost(turn=2, attempt="t.1", commit="c", store="s", reason="r", task="t"), True),
        (errors.ResultLost(attempt="t.1", commit="c", store="s", reason="r", task="t", turn=0), True),
        (errors.LandingLost, False),
        (STOPPED, False),
        ("Turn 2 waits for a person", False),
        ("The note says that all is lost: nobody knows why", False),
        ("", False),
    ],
    ids=lambda parked: getattr(parked, "__name__", type(parked).__name__),
)
def test_a_task_parked_for_a_lost_turn_or_result_is_recognised_by_its_sentence(parked: object, expected: bool) -> None:
    assert is_lost(str(parked)) is expected
