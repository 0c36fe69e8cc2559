"""Events that nobody sends: moments of schedules and changed files, taken like deliveries while a run lives.

Also judges what a kill left without it: a delivery that was journalled, and whose rules nobody has asked yet.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

import msgspec

from holdfast.decisions.connections.deliveries import ACTOR, Arrival, Intake, judge_left, list_left, read_arrival
from holdfast.decisions.context import DecisionContext
from holdfast.domain.triggers.trigger_records import ScheduleNoted
from holdfast.engine.context import RunContext
from holdfast.errors import TriggersUnusable
from holdfast.git.repository import is_landed
from holdfast.integrations.triggers.cron import CronSource
from holdfast.integrations.triggers.event import Delivery
from holdfast.integrations.triggers.file_watch import FileWatchSource, WatchedFiles
from holdfast.integrations.triggers.trigger_file import TriggerConfig
from holdfast.orchestrator.background import PeriodicJob
from holdfast.storage.journal.entry import Record
from holdfast.storage.records.blobs import NewBlob

# The clock may be set, and the file changed: so often it is looked again.
LOOK_S_MAX, LOOK_S_MIN = 20.0, 0.05
# A moment that lies ahead by more was noted by a clock that is set right now; what was delivered is known by its id.
AHEAD_S_MAX = 3600.0
WATCH_S = 20.0
Slots = list[tuple[CronSource, float]]


def trigger_jobs(context: RunContext) -> list[PeriodicJob[object]]:
    """The jobs for `config/triggers.yaml`; none where there is no such file."""
    if not context.triggers.path.exists():
        return []
    intake = Intake()
    jobs: list[PeriodicJob[object]] = [Schedules(context, intake).job]
    try:
        config = context.triggers.current()
    except TriggersUnusable as error:
        context.note("", str(error))
        return jobs
    watched = [each for each in config.sources.values() if isinstance(each, FileWatchSource)]
    return [*jobs, *(FileEvents(context, intake, each).job for each in watched)]


def _decision(context: RunContext, key: str) -> DecisionContext:
    return DecisionContext.of(context, key, is_run=True, by=ACTOR, actor=ACTOR)


def _take(context: RunContext, intake: Intake, arrivals: Iterable[Arrival]) -> list[str]:
    """In the loop's thread; returns the tasks that were made."""
    with context.ledger.together():
        made = [intake.take(_decision(context, each.received.idempotency_key), each) for each in arrivals]
    tasks = [outcome.task for judged in made for outcome in judged.outcomes if outcome.new]
    for task in tasks:
        context.note(task, "added by a trigger")
    return tasks


class Schedules:
    """The schedules of the file, whatever it says at the moment; and the deliveries that a kill has left."""

    def __init__(self, context: RunContext, intake: Intake) -> None:
        self._context, self._intake, self._told = context, intake, ""
        self.job = PeriodicJob[object](
            name="triggers", every_s=LOOK_S_MAX, fetch=self._fetch, apply=self._apply, comes_first=True
        )

    def _fetch(self) -> object:
        config = self._context.triggers.current()
        now, known = self._context.clock(), self._context.ledger.state.connections.triggers.schedules.copy()
        moments = [LOOK_S_MAX]
        for source in _schedules(config):
            facts = known.get(source.name)
            since = facts.last if facts is not None and facts.schedule == source.text else now
            moments.append(source.next_after(min(max(since, now), since + AHEAD_S_MAX)) - now)
        self.job.every_s = max(LOOK_S_MIN, min(moments))
        return config

    def _apply(self, found: object) -> list[str]:
        assert isinstance(found, TriggerConfig)
        context, state = self._context, self._context.ledger.state.connections.triggers
        if (broken := context.triggers.broken) is not None and self._told != str(broken):
            self._told = str(broken)
            context.note("", self._told)
        tasks: list[str] = []
        if list_left(_decision(context, "left")):
            left = judge_left(_decision(context, "left"), self._intake, found)
            tasks += [outcome.task for judged in left for outcome in judged.outcomes if outcome.new]
        now = context.clock()
        arrivals: list[Arrival] = []
        for source in _schedules(found):
            facts = state.schedules.get(source.name)
            if facts is None or facts.schedule != source.text or facts.last > now + AHEAD_S_MAX:
                noted = ScheduleNoted(source=source.name, schedule=source.text, at=now)
                record = Record("schedule_noted", msgspec.to_builtins(noted), actor=ACTOR)
                context.ledger.append(context.ledger.epoch, [record])
                continue
            slots, left_out = source.due(facts.last, now)
            if left_out:
                context.note("", f"{source.name}: {left_out} moments without a run are left out")
                self._skip(source, slots, now)
            arrivals += [self._arrival(found, source, slot, now) for slot in slots]
        return [*tasks, *_take(context, self._intake, arrivals)]

    def _skip(self, source: CronSource, slots: list[float], now: float) -> None:
        """Notes that what was missed is left out, so that it is said and decided once."""
        at = min([now, *(slot - 1.0 for slot in slots)])
        noted = ScheduleNoted(source=source.name, schedule=source.text, at=at)
        record = Record("schedule_noted", msgspec.to_builtins(noted), actor=ACTOR)
        self._context.ledger.append(self._context.ledger.epoch, [record])

    def _arrival(self, config: TriggerConfig, source: CronSource, slot: float, now: float) -> Arrival:
        body = source.body_of(slot)
        self._context.blobs.put(body, content_type="application/json")
        return read_arrival(config, source.name, Delivery({}, body), now, slot)


def _schedules(config: TriggerConfig) -> list[CronSource]:
    return [each for each in config.sources.values() if isinstance(each, CronSource)]


class FileEvents:
    """The changed files of one source. What a landing of ours has brought to the checkout is no event."""

    def __init__(self, context: RunContext, intake: Intake, source: FileWatchSource) -> None:
        self._context, self._intake, self._source = context, intake, source
        self._watched = WatchedFiles(source, context.repo, [context.layout.root, context.layout.worktrees])
        self.job = PeriodicJob[object](
            name=f"watch-{source.name}",
            every_s=0.0,
            fetch=self._fetch,
            apply=self._apply,
            close=self._watched.close,
        )

    def _fetch(self) -> object:
        changes = self._watched.take(WATCH_S)
        return [(how, path) for how, path in changes if not is_landed(self._context.repo, path)]

    def _apply(self, found: object) -> list[str]:
        assert isinstance(found, list)
        config = self._context.triggers.current()
        if not found or self._source.name not in config.sources:
            return []
        body = self._source.body_of(secrets.token_hex(16), found)
        self._context.blobs.put_many([NewBlob(body, "application/json")])
        delivery = Delivery({}, body)
        return _take(
            self._context, self._intake, [read_arrival(config, self._source.name, delivery, self._context.clock())]
        )
