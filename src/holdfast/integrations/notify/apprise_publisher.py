"""Sends notifications by Apprise, and by ntfy directly.

Apprise cannot be asked what it has sent. So there are two channels. On `notification` a send that was cut off, or of
which nobody knows the end, parks the message: it is received at most once. On `repeated_notification` it is sent again:
at least once; and once where ntfy's cache can be read, because that is asked first. On both a send that surely failed
is tried again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.domain.messages.outbox_records import Outgoing
from holdfast.errors import AddressUnknown, ExtraMissing, PublishFailed, PublishRefused, SecretMissing, within
from holdfast.integrations.notify import transport_watch
from holdfast.integrations.notify.addresses import service_at, service_name
from holdfast.integrations.notify.answer_links import links
from holdfast.integrations.notify.ntfy import Ntfy, is_ntfy
from holdfast.integrations.notify.rules import ONCE, REPEATED
from holdfast.layout import Layout

TYPES = {"failed": "failure", "needs_you": "warning", "budget": "warning", "agent_unreachable": "warning"}


class ApprisePublisher:
    """`page_url`: where links lead; without it there are none."""

    def __init__(self, repo: Path, layout: Layout, page_url: str | None, *, can_be_asked: bool) -> None:
        self.can_be_asked = can_be_asked
        self._repo, self._layout, self._page_url = repo, layout, page_url

    def find(self, message: Outgoing) -> dict[str, Any] | None:
        service = self._service(message)
        return {"service": "ntfy"} if is_ntfy(service) and Ntfy(service).has(message) else None

    def send(self, message: Outgoing) -> dict[str, Any]:
        service, content = self._service(message), message.content
        place, answers = self._links(content)
        title, body = str(content.get("title", "")), self._text(content)
        if is_ntfy(service):
            Ntfy(service).send(message, title, body, place, answers)
            return {"service": "ntfy"}
        body += "".join(f"\n{label}: {url}" for label, url in [*answers, *([("Open", place)] if place else [])])
        _notify(message.key, service, title, body, TYPES.get(str(content.get("kind")), "info"))
        return {"service": service_name(service)}

    def _service(self, message: Outgoing) -> Any:
        try:
            return service_at(str(message.content.get("to", "")), self._repo)
        except (SecretMissing, ExtraMissing) as error:
            raise PublishFailed(key=message.key, reason=within(error)) from None
        except AddressUnknown as error:
            raise PublishRefused(key=message.key, reason=within(error)) from None

    def _text(self, content: dict[str, Any]) -> str:
        """The body; of a digest its parts, each with its place."""
        parts = [
            "\n".join(filter(None, (f"- {each['title']}", each["body"], self._address(each["place"]))))
            for each in content.get("parts", ())
        ]
        return "\n\n".join(filter(None, (*parts, str(content.get("body", "")))))

    def _address(self, place: str) -> str:
        return f"{self._page_url.rstrip('/')}/{place}" if self._page_url is not None else ""

    def _links(self, content: dict[str, Any]) -> tuple[str, list[tuple[str, str]]]:
        """The page's place, and the one-time link of each answer."""
        if self._page_url is None:
            return "", []
        place = self._address(str(content.get("place", "")))
        if not content.get("question"):
            return place, []
        expires = float(content.get("expires", 0.0))
        return place, links(self._layout, self._page_url, content["question"], content["answers"], expires)


def notification_publishers(repo: Path, layout: Layout, page_url: str | None) -> dict[str, ApprisePublisher]:
    """By channel: see `rules.py`."""
    channels = {ONCE: False, REPEATED: True}
    return {name: ApprisePublisher(repo, layout, page_url, can_be_asked=asks) for name, asks in channels.items()}


def _notify(key: str, service: Any, title: str, body: str, kind: str) -> None:
    import apprise

    with transport_watch.watched() as seen:
        sender = apprise.Apprise()
        sender.add(service)
        is_sent = sender.notify(title=title, body=body, notify_type=kind, body_format=apprise.NotifyFormat.TEXT)
    if not is_sent:
        raise transport_watch.judge(key, seen)
