"""Decides how a start ended, from the agent's events and the end of its process."""

from __future__ import annotations

import errno
import signal
from pathlib import Path

import msgspec

from holdfast.agents.runner.conversation import Conversation
from holdfast.agents.runner.limits import Stop
from holdfast.domain.agent_events import AUTH, QUOTA, REFUSED, UNREACHABLE, Finished
from holdfast.domain.attempt_records import Ending, Exit, Order
from holdfast.errors import HoldfastError, SnapshotTooLarge, is_environment, is_fatal
from holdfast.layout import Attempt
from holdfast.processes.resources import LimitReached


def as_shell(code: int) -> int:
    return code if code >= 0 else 128 - code


def signal_name(number: int) -> str:
    known = {each.value: each.name for each in signal.Signals}
    return known.get(number, f"signal {number}")


def rate_limited(talk: Conversation) -> Stop:
    event = talk.rate_limited
    assert event is not None
    return Stop(Ending.RATE_LIMITED, event.detail or "The agent has reached a rate limit.", until=event.until)


# A pause that did not help is followed by one of twice its length, within these bounds.
PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 3600.0


def not_so_soon(verdict: Stop, before: Exit | None, start: int, now: float, *, worked_s: float) -> Stop:
    """Lengthens the pause of a start that came to nothing but a rate limit, if the one before it ended so, too.

    `before` is how that one ended, `worked_s` how long this one took.
    """
    if verdict.ending is not Ending.RATE_LIMITED or before is None or before.start != start - 1:
        return verdict
    if before.ending is not Ending.RATE_LIMITED:
        return verdict
    paused_s = now - worked_s - before.at
    until = now + min(max(2 * paused_s, PAUSE_S_MIN), PAUSE_S_MAX)
    return msgspec.structs.replace(verdict, until=max(verdict.until, until))


# Errors that keep a program from being executed through no fault of the task: it is missing, or the machine lacks
# something.
MACHINE_ERRORS = frozenset(
    getattr(errno, name)
    for name in (
        "ENOENT", "EACCES", "EIO", "ENOSPC", "EDQUOT", "EROFS", "ENOMEM", "EAGAIN", "EMFILE", "ENFILE", "ETXTBSY",
    )
)  # fmt: skip
_CANNOT = {
    REFUSED: Ending.REFUSED,
    AUTH: Ending.AUTH_MISSING,
    QUOTA: Ending.QUOTA,
    UNREACHABLE: Ending.UNREACHABLE,
}


def cannot(finished: Finished) -> Stop | None:
    """The error of the agent that no retry helps against; None where it reports none."""
    ending = None if finished.ok else _CANNOT.get(finished.kind)
    return None if ending is None else Stop(ending, finished.detail)


def lost(order: Order, files: Attempt) -> str:
    """Names what an agent has deleted and could not continue without; empty where all is there."""
    if not Path(order.worktree).is_dir():
        return f"The agent's worktree {order.worktree} was deleted. Its turns are kept as snapshots."
    if not files.start(order.start).exists():
        return f"The attempt's folder {files.root} was deleted, and with it the record of what was said and done."
    return ""


def judge(verdict: Stop | None, talk: Conversation, code: int | None, *, is_wrapped: bool) -> Stop:
    """Decides how the start ended. What the agent says counts only where its process ended as it should.

    `is_wrapped`: its code comes through another process, which reports a signal as a shell does.
    """
    finished = talk.finished
    if verdict is not None:
        is_over = verdict.ending is Ending.DONE and finished is not None and not finished.ok
        return Stop(Ending.FAILED, finished.detail) if is_over and finished else verdict
    if talk.rate_limited is not None and not (finished and finished.ok):
        return rate_limited(talk)
    if finished is not None and (stop := cannot(finished)) is not None:
        return stop
    if code is not None and code < 0:
        return Stop(Ending.CRASHED, f"The agent was killed by {signal_name(-code)}.")
    if code is not None and code > 128 and is_wrapped:
        return Stop(Ending.CRASHED, f"The agent was killed by {signal_name(code - 128)}.")
    if finished is not None and not finished.ok:
        return Stop(Ending.FAILED, finished.detail or "The agent said that it has failed.")
    if code:
        return Stop(Ending.FAILED, f"The agent ended with code {code}.")
    return Stop(Ending.DONE, (finished.detail if finished else "") or "The agent has finished.")


def not_executed(order: Order, error: OSError) -> str:
    if error.errno == errno.E2BIG:
        detail = "The agent was not started: its arguments are too long. Declare `prompt: stdin` or `prompt: file` for"
        return f"{detail} {order.agent}."
    return f"The agent was not started: {order.launch.argv[0]!r} cannot be executed: {error.strerror}."


# -- limits of the machine --------------------------------------------------------------------------------------------


def over(what: str, reached: LimitReached, task: str) -> Stop:
    """`what`: what became of the agent, without its full stop."""
    way = (
        f"Have the task need less, or raise {reached.limit} in config/settings.yaml; then type `holdfast retry {task}`"
    )
    return Stop(Ending.OVER_LIMIT, f"{what}: {reached.told}. {way}.", reached.limit)


def explained(verdict: Stop, reached: LimitReached | None, task: str) -> Stop:
    """Blames a reached limit for the failure or death of an agent."""
    if reached is None or verdict.ending not in (Ending.CRASHED, Ending.FAILED):
        return verdict
    return over(verdict.detail.removesuffix("."), reached, task)


def failed(order: Order, failure: Exception, reached: LimitReached | None, *, has_begun: bool) -> Stop:
    """The outcome of a runner that could not continue. `has_begun`: the agent was started."""
    detail = f"The runner could not go on: {failure}"
    if isinstance(failure, SnapshotTooLarge):
        return Stop(Ending.OVER_LIMIT, f"{failure} Then type `holdfast retry {order.task}`.", failure.limit)
    if isinstance(failure, HoldfastError) and (is_environment(failure) or is_fatal(failure)):
        # The agent's processes used up what a git of ours needed.
        if reached is not None and not is_fatal(failure):
            return over(detail.removesuffix("."), reached, order.task)
        return Stop(Ending.ENVIRONMENT, detail)
    if not has_begun and isinstance(failure, OSError) and failure.errno in MACHINE_ERRORS:
        return Stop(Ending.ENVIRONMENT, not_executed(order, failure))
    if has_begun:
        return Stop(Ending.RUNNER_FAILED, detail)
    if isinstance(failure, OSError):
        return Stop(Ending.NOT_STARTED, not_executed(order, failure))
    return Stop(Ending.NOT_STARTED, f"The agent was not started: {failure}")
