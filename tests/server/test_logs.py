"""The server's log: what is in it, and what never is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.server.observability import logs
from holdfast.server.observability.logs import ServerLog
from kit.ops import running
from kit.project import add, layout, make_repo
from kit.waiting import wait_for


def lines(path: Path) -> list[dict[str, Any]]:
    """Those that are whole: a server that lives may be in the middle of one."""
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def of(event: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in found if line["event"] == event]


def test_changes_and_failures_are_logged_without_the_token(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    told = tmp_path / "told"
    # The agent has a token of its own, and asks for what is not its task's.
    cancel = 'curl -s -o /dev/null -H "Authorization: Bearer $HOLDFAST_TOKEN" -X POST "$HOLDFAST_URL/tasks/'
    ask = f'{cancel}$HOLDFAST_TOKEN/cancel"'
    add(repo, "asks", f'run echo "$HOLDFAST_TOKEN" >{told}; {ask}; echo 1 >a.txt')
    with running(repo) as server:
        server.wait_for_state("asks", "CLOSED")
        agents = told.read_text().strip()
        assert server.ask("/tasks", "POST", {"goal": "x", "id": 7}).status == 422
        assert server.ask("/tasks", "POST", {"goal": f"use {server.token}", "id": "made"}).status == 201
        assert server.ask("/tasks/made/cancel", "POST").status == 200
        assert server.ask(f"/tasks/{server.token}").status == 404
        assert server.ask("/tasks", "POST", {"goal": "x"}, token=server.reader_token).status == 403
        assert server.ask("/tasks", token="hfo_" + "9" * 40).status == 401
        assert server.ask("/tasks").status == 200
        server.stop()
    path = layout(repo).logs / "server.log"
    found = lines(path)
    assert [line["event"] for line in (found[0], found[-1])] == ["server_started", "server_stopped"]
    assert found[0]["url"] == server.url and found[0]["run"] == found[-1]["run"]
    assert all(set(line) >= {"ts", "level", "event"} for line in found)
    requests = of("request", found)
    [created] = [line for line in requests if line["status"] == 201]
    assert created["by"] == "operator" and created["level"] == "info" and created["seconds"] > 0
    [cancelled] = [line for line in requests if line.get("task") == "made"]
    assert cancelled["status"] == 200
    assert {line["status"] for line in requests} == {200, 201, 401, 403, 404, 422}
    # Reading well leaves no line.
    assert not [line for line in requests if line["operation"] == "list_tasks" and line["status"] == 200]
    denied = of("access_denied", found)
    assert {(line["code"], line["by"]) for line in denied} == {
        ("not_your_task", "asks.1"), ("token_reads_only", "reader"), ("token_unknown", "nobody"),
    }  # fmt: skip
    text = path.read_text()
    assert agents.startswith("hfa_") and "[redacted]" in text
    for token in (server.token, server.reader_token, agents, "hfo_" + "9" * 40):
        assert token not in text and token[-20:] not in text


def test_a_full_log_is_rotated_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "server.log"
    for number in range(200):
        log = ServerLog(path, bytes_max=1000)
        log.write("tried", number=number, filler="x" * 100)
        log.write("tried", number=number, filler="y" * 100)
        log.close()
    kept = sorted(each.name for each in path.parent.iterdir())
    assert kept == ["server.log", *(f"server.log.{number}" for number in range(1, logs.KEPT + 1))]
    numbers = [line["number"] for name in reversed(kept) for line in lines(path.parent / name)]
    # In order, without a hole, up to the newest.
    assert numbers == sorted(numbers) and set(numbers) == set(range(min(numbers), 200)) and min(numbers) > 0


def test_a_secret_at_the_edge_is_scrubbed_before_it_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    log = ServerLog(path, "correct horse battery")
    token = "hfo_" + "a1" * 20
    log.write("tried", asked="/" * (logs.TEXT_MAX - 10) + token, other="the correct horse battery staple", empty="")
    log.close()
    [line] = lines(path)
    assert "hfo_" not in line["asked"] and len(line["asked"]) <= logs.TEXT_MAX
    assert line["other"] == "the [redacted] staple" and "empty" not in line


def test_a_log_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    in_the_way = tmp_path / "logs"
    in_the_way.write_text("a file, and no folder")
    log = ServerLog(in_the_way / "server.log")
    log.write("tried")
    log.close()
    assert in_the_way.read_text() == "a file, and no folder"


def test_lines_that_come_too_fast_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "WAITING_MAX", 0)
    log = ServerLog(tmp_path / "server.log")
    log.write("lost")
    monkeypatch.setattr(logs, "WAITING_MAX", 10)
    log.write("kept")
    log.close()
    assert [(line["event"], line.get("count")) for line in lines(tmp_path / "server.log")] == [
        ("lines_dropped", 1),
        ("kept", None),
    ]


def test_the_server_logs_while_it_runs(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    with running(repo) as server:
        server.ask("/tasks/none/cancel", "POST")
        path = layout(repo).logs / "server.log"

        def found() -> list[dict[str, Any]]:
            # A check whether the server is ready may have been refused, too, and that is logged.
            return [line for line in of("request", lines(path)) if line.get("task") == "none"]

        wait_for(lambda: path.exists() and found(), "the line")
        [line] = found()
        assert (line["status"], line["code"], line["level"]) == (404, "task_unknown", "warning")
