"""Folds an agent's events into the state of the turn machine, the turns, and what belongs to each."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from holdfast.agents.common.json_fields import NUMBER_MAX
from holdfast.domain import agent_events as events
from holdfast.domain.attempt_records import TURN, TurnEvent, TurnState
from holdfast.domain.conversations.conversation_records import Message
from holdfast.domain.spend import Spend
from holdfast.storage.records.redact import without_secrets

TEXT_CHARS_MAX = 16_384
# The most text that one turn holds: an agent that prints without end, or calls no tool, must not fill the memory.
TURN_CHARS_MAX = 4 << 20
SPENDS_MAX = 1000
OPEN_MAX = 10_000
_CUT = "\n… (cut)"
_SECRET_CHARS_MAX = 4096
_RECORD_CHARS = 100
# The longest rate limit that is believed.
PAUSE_S_MAX = 7 * 86_400.0


class Conversation:
    """The events of one start. Everything since the last turn is pending until `next_turn`."""

    def __init__(self, turn: int) -> None:
        self.turn = turn
        self.state = TurnState.RUNNING
        self.session = ""
        self.finished: events.Finished | None = None
        self.rate_limited: events.RateLimited | None = None
        self.spent = Spend()
        self.call: tuple[str, str] | None = None
        # Messages of a person that the agent was given, until it goes on: then it has seen them.
        self.given: list[str] = []
        self._open: dict[str, tuple[events.ToolStarted, int]] = {}
        self._clear()

    def _clear(self) -> None:
        self.traces: list[dict[str, Any]] = []
        self.spends: list[events.Spent] = []
        self.tools: list[str] = []
        self.told: list[str] = []
        self._chars = 0
        self._open = {call: (tool, -1) for call, (tool, _) in self._open.items()}

    def next_turn(self) -> None:
        """Called when the pending turn is on disk."""
        self.turn += 1
        self.spent += Spend(turns=1)
        self._clear()

    @property
    def pending(self) -> Spend:
        """The spending since the last turn."""
        return Spend(sum((each.usd for each in self.spends), 0.0), sum(map(_tokens, self.spends)))

    def apply(self, event: events.AgentEvent) -> bool:
        """Applies an event. True when it ends a turn: no tool runs any more."""
        if self.given and is_progress(event):
            self.told, self.given = [*self.told, *self.given], []
        match event:
            case events.Said():
                self._trace({"kind": "said", "text": cut(event.text)})
            case events.SessionBegan():
                self.session = event.id
            case events.ToolStarted():
                self._begin(event)
            case events.ToolEnded():
                return self._end(event)
            case events.Spent():
                if len(self.spends) >= SPENDS_MAX:
                    self.spends[-1] = summed(self.spends[-1], event)
                else:
                    self.spends.append(event)
                self.spent += Spend(event.usd, _tokens(event))
            case events.Compacted():
                if self.state is TurnState.RUNNING:
                    self.state = TURN.next(self.state, TurnEvent.COMPACT_NEEDED)
                    self.state = TURN.next(self.state, TurnEvent.VERIFY_REQUESTED)
            case events.RateLimited():
                self.rate_limited = event
            case events.Finished():
                # The first one counts: any process that can write to the stream may send another.
                self.finished = self.finished or event
        return False

    def give(self, message: Message) -> None:
        self.given.append(message.id)
        self._trace({"kind": "told", "text": cut(message.text)})

    def close(self, event: TurnEvent) -> None:
        """Applies the agent's end; where the machine has no such move, the state stays."""
        self.state = TURN.legal(self.state).get(event, self.state)

    def _begin(self, tool: events.ToolStarted) -> None:
        if len(self._open) >= OPEN_MAX:
            return
        if self.state is TurnState.RUNNING:
            self.state = TURN.next(self.state, TurnEvent.TOOL_STARTED)
        self.call = (tool.name, tool.input)
        if tool.name not in self.tools:
            self.tools.append(tool.name)
        place = len(self.traces)
        is_kept = self._trace({"kind": "tool", "name": tool.name, "call": tool.call, "input": cut(tool.input)})
        # Its input is in the trace, and need not be held twice.
        self._open[tool.call] = (events.ToolStarted(tool.name, tool.call), place if is_kept else -1)

    def _trace(self, record: dict[str, Any]) -> bool:
        """Keeps a record; False where the turn is full. The first one that is left out is marked."""
        was_full = self._chars > TURN_CHARS_MAX
        has_room = self._has_room(sum(len(value) for value in record.values() if isinstance(value, str)))
        if has_room or not was_full:
            self.traces.append(record if has_room else {"kind": "said", "text": _CUT.strip()})
        return has_room

    def _has_room(self, chars: int) -> bool:
        if self._chars <= TURN_CHARS_MAX:
            self._chars += chars + _RECORD_CHARS
        return self._chars <= TURN_CHARS_MAX

    def _end(self, ended: events.ToolEnded) -> bool:
        # A stream may name a call at its end only, or not at all: then it is the one that began first.
        call = ended.call if ended.call in self._open else next(iter(self._open), None)
        if call is None:
            return False
        tool, place = self._open.pop(call)
        outcome = {"ok": ended.ok, "output": cut(ended.output)}
        if place < 0:
            self._trace({"kind": "tool", "name": tool.name, "call": tool.call, **outcome})
        elif self._has_room(len(ended.output)):
            self.traces[place] |= outcome
        if self._open:
            return False
        self.state = TURN.next(self.state, TurnEvent.TOOL_COMPLETED)
        return True


