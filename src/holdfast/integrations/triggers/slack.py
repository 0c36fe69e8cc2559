"""Slack: events, slash commands and interactions of an app, with the signature that Slack documents (`v0`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import parse_qsl

import msgspec

from holdfast.config.secret_refs import SecretRef
from holdfast.errors import DeliveryUnreadable
from holdfast.integrations.triggers.event import (
    BODY_CHARS_MAX,
    TITLE_CHARS_MAX,
    Delivery,
    Handshake,
    TriggerEvent,
    decode_object,
    first_text,
    id_of,
    text_at,
)
from holdfast.integrations.triggers.signatures import expect_fresh, expect_hmac

FORM = "application/x-www-form-urlencoded"


class SlackSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`signing_secret`: the app's. `ours`: ids of users and bots whose messages never fire, such as our own bot."""

    signing_secret: SecretRef
    type: str = "slack"
    ours: tuple[str, ...] = ()


class SlackSource:
    settings_type: ClassVar[type[msgspec.Struct]] = SlackSettings
    hears: ClassVar[bool] = True
    body_bytes_max: ClassVar[int] = 1 << 20
    is_known_by_body = False

    def __init__(self, name: str, settings: SlackSettings) -> None:
        self.name, self.ours, self._secret = name, settings.ours, settings.signing_secret

    @property
    def kept_headers(self) -> tuple[str, ...]:
        return ("content-type",)

    @property
    def secret_refs(self) -> tuple[str, ...]:
        return (self._secret,)

    def verify(self, delivery: Delivery, secrets: Mapping[str, str], now: float) -> None:
        moment = delivery.headers.get("x-slack-request-timestamp", "")
        expect_fresh(moment, now)
        signed = f"v0:{moment}:".encode() + delivery.body
        expect_hmac(secrets[self._secret], signed, delivery.headers.get("x-slack-signature", ""), prefix="v0=")

    def handshake(self, delivery: Delivery) -> Handshake | None:
        payload = _payload(delivery)
        if payload.get("type") == "url_verification":
            return Handshake({"challenge": text_at(payload, "challenge", most=1000)})
        return Handshake({}) if payload.get("ssl_check") == "1" else None

    def answer(self, tasks: list[str]) -> dict[str, Any] | None:
        return {"text": f"Noted: {', '.join(tasks)}"} if tasks else {}

    def normalise(self, delivery: Delivery) -> TriggerEvent:
        payload = _payload(delivery)
        event = payload["event"] if isinstance(payload.get("event"), dict) else {}
        command = text_at(payload, "command")
        kind = first_text(event, ("type",)) or ("command" if command else text_at(payload, "type")) or "unknown"
        subtype = text_at(event, "subtype") or command.removeprefix("/") or text_at(payload, "callback_id")
        body = first_text(
            payload, ("event", "text"), ("text",), ("message", "text"), ("event", "item", "ts"), most=BODY_CHARS_MAX
        )
        given = first_text(payload, ("event_id",), ("trigger_id",))
        return TriggerEvent(
            source=self.name,
            kind=f"{kind}.{subtype}" if subtype else kind,
            id=id_of(given, delivery.digest),
            actor=first_text(payload, ("event", "user"), ("event", "bot_id"), ("user_id",), ("user", "id")),
            title=body.partition("\n")[0][:TITLE_CHARS_MAX],
            body=body,
            number=first_text(payload, ("event", "ts"), ("message", "ts")),
            repository=first_text(payload, ("team_id",), ("team", "id")),
            branch=first_text(payload, ("event", "channel"), ("channel_id",), ("channel", "id")),
            label=text_at(event, "reaction"),
            labels=(text_at(event, "reaction"),) if text_at(event, "reaction") else (),
            digest=delivery.digest,
            payload=payload,
        )


def _payload(delivery: Delivery) -> dict[str, Any]:
    """Events are JSON; commands are forms, and interactions are JSON within a form."""
    is_form = delivery.headers.get("content-type", "").startswith(FORM)
    if not is_form or delivery.body.lstrip()[:1] == b"{":
        return decode_object(delivery.body)
    try:
        form = dict(parse_qsl(delivery.body.decode(), keep_blank_values=True, max_num_fields=200))
    except ValueError:
        raise DeliveryUnreadable(reason="it is no form") from None
    return decode_object(form["payload"].encode()) if "payload" in form else form
