"""Slow gates and git under `serve`: they run beside everything else that is asked meanwhile."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kit.git import git
from kit.program import holdfast
from kit.project import add, landed, make_repo, sound, state
from kit.server import Server, served
from kit.tasks import THREE_TURNS
from kit.waiting import shell_wait, wait_for


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Of a task that has failed its gate. The gate says that it began, and ends once it may."""
    repo = make_repo(tmp_path / "repo")
    began, may_pass = tmp_path / "began", tmp_path / "may-pass"
    gate = f"test -e {tmp_path / 'again'} || exit 1; touch {began}; {shell_wait(may_pass)}"
    add(repo, "a", THREE_TURNS, max_attempts=1, verify=[gate])
    holdfast(repo, "run", code=20)
    (tmp_path / "again").touch()
    with served(repo) as made:
        made.operator.post("/tasks", {"id": "other", "goal": "x"})
        yield made
        may_pass.touch()


def test_gates_of_what_is_promoted_hold_nobody_up(server: Server, tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        promoted = pool.submit(server.with_token(server.address.token).post, "/tasks/a/promote")
        wait_for((tmp_path / "began").exists, "the gate")
        assert server.reader.get("/status")["finishing"] == "a"
        edited = server.operator.ask("PATCH", "/tasks/other", {"changes": {"priority": 1}})
        cancelled = server.operator.post("/tasks/other/cancel")
        assert edited.status == 200 and cancelled["task"]["state"] == "CANCELLED"
        assert not promoted.done()
        (tmp_path / "may-pass").touch()
        answer = promoted.result()
    assert answer["task"]["state"] == "CLOSED" and answer["facts"]["landed"] == git(server.repo, "rev-parse", "main")
    assert landed(server.repo) == ["a"]
    assert "is on main already" in server.operator.post("/tasks/a/promote")["note"]


def test_the_command_has_the_same_answer(server: Server, tmp_path: Path) -> None:
    (tmp_path / "may-pass").touch()
    holdfast(server.repo, "promote", "a")
    assert landed(server.repo) == ["a"] and state(server.repo).tasks["a"].landing.commit
    lost = state(server.repo).tasks["a"].landing.commit
    git(server.repo, "update-ref", "refs/heads/main", f"{lost}~1")
    git(server.repo, "reset", "--hard", "-q")
    assert "landed again" in server.operator.post("/tasks/a/promote")["note"]
    assert landed(server.repo) == ["a"]
    sound(server.repo)


def test_a_result_that_the_gate_refuses_again_is_reported(server: Server, tmp_path: Path) -> None:
    (tmp_path / "again").unlink()
    answer = server.operator.post("/tasks/a/promote")
    assert answer["task"]["state"] == "FAILED" and answer["note"]
    assert landed(server.repo) == []


def test_git_delays_only_requests_that_ask_it(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    slow, asked = tmp_path / "bin" / "git", tmp_path / "asked"
    from_now, go = tmp_path / "from-now", tmp_path / "go"
    slow.parent.mkdir()
    wait = f"while [ -e {from_now} ] && [ ! -e {go} ]; do touch {asked}; sleep 0.02; done"
    slow.write_text(f'#!/bin/sh\ncase "$*" in *cat-file*) {wait};; esac\nexec {shutil.which("git")} "$@"\n')
    slow.chmod(0o755)
    with served(repo, PATH=f"{slow.parent}:{os.environ['PATH']}") as server, ThreadPoolExecutor() as pool:
        ask = server.operator
        ask.post("/tasks", {"id": "a", "goal": "x"})
        held = {"claim": ask.post("/tasks/a/claim", {"worker": "w"})["claim"], "commit": git(repo, "rev-parse", "HEAD")}
        from_now.touch()
        done = pool.submit(server.with_token(server.address.token).post, "/tasks/a/complete", held)
        try:
            wait_for(asked.exists, "that git is asked")
            assert ask.post("/tasks", {"id": "b", "goal": "x"})["state"] == "OPEN"
            assert not done.done()
        finally:
            go.touch()
        assert done.result()["task"]["state"] == "DONE"
