"""`/events`: each event once, in order, over reconnects, restarts and kills."""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.storage.journal.reader import Chain
from kit.project import layout, make_repo
from kit.server import Server, served
from kit.waiting import wait_for


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(make_repo(tmp_path_factory.mktemp("following"))) as serving:
        yield serving


def journal(repo: Path) -> list[str]:
    return [f"{run}:{entry.seq}" for run, entry in Chain(layout(repo).wal).entries()]


def taken(server: Server, count: int, **headers: str) -> list[dict[str, str]]:
    return list(itertools.islice(server.operator.frames("/events", **headers), count))


def test_a_follower_that_comes_back_has_no_gap_and_nothing_twice(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    seen: list[str] = []
    with served(repo) as first:
        beginning = journal(repo)[0]
        for number in range(20):
            first.operator.post("/tasks", {"id": f"a{number}", "goal": "x"})
        seen += [frame["id"] for frame in taken(first, 7, Last_Event_ID=beginning)]
        seen += [frame["id"] for frame in taken(first, 5, Last_Event_ID=seen[-1])]
        first.kill()
    with served(repo) as second:
        for number in range(20):
            second.operator.post("/tasks", {"id": f"b{number}", "goal": "x"})
        wait_for(lambda: len(list(layout(repo).backlog_open.glob("*.yaml"))) == 40, "all files")
        rest = len(journal(repo)) - 1 - len(seen)
        seen += [frame["id"] for frame in taken(second, rest, Last_Event_ID=seen[-1])]
        assert seen == journal(repo)[1 : 1 + len(seen)] and len(seen) > 40


def test_only_the_requested_events_are_sent(tmp_path: Path) -> None:
    with served(make_repo(tmp_path)) as server:
        frames = server.operator.frames("/events?task=b&kind=task_added&kind=task_cancelled")
        begun = server.operator.get("/status")["cursor"]
        for name in ("a", "b", "c"):
            server.operator.post("/tasks", {"id": name, "goal": "x"})
            server.operator.post(f"/tasks/{name}/cancel")
        path = f"/events?task=b&kind=task_added&kind=task_cancelled&after={begun}"
        told = [json.loads(frame["data"]) for frame in itertools.islice(server.operator.frames(path), 2)]
        assert [(each["task"], each["kind"]) for each in told] == [("b", "task_added"), ("b", "task_cancelled")]
        assert "text" not in told[0]["data"]
        frames.close()


@pytest.mark.parametrize("cursor", ["x", "000001-x", "000001-x:-1", "1:2:3", "000001-x:99999999999999999999"])
def test_an_invalid_cursor_is_refused(shared: Server, cursor: str) -> None:
    answer = shared.operator.ask("GET", f"/events?after={cursor}")
    assert (answer.status, answer.code) == (422, "cursor_unreadable")


def test_a_client_has_only_so_many_streams(tmp_path: Path) -> None:
    with served(make_repo(tmp_path), HOLDFAST_SERVER__FOLLOWERS_PER_CLIENT_MAX="2") as server:
        server.operator.post("/tasks", {"id": "a", "goal": "x"})
        begun = journal(server.repo)[0]
        streams = [server.operator.frames("/events", Last_Event_ID=begun) for _ in range(2)]
        for each in streams:
            next(each)
        refused = server.operator.ask("GET", "/events")
        assert (refused.status, refused.code) == (429, "too_many_streams")
        # Another token is another client.
        assert next(server.reader.frames("/events", Last_Event_ID=begun))
        for each in streams:
            each.close()
        wait_for(lambda: is_let_in(server, begun), "room again")


def is_let_in(server: Server, begun: str) -> bool:
    try:
        return bool(next(server.operator.frames("/events", Last_Event_ID=begun)))
    except AssertionError:
        return False


def test_one_that_does_not_read_is_let_go_with_its_cursor_and_holds_nobody_up(tmp_path: Path) -> None:
    """The ring is short here, so that a few tasks are more than it holds."""
    with served(make_repo(tmp_path), HOLDFAST_SERVER__EVENTS_KEPT="100") as server:
        begun = journal(server.repo)[0]
        slow = follow_without_reading(server, begun)
        server.operator.post("/tasks", {"id": "t", "goal": "x"})
        claim = server.operator.post("/tasks/t/claim", {"worker": "ann"})["claim"]
        for number in range(700):
            # More than the socket's buffers hold, so that the follower is really behind.
            server.operator.post("/tasks/t/progress", {"claim": claim, "message": f"{number} " + "x" * 9_900})
        wait_for(lambda: "holdfast_followers_dropped_total 1" in metrics(server), "a follower that was dropped")
        assert "follower_dropped" in (layout(server.repo).logs / "server.log").read_text()
        text = b""
        while chunk := slow.recv(1 << 16):
            text += chunk
        whole = text.rpartition(b"\n\n")[0].decode()
        last = whole.rpartition("\nid: ")[2].split()[0]
        known = journal(server.repo)
        following = taken(server, 1, Last_Event_ID=last)[0]["id"]
        assert following == known[known.index(last) + 1]


def metrics(server: Server) -> str:
    return server.operator.ask("GET", "/metrics").content.decode()


def follow_without_reading(server: Server, begun: str) -> socket.socket:
    host, port = server.address.url.removeprefix("http://").split(":")
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect((host, int(port)))
    head = f"GET /events HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {server.address.token}\r\n"
    made.sendall(f"{head}Last-Event-ID: {begun}\r\n\r\n".encode())
    return made
