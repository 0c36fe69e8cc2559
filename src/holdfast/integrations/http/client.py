"""One service, asked by HTTP.

The errors say what is known. `ServiceAway`: it was not carried out, and may be asked again. `AnswerLost`: nobody
knows. `ServiceLimited`: not before a time. `ServiceRefused`: the service said no, and will again. No error and no log
repeats a header, a body that was sent, or the query of an address.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from holdfast import __version__
from holdfast.clock import wall
from holdfast.errors import (
    AnswerLost,
    ExtraMissing,
    PublishFailed,
    PublishRefused,
    PublishUnclear,
    ServiceAway,
    ServiceLimited,
    ServiceRefused,
    within,
)

if TYPE_CHECKING:
    import httpx

CONNECT_S, READ_S = 10.0, 30.0
BODY_BYTES_MAX = 32 << 20
DETAIL_CHARS_MAX = 300
# A pause where a service says that there is a limit, and not how long.
LIMIT_PAUSE_S = 60.0
# How services begin the names of the headers that tell their limit.
_LIMITS = ("x-ratelimit", "ratelimit", "x-ratelimit-requests")
# Answers that mean: not now.
_AWAY = {500, 502, 503, 504}


class HttpAnswer(msgspec.Struct, frozen=True):
    """`status` 304: what the etag named is still so."""

    status: int
    headers: dict[str, str]
    content: bytes = b""

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.content) if self.content else None

    @property
    def etag(self) -> str:
        return self.headers.get("etag", "")

    @property
    def is_unchanged(self) -> bool:
        return self.status == 304

    @property
    def next_page(self) -> str:
        """The address of the next page, by the header `Link`; empty on the last."""
        for part in self.headers.get("link", "").split(","):
            address, _, params = part.strip().partition(";")
            if 'rel="next"' in params:
                return address.strip("<> ")
        return ""


class HttpClient:
    """`service` is its name in sentences. `headers` makes those of each request, with the secret that there is then."""

    def __init__(self, service: str, base: str, headers: Callable[[], Mapping[str, str]]) -> None:
        self.service, self.base = service, base.rstrip("/")
        self._headers = headers
        self._client: httpx.Client | None = None
        # What the service last said of its limit: requests left, and when there are more.
        self.remaining: int | None = None
        self.resets_at = 0.0

    def get(self, path: str, etag: str = "", **params: Any) -> HttpAnswer:
        more = {"if-none-match": etag} if etag else {}
        return self.request("GET", path, params=params, headers=more)

    def pages(self, path: str, **params: Any) -> Iterator[HttpAnswer]:
        """Every page, as the service links them."""
        answer = self.get(path, **params)
        yield answer
        while following := answer.next_page:
            # A link to elsewhere would be given our token.
            if urlsplit(following)[:2] != urlsplit(self.base)[:2]:
                raise ServiceRefused(service=self.service, asked=path, status=200, detail="its next page is elsewhere")
            answer = self.request("GET", following)
            yield answer

    def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        import httpx

        address = path if path.startswith(("http://", "https://")) else f"{self.base}{path}"
        asked = f"{method} {urlsplit(address).path}"
        sent = {"user-agent": f"holdfast/{__version__}", **self._headers(), **(headers or {})}
        body = None if json is None else msgspec.json.encode(json)
        if body is not None:
            sent["content-type"] = "application/json"
        try:
            answer = self._http().request(method, address, content=body, params=params or None, headers=sent)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol) as error:
            raise ServiceAway(service=self.service, asked=asked, reason=_words(error)) from None
        except httpx.HTTPError as error:
            if method in ("GET", "HEAD"):
                raise ServiceAway(service=self.service, asked=asked, reason=_words(error)) from None
            raise AnswerLost(service=self.service, asked=asked, reason=_words(error)) from None
        self._note_limit(answer.headers)
        return self._judged(asked, method, answer)

    def download(self, path: str, most: int) -> str:
        """The end of a text. A service may send elsewhere for it: one redirection is followed, without our headers."""
        import httpx

        asked = f"GET {path}"
        headers: Mapping[str, str] = {"user-agent": f"holdfast/{__version__}", **self._headers()}
        address = f"{self.base}{path}"
        for _ in range(2):
            try:
                with self._http().stream("GET", address, headers=headers) as answer:
                    if answer.is_redirect:
                        address = str(answer.next_request.url if answer.next_request else answer.headers["location"])
                        headers = {}
                        continue
                    if answer.status_code >= 300:
                        answer.read()
                        self._judged(asked, "GET", answer)
                    kept = b""
                    for part in answer.iter_bytes():
                        kept = (kept + part)[-4 * most :]
                    return kept.decode(errors="replace")[-most:]
            except httpx.HTTPError as error:
                raise ServiceAway(service=self.service, asked=asked, reason=_words(error)) from None
        raise ServiceRefused(service=self.service, asked=asked, status=302, detail="it sends elsewhere again and again")

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _http(self) -> httpx.Client:
        import httpx

        if self._client is None:
            timeout = httpx.Timeout(READ_S, connect=CONNECT_S)
            # A redirection could lead a token elsewhere.
            self._client = httpx.Client(timeout=timeout, follow_redirects=False)
        return self._client

    def _note_limit(self, headers: Mapping[str, str]) -> None:
        for name in _LIMITS:
            with contextlib.suppress(KeyError, ValueError):
                self.remaining = int(headers[f"{name}-remaining"])
                moment = float(headers[f"{name}-reset"])
                # Some give milliseconds.
                self.resets_at = moment / 1000 if moment > 1e11 else moment

    def _judged(self, asked: str, method: str, answer: httpx.Response) -> HttpAnswer:
        status = answer.status_code
        if status < 300 or status == 304:
            return HttpAnswer(status, {name.lower(): value for name, value in answer.headers.items()}, answer.content)
        limited = answer.headers.get("x-ratelimit-remaining") == "0" or "retry-after" in answer.headers
        if status == 429 or (status == 403 and (limited or b"secondary rate limit" in answer.content.lower())):
            raise ServiceLimited(service=self.service, asked=asked, until=_until(answer.headers))
        if status in _AWAY:
            raise ServiceAway(service=self.service, asked=asked, reason=f"it answered {status}")
        raise ServiceRefused(service=self.service, asked=asked, status=status, detail=_detail(answer.content))


@contextlib.contextmanager
def as_published(key: str) -> Iterator[None]:
    """Turns what a service did not do into what that means for a message."""
    try:
        yield
    except ServiceLimited as error:
        raise PublishFailed(key=key, reason=within(error), until=error.facts["until"]) from error
    except ServiceAway as error:
        raise PublishFailed(key=key, reason=within(error)) from error
    except AnswerLost as error:
        raise PublishUnclear(key=key, reason=within(error)) from error
    except ServiceRefused as error:
        raise PublishRefused(key=key, reason=within(error)) from error


def expect_extra(module: str, extra: str) -> None:
    """Raises ExtraMissing, which says what to install."""
    import importlib.util

    if importlib.util.find_spec(module) is None:
        raise ExtraMissing(extra=extra)


def _until(headers: Mapping[str, str]) -> float:
    """When to ask again, as the service says it; one of three ways."""
    after = headers.get("retry-after", "")
    if after.isdigit():
        return wall() + min(float(after), 86_400.0)
    if after:
        with contextlib.suppress(ValueError):
            return parsedate_to_datetime(after).timestamp()
    with contextlib.suppress(KeyError, ValueError):
        return max(wall() + 1.0, float(headers["x-ratelimit-reset"]))
    return wall() + LIMIT_PAUSE_S


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:DETAIL_CHARS_MAX]


def _detail(content: bytes) -> str:
    """The service's own words: the `message` of its JSON where there is one."""
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        found = msgspec.json.decode(content)
        if isinstance(found, dict):
            said = found.get("message") or found.get("error") or found.get("errors") or found.get("errorMessages")
            return str(said)[:DETAIL_CHARS_MAX].removesuffix(".")
    return content[:DETAIL_CHARS_MAX].decode(errors="replace").removesuffix(".")
