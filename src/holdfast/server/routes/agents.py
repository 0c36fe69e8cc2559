"""Who works now: agents that we run, and workers that hold a task through the API."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from holdfast.domain.state import Task
from holdfast.durable import attempts
from holdfast.durable.at_work import glance, tail
from holdfast.durable.attempts import Seen
from holdfast.engine.decisions import Desk, refused
from holdfast.engine.plan import AT_WORK
from holdfast.engine.stopping import flag
from holdfast.layout import Attempt
from holdfast.server.context import Api
from holdfast.server.operations import Ask, NoBody, Operation
from holdfast.server.problems import Problem
from holdfast.server.routes.decisions import Changed
from holdfast.server.routes.tasks import row, rows_of
from holdfast.server.routes.work import Claimed, Hold, beat_of
from holdfast.server.stream import EventStream

TAIL_BYTES = 64 << 10
TAIL_BYTES_MAX = 1 << 20
POLL_S = 0.25
ALIVE_S = 15.0
_WORDS = {Seen.ALIVE: "working", Seen.ABSENT: "starting", Seen.ENDED: "ended", Seen.DEAD: "lost", Seen.HEADLESS: "lost"}


class AgentRow(msgspec.Struct, frozen=True):
    """One agent at work. `turn` is the one that it is in; `usd` and `tokens` are the task's so far.

    `context_tokens`: what the agent last said that it gave to its model; 0 where it does not say. `silent_s`: how long
    it has printed nothing. `tool` runs now; while none does, `last_tool` is the one that ran last. `worker` and
    `until` are of one that holds its task through the API. `retrying`: it does not reach its model, and tries again;
    what went wrong.
    """

    attempt: str
    task: str
    title: str
    agent: str
    model: str
    state: str
    turn: int
    tool: str
    usd: float
    tokens: int
    context_tokens: int
    since: float
    heartbeat_age_s: float
    silent_s: float
    remote: bool
    worker: str = ""
    until: float = 0.0
    pid: int = 0
    last_tool: str = ""
    retrying: str = ""


class Agents(msgspec.Struct, frozen=True):
    agents: list[AgentRow]


class OutputQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`tail`: so many bytes of its end. With `follow` it comes as events, from the offset `after` on."""

    tail: Annotated[int, Meta(ge=0, le=TAIL_BYTES_MAX)] = TAIL_BYTES
    follow: bool = False
    after: Annotated[int, Meta(ge=0, le=1 << 53)] | None = None


def list_agents(api: Api, ask: Ask) -> Agents:
    return Agents(rows_at_work(api))


def show_agent(api: Api, ask: Ask) -> AgentRow:
    return row_of(api, _at_work(api, ask.attempt))


def rows_at_work(api: Api) -> list[AgentRow]:
    found = [row_of(api, task) for task in list(api.tasks.values()) if task.state in AT_WORK]
    return sorted(found, key=lambda each: each.since)


def row_of(api: Api, task: Task) -> AgentRow:
    title = row(task, api.definition(task.id)).title
    lease = api.shop.ledger.lease(task.id) if task.remote else None
    if task.remote:
        until = lease.until if lease else 0.0
        age = max(0.0, api.config.lease_s - (until - api.shop.clock()))
        return AgentRow(
            task.attempt, task.id, title, task.agent, task.model, "working", task.turn + 1, task.progress[:200],
            task.usd, task.tokens, 0, task.changed_at, age, age, True, task.agent, until,
        )  # fmt: skip
    files = api.layout.attempt_files(task.attempt)
    seen, at = attempts.look(files, task.starts, task.intent), glance(files, task)
    running = attempts.read_process(files)
    age = api.shop.silence.seconds(task.attempt)
    return AgentRow(
        task.attempt, task.id, title, task.agent, task.model, _WORDS[seen], at.turn,
        at.tool if at.tool_runs else "", at.usd, at.tokens,
        _context(files), task.changed_at, age, _silent(api, files), False,
        pid=running.agent.pid if running is not None and seen is Seen.ALIVE else 0,
        last_tool="" if at.tool_runs else at.tool,
        retrying=at.retrying,
    )  # fmt: skip


def _at_work(api: Api, attempt: str) -> Task:
    task = api.tasks.get(attempt.rpartition(".")[0])
    if task is None or task.attempt != attempt or task.state not in AT_WORK:
        detail = f"Nobody works on {attempt!r}. See /agents for those who work, /attempts/… for what was done."
        raise Problem(404, "agent_unknown", detail)
    return task


def _context(files: Attempt) -> int:
    spent = [line for line in tail(files.events) if line.get("type") == "spent"]
    counted = spent[-1].get("tokens_in", 0) if spent else 0
    return counted if isinstance(counted, int) else 0


def _silent(api: Api, files: Attempt) -> float:
    try:
        return max(0.0, api.shop.clock() - files.output.stat().st_mtime)
    except FileNotFoundError:
        return 0.0


# -- asking something of an agent -------------------------------------------------------------------------------------


def beat(desk: Desk, ask: Ask) -> Claimed:
    return beat_of(desk, ask, _task_of(desk, ask.attempt))


