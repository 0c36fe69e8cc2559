"""Decides when to stop an agent: dollars, tokens, turns, time, silence, and repeated calls."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.agents.runner.conversation import Conversation
from holdfast.clock import Awake, gap_of, monotonic
from holdfast.domain.attempt_records import AttemptLimits, Ending
from holdfast.domain.spend import Spend
from holdfast.domain.wording import plural

# An agent that sent its final event and does not exit is ended after this long, and the event counts.
LINGER_S_MAX = 30.0


class Stop(msgspec.Struct, frozen=True):
    """The reason why the runner ends the agent, or how the agent ended by itself."""

    ending: Ending
    detail: str
    limit: str = ""
    until: float = 0.0


class LimitWatch:
    """Decides whether to stop the agent. Takes the time of its own clock as an argument; does no I/O.

    Its clock leaves out the time in which the runner itself is stopped: then the agent could not be heard, either.
    `check_s`: the longest pause between two checks. `idle_turns`: turns that changed no file just before this start.
    """

    def __init__(
        self, limits: AttemptLimits, check_s: float, clock: Callable[[], float] = monotonic, *, idle_turns: int = 0
    ) -> None:
        self._limits = limits
        self._awake = Awake(check_s + gap_of(limits.stall_timeout_s), clock)
        self._began = self._heard = self._awake.now()
        self._finished: float | None = None
        self._call: tuple[str, str] | None = None
        self._same_calls = 0
        self._idle_turns = idle_turns
        self._retrying: float | None = None
        self._trouble = ""

    def heard(self, now: float) -> None:
        self._heard = now

    def waits_for_person(self, now: float) -> None:
        """The agent waits for an answer: the time since it was last heard does not count."""
        self._began += now - self._heard
        self._heard = now

    def finished(self, now: float) -> None:
        self._finished = now

    def retrying(self, now: float, trouble: str) -> None:
        """The agent could not reach its model, and retries."""
        self._retrying = now if self._retrying is None else self._retrying
        self._trouble = trouble

    def reached(self) -> None:
        """The agent has done something else than retry."""
        self._retrying = None

    def now(self) -> float:
        gaps = self._awake.gaps
        now = self._awake.now()
        if self._awake.gaps > gaps:
            # The agent has the whole time again to be heard.
            self._heard = now
            self._finished = now if self._finished is not None else None
        return now

    def seconds(self, now: float) -> float:
        return now - self._began

    def next_s(self, now: float) -> float:
        """Seconds until something may be overdue."""
        limits = self._limits
        times = [self._began + limits.timeout_s, self._heard + limits.stall_timeout_s]
        if limits.caps.seconds is not None:
            times.append(self._began + limits.caps.seconds)
        if self._finished is not None:
            times.append(self._finished + LINGER_S_MAX)
        if self._retrying is not None:
            times.append(self._retrying + limits.retry_timeout_s)
        return max(min(times) - now, 0.0)

    def overdue(self, now: float) -> Stop | None:
        limits = self._limits
        if self._finished is not None and now >= self._finished + LINGER_S_MAX:
            return Stop(Ending.DONE, f"The agent had finished, and was ended {LINGER_S_MAX:g} s later.")
        if now - self._began >= limits.timeout_s:
            return Stop(Ending.TIMEOUT, f"The agent was ended after {limits.timeout_s:g} s, its time limit.")
        if self._retrying is not None and now - self._retrying >= limits.retry_timeout_s:
            why = f": {self._trouble}" if self._trouble else "."
            detail = f"The agent was ended after {limits.retry_timeout_s:g} s in which it did not reach its model{why}"
            return Stop(Ending.UNREACHABLE, detail)
        if now - self._heard >= limits.stall_timeout_s:
            return Stop(Ending.STALLED, f"The agent was ended after {limits.stall_timeout_s:g} s without output.")
        if limits.caps.seconds is not None and now - self._began >= limits.caps.seconds:
            return _used_up("seconds", limits)
        return None

    def call(self, call: tuple[str, str]) -> Stop | None:
        """Counts calls of the same tool with the same input in a row."""
        self._same_calls = self._same_calls + 1 if call == self._call else 1
        self._call = call
        most = self._limits.same_calls_max
        if most is not None and self._same_calls > most:
            detail = f"it called {call[0]} with the same input more than {plural(most, 'time')} in a row."
            return Stop(Ending.CIRCUIT_OPEN, f"The agent was ended: {detail}", "same_calls")
        return None

    def turn(self, changed: bool) -> Stop | None:
        self._idle_turns = 0 if changed else self._idle_turns + 1
        most = self._limits.idle_turns_max
        if most is not None and self._idle_turns > most:
            detail = f"The agent was ended: more than {plural(most, 'turn')} in a row changed no file."
            return Stop(Ending.CIRCUIT_OPEN, detail, "idle_turns")
        return None

    def session(self, talk: Conversation) -> Stop | None:
        """Ends a conversation that is long or dear enough. Asked behind a turn only, so each one makes a turn."""
        limits, spent = self._limits, talk.spent
        told = "The conversation was ended behind a turn, because it has reached"
        if limits.session_turns is not None and spent.turns >= limits.session_turns:
            return Stop(Ending.SESSION_FULL, f"{told} session_turns_max.", "session_turns")
        if limits.session_tokens is not None and spent.tokens >= limits.session_tokens:
            return Stop(Ending.SESSION_FULL, f"{told} session_tokens_max.", "session_tokens")
        return None

    def spent(self, talk: Conversation, now: float) -> Stop | None:
        exceeded = self._limits.caps.exceeded(talk.spent + Spend(seconds=self.seconds(now)))
        return _used_up(exceeded, self._limits) if exceeded else None


def _used_up(name: str, limits: AttemptLimits) -> Stop:
    cap = getattr(limits.caps, name)
    return Stop(Ending.LIMIT, f"The agent was ended: it has used up its {cap:g} {name}.", name)
