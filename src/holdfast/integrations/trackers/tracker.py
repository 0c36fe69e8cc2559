"""The contract of a tracker, and what its adapters share. One small file for each kind; `registry.py` lists them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from holdfast.config.secret_refs import read_secret
from holdfast.config.trackers import SourceSettings
from holdfast.domain.issues.issue_records import Issue, IssuePage, RateLimit
from holdfast.errors import InputError, ServiceRefused
from holdfast.integrations.http.client import HttpAnswer, HttpClient, expect_extra

PER_PAGE = 100
# A source with more open issues than this is one by mistake.
PAGES_MAX = 100
# Answers that mean: there is no such issue, or it is elsewhere now.
GONE = frozenset((301, 404, 410))


class SeenPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page as it was when it was last applied."""

    etag: str
    next: str = ""
    numbers: tuple[str, ...] = ()


class Tracker(Protocol):
    """One source's tracker. Every call may take as long as the network does, and raises what `HttpClient` raises."""

    @property
    def limit(self) -> RateLimit: ...
    def pages(self, seen: Mapping[str, SeenPage]) -> Iterator[IssuePage]:
        """The open issues of the source, oldest first. `seen`: pages that need not be sent again if they are so."""

    def get(self, number: str, etag: str = "") -> tuple[Issue | None, str]:
        """One issue and its etag; no issue where it is still as the etag names it."""

    def permission_of(self, author: str) -> bool:
        """Whether the author has write rights to the repository."""

    def comment(self, number: str, text: str, key: str) -> str:
        """Writes a comment that can be found by its key; returns its address, or its id where it has none."""

    def find_comment(self, number: str, key: str, since: float) -> str | None:
        """The comment with this key, of those written since then."""

    def labels(self, number: str, add: tuple[str, ...], remove: tuple[str, ...]) -> None: ...
    def close(self, number: str) -> None: ...


class AdapterBase:
    """The client of one source, and its settings."""

    service = ""
    public = ""

    def __init__(self, source: SourceSettings, folder: Path | None = None) -> None:
        expect_extra("httpx", "connect")
        self.source = source
        base = source.url or self.public
        if not base:
            raise InputError(detail=f"the source {source.name!r} needs `url`, the address of its {self.service}")
        self._folder = folder
        self.client = HttpClient(f"{self.service} ({source.name})", base, self.headers)

    def _secret(self) -> str:
        return read_secret(self.source.token, self._folder)

    @property
    def limit(self) -> RateLimit:
        return RateLimit(self.client.remaining, self.client.resets_at)

    def headers(self) -> Mapping[str, str]:
        return {"authorization": f"Bearer {self._secret()}", "accept": "application/json"}

    def linked_pages(
        self, path: str, params: Mapping[str, Any], seen: Mapping[str, SeenPage]
    ) -> Iterator[tuple[str, SeenPage | None, HttpAnswer]]:
        """Pages that the tracker links by `Link`: each address, the page as it was seen there, and the answer."""
        at = ""
        for _ in range(PAGES_MAX):
            known = seen.get(at)
            etag = known.etag if known else ""
            answer = self.client.get(at, etag=etag) if at else self.client.get(path, etag=etag, **params)
            yield at, known, answer
            at = known.next if known and answer.is_unchanged else answer.next_page
            if not at:
                return
            # A link to elsewhere would be given our token.
            if urlsplit(at)[:2] != urlsplit(self.client.base)[:2]:
                raise ServiceRefused(
                    service=self.client.service, asked=path, status=200, detail="its next page is elsewhere"
                )
        raise too_many(self.source)


def hidden(key: str) -> str:
    """The mark of our own comments where a page does not show it."""
    return f"<!-- holdfast: {key} -->"


def unchanged(at: str, known: SeenPage) -> IssuePage:
    return IssuePage(at=at, next=known.next, etag=known.etag, numbers=known.numbers)


def too_many(source: SourceSettings) -> InputError:
    detail = f"the source {source.name!r} has more than {PAGES_MAX * PER_PAGE:,} open issues; give it a label"
    return InputError(detail=detail)


def is_gone(error: ServiceRefused) -> bool:
    return error.facts.get("status") in GONE


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
