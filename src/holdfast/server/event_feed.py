"""`/events`: the journal as server-sent events, each with `run:seq` as its id.

Followers share one ring of the last events, encoded once. Each has a place in it, is woken when there is more, and
sends what is new in one piece; so a slow one costs nothing. One that has fallen behind the ring is let go, with its
cursor in hand: it comes back with `Last-Event-ID`, and what the ring no longer has is read from the journal's files.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.ports import LedgerReader
from holdfast.server.problems import Problem
from holdfast.storage.journal.entry import Entry
from holdfast.storage.journal.pages import WantedPage
from holdfast.storage.journal.writer import epoch_of, is_run_id

# Events that come within this time go out together.
GATHER_S = 0.02
GATHER_EACH_S = 0.0005
ALIVE_S = 15.0
READ_MAX = 5_000

Cursor = tuple[int, int]
# Whether a follower wants an event, by its task and its kind.
Fits = Callable[[str, str], bool]


def everything(task: str, kind: str) -> bool:
    return True


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry as a follower gets it."""

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
    return Event(
        run=run,
        seq=entry.seq,
        at=entry.timestamp,
        kind=entry.decision_type,
        task=inputs.get("task", ""),
        attempt=inputs.get("attempt", ""),
        actor=entry.actor,
        data={name: value for name, value in inputs.items() if name not in _UNTOLD},
        output=entry.output,
    )


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


class _Place:
    """The position of a follower, and the task that sends to it."""

    def __init__(self, number: int, task: asyncio.Task[Any]) -> None:
        self.number, self.task = number, task


class FeedRoom:
    """Counts the open streams, in all and by client."""

    def __init__(self, most: int, most_per_client: int) -> None:
        self._most, self._most_per_client = most, most_per_client
        self._open: Counter[str] = Counter()

    @contextlib.contextmanager
    def held(self, client: str) -> Iterator[None]:
        self._open[client] += 1
        try:
            yield
        finally:
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]

    def expect(self, client: str) -> None:
        """Refuses a stream for which there is no room."""
        for count, most, whose in (
            (self._open.total(), self._most, "are open"),
            (self._open[client], self._most_per_client, "of yours are open"),
        ):
            if count >= most:
                detail = f"{count} streams {whose}, and no more may be. Close one, or try again when one has gone."
                raise Problem(429, "too_many_streams", detail, Retry_After="5")


class Feed:
    """The observer behind /events. Entries come in by any thread; followers live in the event loop."""

    name = "events"
    cursor = None

    def __init__(self, journal: LedgerReader, kept: int) -> None:
        self._journal = journal
        self._ring: deque[_Item] = deque(maxlen=kept)
        self._mutex = threading.Lock()
        # How many have ever been in the ring: the number of its newest.
        self._count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self.end: Cursor = (0, -1)
        self._is_closing = False
        self._is_noted = False
        self._places: set[_Place] = set()
        self._shared: tuple[tuple[int, int], bytes] = ((0, 0), b"")
        self.dropped = 0
        # Told when a follower that was too slow has been let go.
        self.on_drop: Callable[[], None] = lambda: None

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def begin(self, run: str, seq: int) -> None:
        """Sets the place where the feed begins: up to there the journal is read from its files."""
        self.end = (epoch_of(run), seq)

    def observe(self, run: str, entry: Entry) -> None:
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
        # The more there are to tell, the more goes out at once: telling takes a share of the time, not all of it.
        self._loop.call_later(max(GATHER_S, len(self._places) * GATHER_EACH_S), self._wake_followers)

    def _wake_followers(self) -> None:
        with self._mutex:
            self._is_noted = False
            oldest = self._count - len(self._ring)
        self._news.set()
        self._news = asyncio.Event()
        for place in [each for each in self._places if each.number < oldest]:
            # It waits for a peer that does not read. That one has its cursor, and can come back with it.
            self._drop(place)

    def _drop(self, place: _Place) -> None:
        self._places.discard(place)
        self.dropped += 1
        self.on_drop()
        place.task.cancel()

    @property
    def followers(self) -> int:
        return len(self._places)

    async def follow(self, after: Cursor | None, fits: Fits) -> AsyncIterator[bytes]:
        """Frames from behind the cursor on, without a gap; from now on where there is none."""
        task = asyncio.current_task()
        assert task is not None
        with self._mutex:
            place = _Place(self._count, task)
        self._places.add(place)
        try:
            yield b": following\nretry: 1000\n\n"
            if after is not None:
                async for frames, number in self._behind(after, fits):
                    place.number = number
                    if frames:
                        yield frames
            async for frames in self._live(place, fits):
                yield frames
        finally:
            self._places.discard(place)

    async def _behind(self, after: Cursor, fits: Fits) -> AsyncIterator[tuple[bytes, int]]:
        """The entries behind the cursor, from the journal's files and the ring; with the last, its place in there."""
        while True:
            with self._mutex:
                number, end = self._count, self.end
                is_in_ring = bool(self._ring) and after >= self._ring[0].cursor
                held = [item for item in self._ring if item.cursor > after] if is_in_ring else []
            if is_in_ring or after >= end:
                yield _joined(held, fits), number
                return
            read = await asyncio.to_thread(self._read, after, end)
            after = read[-1].cursor if read else end
            yield _joined(read, fits), number

    def _read(self, after: Cursor, end: Cursor) -> list[_Item]:
        """From the files, and no further than to what is known to be on disk."""
        page = self._journal.page(WantedPage(), after, READ_MAX, end=end)
        return [_item(run, entry) for run, entry in page.items]

    def _frames(self, begin: int, items: list[_Item], fits: Fits) -> bytes:
        """Most followers want everything, and stand at the same place: what was put together for one serves all."""
        if fits is not everything:
            return _joined(items, fits)
        wanted = (begin, len(items))
        if self._shared[0] != wanted:
            self._shared = (wanted, _joined(items, fits))
        return self._shared[1]

    async def _live(self, place: _Place, fits: Fits) -> AsyncIterator[bytes]:
        while True:
            news = self._news
            with self._mutex:
                missing, kept = self._count - place.number, len(self._ring)
                items = [self._ring[index] for index in range(max(0, kept - missing), kept)]
            if missing > kept:
                self._drop(place)
                return
            if items:
                begin, place.number = place.number, place.number + len(items)
                if frames := self._frames(begin, items, fits):
                    yield frames
            elif self._is_closing:
                return
            else:
                try:
                    await asyncio.wait_for(news.wait(), ALIVE_S)
                except TimeoutError:
                    yield b": alive\n\n"


class EventStream(Response):
    """Sends server-sent events until they end, the peer has gone, or the sending task is cancelled."""

    def __init__(self, frames: AsyncGenerator[bytes, None]) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no", "x-content-type-options": "nosniff"}
        super().__init__(media_type="text/event-stream", headers=headers)
        del self.headers["content-length"]
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        me = asyncio.current_task()
        assert me is not None
        gone = asyncio.create_task(_until_gone(receive))

        def leave(_: object) -> None:
            me.cancel()

        gone.add_done_callback(leave)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for frames in self._frames:
                if gone.done():
                    # In Python 3.11 a wait that ends in the same moment swallows the cancelling.
                    return
                await send({"type": "http.response.body", "body": frames, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            # Nobody is there to be told; the connection is closed, because the answer is not complete.
            return
        finally:
            gone.remove_done_callback(leave)
            gone.cancel()
            await self._frames.aclose()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _joined(items: list[_Item], fits: Fits) -> bytes:
    return b"".join(item.frame for item in items if fits(item.task, item.kind))
