"""The metrics for Prometheus. `NAMES` has every name, and docs/metrics.md is made of it; none ever changes its meaning.

Counters and histograms are fed by the journal's entries as they become durable, so they count from this server's start
on. Gauges are made at the moment of a scrape, from memory, and at most once a second: one pass over the tasks.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter as Counts
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any, Literal

import msgspec
import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from holdfast import __version__
from holdfast.clock import monotonic, wall
from holdfast.domain import effect_entries, entries
from holdfast.domain.fsm import Reason
from holdfast.domain.spend import DAY_S, Spend
from holdfast.domain.task import TaskState
from holdfast.domain.task_record import Task
from holdfast.engine.context import RunContext
from holdfast.orchestrator.holds import ALL
from holdfast.orchestrator.loop import Loop
from holdfast.server.access.denials import Denials
from holdfast.server.event_feed import Feed
from holdfast.storage.journal.entry import Entry
from holdfast.views.connections.outbox import MESSAGE_STATES, message_rows

Kind = Literal["counter", "gauge", "histogram"]
# Each step about twice the one before: from a sync on a fast disk to the slowest gate.
SHORT = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LONG = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
FRESH_S = 1.0
# Labels come from task files and from API clients: beyond so many values of one label, the rest are counted as one.
VALUES_MAX = 100
OTHER = "other"
# Its refusals are answers: while a server starts or ends, it is not ready.
PROBE = "ready"
RECOVERY = "recover"


class NamedMetric(msgspec.Struct, frozen=True):
    """One metric, as it is documented."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    buckets: tuple[float, ...] = ()


def _listed(*rows: tuple[Any, ...]) -> dict[str, NamedMetric]:
    return {row[0]: NamedMetric(*row) for row in rows}


_SPENDER = ("agent", "model")
NAMES = _listed(
    ("holdfast_append_seconds", "histogram", (), "Time of one append to the journal, its sync included.", SHORT),
    ("holdfast_turn_seconds", "histogram", ("agent",), "Length of a turn of an agent.", LONG),
    ("holdfast_verify_seconds", "histogram", ("outcome",),
     "Time to judge a candidate, all its gates included; passed, refused, or how its intent was closed.", LONG),
    ("holdfast_land_seconds", "histogram", ("outcome",), "Time to move the branch to what was verified.", SHORT),
    ("holdfast_recovery_seconds", "histogram", (),
     "Time that recovery took when this run began: one observation for each start.", SHORT),
    ("holdfast_request_seconds", "histogram", ("operation", "status"), "Time to answer a request of the API.", SHORT),

    ("holdfast_journal_entries_total", "counter", ("kind",), "Entries that this server has seen become durable."),
    ("holdfast_turns_total", "counter", _SPENDER, "Turns that agents have completed."),
    ("holdfast_tokens_total", "counter", _SPENDER, "Tokens that agents have used."),
    ("holdfast_spend_usd_total", "counter", _SPENDER, "Dollars that agents have spent."),
    ("holdfast_request_errors_total", "counter", (),
     "Requests that were answered with 500 or above, but for those that only ask whether the server is ready."),
    ("holdfast_landings_total", "counter", ("outcome",), "Landings by how they ended: confirmed is on the branch."),
    ("holdfast_attempts_failed_total", "counter", ("kind",), "Attempts that have failed, by the kind of failure."),
    ("holdfast_leases_expired_total", "counter", (), "Tasks taken back from remote workers that gave no sign of life."),
    ("holdfast_recovered_intents_total", "counter", ("outcome",),
     "What recovery made of the intents that a killed run had left open; released are claims given back."),
    ("holdfast_access_denied_total", "counter", (), "Requests refused: an unknown token, or not for this one."),
    ("holdfast_followers_dropped_total", "counter", (), "Followers of /events let go because they were too slow."),

    ("holdfast_info", "gauge", ("run", "version"), "Always 1; says which run this is, of which version."),
    ("holdfast_start_time_seconds", "gauge", (), "When this server began, in Unix time."),
    ("holdfast_works", "gauge", (), "1 for `holdfast run`, which starts agents; 0 for `holdfast serve`."),
    ("holdfast_loop_time_seconds", "gauge", (), "When the loop last began a round, in Unix time; at rest every 10 s."),
    ("holdfast_tasks", "gauge", ("state",), "Tasks by state."),
    ("holdfast_tasks_parked", "gauge", (), "Tasks that wait for a person to decide (`holdfast resolve`)."),
    ("holdfast_tasks_asking", "gauge", (), "Tasks whose agent waits for a person's answer (`holdfast questions`)."),
    ("holdfast_outbox_messages", "gauge", ("state",),
     "Messages that have not left (`holdfast outbox`): due, waits, or parked for a person."),
    ("holdfast_tasks_held", "gauge", (), "Tasks that the loop leaves alone for now, as `holdfast status` explains."),
    ("holdfast_tasks_unfiled", "gauge", (), "Tasks that came through the API and whose file is not yet written."),
    ("holdfast_agents", "gauge", (), "Agents of this machine at work."),
    ("holdfast_outage_since_seconds", "gauge", ("agent", "endpoint", "reason"),
     "Since when an agent cannot use its model, in Unix time; absent where all can."),
    ("holdfast_outage_next_try_seconds", "gauge", ("agent", "endpoint", "reason"),
     "When such an agent is tried again, in Unix time."),
    ("holdfast_outage_starts", "gauge", ("agent", "endpoint", "reason"),
     "Starts in a row that could not use the model; from `outage_after` on nothing new is started with the agent."),
    ("holdfast_agent_heartbeat_age_seconds", "gauge", (),
     "Time since the runner that was quiet longest gave a sign of life; 0 where none is at work."),
    ("holdfast_agent_silence_seconds", "gauge", (),
     "Time since the agent that was quiet longest printed anything; 0 where none is at work."),
    ("holdfast_remote_claims", "gauge", (), "Tasks that remote workers hold through the API."),
    ("holdfast_followers", "gauge", (), "Followers of /events."),
    ("holdfast_open_intents", "gauge", ("effect",), "Effects under way: their intent is on record, the outcome not."),
    ("holdfast_journal_sequence", "gauge", (), "Sequence of this run's last durable entry."),
    ("holdfast_run_spend_usd", "gauge", (), "Dollars that this run has spent."),
    ("holdfast_day_spend_usd", "gauge", (), "Dollars spent in this UTC day, over all runs."),
    ("holdfast_budget_usd", "gauge", ("scope",), "The limits of the settings for a run and a day, where set."),
)  # fmt: skip


