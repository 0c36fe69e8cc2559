"""The clients of `bench.server`, in a process of their own: posts over kept connections, and followers of events.

Told what to do by one line of JSON, it answers with one. It is as light as it can be, because it shares the cores.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import uvloop

_IDS = re.compile(rb"\nid: [^:\n]+:(\d+)\n")


class Server:
    def __init__(self, url: str, token: str) -> None:
        at = urlsplit(url)
        self.host, self.port = at.hostname, at.port
        self.head = f"Host: {at.hostname}:{at.port}\r\nAuthorization: Bearer {token}\r\n"

    def post(self, path: str, body: Any) -> bytes:
        content = json.dumps(body)
        return f"POST {path} HTTP/1.1\r\n{self.head}Content-Length: {len(content)}\r\n\r\n{content}".encode()


class Poster(asyncio.Protocol):
    """Sends one request after the other, each once the one before is answered; keeps how long each took."""

    def __init__(self, requests: Iterator[bytes], took: list[float], over: asyncio.Future[None]) -> None:
        self._requests, self._took, self.over = requests, took, over
        self._answer = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._transport.close()
            self.over.set_result(None)
            return
        self._began = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, found, body = self._answer.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if not found or (length and len(body) < int(length[1])):
            return
        if not self._answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")):
            raise RuntimeError(self._answer.decode())
        self._took.append(time.perf_counter() - self._began)
        self._answer = b""
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.over.done():
            self.over.set_exception(RuntimeError("the server closed the connection"))


async def post(server: Server, requests: list[bytes], connections: int) -> dict[str, float]:
    """All of them, over so many connections: how many a second, and how long the median and the slowest took."""
    loop = asyncio.get_running_loop()
    rest, took = iter(requests), list[float]()
    posters = [Poster(rest, took, loop.create_future()) for _ in range(connections)]
    began = time.perf_counter()
    for each in posters:
        await loop.create_connection(lambda each=each: each, server.host, server.port)
    await asyncio.gather(*(each.over for each in posters))
    seconds = time.perf_counter() - began
    took.sort()
    part = {"p50": took[len(took) // 2], "p99": took[int(len(took) * 0.99)]}
    return {"rate": len(took) / seconds, "seconds": seconds, **part}


class Follower(asyncio.Protocol):
    """Takes every event, and sees that none is missing and none comes twice."""

    def __init__(self, server: Server, after: str) -> None:
        self._request = f"GET /events HTTP/1.1\r\n{server.head}Last-Event-ID: {after}\r\n\r\n".encode()
        self._rest = b""
        self.last = int(after.rpartition(":")[2])
        self.faults = 0

    def connection_made(self, transport: Any) -> None:
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        whole, _, self._rest = (self._rest + data).rpartition(b"\n\n")
        for seq in map(int, _IDS.findall(b"\n" + whole)):
            self.faults += seq != self.last + 1
            self.last = seq


async def follow(server: Server, told: dict[str, Any]) -> dict[str, float]:
    """So many followers, while progress comes at a steady rate; how much later than the last the slowest had all."""
    loop = asyncio.get_running_loop()
    followers = [Follower(server, told["after"]) for _ in range(told["followers"])]
    for each in followers:
        await loop.create_connection(lambda each=each: each, server.host, server.port)
    requests = [
        server.post(told["path"], {"claim": told["claim"], "message": f"{number} " + told["message"]})
        for number in range(told["count"])
    ]
    posters = [
        Steady(requests[number :: told["posters"]], told["rate"] / told["posters"]) for number in range(told["posters"])
    ]
    began = time.perf_counter()
    await asyncio.gather(*(each.run(server) for each in posters))
    posted = time.perf_counter() - began
    # The run may add entries of its own: what one follower has seen, all shall see.
    deadline = time.perf_counter() + told["patience"]
    wanted = int(told["after"].rpartition(":")[2]) + told["count"]
    while (behind := sum(each.last < wanted for each in followers)) and time.perf_counter() < deadline:
        await asyncio.sleep(0.005)
    late = time.perf_counter() - began - posted
    return {"posted": posted, "late": late, "behind": behind, "faults": sum(each.faults for each in followers)}


class Steady:
    """Posts at a rate, whatever the answers' pace: as many as are due are sent, one after the other."""

    def __init__(self, requests: list[bytes], rate: float) -> None:
        self._requests, self._rate = requests, rate

    async def run(self, server: Server) -> None:
        reader, writer = await asyncio.open_connection(server.host, server.port)
        began = time.perf_counter()
        for number, request in enumerate(self._requests):
            if (wait := began + number / self._rate - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            body = await reader.readexactly(int(length[1]) if length else 0)
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(body.decode())
        writer.close()


async def main(told: dict[str, Any]) -> dict[str, float]:
    server = Server(told["url"], told["token"])
    if told["do"] == "follow":
        return await follow(server, told)
    return await post(server, [server.post(path, body) for path, body in told["requests"]], told["connections"])


if __name__ == "__main__":
    print(json.dumps(uvloop.run(main(json.loads(sys.stdin.readline())))))
