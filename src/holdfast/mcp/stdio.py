"""`holdfast mcp`: the tools over standard input and output, for one session of a person or of an agent at work.

A person's session asks the server of the data root with the operator's token, which only its own user can read; where
no run lives, the commands do it (`without_run.py`). An agent's has `HOLDFAST_URL` and `HOLDFAST_TOKEN` in its
environment. Each call has a key: one whose answer was lost is asked again, and happens once.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from mcp.server.stdio import stdio_server

from holdfast.layout import Layout
from holdfast.mcp import http_client, without_run
from holdfast.mcp.protocol import ToolSession, make_server
from holdfast.mcp.tools import Tool, ToolAnswer, ToolRequest, answer_of, request_of, tools_of
from holdfast.server.access.auth import attempt_of
from holdfast.server.serving import read_address

_LOST = (
    "The run ended before it answered, and whether {tool} was done is in its journal. Call {tool} again with "
    "key={key!r} once a run lives: it happens once."
)
_GONE = (
    "Holdfast cannot be reached at {url}: {reason}. Nothing was changed as far as is known; work on, and call {tool} "
    "again later, with key={key!r}."
)


def serve(session: ToolSession, *, for_agent: bool) -> None:
    """Until standard input ends."""
    server = make_server(lambda request: session, for_agent=for_agent)

    async def main() -> None:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    asyncio.run(main())


def _keyed(tool: Tool, asked: ToolRequest) -> ToolRequest:
    """What changes something has a key of ours where the caller gave none."""
    if asked.key or not tool.operation.changes:
        return asked
    return msgspec.structs.replace(asked, key=secrets.token_hex(16))


def _send(url: str, token: str, asked: ToolRequest, cert: str = "") -> ToolAnswer:
    sent = http_client.send(
        url, token, asked.method, asked.target, content=asked.content, headers=asked.headers, cert=cert
    )
    return answer_of(*sent)


class AgentSession(NamedTuple):
    """Of an agent at work, by the variables that its runner gave it."""

    url: str
    token: str

    @property
    def task(self) -> str:
        """The token names the attempt that it is for."""
        return attempt_of(self.token).rpartition(".")[0]

    @property
    def tools(self) -> Mapping[str, Tool]:
        return tools_of("agent")

    async def call(self, tool: Tool, arguments: Mapping[str, Any]) -> ToolAnswer:
        asked = _keyed(tool, request_of(tool, arguments, self.task))
        return await asyncio.to_thread(self._ask, tool, asked)

    def _ask(self, tool: Tool, asked: ToolRequest) -> ToolAnswer:
        try:
            return _send(self.url, self.token, asked)
        except http_client.Unreachable as error:
            told = _GONE.format(url=self.url, reason=error, tool=tool.name, key=asked.key)
            return ToolAnswer(told, is_error=True)


class PersonSession(NamedTuple):
    """Of a person, in their repository. `cert`: the certificate of the server, where it has one."""

    layout: Layout
    repo: Path
    data_root: str | None
    cert: str = ""

    @property
    def tools(self) -> Mapping[str, Tool]:
        return tools_of("operator")

    async def call(self, tool: Tool, arguments: Mapping[str, Any]) -> ToolAnswer:
        asked = _keyed(tool, request_of(tool, arguments))
        return await asyncio.to_thread(self._ask, tool, asked, arguments)

    def _ask(self, tool: Tool, asked: ToolRequest, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Asks the run that lives now. One that died over it is followed by the next, under the same key."""
        is_doubtful = False
        seen = None
        while (address := read_address(self.layout)) is not None and address.process != seen:
            try:
                return _send(address.url, address.token, asked, self.cert)
            except http_client.Unreachable as error:
                is_doubtful = is_doubtful or (error.was_sent and tool.operation.changes)
                seen = address.process
        if is_doubtful or address is not None:
            return ToolAnswer(_LOST.format(tool=tool.name, key=asked.key), is_error=True)
        return without_run.call(tool, arguments, self.repo, self.data_root)
