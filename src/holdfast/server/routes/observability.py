"""The health of agents and runs: heartbeats, stalls, what is held back, and runs with their kills and recoveries."""

from __future__ import annotations

import heapq
import itertools
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from holdfast.orchestrator.wakeup import HEARTBEAT
from holdfast.server.api_state import Api
from holdfast.server.operations import Ask, Operation, row_from
from holdfast.server.routes.agents import AgentRow, age_of, rows_at_work
from holdfast.views.history import MarkRow

STALLS_MAX = 100
HOLDS_MAX = 500
# An agent that has been silent for half of what it may is worth a look.
SILENT_SHARE = 0.5


class AgentHealth(msgspec.Struct, frozen=True):
    """`stalled`: silent for most of the time that it may be, or without a heartbeat."""

    attempt: str
    heartbeat_age_s: float
    silent_s: float
    stalled: bool
    words: str


class LoopHealth(msgspec.Struct, frozen=True):
    """`last_tick_s`: how long ago the loop looked around; it does so at least every ten seconds."""

    heartbeat_age_s: float
    last_tick_s: float


class HoldRow(msgspec.Struct, frozen=True):
    """A task that is not started or landed for now; `until` is null where it is for the rest of the run."""

    task: str
    reason: str
    until: float | None


class Observed(msgspec.Struct, frozen=True):
    """`stalls` are agents that were lost, or ended because they stood still; the newest first."""

    agents: list[AgentHealth]
    loop: LoopHealth
    stalls: list[MarkRow]
    holds: list[HoldRow]


class RunRow(msgspec.Struct, frozen=True):
    """`ended` is null while it runs; of one that was killed it is when it was last heard of.

    `how` is unknown of runs by an older Holdfast, which did not journal how they ended.
    """

    run: str
    began: float
    ended: float | None
    how: Literal["orderly", "killed", "unknown", "running"]
    recovered: dict[str, int]


class Timeline(msgspec.Struct, frozen=True):
    """Oldest first."""

    runs: list[RunRow]
    marks: list[MarkRow]


class TimelineQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


def observe(api: Api, ask: Ask) -> Observed:
    with api.chronicle as told:
        newest = heapq.merge(reversed(told.lost), reversed(told.stumbles), key=lambda each: each.at, reverse=True)
        stalls = list(itertools.islice(filter(_is_stall, newest), STALLS_MAX))
    holds = [HoldRow(name, each.reason, each.until) for name, each in list(api.loop.holds.items())[:HOLDS_MAX]]
    now = api.context.clock()
    tick = LoopHealth(age_of(api.layout.signals / HEARTBEAT, now), max(0.0, now - (api.loop.ticked_at or now)))
    return Observed([_health(api, each) for each in rows_at_work(api)], tick, stalls, holds)


def _is_stall(mark: MarkRow) -> bool:
    is_ended = '"kind":"stalled"' in mark.words or '"kind":"timeout"' in mark.words
    return mark.kind == "task_orphaned" or (mark.kind == "task_failed" and is_ended)


def _health(api: Api, row: AgentRow) -> AgentHealth:
    config, words = api.config, ""
    if row.remote:
        stalled = row.until <= api.context.clock()
        words = "its lease has run out" if stalled else "it works elsewhere"
    elif row.state == "lost":
        stalled, words = True, "its runner is gone"
    elif row.heartbeat_age_s > config.heartbeat_timeout_s:
        stalled, words = True, f"its runner gave no sign of life for {row.heartbeat_age_s:.0f} s"
    else:
        stalled = row.silent_s > SILENT_SHARE * config.stall_timeout_s
        words = f"it printed nothing for {row.silent_s:.0f} s" if stalled else "it works"
    return AgentHealth(row.attempt, row.heartbeat_age_s, row.silent_s, stalled, words)


def timeline(api: Api, ask: Ask) -> Timeline:
    limit = ask.query.limit
    with api.chronicle as told:
        runs = [row_from(RunRow, each, ended=each.last, how=each.end) for each in list(told.runs)[-limit:]]
        if runs and runs[-1].run == api.context.ledger.run:
            runs[-1] = msgspec.structs.replace(runs[-1], ended=None, how="running")
        return Timeline(runs, told.marks(limit))


OPERATIONS = [
    Operation("GET", "/observability", "observe", "Heartbeats, stalls, and what is held back.", observe,
              answer=Observed, lane="aside", tag="status"),
    Operation("GET", "/timeline", "timeline", "The runs, with kills and recoveries marked.", timeline, answer=Timeline,
              lane="aside", query=TimelineQuery, tag="status"),
]  # fmt: skip
