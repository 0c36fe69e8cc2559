"""The output of an agent: its typed events, as `holdfast attach` tells them, and the bytes that it printed."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from holdfast.domain.task import AT_WORK
from holdfast.layout import Attempt
from holdfast.server.api_state import Api
from holdfast.server.event_feed import EventStream
from holdfast.server.operations import Ask, Operation
from holdfast.server.problems import Problem
from holdfast.server.routes.agents import known_attempt
from holdfast.server.routes.events import stream
from holdfast.storage.records import transcript
from holdfast.storage.records.transcript import TranscriptPlace

TAIL_BYTES = 64 << 10
TAIL_BYTES_MAX = 1 << 20
FILES_MAX = 20
POLL_S = 0.25
ALIVE_S = 15.0
_OF_A_TURN = ("type", "ts", "start", "turn", "tool", "usd", "tokens", "seconds")
_HEADERS = {"x-content-type-options": "nosniff", "cache-control": "no-store"}

# Given whether this is the last time, what is new: its frame, empty where nothing is.
Next = Callable[[bool], bytes]


class OutputQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`tail`: so many bytes of its end, or of what is before the offset `before`. With `follow` it comes as server-sent
    events, from the offset `after` on; else the headers X-Output-Start and X-Output-End say which bytes it is."""

    tail: Annotated[int, Meta(ge=0, le=TAIL_BYTES_MAX)] = TAIL_BYTES
    follow: bool = False
    after: Annotated[int, Meta(ge=0, le=1 << 53)] | None = None
    before: Annotated[int, Meta(ge=0, le=1 << 53)] | None = None


class AgentEventQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last events, or the last ones before the cursor `before`. With `follow` they come as server-sent events, each
    a list, from the cursor `after` on."""

    before: Annotated[str, Meta(max_length=40)] = ""
    after: Annotated[str, Meta(max_length=40)] = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200
    follow: bool = False


class AgentEventRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event, with the fields of its `type`; `turn` closes a turn, `ended` a start of the agent.

    `said` has `text`; `tool_started` has `name`, `call` and `input`, `tool_ended` has `call`, `ok` and
    `output`; `spent` has what was spent since the one before; `finished` is the agent's own last word. Each text is cut
    to about 16,000 characters; all of it is in the raw output.
    """

    type: str
    ts: float = 0.0
    start: int = 0
    turn: int = 0
    text: str = ""
    id: str = ""
    model: str = ""
    name: str = ""
    call: str = ""
    input: str = ""
    ok: bool = True
    output: str = ""
    usd: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    estimated: bool = False
    corrects: bool = False
    until: float = 0.0
    detail: str = ""
    tries: int = 0
    wait_s: float = 0.0
    kind: str = ""
    tool: str = ""
    defers: bool = False
    preview: str = ""
    cannot: str = ""
    tokens: int = 0
    seconds: float = 0.0
    files: list[str] = []
    files_total: int = 0


class AgentEvents(msgspec.Struct, frozen=True):
    """Oldest first. `before`: the cursor of the page before this one, empty where this is the first; `after`: from
    where to follow. `over`: nobody works on the attempt any more."""

    events: list[AgentEventRow]
    before: str
    after: str
    over: bool


# -- as it was understood ---------------------------------------------------------------------------------------------


def events(api: Api, ask: Ask) -> Response | AgentEvents:
    query: AgentEventQuery = ask.query
    files = api.layout.attempt_files(known_attempt(api, ask.attempt))
    if query.follow:
        given = ask.headers.get("last-event-id", "") or query.after
        return _stream(api, ask, _new_events(files, _place(given) if given else transcript.end_of(files)))
    over = _is_over(api, ask.attempt)
    end = _place(query.before) if query.before else transcript.end_of(files)
    found, start = transcript.before(files, end, query.limit)
    return AgentEvents(_rows(found), str(start) if start != TranscriptPlace() else "", str(end), over)


def _place(given: str) -> TranscriptPlace:
    found = TranscriptPlace.parse(given)
    if found is None:
        raise Problem(422, "cursor_unreadable", f"{given[:100]!r} is no cursor of an attempt's events.")
    return found


