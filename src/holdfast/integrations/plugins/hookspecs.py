"""The hooks that a plugin may implement. Pluggy passes a hook only those arguments that it names.

All but `provides` are called in a thread of the plugin's own, one at a time. For each entry of the journal, `entry` is
called first, then the hook that is named for what happened. Each is called at least once for each entry, in order; the
`key` of the event is the same when it is called again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pluggy

# Of the markers: a plugin writes `hookimpl = pluggy.HookimplMarker("holdfast")`.
PROJECT = "holdfast"
# A plugin says as `holdfast_api` for which version it was made. It changes when a hook or an argument goes.
API_VERSION = 1

F = TypeVar("F", bound=Callable[..., Any])
_hookspec = pluggy.HookspecMarker(PROJECT)


class PluginEvent(msgspec.Struct, frozen=True):
    """One entry of the journal. `key` names it for good, as `run:seq:hash`: what was done under a key is done.

    `at`: Unix seconds. `kind` is the entry's type, `facts` what it says, `outcome` what came of it, if anything.
    docs/format.md describes entries. `task` is empty where the entry is of no task.
    """

    key: str
    run: str
    seq: int
    at: float
    kind: str
    task: str
    facts: dict[str, Any]
    outcome: dict[str, Any]


def _spec(function: F) -> F:
    return _hookspec(function)


def _first(function: F) -> F:
    return _hookspec(firstresult=True)(function)


class HookSpecs:
    """Every hook. `catalog.py` tells which of them a plugin has."""

    @_first
    def provides(self, kind: str, settings: Mapping[str, Any]) -> Mapping[str, Callable[..., Any]] | None:
        """Factories by name, for one kind of `catalog.py:KINDS`; None for a kind that it does not provide.

        Called in the thread that asks, when a command needs that kind: it must be quick."""

    @_spec
    def configure(self, settings: Mapping[str, Any], repository: Path) -> None:
        """Called once in a run, before any other hook but `provides`: `plugins.settings.<name>` of the settings."""

    @_first
    def cursor(self) -> str | None:
        """The key of the last event whose effect the plugin has stored itself; None where it has none.

        Holdfast goes on with the entry behind it, whatever its own cursor says. A plugin that stores the key together
        with the effect, at once, therefore has each effect exactly once."""

    @_spec
    def entry(self, event: PluginEvent) -> None:
        """Any entry of the journal."""

    @_spec
    def run_started(self, event: PluginEvent) -> None:
        """A run, or a command that decided something, became the owner of the data root."""

    @_spec
    def run_ended(self, event: PluginEvent, how: str) -> None:
        """It ended: `orderly`, or `stopped` by an error. A run that was killed has no such entry."""

    @_spec
    def task_added(self, event: PluginEvent, state: str) -> None:
        """A task is new, usually as OPEN."""

    @_spec
    def task_moved(self, event: PluginEvent, state: str, reason: str) -> None:
        """A task came into another state: OPEN, CLAIMED, IN_PROGRESS, DONE, CLOSED, FAILED and so on."""

    @_spec
    def attempt_started(self, event: PluginEvent, attempt: str) -> None:
        """An agent was started for an attempt, for the first time or to go on with it."""

    @_spec
    def turn_completed(self, event: PluginEvent, attempt: str, turn: int) -> None:
        """A turn of an agent is saved; `event.facts` has its snapshot, tokens and cost."""

    @_spec
    def gate_judged(self, event: PluginEvent, attempt: str, passed: bool, verdict: str, detail: str) -> None:
        """The gates have judged a candidate; `verdict` is `passed`, or what went wrong, such as `gate_failed`."""

    @_spec
    def landed(self, event: PluginEvent, attempt: str, branch: str, commit: str) -> None:
        """A verified commit is on its branch."""

    @_spec
    def question_asked(self, event: PluginEvent, question: str) -> None:
        """An agent asks a person; `question` is its id, `event.facts` has the tool and a preview."""

    @_spec
    def question_answered(self, event: PluginEvent, question: str, answer: str) -> None:
        """A question has its answer: `allow`, `deny` or `say`."""


# The hooks that are called for an entry.
OF_ENTRIES = tuple(
    name for name in vars(HookSpecs) if not name.startswith("_") and name not in ("provides", "configure", "cursor")
)
