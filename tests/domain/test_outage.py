"""Outages in the fold: unusable agents, until when, which task tries first, and which agent gets the others."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.config.sections import DeclaredAgent, RouteSettings, StepSettings
from holdfast.config.settings import Config
from holdfast.domain import outage
from holdfast.domain.definition import Definition
from holdfast.domain.fsm import Reason
from holdfast.domain.outage import Outage, Policy
from holdfast.domain.routing import choose
from holdfast.domain.state import State, fold
from holdfast.domain.task_record import Task
from holdfast.engine import outages

POLICY = Policy(3, 10.0, 100.0)


def _down(*agents: str) -> Any:
    return lambda agent, model: agent in agents


def test_on_outage_is_of_the_step_then_the_route_then_the_agent_then_all() -> None:
    made, two = Definition("a", goal="a"), StepSettings("two")
    assert choose(made, Config(cascade=(StepSettings("one"), two)), None, _down("one")).agent == "one"
    assert choose(made, Config(cascade=(StepSettings("one"), two), on_outage="next"), None, _down("one")).agent == "two"
    assert (
        choose(
            made, Config(cascade=(StepSettings("one", on_outage="wait"), two), on_outage="next"), None, _down("one")
        ).agent
        == "one"
    )
    assert choose(made, Config(cascade=(StepSettings("one"), two), on_outage="next"), None, _down("one")).why == (
        "cascade step 2 while one cannot use its model"
    )
    routed = Config(routes=(RouteSettings("far", on_outage="next"),), cascade=(StepSettings("one"), two))
    assert choose(made, routed, None, _down("far", "one")).agent == "two"
    declared = DeclaredAgent("own", ("own",), on_outage="next")
    assert (
        choose(
            made,
            Config(agent="own", agents=(declared,), routes=(RouteSettings("own"),), cascade=(two,)),
            None,
            _down("own"),
        ).agent
        == "two"
    )
    every = Config(cascade=(StepSettings("one"), two), on_outage="next")
    assert choose(made, every, None, _down("one", "two")).agent == "one"
    named = Definition("a", goal="a", agent="one")
    assert choose(named, every, None, _down("one")).agent == "one", "a task that names its agent waits for it"


# -- the fold ---------------------------------------------------------------------------------------------------------


class _Entry(msgspec.Struct):
    seq: int
    timestamp: float
    decision_type: str
    inputs: dict[str, Any]
    output: dict[str, Any] = {}
    entry_hash: str = ""


class _Journal:
    def __init__(self) -> None:
        self.entries: list[tuple[str, _Entry]] = []
        self.at = 1000.0

    def add(self, kind: str, **inputs: Any) -> None:
        self.entries.append(("r", _Entry(len(self.entries) + 1, self.at, kind, inputs)))

    def task(self, name: str) -> None:
        self.add("task_added", task=name, definition="d")

    def start(self, name: str, start: int = 1, endpoint: str = "") -> None:
        claimed = {"task": name, "event": "agent_claims_task", "reason": "scheduled", "attempt": f"{name}.1"}
        self.add("task_claimed", **claimed, agent="claude", endpoint=endpoint)
        self.add("task_spawn_intent", task=name, attempt=f"{name}.1", start=start)
        self.add("task_started", task=name, event="agent_starts_work", reason="scheduled", attempt=f"{name}.1")

    def unreachable(self, name: str, until: float, reason: str = "unreachable") -> None:
        moved = {"task": name, "event": "requeue", "reason": reason, "attempt": f"{name}.1", "until": until}
        self.add("task_opened", **moved, outcome={"detail": "no route"})

    def turn(self, name: str, turn: int) -> None:
        self.add("turn_completed", task=name, attempt=f"{name}.1", turn=turn, end_offset=turn)

    @property
    def state(self) -> State:
        return fold(self.entries)

    @property
    def outage(self) -> Outage | None:
        return next(iter(self.state.outages.values()), None)


def test_starts_that_fail_together_count_once() -> None:
    journal = _Journal()
    for name in ("a", "b", "c"):
        journal.task(name)
        journal.start(name)
    for name in ("a", "b", "c"):
        journal.unreachable(name, 1010.0)
    found = journal.outage
    assert found is not None and (found.in_a_row, found.rounds, found.until) == (3, 1, 1010.0)
    assert outage.blocked_until(found, 1005.0, POLICY) == 1010.0
    assert outage.blocked_until(found, 1010.0, POLICY) is None, "nobody may try"
    journal.at = 1011.0
    journal.start("a", 2)
    assert outage.blocked_until(journal.outage, 1011.0, POLICY) == float("inf"), "a second one goes beside the probe"
    journal.unreachable("a", 1031.0)
    found = journal.outage
    assert found is not None and (found.in_a_row, found.rounds, found.since, found.until) == (4, 2, 1000.0, 1031.0)


def test_a_turn_of_an_older_start_proves_nothing_and_one_of_the_probe_does() -> None:
    journal = _Journal()
    for name in ("a", "b"):
        journal.task(name)
        journal.start(name)
    journal.unreachable("a", 1010.0)
    journal.turn("b", 1)
    assert journal.outage is not None, "b began before"
    journal.start("a", 2)
    journal.turn("a", 1)
    assert journal.outage is None


def test_endpoints_are_apart_and_the_checkpoint_keeps_them() -> None:
    journal = _Journal()
    for name, where in (("a", "here"), ("b", "there")):
        journal.task(name)
        journal.start(name, endpoint=where)
        journal.unreachable(name, 1010.0)
    folded = journal.state
    assert set(folded.outages) == {("claude", "here"), ("claude", "there")}
    loaded = State()
    loaded.load(list(folded.dump()))
    assert loaded.outages == folded.outages
    assert all(each.in_a_row == 1 for each in loaded.outages.values())
    (row, _) = outages.rows(folded, Config(), 1005.0)
    assert row.text == "claude (here) is unreachable since 1970-01-01 00:16:40Z, next try at 1970-01-01 00:16:50Z"
    assert not row.open


def test_pauses_grow_within_bounds_and_differ() -> None:
    before, found = None, []
    now = 0.0
    for _ in range(6):
        until = outage.next_try(before, now, POLICY, 0.0)
        found.append(until - now)
        before = outage.after(before, ("claude", ""), Reason.UNREACHABLE, "", at=now, until=until)
        now = until
    assert found == [10, 20, 40, 80, 100, 100]
    assert outage.next_try(None, 0.0, POLICY, 1.0) == 12.5
    assert outage.next_try(before, now - 1, POLICY, 0.5) == now, "who fails during a pause waits for its end"


def test_a_probe_that_ends_otherwise_makes_room_for_the_next() -> None:
    journal = _Journal()
    journal.task("a")
    journal.start("a")
    journal.unreachable("a", 1010.0)
    journal.start("a", 2)
    journal.add("task_orphaned", task="a", event="crash", reason="crashed", attempt="a.1")
    found = journal.outage
    assert found is not None and not found.probes
    task: Task = journal.state.tasks["a"]
    assert task.claim.endpoint == ""
