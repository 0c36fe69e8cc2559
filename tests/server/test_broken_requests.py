"""What nobody should send, and what must not come of it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn

from holdfast.domain.task import TaskState
from holdfast.server import connections
from kit.project import add, layout, make_repo, sound, state
from kit.server import Server, add_asking, served
from kit.waiting import wait_for

pytestmark = pytest.mark.usefixtures("task_t")


def _connected(server: Server) -> socket.socket:
    at = urlsplit(server.address.url)
    return socket.create_connection((at.hostname, at.port), timeout=60)


@pytest.mark.parametrize(("method", "path"), [("POST", "/tasks"), ("PATCH", "/tasks/t")])
def test_lists_in_lists_end_nobody(server: Server, method: str, path: str) -> None:
    """YAML is written by functions that call themselves: deep enough, this ended the run."""
    for depth in (70, 450, 5_000):
        deep = "[" * depth + "]" * depth
        body = f'{{"goal": "x", "context": {deep}}}' if method == "POST" else f'{{"changes": {{"context": {deep}}}}}'
        answer = server.operator.ask(method, path, body.encode())
        assert (answer.status, answer.code) in [(422, "body_too_deep"), (400, "body_unreadable")]
    assert server.operator.get("/tasks")["total"] == 1


def test_brackets_in_words_are_not_lists(server: Server) -> None:
    words = '[{"' * 500
    answer = server.operator.ask("PATCH", "/tasks/t", {"changes": {"goal": words, "title": "\\" * 99 + "["}})
    assert answer.status == 200 and answer.json["definition"]["goal"] == words


def test_the_head_of_a_request_has_an_end(server: Server) -> None:
    """Nobody has shown a token yet: what they send must not be kept without a limit."""
    with _connected(server) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        sent, got = 0, b""
        try:
            while sent < 64 << 20:
                sent += peer.send(b"a" * 65536)
        except OSError:
            got = b"cut"
        assert got == b"cut" and sent < 64 << 20
    assert server.nobody.ask("GET", "/health/live").status == 200


def test_a_head_that_is_too_long_is_reported(server: Server) -> None:
    with _connected(server) as peer:
        peer.sendall(b"GET /" + b"a" * 66_000)
        answer = peer.recv(65536)
    assert answer.startswith(b"HTTP/1.1 431 ") and b"head_too_large" in answer


@contextlib.asynccontextmanager
async def _connected_to(app: Any, **more: Any) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to an application of the test's own, behind connections as the server has them."""
    config = uvicorn.Config(app, "127.0.0.1", 0, http=connections.connection_type(9), lifespan="off", **more)
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.servers[0].sockets[0].getsockname()[1])
    yield reader, writer
    writer.close()
    await server.shutdown()


async def _all_of(reader: asyncio.StreamReader) -> bytes:
    """What came until the end. One who closes with something unread resets the connection: that is an end, too."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := await reader.read(65536):
            found += part
    return found


def test_a_head_that_never_comes_to_its_end_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here with a shorter patience, and without an application: nobody gets as far."""
    monkeypatch.setattr(connections, "HEAD_S", 0.2)

    async def nobody(scope: object, receive: object, send: object) -> None:
        raise AssertionError("the head was not complete")

    async def asked() -> bytes:
        async with _connected_to(nobody) as (reader, writer):
            writer.write(b"GET / HTTP/1.1\r\nHost: ")
            return await asyncio.wait_for(_all_of(reader), 60)

    answer = asyncio.run(asked())
    assert answer.startswith(b"HTTP/1.1 408 ") and b"head_too_slow" in answer


async def _refuses(scope: Any, receive: Any, send: Any) -> None:
    """Answers before it has read anything."""
    await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"no"})


async def _reads(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass


@pytest.mark.parametrize(("app", "start"), [(_refuses, b"HTTP/1.1 401 "), (_reads, b"HTTP/1.1 408 ")])
def test_a_body_that_drips_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, app: Any, start: bytes) -> None:
    """Answered or not: each byte of it would keep the connection for longer."""
    monkeypatch.setattr(connections, "BODY_S", 0.4)
    monkeypatch.setattr(connections, "REST_S", 0.4)

    async def asked() -> bytes:
        async with _connected_to(app) as (reader, writer):
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
            reading = asyncio.ensure_future(_all_of(reader))
            sent = 0
            while not reading.done() and sent < 1200:
                writer.write(b"a")
                sent += 1
                await asyncio.wait([reading], timeout=0.05)
            assert reading.done(), "it was let in for ever"
        return reading.result()

    assert asyncio.run(asked()).startswith(start)


def test_empty_lines_do_not_keep_a_connection() -> None:
    async def asked() -> None:
        async with _connected_to(_refuses, timeout_keep_alive=1) as (reader, writer):
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readuntil(b"no")).startswith(b"HTTP/1.1 401 ")
            reading = asyncio.ensure_future(_all_of(reader))
            for _ in range(1200):
                writer.write(b"\r\n")
                await asyncio.wait([reading], timeout=0.05)
                if reading.done():
                    break
            assert reading.done(), "it was let in for ever"

    asyncio.run(asked())


