"""Takes a delivery: journals it, and then the tasks that the rules ask for, each once.

The order is delivery, tasks, judgement, in one append where nothing interrupts it. A kill leaves a beginning of that: a
delivery without a judgement is judged again by the next run, which finds its tasks under their keys.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.crashpoints import point
from holdfast.decisions.context import DecisionContext
from holdfast.decisions.new_tasks import Catalogue, create
from holdfast.domain.task import TaskState
from holdfast.domain.triggers.trigger_records import (
    DeliveryJudged,
    DeliveryReceived,
    RuleFacts,
    RuleOutcome,
    RuleSwitched,
)
from holdfast.errors import (
    BlobCorrupt,
    BlobMissing,
    DefinitionInvalid,
    DeliveryBodyGone,
    DeliveryUnreadable,
    InputError,
    TaskExists,
)
from holdfast.integrations.triggers import template
from holdfast.integrations.triggers.event import Delivery, TriggerEvent
from holdfast.integrations.triggers.rules import (
    BreakerSettings,
    Match,
    TriggerRule,
    breaks,
    is_echo,
    matches,
    own_reason,
    refusal,
)
from holdfast.integrations.triggers.trigger_file import TriggerConfig
from holdfast.storage.journal.entry import Record

ACTOR = "triggers"
DELIVERY_POINTS = ("delivery.received", "delivery.fired", "delivery.judged")
RECENT_MAX = 10_000
REASON_CHARS_MAX = 300
T = TypeVar("T")


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery that is verified and read, and its body on disk. `own`: why it is one of ours.

    `key`: under which it is judged: its own, or that of its body where only the body is signed.
    """

    received: DeliveryReceived
    key: str
    event: TriggerEvent
    own: str
    matches: list[Match]
    breaker: BreakerSettings


class _Recent(OrderedDict[str, T], Generic[T]):
    """The newest values, by key: what is being appended is not in the journal's file yet."""

    def keep(self, key: str, value: T) -> None:
        self[key] = value
        while len(self) > RECENT_MAX:
            self.popitem(last=False)


def read_arrival(config: TriggerConfig, name: str, delivery: Delivery, at: float, slot: float = 0.0) -> Arrival:
    """Reads a delivery and asks the rules; changes nothing. Raises DeliveryUnreadable."""
    source = config.sources[name]
    digest = hashlib.sha256(delivery.body).hexdigest()
    kept = {key: delivery.headers[key][:300] for key in source.kept_headers if delivery.headers.get(key)}
    # Read by what is kept, so that it is read alike when it is judged again.
    event = source.normalise(Delivery(kept, delivery.body, digest))
    received = DeliveryReceived(
        idempotency_key=f"{name}:{event.id}",
        source=name,
        type=config.types[name],
        kind=event.kind,
        id=event.id,
        body=digest,
        at=at,
        actor=event.actor,
        title=event.title[:200],
        url=event.url,
        headers=kept,
        slot=slot,
    )
    own = own_reason(event, source.ours, config.branch_prefix)
    found = [] if own else [each for each in matches(config.rules, event, config.patterns) if not each.reason]
    key = _body_key(received) if source.is_known_by_body else received.idempotency_key
    return Arrival(received=received, key=key, event=event, own=own, matches=found, breaker=config.breaker)


def _body_key(received: DeliveryReceived) -> str:
    return f"{received.source}:sha256:{received.body}"


