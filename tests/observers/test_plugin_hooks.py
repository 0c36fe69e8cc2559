"""Plugins that are called: in order, at least once, and contained where they raise, hang or print."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pluggy
import pytest

from holdfast.config.sections import PluginSettings
from holdfast.integrations.plugins import catalog
from holdfast.integrations.plugins.catalog import LoadedPlugin
from holdfast.ledgers.files import FileLedger
from holdfast.observers import plugin_hooks
from holdfast.observers.plugin_hooks import calling_plugins
from holdfast.storage.journal.data_root import create_root
from kit.ledger_contract import added
from kit.waiting import wait_for

hookimpl = pluggy.HookimplMarker("holdfast")
LONG_S = 3600.0


class Plugin:
    """Writes down the tasks that it hears of. `act` is what else it does for each."""

    holdfast_api = 1

    def __init__(self, act: Callable[[str], Any] = lambda task: None) -> None:
        self.tasks: list[str] = []
        self.settings: dict[str, Any] = {}
        self.act = act

    @hookimpl
    def configure(self, settings: dict[str, Any], repository: Path) -> None:
        self.settings = settings

    @hookimpl
    def task_added(self, event: Any) -> None:
        self.act(event.task)
        self.tasks.append(event.task)


class Keeper(Plugin):
    """Keeps its cursor with its effect: `rows` is what it has stored."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[str, str]] = []

    @hookimpl
    def cursor(self) -> str | None:
        return self.rows[-1][1] if self.rows else None

    @hookimpl
    def task_added(self, event: Any) -> None:
        self.rows.append((event.task, event.key))


