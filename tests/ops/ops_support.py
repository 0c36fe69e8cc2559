"""A real server over a small repository, asked the way Prometheus asks it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from engine_support import begin, layout, wait_for
from holdfast.server.serving import read_address


class Answer(NamedTuple):
    status: int
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Running:
    def __init__(self, repo: Path, process: subprocess.Popen[str]) -> None:
        self.repo, self.process = repo, process
        wait_for(lambda: process.poll() is not None or read_address(layout(repo)) is not None, "a server")
        address = read_address(layout(repo))
        assert address is not None, process.communicate()[0]
        self.url, self.token, self.reader_token = address.url, address.token, address.reader_token

    def ask(self, path: str, method: str = "GET", body: Any = None, token: str | None = None, **headers: str) -> Answer:
        token = self.token if token is None else token
        given = {"Authorization": f"Bearer {token}", **headers} if token else headers
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, content, given, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return Answer(answer.status, answer.read().decode())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read().decode())

    def state(self, task: str) -> str:
        found = self.ask(f"/tasks/{task}")
        return str(found.json["task"]["state"]) if found.status == 200 else ""

    def wait_for_state(self, task: str, *states: str) -> None:
        wait_for(lambda: self.state(task) in states, f"{task} as one of {states}")

    def metrics(self) -> str:
        answer = self.ask("/metrics", token=self.reader_token)
        assert answer.status == 200, answer.text
        return answer.text

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> str:
        self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=60)[0]


@contextlib.contextmanager
def running(repo: Path, *args: str, **env: str) -> Iterator[Running]:
    """`holdfast run --stay`, with its server; killed at the end where it still lives."""
    process = begin(repo, "--stay", *args, HOLDFAST_SERVER__ENABLED="true", **env)
    try:
        yield Running(repo, process)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def required(path: str) -> bool:
    """`make test-ops` has installed it: there, what is missing is a failure and no reason to skip."""
    return bool(os.environ.get("HOLDFAST_OPS")) or Path(path).exists()
