"""Two things at the same moment, a crash or a fault between two others, and a worker who is not there any more."""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.config.settings import Config
from holdfast.domain.definition import Definition
from holdfast.domain.routing import choose
from holdfast.storage.journal.reader import Chain
from kit.disks import require_strace
from kit.program import holdfast
from kit.project import layout, make_repo, sound, state
from kit.server import Client, Server, served
from kit.waiting import wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy


def test_a_file_and_a_request_for_the_same_task_at_the_same_moment(tmp_path: Path) -> None:
    """A file that is gone makes the run look twice, a moment later: what is asked for in between comes first."""
    repo = make_repo(tmp_path)
    place, quicker = layout(repo).backlog_open, 0
    with served(repo) as server:
        for number in range(20):
            bait, name = f"bait-{number}", f"both-{number}"
            server.operator.post("/tasks", {"id": bait, "goal": "x"})
            wait_for((place / f"{bait}.yaml").exists, "a file to take away")
            made = tmp_path.parent / f"{name}.yaml"
            made.write_text(f"id: {name}\ngoal: by hand\n")
            os.rename(made, place / made.name)
            os.unlink(place / f"{bait}.yaml")
            answer = server.operator.ask("POST", "/tasks", {"id": name, "goal": "by request"})
            assert answer.status in (201, 409)
            quicker += answer.status == 201
            wait_for(lambda: _goal(server.operator, name) == "by hand", "the file's own words")
            if quicker == 3:
                break
        assert quicker, "the run was always quicker"
        assert server.process.poll() is None
    sound(repo)


def _goal(client: Client, task: str) -> str:
    answer = client.ask("GET", f"/tasks/{task}")
    return str(answer.json["definition"].get("goal", "")) if answer.status == 200 else ""


def test_a_task_without_a_file_yet_is_no_finding(tmp_path: Path) -> None:
    """Killed between the journal and the file: all is there, and the next run writes the file."""
    repo = make_repo(tmp_path)
    with served(repo, HOLDFAST_CRASH_AT="append.request_answered.after:1") as server:
        with pytest.raises(OSError):
            server.operator.ask("POST", "/tasks", {"id": "t", "goal": "x"}, idempotency_key="k")
        assert server.process.wait(120) == -9
    assert state(repo).tasks["t"].unfiled and not (layout(repo).backlog_open / "t.yaml").exists()
    sound(repo)
    assert "the next run writes its file" in holdfast(repo, "list")
    with served(repo) as server:
        assert server.operator.ask("POST", "/tasks", {"id": "t", "goal": "x"}, idempotency_key="k").status == 201
        wait_for((layout(repo).backlog_open / "t.yaml").exists, "its file")
    sound(repo)


@contextlib.contextmanager
def _served_by_a_disk_that_fails(folder: Path, how: str = "when=1", call: str = "fdatasync") -> Iterator[Server]:
    """A server at rest whose next sync fails, by strace. It ends with it, and leaves a sound root."""
    require_strace()
    repo, log = make_repo(folder / "repo"), folder / "strace"
    fault = ("-e", f"trace={call}", "-e", f"inject={call}:error=EIO:{how}")
    with served(repo) as server:
        server.operator.post("/tasks", {"id": "before", "goal": "x"})
        wait_for(lambda: not state(repo).tasks["before"].unfiled, "a server at rest")
        argv = ["strace", "-f", "-o", str(log), *fault, "-p", str(server.process.pid)]
        tracer = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
        assert tracer.stderr is not None and "attached" in tracer.stderr.readline()
        yield server
        assert server.process.wait(120) == 3
        tracer.communicate(timeout=120)
    assert "INJECTED" in log.read_text()
    sound(repo)


def test_a_sync_that_fails_once_leaves_nothing_that_cannot_be_started_again(tmp_path: Path) -> None:
    """What was gathered for that sync was known already, and must not be written down as if it had been."""
    with _served_by_a_disk_that_fails(tmp_path) as server:
        answer = server.operator.ask("POST", "/tasks", {"id": "t", "goal": "x"}, idempotency_key="k")
        assert (answer.status, answer.code) == (503, "sync_failed")
    with served(server.repo) as server:
        assert server.operator.ask("POST", "/tasks", {"id": "t", "goal": "x"}, idempotency_key="k").status == 201
        assert server.operator.get("/tasks")["total"] == 2
    sound(server.repo)


def test_a_blob_whose_sync_fails_is_not_acknowledged_and_ends_the_run(tmp_path: Path) -> None:
    with _served_by_a_disk_that_fails(tmp_path, call="fsync") as server:
        answer = server.operator.ask("POST", "/blobs", b"kept or not", content_type="text/plain")
        assert (answer.status, answer.code) == (503, "sync_failed")


def test_readers_never_see_state_that_is_not_durable(tmp_path: Path) -> None:
    """The state knows a task before its sync has returned. This sync takes its time, and then fails."""
    with _served_by_a_disk_that_fails(tmp_path, "delay_enter=1s:when=1") as server, ThreadPoolExecutor() as pool:
        posted = pool.submit(server.operator.ask, "POST", "/tasks", {"id": "t", "goal": "x"})
        seen = []
        while not posted.done():
            with contextlib.suppress(OSError, http.client.HTTPException):
                seen.append(server.with_token(server.address.token).ask("GET", "/tasks/t").status)
        assert posted.result().code == "sync_failed"
    assert seen and 200 not in seen


