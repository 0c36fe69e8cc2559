"""The contract with a service that has pull requests; `forges.py` has the registry of those that there are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from holdfast.domain.pull_requests.pull_decisions import CheckRun, PullView
from holdfast.errors import ServiceRefused

# An answer that would need more pages than this is cut.
ITEMS_MAX = 1000


class ForgeAddress(msgspec.Struct, frozen=True, kw_only=True):
    """`api` is the base address of the API, `repo` the path of the repository that has the pull requests, and `source`
    the one that has the branches: a fork, or the same."""

    api: str
    repo: str
    source: str
    token: str


class WantedPull(msgspec.Struct, frozen=True, kw_only=True):
    """A pull request to open or to update. `mark`: the hidden line by which it is found again; `head` is one more."""

    branch: str
    base: str
    title: str
    body: str
    mark: str
    draft: bool = False
    labels: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()


class FoundPull(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    url: str
    state: str
    body: str = ""


class Forge(Protocol):
    """One service. Raises what `integrations/http/client.py` raises; a refusal says what to do."""

    def find(self, branch: str) -> list[FoundPull]:
        """Those of this branch, in any state, the newest first."""

    def open(self, wanted: WantedPull) -> FoundPull: ...
    def update(self, number: int, title: str, body: str) -> FoundPull: ...
    def view(self, number: int, *, is_whole: bool = True) -> PullView:
        """`is_whole`: with its comments and checks, while it is open."""

    def log(self, check: CheckRun) -> str:
        """The end of a check's output; empty where there is none to be had."""

    def reply(self, number: int, comment: str, text: str) -> None: ...
    def replies(self, number: int, comment: str) -> list[str]:
        """The texts among which a reply to the comment would be."""

    def close(self, number: int) -> None: ...
    def merge(self, number: int, head: str) -> None:
        """Merges it, if it is still at `head`."""


class ForgeKind(msgspec.Struct, frozen=True):
    """A kind of service. `hosts`: parts of names of hosts by which it is known; `api` makes its API's address of a
    host; `token` is where its token is where the settings do not say."""

    make: Callable[[ForgeAddress], Forge]
    hosts: tuple[str, ...]
    api: Callable[[str], str]
    token: str
    rights: str


def split_url(url: str) -> tuple[str, str]:
    """The host and the path of a remote's URL, without user, password and `.git`: both empty for a local path."""
    if "://" not in url:
        host, colon, path = url.partition(":")
        if not colon or "/" in host:
            return "", ""
        return host.rpartition("@")[2], path.strip("/").removesuffix(".git")
    parts = urlsplit(url)
    if parts.scheme == "file":
        return "", ""
    return parts.hostname or "", parts.path.strip("/").removesuffix(".git")


@contextlib.contextmanager
def explained(rights: str, repo: str) -> Iterator[None]:
    """Adds the way out to a refusal."""
    try:
        yield
    except ServiceRefused as error:
        facts = dict(error.facts)
        ways = {
            401: "the token is missing, wrong or expired: set pull_requests.token to one that is valid",
            403: f"the token may not do this: it needs {rights}",
            404: f"there is no {repo} there, or the token cannot see it: set pull_requests.repo, or give it {rights}",
        }
        if (way := ways.get(facts.get("status", 0))) is None:
            raise
        raise ServiceRefused(**{**facts, "detail": f"{facts.get('detail', '')} ({way})"}) from error
