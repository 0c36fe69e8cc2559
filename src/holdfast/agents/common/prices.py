"""Prices of models, for agents that do not report their cost: dollars per million tokens.

The prices are those that LiteLLM 1.106.2 lists, for requests without surcharges. A cost computed from them is an
estimate. A model that is not listed has no price: a name that continues otherwise than with a date or a version is
another model's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.config.settings import Config
    from holdfast.ports import Agent

AS_OF = "2026-11-15"
MILLION = 1_000_000

Price = tuple[float, float, float, float]

# A model's name without its date: new tokens in, read from the cache, written to the cache, out.
PRICES: dict[str, Price] = {
    "claude-fable-5": (10.0, 1.0, 12.5, 50.0),
    "claude-fable-5-1": (10.0, 0.25, 12.5, 50.0),
    "claude-haiku-4-5": (1.0, 0.1, 1.25, 5.0),
    "claude-haiku-5-5": (0.1, 0.01, 0.125, 0.5),
    "claude-mythos-5": (10.0, 1.0, 12.5, 50.0),
    "claude-mythos-5-1": (10.0, 0.25, 12.5, 50.0),
    "claude-mythos-preview": (10.0, 1.0, 12.5, 50.0),
    "claude-opus-4": (15.0, 1.5, 18.75, 75.0),
    "claude-opus-4-1": (15.0, 1.5, 18.75, 75.0),
    "claude-opus-4-5": (5.0, 0.5, 6.25, 25.0),
    "claude-opus-4-6": (5.0, 0.5, 6.25, 25.0),
    "claude-opus-4-7": (5.0, 0.5, 6.25, 25.0),
    "claude-opus-4-8": (5.0, 0.5, 6.25, 25.0),
    "claude-opus-5": (5.0, 0.5, 6.25, 25.0),
    "claude-opus-5-5": (4.0, 0.2, 5.0, 20.0),
    "claude-sonnet-4": (3.0, 0.3, 3.75, 15.0),
    "claude-sonnet-4-5": (3.0, 0.3, 3.75, 15.0),
    "claude-sonnet-4-6": (3.0, 0.3, 3.75, 15.0),
    "claude-sonnet-5": (2.0, 0.2, 2.5, 10.0),
    "claude-sonnet-5-5": (2.0, 0.1, 2.5, 10.0),
    "gemini-2.5-flash": (0.3, 0.03, 0.0, 2.5),
    "gemini-2.5-flash-lite": (0.1, 0.01, 0.0, 0.4),
    "gemini-2.5-pro": (1.25, 0.125, 0.0, 10.0),
    "gemini-3-flash": (0.5, 0.05, 0.0, 3.0),
    "gemini-3-pro": (2.0, 0.2, 0.0, 12.0),
    "gemini-3.1-flash-lite": (0.25, 0.025, 0.0, 1.5),
    "gemini-3.1-pro": (2.0, 0.2, 0.0, 12.0),
    "gemini-3.1-pro-preview-customtools": (2.0, 0.2, 0.0, 12.0),
    "gemini-3.5-flash": (1.5, 0.15, 0.0, 9.0),
    "gemini-3.5-flash-lite": (0.3, 0.03, 0.0, 2.5),
    "gemini-3.6-flash": (0.75, 0.075, 0.0, 3.75),
    "gemini-3.7-flash": (0.75, 0.075, 0.0, 3.75),
    "gemini-3.8-flash": (0.75, 0.075, 0.0, 3.75),
    "gemini-3.8-flash-cyber": (1.5, 0.15, 0.0, 7.5),
    "gemini-4-argon": (2.0, 0.1, 0.0, 10.0),
    "gemini-flash-latest": (0.75, 0.075, 0.0, 3.75),
    "gemini-flash-lite-latest": (0.3, 0.03, 0.0, 2.5),
    "gemini-pro-latest": (2.0, 0.2, 0.0, 12.0),
    "gpt-3.5-turbo": (0.5, 0.5, 0.0, 1.5),
    "gpt-3.5-turbo-0125": (0.5, 0.5, 0.0, 1.5),
    "gpt-3.5-turbo-1106": (1.0, 1.0, 0.0, 2.0),
    "gpt-3.5-turbo-16k": (3.0, 3.0, 0.0, 4.0),
    "gpt-4": (30.0, 30.0, 0.0, 60.0),
    "gpt-4-0613": (30.0, 30.0, 0.0, 60.0),
    "gpt-4-1106-preview": (10.0, 10.0, 0.0, 30.0),
    "gpt-4-turbo": (10.0, 10.0, 0.0, 30.0),
    "gpt-4.1": (2.0, 0.5, 0.0, 8.0),
    "gpt-4.1-mini": (0.4, 0.1, 0.0, 1.6),
    "gpt-4.1-nano": (0.1, 0.025, 0.0, 0.4),
    "gpt-4o": (2.5, 1.25, 0.0, 10.0),
    "gpt-4o-2024-05-13": (5.0, 5.0, 0.0, 15.0),
    "gpt-4o-mini": (0.15, 0.075, 0.0, 0.6),
    "gpt-5": (1.25, 0.125, 0.0, 10.0),
    "gpt-5-chat": (1.25, 0.125, 0.0, 10.0),
    "gpt-5-codex": (1.25, 0.125, 0.0, 10.0),
    "gpt-5-mini": (0.25, 0.025, 0.0, 2.0),
    "gpt-5-nano": (0.05, 0.005, 0.0, 0.4),
    "gpt-5-pro": (15.0, 15.0, 0.0, 120.0),
    "gpt-5.1": (1.25, 0.125, 0.0, 10.0),
    "gpt-5.1-chat": (1.25, 0.125, 0.0, 10.0),
    "gpt-5.1-codex": (1.25, 0.125, 0.0, 10.0),
    "gpt-5.1-codex-max": (1.25, 0.125, 0.0, 10.0),
    "gpt-5.1-codex-mini": (0.25, 0.025, 0.0, 2.0),
    "gpt-5.2": (1.75, 0.175, 0.0, 14.0),
    "gpt-5.2-chat": (1.75, 0.175, 0.0, 14.0),
    "gpt-5.2-codex": (1.75, 0.175, 0.0, 14.0),
    "gpt-5.2-pro": (21.0, 21.0, 0.0, 168.0),
    "gpt-5.3-chat": (1.75, 0.175, 0.0, 14.0),
    "gpt-5.3-codex": (1.75, 0.175, 0.0, 14.0),
    "gpt-5.4": (2.5, 0.25, 0.0, 15.0),
    "gpt-5.4-mini": (0.75, 0.075, 0.0, 4.5),
    "gpt-5.4-nano": (0.2, 0.02, 0.0, 1.25),
    "gpt-5.4-pro": (30.0, 30.0, 0.0, 180.0),
    "gpt-5.5": (5.0, 0.5, 0.0, 30.0),
    "gpt-5.5-cyber": (12.5, 1.25, 0.0, 75.0),
    "gpt-5.5-pro": (30.0, 30.0, 0.0, 180.0),
    "gpt-5.6": (4.0, 0.4, 5.0, 20.0),
    "gpt-5.6-cyber": (12.5, 1.25, 15.625, 75.0),
    "gpt-5.6-luna": (0.2, 0.02, 0.25, 1.2),
    "gpt-5.6-sol": (4.0, 0.4, 5.0, 20.0),
    "gpt-5.6-terra": (2.0, 0.2, 2.5, 12.0),
    "gpt-6-astra": (10.0, 1.0, 12.5, 50.0),
    "gpt-6-luna": (0.1, 0.01, 0.125, 0.5),
    "gpt-6-sol": (2.0, 0.2, 2.5, 10.0),
    "gpt-6.1-sol": (2.0, 0.1, 2.5, 10.0),
    "o1": (15.0, 7.5, 0.0, 60.0),
    "o1-pro": (150.0, 150.0, 0.0, 600.0),
    "o3": (2.0, 0.5, 0.0, 8.0),
    "o3-mini": (1.1, 0.55, 0.0, 4.4),
    "o3-pro": (20.0, 20.0, 0.0, 80.0),
    "o4-mini": (1.1, 0.275, 0.0, 4.4),
}

# How a name may continue: dates, versions, and the words for the newest of a kind.
_DATED = re.compile(
    r"(?:[-@](?:latest|preview|v\d+|\d{3,4}|\d{6,8}|\d{4}-\d\d-\d\d|\d\d-\d{2,4}))*(?::\d+)?(?:\[1m\])?"
)

# Prices of the settings, which win.
_OWN: dict[str, Price] = {}


def override(prices: Mapping[str, Price]) -> None:
    """Sets the prices of the settings, for this process."""
    _OWN.clear()
    _OWN.update(prices)


def price(model: str, own: Mapping[str, Price] | None = None) -> Price | None:
    """The settings' price for the longest name that the model's begins with, else the listed one, else None."""
    ours = _OWN if own is None else own
    # The name as it is, and without the prefix of the provider.
    last = model.rpartition("/")[2]
    bare = last.lower().rpartition("anthropic.")[2]
    names = (model, last, bare.replace(".", "-") if bare.startswith("claude") else bare)
    if fitting := max((known for known in ours if any(name.startswith(known) for name in names)), key=len, default=""):
        return ours[fitting]
    listed = (known for known in PRICES if any(_is_dated(name, known) for name in names))
    fitting = max(listed, key=len, default="")
    return PRICES[fitting] if fitting else None


def _is_dated(name: str, known: str) -> bool:
    return name.startswith(known) and _DATED.fullmatch(name, len(known)) is not None


def usd(model: str, tokens_in: int, tokens_out: int, *, read: int = 0, written: int = 0) -> float:
    """The cost of these tokens; 0 where the model is unknown. `read`, `written`: those of `tokens_in` that were read
    from the cache or written to it."""
    found = price(model)
    if found is None:
        return 0.0
    new, cached, caching, out = found
    plain = max(tokens_in - read - written, 0)
    return (plain * new + read * cached + written * caching + tokens_out * out) / MILLION


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
        if agent is None or agent.can.cost != "estimated" or price(model, own) is not None:
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
