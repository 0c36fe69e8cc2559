"""A person's decisions about triggers: a delivery is judged again, a rule that was set aside fires again."""

from __future__ import annotations

import msgspec

from holdfast.decisions.connections.deliveries import Intake, arrival_of
from holdfast.decisions.context import Answer, DecisionContext
from holdfast.domain.triggers.trigger_records import DeliveryReceived, RuleSwitched
from holdfast.errors import DeliveryUnknown, RuleUnknown


class DeliveryReplay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`delivery`: its key, `<source>:<id>`."""

    delivery: str


class RuleChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rule: str


def replay(decision: DecisionContext, asked: DeliveryReplay) -> Answer:
    """Asks the rules of now about a delivery of the journal. A key that has its task makes no other."""
    entry = decision.ledger.find("delivery_received", asked.delivery)
    if entry is None:
        raise DeliveryUnknown(delivery=asked.delivery)
    received = msgspec.convert(entry.inputs, DeliveryReceived)
    config, intake = decision.context.triggers.current(), Intake()
    key = f"{asked.delivery}#{decision.key}"
    judged = intake.known(decision, key)
    if judged is None:
        arrival = arrival_of(decision, config, received)
        # How often a rule has fired lately counts from now, not from when it came.
        moved = msgspec.structs.replace(arrival, received=msgspec.structs.replace(received, at=decision.clock()))
        with decision.ledger.together():
            judged = intake.judge(decision, moved, key)
    tasks = [decision.task(each.task) for each in judged.outcomes if each.task]
    return decision.answer(
        *tasks, delivery=asked.delivery, own=judged.own, outcomes=msgspec.to_builtins(judged.outcomes)
    )


def rearm(decision: DecisionContext, asked: RuleChoice) -> Answer:
    """Lets a rule fire again that was set aside."""
    if not decision.has_begun():
        config = decision.context.triggers.current()
        if asked.rule not in {rule.name for rule in config.rules}:
            raise RuleUnknown(rule=asked.rule, path=config.path)
        switched = RuleSwitched(rule=asked.rule, how="enabled", reason=f"{decision.by} said so")
        decision.append([decision.record("rule_switched", 0, msgspec.to_builtins(switched))])
    return decision.answer(rule=asked.rule, how="enabled")