class Metrics:
    """The observer behind /metrics. `take` and `appended` are called by any thread; a scrape also looks at what is
    given here. `began`: when the server did."""

    name = "metrics"
    cursor = None

    def __init__(self, context: RunContext, loop: Loop, feed: Feed, denied: Denials, began: float) -> None:
        # Moments of creation are as many series again, and nobody's question.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._context = context
        self._agents, self._models = Values(), Values()
        self._kinds = Values()
        self._under_way: dict[tuple[str, int], float] = {}
        self._requests = self._histogram("holdfast_request_seconds")
        self._appends = self._histogram("holdfast_append_seconds")
        self._turn_seconds = self._histogram("holdfast_turn_seconds")
        self._effects = {
            "verify": self._histogram("holdfast_verify_seconds"),
            "land": self._histogram("holdfast_land_seconds"),
        }
        self._recoveries = self._histogram("holdfast_recovery_seconds")
        self._errors = self._counter("holdfast_request_errors_total")
        self._entries = self._counter("holdfast_journal_entries_total")
        self._turns = self._counter("holdfast_turns_total")
        self._tokens = self._counter("holdfast_tokens_total")
        self._usd = self._counter("holdfast_spend_usd_total")
        self._landings = self._counter("holdfast_landings_total")
        self._failures = self._counter("holdfast_attempts_failed_total")
        self._lapses = self._counter("holdfast_leases_expired_total")
        self._recovered = self._counter("holdfast_recovered_intents_total")
        # From the beginning: what appears with its first count has not increased, to Prometheus.
        self._by_kind = {kind: self._entries.labels(kind) for kind in entries.PAYLOADS}
        for how in effect_entries.CLOSINGS:
            self._landings.labels(how)
        self.registry.register(_Scraped(context, loop, feed, denied, began))

    def _histogram(self, name: str) -> Histogram:
        named = NAMES[name]
        return Histogram(name, named.meaning, named.labels, registry=self.registry, buckets=named.buckets)

    def _counter(self, name: str) -> Counter:
        named = NAMES[name]
        return Counter(name, named.meaning, named.labels, registry=self.registry)

    def count_recovery(self) -> None:
        """Once recovery is over."""
        context = self._context
        self._recoveries.observe(context.recovery_s)
        for outcome, count in msgspec.structs.asdict(context.recovered).items():
            self._recovered.labels(outcome).inc(count)

    def render(self) -> bytes:
        return generate_latest(self.registry)

    # -- what happens -------------------------------------------------------------------------------------------------

    def answered(self, operation: str, status: int, seconds: float) -> None:
        self._requests.labels(operation, str(status)).observe(seconds)
        if status >= 500 and operation != PROBE:
            self._errors.inc()

    def appended(self, seconds: float, count: int) -> None:
        self._appends.observe(seconds)

    def observe(self, run: str, entry: Entry) -> None:
        """Told each entry once it is durable and folded in."""
        kind = entry.decision_type
        self._by_kind[kind].inc()
        if kind == "turn_completed":
            spent = entry.inputs
            agent, model = self._spender(spent["task"])
            self._turns.labels(agent, model).inc()
            self._turn_seconds.labels(agent).observe(spent.get("seconds", 0.0))
            self._spend(agent, model, spent.get("usd", 0.0), spent.get("tokens", 0))
        elif not entry.committed:
            self._under_way[run, entry.seq] = entry.timestamp
        elif "intent" in entry.inputs:
            self._close(entry)
        elif kind in entries.MOVES:
            self._count_move(kind, entry)

    def _count_move(self, kind: str, entry: Entry) -> None:
        moved = entry.inputs
        if rest := moved.get("rest"):
            self._spend(*self._spender(moved["task"]), rest.get("usd", 0.0), rest.get("tokens", 0))
        if kind == "task_failed":
            self._failures.labels(self._kinds.keep(str(moved.get("outcome", {}).get("kind", "")))).inc()
        elif kind == "task_opened" and moved["reason"] == Reason.HEARTBEAT_LOST:
            self._lapses.inc()

    def _close(self, entry: Entry) -> None:
        """Observes how long it took, only for what this very server began: the rest had a crash in between."""
        named = entry.inputs["intent"]
        began = self._under_way.pop((named["run"], named["seq"]), None)
        effect, closing = effect_entries.CLOSED_BY.get(entry.decision_type, ("", ""))
        if effect == "land":
            self._landings.labels(closing).inc()
        if began is not None and effect in self._effects:
            if effect == "verify" and closing == "confirmed":
                closing = "passed" if entry.output.get("passed") else "refused"
            self._effects[effect].labels(closing).observe(max(0.0, entry.timestamp - began))

    def _spender(self, name: str) -> tuple[str, str]:
        task = self._context.ledger.state.tasks.get(name)
        if task is None:
            return OTHER, OTHER
        # What a remote worker calls itself is its own affair, and could be another name each time.
        agent = "remote" if task.claim.remote else task.claim.worked_by
        return self._agents.keep(agent), self._models.keep(task.claim.model)

    def _spend(self, agent: str, model: str, usd: float, tokens: int) -> None:
        self._usd.labels(agent, model).inc(max(0.0, usd))
        self._tokens.labels(agent, model).inc(max(0, tokens))


