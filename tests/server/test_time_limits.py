"""Time limits of requests and leases: a server that did not run itself gives the whole time again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import GAP_S
from holdfast.server.connections import BODY_S, Connection
from kit.clock import SetClock, suspend
from kit.project import make_repo, sound
from kit.server import Server, served


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


SLEEPS: dict[str, Callable[[Server, SetClock], None]] = {
    "suspended": lambda server, clock: suspend(server.process, clock, 3600),
    "set forth": lambda server, clock: clock.set_wall(864_000),
    "set back": lambda server, clock: clock.set_wall(-864_000),
}


@pytest.mark.parametrize("sleep", SLEEPS)
def test_a_worker_keeps_its_lease_over_a_suspend_and_a_clock_that_is_set(tmp_path: Path, sleep: str) -> None:
    repo, clock = make_repo(tmp_path / "repo"), SetClock(tmp_path)
    with served(repo, HOLDFAST_LEASE_S="300", **clock.env) as server:
        server.operator.post("/tasks", {"id": "t", "goal": "x"})
        held = server.operator.post("/tasks/claim", {"worker": "w"})
        SLEEPS[sleep](server, clock)
        # The loop looks at every lease once more before it answers this.
        server.operator.ask("POST", "/tasks/cancel", {"tasks": ["nobody"]})
        beat = server.operator.ask("POST", "/tasks/t/heartbeat", {"claim": held["claim"]})
        assert (beat.status, server.operator.get("/tasks/t")["task"]["state"]) == (200, "CLAIMED")
    sound(repo)
