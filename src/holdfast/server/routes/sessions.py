"""Sessions: each sitting of an agent on an attempt."""

from __future__ import annotations

import itertools

import msgspec

from holdfast.server.api_state import Api
from holdfast.server.operations import Ask, NewestQuery, Operation


class SessionRow(msgspec.Struct, frozen=True):
    """`session` is the agent's own name for its conversation; `ended` is null while it works."""

    attempt: str
    task: str
    agent: str
    start: int
    session: str
    began: float
    ended: float | None
    turns: int


class Sessions(msgspec.Struct, frozen=True):
    """The newest first."""

    sessions: list[SessionRow]


def sessions(api: Api, ask: Ask) -> Sessions:
    query: NewestQuery = ask.query
    with api.chronicle as told:
        newest = (each for each in reversed(told.sittings) if not query.task or each.task == query.task)
        return Sessions(
            [
                SessionRow(
                    each.attempt, each.task, each.agent, each.start, each.session, each.began, each.ended, each.turns
                )
                for each in itertools.islice(newest, query.limit)
            ]
        )


OPERATIONS = [
    Operation("GET", "/sessions", "sessions", "Each sitting of an agent on an attempt.", sessions, Sessions,
              lane="aside", query=NewestQuery, tag="agents"),
]  # fmt: skip
