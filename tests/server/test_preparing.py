"""A server that has begun to answer, and has not read the task files yet."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.app import App
from holdfast.engine.context import RunContext
from holdfast.orchestrator.loop import Loop
from holdfast.server.serving import ServerThread, read_address, serving
from holdfast.wiring import prepare, run_context
from kit.project import add, layout
from kit.server import Answer, Client
from kit.waiting import wait_for


class Beginning:
    """A server here, whose preparing waits for `go`, in a thread of its own."""

    def __init__(self, repo: Path, before: Callable[[], None] = lambda: None) -> None:
        self.repo, self.go, self.over = repo, threading.Event(), threading.Event()
        self._before = before
        self._thread = threading.Thread(target=self._serve)
        self.error: Exception | None = None

    def __enter__(self) -> Beginning:
        self._thread.start()
        wait_for(lambda: read_address(layout(self.repo)) is not None, "its address")
        found = read_address(layout(self.repo))
        assert found is not None
        self.url, self.token = found.url, found.token
        return self

    def __exit__(self, *_: object) -> None:
        self.go.set()
        self.over.set()
        self._thread.join(120)
        assert not self._thread.is_alive()

    def client(self) -> Client:
        return Client(self.url, self.token)

    def _serve(self) -> None:
        try:
            with run_context(App.find(self.repo, environ={}), lambda task, words: None, later=True) as context:
                loop = Loop(context, show=lambda *_: None, stays=True, works=False)

                def later(context: RunContext) -> None:
                    assert self.go.wait(120)
                    self._before()
                    prepare(context)

                with serving(context, loop, prepare=later):
                    self.over.wait(120)
        except OSError as error:
            self.error = error


@pytest.fixture
def repo(repo: Path) -> Path:
    for name in ("a", "b"):
        add(repo, name, "write x x", depends_on=["a"] if name == "b" else [])
    return repo


# More than there are threads to read in: a request that waits may hold none of them.
CROWD = 60


def test_a_server_that_prepares_is_alive_and_not_ready_and_answers_reads_late_and_right(repo: Path) -> None:
    with Beginning(repo) as server, ThreadPoolExecutor(CROWD) as pool:
        early = server.client()
        assert early.ask("GET", "/health/live").status == 200
        answer = early.ask("GET", "/health/ready")
        assert (answer.status, answer.code) == (503, "preparing")
        asked = [pool.submit(server.client().get, "/tasks") for _ in range(CROWD)]
        one = pool.submit(server.client().get, "/tasks/b")
        # These need no file of a task, and a thread.
        assert early.get("/auth/me")["role"] == "operator" and early.ask("GET", "/metrics").status == 200
        assert not any(each.done() for each in asked)
        server.go.set()
        pages: list[Any] = [each.result(60) for each in asked]
        assert all([row["title"] for row in page["tasks"]] == ["a", "b"] for page in pages)
        assert one.result(60)["definition"]["depends_on"] == ["a"]
        wait_for(lambda: early.ask("GET", "/health/ready").status == 200, "a server that is ready")


def test_a_request_that_waits_for_a_failed_preparation_is_answered(repo: Path) -> None:
    def broken() -> None:
        raise OSError("no files here")

    with Beginning(repo, broken) as server, ThreadPoolExecutor(2) as pool:
        read = pool.submit(server.client().ask, "GET", "/tasks")
        change = pool.submit(server.client().ask, "POST", "/tasks/a/cancel", {})
        wait_for(lambda: server.client().ask("GET", "/health/live").status == 200, "the server")
        server.go.set()
        for each in (read, change):
            answer = each.result(60)
            assert (answer.status, answer.code) == (503, "stopping")
    assert isinstance(server.error, OSError)


def test_a_request_that_comes_after_a_failed_preparation_is_not_answered_with_no_tasks(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[Answer] = []
    stop = ServerThread.stop

    def ask_and_stop(self: ServerThread) -> None:
        late.append(server.client().ask("GET", "/tasks"))
        stop(self)

    def broken() -> None:
        raise OSError("no files here")

    monkeypatch.setattr(ServerThread, "stop", ask_and_stop)
    with Beginning(repo, broken) as server:
        server.go.set()
    assert [(answer.status, answer.code) for answer in late] == [(503, "stopping")]
