"""The journal for an event loop: `await append(...)` returns when the entry is durable, without blocking the loop.

What the loop's tasks append during one turn of the loop, or while a sync is under way, goes to a writer thread as one
batch. A task that is cancelled while it waits has still appended: only the answer is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from queue import SimpleQueue
from typing import Any

from holdfast.errors import JournalClosed
from holdfast.storage.journal.entry import Record, Ref, encode_middle
from holdfast.storage.journal.writer import Journal

_Batch = tuple[list[bytes], list["asyncio.Future[Ref]"]]


class AwaitingJournal:
    """Belongs to the loop it is made in; other threads may append to the same journal meanwhile."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._loop = asyncio.get_running_loop()
        self._middles: list[bytes] = []
        self._futures: list[asyncio.Future[Ref]] = []
        self._busy = False
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._batches: SimpleQueue[_Batch | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="journal-writer", daemon=True)
        self._thread.start()

    def append(
        self,
        decision_type: str,
        inputs: dict[str, Any] | None = None,
        output: dict[str, Any] | None = None,
        *,
        actor: str = "holdfast",
        committed: bool = True,
    ) -> asyncio.Future[Ref]:
        """Await the result: it comes when the entry is on stable storage."""
        if self._closed:
            raise JournalClosed(run=self._journal.run)
        middle = encode_middle(Record(decision_type, inputs or {}, output or {}, actor, committed))
        future: asyncio.Future[Ref] = self._loop.create_future()
        self._middles.append(middle)
        self._futures.append(future)
        if not self._busy:
            self._busy = True
            self._idle.clear()
            self._loop.call_soon(self._hand_over)
        return future

    async def close(self) -> None:
        """Waits for what was appended, then ends the writer thread. The journal itself stays open."""
        self._closed = True
        # Not for the futures: who was cancelled does not wait any more, but has appended.
        await self._idle.wait()
        self._batches.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    def _hand_over(self) -> None:
        self._busy = bool(self._middles)
        if self._busy:
            self._batches.put((self._middles, self._futures))
            self._middles, self._futures = [], []
        else:
            self._idle.set()

    def _write(self) -> None:
        while (batch := self._batches.get()) is not None:
            middles, futures = batch
            refs: list[Ref] = []
            failure: Exception | None = None
            try:
                refs = self._journal.append_encoded(middles)
            except Exception as error:  # noqa: BLE001 - not swallowed: it is raised in those who wait for this batch
                failure = error
            # The loop may have been closed meanwhile; then nobody waits for the answer.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._answer, futures, refs, failure)

    def _answer(self, futures: list[asyncio.Future[Ref]], refs: list[Ref], failure: Exception | None) -> None:
        if failure is None:
            for future, ref in zip(futures, refs, strict=True):
                if not future.done():
                    future.set_result(ref)
        else:
            for future in futures:
                if not future.done():
                    future.set_exception(failure)
        self._hand_over()
