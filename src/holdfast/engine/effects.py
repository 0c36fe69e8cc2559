"""One way to perform an effect: its intent is on disk before, its outcome after.

An effect that raises is asked what the world shows, as after a crash: what took place all the same is confirmed, what
did not has failed, what cannot be told is parked. So an intent is open only while its effect is under way, or after a
crash. After a failed sync nothing is asked: a second one would succeed without having written anything. The intent
stays open, the process ends, and the next one looks at what the disk really has.

`recover`: after a crash, every open intent gets exactly one closing entry, and nothing is performed. For each intent
that an earlier run left open, its effect is asked what the world shows:

- it happened: `_confirmed`, at any age;
- otherwise, older than `replay_age_max_s`: `_abandoned`, and the operator gets a note;
- it did not happen: `_failed` with the reason `not_started`, and the loop plans anew;
- it cannot be told: `_parked`, until `holdfast resolve` says.

Then the claims that the dead orchestrator held and never started are given back, and `wal_replay_completed` tells the
counts. A kill at any point leaves some intents closed and the others open; the next start goes on with those.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from holdfast.crashpoints import point
from holdfast.domain.entries import EFFECT_OF, EFFECTS, MOVE_TO, PAYLOADS, EffectIntended, ReplayCompleted
from holdfast.domain.fsm import Reason
from holdfast.domain.task import TASK, TaskEvent, TaskState
from holdfast.errors import EffectUnclear, HoldfastError, is_environment, is_fatal
from holdfast.ports import DidNotHappen, Effect, Effects, Happened, InDoubt, Ledger, Reconciled
from holdfast.storage.journal.entry import Record
from holdfast.storage.journal.intents import OpenIntent

POINTS = tuple(f"effect.{kind}.{when}" for kind in EFFECTS if kind != "publish" for when in ("before", "after"))

RECOVER = "recover"


class EffectContext(Protocol):
    """What an effect needs of a run: where it is journalled, and which effects there are."""

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
        match _look(effect, kind, intent):
            case Happened(found):
                result = found
            case DidNotHappen():
                _close(ledger, intent, "failed", str(error), {})
                raise
            case InDoubt(doubt):
                _close(ledger, intent, "parked", doubt if doubt == str(error) else f"{doubt} ({error})", {})
                raise
    _close(ledger, intent, "confirmed", "", result)
    return result


def acknowledge(context: EffectContext, intended: EffectIntended) -> dict[str, Any]:
    """Puts on record what took place without this journal's knowledge. Performs nothing; empty where it did not."""
    ledger, kind = context.ledger, EFFECT_OF[type(intended)]
    intent = _intend(ledger, kind, intended)
    match _look(context.effects[type(intended)], kind, intent):
        case Happened(found):
            _close(ledger, intent, "confirmed", "it was found done", found)
            return found
        case DidNotHappen():
            _close(ledger, intent, "failed", "it was not found", {})
        case InDoubt(doubt):
            _close(ledger, intent, "parked", doubt, {})
    return {}


def _look(effect: Effect, kind: str, intent: OpenIntent) -> Reconciled:
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


def _close(
    ledger: Ledger, intent: OpenIntent, how: str, reason: str, result: dict[str, Any], actor: str = "loop"
) -> None:
    asked = intent.entry.inputs
    of = {"task": asked.get("task", ""), "attempt": asked.get("attempt", "")}
    kind = intent.entry.decision_type.removesuffix("_intent")
    ledger.append(
        ledger.epoch, [Record(f"{kind}_{how}", {"intent": intent.ref, **of, "reason": reason}, result, actor)]
    )


# -- after a crash -----------------------------------------------------------------------------------------------------


class Closed(msgspec.Struct, frozen=True):
    """What became of one intent, for a person to read."""

    task: str
    intent: str
    how: str
    reason: str


def recover(
    ledger: Ledger, effects: Effects, now: float, replay_age_max_s: float
) -> tuple[ReplayCompleted, list[Closed]]:
    """Closes what is open and releases what is stale. Performs nothing."""
    closed = [
        _close_as_found(ledger, intent, _judge(intent, effects), now, replay_age_max_s)
        for intent in ledger.pairing.open_intents()
    ]
    released = _release_stale_claims(ledger)
    counts = {how: sum(item.how == how for item in closed) for how in ("confirmed", "failed", "abandoned", "parked")}
    completed = ReplayCompleted(**counts, released=released)
    ledger.append(ledger.epoch, [Record("wal_replay_completed", msgspec.to_builtins(completed), actor=RECOVER)])
    return completed, closed


def _judge(intent: OpenIntent, effects: Effects) -> Reconciled:
    kind = PAYLOADS[intent.entry.decision_type]
    effect = effects.get(kind) if issubclass(kind, EffectIntended) else None
    if effect is None:
        return InDoubt(f"nothing here knows how to look for a {intent.entry.decision_type}")
    try:
        return effect.reconcile(intent)
    except HoldfastError as error:
        if is_fatal(error) or is_environment(error):
            # It says nothing of the intent, which stays open: the next start looks again.
            raise
        return InDoubt(f"looking for it failed: {error}")


def _close_as_found(
    ledger: Ledger, intent: OpenIntent, verdict: Reconciled, now: float, replay_age_max_s: float
) -> Closed:
    age_s = now - intent.entry.timestamp
    match verdict:
        case Happened(result):
            how, reason, output = "confirmed", "found done after a crash", result
        case _ if age_s > replay_age_max_s:
            how, reason, output = "abandoned", f"it is {age_s:.0f} s old, and may no longer be wanted", {}
        case DidNotHappen():
            how, reason, output = "failed", Reason.NOT_STARTED, {}
        case InDoubt(doubt):
            how, reason, output = "parked", doubt, {}
    _close(ledger, intent, how, reason, output, actor=RECOVER)
    return Closed(intent.entry.inputs.get("task", ""), intent.entry.decision_type, how, reason)


def _release_stale_claims(ledger: Ledger) -> int:
    """A task that was claimed and never started has nobody working on it: it is open again, under the same attempt."""
    # A copy: requests of the API add tasks meanwhile.
    claimed = (task for task in ledger.state.tasks.copy().values() if task.state is TaskState.CLAIMED)
    # A worker that is none of ours may well live: its lease tells.
    stale = [task for task in claimed if not task.started and not task.remote]
    for task in stale:
        target = TASK.next(task.state, TaskEvent.UNCLAIM)
        inputs = {"task": task.id, "event": TaskEvent.UNCLAIM, "reason": Reason.CLAIM_RELEASED}
        ledger.append(ledger.epoch, [Record(MOVE_TO[target], inputs, actor=RECOVER)])
    return len(stale)
