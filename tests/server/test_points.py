"""Killed at every append that a request makes: asked again under its key, it is done once, and check is sound."""

from __future__ import annotations

import http.client
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.decisions.mailbox import DECISIONS
from holdfast.server.operations import Operation
from holdfast.server.routes import all_operations
from holdfast.storage.journal.reader import Chain
from kit.project import layout, make_repo, sound, state
from kit.server import Server, served
from kit.waiting import wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy

KINDS = (
    "task_added", "request_answered", "tasks_filed", "task_claimed", "task_started", "task_progressed", "task_done",
    "task_cancelled", "task_split", "task_edited",
)  # fmt: skip
POINTS = [f"append.{kind}.{when}" for kind in KINDS for when in ("before", "after")]
CHILDREN = [{"id": "c1", "goal": "x"}, {"id": "c2", "goal": "x"}]
# Method, path and body; each is sent under a key of its own.
REQUESTS: list[tuple[str, str, Any]] = [
    ("POST", "/tasks", {"id": "a", "goal": "x"}),
    ("POST", "/tasks/batch", {"tasks": [{"id": "b", "goal": "x"}, {"id": "c", "goal": "x"}]}),
    ("PATCH", "/tasks/c", {"changes": {"priority": 2}}),
    ("POST", "/tasks/a/claim", {"worker": "ann"}),
    ("POST", "/tasks/a/start", {"claim": "a.1/1"}),
    ("POST", "/tasks/a/progress", {"claim": "a.1/1", "message": "half"}),
    ("POST", "/tasks/a/complete", {"claim": "a.1/1"}),
    ("POST", "/tasks/b/cancel", {}),
    ("POST", "/tasks/c/split", {"tasks": CHILDREN}),
]
# Operations that change something and are not asked here, with the reason.
NOT_ASKED = {
    **dict.fromkeys(("beat_task", "beat_agent"), "a heartbeat appends nothing"),
    **dict.fromkeys(
        ("claim_next", "fail_task", "release_task"), "append as claiming and completing do, with one answer"
    ),
    **dict.fromkeys(DECISIONS, "decided as a command decides: tests/decisions/test_mailbox.py kills the run there"),
    "block_task": "appends as splitting does",
    "draft_review": "decided as a review is: tests/decisions/test_reviews.py kills it there",
    "revoke_tokens": "writes a key, and no entry of a task",
}


def test_every_operation_that_changes_something_is_asked_or_says_why_not() -> None:
    def matches(operation: Operation, method: str, path: str) -> bool:
        return operation.method == method and bool(re.fullmatch(re.sub(r"\{\w+\}", r"[^/]+", operation.path), path))

    changing = [each for each in all_operations() if each.changes]
    asked = {each.name for each in changing for method, path, _ in REQUESTS if matches(each, method, path)}
    told = {each.name for each in changing if {each.name, each.name.rpartition("_")[0]} & NOT_ASKED.keys()}
    assert {each.name for each in changing} - asked - told == set()


class Killed(Exception):
    pass


def send(server: Server, number: int) -> None:
    method, path, body = REQUESTS[number]
    try:
        answer = server.operator.ask(method, path, body, Idempotency_Key=f"key-{number}")
    except (OSError, http.client.HTTPException):
        raise Killed from None
    assert answer.status in (200, 201), (path, answer)


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_a_point_loses_no_answered_request(tmp_path: Path, point: str) -> None:
    repo = make_repo(tmp_path)
    done = lives = 0
    env = {"HOLDFAST_CRASH_AT": f"{point}:1", "HOLDFAST_CRASH_ONCE": str(tmp_path / "once")}
    (tmp_path / "once").mkdir()
    while done < len(REQUESTS):
        lives += 1
        assert lives <= 3, "it dies again and again"
        with served(repo, **env) as server:
            try:
                while done < len(REQUESTS):
                    send(server, done)
                    done += 1
                wait_for(lambda: not any(task.unfiled for task in state(repo).tasks.values()), "all files")
            except (Killed, AssertionError):
                wait_for(lambda: server.process.poll() is not None, "the end of the process")
                assert server.process.returncode == -9
    assert list((tmp_path / "once").iterdir()), "nobody was killed"
    kinds = [entry.decision_type for _, entry in Chain(layout(repo).wal).entries()]
    counted = {kind: kinds.count(kind) for kind in KINDS}
    assert counted | {"tasks_filed": 0, "task_edited": 0} == {
        "task_added": 5, "request_answered": len(REQUESTS), "tasks_filed": 0, "task_claimed": 1, "task_started": 1,
        "task_progressed": 1, "task_done": 1, "task_cancelled": 1, "task_split": 1, "task_edited": 0,
    }  # fmt: skip
    states = {name: str(task.state) for name, task in state(repo).tasks.items()}
    assert states == {"a": "DONE", "b": "CANCELLED", "c": "WAITING_FOR_SUBTASKS", "c1": "OPEN", "c2": "OPEN"}
    sound(repo)
