"""Deliveries and the rules that they fired, as entries and as their fold.

A delivery is journalled with its body as a blob before it is acknowledged. Then the rules are judged:
the tasks are journalled, and behind them one entry that says what every rule made of it. A delivery without that entry
was cut off by a kill, and the next run judges it: what it had made is found under its keys, and not made again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

# For `max_per_hour`: no rule may ask for more, so older firings need not be known.
FIRINGS_KEPT = 1000
TASKS_KEPT = 50
HOUR_S = 3600.0


class DeliveryReceived(msgspec.Struct, frozen=True, kw_only=True):
    """`idempotency_key` is `<source>:<id>`. `body` is a blob. `headers`: those by which the body is read again.

    `type` is the kind of source, `kind` that of the event. `slot`: of a schedule, the moment that it stands for.
    """

    idempotency_key: str
    source: str
    type: str
    kind: str
    id: str
    body: str
    at: float
    actor: str = ""
    title: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    slot: float = 0.0


class RuleOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`task`: what it made; empty where it did not fire, for the `reason`. `new`: it was made by this delivery.

    `key` is that of the deduplication. `is_echo`: the event names a task that this very rule has made.
    """

    rule: str
    task: str = ""
    new: bool = False
    key: str = ""
    reason: str = ""
    is_echo: bool = False


class DeliveryJudged(msgspec.Struct, frozen=True, kw_only=True):
    """`idempotency_key` is the delivery's, with a suffix where it was judged again; where only the body is signed,
    `<source>:sha256:<body>`, so that the same body under another id is found. `own`: why it is one of ours."""

    idempotency_key: str
    delivery: str
    at: float
    outcomes: list[RuleOutcome] = []
    own: str = ""


class RuleSwitched(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that fires on what it has made itself is set aside; a person enables it again."""

    rule: str
    how: Literal["set_aside", "enabled"]
    reason: str = ""


class ScheduleNoted(msgspec.Struct, frozen=True, kw_only=True):
    """From `at` on, the schedule counts: what it asked for before is nothing that was missed."""

    source: str
    schedule: str
    at: float


class RuleFacts(msgspec.Struct, frozen=True):
    """`fired`: when, the newest last. `echoes`: those on what it has made itself. `tasks`: the newest that it made."""

    fired: tuple[float, ...] = ()
    echoes: tuple[float, ...] = ()
    tasks: tuple[str, ...] = ()
    set_aside: str = ""


class ScheduleFacts(msgspec.Struct, frozen=True):
    """`last`: the newest moment that was delivered, or from which on it counts."""

    schedule: str
    last: float


class TriggerFacts(msgspec.Struct):
    """`unjudged`: deliveries that no entry has judged, by key. All are replaced, never changed in place, so that a copy
    of the three mappings is a state of its own."""

    unjudged: dict[str, DeliveryReceived] = {}
    rules: dict[str, RuleFacts] = {}
    schedules: dict[str, ScheduleFacts] = {}

    def __copy__(self) -> TriggerFacts:
        return TriggerFacts(self.unjudged.copy(), self.rules.copy(), self.schedules.copy())


def receive(facts: TriggerFacts, received: DeliveryReceived, moment: float) -> str:
    """Returns why it cannot be, or nothing."""
    key = received.idempotency_key
    if key in facts.unjudged:
        return f"the delivery {key!r} was received before"
    facts.unjudged[key] = received
    known = facts.schedules.get(received.source)
    if known is not None and received.slot > known.last:
        facts.schedules[received.source] = replace(known, last=received.slot)
    return ""


def judge(facts: TriggerFacts, judged: DeliveryJudged, moment: float) -> str:
    facts.unjudged.pop(judged.delivery, None)
    for each in judged.outcomes:
        if each.new:
            facts.rules[each.rule] = _fired(facts.rules.get(each.rule, RuleFacts()), each, judged.at)
    return ""


def _fired(rule: RuleFacts, outcome: RuleOutcome, moment: float) -> RuleFacts:
    return replace(
        rule,
        fired=_recent((*rule.fired, moment)),
        echoes=_recent((*rule.echoes, moment)) if outcome.is_echo else rule.echoes,
        tasks=(*rule.tasks, outcome.task)[-TASKS_KEPT:],
    )


def _recent(moments: tuple[float, ...]) -> tuple[float, ...]:
    """The last of all stays, however old: a cooldown may be longer than an hour."""
    kept = moments[-FIRINGS_KEPT:]
    since = kept[-1] - HOUR_S
    return kept if kept[0] > since else tuple(each for each in kept if each > since) or kept[-1:]


def switch(facts: TriggerFacts, switched: RuleSwitched, moment: float) -> str:
    """An enabled rule begins anew to count what it fired on itself."""
    known = facts.rules.get(switched.rule, RuleFacts())
    if switched.how == "enabled":
        facts.rules[switched.rule] = replace(known, set_aside="", echoes=())
    else:
        facts.rules[switched.rule] = replace(known, set_aside=switched.reason or "a person said so")
    return ""


def note_schedule(facts: TriggerFacts, noted: ScheduleNoted, moment: float) -> str:
    facts.schedules[noted.source] = ScheduleFacts(noted.schedule, noted.at)
    return ""


# What each entry changes: a function of the facts, the payload and the moment, which says why it cannot be.
TriggerFold = Callable[[TriggerFacts, Any, float], str]
CHANGES: dict[type[msgspec.Struct], TriggerFold] = {
    DeliveryReceived: receive,
    DeliveryJudged: judge,
    RuleSwitched: switch,
    ScheduleNoted: note_schedule,
}
# By their types' names in the journal.
TRIGGER_ENTRIES: dict[str, type[msgspec.Struct]] = {
    "delivery_received": DeliveryReceived,
    "delivery_judged": DeliveryJudged,
    "rule_switched": RuleSwitched,
    "schedule_noted": ScheduleNoted,
}
