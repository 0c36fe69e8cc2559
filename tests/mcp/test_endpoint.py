"""`/mcp` of a real server, asked by the SDK's own client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast.domain.task import TaskState
from holdfast.storage.journal.reader import Chain
from kit.project import add, layout, make_repo, sound, state
from kit.server import Server, add_asking, served
from kit.tool_client import ToolClient, asks, by_http
from kit.waiting import wait_for

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
ACCEPT = {"accept": "application/json, text/event-stream", "content_type": "application/json"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that starts no agents, for all tests here, with a task that nobody touches."""
    repo = make_repo(tmp_path_factory.mktemp("server") / "repo", untouched="write a.txt x")
    with served(repo) as serving:
        yield serving


def entries(repo: Path, kind: str) -> list[Any]:
    return [entry for _, entry in Chain(layout(repo).wal).entries() if entry.decision_type == kind]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_person_adds_a_task_and_looks_at_it(server: Server, mode: str) -> None:
    async def main() -> None:
        async with by_http(server.address.url, server.address.token, mode) as client:
            assert {"add_task", "answer_task", "review_task"} <= set(await client.names())
            added = await client.call("add_task", id=f"new-{mode}", goal="x", labels=["mine"])
            assert added.json["state"] == "OPEN"
            found = await client.call("list_tasks", label="mine", text=mode)
            assert [each["id"] for each in found.json["tasks"]] == [f"new-{mode}"]
            assert (await client.call("show_task", task=f"new-{mode}")).json["definition"]["goal"] == "x"
            cancelled = await client.call("cancel_task", task=f"new-{mode}")
            assert cancelled.json["task"]["state"] == "CANCELLED"

    anyio.run(main)
    assert state(server.repo).tasks[f"new-{mode}"].state is TaskState.CANCELLED


def test_a_call_is_refused_with_the_sentence_of_the_api(server: Server) -> None:
    async def act(client: ToolClient) -> None:
        unknown = await client.call("show_task", task="nothing")
        assert unknown.is_error and "There is no task 'nothing'" in unknown.text
        unfit = await client.call("add_task", goal="x", nonsense=1)
        assert unfit.is_error and "no argument nonsense" in unfit.text
        typed = await client.call("add_task", goal=5)
        assert typed.is_error and "Expected `str" in typed.text
        assert (await client.call("nothing")).is_error

    asks(act, server.address)


def test_a_readers_token_looks_and_changes_nothing(server: Server) -> None:
    async def act(client: ToolClient) -> None:
        names = await client.names()
        assert "list_tasks" in names and "add_task" not in names and "questions" not in names
        assert (await client.call("list_tasks")).json["total"] >= 0
        assert (await client.call("add_task", goal="x")).is_error

    before = len(state(server.repo).tasks)
    asks(act, server.address, server.address.reader_token)
    assert len(state(server.repo).tasks) == before


def test_the_same_key_is_one_task_and_another_request_under_it_is_refused(server: Server) -> None:
    async def act(client: ToolClient) -> None:
        first = await client.call("add_task", goal="once only", key="k-1")
        again = await client.call("add_task", goal="once only", key="k-1")
        assert first.json == again.json
        other = await client.call("add_task", goal="something else", key="k-1")
        assert other.is_error and "idempotency_key_reused" in other.text

    asks(act, server.address)
    assert [name for name in state(server.repo).tasks if name.startswith("once-only")] == ["once-only"]


@pytest.mark.parametrize("token", ["", "nonsense", "hfa_t.1.1." + "0" * 40])
def test_a_client_without_a_token_speaks_to_nobody(server: Server, token: str) -> None:
    answer = server.with_token(token).ask("POST", "/mcp", INITIALIZE, **ACCEPT)
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_foreign_name_that_leads_here_speaks_to_nobody(server: Server, host: str) -> None:
    assert server.operator.ask("POST", "/mcp", INITIALIZE, host=host, **ACCEPT).status in (400, 421)


