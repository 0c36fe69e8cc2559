"""Limits on what one agent's token may write into the journal: what it says of its work is kept for ever.

A bucket for each attempt: so many messages at once, then one for each PAUSE_S; and so many characters in all. It is
kept in memory, and begins anew with the server. People and their workers have no such limit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast.clock import monotonic
from holdfast.server.operations import Ask
from holdfast.server.problems import Problem

MESSAGES_AT_ONCE = 60
PAUSE_S = 1.0
CHARS_MAX = 1 << 20
# Attempts that are kept in mind: more than work at the same time.
ATTEMPTS_MAX = 2000


class Quotas:
    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now, self._lock = now, threading.Lock()
        # By attempt: when the bucket is full again, and the characters so far.
        self._used: dict[str, tuple[float, int]] = {}

    def expect_room(self, ask: Ask, text: str) -> None:
        """Raises Problem 429 where this agent has said too much. Nothing is written then."""
        attempt = ask.principal.attempt
        if not attempt:
            return
        with self._lock:
            now = self._now()
            full_at, chars = self._used.pop(attempt, (now, 0))
            full_at, wait_s = max(full_at, now) + PAUSE_S, max(full_at, now) - now - (MESSAGES_AT_ONCE - 1) * PAUSE_S
            is_over = chars + len(text) > CHARS_MAX
            is_refused = is_over or wait_s > 0
            self._used[attempt] = (full_at - PAUSE_S, chars) if is_refused else (full_at, chars + len(text))
            while len(self._used) > ATTEMPTS_MAX:
                del self._used[next(iter(self._used))]
        if is_over:
            detail = f"{attempt} has said {chars} characters of its work; {CHARS_MAX} are kept of one attempt."
            raise Problem(429, "said_too_much", f"{detail} Nothing was written; say no more, and work on.")
        if wait_s > 0:
            detail = f"{attempt} says too much at once: {MESSAGES_AT_ONCE} messages, then one each {PAUSE_S:g} s."
            raise Problem(429, "says_too_often", f"{detail} Nothing was written.", Retry_After=str(int(wait_s) + 1))
