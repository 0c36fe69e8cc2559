"""The thread that verifies and lands, one task at a time: the loop hands it what is done, and goes on meanwhile."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import msgspec


class Ended(msgspec.Struct, frozen=True):
    """What came of one piece of work. `key` is that of the request that it was done for; empty for the loop's own."""

    task: str
    key: str
    result: Any = None
    error: BaseException | None = None


class LandingThread:
    """`task` is the one that is being verified or landed, and `key` that of the request which asked for it.

    Everything here but the work itself is done in the loop's thread.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.task = self.key = ""
        self._wake = wake
        self._ended: queue.SimpleQueue[Ended] = queue.SimpleQueue()
        self._asked_for: dict[str, Ended] = {}

    def begin(self, task: str, work: Callable[[], Any], key: str = "") -> None:
        """Only where nothing is under way."""
        self.task, self.key = task, key
        threading.Thread(target=self._carry_out, args=(task, work, key), name="finish", daemon=True).start()

    def take(self) -> Ended | None:
        """What has ended, once; None while nothing has."""
        try:
            ended = self._ended.get_nowait()
        except queue.Empty:
            return None
        self.task = self.key = ""
        if ended.key:
            self._asked_for[ended.key] = ended
        return ended

    def answer(self, key: str) -> Ended | None:
        """What came of the work that was begun under this key, once."""
        return self._asked_for.pop(key, None)

    def _carry_out(self, task: str, work: Callable[[], Any], key: str) -> None:
        try:
            self._ended.put(Ended(task, key, work()))
        except BaseException as error:  # noqa: BLE001 (raised again, in the loop's own thread)
            self._ended.put(Ended(task, key, error=error))
        self._wake()