def test_a_body_that_comes_after_its_answer_keeps_the_connection(server: Server) -> None:
    """In time, that is: a client that sends head and body apart is no stranger."""
    with _connected(server) as peer:
        for _ in range(2):
            peer.sendall(b"POST /tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n")
            answer = b""
            while not answer.endswith(b"}"):
                part = peer.recv(65536)
                assert part, "it was closed"
                answer += part
            assert answer.startswith(b"HTTP/1.1 401 ")
            peer.sendall(b"12345")


def test_a_crowd_that_says_nothing_leaves_the_run_its_files(tmp_path: Path) -> None:
    """The newest of them has a place, the oldest had to go for it."""
    repo = make_repo(tmp_path)
    with served(repo, HOLDFAST_SERVER__FOLLOWERS_MAX="1") as server:
        crowd = [_connected(server) for _ in range(300)]
        try:
            with contextlib.suppress(ConnectionResetError):
                assert crowd[0].recv(65536) == b""
            server.operator.post("/tasks", {"id": "t", "goal": "x"})
        finally:
            for each in crowd:
                each.close()
    sound(repo)


def test_a_path_has_one_spelling(server: Server) -> None:
    """A redirection would lead wherever the Host header says."""
    answer = server.operator.ask("GET", "/tasks/", host="evil.example")
    assert (answer.status, answer.code) == (404, "no_such_path") and "location" not in answer.headers


def test_if_match_is_a_list_of_tags(server: Server) -> None:
    change = {"changes": {"labels": ["seen"]}}
    for wrong in ('""', '"x"', 'W/"x"', '"x", "y"'):
        answer = server.operator.ask("PATCH", "/tasks/t", change, if_match=wrong)
        assert (answer.status, answer.code) == (412, "definition_changed"), wrong
    etag = server.operator.get("/tasks/t")["etag"]
    assert server.operator.ask("PATCH", "/tasks/t", change, if_match=f'"x", "{etag}"').status == 200
    assert server.operator.ask("PATCH", "/tasks/t", change, if_match="*").status == 200


def test_fields_that_holdfast_writes_are_not_edited(server: Server) -> None:
    for name in ("claim", "result", "error"):
        answer = server.operator.ask("PATCH", "/tasks/t", {"changes": {name: {"state": "CLOSED"}}})
        assert (answer.status, answer.code) == (422, "input_error")


def test_a_refused_client_is_logged(server: Server) -> None:
    server.operator.ask("GET", "/tasks", host="evil.example")
    server.operator.ask("GET", "/tasks", origin="http://evil.example")
    found = layout(server.repo).audit

    def told() -> str:
        return "".join(path.read_text() for path in found.glob("*.jsonl"))

    wait_for(lambda: "host_unknown" in told() and "origin_foreign" in told(), "both denials in the audit log")


def test_a_revoked_token_hears_nothing_more(tmp_path: Path) -> None:
    with served(make_repo(tmp_path)) as server:
        follower = server.reader.frames("/events?after=000001-x:0")
        assert next(follower)["event"]
        server.operator.post("/auth/revoke", {"role": "reader"})
        server.operator.post("/tasks", {"id": "secret", "goal": "x"})
        heard = list(follower)
        assert not [frame for frame in heard if "secret" in frame["data"]]
        assert server.reader.ask("GET", "/events").status == 401


# What an agent asks below: for subtasks of its own making, and for a circle.
QUESTIONS = """
ask "$HOLDFAST_URL/tasks/a/split" -d '{"tasks":[{"command":"touch ../../../escaped","sandbox":"off"}]}'
ask "$HOLDFAST_URL/tasks/a/split" -d '{"tasks":[{"goal":"x","verify":["true"]}]}'
ask "$HOLDFAST_URL/tasks/a/block" -d '{"on":["b"]}'
"""


def test_an_agent_gets_no_further_by_a_subtask_and_is_not_ended_by_a_refusal(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    add_asking(repo, "a", QUESTIONS)
    add(repo, "b", "write b.txt x", depends_on=["a"])
    with served(repo, "run", "--stay", "--plain") as server:
        wait_for((repo / "codes").exists, "three answers")
        assert (repo / "codes").read_text().split() == ["403", "403", "422"]
        assert server.operator.get("/tasks")["total"] == 2
        (repo / "go").touch()
        wait_for(lambda: state(repo).tasks["b"].state is TaskState.CLOSED, "both tasks closed")
        assert (state(repo).tasks["a"].attempts, state(repo).tasks["a"].start.number) == (1, 1)
    sound(repo)


def test_taking_out_a_key_that_no_task_has_is_refused(server: Server) -> None:
    for name in ("aprove", "0..0"):
        answer = server.operator.ask("PATCH", "/tasks/t", {"changes": {name: None}})
        assert answer.status == 422 and f"the key '{name}' is not known" in answer.json["detail"]
