"""One form for the events of all sources, and the contract of a source."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import msgspec

from holdfast.errors import DeliveryUnreadable

# Of a text in an event; the whole of it is in the body's blob.
TITLE_CHARS_MAX, BODY_CHARS_MAX, NAME_CHARS_MAX, LIST_MAX = 500, 20_000, 300, 500
# Our mark is the last line of a pull request, which the services let be so long.
MARKED_CHARS_MAX = 1 << 20
DEPTH_MAX = 64
_ID = re.compile(r"[^A-Za-z0-9._:@+=-]+")
_NESTS = re.compile(rb'"(?:[^"\\]|\\.)*+"|[^\[\]{}"]++', re.DOTALL)


class Delivery(msgspec.Struct, frozen=True):
    """A request as it came. Names of headers are in lower case."""

    headers: Mapping[str, str]
    body: bytes
    digest: str = ""


class TriggerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What happened, in the words of nobody's API. All texts are a stranger's, cut to a length.

    `kind` is the event and its action, as in `issues.labeled`. `id` is the delivery's own. `digest` is the SHA-256 of
    the body. `label` is the one that was just added, `branch` the one that the event is about, `heads` those whose work
    it is about, such as that of a pull request. `marks` are further texts in which our marks are looked for, such as
    the messages of commits. `payload` is the body, decoded.
    """

    source: str
    kind: str
    id: str
    actor: str = ""
    title: str = ""
    body: str = ""
    url: str = ""
    number: str = ""
    repository: str = ""
    branch: str = ""
    label: str = ""
    labels: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    digest: str = ""
    heads: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    payload: Any = None


class Handshake(msgspec.Struct, frozen=True):
    """The answer to a question of the service about us. Nothing has happened, and nothing is journalled."""

    content: dict[str, Any] | None


class TriggerSource(Protocol):
    """One source of the settings. A plugin brings a class with these, and a row in `registry.py:SOURCES`.

    `settings_type` is the form of its settings. `hears`: deliveries come by HTTP. `body_bytes_max`: of one body.
    `kept_headers`: those that `normalise` needs, which are journalled. `is_known_by_body`: its signature covers neither
    id nor time, so that the same body under another id is the delivery that came before.
    """

    settings_type: ClassVar[type[msgspec.Struct]]
    hears: ClassVar[bool]
    body_bytes_max: ClassVar[int]
    name: str
    ours: tuple[str, ...]
    is_known_by_body: bool

    @property
    def kept_headers(self) -> tuple[str, ...]: ...

    @property
    def secret_refs(self) -> tuple[str, ...]:
        """The secrets that `verify` needs, by reference."""

    def verify(self, delivery: Delivery, secrets: Mapping[str, str], now: float) -> None:
        """Raises SignatureRefused where it is not from whom it says, or too old."""

    def handshake(self, delivery: Delivery) -> Handshake | None: ...

    def normalise(self, delivery: Delivery) -> TriggerEvent:
        """Raises DeliveryUnreadable. The same delivery always gives the same event."""

    def answer(self, tasks: list[str]) -> dict[str, Any] | None:
        """What the service is to be answered, where it asks for a certain form."""


def expect_module(name: str) -> None:
    """For the settings of a source that needs a package of the extra `connect`."""
    if importlib.util.find_spec(name) is None:
        raise ValueError(f"it needs the package {name}: install holdfast[connect]")


def decode_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body. Raises DeliveryUnreadable."""
    if body.count(b"[") + body.count(b"{") > DEPTH_MAX and _depth(body) > DEPTH_MAX:
        raise DeliveryUnreadable(reason=f"it nests deeper than {DEPTH_MAX}")
    try:
        found = _decoded(body)
    except (ValueError, RecursionError) as error:
        raise DeliveryUnreadable(reason=f"it is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise DeliveryUnreadable(reason="it is no JSON object")
    return found


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        # Half a character, escaped, is JSON, too, and services do send it.
        return json.loads(body) if b"\\ud" in body.lower() else msgspec.json.decode(body)


def _depth(content: bytes) -> int:
    deepest = depth = 0
    for byte in _NESTS.sub(b"", content):
        depth += 1 if byte in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


# -- bounded texts of whatever is in a payload ------------------------------------------------------------------------


def dig(value: Any, *path: str) -> Any:
    """The value at the end of a path of keys; None where there is none."""
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def text_at(value: Any, *path: str, most: int = NAME_CHARS_MAX) -> str:
    """A text, cut; of a number its digits; of all else nothing."""
    found = dig(value, *path)
    if isinstance(found, bool) or not isinstance(found, str | int | float):
        return ""
    return _whole(str(found)[:most])


def first_text(payload: Any, *paths: tuple[str, ...], most: int = NAME_CHARS_MAX) -> str:
    return next((found for path in paths if (found := text_at(payload, *path, most=most))), "")


def list_at(value: Any, *path: str) -> list[Any]:
    found = dig(value, *path)
    return found[:LIST_MAX] if isinstance(found, list) else []


def names_at(value: Any, *path: str, name: str) -> tuple[str, ...]:
    """The names of a list of objects, or of texts."""
    found = (
        text_at(each, name) if isinstance(each, dict) else text_at({"x": each}, "x") for each in list_at(value, *path)
    )
    return tuple(each for each in found if each)


def id_of(given: str, digest: str) -> str:
    """A delivery's id, in characters that a key and a command line can have; without one the body's hash."""
    return _ID.sub("-", given)[:200] or digest


def _whole(text: str) -> str:
    """Without halves of characters, which are no UTF-8 text."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
