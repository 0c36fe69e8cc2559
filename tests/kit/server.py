"""A real `holdfast` that serves, in a process of its own, and a small client that keeps its connection."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from holdfast.server.serving import Address, read_address
from kit.program import HOLDFAST, environment
from kit.project import add, layout
from kit.waiting import wait_for

SECONDS = 120
# The server closes a connection on which nothing was asked for 30 s: one that has waited so long is not used again.
IDLE_S_MAX = 5.0


# An agent that asks the server, writes down how it was answered, and waits until it may end.
ASKING = """
cd "$1"
printf %s "$HOLDFAST_TOKEN" > token
ask() {{ curl -s -o /dev/null -w '%{{http_code}} ' -H "Authorization: Bearer $HOLDFAST_TOKEN" "$@" >> answers; }}
{questions}
mv answers codes
while [ ! -e go ]; do sleep 0.05; done
rm -f token codes go
"""


def add_asking(repo: Path, task: str, questions: str, **more: Any) -> None:
    """Adds a task whose agent asks; `codes` in the repository then holds the answers, and `go` lets it end."""
    script = repo.parent / "ask.sh"
    script.write_text(ASKING.format(questions=questions.strip()))
    add(repo, task, f"run sh {script} {repo}\nwrite made.txt x", **more)


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def code(self) -> str:
        """The code of a problem document."""
        assert self.headers["content-type"] == "application/problem+json", self
        problem = self.json
        assert problem["status"] == self.status and problem["detail"] and problem["title"]
        return str(problem["code"])


class Client:
    def __init__(self, url: str, token: str = "") -> None:
        self._at = urlsplit(url)
        self.token = token
        self._connection = self._connect()
        self._used = time.monotonic()

    def _connect(self) -> http.client.HTTPConnection:
        assert self._at.hostname is not None
        return http.client.HTTPConnection(self._at.hostname, self._at.port, timeout=SECONDS)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Header names are written with underscores. A body that is not bytes is sent as JSON."""
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if time.monotonic() - self._used > IDLE_S_MAX:
            # It is connected anew by the request.
            self._connection.close()
        self._connection.request(method, path, content, self._headers(headers))
        found = self._connection.getresponse()
        answer = Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())
        self._used = time.monotonic()
        return answer

    def get(self, path: str, **headers: str) -> Any:
        answer = self.ask("GET", path, **headers)
        assert answer.status == 200, answer
        return answer.json

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        answer = self.ask("POST", path, {} if body is None else body, **headers)
        assert answer.status in (200, 201), answer
        return answer.json

    def frames(self, path: str, **headers: str) -> Iterator[dict[str, str]]:
        """Server-sent events, as they come, over a connection of their own."""
        connection = self._connect()
        connection.request("GET", path, headers=self._headers(headers))
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        with contextlib.closing(connection):
            frame: dict[str, str] = {}
            for line in answer:
                text = line.decode().rstrip("\n")
                if not text:
                    if "data" in frame:
                        yield frame
                    frame = {}
                elif not text.startswith(":"):
                    name, _, value = text.partition(": ")
                    frame[name] = value

    def _headers(self, more: Mapping[str, str]) -> dict[str, str]:
        named = {name.replace("_", "-"): value for name, value in more.items()}
        return {**({"authorization": f"Bearer {self.token}"} if self.token else {}), **named}


class Server:
    """`operator` and `reader` ask with those tokens, `nobody` with none."""

    def __init__(self, repo: Path, process: subprocess.Popen[str], address: Address) -> None:
        self.repo, self.process, self.address = repo, process, address
        self.operator = Client(address.url, address.token)
        self.reader = Client(address.url, address.reader_token)
        self.nobody = Client(address.url)

    def with_token(self, token: str) -> Client:
        return Client(self.address.url, token)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=SECONDS)


@contextlib.contextmanager
def served(repo: Path, *args: str, **env: str) -> Iterator[Server]:
    """Serves while here; `args` are the command, `serve` where there is none. A killed server is not waited for."""
    process = subprocess.Popen(
        [*HOLDFAST, *(args or ("serve",))],
        cwd=repo, env=environment(repo, HOLDFAST_SERVER__ENABLED="true", **env), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        wait_for(lambda: process.poll() is not None or _is_ready(repo, process.pid), "a server that is ready")
        assert process.poll() is None, process.communicate()
        address = read_address(layout(repo))
        assert address is not None
        yield Server(repo, process, address)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            said, _ = process.communicate(timeout=SECONDS)
            print(said)
        finally:
            # One that does not end on SIGTERM fails the test, and must not outlive it.
            process.kill()


def _is_ready(repo: Path, pid: int) -> bool:
    address = read_address(layout(repo))
    if address is None or address.process.pid != pid:
        return False
    with contextlib.suppress(OSError):
        return Client(address.url).ask("GET", "/health/ready").status == 200
    return False
