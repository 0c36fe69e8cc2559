"""What models cost, for agents that do not say it: dollars per million tokens.

The prices are those that LiteLLM 1.106.2 lists, for requests without surcharges. A cost made of them is an estimate.
"""

from __future__ import annotations

from collections.abc import Mapping

AS_OF = "2026-11-15"
MILLION = 1_000_000

# The beginning of a model's name: new tokens in, read from the cache, written to the cache, out.
PRICES: dict[str, tuple[float, float, float, float]] = {
    "claude-fable-5": (10.0, 1.0, 12.5, 50.0),
    "claude-fable-5-1": (10.0, 0.25, 12.5, 50.0),
    "claude-opus-5-5": (4.0, 0.2, 5.0, 20.0),
    "claude-opus-5": (5.0, 0.5, 6.25, 25.0),
    "claude-opus-4-8": (5.0, 0.5, 6.25, 25.0),
    "claude-opus-4-7": (5.0, 0.5, 6.25, 25.0),
    "claude-opus-4-6": (5.0, 0.5, 6.25, 25.0),
    "claude-opus-4-5": (5.0, 0.5, 6.25, 25.0),
    "claude-opus-4": (15.0, 1.5, 18.75, 75.0),
    "claude-sonnet-5-5": (2.0, 0.1, 2.5, 10.0),
    "claude-sonnet-5": (2.0, 0.2, 2.5, 10.0),
    "claude-sonnet-4": (3.0, 0.3, 3.75, 15.0),
    "claude-haiku-5-5": (0.1, 0.01, 0.125, 0.5),
    "claude-haiku-4-5": (1.0, 0.1, 1.25, 5.0),
    "gpt-6.1-sol": (2.0, 0.1, 2.5, 10.0),
    "gpt-6-astra": (10.0, 1.0, 12.5, 50.0),
    "gpt-6-sol": (2.0, 0.2, 2.5, 10.0),
    "gpt-6-luna": (0.1, 0.01, 0.125, 0.5),
    "gpt-5.6-terra": (2.0, 0.2, 2.5, 12.0),
    "gpt-5.6-luna": (0.2, 0.02, 0.25, 1.2),
    "gpt-5.6": (4.0, 0.4, 5.0, 20.0),
    "gpt-5.5": (5.0, 0.5, 0.0, 30.0),
    "gpt-5.4-mini": (0.75, 0.075, 0.0, 4.5),
    "gpt-5.4-nano": (0.2, 0.02, 0.0, 1.25),
    "gpt-5.4": (2.5, 0.25, 0.0, 15.0),
    "gpt-5.3-codex": (1.75, 0.175, 0.0, 14.0),
    "gpt-5.2": (1.75, 0.175, 0.0, 14.0),
    "gpt-5.1-codex-mini": (0.25, 0.025, 0.0, 2.0),
    "gpt-5.1": (1.25, 0.125, 0.0, 10.0),
    "gpt-5-mini": (0.25, 0.025, 0.0, 2.0),
    "gpt-5-nano": (0.05, 0.005, 0.0, 0.4),
    "gpt-5": (1.25, 0.125, 0.0, 10.0),
    "gpt-4.1-mini": (0.4, 0.1, 0.0, 1.6),
    "gpt-4.1": (2.0, 0.5, 0.0, 8.0),
    "gemini-4-argon": (2.0, 0.1, 0.0, 10.0),
    "gemini-3.8-flash": (0.75, 0.075, 0.0, 3.75),
    "gemini-3.7-flash": (0.75, 0.075, 0.0, 3.75),
    "gemini-3.6-flash": (0.75, 0.075, 0.0, 3.75),
    "gemini-3.5-flash-lite": (0.3, 0.03, 0.0, 2.5),
    "gemini-3.5-flash": (1.5, 0.15, 0.0, 9.0),
    "gemini-3.1-flash-lite": (0.25, 0.025, 0.0, 1.5),
    "gemini-3-flash": (0.5, 0.05, 0.0, 3.0),
    "gemini-3-pro": (2.0, 0.2, 0.0, 12.0),
    "gemini-2.5-flash-lite": (0.1, 0.01, 0.0, 0.4),
    "gemini-2.5-flash": (0.3, 0.03, 0.0, 2.5),
    "gemini-2.5-pro": (1.25, 0.125, 0.0, 10.0),
}


# What the settings say instead, or in addition.
_OWN: dict[str, tuple[float, float, float, float]] = {}


def override(prices: Mapping[str, tuple[float, float, float, float]]) -> None:
    """From now on, in this process."""
    _OWN.clear()
    _OWN.update(prices)


def usd(model: str, tokens_in: int, tokens_out: int, *, read: int = 0, written: int = 0) -> float:
    """What these tokens cost, or 0 where the model is not known. `read`, `written`: those of `tokens_in` that the
    cache was read from or written with."""
    names = (model, model.rpartition("/")[2])
    table = {**PRICES, **_OWN}
    fitting = max((known for known in table if any(name.startswith(known) for name in names)), key=len, default=None)
    if fitting is None:
        return 0.0
    new, cached, caching, out = table[fitting]
    plain = max(tokens_in - read - written, 0)
    return (plain * new + read * cached + written * caching + tokens_out * out) / MILLION