class Values:
    """The values of a label, as long as they are few."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def keep(self, value: str) -> str:
        if value not in self._known:
            if len(self._known) >= VALUES_MAX:
                return OTHER
            self._known.add(value)
        return value


class _Scraped:
    """The gauges: what memory says when it is asked."""

    def __init__(self, context: RunContext, loop: Loop, feed: Feed, denied: Denials, began: float) -> None:
        self._context, self._loop, self._feed, self._denied = context, loop, feed, denied
        self._began = began
        self._mutex = threading.Lock()
        self._made: list[Metric] = []
        self._made_at = -FRESH_S
        self._agents, self._endpoints = Values(), Values()

    def describe(self) -> Iterable[Metric]:
        """Asked for when it is registered, before there is anything to look at."""
        return []

    def collect(self) -> Iterator[Metric]:
        with self._mutex:
            if monotonic() - self._made_at >= FRESH_S:
                self._made, self._made_at = list(self._measure()), monotonic()
            made = self._made
        yield from made

    def _measure(self) -> Iterator[Metric]:
        ledger, loop, feed, limits = self._context.ledger, self._loop, self._feed, self._context.config.budgets
        # Copied in one step: others add tasks meanwhile.
        tasks = list(ledger.state.tasks.values())
        states = Counts(map(attrgetter("state"), tasks))
        seen = loop.seen_at_work
        remote = sum(task.claim.remote for task in seen)
        # One that waits for an answer is silent by right.
        asking = ledger.state.asking.copy()
        at_work = [task for task in seen if not task.claim.remote and task.id not in asking]
        heartbeat_s, silence_s = self._quietest(at_work)
        position, now = ledger.position, wall()
        spent = ledger.state.days.get(int(now // DAY_S), Spend())
        budgets = {"run": limits.usd_per_run, "day": limits.usd_per_day}
        yield _counter("holdfast_access_denied_total", self._denied.total)
        yield _counter("holdfast_followers_dropped_total", feed.dropped)
        yield _gauge("holdfast_info", {(ledger.run, __version__): 1})
        yield _gauge("holdfast_start_time_seconds", self._began)
        yield _gauge("holdfast_works", float(loop.works))
        yield _gauge("holdfast_loop_time_seconds", loop.ticked_at)
        yield _gauge("holdfast_tasks", {(state.value,): states[state] for state in TaskState})
        yield _gauge("holdfast_tasks_parked", sum(map(bool, map(attrgetter("parked"), tasks))))
        yield _gauge("holdfast_tasks_asking", len(asking))
        kept = Counts(row.state for row in message_rows(ledger.state, wall()))
        yield _gauge("holdfast_outbox_messages", {(name,): kept[name] for name in MESSAGE_STATES})
        yield _gauge("holdfast_tasks_held", len(loop.holds.keys() - {ALL}))
        yield _gauge("holdfast_tasks_unfiled", sum(map(bool, map(attrgetter("unfiled"), tasks))))
        yield _gauge("holdfast_agents", len(at_work))
        found = {
            (self._agents.keep(each.agent), self._endpoints.keep(each.endpoint), each.reason): each
            for each in ledger.state.outages.copy().values()
        }
        yield _gauge("holdfast_outage_since_seconds", {labels: each.since for labels, each in found.items()})
        yield _gauge("holdfast_outage_next_try_seconds", {labels: each.until for labels, each in found.items()})
        yield _gauge("holdfast_outage_starts", {labels: each.in_a_row for labels, each in found.items()})
        yield _gauge("holdfast_agent_heartbeat_age_seconds", heartbeat_s)
        yield _gauge("holdfast_agent_silence_seconds", silence_s)
        yield _gauge("holdfast_remote_claims", remote)
        yield _gauge("holdfast_followers", feed.followers)
        opened = Counts(effect_entries.effect_of(each.entry.decision_type) for each in ledger.pairing.open_intents())
        yield _gauge("holdfast_open_intents", {(effect,): opened[effect] for effect in effect_entries.EFFECTS})
        yield _gauge("holdfast_journal_sequence", position.seq)
        yield _gauge("holdfast_run_spend_usd", ledger.state.run.usd)
        yield _gauge("holdfast_day_spend_usd", spent.usd)
        yield _gauge("holdfast_budget_usd", {(scope,): usd for scope, usd in budgets.items() if usd is not None})

    def _quietest(self, at_work: list[Task]) -> tuple[float, float]:
        """The longest silence of a runner, and of an agent: a few files are looked at, as many as there are agents."""
        heartbeat_s = silence_s = 0.0
        for task in at_work:
            files = self._context.layout.attempt_files(task.attempt.id)
            heartbeat_s = max(heartbeat_s, self._context.silence.seconds(task.attempt.id))
            with contextlib.suppress(OSError):
                silence_s = max(silence_s, wall() - files.output.stat().st_mtime)
        return heartbeat_s, silence_s


def _gauge(name: str, values: float | dict[tuple[str, ...], float]) -> Metric:
    named = NAMES[name]
    made = GaugeMetricFamily(name, named.meaning, labels=named.labels)
    for labels, value in values.items() if isinstance(values, dict) else [((), values)]:
        made.add_metric(labels, value)
    return made


def _counter(name: str, value: float) -> Metric:
    made = CounterMetricFamily(name, NAMES[name].meaning, labels=())
    made.add_metric((), value)
    return made
