"""Which agent works on a task, with which model, and why: a pure function of the definition, the rules and the task.

In this order: what the task itself names; what its attempt began with, where that goes on; the next step of the cascade
after an attempt that was too weak; the first route that fits; the first step of the cascade; the default. A route that
leads to a step of the cascade begins there, and goes on from there.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from holdfast.domain.definition import Definition
from holdfast.domain.graph import Node
from holdfast.domain.state import Task

PRIORITY: int = Node.__struct_defaults__[2]
PRIORITY_PATTERN = r"^(<=|>=|<|>|=)? ?(-?[0-9]{1,9})\Z"
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}
# Failures that a stronger agent would have had, too.
NOT_WEAK = frozenset({"conflict", "auth_missing", "limit"})


class Step(Protocol):
    @property
    def agent(self) -> str: ...
    @property
    def model(self) -> str | None: ...


class Route(Step, Protocol):
    @property
    def role(self) -> str | None: ...
    @property
    def label(self) -> str | None: ...
    @property
    def priority(self) -> int | str | None: ...


class Rules(Protocol):
    """`agent` and `model` are for a task that nothing else decides on."""

    @property
    def agent(self) -> str: ...
    @property
    def model(self) -> str | None: ...
    @property
    def routes(self) -> Sequence[Route]: ...
    @property
    def cascade(self) -> Sequence[Step]: ...


class Choice(msgspec.Struct, frozen=True):
    """`model`: empty where the agent chooses. `why` is for people."""

    agent: str
    model: str
    why: str


def choose(made: Definition, rules: Rules, task: Task | None = None) -> Choice:
    """For the next claim of the task; None: nobody has worked on it yet."""
    default = made.model or rules.model or ""
    if made.agent:
        return Choice(made.agent, made.model or _default_model(made.agent, rules), "named by the task")
    if made.command:
        return Choice("command", default, "the task has a command")
    if made.script:
        return Choice("scripted", default, "the task has a script")
    if task is not None and task.continues and task.worked_by:
        return Choice(task.worked_by, made.model or task.model, f"goes on with {task.attempt}")
    # A model of the task's own fits no step of the cascade.
    steps = () if made.model else rules.cascade
    if task is not None and task.failed and (stronger := _after(steps, rules, task)) is not None:
        return stronger
    return _first(made, rules, steps)


def _default_model(agent: str, rules: Rules) -> str:
    """The default model is the default agent's: another one may not know it."""
    return (rules.model or "") if agent == rules.agent else ""


def _model(step: Step, rules: Rules) -> str:
    return step.model or _default_model(step.agent, rules)


def twice(rules: Rules) -> int:
    """The number, from 0, of a step of the cascade that stands there before; -1 where none does.

    Which step an attempt was is known by its agent and model, so that a step that is there twice would lead in a circle
    or past those between.
    """
    found = [(step.agent, _model(step, rules)) for step in rules.cascade]
    return next((number for number, step in enumerate(found) if step in found[:number]), -1)


def _after(steps: Sequence[Step], rules: Rules, task: Task) -> Choice | None:
    """The step behind the one that failed; None where no step did."""
    models = [(step.agent, _model(step, rules)) for step in steps]
    if (task.worked_by, task.model) not in models:
        return None
    tried = models.index((task.worked_by, task.model))
    number = tried if task.failed in NOT_WEAK else min(tried + 1, len(steps) - 1)
    again = " again" if number == tried else ""
    return Choice(*models[number], f"cascade step {number + 1}{again} after {task.failed}")


def _first(made: Definition, rules: Rules, steps: Sequence[Step]) -> Choice:
    for number, route in enumerate(rules.routes, 1):
        if _fits(route, made):
            return Choice(route.agent, made.model or _model(route, rules), f"route {number}: {_conditions(route)}")
    if steps:
        return Choice(steps[0].agent, _model(steps[0], rules), "cascade step 1")
    return Choice(rules.agent, made.model or rules.model or "", "the default")


def _fits(route: Route, made: Definition) -> bool:
    """Whether every condition that the route names holds; one without any fits all."""
    return (
        route.role in (None, made.role)
        and (route.label is None or route.label in made.labels)
        and (route.priority is None or _compare(route.priority, made.priority))
    )


def _compare(wanted: int | str, priority: int | None) -> bool:
    given = PRIORITY if priority is None else priority
    found = re.match(PRIORITY_PATTERN, str(wanted))
    return found is not None and _COMPARE[found[1] or "="](given, int(found[2]))


def _conditions(route: Route) -> str:
    named = [f"{name}={value}" for name in ("role", "label") if (value := getattr(route, name)) is not None]
    if route.priority is not None:
        written = str(route.priority)
        named.append("priority" + (written if written[0] in "<>=" else f"={written}"))
    return ", ".join(named) or "any task"
