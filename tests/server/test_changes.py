"""Changes through the API: durable when answered, once under a key, refused by sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.storage.journal.reader import Chain
from kit.project import layout, make_repo, sound
from kit.server import Server, served
from kit.waiting import wait_for


def entries(repo: Path, kind: str) -> list[dict[str, Any]]:
    return [entry.inputs for _, entry in Chain(layout(repo).wal).entries() if entry.decision_type == kind]


def test_a_task_that_was_added_has_a_file_that_people_can_read(server: Server) -> None:
    made = server.operator.post("/tasks", {"id": "first", "goal": "Line one\nline two", "labels": ["a: b"]})
    assert (made["id"], made["state"]) == ("first", "OPEN")
    file = layout(server.repo).backlog_open / "first.yaml"
    wait_for(file.exists, "the file of the task")
    assert file.read_text() == "id: first\ngoal: |-\n  Line one\n  line two\nlabels:\n- 'a: b'\n"
    assert server.operator.get("/tasks/first")["definition"]["labels"] == ["a: b"]


def test_an_id_is_made_of_the_words_and_given_once(server: Server) -> None:
    names = [server.operator.post("/tasks", {"title": "Mend it!"})["id"] for _ in range(3)]
    assert names == ["mend-it", "mend-it-2", "mend-it-3"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"id": "../up", "goal": "x"}, 422, "input_error"),
        ({"goal": "x", "depends_on": ["nowhere"]}, 422, "input_error"),
        ({"id": "me", "goal": "x", "depends_on": ["me"]}, 422, "input_error"),
        ({"id": "empty"}, 422, "input_error"),
        ({"goal": "x", "priority": "high"}, 422, "body_unfit"),
        (b'{"goal": "half a pair \\ud800"}', 400, "body_unreadable"),
        (b"{not json", 400, "body_unreadable"),
        (b'{"context":' + b"[" * 100_000, 400, "body_unreadable"),
        (b'"' + b"x" * (1 << 21) + b'"', 413, "body_too_large"),
    ],
)
def test_an_invalid_task_is_refused_and_changes_nothing(server: Server, body: Any, status: int, code: str) -> None:
    before = server.operator.get("/tasks")["total"]
    answer = server.with_token(server.address.token).ask("POST", "/tasks", body)
    assert (answer.status, answer.code) == (status, code)
    assert server.operator.get("/tasks")["total"] == before


def test_a_batch_is_added_whole_or_not_at_all(server: Server) -> None:
    good = [{"id": "b1", "goal": "x"}, {"id": "b2", "goal": "x", "depends_on": ["b1"]}]
    bad = server.operator.ask(
        "POST", "/tasks/batch", {"tasks": [*good, {"id": "b3", "depends_on": ["b4"], "goal": "x"}]}
    )
    assert bad.status == 422
    assert server.operator.ask("GET", "/tasks/b1").status == 404
    assert [each["id"] for each in server.operator.post("/tasks/batch", {"tasks": good})["tasks"]] == ["b1", "b2"]
    again = server.operator.ask("POST", "/tasks", {"id": "b1", "goal": "x"})
    assert (again.status, again.code) == (409, "task_exists")
    shadow = server.operator.ask("POST", "/tasks", {"id": "B1", "goal": "x"})
    assert (shadow.status, shadow.code) == (422, "input_error")


def test_a_batch_is_worked_on_in_the_order_in_which_it_was_given(server: Server) -> None:
    names = [f"q{number}" for number in (10, 9, 2, 1, 11)]
    tasks = [{"id": name, "goal": "x", "role": "in-order"} for name in names]
    server.operator.post("/tasks/batch", {"tasks": tasks})
    claimed = [server.operator.post("/tasks/claim", {"worker": "w", "role": "in-order"}) for _ in names]
    assert [each["task"]["id"] for each in claimed] == names


def test_a_worker_claims_says_how_it_goes_and_completes(server: Server) -> None:
    ask = server.operator
    ask.post("/tasks", {"id": "w1", "goal": "x", "role": "writer", "priority": 9})
    ask.post("/tasks", {"id": "w2", "goal": "x", "role": "writer", "priority": 1})
    claimed = ask.post("/tasks/claim", {"worker": "ann", "role": "writer"})
    assert claimed["task"]["id"] == "w2" and claimed["attempt"] == "w2.1"
    held = {"claim": claimed["claim"]}
    other = ask.ask("POST", "/tasks/w2/claim", {"worker": "ben"})
    assert (other.status, other.code) == (409, "claim_refused")
    wrong = ask.ask("POST", "/tasks/w2/progress", {"claim": "w2.1/9", "message": "mine"})
    assert (wrong.status, wrong.code) == (409, "claim_lost")
    assert ask.post("/tasks/w2/start", held)["task"]["state"] == "IN_PROGRESS"
    assert (
        ask.post("/tasks/w2/progress", {**held, "message": "half of it", "percent": 50})["task"]["progress"]
        == "half of it"
    )
    assert ask.post("/tasks/w2/heartbeat", held)["until"] >= claimed["until"]
    none = ask.ask("POST", "/tasks/w2/complete", {**held, "commit": "0" * 40})
    assert (none.status, none.code) == (422, "input_error")
    assert ask.post("/tasks/w2/complete", {**held, "summary": "done"})["task"]["state"] == "DONE"
    after = ask.ask("POST", "/tasks/w2/heartbeat", held)
    assert (after.status, after.code) == (409, "claim_lost")
    second = ask.post("/tasks/claim", {"worker": "ann", "role": "writer"})
    failed = ask.post("/tasks/w1/fail", {"claim": second["claim"], "reason": "no idea"})
    assert failed["task"]["state"] in ("FAILED", "OPEN")
    assert ask.ask("POST", "/tasks/claim", {"worker": "ann", "role": "nobody's"}).status == 204


def test_decisions_are_those_of_the_commands(server: Server) -> None:
    ask = server.operator
    ask.post("/tasks", {"id": "d1", "goal": "x"})
    assert ask.post("/tasks/d1/cancel")["task"]["state"] == "CANCELLED"
    again = ask.ask("POST", "/tasks/d1/retry", {})
    assert (again.status, again.code) == (409, "move_refused")
    ask.post("/tasks", {"id": "d2", "goal": "x"})
    ask.post("/tasks", {"id": "d3", "goal": "x"})
    claimed = ask.post("/tasks/d2/claim", {"worker": "ann"})
    ask.post("/tasks/d2/start", {"claim": claimed["claim"]})
    assert ask.post("/tasks/d2/block", {"on": ["d3"], "reason": "d3 first"})["task"]["state"] == "BLOCKED"
    assert ask.get("/tasks/d2")["definition"]["depends_on"] == ["d3"]
    divided = ask.post("/tasks/d3/split", {"tasks": [{"id": "d3a", "goal": "x"}, {"id": "d3b", "goal": "x"}]})
    assert divided["task"]["state"] == "WAITING_FOR_SUBTASKS"
    assert ask.get("/tasks/d3")["subtasks"] == ["d3a", "d3b"]
    cancelled = ask.post("/tasks/d3/cancel")
    assert [(each["id"], each["state"]) for each in cancelled["subtasks"]] == [
        ("d3a", "CANCELLED"),
        ("d3b", "CANCELLED"),
    ]
    assert ask.get("/tasks/d3a")["outcome"] == {"detail": "its parent d3 was cancelled"}
    stuck = next(each for each in ask.get("/tasks?text=d2")["tasks"] if each["id"] == "d2")
    assert stuck["held"].startswith("it depends on d3, which is cancelled: `holdfast edit d2`")
    idle = ask.ask("POST", "/tasks/d2/reassign", {"agent": "scripted"})
    assert (idle.status, idle.code) == (409, "decision_refused")
    unknown = ask.ask("POST", "/tasks/nobody/cancel", {})
    assert (unknown.status, unknown.code) == (404, "task_unknown")


def test_an_answer_comes_again_with_its_headers(server: Server) -> None:
    server.operator.post("/tasks", {"id": "again", "goal": "x"})
    wait_for((layout(server.repo).backlog_open / "again.yaml").exists, "the file of the task")
    answers = [
        server.operator.ask("PATCH", "/tasks/again", {"changes": {"priority": 2}}, Idempotency_Key="twice")
        for _ in range(2)
    ]
    first, second = answers
    assert first.status == 200 and first.json == second.json
    assert second.headers["etag"] == first.headers["etag"] == f'"{first.json["etag"]}"'


@pytest.mark.parametrize("path", ["/tasks", "/tasks/batch", "/tasks/typo/split"])
def test_an_unknown_key_is_reported_as_in_a_file(server: Server, path: str) -> None:
    if path.endswith("split"):
        server.operator.post("/tasks", {"id": "typo", "goal": "x"})
    before = server.operator.get("/tasks")["total"]
    for wrong, sentence in (
        ({"aprove": True}, "the key 'aprove' is not known: did you mean 'approve'?"),
        ({"aprove": True, "verfy": ["x"]}, "the key 'verfy' is not known: did you mean 'verify'?"),
        ({"claim": {}}, "claim, result and error are written by Holdfast; leave them out"),
        ({"claim": {"x": 1}}, "claim, result and error are written by Holdfast; leave them out"),
    ):
        task = {"goal": "x", **wrong}
        answer = server.operator.ask("POST", path, task if path == "/tasks" else {"tasks": [{"goal": "y"}, task]})
        assert (answer.status, answer.code) == (422, "input_error") and sentence in answer.json["detail"]
    assert server.operator.get("/tasks")["total"] == before


def test_an_edit_counts_only_against_what_was_read(server: Server) -> None:
    ask = server.operator
    ask.post("/tasks", {"id": "e1", "goal": "x"})
    read = ask.ask("GET", "/tasks/e1")
    tag = read.headers["etag"]
    edited = ask.ask("PATCH", "/tasks/e1", {"changes": {"priority": 2}}, If_Match=tag)
    assert edited.status == 200 and edited.json["definition"]["priority"] == 2, edited
    late = ask.ask("PATCH", "/tasks/e1", {"changes": {"priority": 3}}, If_Match=tag)
    assert (late.status, late.code) == (412, "definition_changed")
    assert ask.ask("PATCH", "/tasks/e1", {"changes": {"goal": None}}, If_Match=edited.headers["etag"]).status == 422
    assert ask.ask("PATCH", "/tasks/e1", {"changes": {"depends_on": ["e1"]}}).status == 422
    assert ask.get("/tasks/e1")["definition"]["priority"] == 2


def test_the_same_key_gives_the_same_answer_and_one_effect_also_from_the_next_run(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    with served(repo) as first:
        made = first.operator.ask("POST", "/tasks", {"goal": "once"}, Idempotency_Key="k1")
        again = first.operator.ask("POST", "/tasks", {"goal": "once"}, Idempotency_Key="k1")
        claimed = first.operator.ask("POST", "/tasks/claim", {"worker": "ann"}, Idempotency_Key="k2")
        assert made.status == again.status == 201 and made.content == again.content
        other = first.operator.ask("POST", "/tasks", {"goal": "twice"}, Idempotency_Key="k1")
        assert (other.status, other.code) == (422, "idempotency_key_reused")
        first.kill()
    with served(repo) as second:
        assert second.operator.ask("POST", "/tasks", {"goal": "once"}, Idempotency_Key="k1").content == made.content
        same = second.operator.ask("POST", "/tasks/claim", {"worker": "ann"}, Idempotency_Key="k2")
        assert same.content == claimed.content
        # The claim outlives the server: nobody else gets the task, and its worker goes on.
        assert second.operator.ask("POST", "/tasks/claim", {"worker": "ben"}).status == 204
        assert (
            second.operator.post("/tasks/once/start", {"claim": claimed.json["claim"]})["task"]["state"]
            == "IN_PROGRESS"
        )
    assert [each["task"] for each in entries(repo, "task_added")] == ["once"]
    assert len(entries(repo, "task_claimed")) == 1
    sound(repo)


def test_a_lease_that_runs_out_gives_the_task_back(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    with served(repo, HOLDFAST_LEASE_S="0.5") as serving:
        serving.operator.post("/tasks", {"id": "t", "goal": "x"})
        claimed = serving.operator.post("/tasks/claim", {"worker": "ann"})
        wait_for(lambda: serving.operator.get("/tasks/t")["task"]["state"] == "OPEN", "a task that is open again")
        late = serving.operator.ask("POST", "/tasks/t/start", {"claim": claimed["claim"]})
        assert (late.status, late.code) == (409, "claim_lost")
        assert serving.operator.post("/tasks/claim", {"worker": "ben"})["attempt"] == "t.1"
    sound(repo)
