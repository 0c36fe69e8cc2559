"""GitLab: webhooks of a project or a group, with the secret token of the hook in a header."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from holdfast.config.secret_refs import SecretRef
from holdfast.integrations.triggers.event import (
    BODY_CHARS_MAX,
    LIST_MAX,
    MARKED_CHARS_MAX,
    TITLE_CHARS_MAX,
    Delivery,
    Handshake,
    TriggerEvent,
    decode_object,
    first_text,
    id_of,
    list_at,
    names_at,
    text_at,
)
from holdfast.integrations.triggers.signatures import expect_same

# The newest name first: of these GitLab keeps the first two when it delivers again.
_IDS = ("idempotency-key", "webhook-id", "x-gitlab-event-uuid")
# Where a merge request is, or a pipeline with its branch.
_REQUESTS = ("object_attributes", "merge_request")


class GitLabSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`token`: the hook's secret token. `ours`: user names whose events never fire. `repeats`: bodies may be alike."""

    token: SecretRef
    type: str = "gitlab"
    ours: tuple[str, ...] = ()
    repeats: bool = False


class GitLabSource:
    settings_type: ClassVar[type[msgspec.Struct]] = GitLabSettings
    hears: ClassVar[bool] = True
    body_bytes_max: ClassVar[int] = 25 << 20

    def __init__(self, name: str, settings: GitLabSettings) -> None:
        self.name, self.ours, self._token = name, settings.ours, settings.token
        # The token signs nothing.
        self.is_known_by_body = not settings.repeats

    @property
    def kept_headers(self) -> tuple[str, ...]:
        return ("x-gitlab-event", *_IDS)

    @property
    def secret_refs(self) -> tuple[str, ...]:
        return (self._token,)

    def verify(self, delivery: Delivery, secrets: Mapping[str, str], now: float) -> None:
        expect_same(secrets[self._token], delivery.headers.get("x-gitlab-token", ""))

    def handshake(self, delivery: Delivery) -> Handshake | None:
        return None

    def answer(self, tasks: list[str]) -> dict[str, Any] | None:
        return None

    def normalise(self, delivery: Delivery) -> TriggerEvent:
        payload = decode_object(delivery.body)
        event = first_text(payload, ("object_kind",), ("event_name",), ("event_type",)) or "unknown"
        action = first_text(payload, ("object_attributes", "action"), ("action",))
        given = next((delivery.headers[name] for name in _IDS if delivery.headers.get(name)), "")
        about = ("merge_request",) if "merge_request" in payload else ("issue",) if "issue" in payload else ()
        commits = list_at(payload, "commits")
        title = first_text(
            payload, ("object_attributes", "title"), (*about, "title"), ("object_attributes", "name"), ("name",),
            ("build_name",), most=TITLE_CHARS_MAX,
        )  # fmt: skip
        body = first_text(
            payload, ("object_attributes", "note"), ("object_attributes", "description"), ("description",),
            most=BODY_CHARS_MAX,
        )  # fmt: skip
        newest = commits[-1] if commits else {}
        return TriggerEvent(
            source=self.name,
            kind=f"{event}.{action}" if action else event,
            id=id_of(given, delivery.digest),
            actor=first_text(payload, ("user", "username"), ("user_username",), ("user", "name"), ("user_name",)),
            title=title or text_at(newest, "title", most=TITLE_CHARS_MAX),
            body=body or text_at(newest, "message", most=BODY_CHARS_MAX),
            url=first_text(payload, ("object_attributes", "url"), ("url",), ("project", "web_url")),
            number=first_text(payload, ("object_attributes", "iid"), (*about, "iid")),
            repository=text_at(payload, "project", "path_with_namespace"),
            branch=_branch(payload),
            labels=names_at(payload, "labels", name="title"),
            paths=tuple(sorted(_changed(commits)))[:LIST_MAX],
            digest=delivery.digest,
            heads=_heads(payload),
            marks=(text_at(newest, "message", most=BODY_CHARS_MAX), *_marked(payload)),
            payload=payload,
        )


def _branch(payload: dict[str, Any]) -> str:
    ref = first_text(payload, ("object_attributes", "target_branch"), ("object_attributes", "ref"), ("ref",))
    return ref.removeprefix("refs/heads/").removeprefix("refs/tags/")


def _heads(payload: dict[str, Any]) -> tuple[str, ...]:
    """The branches whose work it is about: pushed, deleted, built or to be merged."""
    paths = (("ref",), *((name, key) for name in _REQUESTS for key in ("source_branch", "ref")))
    return tuple(found.removeprefix("refs/heads/") for path in paths if (found := text_at(payload, *path)))


def _marked(payload: dict[str, Any]) -> tuple[str, ...]:
    """The texts of the merge request and of the commit that was built."""
    texts = (text_at(payload, name, "description", most=MARKED_CHARS_MAX) for name in _REQUESTS)
    return (*texts, text_at(payload, "commit", "message", most=BODY_CHARS_MAX))


def _changed(commits: list[Any]) -> set[str]:
    parts = ("added", "modified", "removed")
    return {path for commit in commits for part in parts for path in names_at(commit, part, name="path")}
