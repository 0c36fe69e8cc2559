"""The story of a task: every type of entry has words for people."""

from __future__ import annotations

import re

from holdfast.domain.effect_entries import EFFECTS
from holdfast.domain.entries import PAYLOADS
from holdfast.engine.effects import Closed
from holdfast.views.sentences import SENTENCES
from holdfast.views.story import plain_words
from kit.states import entry


def test_every_kind_of_entry_has_its_sentence() -> None:
    assert SENTENCES.keys() == PAYLOADS.keys()


def test_a_setup_that_was_interrupted_is_not_said_to_have_failed() -> None:
    told = plain_words(entry("task_setup_failed", 1, task="a", attempt="a.1", reason="not_started"))
    assert told == "Setting up its worktree was interrupted, and is done again"
    assert Closed("a", "task_setup_intent", "failed", "not_started").words == f"s{told[1:]}"


def test_every_kind_of_entry_has_plain_words() -> None:
    told = {
        kind: plain_words(entry(kind, 1, task="a", attempt="a.1", event="retry", reason="why")) for kind in PAYLOADS
    }
    untold = {kind for kind, words in told.items() if not words}
    assert not any(re.search(r"[a-z]_[a-z]|[{}]", words) for words in told.values())
    pairs = {f"task_{effect}_{end}" for effect in EFFECTS for end in ("intent", "confirmed")}
    nobody = {"run_started", "run_ended", "wal_replay_completed", "request_answered", "tasks_filed", "audit_noted"}
    nobody |= {"delivery_received", "delivery_judged", "schedule_noted"}
    assert untold == (pairs - {"task_publish_confirmed"}) | nobody
    assert plain_words(entry("something_{new}", 1, task="a")) == "Something {new}"
