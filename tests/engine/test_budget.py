from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.config.sections import Budgets
from holdfast.config.settings import Config
from holdfast.domain.definition import Definition
from holdfast.domain.spend import DAY_S, Caps, Spend
from holdfast.domain.state import State
from holdfast.domain.task import TaskState
from holdfast.domain.task_record import LastStart, Task
from holdfast.engine.budget import BudgetRefusal, binding, reserve

NAMES = ("usd", "tokens", "turns", "seconds")
NOW = 20_000 * DAY_S + 100.0


def config(**caps: Any) -> Config:
    return Config(budgets=Budgets(**caps))


def task(name: str, state: TaskState = TaskState.OPEN, start: LastStart | None = None, **spent: Any) -> Task:
    return Task(name, state, "", 0.0, 0.0, start=start or LastStart(), spent=Spend(**spent))


def state_of(*tasks: Task, run: Spend = Spend(), day: Spend = Spend()) -> State:  # noqa: B008
    state = State()
    state.load([msgspec.json.encode({"epoch": 0, "run": run, "days": {20_000: day}})])
    state.tasks = {each.id: each for each in tasks}
    return state


def ask(state: State, name: str, settings: Config, free_slots: int = 1, **definition: Any) -> Caps | BudgetRefusal:
    return reserve(state, state.tasks[name], Definition(name, **definition), settings, NOW, free_slots)


def test_without_caps_nothing_is_limited() -> None:
    assert ask(state_of(task("a")), "a", Config()) == Caps()


def test_the_least_of_task_run_and_day_counts() -> None:
    settings = config(usd_per_task=5.0, usd_per_run=12.0, usd_per_day=100.0, turns_per_day=9)
    state = state_of(task("a", usd=2.0), run=Spend(usd=4.0), day=Spend(turns=3))
    assert ask(state, "a", settings) == Caps(usd=3.0, turns=6)
    assert ask(state, "a", settings, free_slots=4) == Caps(usd=2.0, turns=1)
    assert ask(state, "a", settings, budget_usd=2.5) == Caps(usd=0.5, turns=6)


def test_a_reserved_budget_is_not_given_out_twice() -> None:
    settings = config(usd_per_run=10.0, tokens_per_day=1000)
    start = LastStart(reserved=Caps(usd=4.0, tokens=600), used=Spend(usd=1.0, tokens=700))
    working = task("b", TaskState.IN_PROGRESS, start)
    state = state_of(task("a"), working, run=Spend(usd=1.0), day=Spend(tokens=700))
    assert ask(state, "a", settings) == Caps(usd=6.0, tokens=300)
    own = replace(working, id="a")
    assert ask(state_of(own, run=Spend(usd=1.0)), "a", settings) == Caps(usd=9.0, tokens=1000)


@pytest.mark.parametrize("name", NAMES)
def test_a_used_up_budget_is_refused_with_its_setting(name: str) -> None:
    spent = Spend(**{name: 10})
    of_task = ask(state_of(task("a", TaskState.OPEN, **{name: 10})), "a", config(**{f"{name}_per_task": 10}))
    assert isinstance(of_task, BudgetRefusal) and of_task.until is None and of_task.scope == "task"
    assert f"budgets.{name}_per_task" in of_task.reason
    of_run = ask(state_of(task("a"), run=spent), "a", config(**{f"{name}_per_run": 10}))
    assert isinstance(of_run, BudgetRefusal) and of_run.until is None and of_run.scope == "run"
    of_day = ask(state_of(task("a"), day=spent), "a", config(**{f"{name}_per_day": 10}))
    assert isinstance(of_day, BudgetRefusal) and of_day.until == 20_001 * DAY_S and of_day.scope == "day"
    assert f"budgets.{name}_per_day" in of_day.reason


def test_a_task_may_have_no_dollars_at_all() -> None:
    refused = ask(state_of(task("a")), "a", Config(), budget_usd=0.0)
    assert isinstance(refused, BudgetRefusal) and "budget_usd of the task" in refused.reason


@pytest.mark.parametrize("scope", ["run", "day"])
def test_a_budget_that_is_only_reserved_is_waited_for(scope: str) -> None:
    working = task("b", TaskState.CLAIMED, start=LastStart(reserved=Caps(usd=10.0)))
    refused = ask(state_of(task("a"), working), "a", config(**{f"usd_per_{scope}": 10.0}))
    assert refused == BudgetRefusal(refused.reason, None, scope, reserved=True)  # type: ignore[union-attr, arg-type]


