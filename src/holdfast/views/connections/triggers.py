"""Sources, rules and deliveries as rows: what is set up, how often each rule fired, and what each delivery made."""

from __future__ import annotations

import msgspec

from holdfast.domain.triggers.trigger_records import (
    HOUR_S,
    DeliveryJudged,
    DeliveryReceived,
    RuleFacts,
    RuleOutcome,
    TriggerFacts,
)
from holdfast.integrations.triggers.event import TriggerEvent
from holdfast.integrations.triggers.rules import TriggerRule, matches, own_reason, refusal
from holdfast.integrations.triggers.trigger_file import TriggerConfig
from holdfast.ports import LedgerReader
from holdfast.storage.journal.pages import Cursor, WantedPage
from holdfast.storage.journal.writer import epoch_of

_KINDS = ("delivery_received", "delivery_judged")


class TriggerSourceRow(msgspec.Struct, frozen=True):
    """`path`: where deliveries are sent; empty where none come. `secrets`: the references."""

    name: str
    type: str
    path: str
    secrets: tuple[str, ...] = ()


class RuleRow(msgspec.Struct, frozen=True):
    """`fired`: how often within the last hour; `last`: when, or 0. `held`: why it would not fire now."""

    name: str
    source: str
    kinds: tuple[str, ...]
    fired: int
    last: float
    approve_first: bool
    held: str = ""


class DeliveryRow(msgspec.Struct, frozen=True, kw_only=True):
    """`judged`: the rules were asked; one that a kill cut off is judged by the next run."""

    delivery: str
    at: float
    kind: str
    actor: str = ""
    title: str = ""
    body: str = ""
    judged: bool = False
    own: str = ""
    outcomes: list[RuleOutcome] = []


class RuleVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule would make of an event; `reason`: why it would not fire."""

    rule: str
    fires: bool
    reason: str = ""
    key: str = ""
    task: dict[str, object] = {}


def source_rows(config: TriggerConfig) -> list[TriggerSourceRow]:
    return [
        TriggerSourceRow(name, config.types[name], f"/webhooks/{name}" if source.hears else "", source.secret_refs)
        for name, source in config.sources.items()
    ]


def rule_rows(config: TriggerConfig, facts: TriggerFacts, now: float) -> list[RuleRow]:
    return [_rule_row(rule, facts.rules.get(rule.name, RuleFacts()), now) for rule in config.rules]


def _rule_row(rule: TriggerRule, known: RuleFacts, now: float) -> RuleRow:
    return RuleRow(
        rule.name,
        rule.on.source,
        rule.on.kinds,
        sum(each > now - HOUR_S for each in known.fired),
        last=known.fired[-1] if known.fired else 0.0,
        approve_first=rule.approve_first,
        held=refusal(rule, known, now) if rule.enabled else "it is switched off (enabled: false)",
    )


def delivery_rows(reader: LedgerReader, end: Cursor, limit: int) -> list[DeliveryRow]:
    """The newest first. Of one that was judged several times, the last judgement."""
    judged: dict[str, DeliveryJudged] = {}
    found: list[DeliveryRow] = []
    after: Cursor | None = None
    while len(found) < limit:
        page = reader.page(WantedPage(kinds=_KINDS), after, 1000, end=end, is_backward=True)
        for _, entry in page.items:
            if entry.decision_type == "delivery_judged":
                said = msgspec.convert(entry.inputs, DeliveryJudged)
                judged.setdefault(said.delivery, said)
            elif len(found) < limit:
                received = msgspec.convert(entry.inputs, DeliveryReceived)
                found.append(_delivery_row(received, judged.get(received.idempotency_key)))
        if not page.next:
            break
        run, _, seq = page.next.rpartition(":")
        after = (epoch_of(run), int(seq))
    return found


def _delivery_row(received: DeliveryReceived, judged: DeliveryJudged | None) -> DeliveryRow:
    return DeliveryRow(
        delivery=received.idempotency_key,
        at=received.at,
        kind=received.kind,
        actor=received.actor,
        title=received.title,
        body=received.body,
        judged=judged is not None,
        own=judged.own if judged is not None else "",
        outcomes=judged.outcomes if judged is not None else [],
    )


def verdicts(config: TriggerConfig, event: TriggerEvent, facts: TriggerFacts, now: float) -> list[RuleVerdict]:
    """What each rule would make of an event now. Whether its key has a task, only a run can tell."""
    from holdfast.integrations.triggers import template

    own = own_reason(event, config.sources[event.source].ours, config.branch_prefix)
    found = []
    for match in matches(config.rules, event, config.patterns):
        rule = match.rule
        reason = own or match.reason or refusal(rule, facts.rules.get(rule.name, RuleFacts()), now)
        task = {} if reason else template.build(rule.task, event)
        key = "" if reason else template.fill(rule.key, event)
        found.append(RuleVerdict(rule=rule.name, fires=not reason, reason=reason, key=key, task=task))
    return found
