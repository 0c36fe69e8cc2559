"""What can be read through the API is what the files and git say. One server for all of it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from holdfast.domain.agent_events import AgentEvent
from holdfast.server.routes.outputs import AgentEventRow
from holdfast.storage.journal.entry import encode
from holdfast.storage.journal.reader import Chain
from kit.git import git
from kit.program import holdfast
from kit.project import add, layout, make_repo, settings, state
from kit.server import Server, served
from kit.tasks import hanging
from kit.waiting import wait_for

GOOD = "session s-1\nsay hello\nwrite a.txt one\nspend 0.25 70\nappend a.txt two\nspend 0.5 100"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`good` has landed, `bad` has failed twice, `gated` was refused by its gate, `long` is being worked on."""
    repo = make_repo(tmp_path_factory.mktemp("reading") / "repo")
    settings(repo, gates=[{"name": "lint", "command": "test ! -e bad.txt"}], max_agents=4)
    add(repo, "good", GOOD, verify=["test -e a.txt"], priority=1, labels=["x"])
    add(repo, "bad", "write b.txt x\nspend 1 10\nfail no luck", max_attempts=2)
    add(repo, "gated", "write bad.txt x", max_attempts=1)
    add(repo, "later", "write later.txt x", depends_on=["bad"])
    add(repo, "part", "write part.txt x", depends_on=["bad"], parent="later")
    go = hanging(repo, "long")
    with contextlib.ExitStack() as ending:
        # The agent ends by itself when it may.
        ending.callback(go.write_text, "")
        made = ending.enter_context(served(repo, "run", "--stay", "--plain"))
        wait_for(lambda: _has_come_about(repo), "all tasks at rest but one")
        yield made


def _has_come_about(repo: Path) -> bool:
    tasks = state(repo).tasks
    wanted = {"good": "CLOSED", "bad": "FAILED", "gated": "FAILED", "long": "IN_PROGRESS"}
    is_so = all(name in tasks and str(tasks[name].state) == wanted[name] for name in wanted)
    return is_so and not any(tasks[name].again for name in wanted) and tasks["long"].attempt.turn == 1


def journal(server: Server, task: str = "") -> list[dict[str, Any]]:
    """As the files have it."""
    entries = Chain(layout(server.repo).wal).entries()
    found = [{"run": run, **json.loads(encode(entry))} for run, entry in entries]
    return [each for each in found if not task or each["inputs"].get("task") == task]


# -- the run and its tasks --------------------------------------------------------------------------------------------


def test_the_status_is_that_of_the_journal(server: Server) -> None:
    found = wait_for(lambda: _status_at_the_end(server), "a status of the journal's end")
    known = state(server.repo)
    assert found["states"] == {"CLOSED": 1, "FAILED": 2, "IN_PROGRESS": 1, "OPEN": 2}
    assert (found["agents"], found["remote"], found["works"], found["stopping"]) == (1, 0, True, "")
    assert found["usd_run"] == found["usd_today"] == pytest.approx(sum(task.spent.usd for task in known.tasks.values()))
    assert (found["branch"], found["repo"], found["url"]) == ("main", str(server.repo), server.address.url)
    assert found["problems"] == []


def _status_at_the_end(server: Server) -> Any:
    """The status, if nothing came between it and a look at the journal, and the loop has seen who is at work."""
    found, last = server.reader.get("/status"), journal(server)[-1]
    return found if found["cursor"] == f"{last['run']}:{last['seq']}" and found["agents"] == 1 else None


def test_problems_of_files_are_reported(server: Server) -> None:
    path = layout(server.repo).backlog_open / "broken.yaml"
    path.write_text("goal: [\n")
    try:
        wait_for(lambda: bool(server.reader.get("/status")["problems"]), "the problem")
        (problem,) = server.reader.get("/status")["problems"]
        assert problem["file"].endswith("broken.yaml") and problem["line"] and problem["tasks"] == ["broken"]
    finally:
        path.unlink()


def test_the_graph_has_every_task_and_what_it_waits_for(server: Server) -> None:
    found = server.reader.get("/tasks/graph")
    assert {node["id"] for node in found["nodes"]} == {"good", "bad", "gated", "later", "part", "long"} and found[
        "total"
    ] == 6
    assert {"from": "later", "to": "bad", "kind": "depends_on"} in found["edges"]
    assert {"from": "part", "to": "later", "kind": "parent"} in found["edges"]
    assert len(server.reader.get("/tasks/graph?limit=2")["nodes"]) == 2