def test_the_cap_that_was_hit_decides_between_failed_and_given_back() -> None:
    def hit(settings: Config, working: Task, run: Spend = Spend(), day: Spend = Spend()) -> str:  # noqa: B008
        return binding(working, Definition("a"), settings, state_of(working, run=run, day=day), "usd")

    both = config(usd_per_task=5.0, usd_per_run=20.0, usd_per_day=30.0)
    whole = task("a", TaskState.IN_PROGRESS, usd=5.1, start=LastStart(reserved=Caps(usd=5.0), used=Spend(usd=5.1)))
    assert hit(both, whole, Spend(usd=5.1), Spend(usd=5.1)) == "task"
    # Ended in the middle of a turn, whose cost is not in the journal: what was reserved tells.
    midway = task("a", TaskState.IN_PROGRESS, usd=4.0, start=LastStart(reserved=Caps(usd=3.0), used=Spend(usd=2.0)))
    assert hit(both, midway, Spend(usd=4.0), Spend(usd=4.0)) == "task"
    share = task("a", TaskState.IN_PROGRESS, usd=2.0, start=LastStart(reserved=Caps(usd=1.0), used=Spend(usd=1.0)))
    assert hit(both, share, Spend(usd=2.0), Spend(usd=2.0)) == "run"
    assert hit(both, share, Spend(usd=2.0), Spend(usd=29.0)) == "day"
    assert hit(config(usd_per_day=2.0), share, Spend(usd=2.0), Spend(usd=2.0)) == "day"
    assert hit(Config(), share) == "run"


SCOPES = ("run", "day")
costs = st.builds(
    Spend,
    usd=st.floats(0, 0.5, allow_nan=False),
    tokens=st.integers(0, 50),
    turns=st.just(1),
    seconds=st.floats(0, 5, allow_nan=False),
)
agents = st.integers(0, 2)
events = st.one_of(
    st.tuples(st.just("start"), agents, st.integers(1, 3)),
    st.tuples(st.just("turns"), agents, st.lists(costs, min_size=1, max_size=12)),
    st.tuples(st.just("end"), agents, st.none()),
)
RANGES = {
    "usd": st.floats(0.1, 5),
    "tokens": st.integers(1, 500),
    "turns": st.integers(1, 12),
    "seconds": st.floats(1, 50),
}
settings_of = {f"{name}_per_{scope}": values for name, values in RANGES.items() for scope in SCOPES}
# One cap at a time shows what it does; all together show that none hides another.
limits = st.one_of(
    *(st.fixed_dictionaries({setting: values}) for setting, values in settings_of.items()),
    st.fixed_dictionaries({}, optional=settings_of),
)
all_start = st.tuples(*(st.tuples(st.just("start"), st.just(number), st.integers(1, 3)) for number in range(3)))


@given(limits, all_start, st.lists(events, max_size=30))
def test_each_agent_overshoots_by_one_turn_at_most_however_starts_turns_and_ends_fall(
    caps: dict[str, Any], starts: tuple[tuple[str, int, Any], ...], later: list[tuple[str, int, Any]]
) -> None:
    """The runner's rule: a turn is begun only while the start's caps are not used up. Turns of zero cost never end."""
    settings = config(**caps)
    state = state_of(*(task(str(number)) for number in range(3)))
    last = {name: [0.0] * 3 for name in NAMES}
    for kind, number, what in [*starts, *later]:
        working = state.tasks[str(number)]
        is_at_work = working.state is TaskState.IN_PROGRESS
        if kind == "start" and not is_at_work:
            given_caps = ask(state, working.id, settings, what)
            if isinstance(given_caps, Caps):
                working.state, working.start = TaskState.IN_PROGRESS, LastStart(reserved=given_caps)
        elif kind == "turns" and is_at_work:
            for cost in what:
                if working.start.reserved.exceeded(working.start.used):
                    break
                working.start = replace(working.start, used=working.start.used + cost)
                state.spend(working, cost, NOW)
                for name in NAMES:
                    last[name][number] = max(last[name][number], getattr(cost, name))
        elif kind == "end":
            working.state, working.start = TaskState.OPEN, replace(working.start, reserved=Caps())
        for setting, cap in caps.items():
            name = setting.split("_")[0]
            spent = getattr(state.run, name)
            assert spent <= (cap + sum(last[name])) * (1 + 1e-9), setting
            if name == "turns":
                assert spent <= cap, "a turn is one, so nothing is overshot"
