"""The decision `sync`: the run asks its issue trackers at once, and not only when their time has come."""

from __future__ import annotations

import msgspec

from holdfast.decisions.context import Answer, DecisionContext
from holdfast.errors import NobodySyncs, SourceUnknown


class SyncRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`sources`: their names; none: all of them."""

    sources: list[str] = []


def sync_now(decision: DecisionContext, asked: SyncRequest) -> Answer:
    """Answers before anything has come of it: the run asks beside its work."""
    known = [each.name for each in decision.config.sources]
    for name in asked.sources:
        if name not in known:
            raise SourceUnknown(source=name, known=", ".join(known) or "none")
    poke = decision.context.poke
    if poke is None:
        raise NobodySyncs()
    names = asked.sources or known
    for name in names:
        poke(f"sync:{name}")
    return decision.answer(sources=names)
