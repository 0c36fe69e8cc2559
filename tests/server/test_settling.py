"""Landings that wait or were rewritten, and tasks for another agent: what a person decides through the API."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.domain.task import TaskState
from kit.git import git
from kit.program import holdfast
from kit.project import add, landed, sound, state
from kit.server import Client, served
from kit.waiting import wait_for

STAY = ("run", "--stay", "--plain")


def lands_and_is_lost(repo: Path, name: str = "t") -> str:
    """A landing that somebody then rewrote so that nothing is left to recognise it by."""
    add(repo, name, f"write {name}.txt x")
    holdfast(repo, "run")
    commit = state(repo).tasks[name].landing.commit
    git(repo, "reset", "-q", "--hard", "HEAD~1")
    (repo / f"{name}.txt").write_text("y\n")
    (repo / "more.txt").write_text("y\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "in other words")
    return commit


def test_a_lost_landing_is_settled_as_rewritten(repo: Path) -> None:
    lost = lands_and_is_lost(repo)
    with served(repo) as server:
        ask = server.operator
        wrong = ask.ask("POST", "/tasks/t/settle", {"commit": lost})
        assert (wrong.status, wrong.code) == (422, "input_error")
        assert server.reader.ask("POST", "/tasks/t/settle", {"commit": "HEAD"}).status == 403
        head = git(repo, "rev-parse", "HEAD")
        told = ask.post("/tasks/t/settle", {"commit": "HEAD"}, Idempotency_Key="once")
        assert told["facts"]["landed"] == head and head[:12] in told["note"]
        assert ask.post("/tasks/t/settle", {"commit": "HEAD"}, Idempotency_Key="once") == told
        again = ask.ask("POST", "/tasks/t/settle", {"commit": "HEAD"})
        assert (again.status, again.code) == (409, "decision_refused")
        assert ask.get("/tasks/t")["landed"] == head
    sound(repo)


def test_a_lost_landing_is_settled_as_dropped(repo: Path) -> None:
    lands_and_is_lost(repo)
    with served(repo) as server:
        told = server.operator.post("/tasks/t/settle", {})
        assert "dropped on purpose" in told["note"] and told["task"]["state"] == "CLOSED"
        assert "landed" not in server.operator.get("/tasks/t")
        unknown = server.operator.ask("POST", "/tasks/nobody/settle", {})
        assert (unknown.status, unknown.code) == (404, "task_unknown")
    sound(repo)


def waits(repo: Path) -> None:
    add(repo, "t", "attempt 1: append README.md more\nattempt 2+: run git checkout README.md\nwrite other.txt x")
    (repo / "README.md").write_text("mine\n")


def paths_of(ask: Client) -> list[str]:
    found: list[str] = ask.get("/tasks/t")["task"].get("landing_waits", [])
    return found


@pytest.mark.heavy
def test_a_result_is_sent_back_only_with_a_reason(repo: Path) -> None:
    waits(repo)
    with served(repo, *STAY) as server:
        ask = server.operator
        wait_for(lambda: paths_of(ask) == ["README.md"], "a landing that waits")
        without = ask.ask("POST", "/tasks/t/retry", {})
        assert (without.status, without.code) == (409, "decision_refused") and "--reason" in without.json["detail"]
        told = ask.post("/tasks/t/retry", {"reason": "leave the README alone"})
        assert told["task"]["state"] == "OPEN" and "landing_waits" not in told["task"]
        wait_for(lambda: landed(repo) == ["t"], "the second attempt")
        assert git(repo, "show", "main:other.txt") == "x" and (repo / "README.md").read_text() == "mine\n"
    assert "leave the README alone" in holdfast(repo, "history", "t")


def test_a_result_is_landed_on_a_branch(repo: Path) -> None:
    waits(repo)
    with served(repo, *STAY) as server:
        ask = server.operator
        wait_for(lambda: paths_of(ask) == ["README.md"], "a landing that waits")
        for name in ("main", "a..b"):
            refused = ask.ask("POST", "/tasks/t/promote", {"branch": name})
            assert (refused.status, refused.code) == (422, "input_error"), name
        told = ask.post("/tasks/t/promote", {"branch": "later"})
        assert told["task"]["state"] == "CLOSED" and told["facts"]["landed"] == git(repo, "rev-parse", "later")
        assert ask.get("/tasks/t")["landed_on"] == "refs/heads/later"
    assert landed(repo, "later") == ["t"] and landed(repo) == []
    sound(repo)


def test_a_task_is_given_to_another_agent(repo: Path) -> None:
    with served(repo) as server:
        ask = server.operator
        ask.post("/tasks", {"id": "t", "script": "write a x"})
        claimed = ask.post("/tasks/t/claim", {"worker": "ann"})
        ask.post("/tasks/t/start", {"claim": claimed["claim"]})
        nobody = ask.ask("POST", "/tasks/t/reassign", {"agent": "nobody"})
        assert (nobody.status, nobody.code) == (409, "decision_refused"), nobody
        assert "there is no agent called nobody." in nobody.json["detail"]
        told = ask.post("/tasks/t/reassign", {"agent": "scripted", "reason": "ann is away"})
        assert told["task"]["state"] == "OPEN"
        late = ask.ask("POST", "/tasks/t/complete", {"claim": claimed["claim"]})
        assert (late.status, late.code) == (409, "claim_lost")
    task = state(repo).tasks["t"]
    assert task.state is TaskState.OPEN and task.assigned[0] == "scripted"
    sound(repo)
