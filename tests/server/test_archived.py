"""A server answers over archived runs as it did over plain ones."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.storage.journal.reader import Chain
from kit.program import holdfast
from kit.project import add, layout, make_repo, settings
from kit.server import Server, served

PATHS = ("/sessions", "/tasks/one/history", "/tasks/one/attempts", "/costs", "/quality")


def answers(server: Server, entries: list[str]) -> list[Any]:
    """The answers about the entries that there were when both servers began."""
    page = server.operator.get("/journal?limit=1000")["entries"][: len(entries)]
    assert [f"{entry['run']}:{entry['seq']}" for entry in page] == entries
    frames = itertools.islice(server.operator.frames("/events", Last_Event_ID=entries[0]), len(entries) - 1)
    assert server.operator.get("/journal/verify")["ok"]
    return [page, [frame["data"] for frame in frames], *(server.operator.get(path) for path in PATHS)]


@pytest.mark.heavy
def test_archived_runs_are_shown_as_before(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    settings(repo, ledgers={"keep_runs": 1})
    task, keyed = {"id": "asked", "goal": "x"}, {"idempotency_key": "k"}
    with served(repo) as server:
        created = server.operator.ask("POST", "/tasks", task, **keyed)
        server.operator.post("/tasks/asked/cancel")
    add(repo, "one", "write one.txt x")
    holdfast(repo, "run")
    before = [f"{run}:{entry.seq}" for run, entry in Chain(layout(repo).wal).entries()]
    with served(repo) as server:
        plain = answers(server, before)
    assert len(json.loads(holdfast(repo, "gc", "--json"))["archived"]) == 2
    for projection in (layout(repo).tasks, layout(repo).uncommitted, layout(repo).idempotency):
        projection.unlink()
    with served(repo) as server:
        assert answers(server, before) == plain
        again = server.operator.ask("POST", "/tasks", task, **keyed)
        assert (created.status, again.status) == (201, 201) and again.json == created.json
