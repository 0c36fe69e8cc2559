"""GitHub: webhooks of a repository, an organisation or an app.

Signed with HMAC-SHA256 over the body. There is no time in a delivery, and its id, which GitHub keeps when it
delivers again, is not signed: an old one is recognised by its id, and by its body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import parse_qs

import msgspec

from holdfast.config.secret_refs import SecretRef
from holdfast.errors import DeliveryUnreadable
from holdfast.integrations.triggers.event import (
    BODY_CHARS_MAX,
    LIST_MAX,
    MARKED_CHARS_MAX,
    TITLE_CHARS_MAX,
    Delivery,
    Handshake,
    TriggerEvent,
    decode_object,
    dig,
    first_text,
    id_of,
    list_at,
    names_at,
    text_at,
)
from holdfast.integrations.triggers.signatures import expect_hmac

# What an event is about, the nearest first: a comment on an issue is about the comment, and has the title.
_SUBJECTS = (
    "pull_request", "issue", "discussion", "release", "milestone", "check_run", "check_suite", "workflow_run",
    "workflow_job", "deployment", "alert", "project_card", "project", "security_advisory", "package", "page", "label",
)  # fmt: skip
_SAID = ("comment", "review", *_SUBJECTS)
_CHECKS = ("check_run", "check_suite")
_TITLES = ("title", "name", "display_title", "note", "summary")
_BODIES = ("body", "description")


class GitHubSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`secret`: that of the webhook. `ours`: accounts whose events never fire, such as that of our token."""

    secret: SecretRef
    type: str = "github"
    ours: tuple[str, ...] = ()


class GitHubSource:
    settings_type: ClassVar[type[msgspec.Struct]] = GitHubSettings
    hears: ClassVar[bool] = True
    # GitHub delivers up to 25 MB.
    body_bytes_max: ClassVar[int] = 25 << 20

    def __init__(self, name: str, settings: GitHubSettings) -> None:
        self.name, self.ours, self._secret = name, settings.ours, settings.secret
        self.is_known_by_body = True

    @property
    def kept_headers(self) -> tuple[str, ...]:
        return ("x-github-event", "x-github-delivery", "content-type")

    @property
    def secret_refs(self) -> tuple[str, ...]:
        return (self._secret,)

    def verify(self, delivery: Delivery, secrets: Mapping[str, str], now: float) -> None:
        given = delivery.headers.get("x-hub-signature-256", "")
        expect_hmac(secrets[self._secret], delivery.body, given, prefix="sha256=")

    def handshake(self, delivery: Delivery) -> Handshake | None:
        return Handshake({"pong": True}) if delivery.headers.get("x-github-event") == "ping" else None

    def answer(self, tasks: list[str]) -> dict[str, Any] | None:
        return None

    def normalise(self, delivery: Delivery) -> TriggerEvent:
        payload = _payload(delivery)
        event = delivery.headers.get("x-github-event", "") or guess_event(payload)
        action = text_at(payload, "action")
        said = [payload.get(name) for name in _SAID]
        about = [payload.get(name) for name in _SUBJECTS]
        commits = list_at(payload, "commits")
        pushed = [*commits[-1:], dig(payload, "head_commit")]
        message = text_at(payload, "head_commit", "message", most=BODY_CHARS_MAX)
        return TriggerEvent(
            source=self.name,
            kind=f"{event}.{action}" if action else event,
            id=id_of(delivery.headers.get("x-github-delivery", ""), delivery.digest),
            actor=first_text(payload, ("sender", "login"), ("pusher", "name")),
            title=_first(about, _TITLES, TITLE_CHARS_MAX) or message.partition("\n")[0][:TITLE_CHARS_MAX],
            body=_first(said, _BODIES, BODY_CHARS_MAX) or message,
            url=_first(said, ("html_url",)) or first_text(payload, ("compare",), ("repository", "html_url")),
            number=_first(about, ("number",)) or text_at(payload, "number"),
            repository=text_at(payload, "repository", "full_name"),
            branch=_branch(payload, about),
            label=text_at(payload, "label", "name"),
            labels=next((names for each in about if (names := names_at(each, "labels", name="name"))), ()),
            paths=tuple(sorted(_changed(commits)))[:LIST_MAX],
            digest=delivery.digest,
            heads=_heads(payload),
            marks=(*(text_at(each, "message", most=BODY_CHARS_MAX) for each in pushed), *_marked(payload)),
            payload=payload,
        )


def _payload(delivery: Delivery) -> dict[str, Any]:
    if delivery.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        try:
            return decode_object(parse_qs(delivery.body.decode())["payload"][0].encode())
        except (KeyError, ValueError):
            raise DeliveryUnreadable(reason="the form has no payload") from None
    return decode_object(delivery.body)


def guess_event(payload: dict[str, Any]) -> str:
    """The event of a payload that came without its headers, as for `holdfast triggers test`."""
    if "commits" in payload and "ref" in payload:
        return "push"
    if "comment" in payload:
        return next((name for key, name in _COMMENTS if key in payload), "commit_comment")
    if "review" in payload:
        return "pull_request_review"
    found = next((name for name in _SUBJECTS if name in payload), "")
    return {"issue": "issues"}.get(found, found) or ("ping" if "zen" in payload else "unknown")


_COMMENTS = (
    ("issue", "issue_comment"),
    ("pull_request", "pull_request_review_comment"),
    ("discussion", "discussion_comment"),
)


def _first(objects: list[Any], names: tuple[str, ...], most: int = 300) -> str:
    return next((found for each in objects for name in names if (found := text_at(each, name, most=most))), "")


def _branch(payload: dict[str, Any], about: list[Any]) -> str:
    ref = text_at(payload, "ref").removeprefix("refs/heads/").removeprefix("refs/tags/")
    based = first_text(payload, ("pull_request", "base", "ref"))
    return ref or based or _first(about, ("head_branch", "target_commitish", "ref"))


def _heads(payload: dict[str, Any]) -> tuple[str, ...]:
    """The branches whose work it is about: pushed, deleted, built, checked or to be merged."""
    paths = (
        ("ref",), ("pull_request", "head", "ref"), ("check_run", "check_suite", "head_branch"),
        *((name, "head_branch") for name in ("workflow_run", "workflow_job", "check_suite")),
    )  # fmt: skip
    built = [each for name in ("workflow_run", *_CHECKS) for each in list_at(payload, name, "pull_requests")]
    found = [*(text_at(payload, *path) for path in paths), *(text_at(each, "head", "ref") for each in built)]
    return tuple(each.removeprefix("refs/heads/") for each in found if each)


def _marked(payload: dict[str, Any]) -> tuple[str, ...]:
    """The texts of the pull request and the commit that it is about."""
    # A comment on a pull request comes with it as an issue.
    request = "issue" if dig(payload, "issue", "pull_request") is not None else "pull_request"
    built = (("workflow_run",), ("check_suite",), ("check_run", "check_suite"))
    messages = (text_at(payload, *path, "head_commit", "message", most=BODY_CHARS_MAX) for path in built)
    return (text_at(payload, request, "body", most=MARKED_CHARS_MAX), *messages)


def _changed(commits: list[Any]) -> set[str]:
    parts = ("added", "modified", "removed")
    return {path for commit in commits for part in parts for path in names_at(dig(commit), part, name="path")}
