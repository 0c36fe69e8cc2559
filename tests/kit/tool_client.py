"""The SDK's own client of the Model Context Protocol, over both ways in."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import httpx2
import msgspec
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from holdfast.server.serving import Address
from kit.program import HOLDFAST, environment

SECONDS = 120


class ToolText(NamedTuple):
    """What a call gave: `text` is JSON, or the sentence of an error."""

    text: str
    is_error: bool

    @property
    def json(self) -> Any:
        assert not self.is_error, self.text
        return msgspec.json.decode(self.text)


class ToolClient:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def names(self) -> list[str]:
        return [tool.name for tool in (await self._client.list_tools()).tools]

    async def call(self, name: str, **arguments: Any) -> ToolText:
        found = await self._client.call_tool(name, arguments)
        (content,) = found.content
        return ToolText(content.text, bool(found.is_error))


@contextlib.asynccontextmanager
async def by_http(url: str, token: str, mode: str = "auto") -> AsyncIterator[ToolClient]:
    """`mode`: "auto", or "legacy" for the handshake of the versions before 2026-07-28, which today's CLIs speak."""
    headers = {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=SECONDS) as http:
        async with Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client:  # type: ignore[arg-type]
            yield ToolClient(client)


@contextlib.asynccontextmanager
async def by_stdio(repo: Path, mode: str = "auto", **env: str) -> AsyncIterator[ToolClient]:
    program, *args = HOLDFAST
    given = StdioServerParameters(command=program, args=[*args, "mcp"], cwd=repo, env=environment(repo, **env))
    async with Client(stdio_client(given), mode=mode) as client:  # type: ignore[arg-type]
        yield ToolClient(client)


def asks(act: Callable[[ToolClient], Coroutine[Any, Any, Any]], address: Address, token: str = "") -> Any:
    """What `act` returns, with a client over HTTP; the operator's where no token is given."""

    async def main() -> Any:
        async with by_http(address.url, token or address.token) as client:
            return await act(client)

    return anyio.run(main)


def asks_by_stdio(act: Callable[[ToolClient], Coroutine[Any, Any, Any]], repo: Path, **env: str) -> Any:
    async def main() -> Any:
        async with by_stdio(repo, **env) as client:
            return await act(client)

    return anyio.run(main)
