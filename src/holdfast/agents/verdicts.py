"""How a start ended, in words, by what the agent said and what became of its process."""

from __future__ import annotations

import errno
import signal

from holdfast.agents.conversation import Conversation
from holdfast.agents.limits import Verdict
from holdfast.domain.agent_events import AUTH, QUOTA, REFUSED, Finished
from holdfast.domain.attempt import Ending, Order


def as_shell(code: int) -> int:
    return code if code >= 0 else 128 - code


def signal_name(number: int) -> str:
    known = {each.value: each.name for each in signal.Signals}
    return known.get(number, f"signal {number}")


def rate_limited(talk: Conversation) -> Verdict:
    event = talk.rate_limited
    assert event is not None
    return Verdict(Ending.RATE_LIMITED, event.detail or "The agent has reached a rate limit.", until=event.until)


_CANNOT = {REFUSED: Ending.REFUSED, AUTH: Ending.AUTH_MISSING, QUOTA: Ending.QUOTA}


def cannot(finished: Finished) -> Verdict | None:
    """Why the agent cannot go on, however often it tries; None where it says no such thing."""
    ending = None if finished.ok else _CANNOT.get(finished.kind)
    return None if ending is None else Verdict(ending, finished.detail)


def not_executed(order: Order, error: OSError) -> str:
    if error.errno == errno.E2BIG:
        told = "The agent was not started: its arguments are too long. Declare `prompt: stdin` or `prompt: file` for"
        return f"{told} {order.agent}."
    return f"The agent was not started: {order.launch.argv[0]!r} cannot be executed: {error.strerror}."
