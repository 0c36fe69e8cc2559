"""Who opens as many connections as there may be, and says nothing on them, keeps nobody else from being answered."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn

from holdfast.server.connections import connection_type
from kit.project import make_repo
from kit.server import Server, served

# More than there may be with one follower.
CROWD = 300
HEAD = b"Host: localhost\r\n"


@contextlib.contextmanager
def crowd(server: Server, says: bytes) -> Iterator[None]:
    at = urlsplit(server.address.url)
    with contextlib.ExitStack() as opened:
        for _ in range(CROWD):
            peer = opened.enter_context(socket.create_connection((at.hostname, at.port), timeout=60))
            with contextlib.suppress(OSError):
                peer.sendall(says)
        yield


def kinds(server: Server) -> dict[str, bytes]:
    signed = HEAD + f"Authorization: Bearer {server.address.reader_token}\r\n".encode()
    return {
        "silent": b"",
        "half a head": b"GET /health/live HTTP/1.1\r\nHost: loc",
        "answered": b"GET /health/live HTTP/1.1\r\n" + HEAD + b"\r\n",
        "half a body": b"POST /tasks HTTP/1.1\r\n" + signed + b"Content-Length: 500\r\n\r\n{",
    }


@pytest.mark.parametrize("kind", ["silent", "half a head", "answered", "half a body"])
def test_others_are_answered_beside_a_crowd(tmp_path: Path, kind: str) -> None:
    with (
        served(make_repo(tmp_path), HOLDFAST_SERVER__FOLLOWERS_MAX="1") as server,
        crowd(server, kinds(server)[kind]),
    ):
        for _ in range(3):
            assert server.with_token(server.address.token).get("/auth/me")["role"] == "operator"


LARGE = 64 << 20


async def _much(scope: Any, receive: Any, send: Any) -> None:
    """Answers with more than the kernel keeps for a client that does not read."""
    size = LARGE if scope["path"] == "/large" else 2
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
    for _ in range(size >> 16):
        await send({"type": "http.response.body", "body": b"x" * (1 << 16), "more_body": True})
    await send({"type": "http.response.body", "body": b"ok"[: size % (1 << 16)]})


def test_a_client_that_does_not_read_its_answer_is_closed_for_others() -> None:
    async def ask(port: int, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 10)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        return reader, writer

    async def answered() -> bytes:
        kind = connection_type(4)
        config = uvicorn.Config(_much, "127.0.0.1", 0, http=kind, lifespan="off", timeout_graceful_shutdown=1)
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        port = server.servers[0].sockets[0].getsockname()[1]
        crowd = [await ask(port, "/large") for _ in range(4)]
        for reader, _ in crowd:
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        while len(kind.waiting) < 4:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)
        reader, writer = await ask(port, "/")
        said = await asyncio.wait_for(reader.readline(), 60)
        for each in (writer, *(writer for _, writer in crowd)):
            each.transport.abort()
        await server.shutdown()
        return said

    assert asyncio.run(answered()) == b"HTTP/1.1 200 OK\r\n"
