"""What is read while the loop works in another thread: nobody but the loop looks after its runners."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.app import App
from holdfast.cli.screen.run_screen import _frame
from holdfast.domain.task import TaskState
from holdfast.domain.task_record import Task
from holdfast.engine.spawn import Spawn
from holdfast.orchestrator.loop import Loop
from holdfast.orchestrator.wakeup import AGENTS
from holdfast.server.serving import serving
from holdfast.storage.journal.entry import Record
from holdfast.storage.records.attempt_folder import Liveness
from holdfast.wiring import run_context
from kit.project import add, make_repo
from kit.server import Client


def test_metrics_name_the_agents_and_only_the_loop_tends_runners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = make_repo(tmp_path)
    add(repo, "long", "hang")
    looked: list[int] = []
    look = Spawn.liveness

    def noted(spawn: Spawn, task: Task) -> Liveness:
        looked.append(threading.get_ident())
        return look(spawn, task)

    monkeypatch.setattr(Spawn, "liveness", noted)
    scraped: list[str] = []

    def scrape() -> str:
        return Client(api.url, api.tokens.of_role("operator")).ask("GET", "/metrics").content.decode()

    def show(loop: Loop) -> None:
        task = loop.board.task("long")
        if task.state is not TaskState.IN_PROGRESS or scraped:
            return
        if not task.parked:
            # Whether one that waits for a person is at work, is seen from its process.
            flag = {"task": "long", "parked": "a person must decide"}
            context.ledger.append(context.ledger.epoch, [Record("task_flagged", flag)])
            loop.wake()
            return
        scraped.append(pool.submit(scrape).result(60))
        loop.stop(AGENTS)

    with run_context(App.find(repo, environ={}), lambda task, words: None) as context:
        loop = Loop(context, show=show, stays=True)
        with serving(context, loop) as api, ThreadPoolExecutor(1) as pool:
            loop.run()
    assert "\nholdfast_agents 1.0\n" in scraped[0]
    assert set(looked) == {threading.get_ident()}


def test_the_screen_stands_while_tasks_are_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = make_repo(tmp_path)
    add(repo, "a", "hang")
    with run_context(App.find(repo, environ={}), lambda task, words: None) as context:
        loop, added = Loop(context), []
        word = TaskState.__str__

        def meanwhile(state: TaskState) -> str:
            # As a request of the API does it, between any two steps of this thread.
            added.append(f"new-{len(added)}")
            record = Record("task_added", {"task": added[-1], "definition": "", "state": "OPEN"})
            if len(added) < 4:
                context.ledger.append(context.ledger.epoch, [record])
            return word(state)

        monkeypatch.setattr(TaskState, "__str__", meanwhile)
        assert _frame(loop, ()).states.total() >= 1 and added
