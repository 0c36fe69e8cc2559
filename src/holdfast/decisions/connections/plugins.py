"""`enable` and `disable`: a person has the hooks of a plugin called again, or no more."""

from __future__ import annotations

import msgspec

from holdfast.decisions.context import Answer, DecisionContext
from holdfast.errors import PluginUnknown
from holdfast.integrations.plugins import catalog


class PluginChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    plugin: str


class PluginRefusal(PluginChoice, frozen=True, forbid_unknown_fields=True):
    reason: str = ""


def enable(decision: DecisionContext, asked: PluginChoice) -> Answer:
    _expect_known(decision, asked.plugin)
    if not decision.has_begun() and asked.plugin in decision.ledger.state.connections.plugins_aside:
        decision.append([decision.record("plugin_enabled", 0, {"plugin": asked.plugin})])
    note = "its hooks are called from the next `holdfast run` on, beginning where they were"
    if not catalog.is_enabled(asked.plugin, decision.config.plugins):
        note = "the settings still leave it out: see `plugins.enabled` and `plugins.disabled`"
    return Answer([], {"plugin": asked.plugin, "note": note})


def disable(decision: DecisionContext, asked: PluginRefusal) -> Answer:
    _expect_known(decision, asked.plugin)
    if not decision.has_begun():
        reason = asked.reason or f"disabled by {decision.by}"
        decision.append([decision.record("plugin_set_aside", 0, {"plugin": asked.plugin, "reason": reason})])
    note = "its hooks are not called any more; the agents and gates that it provides stay, see `plugins.disabled`"
    return Answer([], {"plugin": asked.plugin, "note": note})


def _expect_known(decision: DecisionContext, plugin: str) -> None:
    known = catalog.names()
    if plugin not in known and plugin not in decision.ledger.state.connections.plugins_aside:
        raise PluginUnknown(plugin=repr(plugin), known=", ".join(known) or "none")
