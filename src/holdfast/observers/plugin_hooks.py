"""Calls the hooks of plugins for the journal's entries: for each plugin a follower with a cursor of its own.

A plugin's code runs in a thread of its own, and the follower's thread waits for it: so a plugin that hangs stalls
itself alone. A call that raises is made again a few times and then passed over; each of these, and each `timeout_s`
that a call takes, is a strike. `strikes_max` of them in a row set the plugin aside, which is journalled. Its cursor
stays, so that it misses nothing once a person has enabled it again.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from holdfast.config.sections import PluginSettings
from holdfast.errors import PluginStopped
from holdfast.integrations.plugins import catalog
from holdfast.integrations.plugins.catalog import LoadedPlugin
from holdfast.integrations.plugins.hook_calls import hook_calls, ref_of
from holdfast.layout import Layout
from holdfast.observers.journal_follower import CursorFile, JournalFollower, Say, followed_by
from holdfast.observers.plugin_output import PluginLog, parted_output, printed_by_this_thread
from holdfast.ports import Ledger
from holdfast.storage.journal.entry import Entry, Record, Ref

FAMILY = "plugin:"
# How often one hook is called for one entry, and the pause between: a fault that passes by itself has passed then.
TRIES, AGAIN_S = 3, 0.2
_OWN_HOOKS = ("provides", "configure", "cursor")


class HookCall:
    """One call of a plugin's code. `trouble` says why it failed, once it is `done`."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self.done = threading.Event()
        self.result: Any = None
        self.trouble = ""
        self.printed = ""

    def perform(self) -> None:
        with printed_by_this_thread() as printed:
            try:
                self.result = self._work()
            except BaseException as error:  # noqa: BLE001 (a plugin's code may raise anything, and is named with it)
                self.trouble = catalog.described(error)
        self.printed = str(printed)
        self.done.set()


class PluginThread:
    """The thread in which all of a plugin's hooks are called, one at a time. Nobody waits for its end."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[HookCall] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"hooks of {name}", daemon=True)
        self._thread.start()

    def begin(self, work: Callable[[], Any]) -> HookCall:
        call = HookCall(work)
        self._calls.put(call)
        return call

    def _work(self) -> None:
        while True:
            self._calls.get().perform()


class PluginHooks:
    """The hooks of one plugin, with what they are owed and what they may cost."""

    def __init__(
        self, plugin: LoadedPlugin, settings: PluginSettings, *, ledger: Ledger, repo: Path, say: Say, log: PluginLog
    ) -> None:
        self.plugin, self._settings = plugin, settings
        self._ledger, self._repo, self._say, self._log = ledger, repo, say, log
        self._thread = PluginThread(plugin.name)
        self._strikes = 0
        self._pause = threading.Event()

    def begin(self, ours: Ref | None) -> Ref | None:
        """Configures the plugin; returns the entry behind which it goes on: its own cursor, where it keeps one."""
        self._expect_not_aside()
        own = catalog.settings_of(self.plugin.name, self._settings)
        self._insist("configure", {"settings": own, "repository": self._repo})
        if "cursor" not in self.plugin.hooks:
            return ours
        key = self._insist("cursor", {})
        if key is None:
            return ours
        found = ref_of(key) if isinstance(key, str) else None
        if found is not None and self._ledger.has(found):
            return found
        self._say(f"the cursor of the plugin {self.plugin.name} names no entry of the journal; Holdfast's own counts")
        return ours

    def handle(self, run: str, entry: Entry) -> None:
        self._expect_not_aside()
        for hook, arguments in hook_calls(run, entry):
            if hook in self.plugin.hooks and not self._tried(hook, arguments):
                name = f"entry {entry.seq} of run {run}, {entry.decision_type}"
                self._log.write(self.plugin.name, "entry_passed_over", hook=hook, entry=name)
                self._say(f"the plugin {self.plugin.name} failed {TRIES} times at {name}, which is passed over for it")

    def _tried(self, hook: str, arguments: dict[str, Any]) -> bool:
        """Calls a hook, and again where it raises; False where it always does. Raises once it is set aside."""
        for number in range(TRIES):
            if number:
                self._pause.wait(AGAIN_S * number)
            if not self._perform(hook, arguments).trouble:
                return True
        return False

    def _insist(self, hook: str, arguments: dict[str, Any]) -> Any:
        """The result of a hook without which the others cannot be called; raises where there is none."""
        if hook not in self.plugin.hooks:
            return None
        call = self._perform(hook, arguments)
        while call.trouble:
            call = self._perform(hook, arguments)
        return call.result

    def _perform(self, hook: str, arguments: dict[str, Any]) -> HookCall:
        """Makes one call to its end, however late. Each time that it takes too long, or fails, is a strike."""
        call = self._thread.begin(lambda: self.plugin.call(hook, **arguments))
        is_late = False
        while not call.done.wait(self._settings.timeout_s):
            is_late = True
            self._strike(hook, f"`{hook}` has not ended within {self._settings.timeout_s:g} s")
        if call.printed:
            self._log.write(self.plugin.name, "printed", hook=hook, text=call.printed)
        if call.trouble:
            self._strike(hook, f"`{hook}` failed: {call.trouble}")
        elif not is_late:
            self._strikes = 0
        return call

    def _strike(self, hook: str, told: str) -> None:
        self._strikes += 1
        self._log.write(self.plugin.name, "trouble", hook=hook, told=told, strikes=self._strikes)
        if self._strikes == 1:
            self._say(f"the plugin {self.plugin.name} is in trouble: {told}")
        if self._strikes >= self._settings.strikes_max:
            reason = f"{told}, trouble {self._strikes} in a row"
            aside = Record("plugin_set_aside", {"plugin": self.plugin.name, "reason": reason}, actor="plugins")
            self._ledger.append(self._ledger.epoch, [aside])
            raise PluginStopped(plugin=self.plugin.name, reason=reason)

    def _expect_not_aside(self) -> None:
        reason = self._ledger.state.connections.plugins_aside.get(self.plugin.name)
        if reason is not None:
            raise PluginStopped(plugin=self.plugin.name, reason=reason)


@contextlib.contextmanager
def calling_plugins(
    layout: Layout, settings: PluginSettings, *, ledger: Ledger, repo: Path, say: Say
) -> Iterator[list[JournalFollower]]:
    """Calls the hooks of every enabled plugin while here. One with a problem, or set aside, is named once."""
    log, followers = PluginLog(layout.logs / "plugins.log"), list[JournalFollower]()
    for plugin in catalog.enabled(settings):
        if plugin.printed:
            log.write(plugin.name, "printed", text=plugin.printed)
        if plugin.problem:
            log.write(plugin.name, "not_loaded", told=plugin.problem)
            say(f"the plugin {plugin.name} is not used: {plugin.problem}; see `holdfast plugins show {plugin.name}`")
        elif not set(plugin.hooks) <= set(_OWN_HOOKS):
            followers.append(_follower(plugin, settings, layout, ledger, repo=repo, say=say, log=log))
    if not followers:
        yield []
        return
    with parted_output(), followed_by(ledger, *followers):
        yield followers


def _follower(
    plugin: LoadedPlugin,
    settings: PluginSettings,
    layout: Layout,
    ledger: Ledger,
    *,
    repo: Path,
    say: Say,
    log: PluginLog,
) -> JournalFollower:
    hooks = PluginHooks(plugin, settings, ledger=ledger, repo=repo, say=say, log=log)
    name = f"{FAMILY}{plugin.name}"
    store = CursorFile(layout, ledger, name, say)
    return JournalFollower(name, hooks.handle, ledger=ledger, store=store, say=say, begin=hooks.begin)