def test_a_tasks_history_is_told_in_words_without_a_gap(server: Server) -> None:
    events, after = [], ""
    while True:
        page = server.reader.get(f"/tasks/good/history?limit=3&after={after}")
        assert len(page["events"]) <= 3
        events += page["events"]
        after = page["next"]
        if not after:
            break
    wanted = [(each["run"], each["seq"], each["decision_type"]) for each in journal(server, "good")]
    assert [(each["run"], each["seq"], each["kind"]) for each in events] == wanted
    assert events[0]["words"].startswith("added") and "claimed by scripted" in events[1]["words"]
    assert "text" not in events[0]["data"]


# -- attempts ---------------------------------------------------------------------------------------------------------


def test_attempts_are_listed_with_what_came_of_them(server: Server) -> None:
    found = server.reader.get("/tasks/bad/attempts")["attempts"]
    assert [(each["id"], each["state"], each["turns"]) for each in found] == [
        ("bad.1", "FAILED", 1),
        ("bad.2", "FAILED", 1),
    ]
    assert [each["usd"] for each in found] == [1.0, 1.0] and found[0]["outcome"]["detail"] == "no luck"
    one = server.reader.get("/attempts/good.1")
    assert (one["agent"], one["state"], one["session"]) == ("scripted", "CLOSED", "s-1")
    assert one["base"] and one["began"] < one["ended"] and (one["usd"], one["tokens"]) == (0.75, 170)
    assert server.reader.get("/attempts/long.1")["ended"] is None


def test_turns_are_those_of_the_attempts_folder(server: Server) -> None:
    lines = [json.loads(line) for line in layout(server.repo).attempt_files("good.1").turns.read_text().splitlines()]
    found = server.reader.get("/attempts/good.1/turns")["turns"]
    assert [(each["turn"], each["tool"], each["files"], each["snapshot"], each["usd"]) for each in found] == [
        (line["turn"], line["tool"], line["files"], line["snapshot"], line["usd"]) for line in lines
    ]
    assert len(found) == 2 and not any(each["undone"] for each in found)
    page = server.reader.get("/attempts/good.1/turns?limit=1")
    assert [each["turn"] for each in page["turns"]] == [1] and page["next"] == 1
    assert [each["turn"] for each in server.reader.get("/attempts/good.1/turns?after=1")["turns"]] == [2]


def test_diffs_are_those_of_git(server: Server) -> None:
    base = server.reader.get("/attempts/good.1")["base"]
    store = server.repo / ".sdd" / "snapshots.git"
    refs = [f"refs/attempts/good.1/turn-{turn}" for turn in (1, 2)]
    for query, old, new in (
        ("", refs[0], refs[1]),
        ("?to=1", base, refs[0]),
        ("?from=0&to=2", base, refs[1]),
        ("?from=2&to=1", refs[1], refs[0]),
    ):
        found = server.reader.get(f"/attempts/good.1/diff{query}")
        assert found["patch"].strip() == git(
            server.repo / ".sdd" / "snapshots.git", "diff", "--full-index", old, new
        ), query
        assert not found["truncated"] and found["to"] == git(store, "rev-parse", new)
    assert found["files"] == [{"path": "a.txt", "added": 0, "removed": 1, "old_path": ""}]


def test_spend_provenance_and_snapshots_are_read_from_the_attempt(server: Server) -> None:
    spend = server.reader.get("/attempts/good.1/spend")
    assert [(each["usd"], each["tokens_out"]) for each in spend["lines"]] == [(0.25, 70), (0.5, 100)]
    assert (spend["usd"], spend["tokens"]) == (0.75, 170)
    assert len(server.reader.get("/attempts/good.1/spend?limit=1")["lines"]) == 1
    lines = server.reader.get("/attempts/good.1/provenance")["lines"]
    assert [(line["turn"], line["file"], line["tool"]) for line in lines] == [
        (1, "a.txt", "write"),
        (2, "a.txt", "append"),
    ]
    store = server.repo / ".sdd" / "snapshots.git"
    for each in server.reader.get("/attempts/good.1/snapshots")["snapshots"]:
        assert git(store, "rev-parse", f"refs/attempts/good.1/{each['name']}") == each["commit"]


@pytest.mark.parametrize("part", ["", "/turns", "/diff", "/spend", "/provenance", "/snapshots"])
@pytest.mark.parametrize("name", ["good.9", "good", "nobody.1", "..", "good.1%00", "%2e%2e", "good.01"])
def test_an_unknown_attempt_is_not_found(server: Server, part: str, name: str) -> None:
    answer = server.reader.ask("GET", f"/attempts/{name}{part}")
    assert answer.status == 404 and answer.code in ("attempt_unknown", "no_such_path")


