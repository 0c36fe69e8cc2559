"""Any other service that sends JSON: signed with an HMAC, by the Standard Webhooks specification, or with a token."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from holdfast.config.secret_refs import SecretRef
from holdfast.errors import SignatureRefused
from holdfast.integrations.triggers.event import (
    BODY_CHARS_MAX,
    TITLE_CHARS_MAX,
    Delivery,
    Handshake,
    TriggerEvent,
    decode_object,
    id_of,
    names_at,
    text_at,
)
from holdfast.integrations.triggers.signatures import expect_fresh, expect_hmac, expect_one_of, expect_same

Header = Annotated[str, Meta(pattern=r"^[A-Za-z0-9-]{1,100}\Z")]
Path = Annotated[str, Meta(pattern=r"^[^\x00-\x1f]{1,300}\Z")]


class FieldPaths(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where in the JSON each field of the event is: keys, with dots between them. Without one, the field's own name."""

    kind: Path = "kind"
    id: Path = "id"
    actor: Path = "actor"
    title: Path = "title"
    body: Path = "body"
    url: Path = "url"
    number: Path = "number"
    branch: Path = "branch"
    labels: Path = "labels"
    paths: Path = "paths"


class WebhookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`hmac` or `token`: the secret, by reference. `scheme: standard` is that of Standard Webhooks, with id and time.

    `signature_header` has the HMAC behind `prefix`, in hexadecimal digits or base64; with `timestamp_header`, time and
    body are signed with a dot between them, and an old delivery is refused. `token_header` has the token; in
    `Authorization` it stands behind `Bearer`. `id_header` and `kind_header` come before the fields of the body.
    `repeats`: the sender posts the same body for different events, which then are told apart by their ids.
    """

    type: Literal["webhook"] = "webhook"
    hmac: SecretRef | None = None
    token: SecretRef | None = None
    scheme: Literal["plain", "standard"] = "plain"
    signature_header: Header = "X-Signature-256"
    prefix: Annotated[str, Meta(max_length=20)] = ""
    encoding: Literal["hex", "base64"] = "hex"
    timestamp_header: Header | None = None
    token_header: Header = "Authorization"
    id_header: Header = "X-Delivery-Id"
    kind_header: Header = "X-Event"
    fields: FieldPaths = FieldPaths()
    ours: tuple[str, ...] = ()
    repeats: bool = False

    def __post_init__(self) -> None:
        if (self.hmac is None) == (self.token is None):
            raise ValueError("give either hmac or token, the reference to a secret")
        if self.scheme == "standard" and self.hmac is None:
            raise ValueError("scheme: standard needs hmac, the reference to a secret")


class WebhookSource:
    settings_type: ClassVar[type[msgspec.Struct]] = WebhookSettings
    hears: ClassVar[bool] = True
    body_bytes_max: ClassVar[int] = 1 << 20

    def __init__(self, name: str, settings: WebhookSettings) -> None:
        self.name, self.ours, self._settings = name, settings.ours, settings
        signs_more = settings.scheme == "standard" or settings.timestamp_header is not None
        self.is_known_by_body = settings.hmac is not None and not signs_more and not settings.repeats

    @property
    def kept_headers(self) -> tuple[str, ...]:
        return (self._settings.id_header.lower(), self._settings.kind_header.lower(), "webhook-id")

    @property
    def secret_refs(self) -> tuple[str, ...]:
        return tuple(filter(None, (self._settings.hmac, self._settings.token)))

    def verify(self, delivery: Delivery, secrets: Mapping[str, str], now: float) -> None:
        kept, headers = self._settings, delivery.headers
        secret = secrets[kept.hmac or kept.token or ""]
        if kept.token is not None:
            given = headers.get(kept.token_header.lower(), "")
            is_bearer = kept.token_header.lower() == "authorization" and given[:7].lower() == "bearer "
            expect_same(secret, given[7:].strip() if is_bearer else given)
        elif kept.scheme == "standard":
            _expect_standard(delivery, secret, now)
        else:
            content = delivery.body
            if kept.timestamp_header is not None:
                moment = headers.get(kept.timestamp_header.lower(), "")
                expect_fresh(moment, now)
                content = moment.encode() + b"." + content
            given = headers.get(kept.signature_header.lower(), "")
            expect_hmac(secret, content, given, prefix=kept.prefix, encoding=kept.encoding)

    def handshake(self, delivery: Delivery) -> Handshake | None:
        return None

    def answer(self, tasks: list[str]) -> dict[str, Any] | None:
        return None

    def normalise(self, delivery: Delivery) -> TriggerEvent:
        payload, kept, headers = decode_object(delivery.body), self._settings, delivery.headers
        paths = {name: tuple(getattr(kept.fields, name).split(".")) for name in FieldPaths.__struct_fields__}
        given = headers.get(kept.id_header.lower(), "") or headers.get("webhook-id", "")
        return TriggerEvent(
            source=self.name,
            kind=headers.get(kept.kind_header.lower(), "")[:200] or text_at(payload, *paths["kind"]) or "received",
            id=id_of(given or text_at(payload, *paths["id"]), delivery.digest),
            actor=text_at(payload, *paths["actor"]),
            title=text_at(payload, *paths["title"], most=TITLE_CHARS_MAX),
            body=text_at(payload, *paths["body"], most=BODY_CHARS_MAX),
            url=text_at(payload, *paths["url"]),
            number=text_at(payload, *paths["number"]),
            branch=text_at(payload, *paths["branch"]),
            labels=_names(payload, paths["labels"]),
            paths=_names(payload, paths["paths"]),
            digest=delivery.digest,
            payload=payload,
        )


def _names(payload: dict[str, Any], path: tuple[str, ...]) -> tuple[str, ...]:
    found = text_at(payload, *path)
    return (found,) if found else names_at(payload, *path, name="name")


def _expect_standard(delivery: Delivery, secret: str, now: float) -> None:
    """As standardwebhooks.com has it: `webhook-signature` holds one or more of `v1,` and the base64 of the HMAC."""
    named, moment = (delivery.headers.get(f"webhook-{name}", "") for name in ("id", "timestamp"))
    if not named:
        raise SignatureRefused(reason="it has no id")
    expect_fresh(moment, now)
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (ValueError, binascii.Error):
        key = secret.encode()
    made = hmac.new(key, f"{named}.{moment}.".encode() + delivery.body, hashlib.sha256).digest()
    expect_one_of(f"v1,{base64.b64encode(made).decode()}", delivery.headers.get("webhook-signature", "").split())
