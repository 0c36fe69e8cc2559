"""Clients that go on over the death of their server: raw connections that are kept, in one event loop.

A request that was cut off is sent again under its key, and one without a key is not: what became of it is unknown to
its client. What a client was answered is written down here, and judged afterwards against the journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

PAUSE_S = 0.02
ANSWER_S = 60.0


class CutOffError(Exception):
    """The connection broke. `sent`: the request had gone out."""

    def __init__(self, sent: bool) -> None:
        super().__init__()
        self.sent = sent


@dataclass(eq=False)
class Request:
    """`kind` is the entry that it makes, and `mark` what only this entry says."""

    path: str
    body: dict[str, Any]
    kind: str
    key: str = ""
    mark: str = ""
    was_in_flight: bool = False
    status: int = 0
    content: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.content)


class Wire:
    """One connection that is kept."""

    def __init__(self, url: str, token: Callable[[], str]) -> None:
        at = urlsplit(url)
        self._host, self._port, self._token = at.hostname, at.port, token
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @property
    def _head(self) -> str:
        """Each start of the server has a token of its own."""
        return f"Host: {self._host}:{self._port}\r\nAuthorization: Bearer {self._token()}\r\n"

    async def ask(self, method: str, path: str, body: Any = None, key: str = "") -> tuple[int, bytes]:
        content = b"" if body is None else json.dumps(body).encode()
        more = f"Idempotency-Key: {key}\r\n" if key else ""
        head = f"{method} {path} HTTP/1.1\r\n{self._head}{more}Content-Length: {len(content)}\r\n\r\n"
        is_sent = False
        try:
            reader, writer = self._streams or await asyncio.open_connection(self._host, self._port)
            self._streams = reader, writer
            writer.write(head.encode() + content)
            is_sent = True
            status, length = await _read_head(reader)
            content = await reader.readexactly(length)
            if status == 401:
                # The server is newer than the token: refused, and nothing was done.
                raise CutOffError(False)
            return status, content
        except (OSError, asyncio.IncompleteReadError) as error:
            self.close()
            raise CutOffError(is_sent) from error

    async def frames(self, path: str, after: str) -> AsyncIterator[dict[str, str]]:
        """Server-sent events until the connection breaks or ends; half an event is none."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\n{self._head}Last-Event-ID: {after}\r\n\r\n".encode())
            status, _ = await _read_head(reader)
            if status == 401:
                raise ConnectionError("the server is newer than the token")
            assert status == 200, status
            text = b""
            while size := int(await reader.readuntil(b"\r\n"), 16):
                text += (await reader.readexactly(size + 2))[:-2]
                *whole, text = text.split(b"\n\n")
                for each in whole:
                    lines = (line.partition(": ") for line in each.decode().split("\n"))
                    yield {name: value for name, _, value in lines if name}
        finally:
            writer.close()

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, int]:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode().lower().split("\r\n")
    length = next((line.partition(":")[2] for line in lines if line.startswith("content-length:")), "0")
    return int(first.split()[1]), int(length)


@dataclass
class Load:
    """Clients that add and work on tasks, and followers, until `over`. What they met is counted and kept."""

    url: str
    token: Callable[[], str]
    seed: str
    over: bool = False
    pending: set[Request] = field(default_factory=set)
    answered: list[Request] = field(default_factory=list)
    unknown: list[Request] = field(default_factory=list)
    facts: Counter[str] = field(default_factory=Counter)

    def mark_in_flight(self) -> int:
        """Called at the moment of a kill: of these, those that are not answered were cut off by it."""
        for each in self.pending:
            each.was_in_flight = True
        return len(self.pending)

    async def send(self, wire: Wire, request: Request) -> bool:
        """True when it was answered. Under a key it is sent until it is."""
        while True:
            self.pending.add(request)
            try:
                async with asyncio.timeout(ANSWER_S):
                    request.status, request.content = await wire.ask("POST", request.path, request.body, request.key)
                break
            except CutOffError as cut:
                self.facts["cut off"] += cut.sent and request.was_in_flight
                request.was_in_flight = False
                if cut.sent and not request.key:
                    self.unknown.append(request)
                    return False
                self.facts["sent again"] += cut.sent
            finally:
                self.pending.discard(request)
            await asyncio.sleep(PAUSE_S)
        request.was_in_flight = False
        assert request.status in (200, 201, 204), (request.path, request.status, request.content)
        if request.status != 204:
            self.answered.append(request)
        return request.status != 204

    async def client(self, number: int) -> None:
        chance = random.Random(f"{self.seed} {number}")
        wire, worker, count = Wire(self.url, self.token), f"w{number}", 0
        while not self.over:
            count += 1
            name = f"{worker}-{count}"
            match chance.choices(("add", "add unkeyed", "work", "ask again"), (3, 1, 4, 1))[0]:
                case "add":
                    await self.send(wire, Request("/tasks", {"id": name, "goal": "x"}, "task_added", name, name))
                case "add unkeyed":
                    await self.send(wire, Request("/tasks", {"id": name, "goal": "x"}, "task_added", "", name))
                case "work":
                    await self.work(wire, worker, name)
                case "ask again" if self.answered:
                    await self.ask_again(wire, chance.choice(self.answered[-500:]))
        wire.close()

    async def work(self, wire: Wire, worker: str, name: str) -> None:
        claim = Request("/tasks/claim", {"worker": worker}, "task_claimed", f"{name} claim")
        if not await self.send(wire, claim):
            return
        task, held = claim.json["task"]["id"], {"claim": claim.json["claim"]}
        claim.mark = task
        for number, key in enumerate((f"{name} progress", "")):
            said = f"{name} says {number}"
            body = {**held, "message": said}
            await self.send(wire, Request(f"/tasks/{task}/progress", body, "task_progressed", key, said))
        await self.send(wire, Request(f"/tasks/{task}/complete", held, "task_done", f"{name} complete", task))

    async def ask_again(self, wire: Wire, before: Request) -> None:
        """What was answered once is answered the same again."""
        if before.key:
            again = Request(before.path, before.body, before.kind, before.key, before.mark)
            await self.send(wire, again)
            assert (again.status, again.content) == (before.status, before.content)
            self.facts["asked again"] += 1

    async def follower(self, seen: list[str]) -> None:
        """`seen` begins with the cursor to go on from, and gets the id of each event."""
        wire = Wire(self.url, self.token)
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                async for frame in wire.frames("/events", seen[-1]):
                    if "id" in frame:
                        seen.append(frame["id"])
            self.facts["reconnected"] += 1
            await asyncio.sleep(PAUSE_S)
