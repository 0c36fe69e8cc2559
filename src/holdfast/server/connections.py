"""Connections, before anybody is known: how many there may be, and how long and large the head of a request.

Whoever can reach the port can open one and send whatever they like, without a token. What that may cost is bounded
here: an endless header, or a crowd that says nothing, would take the memory and the files that the run needs.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.server.problems import CONTENT_TYPE, TITLES, ProblemDocument

HEAD_BYTES_MAX = 64 << 10
HEAD_S = 15.0
# Beside the streams: for everything that is asked and answered.
ROOM = 256
REASONS = {408: b"Request Timeout", 431: b"Request Header Fields Too Large", 503: b"Service Unavailable"}


def most_connections(followers_max: int) -> int:
    """Never more than half of the files that this process may open: the others are the run's."""
    files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = followers_max + ROOM
    return wanted if files_max == resource.RLIM_INFINITY else max(1, min(wanted, files_max // 2))


def connection_type(most: int) -> type[asyncio.Protocol]:
    """The protocol of a server that keeps so many connections."""

    class Connection(HttpToolsProtocol):
        _head_bytes = 0
        _is_in_head = False
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._begin_head()
            if len(self.connections) > most:
                detail = f"{most} connections are open, and no more may be. Try again when one has gone."
                self._refuse(503, "too_many_connections", detail)

        def connection_lost(self, exc: Exception | None) -> None:
            self._end_head()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            super().data_received(data)
            if self._is_in_head:
                self._head_bytes += len(data)
                if self._head_bytes > HEAD_BYTES_MAX:
                    self._refuse(431, "head_too_large", f"The head of a request has up to {HEAD_BYTES_MAX:,} bytes.")

        def on_message_begin(self) -> None:
            self._begin_head()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._end_head()
            super().on_headers_complete()

        def _begin_head(self) -> None:
            self._end_head()
            self._head_bytes, self._is_in_head = 0, True
            detail = f"The head of a request has to be there within {HEAD_S:.0f} seconds."
            self._deadline = self.loop.call_later(HEAD_S, self._refuse, 408, "head_too_slow", detail)

        def _end_head(self) -> None:
            self._is_in_head = False
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _refuse(self, status: int, code: str, detail: str) -> None:
            self._end_head()
            if not self.transport.is_closing():
                # While an answer is under way, this would stand in the middle of it.
                if self.cycle is None or self.cycle.response_complete:
                    self.transport.write(_problem(status, code, detail))
                self.transport.close()

    return Connection


def _problem(status: int, code: str, detail: str) -> bytes:
    body = msgspec.json.encode(ProblemDocument(status, code, detail, TITLES.get(status, "")))
    fields: Any = (status, REASONS[status], CONTENT_TYPE.encode(), len(body), body)
    return b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % fields
