"""The installed plugins as rows: what each is, whether it is used, what it implements and provides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from holdfast.config.sections import PluginSettings
from holdfast.integrations.plugins import catalog

PluginState = Literal["enabled", "disabled", "set aside", "broken"]


class PluginRow(msgspec.Struct, frozen=True, kw_only=True):
    """`state`: `disabled` by the settings, `set aside` by the journal, `broken` where it cannot be used as it is.
    `reason`: why it is not enabled. `provides`: names by kind."""

    name: str
    package: str
    version: str
    module: str
    state: PluginState
    reason: str = ""
    hooks: tuple[str, ...] = ()
    provides: dict[str, list[str]] = {}


def plugin_rows(settings: PluginSettings, aside: Mapping[str, str]) -> list[PluginRow]:
    """Every plugin that is installed. Those that the settings leave out are not loaded."""
    return [_row(name, settings, aside) for name in catalog.names()]


def strangers(settings: PluginSettings) -> list[str]:
    """Plugins that the settings name and nobody has installed."""
    named = {*(settings.enabled or ()), *settings.disabled, *settings.settings}
    return sorted(named - set(catalog.names()))


def _row(name: str, settings: PluginSettings, aside: Mapping[str, str]) -> PluginRow:
    if not catalog.is_enabled(name, settings):
        reason = "the settings leave it out: `plugins.enabled` and `plugins.disabled`"
        return PluginRow(**catalog.origin(name), state="disabled", reason=reason)
    plugin = catalog.load(name)
    found = {kind: catalog.provided_by(plugin, kind, settings) for kind in catalog.KINDS}
    wrong = plugin.problem or next((problem for _, problem in found.values() if problem), "")
    state: PluginState = "broken" if wrong else "set aside" if name in aside else "enabled"
    return PluginRow(
        **catalog.origin(name),
        state=state,
        reason=wrong or aside.get(name, ""),
        hooks=plugin.hooks,
        provides={kind: sorted(names) for kind, (names, _) in found.items() if names},
    )
