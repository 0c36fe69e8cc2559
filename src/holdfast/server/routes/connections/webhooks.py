"""Deliveries of other services, and what became of them.

A delivery is public, and its signature is the proof of who sent it. Its body is on disk before it is journalled, and
it is answered once the journal has it: what was answered is never lost, and the same delivery gets the same answer.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from holdfast.clock import wall
from holdfast.decisions.connections.deliveries import Arrival, read_arrival
from holdfast.decisions.context import DecisionContext
from holdfast.decisions.mailbox import decide
from holdfast.domain.triggers.trigger_records import RuleOutcome
from holdfast.errors import DeliveryUnreadable, SecretMissing, SignatureRefused, TriggersUnusable
from holdfast.integrations.pull_requests.forges import FORGES
from holdfast.integrations.pull_requests.poll import POLL
from holdfast.integrations.triggers.event import Delivery, Handshake
from holdfast.integrations.triggers.trigger_file import TriggerConfig
from holdfast.server.api_state import Api
from holdfast.server.operations import Ask, Operation
from holdfast.server.problems import Problem
from holdfast.storage.records.blobs import NewBlob
from holdfast.views.connections.triggers import (
    DeliveryRow,
    RuleRow,
    TriggerSourceRow,
    delivery_rows,
    rule_rows,
    source_rows,
)

Key = Annotated[str, Meta(min_length=1, max_length=400)]


class Triggers(msgspec.Struct, frozen=True):
    """`problem`: why the file cannot be used; the rules are then those that were read before."""

    sources: list[TriggerSourceRow]
    rules: list[RuleRow]
    problem: str = ""


class Deliveries(msgspec.Struct, frozen=True):
    """The newest first."""

    deliveries: list[DeliveryRow]


class DeliveriesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50


class Replay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    delivery: Key


class Replayed(msgspec.Struct, frozen=True):
    delivery: str
    outcomes: list[RuleOutcome]
    own: str = ""


class Enabled(msgspec.Struct, frozen=True):
    rule: str


class DeliveryReceipt(msgspec.Struct, frozen=True):
    """`tasks`: those that rules have made of it, now or when it came first."""

    delivery: str
    tasks: list[str]


def admit(api: Api, path: dict[str, str]) -> int:
    """How long the body may be. A source that is not in the settings is no path."""
    source = _config(api).sources.get(path["source"])
    if source is None or not source.hears:
        raise Problem(404, "no_such_path", "There is no such thing. See /docs.")
    api.delivery_quotas.expect_room(path["source"])
    return source.body_bytes_max


def receive(api: Api, ask: Ask) -> Arrival | Handshake:
    """Verifies and reads a delivery, and puts its body on disk."""
    config, name = _config(api), ask.path["source"]
    source = config.sources.get(name)
    if source is None:
        raise Problem(404, "no_such_path", "There is no such thing. See /docs.")
    delivery = Delivery(ask.headers, ask.body)
    try:
        source.verify(delivery, api.context.triggers.secrets(source), wall())
        if (handshake := source.handshake(delivery)) is not None:
            return handshake
        arrival = read_arrival(config, name, delivery, wall())
    except SignatureRefused as error:
        raise Problem(401, "signature_refused", str(error)) from None
    except SecretMissing as error:
        api.logs.write("secret_missing", "error", source=name, error=str(error))
        raise Problem(503, "secret_missing", "The source's secret cannot be read. Nothing was kept.") from None
    except DeliveryUnreadable as error:
        raise Problem(400, "delivery_unreadable", str(error)) from None
    known = api.context.ledger.pairing.find_executed("delivery_received", arrival.received.idempotency_key)
    if known is None:
        kind = ask.headers.get("content-type", "")[:100] or "application/octet-stream"
        api.context.blobs.put_many([NewBlob(ask.body, kind)])
    return arrival


def take(decision: DecisionContext, ask: Ask) -> Any:
    found: Arrival | Handshake = ask.found
    if isinstance(found, Handshake):
        return found.content
    judged = ask.api.intake.take(decision, found)
    if found.received.type in FORGES and ask.api.context.poke is not None:
        # It may be about a pull request of ours: a look tells, and costs nothing where there is none.
        ask.api.context.poke(POLL)
    tasks = [each.task for each in judged.outcomes if each.task]
    source = _config(ask.api).sources.get(found.received.source)
    asked = source.answer(tasks) if source is not None else None
    return asked if asked is not None else DeliveryReceipt(judged.delivery, tasks)


def _config(api: Api) -> TriggerConfig:
    try:
        return api.context.triggers.current()
    except TriggersUnusable:
        # Without the file's path and words, which are no stranger's to know.
        detail = "The triggers cannot be read now. Nothing was kept; deliver it again later."
        raise Problem(503, "triggers_unusable", detail, Retry_After="60") from None


def list_triggers(api: Api, ask: Ask) -> Triggers:
    broken = ""
    try:
        config = api.context.triggers.current()
        broken = str(api.context.triggers.broken or "")
    except TriggersUnusable as error:
        config, broken = TriggerConfig(), str(error)
    return Triggers(
        source_rows(config), rule_rows(config, api.context.ledger.state.connections.triggers, wall()), broken
    )


def list_deliveries(api: Api, ask: Ask) -> Deliveries:
    return Deliveries(delivery_rows(api.context.ledger, api.feed.end, ask.query.limit))


def replay(decision: DecisionContext, ask: Ask) -> Replayed:
    answer = decide(decision, "replay", {"delivery": ask.body.delivery})
    outcomes = msgspec.convert(answer.facts["outcomes"], list[RuleOutcome])
    return Replayed(ask.body.delivery, outcomes, answer.facts["own"])


def rearm(decision: DecisionContext, ask: Ask) -> Enabled:
    decide(decision, "rearm", {"rule": ask.path["rule"]})
    return Enabled(ask.path["rule"])


OPERATIONS = [
    Operation("POST", "/webhooks/{source}", "take_delivery", "Take a delivery of another service.", take,
              answer=dict[str, Any], right="public", lane="batch", body=bytes, tag="triggers",
              problems=(204, 400, 401, 404, 429, 503), before=receive, admit=admit),
    Operation("GET", "/triggers", "list_triggers", "Sources and rules, and how often each rule fired.", list_triggers,
              answer=Triggers, lane="aside", right="operate", tag="triggers"),
    Operation("POST", "/triggers/{rule}/enable", "rearm_rule", "Let a rule fire again that was set aside.", rearm,
              answer=Enabled, right="operate", lane="loop", tag="triggers", problems=(422,)),
    Operation("GET", "/deliveries", "list_deliveries", "The newest deliveries, and what each made.", list_deliveries,
              answer=Deliveries, query=DeliveriesQuery, lane="aside", right="operate", tag="triggers"),
    Operation("POST", "/deliveries/replay", "replay_delivery", "Ask the rules of now about a delivery again.", replay,
              answer=Replayed, body=Replay, right="operate", lane="loop", tag="triggers", problems=(422,)),
]  # fmt: skip
