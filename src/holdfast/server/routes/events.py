"""`/events`: what happens, as it happens."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec
from starlette.responses import Response

from holdfast.server.api_state import Api
from holdfast.server.event_feed import EventStream, everything, parse_cursor
from holdfast.server.operations import Ask, Operation


class EventQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`after` is a cursor, `run:seq`, like the header Last-Event-ID, which wins. Without one it begins with now."""

    after: str = ""
    task: str = ""
    kind: tuple[str, ...] = ()


def follow(api: Api, ask: Ask) -> Response:
    query: EventQuery = ask.query
    text = ask.headers.get("last-event-id") or query.after
    after = parse_cursor(text) if text else None
    own = ask.principal.task

    def fits(task: str, kind: str) -> bool:
        if own and task != own:
            return False
        return (not query.task or task == query.task) and (not query.kind or kind in query.kind)

    api.room.expect(ask.client)
    is_good = api.tokens.standing(ask.principal)

    async def frames() -> AsyncGenerator[bytes, None]:
        with api.room.held(ask.client):
            async for each in api.feed.follow(after, fits if own or query.task or query.kind else everything):
                if not is_good():
                    return
                yield each

    return EventStream(frames())


OPERATIONS = [
    Operation("GET", "/events", "follow_events", "Follow what happens, as server-sent events with resumable cursors.",
              follow, answer=str, right="any", query=EventQuery, tag="events", problems=(422, 429),
              media_type="text/event-stream"),
]  # fmt: skip
