"""`/events`: what happens, as it happens."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

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

    is_filtered = own or query.task or query.kind
    return stream(api, ask, api.feed.follow(after, fits if is_filtered else everything))


def stream(api: Api, ask: Ask, frames: AsyncIterator[bytes], *, is_to_the_end: bool = False) -> EventStream:
    """Counts the stream, and ends it when the token is worth nothing any more, unless an agent has to see the end."""
    api.room.expect(ask.client)
    is_good = api.tokens.standing(ask.principal)

    async def sent() -> AsyncGenerator[bytes, None]:
        with api.room.held(ask.client):
            async for each in frames:
                if not is_good() and not is_to_the_end:
                    return
                yield each

    return EventStream(sent())


OPERATIONS = [
    Operation("GET", "/events", "follow_events", "Follow what happens, as server-sent events with resumable cursors.",
              follow, answer=str, right="any", query=EventQuery, tag="events", problems=(422, 429),
              media_type="text/event-stream"),
]  # fmt: skip
