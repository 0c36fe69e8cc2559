"""The publishers of pull requests: `push`, `pull_request`, `pull_request_reply` and `pull_request_steer`.

Each can be asked, so a try that nobody knows the end of is never repeated blindly: the remote says where the branch is,
the service which pull requests the branch has, and every text of ours has its key in a hidden line.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from holdfast.config.pull_requests import PullRequestSettings
from holdfast.domain.messages.outbox_records import Outgoing
from holdfast.errors import (
    GitFailed,
    PublishFailed,
    PublishRefused,
    PullRequestsUnset,
    PushRefused,
    SecretMissing,
    within,
)
from holdfast.integrations.http.client import as_published, expect_extra
from holdfast.integrations.pull_requests.body import mark
from holdfast.integrations.pull_requests.forge import Forge, FoundPull, WantedPull
from holdfast.integrations.pull_requests.forges import forge_of
from holdfast.integrations.pull_requests.landing import PULL, PUSH, REPLY, STEER
from holdfast.integrations.pull_requests.remote import GitRemote
from holdfast.ports import Publisher

FindForge = Callable[[], Forge]


def pull_request_publishers(remote: GitRemote, settings: PullRequestSettings) -> dict[str, Publisher]:
    """Those of this room, by channel."""
    forge = _Forges(remote, settings)
    return {
        PUSH: PushPublisher(remote),
        PULL: PullRequestPublisher(forge),
        REPLY: ReplyPublisher(forge),
        STEER: SteerPublisher(forge),
    }


class _Forges:
    """The service, made when it is first needed: looking for a remote costs a git."""

    def __init__(self, remote: GitRemote, settings: PullRequestSettings) -> None:
        self._remote, self._settings = remote, settings
        self._made: tuple[tuple[str, str], Forge] | None = None

    def __call__(self) -> Forge:
        expect_extra("httpx", "connect")
        urls = self._remote.base_url, self._remote.push_url
        if self._made is None or self._made[0] != urls:
            self._made = urls, forge_of(self._settings, *urls)
        return self._made[1]


def forge_finder(remote: GitRemote, settings: PullRequestSettings) -> FindForge:
    return _Forges(remote, settings)


@contextlib.contextmanager
def _published(key: str) -> Iterator[None]:
    """What a remote or a service did not do, as that is said of a message."""
    try:
        with as_published(key):
            yield
    except (PushRefused, PullRequestsUnset, SecretMissing) as error:
        raise PublishRefused(key=key, reason=within(error)) from error
    except GitFailed as error:
        raise PublishFailed(key=key, reason=within(error)) from error


class PushPublisher:
    can_be_asked = True

    def __init__(self, remote: GitRemote) -> None:
        self._remote = remote

    def find(self, message: Outgoing) -> dict[str, Any] | None:
        with _published(message.key):
            at = self._remote.branch_at(message.content["branch"])
        wanted = message.content["head"]
        return {"branch": message.content["branch"], "head": wanted} if at == wanted else None

    def send(self, message: Outgoing) -> dict[str, Any]:
        content = message.content
        branch, head = content["branch"], content["head"]
        with _published(message.key):
            at = self._remote.branch_at(branch)
            if content.get("delete"):
                # Somebody's commits on top of ours stay.
                if at == head:
                    self._remote.delete(branch, at)
            elif at != head:
                if at and at not in content["ours"]:
                    raise PushRefused(
                        remote=self._remote.push_name,
                        what=f"a push to {branch}",
                        reason=f"the branch is at {at[:12]}, which is none of ours: somebody else has pushed there",
                        way="look at those commits; bring them into the base, or set another "
                        "pull_requests.branch_prefix",
                    )
                self._remote.push(branch, head, content["known"], at)
        return {"branch": branch, "head": head}


class PullRequestPublisher:
    can_be_asked = True

    def __init__(self, forge: FindForge) -> None:
        self._forge = forge

    def find(self, message: Outgoing) -> dict[str, Any] | None:
        with _published(message.key):
            found = self._forge().find(message.content["branch"])
        return next((_told(each) for each in found if message.content["head_mark"] in each.body), None)

    def send(self, message: Outgoing) -> dict[str, Any]:
        content = message.content
        with _published(message.key):
            forge = self._forge()
            found = forge.find(content["branch"])
            pull = next((each for each in found if each.state == "open" and each.number != content["closed"]), None)
            if pull is not None:
                # One that a person has opened for our branch keeps its own words.
                is_ours = content["mark"] in pull.body
                text = content["body"] if is_ours else f"{pull.body}\n\n{content['body']}"
                return _told(forge.update(pull.number, content["title"], text))
            merged = [each for each in found if each.state == "merged" and content["mark"] in each.body]
            if merged:
                return _told(merged[0])
            return _told(
                forge.open(
                    WantedPull(
                        branch=content["branch"],
                        base=content["base"],
                        title=content["title"],
                        body=content["body"],
                        mark=content["mark"],
                        draft=content["draft"],
                        labels=tuple(content["labels"]),
                        reviewers=tuple(content["reviewers"]),
                    )
                )
            )


class ReplyPublisher:
    can_be_asked = True

    def __init__(self, forge: FindForge) -> None:
        self._forge = forge

    def find(self, message: Outgoing) -> dict[str, Any] | None:
        content = message.content
        with _published(message.key):
            texts = self._forge().replies(content["number"], content["comment"])
        is_there = any(mark(content["key"]) in each for each in texts)
        return {"comment": content["comment"]} if is_there else None

    def send(self, message: Outgoing) -> dict[str, Any]:
        content = message.content
        with _published(message.key):
            self._forge().reply(content["number"], content["comment"], content["text"])
        return {"comment": content["comment"]}


class SteerPublisher:
    """Closes or merges a pull request, because a person said so."""

    can_be_asked = True

    def __init__(self, forge: FindForge) -> None:
        self._forge = forge

    def find(self, message: Outgoing) -> dict[str, Any] | None:
        with _published(message.key):
            state = self._forge().view(message.content["number"], is_whole=False).state
        return {"state": state} if state != "open" else None

    def send(self, message: Outgoing) -> dict[str, Any]:
        content = message.content
        with _published(message.key):
            forge = self._forge()
            if content["how"] == "merge":
                forge.merge(content["number"], content["head"])
                return {"state": "merged"}
            forge.close(content["number"])
            return {"state": "closed"}


def _told(found: FoundPull) -> dict[str, Any]:
    return {"number": found.number, "url": found.url}