def test_a_lost_workers_task_goes_to_the_agent_of_the_rules(tmp_path: Path) -> None:
    """The attempt goes on, and a run that looked for an agent of the worker's name would never find one."""
    repo = make_repo(tmp_path)
    with served(repo, HOLDFAST_LEASE_S="1") as server:
        server.operator.post("/tasks", {"id": "t", "goal": "x"})
        held = server.operator.post("/tasks/t/claim", {"worker": "elsewhere"})
        wait_for(lambda: server.operator.get("/tasks/t")["task"]["state"] == "OPEN", "a lease that has run out")
        late = server.operator.ask("POST", "/tasks/t/heartbeat", {"claim": held["claim"]})
        assert (late.status, late.code) == (409, "claim_lost")
    found = state(repo).tasks["t"]
    assert found.continues and found.attempt.id == held["attempt"]
    assert choose(Definition("t", goal="x"), Config(), found).agent == Config().agent


def test_a_worker_elsewhere_is_not_undone(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    with served(repo) as server:
        server.operator.post("/tasks", {"id": "t", "goal": "x"})
        held = server.operator.post("/tasks/t/claim", {"worker": "elsewhere"})
        answer = server.operator.ask("POST", f"/attempts/{held['attempt']}/undo", {"turn": 0})
        assert (answer.status, answer.code) == (409, "decision_refused")
        assert server.operator.ask("POST", "/tasks/t/heartbeat", {"claim": held["claim"]}).status == 200
    sound(repo)


def test_an_edit_by_hand_a_moment_ago_counts_against_if_match(tmp_path: Path) -> None:
    """Between writing the file and asking there is no time for the run to take it in: the file is what counts."""
    repo = make_repo(tmp_path)
    with served(repo) as server:
        server.operator.post("/tasks", {"id": "t", "goal": "x"})
        path = layout(repo).backlog_open / "t.yaml"
        wait_for(path.exists, "its file")
        etag = server.operator.get("/tasks/t")["etag"]
        path.write_text("id: t\ngoal: by hand\n")
        answer = server.operator.ask("PATCH", "/tasks/t", {"changes": {"goal": "mine"}}, if_match=f'"{etag}"')
        assert (answer.status, answer.code) == (412, "definition_changed")
        assert "by hand" in path.read_text()
    sound(repo)


def test_an_edit_whose_answer_was_lost_is_not_told_that_somebody_else_made_it(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    (layout(repo).backlog_open / "t.yaml").write_text("id: t\ngoal: x\n")
    change, keyed = {"changes": {"priority": 2}}, {"idempotency_key": "k", "if_match": ""}
    with served(repo, HOLDFAST_CRASH_AT="append.request_answered.before:1") as server:
        wait_for(lambda: _goal(server.operator, "t") == "x", "the task")
        etag = server.operator.get("/tasks/t")["etag"]
        keyed["if_match"] = f'"{etag}"'
        with pytest.raises(OSError):
            server.operator.ask("PATCH", "/tasks/t", change, **keyed)
        assert server.process.wait(120) == -9
    with served(repo) as server:
        answer = server.operator.ask("PATCH", "/tasks/t", change, **keyed)
        assert (answer.status, answer.json["task"]["priority"]) == (200, 2)
        other = server.operator.ask("PATCH", "/tasks/t", {"changes": {"priority": 3}}, if_match=keyed["if_match"])
        assert (other.status, other.code) == (412, "definition_changed")
    sound(repo)


def test_a_lease_that_was_extended_is_not_taken_away_before_its_time(tmp_path: Path) -> None:
    """Signs of life that come just when the lease runs out: each is granted or refused, and what is granted holds."""
    repo, granted, refused = make_repo(tmp_path), [0.0], 0
    with served(repo, HOLDFAST_LEASE_S="0.1", HOLDFAST_MAX_ATTEMPTS="99") as server:
        server.operator.post("/tasks", {"id": "t", "goal": "x"})
        for number in range(15):
            held = server.operator.post("/tasks/claim", {"worker": "w"})
            granted.append(held["until"])
            for each in range(4):
                time.sleep(max(0.0, granted[-1] - time.time() - 0.01 + 0.004 * ((number + each) % 5)))
                beat = server.operator.ask("POST", "/tasks/t/heartbeat", {"claim": held["claim"]})
                assert beat.status == 200 or beat.code == "claim_lost"
                if beat.status != 200:
                    refused += 1
                    break
                granted[-1] = beat.json["until"]
            wait_for(lambda: server.operator.get("/tasks/t")["task"]["state"] == "OPEN", "a lease that has run out")
    lost = [entry.timestamp for _, entry in Chain(layout(repo).wal).entries() if entry.decision_type == "task_opened"]
    assert len(lost) == 15 and refused
    assert all(until <= at for until, at in zip(granted[1:], lost, strict=True))
    sound(repo)
