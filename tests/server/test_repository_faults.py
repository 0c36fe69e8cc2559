"""Faults of the repository or the machine: the API reports them, with what to type."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from kit.git import faulty_git, git
from kit.program import begin, holdfast
from kit.project import add, state
from kit.server import served
from kit.waiting import wait_for


@pytest.mark.heavy
def test_a_lost_landing_is_told_while_it_is_lost(repo: Path) -> None:
    add(repo, "t", "write t.txt x")
    holdfast(repo, "run")
    landed = state(repo).tasks["t"].landing.commit
    with served(repo) as server:
        ask = server.reader
        assert ask.get("/status")["lost"] == [] and "lost" not in ask.get("/tasks/t")["task"]
        git(repo, "update-ref", "refs/heads/main", f"{landed}~1")
        wait_for(lambda: bool(ask.get("/status")["lost"]), "the lost landing")
        (lost,) = ask.get("/status")["lost"]
        assert lost["task"] == "t" and f"its landing {landed[:12]} is not on main any more" == lost["why"]
        assert "holdfast resolve t --rewritten COMMIT | --dropped" in lost["next_step"]
        for row in (ask.get("/tasks")["tasks"][0], ask.get("/tasks/t")["task"]):
            assert (row["lost"], row["next_step"]) == (lost["why"], lost["next_step"])
        server.operator.post("/tasks/t/settle", {})
        assert ask.get("/status")["lost"] == [] and "lost" not in ask.get("/tasks/t")["task"]


def test_a_lock_that_a_dead_run_left_on_the_index_is_reported(repo: Path) -> None:
    add(repo, "t", "write t.txt x")
    assert begin(repo, HOLDFAST_CRASH_AT="land.swap.after:1").wait() == -signal.SIGKILL
    lock = repo / ".git" / "index.lock"
    with served(repo) as server:
        (told,) = server.reader.get("/status")["locks"]
        assert told["path"] == str(lock) and "a run died while it landed" in told["why"]
    # What it says to type ends the server, and then the lock.
    assert told["next_step"] == "holdfast stop, then holdfast run"
    holdfast(repo, "run")
    assert not lock.exists()


def test_a_fault_of_the_machine_is_reported_with_what_tries_it_again(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fired = faulty_git(tmp_path, monkeypatch, '"worktree add"*', "kill -KILL $$")
    add(repo, "t", "write t.txt x")
    with served(repo, "run", "--stay", "--plain") as server:
        wait_for(lambda: "cause" in server.reader.get("/tasks/t")["task"], "the fault")
        told = server.reader.get("/tasks/t")
        assert fired.exists() and "it was ended by SIGKILL" in told["task"]["cause"]
        assert "held up by a fault of the machine: " in told["task"]["fault"]
        # The run that is alive tries it again by itself.
        assert not told["task"].get("next_step") and not told["task"].get("not_before")
        server.kill()
    with served(repo) as server:
        told = server.reader.get("/tasks/t")
        assert told["task"]["next_step"] == "holdfast stop, then holdfast run"
        assert any("held up by a fault of the machine: " in why and "SIGKILL" in why for why in told["waits"])
    (tmp_path / "mended").touch()
    holdfast(repo, "run")
    assert state(repo).tasks["t"].landing.commit and state(repo).tasks["t"].attempts == 1
