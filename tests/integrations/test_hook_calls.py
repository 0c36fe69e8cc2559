"""The hook calls of an entry: each hook is called by something, with the arguments that its specification has."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from holdfast.domain.entries import MOVES, PAYLOADS
from holdfast.integrations.plugins.hook_calls import HOOK_OF, hook_calls, ref_of
from holdfast.integrations.plugins.hookspecs import OF_ENTRIES, HookSpecs
from holdfast.storage.journal.entry import Entry, Ref
from kit import TOP


def entry(kind: str, inputs: dict[str, Any] | None = None, output: dict[str, Any] | None = None) -> Entry:
    return Entry(7, "0" * 64, 12.5, kind, inputs or {}, output or {}, "loop", True, 6, "f" * 64)


def test_every_hook_is_called_by_something_and_described_on_the_page() -> None:
    called = {"entry", *(name for name, _ in HOOK_OF.values())}
    assert called == set(OF_ENTRIES) and set(HOOK_OF) <= set(PAYLOADS)
    page = (TOP / "docs" / "plugins.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \|([^|]*)\|", page, re.MULTILINE))
    for name in (*OF_ENTRIES, "configure", "cursor", "provides"):
        hook = getattr(HookSpecs, name)
        arguments = [each for each in inspect.signature(hook).parameters if each != "self"]
        assert re.findall(r"`(\w+)`", rows[name]) == arguments and inspect.getdoc(hook)


@pytest.mark.parametrize("kind", HOOK_OF)
def test_a_hook_gets_the_arguments_of_its_specification(kind: str) -> None:
    calls = dict(hook_calls("run", entry(kind, {"task": "x"})))
    assert list(calls) == ["entry", HOOK_OF[kind][0]]
    for name, arguments in calls.items():
        assert ["self", *arguments] == list(inspect.signature(getattr(HookSpecs, name)).parameters)


def test_a_landing_is_told_with_branch_and_commit() -> None:
    landing = entry("task_land_confirmed", {"task": "x", "attempt": "x.1"}, {"branch": "main", "old": "a", "new": "b"})
    _, (name, given) = hook_calls("000001-20261118T082639Z", landing)
    event = given.pop("event")
    assert (name, given) == ("landed", {"attempt": "x.1", "branch": "main", "commit": "b"})
    assert event.task == "x" and event.at == 12.5
    assert ref_of(event.key) == Ref("000001-20261118T082639Z", 7, "f" * 64)


def test_a_verdict_is_told_with_its_kind() -> None:
    outcome = {"passed": False, "kind": "gate_failed", "detail": "why"}
    _, (_, given) = hook_calls("run", entry("task_verify_confirmed", {"attempt": "x.1"}, outcome))
    assert (given["passed"], given["verdict"], given["detail"]) == (False, "gate_failed", "why")


def test_a_move_is_told_with_its_state() -> None:
    for kind, state in MOVES.items():
        _, (name, given) = hook_calls("run", entry(kind, {"reason": "why"}))
        assert (name, given["state"], given["reason"]) == ("task_moved", state.value, "why")


@pytest.mark.parametrize("key", ["", "run", "run:1", "run:x:hash", "run:²:hash", ":1:hash", "run:-1:hash"])
def test_a_text_that_is_no_key_names_no_entry(key: str) -> None:
    assert ref_of(key) is None
