"""The installed plugins, and a person's decisions about them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.decisions.context import DecisionContext
from holdfast.decisions.mailbox import decide
from holdfast.server.api_state import Api
from holdfast.server.operations import Ask, NoBody, Operation
from holdfast.views.plugins import PluginRow, plugin_rows


class Plugins(msgspec.Struct, frozen=True):
    plugins: list[PluginRow]


class PluginDisabled(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reason: Annotated[str, Meta(max_length=10_000)] = ""


class PluginDecided(msgspec.Struct, frozen=True):
    plugin: str
    note: str


def list_plugins(api: Api, ask: Ask) -> Plugins:
    return Plugins(plugin_rows(api.config.plugins, api.context.ledger.state.connections.plugins_aside))


def enable(decision: DecisionContext, ask: Ask) -> PluginDecided:
    return PluginDecided(**decide(decision, "enable", {"plugin": ask.path["plugin"]}).facts)


def disable(decision: DecisionContext, ask: Ask) -> PluginDecided:
    asked = {"plugin": ask.path["plugin"], "reason": ask.body.reason}
    return PluginDecided(**decide(decision, "disable", asked).facts)


OPERATIONS = [
    Operation("GET", "/plugins", "list_plugins", "The installed plugins, and whether each is used.", list_plugins,
              answer=Plugins, lane="aside", tag="plugins"),
    Operation("POST", "/plugins/{plugin}/enable", "enable_plugin", "Call a plugin's hooks again, from the next run on.",
              enable, answer=PluginDecided, right="operate", lane="loop", body=NoBody, tag="plugins",
              problems=(404, 409)),
    Operation("POST", "/plugins/{plugin}/disable", "disable_plugin", "Call a plugin's hooks no more.", disable,
              answer=PluginDecided, right="operate", lane="loop", body=PluginDisabled, tag="plugins",
              problems=(404, 409)),
]  # fmt: skip
