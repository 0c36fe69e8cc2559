"""Discord: interactions and webhook events of an application, signed with Ed25519 over time and body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from holdfast.config.secret_refs import SecretRef
from holdfast.integrations.triggers.event import (
    BODY_CHARS_MAX,
    TITLE_CHARS_MAX,
    Delivery,
    Handshake,
    TriggerEvent,
    decode_object,
    dig,
    expect_module,
    first_text,
    id_of,
    list_at,
    text_at,
)
from holdfast.integrations.triggers.signatures import expect_ed25519, expect_fresh

_KINDS = {2: "command", 3: "component", 4: "autocomplete", 5: "modal"}
# An answer that only the user who asked sees.
_MESSAGE, _EPHEMERAL = 4, 64


class DiscordSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`public_key`: the application's, as hexadecimal digits, by reference. `ours`: ids of users that never fire."""

    public_key: SecretRef
    type: str = "discord"
    ours: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        expect_module("cryptography")


class DiscordSource:
    settings_type: ClassVar[type[msgspec.Struct]] = DiscordSettings
    hears: ClassVar[bool] = True
    body_bytes_max: ClassVar[int] = 1 << 20
    is_known_by_body = False

    def __init__(self, name: str, settings: DiscordSettings) -> None:
        self.name, self.ours, self._key = name, settings.ours, settings.public_key

    @property
    def kept_headers(self) -> tuple[str, ...]:
        return ()

    @property
    def secret_refs(self) -> tuple[str, ...]:
        return (self._key,)

    def verify(self, delivery: Delivery, secrets: Mapping[str, str], now: float) -> None:
        moment = delivery.headers.get("x-signature-timestamp", "")
        given = delivery.headers.get("x-signature-ed25519", "")
        expect_ed25519(secrets[self._key], moment.encode() + delivery.body, given)
        expect_fresh(moment, now)

    def handshake(self, delivery: Delivery) -> Handshake | None:
        payload = decode_object(delivery.body)
        if _is_webhook_event(payload):
            # Discord asks for an answer without a body.
            return Handshake(None) if payload.get("type") == 0 else None
        return Handshake({"type": 1}) if payload.get("type") == 1 else None

    def answer(self, tasks: list[str]) -> dict[str, Any] | None:
        said = f"Noted: {', '.join(tasks)}" if tasks else "No rule asks for a task here."
        return {"type": _MESSAGE, "data": {"content": said, "flags": _EPHEMERAL}}

    def normalise(self, delivery: Delivery) -> TriggerEvent:
        payload = decode_object(delivery.body)
        if _is_webhook_event(payload):
            return self._webhook_event(delivery, payload)
        number = payload.get("type")
        kind = _KINDS.get(number, "interaction") if isinstance(number, int) else "interaction"
        name = first_text(payload, ("data", "name"), ("data", "custom_id"))
        words = [text_at(each, "value", most=BODY_CHARS_MAX) for each in _options(payload)]
        body = "\n".join(filter(None, words))[:BODY_CHARS_MAX]
        return TriggerEvent(
            source=self.name,
            kind=f"{kind}.{name}" if name else kind,
            id=id_of(text_at(payload, "id"), delivery.digest),
            actor=first_text(payload, ("member", "user", "id"), ("user", "id")),
            title=(body.partition("\n")[0] or name)[:TITLE_CHARS_MAX],
            body=body or text_at(payload, "message", "content", most=BODY_CHARS_MAX),
            repository=text_at(payload, "guild_id"),
            branch=text_at(payload, "channel_id"),
            digest=delivery.digest,
            payload=payload,
        )

    def _webhook_event(self, delivery: Delivery, payload: dict[str, Any]) -> TriggerEvent:
        return TriggerEvent(
            source=self.name,
            kind=f"event.{text_at(payload, 'event', 'type').lower()}",
            # These have no id of their own; one that comes again has the same body.
            id=delivery.digest,
            actor=first_text(payload, ("event", "data", "user", "id"), ("event", "data", "author", "id")),
            body=text_at(payload, "event", "data", "content", most=BODY_CHARS_MAX),
            title=text_at(payload, "event", "data", "content", most=TITLE_CHARS_MAX).partition("\n")[0],
            digest=delivery.digest,
            payload=payload,
        )


def _is_webhook_event(payload: dict[str, Any]) -> bool:
    return payload.get("type") == 0 or "event" in payload


def _options(payload: dict[str, Any]) -> list[Any]:
    """The options of a command, also those of its subcommands, and the fields of a modal."""
    found: list[Any] = []
    todo = [*list_at(payload, "data", "options"), *list_at(payload, "data", "components")]
    while todo and len(found) < 100:
        each = todo.pop(0)
        found.append(each)
        todo += [*list_at(each, "options"), *list_at(each, "components")]
        if isinstance(inner := dig(each, "component"), dict):
            todo.append(inner)
    return found