class Runs:
    """Runs of one data root, each with its plugins."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.layout = create_root(folder / ".sdd")
        self.said: list[str] = []
        self.plugins: dict[str, Plugin] = {}
        self.settings = PluginSettings(timeout_s=LONG_S)
        self._repo = folder
        monkeypatch.setattr(catalog, "enabled", lambda settings: [self._loaded(name) for name in self.plugins])

    def _loaded(self, name: str) -> LoadedPlugin:
        return catalog._registered(LoadedPlugin(name), self.plugins[name])

    def add(self, *tasks: str, meanwhile: Callable[[FileLedger], object] = lambda ledger: None) -> FileLedger:
        """A run in which these tasks are added."""
        with FileLedger.open(self.layout) as ledger:
            calling = calling_plugins(self.layout, self.settings, ledger=ledger, repo=self._repo, say=self.said.append)
            with calling:
                for task in tasks:
                    ledger.append(ledger.epoch, [added(task)])
                meanwhile(ledger)
        return ledger

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.layout.logs / "plugins.log").read_text().splitlines()]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    monkeypatch.setattr(plugin_hooks, "AGAIN_S", 0.0)
    return Runs(tmp_path, monkeypatch)


def test_a_plugin_hears_of_each_entry_once_and_in_order(runs: Runs) -> None:
    plugin = runs.plugins["one"] = Plugin()
    runs.settings = PluginSettings(settings={"one": {"path": "x"}})
    runs.add("a", "b")
    runs.plugins = {}
    runs.add("c")
    runs.plugins = {"one": plugin, "new": (new := Plugin())}
    runs.add("d")
    assert plugin.tasks == ["a", "b", "c", "d"] and new.tasks == ["d"] and not runs.said
    assert plugin.settings == {"path": "x"} and new.settings == {}


def test_a_plugin_that_hangs_stalls_no_other_and_is_set_aside(runs: Runs) -> None:
    gate = threading.Event()
    runs.plugins = {"hangs": (hangs := Plugin(lambda task: gate.wait())), "works": (works := Plugin())}
    runs.settings = PluginSettings(timeout_s=0.01, strikes_max=3)
    aside = runs.add(
        "a", "b", meanwhile=lambda ledger: wait_for(lambda: "hangs" in ledger.state.connections.plugins_aside)
    ).state.connections.plugins_aside
    gate.set()
    assert works.tasks == ["a", "b"] and list(aside) == ["hangs"]
    assert aside["hangs"] == "`task_added` has not ended within 0.01 s, trouble 3 in a row"
    assert any("holdfast plugins enable hangs" in told for told in runs.said)
    assert any("is in trouble" in told for told in runs.said)

    wait_for(lambda: hangs.tasks)
    runs.plugins["hangs"] = again = Plugin()
    runs.add("c")
    assert again.tasks == [], "it is set aside until a person has enabled it"


def test_an_enabled_plugin_goes_on_with_the_entry_at_which_it_was_set_aside(runs: Runs) -> None:
    plugin = runs.plugins["one"] = Plugin(lambda task: 1 / 0)
    runs.settings = PluginSettings(timeout_s=LONG_S, strikes_max=2)
    runs.add("a", "b", meanwhile=lambda ledger: wait_for(lambda: ledger.state.connections.plugins_aside))
    runs.plugins = {}
    with FileLedger.open(runs.layout) as ledger:
        ledger.append(ledger.epoch, [plugin_hooks.Record("plugin_enabled", {"plugin": "one"})])
    plugin.act = lambda task: None
    runs.plugins["one"] = plugin
    ledger = runs.add("c")
    assert plugin.tasks == ["a", "b", "c"] and not ledger.state.connections.plugins_aside


def test_an_entry_at_which_a_plugin_always_fails_is_passed_over(runs: Runs) -> None:
    def act(task: str) -> None:
        if task == "bad":
            raise SystemExit("no")

    plugin = runs.plugins["one"] = Plugin(act)
    runs.add("a", "bad", "b", "bad-no-more")
    assert plugin.tasks == ["a", "b", "bad-no-more"]
    assert any("failed 3 times at entry" in told and "passed over" in told for told in runs.said)
    assert [line["event"] for line in runs.log()] == ["trouble"] * 3 + ["entry_passed_over"]


def test_a_fault_that_passes_by_itself_loses_nothing(runs: Runs) -> None:
    faults = iter([OSError("down"), OSError("down")])

    def act(task: str) -> None:
        if (fault := next(faults, None)) is not None:
            raise fault

    plugin = runs.plugins["one"] = Plugin(act)
    runs.settings = PluginSettings(timeout_s=LONG_S, strikes_max=3)
    runs.add("a", "b")
    assert plugin.tasks == ["a", "b"]


def test_a_disabled_plugin_is_called_no_more_in_the_same_run(runs: Runs) -> None:
    plugin = runs.plugins["one"] = Plugin()

    def disable(ledger: FileLedger) -> None:
        wait_for(lambda: plugin.tasks)
        aside = {"plugin": "one", "reason": "disabled by ada"}
        ledger.append(ledger.epoch, [plugin_hooks.Record("plugin_set_aside", aside), added("b")])

    runs.add("a", meanwhile=disable)
    assert plugin.tasks == ["a"] and any("disabled by ada" in told for told in runs.said)


def test_the_output_of_a_plugin_goes_to_its_log(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)

    def act(task: str) -> None:
        print(f"of {task}", end="x" * 9000)
        sys.stderr.write("more\n")

    runs.plugins["loud"] = plugin = Plugin(act)

    def look(ledger: FileLedger) -> None:
        wait_for(lambda: plugin.tasks)
        print("of the run")

    runs.add("a", meanwhile=look)
    assert screen.getvalue() == "of the run\n" and sys.stdout is screen
    (line,) = runs.log()
    assert (line["plugin"], line["event"], line["hook"]) == ("loud", "printed", "task_added")
    assert line["text"].startswith("of axxx") and len(line["text"]) < 4100


def test_a_cursor_of_the_plugin_counts_more_than_ours(runs: Runs) -> None:
    keeper = runs.plugins["keeper"] = Keeper()
    runs.add("a", "b", "c")
    keeper.rows.pop()
    runs.add()
    assert [task for task, _ in keeper.rows] == ["a", "b", "c"], "what it has not stored is given again"
    ours = runs.layout.cursor("plugin:keeper")
    kept = ours.read_bytes()
    runs.add("d")
    ours.write_bytes(kept)
    runs.add("e")
    assert [task for task, _ in keeper.rows] == ["a", "b", "c", "d", "e"], "what it has stored is not given again"
    keeper.rows.append(("f", "no key"))
    runs.add("g")
    assert keeper.rows[-1][0] == "g" and any("names no entry of the journal" in told for told in runs.said)


def test_a_plugin_that_cannot_be_configured_is_set_aside(runs: Runs) -> None:
    plugin = runs.plugins["one"] = Plugin()
    plugin.configure = hookimpl(lambda settings: 1 / 0)  # type: ignore[method-assign]
    ledger = runs.add("a", meanwhile=lambda ledger: wait_for(lambda: ledger.state.connections.plugins_aside))
    assert (
        "`configure` failed: ZeroDivisionError" in ledger.state.connections.plugins_aside["one"] and plugin.tasks == []
    )


def test_a_broken_plugin_is_named_once(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = LoadedPlugin("broken", problem="it cannot be loaded: X", printed="hello")
    monkeypatch.setattr(catalog, "enabled", lambda settings: [broken])
    runs.add("a")
    assert len(runs.said) == 1 and "the plugin broken is not used: it cannot be loaded: X" in runs.said[0]
    assert [line["event"] for line in runs.log()] == ["printed", "not_loaded"]