@pytest.mark.parametrize(
    "headers", [{"origin": "http://evil.example"}, {"origin": "null"}, {"sec_fetch_site": "cross-site"}]
)
def test_a_page_of_another_origin_speaks_to_nobody(server: Server, headers: dict[str, str]) -> None:
    answer = server.operator.ask("POST", "/mcp", INITIALIZE, **ACCEPT, **headers)
    assert (answer.status, answer.code) == (403, "origin_foreign")


def test_the_endpoint_has_nothing_to_follow_and_no_session_to_end(server: Server) -> None:
    for method in ("GET", "DELETE", "PUT"):
        answer = server.operator.ask(method, "/mcp", **ACCEPT)
        assert (answer.status, answer.headers["allow"]) == (405, "POST")
    answer = server.operator.ask("POST", "/mcp", INITIALIZE, **ACCEPT)
    assert answer.status == 200 and "mcp-session-id" not in answer.headers


def test_a_body_that_is_too_large_is_not_read_to_its_end(server: Server) -> None:
    answer = server.operator.ask("POST", "/mcp", b" " * (2 << 20), **ACCEPT)
    assert (answer.status, answer.code) == (413, "body_too_large")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"jsonrpc":"2.0","id":1,"method":"nothing"}'])
def test_a_message_that_is_none_is_answered_and_the_server_lives(server: Server, body: bytes) -> None:
    assert server.operator.ask("POST", "/mcp", body, **ACCEPT).status in (200, 202, 400)
    assert server.operator.ask("POST", "/mcp", INITIALIZE, **ACCEPT).status == 200


def test_refusals_are_on_record_without_the_token(server: Server) -> None:
    server.with_token("hfo_secret-of-somebody").ask("POST", "/mcp", INITIALIZE, **ACCEPT)
    log = layout(server.repo).logs / "server.log"
    wait_for(lambda: '"asked":"POST /mcp"' in log.read_text() and "token_unknown" in log.read_text(), "the refusal")
    assert "secret-of-somebody" not in log.read_text() and server.address.token not in log.read_text()


