"""Chooses the agent and the model for a task, with the reason: a pure function of definition, rules and task.

In this order: whom a person gave the attempt to; what the task itself names; what its attempt began with, where that
goes on; the next step of the cascade after an attempt that was too weak; the first route that fits; the first step of
the cascade; the default. A route that leads to a step of the cascade begins there, and goes on from there. Where the
agent that is chosen so cannot use its model, and `on_outage` says `next`, the next step of the cascade that can use its
own has the task.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from holdfast.domain.definition import Definition
from holdfast.domain.graph import PRIORITY
from holdfast.domain.task_record import LastClaim, Task

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


class NamedRule(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def on_outage(self) -> str | None: ...


class CascadeStep(Protocol):
    @property
    def agent(self) -> str: ...
    @property
    def model(self) -> str | None: ...
    @property
    def on_outage(self) -> str | None: ...


class Route(CascadeStep, Protocol):
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
    def cascade(self) -> Sequence[CascadeStep]: ...
    @property
    def agents(self) -> Sequence[NamedRule]: ...
    @property
    def on_outage(self) -> str: ...


class Choice(msgspec.Struct, frozen=True):
    """`model`: empty where the agent chooses. `why` is for people."""

    agent: str
    model: str
    why: str


# Whether an agent, with a model, cannot be used for now.
IsDown = Callable[[str, str], bool]


def choose(
    made: Definition, rules: Rules, task: Task | None = None, is_down: IsDown = lambda agent, model: False
) -> Choice:
    """For the next claim of the task; None: nobody has worked on it yet."""
    choice = _choose(made, rules, task)
    if made.agent or made.command or made.script or not is_down(choice.agent, choice.model):
        return choice
    return _instead(made, rules, choice, is_down) or choice


def _instead(made: Definition, rules: Rules, choice: Choice, is_down: IsDown) -> Choice | None:
    """The next step of the cascade that can be used, behind the one that cannot; None: the task waits."""
    models = [(step.agent, _model(step, rules)) for step in (() if made.model else rules.cascade)]
    at = models.index((choice.agent, choice.model)) if (choice.agent, choice.model) in models else -1
    own = [rules.cascade[at].on_outage] if at >= 0 else []
    own += [route.on_outage for route in rules.routes if route.agent == choice.agent and _fits(route, made)][:1]
    own += [each.on_outage for each in rules.agents if each.name == choice.agent]
    if next((each for each in own if each is not None), rules.on_outage) != "next":
        return None
    usable = ((number, step) for number, step in enumerate(models) if number > at and not is_down(*step))
    number, step = next(usable, (-1, None))
    return step and Choice(*step, f"cascade step {number + 1} while {choice.agent} cannot use its model")


def _choose(made: Definition, rules: Rules, task: Task | None) -> Choice:
    default = made.model or rules.model or ""
    if task is not None and task.continues and task.assigned[0]:
        return Choice(*task.assigned, "a person gave it the attempt")
    if made.agent:
        return Choice(made.agent, made.model or _default_model(made.agent, rules), "named by the task")
    if made.command:
        return Choice("command", default, "the task has a command")
    if made.script:
        return Choice("scripted", default, "the task has a script")
    if task is not None and task.continues and task.claim.worked_by:
        return Choice(task.claim.worked_by, made.model or task.claim.model, f"goes on with {task.attempt.id}")
    # A model of the task's own fits no step of the cascade.
    steps = () if made.model else rules.cascade
    if task is not None and task.attempt.failed and (stronger := _after(steps, rules, task)) is not None:
        return stronger
    return _first(made, rules, steps)


def _default_model(agent: str, rules: Rules) -> str:
    """The default model is the default agent's: another one may not know it."""
    return (rules.model or "") if agent == rules.agent else ""


def _model(step: CascadeStep, rules: Rules) -> str:
    return step.model or _default_model(step.agent, rules)


def model_for(agent: str, rules: Rules) -> str:
    """The model that an agent is given by its name alone: its step's of the cascade, or the default agent's."""
    return next((_model(step, rules) for step in rules.cascade if step.agent == agent), _default_model(agent, rules))


def after_this(rules: Rules, claim: LastClaim) -> tuple[str, str] | None:
    """The agent and the model of the step behind that of the claim; None where there is none."""
    models, this = [(step.agent, _model(step, rules)) for step in rules.cascade], (claim.worked_by, claim.model)
    return models[models.index(this) + 1] if this in models[:-1] else None


def twice(rules: Rules) -> int:
    """The number, from 0, of a step of the cascade that stands there before; -1 where none does.

    Which step an attempt was is known by its agent and model, so that a step that is there twice would lead in a circle
    or past those between.
    """
    found = [(step.agent, _model(step, rules)) for step in rules.cascade]
    return next((number for number, step in enumerate(found) if step in found[:number]), -1)


def _after(steps: Sequence[CascadeStep], rules: Rules, task: Task) -> Choice | None:
    """The step behind the one that failed; None where no step did."""
    models, this = [(step.agent, _model(step, rules)) for step in steps], (task.claim.worked_by, task.claim.model)
    if this not in models:
        return None
    tried = models.index(this)
    number = tried if task.attempt.failed in NOT_WEAK else min(tried + 1, len(steps) - 1)
    again = " again" if number == tried else ""
    return Choice(*models[number], f"cascade step {number + 1}{again} after {task.attempt.failed}")


def _first(made: Definition, rules: Rules, steps: Sequence[CascadeStep]) -> Choice:
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
