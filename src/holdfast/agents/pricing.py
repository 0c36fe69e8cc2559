"""Warns where a budget in dollars cannot work, because the model's price is unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.agents.common import prices
from holdfast.config.settings import Config
from holdfast.ports import Agent


def unpriced(config: Config, known: Mapping[str, Agent], asked: Iterable[tuple[str, str]]) -> list[str]:
    """A sentence for each of the agents and models asked for whose cost would count as nothing."""
    budgets = config.budgets
    if budgets.usd_per_task is None and budgets.usd_per_run is None and budgets.usd_per_day is None:
        return []
    own = {name: price.per_million for name, price in config.prices.items()}
    warnings = []
    for name, model in dict.fromkeys(asked):
        agent = known.get(name)
        # The others report the cost, or the model, themselves.
        if agent is None or agent.can.cost != "estimated" or prices.price(model, own) is not None:
            continue
        if model:
            warnings.append(
                f"No price is known for {model}, with which {name} works: it counts as $0, and no budget of dollars "
                "holds. Write its price in `prices` of the settings, or set a budget of tokens."
            )
        elif not getattr(agent, "names_model", False):
            warnings.append(
                f"{name} does not say which model it works with: it counts as $0, and no budget of dollars holds. "
                "Name a `model`, or set a budget of tokens."
            )
    return warnings
