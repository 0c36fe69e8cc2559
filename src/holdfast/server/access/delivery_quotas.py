"""Limits on deliveries, which strangers may send: so many a second for each source, and so many bytes at once in all.

A bucket for each source: so many at once, then one for each PAUSE_S. It is kept in memory, and begins anew with the
server. A sender over the limit is answered with the time to come again; services that deliver again lose nothing.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from holdfast.clock import monotonic
from holdfast.server.problems import Problem

AT_ONCE = 2000
# Bodies are in memory before anybody knows who sent them.
BYTES_AT_ONCE = 256 << 20
PAUSE_S = 1 / 500


class DeliveryQuotas:
    """A source is one of the settings, so there are only so many."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now, self._lock = now, threading.Lock()
        # When the bucket of each source is full again.
        self._full_at: dict[str, float] = {}
        self.held = 0

    def expect_room(self, source: str) -> None:
        """Raises Problem 429 where there were too many."""
        with self._lock:
            now = self._now()
            full_at = max(self._full_at.get(source, now), now)
            wait_s = full_at - now - (AT_ONCE - 1) * PAUSE_S
            if wait_s <= 0:
                self._full_at[source] = full_at + PAUSE_S
        if wait_s > 0:
            detail = f"There are too many deliveries of {source}: {AT_ONCE} at once, then {1 / PAUSE_S:g} a second."
            raise Problem(429, "too_many_deliveries", f"{detail} Nothing was kept.", Retry_After=str(int(wait_s) + 1))

    @contextlib.contextmanager
    def holding(self, length: str, most: int) -> Iterator[None]:
        """While a body of this length is read and judged; without a length it counts as the longest. Raises Problem 429
        where there are too many bytes at once."""
        size = min(int(length), most) if length.isdecimal() and len(length) < 19 else most
        with self._lock:
            has_room = self.held + size <= BYTES_AT_ONCE
            self.held += size if has_room else 0
        if not has_room:
            detail = "The bodies of deliveries take too much memory just now. Nothing was kept."
            raise Problem(429, "too_many_deliveries", detail, Retry_After="5", Connection="close")
        try:
            yield
        finally:
            with self._lock:
                self.held -= size