def is_progress(event: events.AgentEvent) -> bool:
    """Whether it shows that the model has answered, or a tool has run."""
    return isinstance(event, events.Said | events.ToolStarted | events.ToolEnded | events.Spent | events.Compacted)


_SESSION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/@-]{0,255}")


def checked(event: events.AgentEvent, now: float) -> tuple[events.AgentEvent, str]:
    """The event as it may be counted, and what was refused of it, as a sentence: no spending is negative, and no limit
    lasts for ever. The id of a conversation must be fit for a command line."""
    if isinstance(event, events.Spent):
        return _checked_spent(event)
    if isinstance(event, events.SessionBegan) and not _SESSION.fullmatch(event.id):
        # It becomes an argument of the next start.
        return msgspec.structs.replace(event, id=""), f"The conversation cannot be resumed by {cut(event.id)!r}."
    if isinstance(event, events.RateLimited) and event.until and not now < event.until <= now + PAUSE_S_MAX:
        # Neither a number nor a time, or one in the past: then its end is unknown.
        until = now + PAUSE_S_MAX if event.until > now else 0.0
        as_one = f"one until {until:.0f}" if until else "one whose end is not told"
        return msgspec.structs.replace(event, until=until), f"A rate limit until {event.until} counts as {as_one}."
    return event, ""


def _checked_spent(event: events.Spent) -> tuple[events.Spent, str]:
    """A correction does not lower what was counted, either: limits were checked against that."""
    told = {"usd": event.usd, "tokens_in": event.tokens_in, "tokens_out": event.tokens_out}
    wrong = {name: value for name, value in told.items() if not 0 <= value <= NUMBER_MAX}
    if not wrong:
        return event, ""
    named = ", ".join(f"{name} {value} as 0" for name, value in wrong.items())
    return msgspec.structs.replace(event, **dict.fromkeys(wrong, 0)), f"Counted otherwise than told: {named}."


def summed(one: events.Spent, other: events.Spent) -> events.Spent:
    return events.Spent(
        one.usd + other.usd,
        one.tokens_in + other.tokens_in,
        one.tokens_out + other.tokens_out,
        other.model,
        one.estimated or other.estimated,
        corrects=one.corrects or other.corrects,
    )


def _tokens(spent: events.Spent) -> int:
    return spent.tokens_in + spent.tokens_out


def cut(text: str) -> str:
    if len(text) <= TEXT_CHARS_MAX:
        return text
    # Secrets are removed first: half of one would not be recognised.
    return without_secrets(text[: TEXT_CHARS_MAX + _SECRET_CHARS_MAX])[:TEXT_CHARS_MAX] + _CUT


def as_record(event: events.AgentEvent) -> dict[str, Any]:
    """The event as a record for a ledger: every text in it is cut to the bound."""
    fields: dict[str, Any] = msgspec.to_builtins(event)
    return {name: cut(value) if isinstance(value, str) else value for name, value in fields.items()}
