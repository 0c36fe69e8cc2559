"""What is read over several runs, and what asks something of an agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.domain.task import TaskState
from holdfast.server.serving import read_address
from kit.project import add, layout, state
from kit.server import served
from kit.tasks import THREE_TURNS, hanging
from kit.waiting import wait_for


@pytest.mark.heavy
def test_a_run_that_was_killed_is_marked_and_costs_are_the_same_after_it(repo: Path) -> None:
    add(repo, "a", f"{THREE_TURNS}spend 0.5 10\nfail no luck", max_attempts=1)
    with served(repo, "run", "--stay", "--plain") as server:
        wait_for(lambda: "a" in state(repo).tasks and state(repo).tasks["a"].state is TaskState.FAILED, "the failure")
        first, costs = server.reader.get("/status")["run"], server.reader.get("/costs?by=agent")
        server.kill()
    with served(repo) as server:
        runs = server.reader.get("/timeline")["runs"]
        assert [(each["how"], each["run"] == first) for each in runs] == [("killed", True), ("running", False)]
        assert runs[0]["ended"] >= runs[0]["began"]
        assert server.reader.get("/costs?by=agent") == costs and costs["usd"] == 0.5
        assert not server.reader.get("/status")["works"]
        # A person puts the attempt back to its first turn.
        server.operator.post("/attempts/a.1/undo", {"turn": 1})
        turns = server.reader.get("/attempts/a.1/turns")["turns"]
        assert [each["undone"] for each in turns] == [False, True, True]
    with served(repo) as server:
        hows = [each["how"] for each in server.reader.get("/timeline")["runs"]]
        assert hows == ["killed", "orderly", "running"]


def test_an_agent_is_stopped_and_its_output_has_an_end(repo: Path) -> None:
    hanging(repo, "a")  # it is cancelled in the end
    with served(repo, "run", "--stay", "--plain") as server:
        wait_for(lambda: "a" in state(repo).tasks and state(repo).tasks["a"].attempt.turn == 1, "its first turn")
        (starts,) = {state(repo).tasks["a"].start.number}
        answer = server.operator.post("/agents/a.1/stop")
        assert answer["task"]["id"] == "a" and "asked to end" in answer["note"]
        wait_for(lambda: state(repo).tasks["a"].state is TaskState.OPEN, "that it was given back")
        task = server.reader.get("/tasks/a")["task"]
        assert task["parked"] == "a person has stopped its agent" and state(repo).tasks["a"].start.number == starts
        server.operator.post("/tasks/a/resolve", {"decision": "retry"})
        wait_for(lambda: state(repo).tasks["a"].start.number > starts, "that it goes on")
        frames = server.reader.frames("/agents/a.1/output?follow=true&after=0")
        assert next(frames)["event"] == "output"
        server.operator.post("/tasks/a/cancel")
        assert [frame["event"] for frame in frames][-1] == "end"
        assert server.operator.ask("POST", "/agents/a.1/stop", {}).code == "agent_unknown"


def test_a_worker_from_elsewhere_is_an_agent_with_a_lease(repo: Path) -> None:
    with served(repo) as server:
        server.operator.post("/tasks", {"id": "a", "goal": "x"})
        claim = server.operator.post("/tasks/a/claim", {"worker": "w1"})
        (found,) = server.reader.get("/agents")["agents"]
        assert (found["attempt"], found["remote"], found["worker"]) == ("a.1", True, "w1")
        assert found["until"] == claim["until"]
        again = server.operator.post("/agents/a.1/heartbeat", {"claim": claim["claim"]})
        assert again["until"] > claim["until"]
        assert server.operator.ask("POST", "/agents/a.1/heartbeat", {"claim": "x"}).code == "claim_lost"
        assert server.operator.ask("POST", "/agents/a.1/stop", {}).status == 409
        assert server.reader.ask("GET", "/attempts/a.1/diff").code == "turn_unknown"
        for part in ("turns", "spend", "provenance", "snapshots"):
            assert next(iter(server.reader.get(f"/attempts/a.1/{part}").values())) == []


def test_revoked_tokens_are_worth_nothing_and_the_new_one_is_found(repo: Path) -> None:
    with served(repo) as server:
        answer = server.operator.post("/auth/revoke", {"role": "reader"})
        assert answer["role"] == "reader"
        assert server.reader.ask("GET", "/status").code == "token_unknown"
        assert server.operator.ask("GET", "/status").status == 200
        server.operator.post("/auth/revoke", {"role": "operator"})
        assert server.operator.ask("GET", "/status").code == "token_unknown"
        address = read_address(layout(repo))
        assert address is not None and server.with_token(address.token).get("/auth/me")["role"] == "operator"
        # What was asked for is in the log, a secret in it is not.
        server.with_token(address.token).ask("GET", f"/tasks/of-{address.token}")
        assert server.with_token(address.reader_token).get("/auth/me")["role"] == "reader"
        audited = "".join(path.read_text() for path in layout(repo).audit.glob("*.jsonl"))
        assert audited.count('"tokens_revoked"') == 2
        assert layout(repo).server.stat().st_mode & 0o777 == 0o600
    logged = (layout(repo).logs / "server.log").read_text()
    assert '"task":"of-' in logged and address.token not in logged
