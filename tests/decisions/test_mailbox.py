"""Decisions while `holdfast run` lives go through it; when it dies on the way, the asker decides, and once."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast import identity
from holdfast.decisions import mailbox
from holdfast.decisions.context import Answer
from holdfast.storage.records import attempt_folder
from kit.program import begin, holdfast
from kit.project import add, landed, layout, make_repo, settings, sound, state
from kit.tasks import ask, failed, journal, keys, living_run, rejected
from kit.waiting import wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy


def of_run(repo: Path, kind: str) -> set[str]:
    """The runs whose journal has such an entry."""
    return {file.name for file in layout(repo).wal.glob("*.wal.jsonl") if f'"{kind}"' in file.read_text()}


@contextlib.contextmanager
def connected(repo: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as connection, contextlib.chdir(layout(repo).secret):
        connection.connect(layout(repo).decisions.name)
        yield connection


def told(connection: socket.socket, text: bytes = b"") -> bytes:
    """What the run says to this, up to the end of the connection."""
    connection.sendall(text)
    with connection.makefile("rb") as file:
        return file.read()


def test_a_run_that_lives_decides_and_goes_on_with_what_was_decided(repo: Path) -> None:
    key = rejected(repo)
    failed(repo, "b", script="write e.txt one\nwrite f.txt two\n")
    add(repo, "c", "write c.txt x", approve=True)
    add(repo, "d", "write d.txt x", depends_on=["b"])
    with living_run(repo) as run:
        wait_for(lambda: str(state(repo).tasks["c"].state) == "PENDING_APPROVAL", "what waits for a person")
        before = set(layout(repo).wal.glob("*.wal.jsonl"))
        assert ask(repo, "approve", "c") == [{"id": "c", "state": "DONE", "note": "the run lands it"}]
        key.write_text("")
        assert ask(repo, "promote", "a")[0]["note"] == "the run verifies and lands it"
        assert ask(repo, "cancel", "d")[0]["state"] == "CANCELLED"
        wait_for(lambda: sorted(landed(repo)) == ["a", "c"], "both landings")
        assert ask(repo, "fork", "b", "--turn", "2")[0]["state"] == "OPEN"
        assert "cannot be approved: it is cancelled" in holdfast(repo, "approve", "d", code=9)
        assert "There is no task 'nope' here" in holdfast(repo, "cancel", "nope", code=2)
        assert set(layout(repo).wal.glob("*.wal.jsonl")) == before, "no other run was begun"
        assert run.poll() is None
        wait_for(lambda: "b" in landed(repo), "the forked attempt")
    assert run.returncode == 0 and not layout(repo).decisions.exists()
    assert of_run(repo, "task_cancelled") == of_run(repo, "attempt_forked")
    sound(repo)


def test_the_run_ends_the_agent_of_what_is_cancelled(repo: Path) -> None:
    settings(repo, grace_s=0.5)
    with living_run(repo):
        running = attempt_folder.read_process(layout(repo).attempt_files("keeper.1"))
        assert running is not None and running.agent.is_alive()
        assert ask(repo, "cancel", "keeper")[0]["state"] == "CANCELLED"
        assert not running.agent.is_alive() and not running.runner.is_alive()
    assert landed(repo) == [] and len(journal(repo, "task_cancelled")) == 1
    sound(repo)


@pytest.mark.parametrize(
    ("point", "line"),
    [
        ("request.seen", "cancel b"),
        ("request.decided", "cancel b"),
        ("request.answered", "cancel b"),
        ("request.decided", "resume a"),
        ("request.decided", "fork a --turn 1 --id new"),
    ],
)
def test_a_decision_of_a_run_that_dies_on_the_way_is_made_once_by_the_asker(repo: Path, point: str, line: str) -> None:
    assert point in mailbox.REQUEST_POINTS
    failed(repo)
    add(repo, "b", "write b.txt x", depends_on=["a"])
    with living_run(repo, HOLDFAST_CRASH_AT=f"{point}:1") as run:
        holdfast(repo, *line.split())
        run.wait(timeout=60)
        assert run.returncode == -9, "the fault fired"
    found = keys(repo)
    assert found and len(found) == len(set(found)) and {key.partition("#")[0] for key in found} == {found[0]}
    kind = {"cancel": "task_cancelled", "resume": "attempt_resumed", "fork": "task_added"}[line.split()[0]]
    assert len([entry for entry in journal(repo, kind) if "idempotency_key" in entry.inputs]) == 1
    sound(repo)


def test_a_client_that_hangs_or_sends_nonsense_keeps_nobody_waiting(repo: Path) -> None:
    add(repo, "b", "write b.txt x", depends_on=["keeper"])
    request = {"id": "1" * 32, "kind": "cancel", "params": {"tasks": ["b"]}}
    with living_run(repo) as run:
        assert stat.S_IMODE(layout(repo).decisions.stat().st_mode) == 0o600
        assert stat.S_IMODE(layout(repo).secret.stat().st_mode) == 0o700
        with contextlib.ExitStack() as hanging:
            for half in (b"", b"{", json.dumps(request).encode()):
                hanging.enter_context(connected(repo)).sendall(half)
            for nonsense in (b"no json\n", b"{}\n", json.dumps(request | {"more": 1}).encode() + b"\n"):
                with connected(repo) as connection:
                    assert told(connection, nonsense) == b""
            with connected(repo) as connection:
                refused = json.loads(told(connection, json.dumps(request | {"kind": "__import__"}).encode() + b"\n"))
            assert (refused["error"]["code"], refused["error"]["exit_code"]) == ("InputError", 2)
            assert str(state(repo).tasks["b"].state) == "OPEN"
            assert ask(repo, "cancel", "b")[0]["state"] == "CANCELLED", "and one that is in order is answered"
        assert run.poll() is None


def test_a_request_that_nobody_waits_for_is_not_decided(repo: Path) -> None:
    add(repo, "b", "write b.txt x", depends_on=["keeper"])
    add(repo, "c", "write c.txt x", depends_on=["keeper"])
    with living_run(repo) as run:
        os.kill(run.pid, signal.SIGSTOP)
        wait_for(lambda: identity.is_stopped(run.pid), "the run to stand still")
        try:
            with connected(repo) as connection:
                request = {"id": "1" * 32, "kind": "cancel", "params": {"tasks": ["b"]}}
                connection.sendall(json.dumps(request).encode() + b"\n")
            assert f"kill -CONT {run.pid}" in holdfast(repo, "cancel", "b", code=mailbox.RunStopped.exit_code)
        finally:
            os.kill(run.pid, signal.SIGCONT)
        assert ask(repo, "cancel", "c")[0]["state"] == "CANCELLED", "it answers again"
        assert str(state(repo).tasks["b"].state) == "OPEN"


def test_a_large_answer_comes_whole_and_who_does_not_read_it_stops_nobody(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "SILENT_S_MAX", 60.0)
    large = Answer([], {"text": "x" * (4 << 20)})
    waiting: queue.SimpleQueue[mailbox.Asked] = queue.SimpleQueue()
    with mailbox.Mailbox(layout(repo), waiting.put), connected(repo) as lazy, ThreadPoolExecutor(1) as asker:
        lazy.sendall(json.dumps({"id": "1" * 32, "kind": "cancel", "params": {}}).encode() + b"\n")
        waiting.get(timeout=60).reply(mailbox.Reply(large))
        answer = asker.submit(mailbox.ask, layout(repo), "2" * 32, "cancel", {})
        waiting.get(timeout=60).reply(mailbox.Reply(large))
        assert answer.result(timeout=60) == large
        assert json.loads(told(lazy))["result"]["facts"] == large.facts, "it was waited for"
    assert not mailbox.is_served(layout(repo)) and mailbox.ask(layout(repo), "3" * 32, "cancel", {}) is None


def test_the_socket_of_a_run_that_was_killed_is_replaced_also_below_a_long_path(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    repo = make_repo(deep / "repo")
    settings(repo, grace_s=0.5)
    with living_run(repo) as run:
        run.kill()
        run.wait()
        assert layout(repo).decisions.is_socket() and not mailbox.is_served(layout(repo))
        again = begin(repo)
        wait_for(lambda: mailbox.is_served(layout(repo)) or again.poll() is not None, "the next run")
        before = set(layout(repo).wal.glob("*.wal.jsonl"))
        assert ask(repo, "cancel", "keeper")[0]["state"] == "CANCELLED"
        assert set(layout(repo).wal.glob("*.wal.jsonl")) == before, "no other run was begun"
        again.communicate(timeout=60)
    assert again.returncode == 0 and not layout(repo).decisions.exists()
