"""One way to perform an effect: its intent is on disk before, its outcome after.

An effect that raises is asked what the world shows, as after a crash: what took place all the same is confirmed, what
did not has failed, what cannot be told is parked. So an intent is open only while its effect is under way, or after a
crash. After a failed sync nothing is asked: a second one would succeed without having written anything. The intent
stays open, the process ends, and the next one looks at what the disk really has.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from holdfast.crashpoints import point
from holdfast.domain.effect_entries import EFFECT_OF, EFFECTS, EffectIntended
from holdfast.domain.fsm import Reason
from holdfast.errors import EffectUnclear, HoldfastError, is_fatal
from holdfast.ports import DidNotHappen, Effect, Effects, Happened, InDoubt, Ledger, Reconciled
from holdfast.storage.journal.entry import Record
from holdfast.storage.journal.intents import OpenIntent

POINTS = tuple(f"effect.{kind}.{when}" for kind in EFFECTS for when in ("before", "after"))


class Closed(msgspec.Struct, frozen=True):
    """The outcome of one intent, for a person to read."""

    task: str
    intent: str
    how: str
    reason: str

    @property
    def words(self) -> str:
        if (self.intent, self.how, self.reason) == ("task_setup_intent", "failed", Reason.NOT_STARTED):
            return "setting up its worktree was interrupted, and is done again"
        return f"{self.intent} is {self.how} ({self.reason})"


class EffectContext(Protocol):
    """The part of a run that an effect needs: where it is journalled, and which effects there are."""

    @property
    def ledger(self) -> Ledger: ...
    @property
    def effects(self) -> Effects: ...


def carry_out(context: EffectContext, intended: EffectIntended) -> dict[str, Any]:
    """Performs the effect under an intent and returns its result. Raises what it raised, once that is on record."""
    ledger, effect, kind = context.ledger, context.effects[type(intended)], EFFECT_OF[type(intended)]
    intent = _intend(ledger, kind, intended)
    try:
        point(f"effect.{kind}.before")
        result = effect.perform(intent)
        point(f"effect.{kind}.after")
    except HoldfastError as error:
        if is_fatal(error):
            raise
        match _reconcile(effect, kind, intent):
            case Happened(found):
                result = found
            case DidNotHappen():
                close_intent(ledger, intent, "failed", str(error), {})
                raise
            case InDoubt(doubt):
                close_intent(ledger, intent, "parked", doubt if doubt == str(error) else f"{doubt} ({error})", {})
                raise
    close_intent(ledger, intent, "confirmed", "", result)
    return result


def acknowledge(context: EffectContext, intended: EffectIntended) -> dict[str, Any]:
    """Journals an effect that took place unknown to this journal. Performs nothing; empty where it did not."""
    ledger, kind = context.ledger, EFFECT_OF[type(intended)]
    intent = _intend(ledger, kind, intended)
    match _reconcile(context.effects[type(intended)], kind, intent):
        case Happened(found):
            close_intent(ledger, intent, "confirmed", "it was found done", found)
            return found
        case DidNotHappen():
            close_intent(ledger, intent, "failed", "it was not found", {})
        case InDoubt(doubt):
            close_intent(ledger, intent, "parked", doubt, {})
    return {}


def _reconcile(effect: Effect, kind: str, intent: OpenIntent) -> Reconciled:
    try:
        return effect.reconcile(intent)
    except HoldfastError as error:
        if is_fatal(error):
            raise
        raise EffectUnclear(effect=kind, task=intent.entry.inputs["task"], reason=error) from error


def _intend(ledger: Ledger, kind: str, intended: EffectIntended) -> OpenIntent:
    inputs = msgspec.to_builtins(intended)
    [ref] = ledger.append(ledger.epoch, [Record(f"task_{kind}_intent", inputs, actor="loop", committed=False)])
    return next(intent for intent in reversed(ledger.pairing.open_intents()) if intent.ref == ref)


def close_intent(
    ledger: Ledger, intent: OpenIntent, how: str, reason: str, result: dict[str, Any], actor: str = "loop"
) -> None:
    """Journals what became of an intent: it is `confirmed`, `failed`, `abandoned` or `parked`."""
    asked = intent.entry.inputs
    of = {"task": asked.get("task", ""), "attempt": asked.get("attempt", "")}
    of |= {"key": asked["key"]} if "key" in asked else {}
    kind = intent.entry.decision_type.removesuffix("_intent")
    ledger.append(
        ledger.epoch, [Record(f"{kind}_{how}", {"intent": intent.ref, **of, "reason": reason}, result, actor)]
    )
