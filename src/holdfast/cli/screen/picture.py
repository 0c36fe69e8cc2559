"""All tasks at one moment, for `watch`: read from files, as often as that costs little."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast.clock import monotonic, wall
from holdfast.domain.entries import STOPPED
from holdfast.domain.task import AT_WORK, TaskState
from holdfast.domain.task_record import Task
from holdfast.domain.wording import money, plural
from holdfast.preparation import disk_use, hooks
from holdfast.preparation.disk_use import DiskUse
from holdfast.preparation.hooks import RunningHook
from holdfast.storage.journal.lock import Holder
from holdfast.storage.records.at_work import AtWork, at_work, clock
from holdfast.views.host import HostRow, host_row
from holdfast.views.rows import Row, read_overview

if TYPE_CHECKING:
    from holdfast.app import App

LOOK_S = 0.5
# Of the time, at most this part is spent on looking: a large backlog is looked at less often.
BUSY_SHARE = 0.2
# What worktrees and snapshots take is counted so often: that walks through all of them.
DISK_LOOK_S = 60.0
_WORDS = {
    TaskState.PLANNED: "to approve",
    TaskState.PENDING_APPROVAL: "to approve",
    TaskState.CLAIMED: "at work",
    TaskState.IN_PROGRESS: "at work",
    TaskState.ORPHANED: "agent lost",
    TaskState.DONE: "verifying",
    TaskState.BLOCKED: "waits",
    TaskState.WAITING_FOR_SUBTASKS: "waits",
    TaskState.FAILED: "failed",
    TaskState.CLOSED: "closed",
    TaskState.CANCELLED: "cancelled",
}
# In the order of the screen.
_ORDER = ("asks", "at work", "agent lost", "to approve", "failed", "stopped", "to decide", "landing waits",
          "landing lost", "verifying", "ready", "paused", "waits", "ended", "closed", "cancelled")  # fmt: skip
SETTLED = ("closed", "cancelled")
# In these a hook may run: before and after a start, and before gates.
_PREPARED = AT_WORK | {TaskState.DONE}


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """All tasks at one moment. `rows` are in the order of the screen, `words` says in a word how each stands. `hooks`:
    the commands that prepare worktrees now, by task. `disk` is older than the rest."""

    runs: Holder | None
    rows: Mapping[str, Row]
    words: Mapping[str, str]
    agents: Mapping[str, AtWork]
    tasks: Mapping[str, Task]
    turns: int
    usd: float
    host: HostRow
    hooks: Mapping[str, RunningHook] = {}
    disk: DiskUse | None = None

    @property
    def counts(self) -> str:
        counted = Counter(self.words.values())
        return ", ".join(f"{counted[word]} {word}" for word in _ORDER if counted[word]) or "no tasks yet"

    @property
    def held(self) -> str:
        """The reason why a run that is alive starts no more agents; empty where nothing waits for that."""
        return self.host.short if self.runs is not None and "ready" in self.words.values() else ""

    @property
    def is_over(self) -> bool:
        return self.runs is None and not any(not each.ended for each in self.agents.values())


def see(app: App, disk: DiskUse | None = None) -> Picture:
    overview = read_overview(app)
    view = overview.view
    agents = {each.task: each for each in at_work(view.layout, view.state.tasks.values()) if not each.asks}
    words = {row.id: _word(row, agents.get(row.id)) for row in overview.rows.values()}
    rows = sorted(overview.rows.values(), key=lambda row: (_ORDER.index(words[row.id]), row.priority))
    runs, tasks = overview.owner, view.state.tasks
    return Picture(
        runs=runs,
        rows={row.id: row for row in rows},
        words=words,
        agents=agents,
        tasks=tasks,
        turns=view.state.run.turns,
        usd=view.state.run.usd,
        host=host_row(app.config, tasks.values(), wall(), runs.pid if runs else "self", folder=app.layout.root),
        hooks=_running_hooks(app, tasks.values()) if runs is not None else {},
        disk=disk,
    )


def _running_hooks(app: App, tasks: Iterable[Task]) -> dict[str, RunningHook]:
    prepared = (task for task in tasks if task.state in _PREPARED and task.attempt.id)
    found = {task.id: hooks.running_now(app.layout.attempt_files(task.attempt.id)) for task in prepared}
    return {name: each for name, each in found.items() if each is not None}


def _word(row: Row, agent: AtWork | None) -> str:
    if row.parked:
        return "stopped" if row.parked == STOPPED else "to decide"
    if row.is_asking:
        return "asks"
    if row.lost:
        return "landing lost"
    if row.landing_waits:
        return "landing waits"
    if agent is not None and agent.ended:
        return "ended"
    if row.state is TaskState.OPEN:
        if row.is_ready:
            return "ready"
        return "paused" if row.waits[0].startswith("not before ") else "waits"
    return _WORDS[row.state]


class Looking:
    """Looks again when it is time, and tells how long that is from now."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._next = 0.0
        self._disk: tuple[float, DiskUse] | None = None

    @property
    def wait_s(self) -> float:
        return max(0.0, self._next - monotonic())

    def now(self) -> Picture:
        disk = self._disk_use()
        began = monotonic()
        picture = see(self._app, disk)
        ended = monotonic()
        self._next = ended + max(LOOK_S, (ended - began) / BUSY_SHARE)
        return picture

    def _disk_use(self) -> DiskUse:
        if self._disk is None or monotonic() - self._disk[0] >= DISK_LOOK_S:
            self._disk = monotonic(), disk_use.measure(self._app.layout, self._app.config.disk_free_min)
        return self._disk[1]


def heading(picture: Picture, now: float) -> Sequence[str]:
    """The lines of the heading: the run with its age and spending; the number of tasks in each state with the host's
    room, or why no more agents are started; what worktrees and snapshots take, where that was counted."""
    runs = picture.runs
    if runs is None:
        alone = any(not each.ended for each in picture.agents.values())
        who = "no run is alive" + (", and agents are at work: `holdfast run` goes on with them" if alone else "")
    else:
        spent = f"{plural(picture.turns, 'turn')}, {money(picture.usd)}"
        who = f"pid {runs.pid}, for {clock(now - runs.since)}, {spent}"
    disk = [f"disk: {picture.disk.words}"] if picture.disk is not None else []
    return [who, picture.held or f"{picture.counts}; {picture.host.words}", *disk]
