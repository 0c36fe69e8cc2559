"""The source of a cost, from an attempt's spend.jsonl: reported by the agent, or estimated from its tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from holdfast.layout import Attempt
from holdfast.storage.records import ledger

REPORTED, ESTIMATED, PARTLY = "reported", "estimated", "partly estimated"


def cost_of_turns(files: Attempt) -> dict[tuple[int, int], str]:
    """The source of each turn's cost, by start and turn, without turns that cost nothing."""
    lines: dict[tuple[int, int], list[bool]] = {}
    for line in _lines(files):
        lines.setdefault((line["start"], line["turn"]), []).append(bool(line.get("estimated")))
    return {turn: _word(each) for turn, each in lines.items()}


def cost_of_attempts(attempts: Iterable[Attempt]) -> str:
    """The source of the cost of all attempts together. A start's last report replaces what was estimated on the way."""
    last = {(files.root, line["start"]): bool(line.get("estimated")) for files in attempts for line in _lines(files)}
    return _word(list(last.values()))


def spent_by(files: Attempt) -> tuple[float, int]:
    """Dollars and tokens of the whole attempt: an agent's last words, and what it tells only at its end, included."""
    lines = list(_lines(files))
    tokens = sum(line.get("tokens_in", 0) + line.get("tokens_out", 0) for line in lines)
    return sum(line.get("usd", 0.0) for line in lines), tokens


def _lines(files: Attempt) -> Iterator[dict[str, Any]]:
    if files.spend.exists():
        yield from (line.record for line in ledger.LineLedger(files.spend).read())


def _word(estimated: list[bool]) -> str:
    if not estimated:
        return ""
    return ESTIMATED if all(estimated) else PARTLY if any(estimated) else REPORTED
