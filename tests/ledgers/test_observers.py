"""The observers of the journal: each of `ORDER` follows a run, and each that keeps files catches up after a kill."""

from __future__ import annotations

import signal
import types
from collections.abc import Callable
from pathlib import Path

import pluggy
import pytest

from holdfast.app import App
from holdfast.integrations.plugins import catalog
from holdfast.layout import Layout
from holdfast.ledgers.observers import ORDER, line_of
from holdfast.orchestrator.loop import Loop
from holdfast.server import serving as server
from holdfast.server.observability.tracing import Tracer
from holdfast.storage.audit.days import day_files
from holdfast.storage.audit.from_journal import fact_of
from holdfast.storage.audit.verify import parse
from holdfast.storage.journal.reader import Chain
from holdfast.storage.records.ledger import LineLedger
from holdfast.wiring import run_context
from kit.program import holdfast
from kit.project import add, layout, make_repo

Place = tuple[str, int]


def audited(at: Layout) -> list[Place]:
    """The entries that have a record; the end of a killed run names its last one once more."""
    texts = [(at.audit / name).read_bytes() for name in day_files(at.audit)]
    records = [parse(line, None) for text in texts for line in text.splitlines()]
    named = [each.details["journal"] for each in records if each is not None and each.actor != "unknown"]
    return [(ref["run"], ref["seq"]) for ref in named]


def to_audit(at: Layout) -> list[Place]:
    return [(run, entry.seq) for run, entry in Chain(at.wal).entries() if fact_of(entry) is not None]


def counted(at: Layout) -> list[Place]:
    return [(line.record["run"], line.record["seq"]) for line in LineLedger(at.metrics_tasks).read()]


def to_count(at: Layout) -> list[Place]:
    return [(run, entry.seq) for run, entry in Chain(at.wal).entries() if entry.decision_type == "task_cancelled"]


# For each observer that has a cursor: the entries that its files name, and those that they have to.
KEPT: dict[str, tuple[Callable[[Layout], list[Place]], Callable[[Layout], list[Place]]]] = {
    "audit": (audited, to_audit),
    "metric_files": (counted, to_count),
}


def test_every_observer_of_the_list_follows_a_served_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        server, "tracer", lambda at, ledger, log: Tracer(at, ledger, lambda spans: True, lambda: None, log)
    )
    plugin = types.ModuleType("plugin")
    plugin.__dict__.update(holdfast_api=1, entry=pluggy.HookimplMarker("holdfast")(lambda event: None))
    monkeypatch.setattr(catalog, "enabled", lambda settings: [catalog._registered(catalog.LoadedPlugin("one"), plugin)])
    app = App.find(make_repo(tmp_path), environ={})
    with run_context(app, lambda task, words: None) as context:
        loop = Loop(context)
        with server.serving(context, loop), loop.connections:
            found = {each.name: each.cursor for each in context.ledger.observers}
        assert [each.name for each in context.ledger.observers] == ["board", "audit", "metric_files", "plugin:one"]
    assert list(map(line_of, found)) == list(ORDER)
    assert {name for name, cursor in found.items() if cursor is not None} == set(KEPT)


@pytest.mark.parametrize("name", KEPT)
def test_an_observer_that_keeps_files_loses_and_doubles_nothing_when_it_is_killed(tmp_path: Path, name: str) -> None:
    """Killed behind the journal's sync, before anybody was told of the entry."""
    repo, (kept, wanted) = make_repo(tmp_path), KEPT[name]
    for task in ("one", "two", "three"):
        add(repo, task, "write x y")
    holdfast(repo, "cancel", "one")
    holdfast(repo, "cancel", "two", code=-signal.SIGKILL, env={"HOLDFAST_CRASH_AT": "append.task_cancelled.after:1"})
    assert kept(layout(repo)) != wanted(layout(repo)), "the kill came too late to mean anything"
    holdfast(repo, "cancel", "three")
    assert kept(layout(repo)) == wanted(layout(repo)) and len(to_count(layout(repo))) == 3
