"""The costs of work: by task, agent, model and day, and those far from the usual."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from holdfast.domain.spend import DAY_S, DAYS_KEPT, Spend
from holdfast.server.api_state import Api
from holdfast.server.operations import Ask, Operation

ROWS_MAX = 1000
ANOMALIES_MAX = 100
# Below so many there is nothing usual to compare with.
SAMPLE_MIN = 5
DEVIATIONS = 3.0
# Where all cost nearly the same, less than twice as much is no anomaly.
SPREAD_MIN = 1 / 3


class CostRow(msgspec.Struct, frozen=True):
    key: str
    usd: float
    tokens: int
    turns: int
    seconds: float


class Costs(msgspec.Struct, frozen=True):
    """The dearest first, 1,000 at most; `usd` and `tokens` are of all."""

    by: str
    rows: list[CostRow]
    usd: float
    tokens: int


class CostQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    by: Literal["task", "agent", "model", "day"] = "task"


class Day(msgspec.Struct, frozen=True):
    day: str
    usd: float
    tokens: int
    turns: int


class CostHistory(msgspec.Struct, frozen=True):
    """Every day up to today, in UTC, also those on which nothing was spent."""

    days: list[Day]


class HistoryQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    days: Annotated[int, Meta(ge=1, le=DAYS_KEPT)] = 30


class Anomaly(msgspec.Struct, frozen=True):
    """`expected_usd` is what is usual: the median. Of a day there is neither task nor attempt."""

    task: str
    attempt: str
    day: str
    usd: float
    expected_usd: float
    ratio: float
    words: str


class Anomalies(msgspec.Struct, frozen=True):
    anomalies: list[Anomaly]


def costs(api: Api, ask: Ask) -> Costs:
    by = ask.query.by
    if by == "task":
        found = {task.id: task.spent for task in list(api.tasks.values())}
        spent = {name: each for name, each in found.items() if each.turns or each.usd or each.tokens}
    elif by == "day":
        spent = {day_name(day): each for day, each in _days(api).items()}
    else:
        with api.chronicle as told:
            spent = dict(told.by_agent if by == "agent" else told.by_model)
    total = sum(spent.values(), Spend())
    ordered = sorted(spent.items(), key=lambda each: (-each[1].usd, -each[1].tokens, each[0]))
    rows = [CostRow(key, each.usd, each.tokens, each.turns, each.seconds) for key, each in ordered[:ROWS_MAX]]
    return Costs(by, rows, total.usd, total.tokens)


def history(api: Api, ask: Ask) -> CostHistory:
    today, spent = int(api.context.clock() // DAY_S), _days(api)
    found = ((day, spent.get(day, Spend())) for day in range(today - ask.query.days + 1, today + 1))
    return CostHistory([Day(day_name(day), each.usd, each.tokens, each.turns) for day, each in found])


def _days(api: Api) -> dict[int, Spend]:
    return dict(api.context.ledger.state.days)


def day_name(day: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(day * DAY_S))


# -- what is not as usual ---------------------------------------------------------------------------------------------


def anomalies(api: Api, ask: Ask) -> Anomalies:
    """Attempts against attempts, tasks against tasks, days against days."""
    with api.chronicle as told:
        attempts = {each.id: each.spent.usd for each in told.attempts.values() if each.ended is not None}
    tasks = {task.id: task.spent.usd for task in list(api.tasks.values())}
    days = {day_name(day): each.usd for day, each in _days(api).items()}
    found = [Anomaly(name.rpartition(".")[0], name, "", *each) for name, each in far_from_usual(attempts, "an attempt")]
    found += [Anomaly(name, "", "", *each) for name, each in far_from_usual(tasks, "a task")]
    found += [Anomaly("", "", name, *each) for name, each in far_from_usual(days, "a day")]
    return Anomalies(sorted(found, key=lambda each: -each.usd)[:ANOMALIES_MAX])


def far_from_usual(costs: Mapping[str, float], what: str) -> Iterable[tuple[str, tuple[float, float, float, str]]]:
    """Yields what cost more than three median deviations above the median; what cost nothing is left out."""
    paid = {name: usd for name, usd in costs.items() if usd > 0}
    if len(paid) < SAMPLE_MIN:
        return
    usual = statistics.median(paid.values())
    spread = statistics.median(abs(usd - usual) for usd in paid.values())
    most = usual + DEVIATIONS * max(spread, SPREAD_MIN * usual)
    for name, usd in paid.items():
        if usd > most:
            words = f"{name} cost {usd:.2f} USD, {usd / usual:.1f} times as much as {what} usually does"
            yield name, (usd, usual, usd / usual, words)


OPERATIONS = [
    Operation("GET", "/costs", "costs", "What work has cost, by task, agent, model or day.", costs, answer=Costs,
              lane="aside", query=CostQuery, tag="costs"),
    Operation("GET", "/costs/history", "cost_history", "What each day has cost.", history, answer=CostHistory,
              query=HistoryQuery, tag="costs"),
    Operation("GET", "/costs/anomalies", "cost_anomalies", "What cost far more than usual.", anomalies,
              answer=Anomalies, lane="aside", tag="costs"),
]  # fmt: skip
