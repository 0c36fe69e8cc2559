"""ntfy, asked directly: buttons that lead to answers, and its cache, which knows whether a message is there.

Apprise reads the address; the request is our own. A message carries a tag made of its key. After a try of unknown end
the topic's cache is read back to when the message was queued: what has the tag is not sent again.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import msgspec

from holdfast.domain.messages.outbox_records import Outgoing
from holdfast.errors import ServiceRefused
from holdfast.integrations.http.client import HttpClient, as_published

CLOUD = "https://ntfy.sh"
ACTIONS_MAX = 3
# Clocks differ.
ASKED_BACK_S = 600.0


class Ntfy:
    """One topic of one server."""

    def __init__(self, service: Any) -> None:
        self.topic = str(service.topics[0])
        self._client = HttpClient("ntfy", _base(service), lambda: _sign_in(service))

    def send(self, message: Outgoing, title: str, body: str, click: str, actions: list[tuple[str, str]]) -> None:
        content = {
            "topic": self.topic,
            "title": title,
            "message": body,
            "tags": [_tag(message.key)],
            **({"click": click} if click else {}),
            **({"actions": [_action(*each) for each in actions[:ACTIONS_MAX]]} if actions else {}),
        }
        with as_published(message.key):
            self._client.request("POST", "/", json=content)

    def has(self, message: Outgoing) -> bool:
        """Whether its cache has the message. One that lets us write and not read answers nothing: then it is not
        known, and the message is repeated."""
        since = max(0, int(message.queued_at - ASKED_BACK_S))
        with as_published(message.key):
            try:
                answer = self._client.get(f"/{self.topic}/json", poll=1, since=since)
            except ServiceRefused:
                return False
        tag = _tag(message.key)
        return any(tag in (_decoded(line).get("tags") or ()) for line in answer.content.splitlines())


def is_ntfy(service: Any) -> bool:
    """Whether it is one topic of ntfy. Several are left to Apprise: one request each, and no buttons."""
    return type(service).__name__ == "NotifyNtfy" and len(service.topics) == 1


def _base(service: Any) -> str:
    if service.mode == "cloud":
        return CLOUD
    port = f":{service.port}" if service.port else ""
    return f"{'https' if service.secure else 'http'}://{service.host}{port}"


def _sign_in(service: Any) -> dict[str, str]:
    if service.auth == "token":
        return {"authorization": f"Bearer {service.token}"}
    if service.user:
        pair = f"{service.user}:{service.password or ''}"
        return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    return {}


def _action(label: str, url: str) -> dict[str, str]:
    return {"action": "view", "label": label, "url": url}


def _tag(key: str) -> str:
    return f"holdfast-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