def test_an_agents_tools_are_about_its_own_task_and_end_with_it(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    add_asking(repo, "a", 'ask "$HOLDFAST_URL/tasks/a"')
    add(repo, "b", "write b.txt x", depends_on=["a"])
    with served(repo, "run", "--stay", "--plain") as server:
        wait_for((repo / "codes").exists, "the agent")
        token = (repo / "token").read_text()

        async def act(client: ToolClient) -> None:
            assert set(await client.names()) == {"progress", "ask", "split", "block", "show"}
            assert (await client.call("progress", message="half", percent=50)).json["task"]["progress"] == "half"
            assert (await client.call("show")).json["task"]["id"] == "a"
            for name, given in (("show", {"task": "b"}), ("progress", {"message": "x", "task": "b"})):
                assert "no argument task" in (await client.call(name, **given)).text
            for name in ("add_task", "list_tasks", "cancel_task", "show_task"):
                assert (await client.call(name, task="b")).is_error

        asks(act, server.address, token)
        assert server.operator.get("/tasks/b")["task"].get("progress") is None
        (repo / "go").touch()
        wait_for(lambda: state(repo).tasks["b"].state is TaskState.CLOSED, "the end of both tasks")
        assert server.with_token(token).ask("POST", "/mcp", INITIALIZE, **ACCEPT).status == 401
    sound(repo)


def test_an_agent_asks_by_its_tool_and_gets_a_persons_words(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    add_asking(repo, "a", 'ask "$HOLDFAST_URL/tasks/a"')
    with served(repo, "run", "--stay", "--plain") as server:
        wait_for((repo / "codes").exists, "the agent")
        token = (repo / "token").read_text()
        url = server.address.url

        async def main() -> None:
            async with by_http(url, token) as agent, by_http(url, server.address.token) as person:
                waiting = await agent.call("ask", question="Which colour?", wait_s=0)
                assert waiting.json["answer"] == "" and "Nobody has answered yet" in waiting.json["note"]
                while not (asked := (await person.call("questions")).json):
                    await anyio.sleep(0.05)
                assert (asked[0]["kind"], asked[0]["preview"]) == ("words", "Which colour?")
                given = {"task": "a", "question": asked[0]["id"], "answer": "say", "words": "the blue one"}
                await person.call("answer_task", **given)
                for _ in range(2):
                    heard = await agent.call("ask", question="Which colour?")
                    assert heard.json == {"answer": "say", "words": "the blue one", "note": ""}

        anyio.run(main)
        assert server.operator.ask("POST", "/tasks/a/ask", {"question": "x"}).code == "not_an_agent"
        (repo / "go").touch()
        wait_for(lambda: state(repo).tasks["a"].state is TaskState.CLOSED, "its end")
    assert len(entries(repo, "question_asked")) == 1
    sound(repo)


def test_an_agent_splits_its_task_by_its_tool(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    add_asking(repo, "a", 'ask "$HOLDFAST_URL/tasks/a"')
    with served(repo, "run", "--stay", "--plain", "--only", "a") as server:
        wait_for((repo / "codes").exists, "the agent")
        token = (repo / "token").read_text()

        async def act(client: ToolClient) -> None:
            # The client wants to know its tools before it takes an answer, and has no token behind the split.
            assert "split" in await client.names()
            refused = await client.call("split", tasks=[{"goal": "x", "command": "true"}])
            assert refused.is_error and "not_an_agents_to_say" in refused.text
            blocked = await client.call("block", on=["nothing"])
            assert blocked.is_error and "An agent is shown its own task only" in blocked.text
            made = await client.call("split", tasks=[{"id": "one", "goal": "x"}, {"id": "two", "goal": "y"}], key="s")
            assert [each["id"] for each in made.json["subtasks"]] == ["one", "two"]

        asks(act, server.address, token)
        assert server.with_token(token).ask("POST", "/mcp", INITIALIZE, **ACCEPT).status == 401, "its claim is over"
    found = state(repo).tasks
    assert found["a"].state is TaskState.WAITING_FOR_SUBTASKS and {"one", "two"} <= found.keys()


@pytest.mark.parametrize("point", ["append.task_added.after", "append.request_answered.before"])
def test_a_server_killed_within_a_call_has_done_it_once_when_it_is_called_again(tmp_path: Path, point: str) -> None:
    repo = make_repo(tmp_path)
    (tmp_path / "once").mkdir()
    env = {"HOLDFAST_CRASH_AT": f"{point}:1", "HOLDFAST_CRASH_ONCE": str(tmp_path / "once")}

    async def act(client: ToolClient) -> Any:
        return await client.call("add_task", goal="once only", key="k")

    with served(repo, **env) as server:
        with pytest.raises(BaseException):
            asks(act, server.address)
        wait_for(lambda: server.process.poll() is not None, "the kill")
        assert server.process.returncode == -9 and list((tmp_path / "once").iterdir())
    with served(repo) as server:
        first, again = asks(act, server.address), asks(act, server.address)
        assert first.json == again.json and first.json["id"] == "once-only"
    assert list(state(repo).tasks) == ["once-only"] and len(entries(repo, "task_added")) == 1
    sound(repo)


def test_a_client_goes_on_with_the_next_run_without_a_word(tmp_path: Path) -> None:
    """There is no session that a restart could lose; a person's token is new, an agent's is not."""
    repo = make_repo(tmp_path)
    add_asking(repo, "a", 'ask "$HOLDFAST_URL/tasks/a"')

    async def main() -> None:
        with served(repo, "run", "--stay", "--plain") as server:
            wait_for((repo / "codes").exists, "the agent")
            token = (repo / "token").read_text()
            async with by_http(server.address.url, token, "legacy") as client:
                await client.call("progress", message="before")
                server.kill()
                with served(repo, "run", "--stay", "--plain"):
                    assert (await client.call("progress", message="behind")).json["task"]["progress"] == "behind"
                    (repo / "go").touch()
                    wait_for(lambda: state(repo).tasks["a"].state is TaskState.CLOSED, "its end")

    anyio.run(main)
    sound(repo)
