"""Who is late, and who cannot be: a server that did not run itself gives the whole time again."""

from __future__ import annotations

from typing import Any

from holdfast.clock import GAP_S
from holdfast.server.connections import BODY_S, Connection


class Loop:
    """Timers are called by the test."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Any]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, act: Any, *args: Any) -> Any:
        self.timers.append((self.now + seconds, lambda: act(*args)))
        return self

    def cancel(self) -> None:
        pass


def test_a_body_is_not_late_when_the_server_itself_was_stopped() -> None:
    connection, loop = Connection.__new__(Connection), Loop()
    refused: list[int] = []
    connection.loop = loop  # type: ignore[assignment]
    connection._refuse = lambda status, code, detail: refused.append(status)  # type: ignore[method-assign]
    connection._expect_by(BODY_S, 408, "body_too_slow", "")
    loop.now = BODY_S + GAP_S + 1
    loop.timers.pop()[1]()
    assert not refused and loop.timers[0][0] == loop.now + BODY_S
    loop.now += BODY_S
    loop.timers.pop()[1]()
    assert refused == [408]
