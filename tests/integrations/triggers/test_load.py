"""200 deliveries a second, doubled and out of order, with and without kills: none lost, and one task for each key.

`HOLDFAST_LOAD_S=60` lasts a whole minute; `make test-triggers SECONDS=60` says so.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast.ledgers.reader import FileLedgerReader
from kit import deliveries as kit
from kit.project import layout, sound, state
from kit.server import served

pytestmark = pytest.mark.heavy
SECONDS = float(os.environ.get("HOLDFAST_LOAD_S", "5"))
RATE, CLIENTS, PER_KEY = 200, 24, 3
RULE = """\
- name: fix
  on: {source: github, kind: issues.*}
  key: issue-{event.number}
  task: {id: "issue {event.number}", title: "{event.title}", goal: "Fix:\\n{event.body}"}
"""


@dataclass
class Sender:
    """Sends each delivery until it is answered, as services do."""

    port: int
    pending: asyncio.Queue[tuple[str, bytes]]
    answers: dict[str, set[bytes]] = field(default_factory=dict)
    late_s: list[float] = field(default_factory=list)
    facts: Counter[str] = field(default_factory=Counter)

    async def client(self) -> None:
        streams = None
        while True:
            name, body = await self.pending.get()
            headers = {**kit.github(body, id=name), "Host": "127.0.0.1", "Content-Length": str(len(body))}
            head = "POST /webhooks/github HTTP/1.1\r\n" + "".join(f"{key}: {headers[key]}\r\n" for key in headers)
            began = time.monotonic()
            while True:
                try:
                    streams = streams or await asyncio.open_connection("127.0.0.1", self.port)
                    streams[1].write(head.encode() + b"\r\n" + body)
                    found = await streams[0].readuntil(b"\r\n\r\n")
                    status = int(found.split()[1])
                    length = next(line for line in found.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                    content = await streams[0].readexactly(int(length.partition(b":")[2]))
                except (OSError, asyncio.IncompleteReadError):
                    streams = None
                    self.facts["sent again"] += 1
                    await asyncio.sleep(0.05)
                    continue
                self.facts[f"answered {status}"] += 1
                if status == 200:
                    break
                await asyncio.sleep(0.2)
            self.answers.setdefault(name, set()).add(content)
            self.late_s.append(time.monotonic() - began)
            self.pending.task_done()


def deliveries(seconds: float, seed: int = 1) -> list[tuple[str, bytes]]:
    """All that is sent, in order: about a third of it twice or three times, and each within a second of its place."""
    chance = random.Random(seed)
    placed = []
    number = 0
    while len(placed) < seconds * RATE:
        body = kit.issue(number=number // PER_KEY, title=f"Issue {number // PER_KEY}", body=f"delivery {number}")
        for _ in range(chance.choice((1, 1, 1, 1, 2, 3))):
            placed.append((number + chance.uniform(0, RATE), f"d-{number}", body))
        number += 1
    return [(name, body) for _, name, body in sorted(placed)]


async def load(port: int, seconds: float, kills: object = None) -> Sender:
    sender = Sender(port, asyncio.Queue())
    clients = [asyncio.create_task(sender.client()) for _ in range(CLIENTS)]
    began = time.monotonic()
    for number, each in enumerate(deliveries(seconds)):
        await asyncio.sleep(max(0.0, began + number / RATE - time.monotonic()))
        sender.pending.put_nowait(each)
    await sender.pending.join()
    for client in clients:
        client.cancel()
    sender.facts["seconds"] = round(time.monotonic() - began)
    return sender


def expect_all(repo: Path, sender: Sender, sent: list[tuple[str, bytes]]) -> None:
    names = {name for name, _ in sent}
    assert set(sender.answers) == names, "every delivery was answered"
    assert all(len(found) == 1 for found in sender.answers.values()), "the same delivery got the same answer"
    entries = [entry for _, entry in FileLedgerReader(layout(repo)).read()]
    received = Counter(each.inputs["id"] for each in entries if each.decision_type == "delivery_received")
    assert received == Counter(dict.fromkeys(names, 1)), "none lost, none doubled"
    keys = Counter(each.inputs["idempotency_key"] for each in entries if each.decision_type == "task_added")
    wanted = {f"trigger:fix:issue-{int(name.removeprefix('d-')) // PER_KEY}" for name in names}
    assert keys == Counter(dict.fromkeys(wanted, 1)), "one task for each key"
    assert not state(repo).connections.triggers.unjudged
    sound(repo)


def told(sender: Sender, sent: list[tuple[str, bytes]]) -> str:
    late = sorted(sender.late_s)
    share = {share: round(1000 * late[int(len(late) * share) - 1]) for share in (0.5, 0.99, 1.0)}
    return f"{len(sent)} sent, {len(sender.answers)} deliveries, {dict(sender.facts)}, ms {share}"


def test_under_load_no_delivery_is_lost_and_each_key_has_one_task(repo: Path) -> None:
    kit.configure(repo, RULE)
    sent = deliveries(SECONDS)
    with served(repo, **kit.VARIABLES) as server:
        sender = asyncio.run(load(urlsplit(server.address.url).port or 0, SECONDS))
    assert sender.facts["answered 200"] == len(sent)
    expect_all(repo, sender, sent)
    print(told(sender, sent))


def test_under_load_and_kills_no_delivery_is_lost_and_each_key_has_one_task(repo: Path) -> None:
    kit.configure(repo, RULE)
    sent, kills = deliveries(SECONDS), max(2, int(SECONDS / 10))

    async def lives() -> Sender:
        loading: asyncio.Task[Sender] | None = None
        for number in range(kills + 1):
            with served(repo, **kit.VARIABLES) as server:
                port = urlsplit(server.address.url).port or 0
                loading = loading or asyncio.create_task(load(port, SECONDS))
                if number == kills:
                    return await loading
                await asyncio.sleep(SECONDS / (kills + 1))
                await asyncio.to_thread(server.kill)
        raise AssertionError("unreachable")

    sender = asyncio.run(lives())
    assert sender.facts["sent again"], "the kills cut something off"
    expect_all(repo, sender, sent)
    print(told(sender, sent))