def test_a_turn_that_there_is_not_is_not_found(server: Server) -> None:
    assert server.reader.ask("GET", "/attempts/good.1/diff?to=7").code == "turn_unknown"


# -- agents -----------------------------------------------------------------------------------------------------------


def test_an_agent_at_work_is_shown_with_its_turn_and_tool(server: Server) -> None:
    wait_for(
        lambda: bool(server.reader.get("/agents")["agents"][0]["tool"]), "the runner to write down what it was told"
    )
    (found,) = server.reader.get("/agents")["agents"]
    assert (found["attempt"], found["task"], found["state"], found["turn"]) == ("long.1", "long", "working", 2)
    assert found["tool"].startswith("run while") and found["pid"] > 0 and not found["remote"]
    same = server.reader.get("/agents/long.1")
    assert same["pid"] == found["pid"]
    for name in ("good.1", "nobody.1", ".."):
        assert server.reader.ask("GET", f"/agents/{name}").status == 404


def test_output_is_read_from_its_end_and_followed_from_an_offset(server: Server) -> None:
    whole = layout(server.repo).attempt_files("good.1").output.read_bytes()
    answer = server.reader.ask("GET", "/agents/good.1/output")
    assert answer.content == whole and answer.headers["content-type"].startswith("text/plain")
    assert server.reader.ask("GET", "/agents/good.1/output?tail=10").content == whole[-10:]
    frames = list(server.reader.frames("/agents/good.1/output?follow=true&after=0"))
    assert [frame["event"] for frame in frames] == ["output", "end"]
    assert json.loads(frames[0]["data"]).encode() == whole and int(frames[0]["id"]) == len(whole)
    middle = len(whole) // 2
    frames = list(server.reader.frames("/agents/good.1/output?follow=true", last_event_id=str(middle)))
    assert json.loads(frames[0]["data"]).encode() == whole[middle:]
    living = server.reader.frames("/agents/long.1/output?follow=true&after=0")
    assert "long.txt" in json.loads(next(living)["data"])
    living.close()
    assert server.reader.ask("GET", "/agents/long.1/output?follow=true", last_event_id="x").code == "cursor_unreadable"


def attached(server: Server, attempt: str) -> list[dict[str, Any]]:
    """What `holdfast attach --json` tells of it."""
    told = [
        json.loads(line) for line in holdfast(server.repo, "attach", attempt, "--json").splitlines() if line[:1] == "{"
    ]
    for each in told:
        if each["type"] == "turn":
            each["files_total"] = len(each["files"])
            del each["output"]
    return without_defaults(told)


