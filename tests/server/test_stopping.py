"""What a person stops stays stopped: it can be put back or forked, and goes on when somebody says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.app import App
from holdfast.domain.task import TaskState
from holdfast.domain.task_record import Task
from holdfast.server.observability.tracing import Spans
from holdfast.storage.journal.entry import Record
from holdfast.storage.journal.reader import Chain
from kit.git import git
from kit.program import holdfast
from kit.project import add, layout, make_repo, sound, state
from kit.roots import short_run
from kit.server import Server, served
from kit.tasks import journal
from kit.waiting import shell_wait, wait_for


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    repo = make_repo(tmp_path / "repo")
    go = repo.parent / "go"
    add(repo, "a", f"write a.txt one\nwrite b.txt two\nrun {shell_wait(go)}")
    with served(repo, "run", "--stay", "--plain") as made:
        yield made
        go.touch()


def task(server: Server) -> Task:
    return state(server.repo).tasks["a"]


def stop(server: Server) -> Task:
    """Its agent has made two turns, and is stopped in the third."""
    wait_for(lambda: "a" in state(server.repo).tasks and task(server).attempt.turn == 2, "its second turn")
    assert "holdfast resume a" in server.operator.post("/agents/a.1/stop")["note"]
    wait_for(lambda: task(server).state is TaskState.OPEN, "that it was given back")
    return task(server)


def expect_landed(server: Server) -> None:
    (server.repo.parent / "go").touch()
    wait_for(lambda: task(server).state is TaskState.CLOSED, "that it lands")
    assert git(server.repo, "ls-tree", "--name-only", "main").split() == [".gitignore", "README.md", "a.txt", "b.txt"]
    sound(server.repo)


def test_a_stopped_task_is_put_back_and_continues_on_resume(server: Server) -> None:
    before = stop(server)
    worktree = layout(server.repo).worktree("a")
    assert (worktree / "b.txt").exists()
    note = server.operator.post("/attempts/a.1/undo", {"turn": 1})["note"]
    assert "holdfast resume a" in note and not (worktree / "b.txt").exists()
    shown = server.reader.get("/tasks/a")["task"]
    assert shown["parked"] == "a person has stopped its agent"
    assert "holdfast resume a" in holdfast(server.repo, "status")
    assert task(server).claim.number == before.claim.number, "it stays stopped until somebody says so"
    assert "goes on with a.1" in holdfast(server.repo, "resume", "a")
    expect_landed(server)
    after = task(server)
    assert (after.attempt.id, after.start.number, after.parked) == ("a.1", before.start.number + 1, "")
    (flag,) = (each for each in journal(server.repo, "task_flagged") if not each.inputs["parked"])
    assert flag.inputs["decided"]["kind"] == "resume"


@pytest.mark.heavy
def test_a_stopped_task_is_forked_and_continues_on_resume(server: Server) -> None:
    before = stop(server)
    assert "holdfast resume a" in holdfast(server.repo, "fork", "a", "--turn", "1")
    assert task(server).parked and task(server).claim.number == before.claim.number
    answer = server.operator.post("/tasks/a/resume")
    assert answer["note"] == "the run goes on with it" and not answer["task"].get("parked")
    expect_landed(server)
    assert task(server).attempt.id == "a.2"
    spans = Spans(layout(server.repo), "")
    found = [span for run, entry in Chain(layout(server.repo).wal).entries() for span in spans.spans_of(run, entry)]
    tops = [span for span in found if span.parent == 0]
    assert [span.facts["holdfast.attempt"] for span in tops] == ["a.1", "a.2"], "what another follows has ended"
    assert {span.parent for span in found if span.parent} >= {span.span for span in tops}


def test_a_task_parked_for_another_reason_is_not_resumed(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    add(repo, "a", "write a.txt one")
    with short_run(App.find(repo, environ={})) as session:
        flag = {"task": "a", "parked": "task_land_parked: nobody knows"}
        session.ledger.append(session.ledger.epoch, [Record("task_flagged", flag)])
    with served(repo) as server:
        refused = server.operator.ask("POST", "/tasks/a/resume", {})
        assert refused.status == 409 and "holdfast resolve a" in refused.json["detail"]
        assert task(server).parked == flag["parked"]
    assert "holdfast resolve a" in holdfast(repo, "resume", "a", code=9)