def stop(desk: Desk, ask: Ask) -> Changed:
    """Its runner ends it in order. The task is open then, and waits for a person who says that it shall go on."""
    task = _task_of(desk, ask.attempt)
    if task.remote or desk.shop is None:
        raise refused(task, "stopped", "it can be cancelled.", "its worker is none of ours")
    if not desk.has_done("task_flagged", 0):
        desk.append([flag(desk, task)])
    desk.shop.spawn.ask_to_stop(task)
    note = f"its runner was asked to end it; `holdfast resume {task.id}` goes on with the attempt, also after an undo"
    return Changed(rows_of(desk, [task.id])[0], note)


def _task_of(desk: Desk, attempt: str) -> Task:
    task = desk.tasks.get(attempt.rpartition(".")[0])
    if task is None or task.attempt != attempt or task.state not in AT_WORK:
        raise Problem(404, "agent_unknown", f"Nobody works on {attempt!r}. See /agents for those who work.")
    return task


# -- what it prints ---------------------------------------------------------------------------------------------------


def output(api: Api, ask: Ask) -> Response:
    query: OutputQuery = ask.query
    path = api.layout.attempt_files(known_attempt(api, ask.attempt)).output
    size = path.stat().st_size if path.exists() else 0
    given = ask.headers.get("last-event-id", "")
    if given and not (given.isascii() and given.isdecimal() and len(given) < 16):
        raise Problem(422, "cursor_unreadable", f"{given[:100]!r} is no offset of the output.")
    start = int(given) if given else query.after if query.after is not None else max(0, size - query.tail)
    headers = {"x-content-type-options": "nosniff", "cache-control": "no-store"}
    if not query.follow:
        return Response(_read(path, start, TAIL_BYTES_MAX), media_type="text/plain; charset=utf-8", headers=headers)
    api.room.expect(ask.client)
    is_good = api.tokens.standing(ask.principal)

    def is_over() -> bool:
        task = api.tasks[ask.attempt.rpartition(".")[0]]
        return task.attempt != ask.attempt or task.state not in AT_WORK

    async def frames() -> AsyncGenerator[bytes, None]:
        with api.room.taken(ask.client):
            async for each in _follow(api, path, start, is_over):
                if not is_good() and ask.principal.role != "agent":
                    return
                yield each

    return EventStream(frames())


async def _follow(api: Api, path: Path, offset: int, is_over: Callable[[], bool]) -> AsyncIterator[bytes]:
    yield b": following\nretry: 1000\n\n"
    idle_s = 0.0
    while True:
        # Asked before reading: what is written until it is over is then read, too.
        is_last = is_over()
        chunk = _whole(await run_in_threadpool(_read, path, offset, TAIL_BYTES), is_last)
        if chunk:
            offset, idle_s = offset + len(chunk), 0.0
            data = msgspec.json.encode(chunk.decode(errors="replace"))
            yield b"id: %d\nevent: output\ndata: %b\n\n" % (offset, data)
        elif is_last:
            yield b"id: %d\nevent: end\ndata: {}\n\n" % offset
            return
        elif api.loop.stopping:
            return
        else:
            await asyncio.sleep(POLL_S)
            idle_s += POLL_S
            if idle_s >= ALIVE_S:
                idle_s = 0.0
                yield b": alive\n\n"


def _read(path: Path, offset: int, most: int) -> bytes:
    try:
        with open(path, "rb") as file:
            # Some file systems refuse to go further than a file could ever be.
            file.seek(min(offset, os.fstat(file.fileno()).st_size))
            return file.read(most)
    except FileNotFoundError:
        return b""


def _whole(chunk: bytes, is_last: bool) -> bytes:
    """Without a character that is cut at the end, unless no more can come."""
    for back in range(1, min(4, len(chunk)) + 1):
        byte = chunk[-back]
        if byte & 0xC0 != 0x80:
            wanted = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            is_cut = wanted > back
            return chunk[:-back] if is_cut and not is_last else chunk
    return chunk


def known_attempt(api: Api, name: str) -> str:
    """The id of an attempt that there is, or was."""
    from holdfast.engine.rework import attempt_named

    found = attempt_named(api.shop.ledger.state, name)
    if found is None or found[1] != name or not name:
        raise Problem(404, "attempt_unknown", f"There is no attempt {name!r}. A task's are at /tasks/…/attempts.")
    return name


OPERATIONS = [
    Operation("GET", "/agents", "list_agents", "Who works now.", list_agents, Agents, lane="aside", tag="agents"),
    Operation("GET", "/agents/{attempt}", "show_agent", "One agent at work.", show_agent, AgentRow, lane="aside",
              tag="agents", problems=(404,)),
    Operation("POST", "/agents/{attempt}/heartbeat", "beat_agent", "Keep a claim alive.", beat, Claimed, "work",
              "counter", body=Hold, tag="agents", problems=(404, 409)),
    Operation("POST", "/agents/{attempt}/stop", "stop_agent", "End an agent in order; it can be gone on with.", stop,
              Changed, "operate", "loop", body=NoBody, tag="agents", problems=(404, 409)),
    Operation("GET", "/agents/{attempt}/output", "show_output", "What an agent prints: its end, or as it comes.",
              output, str, lane="aside", query=OutputQuery, tag="agents", problems=(404, 429),
              media_type="text/plain, text/event-stream"),
]  # fmt: skip