def _rows(records: transcript.Records) -> list[AgentEventRow]:
    return [row for row in map(_row, records) if row is not None]


def _row(record: dict[str, Any]) -> AgentEventRow | None:
    """None for a line that is no event of ours."""
    if record.get("type") == "turn":
        files = record.get("files", [])
        record = {name: record[name] for name in _OF_A_TURN if name in record}
        record |= {"files": files[:FILES_MAX], "files_total": len(files)}
    try:
        return msgspec.convert(record, AgentEventRow)
    except msgspec.ValidationError:
        return None


def _new_events(files: Attempt, place: TranscriptPlace) -> Next:
    def frame(is_last: bool) -> bytes:
        nonlocal place
        found, place = transcript.after(files, place)
        data = msgspec.json.encode(_rows(found))
        return b"id: %b\nevent: events\ndata: %b\n\n" % (str(place).encode(), data) if found else b""

    return frame


# -- as it came -------------------------------------------------------------------------------------------------------


def output(api: Api, ask: Ask) -> Response:
    query: OutputQuery = ask.query
    path = api.layout.attempt_files(known_attempt(api, ask.attempt)).output
    size = path.stat().st_size if path.exists() else 0
    given = ask.headers.get("last-event-id", "")
    if given and not (given.isascii() and given.isdecimal() and len(given) < 16):
        raise Problem(422, "cursor_unreadable", f"{given[:100]!r} is no offset of the output.")
    end = min(size, query.before) if query.before is not None else size
    start = int(given) if given else query.after if query.after is not None else max(0, end - query.tail)
    if query.follow:
        return _stream(api, ask, _new_output(path, start))
    content = _read(path, start, min(TAIL_BYTES_MAX, max(0, end - start)))
    told = {**_HEADERS, "x-output-start": str(start), "x-output-end": str(start + len(content))}
    return Response(content, media_type="text/plain; charset=utf-8", headers=told)


def _new_output(path: Path, offset: int) -> Next:
    def frame(is_last: bool) -> bytes:
        nonlocal offset
        chunk = _whole(_read(path, offset, TAIL_BYTES), is_last)
        offset += len(chunk)
        data = msgspec.json.encode(chunk.decode(errors="replace"))
        return b"id: %d\nevent: output\ndata: %b\n\n" % (offset, data) if chunk else b""

    return frame


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


# -- as it comes ------------------------------------------------------------------------------------------------------


def _is_over(api: Api, attempt: str) -> bool:
    task = api.tasks[attempt.rpartition(".")[0]]
    return task.attempt.id != attempt or task.state not in AT_WORK


def _stream(api: Api, ask: Ask, next_frame: Next) -> EventStream:
    frames = _follow(api, next_frame, functools.partial(_is_over, api, ask.attempt))
    return stream(api, ask, frames, is_to_the_end=ask.principal.role == "agent")


async def _follow(api: Api, next_frame: Next, is_over: Callable[[], bool]) -> AsyncIterator[bytes]:
    yield b": following\nretry: 1000\n\n"
    idle_s = 0.0
    while True:
        # Asked before reading: what is written until it is over is then read, too.
        is_last = is_over()
        if frame := await run_in_threadpool(next_frame, is_last):
            idle_s = 0.0
            yield frame
        elif is_last:
            yield b"event: end\ndata: {}\n\n"
            return
        elif api.loop.stopping:
            return
        else:
            await asyncio.sleep(POLL_S)
            idle_s += POLL_S
            if idle_s >= ALIVE_S:
                idle_s = 0.0
                yield b": alive\n\n"


OPERATIONS = [
    Operation("GET", "/attempts/{attempt}/events", "show_events",
              "What an agent said and did, as typed events: a page of them, or as they come.", events,
              answer=AgentEvents, lane="aside", query=AgentEventQuery, tag="attempts", problems=(404, 429),
              media_type="application/json, text/event-stream"),
    Operation("GET", "/agents/{attempt}/output", "show_output", "What an agent prints: its end, or as it comes.",
              output, answer=str, lane="aside", query=OutputQuery, tag="agents", problems=(404, 429),
              media_type="text/plain, text/event-stream"),
]  # fmt: skip
