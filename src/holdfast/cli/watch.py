"""`watch`: a run as it goes, from any terminal, also one in the background. It reads files, and needs no server.

On a terminal it is a full screen with keys (watch_screen.py). Elsewhere it prints a line for each change, and ends when
nobody runs and no agent is at work.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.cli.options import as_json, find_app
from holdfast.cli.screen.terminal import printing, wait_for_reader
from holdfast.clock import monotonic, wall
from holdfast.domain.entries import STOPPED
from holdfast.domain.task import TaskState
from holdfast.domain.task_record import Task
from holdfast.domain.wording import money, plural
from holdfast.storage.journal.lock import Holder, read_holder
from holdfast.storage.records.at_work import AtWork, at_work
from holdfast.views.rows import Row, read_overview

if TYPE_CHECKING:
    from holdfast.app import App

LOOK_S = 0.5
# Of the time, at most this part is spent on looking: a large backlog is looked at less often.
BUSY_SHARE = 0.2
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
_ORDER = ("at work", "agent lost", "to approve", "failed", "stopped", "to decide", "landing waits", "landing lost",
          "verifying", "ready", "paused", "waits", "ended", "closed", "cancelled")  # fmt: skip
SETTLED = ("closed", "cancelled")


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """All tasks at one moment. `rows` are in the order of the screen, `words` says in a word how each stands."""

    runs: Holder | None
    rows: Mapping[str, Row]
    words: Mapping[str, str]
    agents: Mapping[str, AtWork]
    tasks: Mapping[str, Task]
    turns: int
    usd: float

    @property
    def counts(self) -> str:
        counted = Counter(self.words.values())
        return ", ".join(f"{counted[word]} {word}" for word in _ORDER if counted[word]) or "no tasks yet"

    @property
    def is_over(self) -> bool:
        return self.runs is None and not any(not each.ended for each in self.agents.values())


def see(app: App) -> Picture:
    overview = read_overview(app)
    view = overview.view
    holder = read_holder(view.layout.lock)
    agents = {each.task: each for each in at_work(view.layout, view.state.tasks.values())}
    words = {row.id: _word(row, agents.get(row.id)) for row in overview.rows.values()}
    rows = sorted(overview.rows.values(), key=lambda row: (_ORDER.index(words[row.id]), row.priority))
    return Picture(
        runs=holder if holder is not None and holder.is_alive() else None,
        rows={row.id: row for row in rows},
        words=words,
        agents=agents,
        tasks=view.state.tasks,
        turns=view.state.run.turns,
        usd=view.state.run.usd,
    )


def _word(row: Row, agent: AtWork | None) -> str:
    if row.parked:
        return "stopped" if row.parked == STOPPED else "to decide"
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

    @property
    def wait_s(self) -> float:
        return max(0.0, self._next - monotonic())

    def now(self) -> Picture:
        began = monotonic()
        picture = see(self._app)
        ended = monotonic()
        self._next = ended + max(LOOK_S, (ended - began) / BUSY_SHARE)
        return picture


@click.command(epilog="Examples:  holdfast watch  ·  holdfast watch --plain  ·  holdfast watch --json | jq -c .")
@click.option("--plain", "is_plain", is_flag=True, help="A line for each change, also on a terminal.")
@as_json
@click.pass_context
def watch(ctx: click.Context, is_plain: bool, as_json: bool) -> None:
    """Watch a run as it goes, from any terminal, also one in the background.

    On a terminal: a full screen. The arrow keys select a task; a follows its agent, d shows what its attempt has
    changed, y approves a result that waits for you, s stops its agent, q leaves. Leaving stops nothing.

    Elsewhere, and with --plain: a line for each change, until nobody runs and no agent is at work.
    """
    app = find_app(ctx)
    looking = Looking(app)
    is_screen = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if as_json or is_plain or not is_screen:
        with contextlib.suppress(KeyboardInterrupt):
            _follow(looking, as_json)
        return
    from holdfast.cli.screen.watch_screen import Watcher

    Watcher(app, looking).run()


# -- lines ------------------------------------------------------------------------------------------------------------


def _follow(looking: Looking, as_json: bool) -> None:
    before: dict[str, dict[str, Any]] = {}
    with printing() as printer:
        while True:
            picture = looking.now()
            new = _facts(picture)
            for change in _changes(before, new):
                if as_json:
                    printer.line(msgspec.json.encode({"ts": wall(), **change}))
                else:
                    printer.text(f"{_clock()}  {_sentence(change)}", "")
            before = new
            printer.flush()
            if picture.is_over:
                if as_json:
                    counts = Counter(str(row.state) for row in picture.rows.values())
                    printer.line(msgspec.json.encode({"ts": wall(), "kind": "ended", "counts": dict(counts)}))
                else:
                    printer.text(f"{_clock()}  nobody runs: {picture.counts}", "")
                return
            if not wait_for_reader(looking.wait_s):
                return


def _facts(picture: Picture) -> dict[str, dict[str, Any]]:
    """The facts whose changes are printed: the run, each task's state, and what its agent does."""
    runs = picture.runs
    found: dict[str, dict[str, Any]] = {
        "run": {"kind": "run", "pid": runs.pid if runs else None, "run": runs.run if runs else ""}
    }
    for row in picture.rows.values():
        why = row.reason or row.parked or row.lost or "; ".join(row.waits)
        state = {"task": row.id, "state": row.state, "how": picture.words[row.id], "why": why, "next": row.next_step}
        found[f"task {row.id}"] = {"kind": "state", **state}
        if (agent := picture.agents.get(row.id)) is not None:
            does = {"turn": agent.turn, "tool": agent.tool, "usd": agent.usd, "retrying": agent.retrying}
            found[f"agent {row.id}"] = {
                "kind": "agent", "task": row.id, "attempt": agent.attempt, "agent": agent.agent, **does
            }  # fmt: skip
    return found


def _changes(before: Mapping[str, dict[str, Any]], now: Mapping[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The facts that are new. The first time without tasks that have ended, and without a run that is not there."""
    for name, facts in now.items():
        is_dull = facts.get("how") in SETTLED or (facts["kind"] == "run" and not facts["run"])
        if before.get(name) == facts or (not before and is_dull):
            continue
        yield facts


def _sentence(facts: Mapping[str, Any]) -> str:
    match facts["kind"]:
        case "run":
            return f"run {facts['run']} is alive, pid {facts['pid']}" if facts["run"] else "nobody runs"
        case "state":
            return f"{facts['task']}: {facts['how']}" + (f": {facts['why']}" if facts["why"] else "")
    doing = f"does not reach its model, and tries again: {facts['retrying']}" if facts["retrying"] else facts["tool"]
    return f"{facts['task']}: {facts['agent']}, turn {facts['turn']}, {money(facts['usd'])}  {doing}".rstrip()


def _clock() -> str:
    import time

    return time.strftime("%H:%M:%S")


# -- for the screen ---------------------------------------------------------------------------------------------------


def heading(picture: Picture, now: float) -> Sequence[str]:
    """Who runs and for how long; how many tasks stand how."""
    from holdfast.storage.records.at_work import clock

    runs = picture.runs
    if runs is None:
        alone = any(not each.ended for each in picture.agents.values())
        who = "no run is alive" + (", and agents are at work: `holdfast run` goes on with them" if alone else "")
    else:
        spent = f"{plural(picture.turns, 'turn')}, {money(picture.usd)}"
        who = f"pid {runs.pid}, for {clock(now - runs.since)}, {spent}"
    return who, picture.counts