def without_defaults(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = msgspec.to_builtins(msgspec.convert(events, list[AgentEventRow]))
    return found


def test_an_attempts_events_are_those_that_attach_tells_page_by_page(server: Server) -> None:
    told = attached(server, "good.1")
    kinds = [each["type"] for each in told]
    assert {"session", "said", "tool_started", "tool_ended", "spent", "turn", "finished", "ended"} <= set(kinds)
    whole = server.reader.get("/attempts/good.1/events")
    assert without_defaults(whole["events"]) == told and whole["over"] and whole["before"] == ""
    turns = [each for each in whole["events"] if each["type"] == "turn"]
    assert [(each["files"], each["files_total"]) for each in turns] == [(["a.txt"], 1), (["a.txt"], 1)]
    pages, cursor, count = [], "", 0
    while count == 0 or cursor:
        page = server.reader.get(f"/attempts/good.1/events?limit=2&before={cursor}")
        pages, cursor, count = [*page["events"], *pages], page["before"], count + 1
    assert pages == whole["events"] and count > 3
    assert server.reader.get("/attempts/bad.2/events?limit=1")["before"]
    assert server.reader.ask("GET", "/attempts/nobody.1/events").status == 404


def test_events_are_followed_from_a_cursor(server: Server) -> None:
    whole = server.reader.get("/attempts/good.1/events")
    frames = list(server.reader.frames("/attempts/good.1/events?follow=true&after=0-0"))
    assert [frame["event"] for frame in frames] == ["events", "end"] and frames[0]["id"] == whole["after"]
    assert json.loads(frames[0]["data"]) == whole["events"]
    first = server.reader.get("/attempts/good.1/events?limit=3")
    frames = list(server.reader.frames("/attempts/good.1/events?follow=true", last_event_id=first["before"]))
    assert json.loads(frames[0]["data"]) == first["events"]
    living = server.reader.frames("/attempts/long.1/events?follow=true&after=0-0")
    assert "long.txt" in next(living)["data"]
    living.close()
    assert not server.reader.get("/attempts/long.1/events")["over"]
    for wrong in ("x", "1", "-1-2", "1-2-3", "1-" + "9" * 16):
        path = "/attempts/good.1/events"
        assert server.reader.ask("GET", f"{path}?before={wrong}").code == "cursor_unreadable", wrong
        assert server.reader.ask("GET", f"{path}?follow=true", last_event_id=wrong).code == "cursor_unreadable", wrong


def test_a_row_has_every_field_of_every_event() -> None:
    known = {field.name for field in msgspec.structs.fields(AgentEventRow)}
    for kind in get_args(AgentEvent):
        assert {field.name for field in msgspec.structs.fields(kind)} <= known, kind


# -- journal and blobs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 4, 1000])
@pytest.mark.parametrize("newest", ["false", "true"])
def test_the_journal_is_read_in_pages_without_a_gap(server: Server, limit: int, newest: str) -> None:
    wanted = journal(server)
    found: list[dict[str, Any]] = []
    after = ""
    while len(found) < len(wanted):
        page = server.reader.get(f"/journal?limit={limit}&newest={newest}&after={after}")
        found += page["entries"]
        after = page["next"]
        if not after:
            break
    if newest == "true":
        found.reverse()
    else:
        found = found[: len(wanted)]
    assert found[: len(wanted)] == wanted


def test_the_journal_can_be_asked_for_a_task_and_kinds(server: Server) -> None:
    found = server.reader.get("/journal?task=bad&kind=task_claimed&kind=task_failed")["entries"]
    kinds = [each["decision_type"] for each in found]
    assert kinds == ["task_claimed", "task_failed", "task_claimed", "task_failed"]
    assert server.reader.ask("GET", "/journal?after=nonsense").code == "cursor_unreadable"


def test_the_journal_is_verified(server: Server) -> None:
    found = server.reader.get("/journal/verify")
    assert found["ok"] and found["problem"] == "" and found["runs"] == 1 and found["entries"] == len(journal(server))


def test_blobs_are_put_once_and_given_back_as_they_are(server: Server) -> None:
    content = b"<script>alert(1)</script>"
    digest = hashlib.sha256(content).hexdigest()
    for _ in range(2):
        answer = server.operator.ask("POST", "/blobs", content, content_type="text/html")
        assert answer.status == 201 and answer.json == {"digest": digest, "size": len(content)}
    found = server.reader.ask("GET", f"/blobs/{digest}")
    assert found.content == content and found.headers["content-type"] == "application/octet-stream"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["content-disposition"].startswith("attachment")
    assert server.reader.get(f"/blobs/{digest}/meta")["content_type"] == "text/html"
    assert server.reader.ask("GET", f"/blobs/{'0' * 64}").code == "blob_missing"
    assert server.reader.ask("GET", "/blobs/..").status in (404, 422)
    assert server.operator.ask("POST", "/blobs", b"x" * ((1 << 20) + 1)).code == "body_too_large"


# -- costs, quality, sessions, what goes on ---------------------------------------------------------------------------


def test_costs_add_up_however_they_are_asked_for(server: Server) -> None:
    total = sum(task.spent.usd for task in state(server.repo).tasks.values())
    for by, keys in (("task", {"good", "bad", "gated", "long"}), ("agent", {"scripted"}), ("model", {"unknown"})):
        found = server.reader.get(f"/costs?by={by}")
        assert {row["key"] for row in found["rows"]} == keys
        assert found["usd"] == pytest.approx(total) == pytest.approx(sum(row["usd"] for row in found["rows"]))
    days = server.reader.get("/costs/history?days=3")["days"]
    assert len(days) == 3 and days[-1]["day"] == time.strftime("%Y-%m-%d", time.gmtime())
    assert days[-1]["usd"] == pytest.approx(total) == pytest.approx(server.reader.get("/costs?by=day")["usd"])
    assert server.reader.get("/costs/anomalies") == {"anomalies": []}


def test_quality_has_the_verdicts_and_the_gates(server: Server) -> None:
    found = server.reader.get("/quality")
    verdicts = {each["task"]: each for each in found["verdicts"]}
    assert verdicts["good"]["passed"] and verdicts["gated"]["kind"] == "gate_failed"
    assert [(gate["name"], gate["passed"]) for gate in verdicts["good"]["gates"]] == [
        ("verify-1", True),
        ("lint", True),
    ]
    gates = {gate["name"]: (gate["passed"], gate["failed"]) for gate in found["gates"]}
    assert gates == {"lint": (1, 1), "verify-1": (1, 0)}
    assert [each["task"] for each in server.reader.get("/quality?task=gated")["verdicts"]] == ["gated"]


def test_sessions_are_the_sittings_of_agents(server: Server) -> None:
    found = server.reader.get("/sessions")["sessions"]
    assert sorted(each["attempt"] for each in found) == ["bad.1", "bad.2", "gated.1", "good.1", "long.1"]
    good = next(each for each in found if each["attempt"] == "good.1")
    assert (good["session"], good["turns"], good["agent"]) == ("s-1", 2, "scripted") and good["ended"] > good["began"]
    assert len(server.reader.get("/sessions?limit=2")["sessions"]) == 2


def test_observability_tells_of_every_agent_and_the_loop(server: Server) -> None:
    found = server.reader.get("/observability")
    (agent,) = found["agents"]
    assert agent["attempt"] == "long.1" and not agent["stalled"] and agent["words"] == "it works"
    assert found["stalls"] == [] and found["holds"] == [] and found["loop"]["last_tick_s"] < 60


def test_the_timeline_has_this_run_and_what_happened_in_it(server: Server) -> None:
    found = server.reader.get("/timeline")
    assert [(run["how"], run["ended"]) for run in found["runs"]] == [("running", None)]
    kinds = [mark["kind"] for mark in found["marks"]]
    # That something landed is no mark: what was lost could not be found among so many.
    assert kinds == ["task_failed"] * 3
    assert "gate" in found["marks"][-1]["plain"] or "no luck" in found["marks"][-1]["plain"]


# -- who may ----------------------------------------------------------------------------------------------------------


def test_a_token_names_its_owner(server: Server) -> None:
    assert server.operator.get("/auth/me") == {"role": "operator", "task": "", "attempt": ""}
    assert server.reader.get("/auth/me")["role"] == "reader"
    agent = server.with_token(agent_token(server))
    assert agent.get("/auth/me") == {"role": "agent", "task": "long", "attempt": "long.1"}


def agent_token(server: Server) -> str:
    """As the agent itself has it."""
    pid = server.reader.get("/agents/long.1")["pid"]
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(each for each in variables if each.startswith(b"HOLDFAST_TOKEN=")).decode().partition("=")[2]


def test_an_agents_token_reaches_its_own_task_only(server: Server) -> None:
    agent = server.with_token(agent_token(server))
    for path in ("/tasks/long", "/attempts/long.1/turns", "/agents/long.1", "/tasks/long/history"):
        assert agent.ask("GET", path).status == 200, path
    for path in (
        "/tasks/good",
        "/attempts/good.1",
        "/agents/good.1/output",
        "/attempts/good.1/events",
        "/journal",
        "/costs",
        "/status",
        "/agents",
    ):
        assert agent.ask("GET", path).code == "not_your_task", path
    assert agent.ask("POST", "/agents/long.1/stop", {}).code == "not_your_task"
    # Of what happens it sees its own part.
    run = server.reader.get("/status")["run"]
    following = agent.frames("/events", last_event_id=f"{run}:0")
    seen = [json.loads(next(following)["data"]) for _ in range(4)]
    following.close()
    assert [each["task"] for each in seen] == ["long"] * 4


def test_a_reader_changes_nothing_and_nobody_reads_nothing(server: Server) -> None:
    for path in ("/agents/long.1/stop", "/blobs", "/auth/revoke"):
        assert server.reader.ask("POST", path, {}).code == "token_reads_only"
    for path in ("/status", "/journal", "/agents", "/auth/me", "/attempts/good.1"):
        assert server.nobody.ask("GET", path).code == "token_missing"
    assert server.with_token("hfo_wrong").ask("GET", "/status").code == "token_unknown"
    assert server.reader.ask("GET", "/status", host="evil.example").code == "host_unknown"


@pytest.mark.parametrize(
    "path",
    [
        "/status?x=1", "/journal?limit=0", "/journal?limit=1001", "/costs?by=moon", "/costs/history?days=0",
        "/attempts/good.1/diff?to=0", "/attempts/good.1/turns?limit=x", "/agents/good.1/output?tail=-1",
        "/attempts/good.1/events?limit=0", "/attempts/good.1/events?limit=1001",
        "/tasks/graph?limit=100000", "/sessions?limit=", "/timeline?limit=1.5",
    ],
)  # fmt: skip
def test_a_query_that_cannot_be_used_is_refused(server: Server, path: str) -> None:
    answer = server.reader.ask("GET", path)
    assert answer.status == 422 and answer.code == "query_unfit"


def test_looking_changed_nothing(server: Server) -> None:
    holdfast(server.repo, "check")
