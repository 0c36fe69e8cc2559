"""One effect under its intent: how it went, what is then found of it, and what the journal says of both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import errors
from holdfast.domain.task import TaskState
from holdfast.ledgers.files import FileLedger
from holdfast.ports import DidNotHappen, Happened, InDoubt, Reconciled
from holdfast.storage.journal.intents import OpenIntent
from kit.states import acknowledged, carried_out, entries_of, opened

MADE, FOUND = {"new": "1" * 40, "by": "perform"}, {"new": "1" * 40, "by": "reconcile"}
REFUSED = errors.GitFailed(command="update-ref", path="/x", code=1, stderr="no")
UNREADABLE = errors.GitFault(command="rev-parse", path="/x", reason="killed")
FATAL = (
    errors.JournalClosed(run="1"),
    errors.JournalCorrupt(path="/x", offset=0, reason="flipped"),
    errors.StaleEpoch(epoch=1, current="2"),
    errors.SyncFailed(operation="sync", path="/x", reason="EIO"),
    errors.Poisoned(path="/x", reason="EIO"),
)
LATER = errors.LandingLost(branch="main", task="t", old="0", found="moved")


class Scripted:
    """Returns what it was given; raises what is an error. Notes what it was asked."""

    def __init__(self, made: dict[str, Any] | Exception, found: Reconciled | Exception) -> None:
        self.made, self.found, self.asked = made, found, list[str]()

    def perform(self, intent: OpenIntent) -> dict[str, Any]:
        assert intent.entry.inputs["task"] == "t", "it is given this very intent"
        self.asked.append("perform")
        if isinstance(self.made, Exception):
            raise self.made
        return self.made

    def reconcile(self, intent: OpenIntent) -> Reconciled:
        assert intent.entry.inputs["task"] == "t", "it is asked about this very intent"
        self.asked.append("reconcile")
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[FileLedger]:
    with opened(tmp_path, t=TaskState.DONE) as ledger:
        yield ledger


def closing(ledger: FileLedger) -> tuple[str, str, dict[str, Any]] | None:
    """How the intent was closed, why, and with which result; None while it is open."""
    of_effect = [entry for entry in entries_of(ledger.layout) if entry.decision_type.startswith("task_land_")]
    assert of_effect[0].decision_type == "task_land_intent" and not of_effect[0].committed
    assert of_effect[0].actor == "loop"
    assert len(of_effect) <= 2, "an intent is closed once"
    if not of_effect[1:]:
        assert [each.entry.seq for each in ledger.pairing.open_intents()] == [of_effect[0].seq]
        return None
    assert ledger.pairing.open_intents() == []
    last = of_effect[1]
    assert (last.inputs["task"], last.inputs["attempt"], last.actor) == ("t", "t.1", "loop")
    assert last.inputs["intent"]["entry_hash"] == of_effect[0].entry_hash
    return last.decision_type.removeprefix("task_land_"), last.inputs["reason"], last.output


def test_a_performed_effect_is_confirmed_without_reconcile(ledger: FileLedger) -> None:
    effect = Scripted(MADE, AssertionError("nobody asks"))
    assert carried_out(ledger, effect) == MADE
    assert effect.asked == ["perform"] and closing(ledger) == ("confirmed", "", MADE)
    assert ledger.state.tasks["t"].landing.commit == MADE["new"]


def test_an_effect_that_raised_and_took_place_all_the_same_is_confirmed_with_what_was_found(ledger: FileLedger) -> None:
    effect = Scripted(REFUSED, Happened(FOUND))
    assert carried_out(ledger, effect) == FOUND
    assert effect.asked == ["perform", "reconcile"] and closing(ledger) == ("confirmed", "", FOUND)


@pytest.mark.parametrize(
    ("raised", "found", "how", "reason"),
    [
        (REFUSED, DidNotHappen(), "failed", str(REFUSED)),
        (LATER, DidNotHappen(), "failed", str(LATER)),
        (UNREADABLE, DidNotHappen(), "failed", str(UNREADABLE)),
        (REFUSED, InDoubt("the ref is gone"), "parked", f"the ref is gone ({REFUSED})"),
        # The same sentence twice tells nothing more.
        (REFUSED, InDoubt(str(REFUSED)), "parked", str(REFUSED)),
    ],
)
def test_an_effect_that_raised_is_closed_by_what_is_found_and_its_error_goes_on(
    ledger: FileLedger, raised: errors.HoldfastError, found: Reconciled, how: str, reason: str
) -> None:
    effect = Scripted(raised, found)
    with pytest.raises(type(raised)) as seen:
        carried_out(ledger, effect)
    assert seen.value is raised
    assert effect.asked == ["perform", "reconcile"] and closing(ledger) == (how, reason, {})
    assert bool(ledger.state.tasks["t"].parked) is (how == "parked")


@pytest.mark.parametrize("fatal", FATAL, ids=lambda error: type(error).__name__)
def test_after_a_fatal_error_nothing_is_asked_and_the_intent_stays_open(
    ledger: FileLedger, fatal: errors.HoldfastError
) -> None:
    """A second sync would succeed without having written anything: only the next process can tell."""
    effect = Scripted(fatal, AssertionError("nobody asks"))
    with pytest.raises(type(fatal)):
        carried_out(ledger, effect)
    assert effect.asked == ["perform"] and closing(ledger) is None


@pytest.mark.parametrize(
    ("raised", "wanted"),
    [(UNREADABLE, errors.EffectUnclear), (REFUSED, errors.EffectUnclear), *((each, type(each)) for each in FATAL)],
    ids=lambda error: "" if isinstance(error, type) else type(error).__name__,
)
def test_an_intent_that_cannot_be_reconciled_stays_open_and_ends_the_process(
    ledger: FileLedger, raised: errors.HoldfastError, wanted: type[errors.HoldfastError]
) -> None:
    effect = Scripted(LATER, raised)
    with pytest.raises(wanted) as seen:
        carried_out(ledger, effect)
    assert errors.is_fatal(seen.value) and effect.asked == ["perform", "reconcile"] and closing(ledger) is None
    if wanted is errors.EffectUnclear:
        assert str(seen.value) == str(errors.EffectUnclear(effect="land", task="t", reason=raised))


def test_an_error_that_is_none_of_ours_leaves_the_intent_open_as_a_crash_does(ledger: FileLedger) -> None:
    effect = Scripted(ZeroDivisionError(), AssertionError("nobody asks"))
    with pytest.raises(ZeroDivisionError):
        carried_out(ledger, effect)
    assert effect.asked == ["perform"] and closing(ledger) is None


@pytest.mark.parametrize(
    ("found", "result", "how"),
    [
        (Happened(FOUND), FOUND, ("confirmed", "it was found done", FOUND)),
        (DidNotHappen(), {}, ("failed", "it was not found", {})),
        (InDoubt("the ref is gone"), {}, ("parked", "the ref is gone", {})),
    ],
)
def test_to_acknowledge_an_effect_performs_nothing(
    ledger: FileLedger, found: Reconciled, result: dict[str, Any], how: tuple[str, str, dict[str, Any]]
) -> None:
    effect = Scripted(AssertionError("nobody performs"), found)
    assert acknowledged(ledger, effect) == result
    assert effect.asked == ["reconcile"] and closing(ledger) == how


def test_to_acknowledge_where_looking_fails_leaves_the_intent_open(ledger: FileLedger) -> None:
    with pytest.raises(errors.EffectUnclear) as seen:
        acknowledged(ledger, Scripted(AssertionError("nobody performs"), UNREADABLE))
    assert str(seen.value) == str(errors.EffectUnclear(effect="land", task="t", reason=UNREADABLE))
    assert closing(ledger) is None
