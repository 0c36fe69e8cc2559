"""Tasks that are left alone for now: why, and until when; and how long tasks have waited for their subtasks.

A fault of the machine (a full disk, a git that was killed) is not the task's: it is tried again after a growing pause
and costs no attempt. A run that would otherwise be over leaves it to the next one after FAILURES_MAX tries.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import msgspec

from holdfast.clock import GAP_S, Awake, monotonic
from holdfast.domain.fsm import Reason
from holdfast.engine.context import RunContext
from holdfast.engine.plan import GIVEN_UP
from holdfast.engine.start import NotStarted
from holdfast.errors import (
    DefinitionLost,
    GitLocked,
    HoldfastError,
    LandingWaits,
    SnapshotLost,
    SnapshotTooLarge,
    is_environment,
    is_fatal,
)

TRY_AGAIN_S = 2.0
FAILURES_MAX = 4
PAUSE_S_MAX = 60.0
# The hold of the whole run: while there is one under this name, nothing is started.
ALL = ""


class TaskHold(msgspec.Struct, frozen=True):
    """The reason why a task is not started or landed now, and when to try again; `until` is None: not in this run.

    `until` is for people to read; `due`, on the monotonic clock, decides.
    """

    reason: str
    until: float | None
    due: float = 0.0


class TaskHolds(dict[str, TaskHold]):
    """Holds by task. Calls `note` for observers; the same sentence about a task is not repeated."""

    def __init__(self, note: Callable[[str, str], None], clock: Callable[[], float]) -> None:
        self._note, self._clock = note, clock
        self._told: dict[str, str] = {}
        # Errors in a row, by task.
        self.failures: Counter[str] = Counter()
        self._is_short = False

    def hold(self, name: str, reason: str, *, soon: bool, wait_s: float = TRY_AGAIN_S, is_quiet: bool = False) -> None:
        """Leaves a task alone for a while, or for the rest of this run."""
        if self._told.get(name) != reason and not is_quiet:
            self._told[name] = reason
            self._note(name, reason)
        self[name] = TaskHold(reason, self._clock() + wait_s if soon else None, monotonic() + wait_s)

    def pause(self, name: str, reason: str, *, stays: bool) -> None:
        """Holds a task after a fault of the machine. `stays`: the run does not end by itself, so it keeps trying."""
        self.failures[name] += 1
        if not stays and self.failures[name] >= FAILURES_MAX:
            self.hold(name, f"{reason} The next run goes on with it.", soon=False)
            return
        wait_s = min(PAUSE_S_MAX, TRY_AGAIN_S * 2 ** min(self.failures[name] - 1, 10))
        self.hold(name, reason, soon=True, wait_s=wait_s)

    def hold_all(self, reason: str) -> None:
        """Has the run start nothing for a moment. That is noted when it begins, not again at each look."""
        self.hold(ALL, reason, soon=True, is_quiet=self._is_short)
        self._is_short = True

    def note_room(self) -> None:
        """Called when something was started: whatever the run had to wait for is there again."""
        if self._is_short:
            self._is_short = False
            self._note(ALL, "There is room on this machine again: agents are started.")
            self._told.pop(ALL, None)

    def hold_unstarted(self, name: str, held: NotStarted, *, stays: bool) -> None:
        if held.for_all and held.soon:
            self.hold_all(held.reason)
            return
        if held.fault:
            self.pause(name, held.reason, stays=stays)
            return
        wait_s = max(held.until - self._clock(), 0.0) if 0.0 < held.until < math.inf else TRY_AGAIN_S
        # An agent's outage is noted once, and not again for each task that waits for it.
        self.hold(name, held.reason, soon=held.soon or held.until > 0.0, wait_s=wait_s, is_quiet=held.of_agent)

    def is_left(self, name: str) -> bool:
        """Whether a task is left to the next run."""
        return name in self and self[name].until is None

    def release(self) -> None:
        """Forgets what is over by now."""
        now = monotonic()
        self.drop([name for name, hold in self.items() if hold.until is not None and hold.due <= now])

    def drop(self, names: Iterable[str]) -> None:
        for name in names:
            self.pop(name, None)


class Waits:
    """Measures how long tasks have waited for subtasks, while a run lives. Each run, and each gap, begins anew."""

    def __init__(self, look_s: float) -> None:
        self._awake = Awake(look_s + GAP_S)
        self._since: dict[str, float] = {}

    def overdue(self, limits: Mapping[str, float]) -> set[str]:
        """The tasks that have waited as long as they may. `limits`: every task that waits, with its limit."""
        gaps, now = self._awake.gaps, self._awake.now()
        if self._awake.gaps > gaps:
            self._since.clear()
        self._since = {name: self._since.get(name, now) for name in limits}
        return {name for name, seconds in limits.items() if now - self._since[name] >= seconds}


def handle_failure(context: RunContext, holds: TaskHolds, name: str, error: HoldfastError, *, stays: bool) -> None:
    """Retries after TRY_AGAIN_S, and fails the task after FAILURES_MAX errors in a row that are its own."""
    if is_fatal(error):
        raise error
    if wait_out(context, holds, name, error, stays=stays):
        return
    holds.failures[name] += 1
    task = context.board.task(name)
    event = GIVEN_UP.get(task.state)
    if event is None or holds.failures[name] < FAILURES_MAX:
        holds.hold(name, str(error), soon=holds.failures[name] < FAILURES_MAX)
        return
    del holds.failures[name]
    context.fail(task, event, Reason.CRASHED, "unrecoverable", f"it cannot be continued: {error}")


def wait_out(context: RunContext, holds: TaskHolds, name: str, error: HoldfastError, *, stays: bool) -> bool:
    """Deals with an error that is not of the task's own making, which costs no attempt; False for any other."""
    if isinstance(error, (LandingWaits, GitLocked)):
        holds.hold(name, str(error), soon=True)
    elif is_environment(error):
        # Where it was the journal that could not be written, this says so.
        context.append()
        context.note_fault(context.board.task(name), str(error))
        holds.pause(name, str(error), stays=stays)
    elif isinstance(error, (DefinitionLost, SnapshotLost, SnapshotTooLarge)):
        context.park(context.board.task(name), str(error))
        holds.hold(name, str(error), soon=False)
    else:
        return False
    return True
