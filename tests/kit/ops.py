"""A real server that works on tasks, asked the way Prometheus asks it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.server import Answer, Server, served
from kit.waiting import wait_for


class Running:
    def __init__(self, server: Server) -> None:
        self.url, self.process = server.address.url, server.process
        self.token, self.reader_token = server.address.token, server.address.reader_token
        self.kill = server.kill
        self._server = server

    def ask(self, path: str, method: str = "GET", body: Any = None, token: str | None = None) -> Answer:
        """With the operator's token where no other is given; without any for an empty one."""
        client = self._server.with_token(self.token if token is None else token)
        return client.ask(method, path, {} if method == "POST" and body is None else body)

    def state(self, task: str) -> str:
        found = self.ask(f"/tasks/{task}")
        return str(found.json["task"]["state"]) if found.status == 200 else ""

    def wait_for_state(self, task: str, state: str) -> None:
        wait_for(lambda: self.state(task) == state, f"{task} as {state}")

    def metrics(self) -> str:
        answer = self.ask("/metrics", token=self.reader_token)
        assert answer.status == 200, answer
        return answer.content.decode()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)


@contextlib.contextmanager
def running(repo: Path, **env: str) -> Iterator[Running]:
    """`holdfast run --stay`, with its server."""
    with served(repo, "run", "--plain", "--stay", **env) as server:
        yield Running(server)


def tool(name: str) -> str:
    """A program that `make test-ops` has installed, or that this machine has; where it has none, the test skips."""
    cache = os.environ.get("HOLDFAST_OPS", "")
    found = shutil.which(name, path=f"{cache}/bin") if cache else shutil.which(name)
    assert found or not cache, f"`make test-ops` has not installed {name}"
    if found is None:
        pytest.skip(f"{name} is not installed; `make test-ops` brings it along")
    return found
