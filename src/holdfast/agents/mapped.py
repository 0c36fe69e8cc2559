"""Reading the JSON lines of a declared agent, by a mapping from the parts of our events to places in its lines.

    events:
      tool_started.when: type=tool_use      which lines are this event: the value at a place is this one
      tool_started.name: tool.name          where the event's field is; a number is a place in a list
      finished.when: type=result
      finished.ok: subtype=success          a yes-or-no field may be a comparison, or `!place`: whether it is false

An event without a `when` is in every line that has its first field. A line may be several events: they come in the
order of the mapping. A field of text takes any value, as JSON where it is no text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.domain.agent_events import KINDS, AgentEvent, Finished

_NOTHING = object()


class Mapped:
    def __init__(self, events: Mapping[str, str]) -> None:
        self._rules: dict[str, dict[str, str]] = {}
        for key, place in events.items():
            kind, _, field = key.partition(".")
            self._rules.setdefault(kind, {})[field] = place
        self._is_finished = False

    def read(self, line: bytes) -> Sequence[AgentEvent]:
        if not line.startswith(b"{"):
            return ()
        try:
            said = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ()
        events = [event for kind, rules in self._rules.items() if (event := _event(kind, rules, said)) is not None]
        self._is_finished = self._is_finished or any(isinstance(event, Finished) for event in events)
        return events

    def end(self, code: int) -> Sequence[AgentEvent]:
        """An agent that has a last word, and did not say it, has not finished."""
        if self._is_finished or "finished" not in self._rules:
            return ()
        return (Finished(False, f"It ended with code {code}, before its last word."),)


def _event(kind: str, rules: Mapping[str, str], said: Any) -> AgentEvent | None:
    if "when" in rules:
        if not _is_equal(rules["when"], said):
            return None
    elif _at(next(iter(rules.values())), said) is _NOTHING:
        return None
    struct = KINDS[kind]
    types = {field.name: field.type for field in msgspec.structs.fields(struct)}
    values = {name: _value(place, types[name], said) for name, place in rules.items() if name != "when"}
    made: AgentEvent
    try:
        found = {name: value for name, value in values.items() if value is not _NOTHING}
        made = msgspec.convert(found, struct, strict=False)  # type: ignore[assignment]
    except msgspec.ValidationError:
        return None
    return made


def _value(place: str, kind: Any, said: Any) -> Any:
    if kind is bool:
        if place.startswith("!"):
            return not (found := _at(place[1:], said)) or found is _NOTHING
        if "=" in place:
            return _is_equal(place, said)
    found = _at(place, said)
    if kind is str and found is not _NOTHING:
        return _as_text(found)
    return _NOTHING if found is None else found


def _is_equal(comparison: str, said: Any) -> bool:
    place, _, wanted = comparison.partition("=")
    found = _at(place, said)
    return found is not _NOTHING and _as_text(found) == wanted


def _as_text(found: Any) -> str:
    return found if isinstance(found, str) else msgspec.json.encode(found).decode()


def _at(place: str, said: Any) -> Any:
    for part in place.split("."):
        if isinstance(said, dict) and part in said:
            said = said[part]
        elif isinstance(said, list) and part.isdigit() and int(part) < len(said):
            said = said[int(part)]
        else:
            return _NOTHING
    return said
