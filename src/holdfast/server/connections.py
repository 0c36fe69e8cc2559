"""Connections, before anybody is known: how many there may be, how large the head of a request, how slow all of it.

Any client that reaches the port can open one and send anything, without a token. What that may cost is bounded
here: an endless header, or a crowd that says nothing or drips, would take the memory and the files that the run needs.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any, ClassVar

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.clock import GAP_S
from holdfast.server.problems import CONTENT_TYPE, TITLES, ProblemDocument

HEAD_BYTES_MAX = 64 << 10
HEAD_S = 15.0
BODY_S = 60.0
# For what is left of a body once its request is answered: a client that reads the answer only then must not lose it.
REST_S = 5.0
# Beside the streams: for everything that is asked and answered.
ROOM = 256
REASONS = {408: b"Request Timeout", 431: b"Request Header Fields Too Large", 503: b"Service Unavailable"}


def most_connections(followers_max: int) -> int:
    """Never more than half of the files that this process may open: the others are the run's."""
    files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = followers_max + ROOM
    return wanted if files_max == resource.RLIM_INFINITY else max(1, min(wanted, files_max // 2))


class Connection(HttpToolsProtocol):
    """`most`: how many there may be at the same time. `waiting`: those from which something has to come next, the
    longest first: when a further one comes they make room, so that nobody shuts others out by saying nothing."""

    most = ROOM
    waiting: ClassVar[dict[Connection, None]] = {}
    _head_bytes = 0
    _is_in_head = False
    _is_in_body = False
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin_head()
        if len(self.connections) > self.most and not self._make_room():
            detail = f"{self.most} connections are open, and no more may be. Try again when one has gone."
            self._refuse(503, "too_many_connections", detail)
        else:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self.waiting.pop(self, None)
        self._end_head()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read the answer."""
        self._wait()
        super().pause_writing()

    def resume_writing(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.waiting.pop(self, None)
        super().resume_writing()

    def _wait(self) -> None:
        self.waiting.pop(self, None)
        self.waiting[self] = None

    def _make_room(self) -> bool:
        """Lets one go that has asked nothing, or was answered, or does not read; else one whose body is on its way."""
        idle = (each for each in self.waiting if not each._is_in_body)
        found = next(idle, None) or next(iter(self.waiting), None)
        if found is None:
            return False
        del self.waiting[found]
        found.transport.abort()
        return True

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._refuse(431, "head_too_large", f"The head of a request has up to {HEAD_BYTES_MAX:,} bytes.")
        elif self._deadline is None and self.cycle is not None and self.cycle.response_complete:
            # The end of a body, or an empty line: any byte ends the time that an idle connection has.
            self._expect_by(self.timeout_keep_alive, 408)

    def on_message_begin(self) -> None:
        self._begin_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()
        self._is_in_body = True
        detail = f"The body of a request has to be there within {BODY_S:.0f} seconds."
        self._expect_by(BODY_S, 408, "body_too_slow", detail)

    def on_message_complete(self) -> None:
        self._is_in_body = False
        self._expect_by(None)
        if self.cycle is not None and not self.cycle.response_complete:
            self.waiting.pop(self, None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if not self.pipeline and not self.transport.is_closing():
            self._wait()
        super().on_response_complete()
        if self._is_in_body and not self.pipeline:
            # A refusal, mostly. Each further byte would keep the connection, and none of them is wanted.
            self._expect_by(REST_S, 408, "", "")

    def _begin_head(self) -> None:
        self._end_head()
        self._head_bytes, self._is_in_head = 0, True
        detail = f"The head of a request has to be there within {HEAD_S:.0f} seconds."
        self._expect_by(HEAD_S, 408, "head_too_slow", detail)

    def _end_head(self) -> None:
        self._is_in_head = False
        self._expect_by(None)

    def _expect_by(self, seconds: float | None, status: int = 0, code: str = "", detail: str = "") -> None:
        """Refuses what does not come within so long; without a word where there is no code."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if seconds is not None:
            due = self.loop.time() + seconds
            self._deadline = self.loop.call_later(seconds, self._be_late, due, (seconds, status, code, detail))

    def _be_late(self, due: float, expected: tuple[float, int, str, str]) -> None:
        """Refuses a late client, or gives the whole time again where the server itself did not run."""
        if self.loop.time() - due > GAP_S:
            self._expect_by(*expected)
        else:
            self._refuse(*expected[1:])

    def _refuse(self, status: int, code: str, detail: str) -> None:
        # While an answer is under way, another would stand in the middle of it.
        may_answer = self.cycle is None or self.cycle.response_complete
        if not may_answer:
            may_answer = self._is_in_body and not self.pipeline and not self.cycle.response_started
        self._end_head()
        if not self.transport.is_closing():
            if may_answer and code:
                self.transport.write(_problem(status, code, detail))
            self.transport.close()


def connection_type(most: int) -> type[asyncio.Protocol]:
    """The protocol of a server that keeps so many connections."""
    return type("Connection", (Connection,), {"most": most, "waiting": {}})


def _problem(status: int, code: str, detail: str) -> bytes:
    body = msgspec.json.encode(ProblemDocument(status, code, detail, TITLES.get(status, "")))
    fields: Any = (status, REASONS[status], CONTENT_TYPE.encode(), len(body), body)
    return b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % fields
