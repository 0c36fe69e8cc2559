"""The part of the state that is about others: the messages to them, and the code of theirs that we run.

`FOLDS` has what each kind of entry changes. A change returns why it cannot be, or nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.domain.messages import outbox_records
from holdfast.domain.messages.outbox_records import MessageFlagged, MessageQueued, Outbox
from holdfast.domain.triggers import trigger_records
from holdfast.domain.triggers.trigger_records import TriggerFacts


class PluginMoved(msgspec.Struct, frozen=True):
    """The hooks of a plugin are not called any more, for this reason; its cursor stays where it is. Without a reason a
    person wants them called again, from the next run on."""

    plugin: str
    reason: str = ""


class ConnectionState(msgspec.Struct):
    """`outbox`: the messages that have not left yet, the oldest first. `plugins_aside`: the plugins whose hooks are not
    called, each with the reason. `triggers`: deliveries that are not judged yet, and how often each rule fired."""

    outbox: Outbox = {}
    plugins_aside: dict[str, str] = {}
    triggers: TriggerFacts = msgspec.field(default_factory=TriggerFacts)

    def trial(self) -> ConnectionState:
        """One to try entries on, which leaves this one as it is. What is inside is replaced, and never changed."""
        return ConnectionState(*(copy.copy(getattr(self, name)) for name in self.__struct_fields__))


def move_plugin(state: ConnectionState, moved: PluginMoved, moment: float) -> str:
    # Made anew: other threads may be reading it.
    others = {name: reason for name, reason in state.plugins_aside.items() if name != moved.plugin}
    state.plugins_aside = others | ({moved.plugin: moved.reason} if moved.reason else {})
    return ""


def _of_triggers(change: trigger_records.TriggerFold) -> ConnectionFold:
    return lambda state, payload, moment: change(state.triggers, payload, moment)


ConnectionFold = Callable[[ConnectionState, Any, float], str]
FOLDS: dict[type[msgspec.Struct], ConnectionFold] = {
    MessageQueued: lambda state, queued, moment: outbox_records.queue(state.outbox, queued, moment),
    MessageFlagged: lambda state, flagged, moment: outbox_records.flag(state.outbox, flagged),
    PluginMoved: move_plugin,
    **{kind: _of_triggers(change) for kind, change in trigger_records.CHANGES.items()},
}
# The entries of these, by their types' names in the journal.
CONNECTION_ENTRIES: dict[str, type[msgspec.Struct]] = {
    "message_queued": MessageQueued,
    "message_flagged": MessageFlagged,
    "plugin_set_aside": PluginMoved,
    "plugin_enabled": PluginMoved,
    **trigger_records.TRIGGER_ENTRIES,
}


def begin_publishing(state: ConnectionState, intended: outbox_records.Begun, moment: float) -> str:
    return outbox_records.begin(state.outbox, intended)
