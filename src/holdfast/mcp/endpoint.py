"""`/mcp` of the task server: streamable HTTP, without sessions.

Name, origin and token are checked before anything is read. A call becomes a request to the same application, with the
headers of the one that it came with, and goes through all of its steps. Nothing is kept between two requests, so a
restart of the run loses nothing and no token outlives its worth. The SDK is imported at the first request.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from holdfast.mcp.extra import MISSING, is_installed
from holdfast.mcp.tools import Tool, ToolAnswer, answer_of, request_of, tools_of
from holdfast.server.access.denials import STRANGER
from holdfast.server.api_state import Api
from holdfast.server.app import read_body
from holdfast.server.operations import Principal
from holdfast.server.problems import Problem

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

PATH = "/mcp"
# Where a request carries the session of its caller.
_SESSION = "holdfast.mcp"
# Of the request that a call came with; all others are the protocol's own.
_PASSED_ON = (b"host", b"authorization", b"origin", b"sec-fetch-site")


def routes(api: Api) -> list[BaseRoute]:
    return [Route(PATH, McpEndpoint(api))]


class McpEndpoint:
    """An ASGI application: it gets requests of every method, and answers POST."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._manager: StreamableHTTPSessionManager | None = None
        self._starting = asyncio.Lock()
        self._running: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        principal = self._principal(request)
        if request.method != "POST":
            # There is nothing to follow and no session to end.
            raise Problem(405, "no_such_method", "MCP is spoken here by POST alone. See docs/mcp.md.", Allow="POST")
        content = await read_body(request)
        manager = await self._started()
        scope[_SESSION] = EndpointSession(scope, principal)
        await manager.handle_request(scope, _replayed(content, receive), send)

    def _principal(self, request: Request) -> Principal:
        by = STRANGER
        try:
            self._api.guard.check(request)
            principal = self._api.authenticate(request)
        except Problem as problem:
            self._api.deny(by, request, problem)
            raise
        return principal

    async def _started(self) -> StreamableHTTPSessionManager:
        async with self._starting:
            if self._manager is None:
                if not is_installed():
                    raise Problem(503, "mcp_missing", MISSING)
                manager = await run_in_threadpool(_make_manager)
                is_open = asyncio.Event()
                self._running = asyncio.create_task(_hold_open(manager, is_open))
                await is_open.wait()
                self._manager = manager
        return self._manager


@functools.cache
def load() -> None:
    """Imports the SDK beside the caller: some CLIs begin without the tools of a server that takes its time."""
    threading.Thread(target=_make_manager, name="mcp", daemon=True).start()


def _make_manager() -> StreamableHTTPSessionManager:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from holdfast.mcp.protocol import make_server

    server = make_server(lambda request: request.scope[_SESSION])
    return StreamableHTTPSessionManager(server, json_response=True, stateless=True)


async def _hold_open(manager: StreamableHTTPSessionManager, is_open: asyncio.Event) -> None:
    """Until the server's event loop ends, which cancels it."""
    async with manager.run():
        is_open.set()
        await asyncio.Event().wait()


def _replayed(content: bytes, receive: Receive) -> Receive:
    """The body again, which was read within its limit; behind it whatever follows."""
    told = [{"type": "http.request", "body": content, "more_body": False}]

    async def again() -> MutableMapping[str, Any]:
        return told.pop() if told else await receive()

    return again


class EndpointSession:
    """The caller of one request."""

    def __init__(self, scope: Scope, principal: Principal) -> None:
        self._scope, self._principal = scope, principal

    @property
    def tools(self) -> Mapping[str, Tool]:
        return tools_of(self._principal.role)

    async def call(self, tool: Tool, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Asks the application that this request came to, as if the caller had asked it by HTTP."""
        asked = request_of(tool, arguments, self._principal.task)
        path, _, query = asked.target.partition("?")
        headers = [pair for pair in self._scope["headers"] if pair[0] in _PASSED_ON]
        headers += [(name.encode(), value.encode("latin-1", "replace")) for name, value in asked.headers.items()]
        scope = {name: self._scope[name] for name in ("type", "asgi", "http_version", "server", "client", "scheme")}
        scope |= {"method": asked.method, "path": _unquoted(path), "raw_path": path.encode(), "root_path": ""}
        scope |= {"query_string": query.encode(), "headers": headers}
        return await _asked(self._scope["app"], scope, asked.content)


def _unquoted(path: str) -> str:
    from urllib.parse import unquote

    return unquote(path)


async def _asked(app: Any, scope: Scope, content: bytes) -> ToolAnswer:
    status, parts = 500, list[bytes]()
    given = [{"type": "http.request", "body": content, "more_body": False}]

    async def receive() -> MutableMapping[str, Any]:
        # Nobody goes away in the middle of a call that was made in this process.
        return given.pop() if given else await asyncio.Future()

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)
        parts.append(message.get("body", b""))

    try:
        await app(scope, receive, send)
    except Exception:  # noqa: BLE001 (the application has answered and logged it, and raises it for its own server)
        status = 500 if status < 400 else status
    return answer_of(status, b"".join(parts))
