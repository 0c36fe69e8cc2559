"""Recovery: after a crash, every open intent gets exactly one closing entry, and nothing is performed.

For each intent that an earlier run left open, its effect is asked what the world shows:

- it happened: `_confirmed`, at any age;
- otherwise, older than `replay_age_max_s`: `_abandoned`, and the operator gets a note;
- it did not happen: `_failed` with the reason `not_started`, and the loop plans anew;
- it cannot be told: `_parked`, until `holdfast resolve` says.

Then the claims that the dead orchestrator held and never started are given back, and `wal_replay_completed` tells the
counts. A kill at any point leaves some intents closed and the others open; the next start goes on with those.
"""

from __future__ import annotations

import msgspec

from holdfast.domain.entries import MOVE_TO, PAYLOADS, EffectIntended, ReplayCompleted
from holdfast.domain.fsm import Reason
from holdfast.domain.task import TASK, TaskEvent, TaskState
from holdfast.errors import HoldfastError, is_environment, is_fatal
from holdfast.ports import DidNotHappen, Effects, Happened, InDoubt, Ledger, Reconciled
from holdfast.storage.journal.entry import Record
from holdfast.storage.journal.intents import OpenIntent

ACTOR = "recover"


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
        _close(ledger, intent, _judge(intent, effects), now, replay_age_max_s)
        for intent in ledger.pairing.open_intents()
    ]
    released = _release_stale_claims(ledger)
    counts = {how: sum(item.how == how for item in closed) for how in ("confirmed", "failed", "abandoned", "parked")}
    completed = ReplayCompleted(**counts, released=released)
    ledger.append(ledger.epoch, [Record("wal_replay_completed", msgspec.to_builtins(completed), actor=ACTOR)])
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


def _close(ledger: Ledger, intent: OpenIntent, verdict: Reconciled, now: float, replay_age_max_s: float) -> Closed:
    old = now - intent.entry.timestamp > replay_age_max_s
    match verdict:
        case Happened(result):
            how, reason, output = "confirmed", "found done after a crash", result
        case _ if old:
            age_s = now - intent.entry.timestamp
            how, reason, output = "abandoned", f"it is {age_s:.0f} s old, and may no longer be wanted", {}
        case DidNotHappen():
            how, reason, output = "failed", Reason.NOT_STARTED, {}
        case InDoubt(doubt):
            how, reason, output = "parked", doubt, {}
    task = intent.entry.inputs.get("task", "")
    kind = intent.entry.decision_type.removesuffix("_intent")
    inputs = {"intent": intent.ref, "task": task, "attempt": intent.entry.inputs.get("attempt", ""), "reason": reason}
    ledger.append(ledger.epoch, [Record(f"{kind}_{how}", inputs, output, ACTOR)])
    return Closed(task, intent.entry.decision_type, how, reason)


def _release_stale_claims(ledger: Ledger) -> int:
    """A task that was claimed and never started has nobody working on it: it is open again, under the same attempt."""
    # A copy: requests of the API add tasks meanwhile.
    claimed = (task for task in ledger.state.tasks.copy().values() if task.state is TaskState.CLAIMED)
    # A worker that is none of ours may well live: its lease tells.
    stale = [task for task in claimed if not task.started and not task.remote]
    for task in stale:
        target = TASK.next(task.state, TaskEvent.UNCLAIM)
        inputs = {"task": task.id, "event": TaskEvent.UNCLAIM, "reason": Reason.CLAIM_RELEASED}
        ledger.append(ledger.epoch, [Record(MOVE_TO[target], inputs, actor=ACTOR)])
    return len(stale)
