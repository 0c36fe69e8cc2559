"""`/events`: the journal as server-sent events, each with `run:seq` as its id.

Followers share one ring of the last events, encoded once. Each has a place in it, is woken when there is more, and
sends what is new in one piece; so a slow one costs nothing. One that has fallen behind the ring is let go, with its
cursor in hand: it comes back with `Last-Event-ID`, and what the ring no longer has is read from the journal's files.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec

from holdfast.durable.chain import Chain
from holdfast.durable.entry import Entry
from holdfast.durable.journal import epoch_of, is_run_id
from holdfast.server.problems import Problem

RING_MAX = 20_000
# Events that come within this time go out together.
GATHER_S = 0.02
ALIVE_S = 15.0
READ_MAX = 5_000

Cursor = tuple[int, int]


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a follower is told of one entry."""

    run: str
    seq: int
    at: float
    kind: str
    task: str = ""
    attempt: str = ""
    actor: str = ""
    data: dict[str, Any] = {}
    output: dict[str, Any] = {}


def event_of(run: str, entry: Entry) -> Event:
    inputs = entry.inputs
    task, attempt = inputs.get("task", ""), inputs.get("attempt", "")
    data = {name: value for name, value in inputs.items() if name not in _UNTOLD}
    return Event(run, entry.seq, entry.timestamp, entry.decision_type, task, attempt, entry.actor, data, entry.output)


_UNTOLD = {"task", "attempt", "idempotency_key", "request", "body", "text", "argv"}


class _Item(msgspec.Struct, frozen=True):
    cursor: Cursor
    task: str
    kind: str
    frame: bytes


def _item(run: str, entry: Entry) -> _Item:
    event = event_of(run, entry)
    body = msgspec.json.encode(event)
    frame = b"id: %b:%d\nevent: %b\ndata: %b\n\n" % (run.encode(), entry.seq, event.kind.encode(), body)
    return _Item((epoch_of(run), entry.seq), event.task, event.kind, frame)


def parse_cursor(text: str) -> Cursor:
    run, _, seq = text.rpartition(":")
    if not is_run_id(run) or not seq.isdecimal() or len(seq) > 18:
        raise Problem(422, "cursor_unreadable", f"{text!r} is no cursor: it is a run and a sequence, as in 000001-x:7.")
    return epoch_of(run), int(seq)


class Feed:
    """Entries come in by any thread; followers live in the event loop."""

    def __init__(self, chain: Callable[[], Chain], followers_max: int) -> None:
        self._chain = chain
        self._ring: deque[_Item] = deque(maxlen=RING_MAX)
        self._mutex = threading.Lock()
        # How many have ever been in the ring: the number of its newest.
        self._count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self.end: Cursor = (0, -1)
        self._is_closing = False
        self._is_noted = False
        self.followers_max = followers_max
        self.followers = 0
        self.dropped = 0
        # Told when a follower that was too slow has been let go.
        self.on_drop: Callable[[], None] = lambda: None

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def begin(self, run: str, seq: int) -> None:
        """Where the journal ended when the feed began: up to there it is read from its files."""
        self.end = (epoch_of(run), seq)

    def put(self, run: str, entry: Entry) -> None:
        """Told each entry once it is on disk."""
        item = _item(run, entry)
        with self._mutex:
            self._ring.append(item)
            self.end = item.cursor
            self._count += 1
            is_noted, self._is_noted = self._is_noted, True
        if self._loop is not None and not is_noted:
            self._loop.call_soon_threadsafe(self._wake)

    def close(self) -> None:
        """Followers get what there is, and an end."""
        self._is_closing = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._news.set)

    def _wake(self) -> None:
        assert self._loop is not None
        self._loop.call_later(GATHER_S, self._tell)

    def _tell(self) -> None:
        with self._mutex:
            self._is_noted = False
        self._news.set()
        self._news = asyncio.Event()

    def _since(self, number: int) -> list[_Item] | None:
        """What came after so many; None when the ring has no longer all of it."""
        with self._mutex:
            missing = self._count - number
            if missing > len(self._ring):
                return None
            return [self._ring[index] for index in range(len(self._ring) - missing, len(self._ring))]

    def expect_room(self) -> None:
        if self.followers >= self.followers_max:
            detail = f"{self.followers} follow already, and no more may. Try again when one has gone."
            raise Problem(429, "too_many_followers", detail, Retry_After="5")

    async def follow(self, after: Cursor | None, fits: Callable[[str, str], bool]) -> AsyncIterator[bytes]:
        """Frames from behind the cursor on, without a gap; from now on where there is none."""
        self.followers += 1
        try:
            yield b": following\nretry: 1000\n\n"
            with self._mutex:
                number = self._count
            if after is not None:
                async for frames, place in self._behind(after, fits):
                    number = place
                    if frames:
                        yield frames
            async for frames in self._live(number, fits):
                yield frames
        finally:
            self.followers -= 1

    async def _behind(self, after: Cursor, fits: Callable[[str, str], bool]) -> AsyncIterator[tuple[bytes, int]]:
        """What the journal's files and the ring have behind the cursor; with the last, the place in the ring."""
        while True:
            with self._mutex:
                number, end = self._count, self.end
                is_in_ring = bool(self._ring) and after >= self._ring[0].cursor
                held = [item for item in self._ring if item.cursor > after] if is_in_ring else []
            if is_in_ring or after >= end:
                yield _joined(held, fits), number
                return
            read = await asyncio.to_thread(self._read, after, end)
            if not read:
                detail = "The journal has nothing at this cursor any more. Begin anew, without one."
                raise Problem(422, "cursor_unknown", detail)
            after = read[-1].cursor
            yield _joined(read, fits), number

    def _read(self, after: Cursor, end: Cursor) -> list[_Item]:
        """From the files, and no further than to what is known to be on disk."""
        found: list[_Item] = []
        for run, entry in entries_after(self._chain(), after):
            if (epoch_of(run), entry.seq) > end or len(found) >= READ_MAX:
                break
            found.append(_item(run, entry))
        return found

    async def _live(self, number: int, fits: Callable[[str, str], bool]) -> AsyncIterator[bytes]:
        while True:
            news = self._news
            items = self._since(number)
            if items is None:
                self.dropped += 1
                self.on_drop()
                yield b"event: behind\ndata: {}\n\n"
                return
            if items:
                number += len(items)
                if frames := _joined(items, fits):
                    yield frames
            elif self._is_closing:
                return
            else:
                try:
                    await asyncio.wait_for(news.wait(), ALIVE_S)
                except TimeoutError:
                    yield b": alive\n\n"


def entries_after(chain: Chain, after: Cursor) -> Iterator[tuple[str, Entry]]:
    """What stands behind a cursor in the journal's files; runs before the cursor's are not read."""
    for file in chain.runs():
        if epoch_of(file.run) >= after[0]:
            for entry in file.entries():
                if (epoch_of(file.run), entry.seq) > after:
                    yield file.run, entry


def _joined(items: list[_Item], fits: Callable[[str, str], bool]) -> bytes:
    return b"".join(item.frame for item in items if fits(item.task, item.kind))
