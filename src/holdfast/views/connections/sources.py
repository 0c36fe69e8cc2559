"""The issue trackers as rows: when each was last asked, what it left of its limit, and what went wrong."""

from __future__ import annotations

import msgspec

from holdfast.config.settings import Config
from holdfast.domain.wording import moment
from holdfast.integrations.trackers.memory import recall
from holdfast.layout import Layout


class SourceRow(msgspec.Struct, frozen=True, kw_only=True):
    """`remaining`: requests that are left until `resets_at`; null where the tracker does not say. `synced_at`: the last
    round that saw everything, 0 where there was none. `not_before`: it wants no request until then."""

    name: str
    tracker: str
    project: str
    synced_at: float = 0.0
    remaining: int | None = None
    resets_at: float = 0.0
    not_before: float = 0.0
    error: str = ""


def source_rows(config: Config, layout: Layout) -> list[SourceRow]:
    rows = []
    for source in config.sources:
        memory = recall(layout, source)
        rows.append(
            SourceRow(
                name=source.name,
                tracker=source.tracker,
                project=source.project,
                synced_at=memory.synced_at,
                remaining=memory.limit.remaining,
                resets_at=memory.limit.resets_at,
                not_before=memory.not_before,
                error=memory.error,
            )
        )
    return rows


def source_words(row: SourceRow, now: float) -> str:
    asked = f"asked at {moment(row.synced_at)}" if row.synced_at else "not asked yet"
    limit = limit_words(row.remaining, row.resets_at, row.not_before, now)
    return "; ".join(filter(None, (f"{row.name}: {asked}", limit, row.error)))


def limit_words(remaining: int | None, resets_at: float, not_before: float, now: float) -> str:
    """What a tracker says of its limit; empty where it says nothing, or what it said is over."""
    if not_before > now:
        return f"it wants no request before {moment(not_before)}"
    if remaining is None or (resets_at and resets_at <= now):
        return ""
    return f"{remaining:,} requests left" + (f" until {moment(resets_at)}" if resets_at else "")
