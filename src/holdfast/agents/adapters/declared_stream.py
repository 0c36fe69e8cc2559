"""Reads the JSON lines of a declared agent, by a mapping from the fields of our events to paths in its lines.

    events:
      tool_started.when: type=tool_use      which lines are this event: the value at a place is this one
      tool_started.name: tool.name          where the event's field is; a number is a place in a list
      finished.when: type=result
      finished.ok: subtype=success          a yes-or-no field may be a comparison, or `!place`: whether it is false

An event without a `when` is in every line that has its first field. A line may be several events, in the
order of the mapping. A text field takes any value, as JSON where it is no text. Tokens without a `spent.usd` are
priced by the list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.agents.common import json_fields
from holdfast.agents.common.cli_base import broke_off
from holdfast.domain.agent_events import KINDS, AgentEvent, Finished, RateLimited, Spent, Unfit

_NOTHING = object()
_PLACE = re.compile(r"[0-9]{1,9}")


class Mapped:
    def __init__(self, events: Mapping[str, str], model: str = "") -> None:
        """`model`: the requested one, where a line does not name it."""
        self._model = model
        self._rules: dict[str, dict[str, str]] = {}
        for key, place in events.items():
            kind, _, field = key.partition(".")
            self._rules.setdefault(kind, {})[field] = place
        self._is_finished = False

    def read(self, line: bytes) -> Sequence[AgentEvent]:
        record = json_fields.line(line)
        events = [event for kind, rules in self._rules.items() for event in _events(kind, rules, record)]
        self._is_finished = self._is_finished or any(isinstance(event, Finished) for event in events)
        return events if "usd" in self._rules.get("spent", {"usd": ""}) else [self._priced(event) for event in events]

    def _priced(self, event: AgentEvent) -> AgentEvent:
        if not isinstance(event, Spent):
            return event
        from holdfast.agents.common import prices

        model = event.model or self._model
        tokens = (min(max(count, 0), json_fields.NUMBER_MAX) for count in (event.tokens_in, event.tokens_out))
        usd = prices.usd(model, *tokens)
        return msgspec.structs.replace(event, usd=usd, model=model, estimated=True)

    def end(self, code: int) -> Sequence[AgentEvent]:
        """An agent whose mapping has a final event, and did not send it, has not finished."""
        if self._is_finished or "finished" not in self._rules:
            return ()
        return (broke_off(code),)


def _events(kind: str, rules: Mapping[str, str], record: Any) -> list[AgentEvent]:
    if "when" in rules:
        if not _is_equal(rules["when"], record):
            return []
    elif _at(next(iter(rules.values())), record) is _NOTHING:
        return []
    struct = KINDS[kind]
    types = {field.name: field.type for field in msgspec.structs.fields(struct)}
    values = {name: _value(place, types[name], record) for name, place in rules.items() if name != "when"}
    found = {name: value for name, value in values.items() if value is not _NOTHING}
    try:
        return [msgspec.convert(found, struct, strict=False)]  # type: ignore[list-item]
    except msgspec.ValidationError as error:
        message = Unfit(f"A line that should be {kind} is not: {error}.")
    # The limit itself is certain, even if its end is not.
    return [message, RateLimited(detail=_as_text(found.get("detail", "")))] if struct is RateLimited else [message]


def _value(place: str, kind: Any, record: Any) -> Any:
    if kind is bool:
        if place.startswith("!"):
            return not (found := _at(place[1:], record)) or found is _NOTHING
        if "=" in place:
            return _is_equal(place, record)
    found = _at(place, record)
    if kind is str and found is not _NOTHING:
        return _as_text(found)
    return _NOTHING if found is None else found


def _is_equal(comparison: str, record: Any) -> bool:
    place, _, wanted = comparison.partition("=")
    found = _at(place, record)
    return found is not _NOTHING and _as_text(found) == wanted


def _as_text(found: Any) -> str:
    return found if isinstance(found, str) else json_fields.as_json(found)


def _at(place: str, value: Any) -> Any:
    for part in place.split("."):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and _PLACE.fullmatch(part) and int(part) < len(value):
            value = value[int(part)]
        else:
            return _NOTHING
    return value
