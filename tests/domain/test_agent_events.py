"""The events of agents, as a declared agent maps its own lines to them."""

from __future__ import annotations

import pytest

from holdfast.domain.agent_events import mapping_problem


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ({"cheered.text": "x"}, "cheered.text is no part of an event"),
        ({"said.words": "x"}, "said.words is no part of said: known are when, text"),
        ({"said.when": "type"}, "must be a place, = and a value"),
        ({"said.when": "type=text", "said.text": "text"}, ""),
        ({"said.text": "type"}, ""),
    ],
)
def test_a_mapping_of_events_is_checked(events: dict[str, str], told: str) -> None:
    assert told in mapping_problem(events) and bool(told) == bool(mapping_problem(events))
