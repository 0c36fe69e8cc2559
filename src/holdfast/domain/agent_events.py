"""Typed events of an agent's stream, the same for every agent: made by its adapter, read by the runner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec


class Said(msgspec.Struct, frozen=True, tag="said"):
    text: str


class SessionBegan(msgspec.Struct, frozen=True, tag="session"):
    """`id` is the agent's own name for the conversation, by which it can be resumed."""

    id: str
    model: str = ""


class ToolStarted(msgspec.Struct, frozen=True, tag="tool_started"):
    """`call` names the call in the stream, so that its end can be told; `input` is what it was called with, as text."""

    name: str
    call: str = ""
    input: str = ""


class ToolEnded(msgspec.Struct, frozen=True, tag="tool_ended"):
    call: str = ""
    ok: bool = True
    output: str = ""


class Spent(msgspec.Struct, frozen=True, tag="spent"):
    """Since the event of this kind before it. `estimated`: from a table of prices, not said by the agent.

    `corrects`: `usd` makes earlier estimates of this start even with what the agent says it cost. It never lowers
    them.
    """

    usd: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    model: str = ""
    estimated: bool = False
    corrects: bool = False


class Compacted(msgspec.Struct, frozen=True, tag="compacted"):
    pass


class RateLimited(msgspec.Struct, frozen=True, tag="rate_limited"):
    """`until` is Unix seconds, or 0 where the agent does not say."""

    until: float = 0.0
    detail: str = ""


class Retrying(msgspec.Struct, frozen=True, tag="retrying"):
    """The agent could not reach its model, and tries again by itself. `detail`: what went wrong, in its own words.

    `tries`: how many times in a row, and `wait_s`: how long it waits before the next; 0 where it does not say.
    """

    detail: str = ""
    tries: int = 0
    wait_s: float = 0.0


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The agent's own last word on the task.

    `kind` is why it cannot go on: REFUSED, AUTH, QUOTA or UNREACHABLE; empty for any other reason. With one of these
    its process is not waited for.
    """

    ok: bool
    detail: str = ""
    kind: str = ""


class PersonAsked(msgspec.Struct, frozen=True, tag="asked"):
    """The agent wants to make this call, and does nothing about it until it is answered (`ports.py:AskingStream`).

    `input` is the whole input, as text. `kind`: see `questions/records.py`. `defers`: it can end now, and be resumed
    with the answer; otherwise its runner holds the request open. `preview`: what it would do, where the agent says
    that itself. `cannot`: why no person can be asked for this call; it is denied with these words where one must be.
    """

    call: str
    name: str
    input: str = ""
    kind: Literal["permission", "words"] = "permission"
    defers: bool = False
    preview: str = ""
    cannot: str = ""


class Unfit(msgspec.Struct, frozen=True, tag="refused"):
    """An output of the agent that could not be used as an event. For observers."""

    detail: str


REFUSED, AUTH, QUOTA, UNREACHABLE = "refused", "auth", "quota", "unreachable"


AgentEvent = (
    Said
    | SessionBegan
    | ToolStarted
    | ToolEnded
    | Spent
    | Compacted
    | RateLimited
    | Retrying
    | Finished
    | PersonAsked
    | Unfit
)

# Those that the lines of a declared agent can be. It cannot be answered, so it cannot ask.
KINDS: dict[str, type[msgspec.Struct]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(AgentEvent) if kind not in (PersonAsked, Unfit)
}


def mapping_problem(events: Mapping[str, str]) -> str:
    """The problem of a declared agent's mapping, in words. Its keys are `<event>.<field>` or `<event>.when`."""
    for key, place in events.items():
        kind, _, field = key.partition(".")
        if kind not in KINDS:
            return f"{key} is no part of an event: known are {', '.join(KINDS)}"
        known = ("when", *KINDS[kind].__struct_fields__)
        if field not in known:
            return f"{key} is no part of {kind}: known are {', '.join(known)}"
        if field == "when" and "=" not in place:
            return f"{key} must be a place, = and a value, such as type=result"
    return ""
