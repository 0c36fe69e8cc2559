"""The budget of a start. Pure: the state, the settings and the time decide.

Three caps hold at once: the task's, the run's and the UTC day's, each on dollars, tokens, turns and seconds. A start is
given a share of what is left, and until it ends that share is nobody else's. A runner ends its agent once the share is
used up, and a turn is never cut short for it; so however many agents work, each can overshoot by one turn at most.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from holdfast.config.settings import Config
from holdfast.domain.definition import Definition
from holdfast.domain.spend import DAY_S, Caps, Spend
from holdfast.domain.state import State
from holdfast.domain.task import AT_WORK
from holdfast.domain.task_record import Task

Scope = Literal["task", "run", "day"]
_WORDS = {"usd": "dollars", "tokens": "tokens", "turns": "turns", "seconds": "seconds"}
# Sums of floats differ in their last bits, whichever way they were added up.
_ALIKE = 1e-9


class BudgetRefusal(msgspec.Struct, frozen=True):
    """The reason why nothing is started. `until`: when that may change; None where time alone does not change it.

    `reserved`: it is not used up, but set aside for agents at work; an agent that ends may give some back.
    """

    reason: str
    until: float | None
    scope: Scope
    reserved: bool = False


def reserve(
    state: State, task: Task, definition: Definition, config: Config, now: float, free_slots: int
) -> Caps | BudgetRefusal:
    """The caps of this start. `free_slots`: how many starts share what is left, this one included."""
    day = int(now // DAY_S)
    left = caps(config, "task", definition).less(task.spent)
    if short := _used_up(left):
        return BudgetRefusal(f"The task {task.id} has used up its {_setting(short, 'task', definition)}.", None, "task")
    set_aside = _set_aside(other for other in list(state.tasks.values()) if other.id != task.id)
    allowance = left
    spent: dict[Scope, Spend] = {"run": state.run, "day": state.days.get(day, Spend())}
    for scope, used in spent.items():
        left = caps(config, scope).less(used)
        if short := _used_up(left):
            until = (day + 1) * DAY_S if scope == "day" else None
            return BudgetRefusal(f"The {scope} has used up its {_setting(short, scope)}.", until, scope)
        left = left.less(set_aside)
        if short := _used_up(left):
            reason = f"What the {scope} has left of its {_setting(short, scope)} is set aside for agents at work."
            return BudgetRefusal(reason, None, scope, reserved=True)
        allowance = allowance.least(left.share(max(free_slots, 1)))
    return allowance


def binding(task: Task, definition: Definition, config: Config, state: State, limit_name: str) -> Scope:
    """The cap behind the limit `limit_name` that ended an attempt; asked while the task is in progress.

    The task's own: it has failed. The run's or the day's: it has used its share, and is given back.
    """
    cap = getattr(caps(config, "task", definition), limit_name)
    if cap is not None:
        spent, reserved = getattr(task.spent, limit_name), getattr(task.start.reserved, limit_name)
        before = spent - getattr(task.start.used, limit_name)
        if spent >= cap or (reserved is not None and reserved >= (cap - before) * (1 - _ALIKE)):
            return "task"
    today = state.days[max(state.days)] if state.days else Spend()
    of_run = getattr(caps(config, "run").less(state.run), limit_name)
    of_day = getattr(caps(config, "day").less(today), limit_name)
    return "day" if of_day is not None and (of_run is None or of_day < of_run) else "run"


def caps(config: Config, scope: Scope, definition: Definition | None = None) -> Caps:
    """The caps that are set. What the task itself says wins."""
    found = Caps(*(getattr(config.budgets, f"{name}_per_{scope}") for name in Caps.__struct_fields__))
    own = {name: _own(definition, name) for name in Caps.__struct_fields__} if definition else {}
    return msgspec.structs.replace(found, **{name: value for name, value in own.items() if value is not None})


def _own(definition: Definition, name: str) -> float | int | None:
    found = getattr(definition, f"budget_{name}")
    return float(found) if found is not None and name in ("usd", "seconds") else found


def _set_aside(tasks: Iterable[Task]) -> Spend:
    """The sum that agents at work may still spend. One without a limit reserves nothing, and counts as it spends."""
    total = Spend()
    for task in tasks:
        if task.state in AT_WORK:
            left = task.start.reserved.less(task.start.used)
            total += Spend(left.usd or 0.0, left.tokens or 0, left.turns or 0, left.seconds or 0.0)
    return total


def _used_up(left: Caps) -> str:
    return left.exceeded(Spend())


def _setting(name: str, scope: Scope, definition: Definition | None = None) -> str:
    own = definition is not None and _own(definition, name) is not None
    return f"{_WORDS[name]} ({f'budget_{name} of the task' if own else f'budgets.{name}_per_{scope}'})"
