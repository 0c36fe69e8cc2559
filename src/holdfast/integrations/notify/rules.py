"""Which rule wants what, and when it may leave: filters, quiet hours, digest windows. Pure."""

from __future__ import annotations

import hashlib
import math
from datetime import datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

from holdfast.config.notify import NotifyRule
from holdfast.domain.definition import Definition
from holdfast.domain.messages.outbox_records import MessageQueued
from holdfast.integrations.notify.events import OWN_KEYS, Notification

# A send that a crash cut off: on the first it waits for a person, on the second it is sent again. On the third wait the
# parts of a digest.
ONCE, REPEATED, DIGEST = "notification", "repeated_notification", "digest"
ANSWER_LINK_S = 86_400.0


def wants(rule: NotifyRule, told: Notification, definition: Definition | None) -> bool:
    """A rule with labels or roles wants nothing that is about no task."""
    if told.kind not in rule.on:
        return False
    if rule.labels and (definition is None or not set(rule.labels) & set(definition.labels)):
        return False
    return not rule.roles or (definition is not None and definition.role in rule.roles)


def messages(rule: NotifyRule, told: Notification, project: str, now: float) -> list[MessageQueued]:
    """One message for each address: where one of them is away, the others are not told twice."""
    content = {
        "rule": rule.name,
        "kind": told.kind,
        "title": f"{project}: {told.title}",
        "body": told.body,
        "place": told.place,
        "at": now,
    }
    if told.question:
        content |= {"question": told.question, "answers": list(told.answers), "expires": now + ANSWER_LINK_S}
    channel = channel_of(rule)
    if rule.digest_s is not None:
        content, channel = {**content, "channel": channel, "due": leaves_at(rule, now)}, DIGEST
    return [
        MessageQueued(
            idempotency_key=f"{OWN_KEYS}{rule.name}:{told.subject}:{address_id(ref)}",
            channel=channel,
            task=told.task,
            content={**content, "to": ref},
            not_before=leaves_at(rule, now),
        )
        for ref in dict.fromkeys(rule.to)
    ]


def channel_of(rule: NotifyRule) -> str:
    return REPEATED if rule.repeat == "after_crash" else ONCE


def address_id(ref: str) -> str:
    """Names an address in keys. Of the reference, never of the address."""
    return hashlib.sha256(ref.encode()).hexdigest()[:8]


def leaves_at(rule: NotifyRule, now: float) -> float:
    """When a message of now may leave; 0: at once."""
    at = 0.0 if rule.digest_s is None else (math.floor(now / rule.digest_s) + 1) * rule.digest_s
    return quiet_until(rule, at or now) or at


def quiet_until(rule: NotifyRule, moment: float) -> float:
    """The end of the quiet hours that the moment is in; 0 where it is in none."""
    if rule.quiet is None:
        return 0.0
    begins, ends = (time.fromisoformat(each) for each in rule.quiet.split("-"))
    zone: tzinfo | None = ZoneInfo(rule.time_zone) if rule.time_zone else None
    local = datetime.fromtimestamp(moment, zone)
    spans_midnight = begins > ends
    is_quiet = (local.time() >= begins or local.time() < ends) if spans_midnight else begins <= local.time() < ends
    if not is_quiet:
        return 0.0
    day = local.date() + timedelta(days=1) if spans_midnight and local.time() >= begins else local.date()
    # Made anew from the wall's time: its offset may be another than now's.
    return datetime.combine(day, ends, zone).timestamp()
