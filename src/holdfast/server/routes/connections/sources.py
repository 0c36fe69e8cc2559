"""Issue trackers: when each was asked, its limit, and asking them at once."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.decisions.context import DecisionContext
from holdfast.decisions.mailbox import decide
from holdfast.server.api_state import Api
from holdfast.server.operations import Ask, Operation
from holdfast.views.connections.sources import SourceRow, source_rows


class SourceList(msgspec.Struct, frozen=True):
    sources: list[SourceRow]


class SourcesAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`sources`: their names; none: all of them."""

    sources: Annotated[list[Annotated[str, Meta(min_length=1, max_length=100)]], Meta(max_length=100)] = []


def list_sources(api: Api, ask: Ask) -> SourceList:
    return SourceList(source_rows(api.context.config, api.context.layout))


def sync_source(decision: DecisionContext, ask: Ask) -> SourcesAsked:
    return SourcesAsked(decide(decision, "sync", msgspec.structs.asdict(ask.body)).facts["sources"])


OPERATIONS = [
    Operation("GET", "/sources", "list_sources", "Issue trackers: when each was asked, and its limit.", list_sources,
              answer=SourceList, tag="messages", lane="aside"),
    Operation("POST", "/sources/sync", "sync_source", "Ask issue trackers for changes at once.", sync_source,
              answer=SourcesAsked, body=SourcesAsked, right="operate", lane="loop", tag="messages", problems=(422,)),
]  # fmt: skip