class Intake:
    """Takes deliveries, in the thread that appends. One for each run; what it keeps in memory the journal has, too."""

    def __init__(self) -> None:
        self._catalogue = Catalogue()
        self._judged: _Recent[DeliveryJudged] = _Recent()
        self._tasks: _Recent[tuple[str, str]] = _Recent()

    def known(self, decision: DecisionContext, key: str) -> DeliveryJudged | None:
        """What the rules made of a delivery before; None where they have not been asked."""
        if (found := self._judged.get(key)) is not None:
            return found
        entry = decision.ledger.find("delivery_judged", key)
        return None if entry is None else msgspec.convert(entry.inputs, DeliveryJudged)

    def take(self, decision: DecisionContext, arrival: Arrival) -> DeliveryJudged:
        """Journals a delivery and what follows from it; of one that came before, says what followed."""
        key = arrival.received.idempotency_key
        if (before := self._before(decision, arrival)) is not None:
            return before
        with decision.ledger.together():
            if decision.ledger.pairing.find_executed("delivery_received", key) is None:
                self._append(decision, "delivery_received", arrival.received)
            point("delivery.received")
            return self.judge(decision, arrival, arrival.key)

    def _before(self, decision: DecisionContext, arrival: Arrival) -> DeliveryJudged | None:
        """What followed from the same delivery; where only the body is signed, also from the same body."""
        received, key = arrival.received, arrival.key
        if (found := self.known(decision, received.idempotency_key)) is not None or key == received.idempotency_key:
            return found
        if (found := self.known(decision, key)) is not None:
            return found
        if (entry := decision.ledger.find("delivery_received", received.idempotency_key)) is not None:
            # The same id with another body, or one that a kill cut off.
            return self.known(decision, _body_key(msgspec.convert(entry.inputs, DeliveryReceived)))
        for left in list_left(decision):
            if (left.source, left.body) == (received.source, received.body):
                return _judge_left(decision, self, decision.context.triggers.current(), left)
        return None

    def judge(self, decision: DecisionContext, arrival: Arrival, key: str) -> DeliveryJudged:
        """`key`: the delivery's own, or one for judging it again."""
        now, delivery = arrival.received.at, arrival.received.idempotency_key
        outcomes = [self._apply(decision, arrival, each.rule, now) for each in arrival.matches]
        point("delivery.fired")
        judged = DeliveryJudged(
            idempotency_key=key, delivery=delivery, at=now, outcomes=outcomes, own=arrival.own[:REASON_CHARS_MAX]
        )
        self._append(decision, "delivery_judged", judged)
        for each in {key, delivery}:
            self._judged.keep(each, judged)
        point("delivery.judged")
        return judged

    def _apply(self, decision: DecisionContext, arrival: Arrival, rule: TriggerRule, now: float) -> RuleOutcome:
        facts = decision.ledger.state.connections.triggers.rules.get(rule.name, RuleFacts())
        delivery, event = arrival.received.idempotency_key, arrival.event
        key = template.fill(rule.key, event)[: template.KEY_CHARS_MAX]
        full, echo = f"trigger:{rule.name}:{key}", is_echo(event, facts)
        if (made := self._made(decision, full)) is not None:
            task, maker = made
            # Made before a kill by this very delivery: it counts as what it is.
            is_new = maker == delivery and delivery in decision.ledger.state.connections.triggers.unjudged
            why = "" if is_new else f"the key {key} has its task"
            return RuleOutcome(rule=rule.name, task=task, new=is_new, key=key, reason=why, is_echo=echo)
        if why := refusal(rule, facts, now):
            return RuleOutcome(rule=rule.name, key=key, reason=why[:REASON_CHARS_MAX], is_echo=echo)
        if echo and (why := breaks(facts, arrival.breaker, now)):
            switched = RuleSwitched(rule=rule.name, how="set_aside", reason=why)
            self._append(decision, "rule_switched", switched)
            return RuleOutcome(rule=rule.name, key=key, reason=f"it is set aside: {why}", is_echo=echo)
        try:
            task = self._make(dataclasses.replace(decision, key=full), rule, event, delivery)
        except (InputError, DefinitionInvalid, TaskExists) as error:
            return RuleOutcome(rule=rule.name, key=key, reason=str(error)[:REASON_CHARS_MAX], is_echo=echo)
        self._tasks.keep(full, (task, delivery))
        return RuleOutcome(rule=rule.name, task=task, new=True, key=key, is_echo=echo)

    def _made(self, decision: DecisionContext, key: str) -> tuple[str, str] | None:
        """The task that was made under a key, and the delivery that it was made for."""
        if (found := self._tasks.get(key)) is not None:
            return found
        entry = decision.ledger.find("task_added", key)
        return None if entry is None else (entry.inputs["task"], str(entry.inputs.get("delivery", "")))

    def _make(self, decision: DecisionContext, rule: TriggerRule, event: TriggerEvent, delivery: str) -> str:
        values = template.build(rule.task, event)
        self._catalogue.learn(decision.ledger.state.tasks)
        if words := values.pop("id", ""):
            values["id"] = self._catalogue.free(words, decision.ledger.state.tasks, {})
        facts: Mapping[str, Any] = {"rule": rule.name, "delivery": delivery}
        if rule.approve_first:
            facts = {**facts, "state": TaskState.PLANNED}
        return create(decision, self._catalogue, [values], facts=facts)[0]

    def _append(self, decision: DecisionContext, kind: str, payload: msgspec.Struct) -> None:
        decision.append([Record(kind, msgspec.to_builtins(payload), actor=ACTOR)])


# -- deliveries of the journal ----------------------------------------------------------------------------------------


def arrival_of(decision: DecisionContext, config: TriggerConfig, received: DeliveryReceived) -> Arrival:
    """A delivery of the journal, read again with the rules of now. Raises DeliveryBodyGone and DeliveryUnreadable."""
    key = received.idempotency_key
    if received.source not in config.sources:
        raise DeliveryUnreadable(reason=f"there is no source {received.source} any more")
    try:
        body = decision.blobs.get(received.body)
    except (BlobMissing, BlobCorrupt) as error:
        raise DeliveryBodyGone(delivery=key, reason=str(error)) from None
    read = read_arrival(config, received.source, Delivery(received.headers, body), received.at, received.slot)
    return msgspec.structs.replace(read, received=received)


def judge_left(decision: DecisionContext, intake: Intake, config: TriggerConfig) -> list[DeliveryJudged]:
    """Judges the deliveries that a kill left without it."""
    return [_judge_left(decision, intake, config, each) for each in list_left(decision)]


def list_left(decision: DecisionContext) -> Sequence[DeliveryReceived]:
    return list(decision.ledger.state.connections.triggers.unjudged.copy().values())


def _judge_left(
    decision: DecisionContext, intake: Intake, config: TriggerConfig, received: DeliveryReceived
) -> DeliveryJudged:
    try:
        arrival = arrival_of(decision, config, received)
    except (DeliveryBodyGone, DeliveryUnreadable) as error:
        event = TriggerEvent(source=received.source, kind=received.kind, id=received.id)
        said = str(error)
        key = received.idempotency_key
        arrival = Arrival(received=received, key=key, event=event, own=said, matches=[], breaker=config.breaker)
    with decision.ledger.together():
        if received.idempotency_key not in decision.ledger.state.connections.triggers.unjudged:
            known = intake.known(decision, received.idempotency_key) or intake.known(decision, arrival.key)
            assert known is not None
            return known
        return intake.judge(decision, arrival, arrival.key)
