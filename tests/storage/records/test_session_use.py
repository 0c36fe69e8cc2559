"""The use of one conversation, over the attempts of its task."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.layout import Layout
from holdfast.storage.files import disk
from holdfast.storage.records.ledger import LineLedger
from holdfast.storage.records.session_use import SessionUse, full_session, session_use


def test_the_use_of_a_conversation_is_summed_over_attempts(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    for attempt, session in (("t.1", "a"), ("t.1", "b"), ("t.2", "a")):
        files = layout.attempt_files(attempt)
        disk.mkdir(files.root)
        with LineLedger(files.turns) as turns, LineLedger(files.spend) as spend:
            turns.append({"turn": 1, "session": session})
            spend.append({"session": session, "tokens_in": 10, "tokens_out": 1, "usd": 0.5})
    assert session_use(layout, "t", 3, "a") == SessionUse(2, 20, 2, 1.0)
    assert session_use(layout, "t", 3, "b") == SessionUse(1, 10, 1, 0.5)
    assert session_use(layout, "t", 3, "") == SessionUse()


@pytest.mark.parametrize(
    ("turns_max", "tokens_max", "told"),
    [
        (None, None, ""),
        (3, 23, ""),
        (2, None, "has had 2 turns, and session_turns_max is 2"),
        (1, 1, "has had 2 turns, and session_turns_max is 1"),
        (3, 22, "has taken 22 tokens, and session_tokens_max is 22"),
    ],
)
def test_a_conversation_is_full_when_it_has_reached_a_limit(
    turns_max: int | None, tokens_max: int | None, told: str
) -> None:
    found = full_session(SessionUse(2, 20, 2), turns_max, tokens_max)
    assert told in found if told else found == ""
