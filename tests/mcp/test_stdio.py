"""`holdfast mcp`, started by the SDK's own client."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast.domain.task import TaskState
from holdfast.mcp import http_client, stdio
from holdfast.mcp.tools import tools_of
from kit.program import HOLDFAST, environment, holdfast, loaded_by
from kit.project import add, landed, layout, make_repo, sound, state
from kit.server import add_asking, served
from kit.tool_client import ToolClient, asks_by_stdio, by_stdio
from kit.waiting import wait_for


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_person_speaks_to_the_run_that_lives(repo: Path, mode: str) -> None:
    async def main() -> None:
        async with by_stdio(repo, mode) as client:
            added = await client.call("add_task", id="new", goal="x", key="k")
            assert added.json["id"] == "new" and (await client.call("add_task", id="new", goal="x", key="k")) == added
            assert (await client.call("status")).json["states"] == {"OPEN": 1}
            assert (await client.call("list_tasks")).json["total"] == 1

    with served(repo):
        anyio.run(main)
    assert list(state(repo).tasks) == ["new"]
    sound(repo)


def test_the_tools_do_what_the_commands_do_where_no_run_lives(repo: Path) -> None:
    async def act(client: ToolClient) -> None:
        assert (await client.call("list_tasks")).json["tasks"] == []
        goal = 'Write it.\n--not-an-option: "quoted"'
        assert (await client.call("add_task", id="new", goal=goal, verify=["true"])).json[0]["id"] == "new"
        shown = (await client.call("show_task", task="new")).json
        assert shown["definition"]["goal"] == goal and shown["state"] == "OPEN"
        assert (await client.call("questions")).json == []
        again = await client.call("add_task", id="new", goal="x")
        assert again.is_error and "new" in again.text
        assert (await client.call("cancel_task", task="new")).json[0]["state"] == "CANCELLED"
        unknown = await client.call("cancel_task", task="--help")
        assert unknown.is_error and "--help" in unknown.text
        for name, given in (("show_review_diff", {"path": "a"}), ("list_tasks", {"text": "x"})):
            needs = await client.call(name, **given, **({"task": "new"} if name != "list_tasks" else {}))
            assert needs.is_error and "holdfast serve" in needs.text and str(repo) in needs.text

    asks_by_stdio(act, repo)
    assert state(repo).tasks["new"].state is TaskState.CANCELLED
    sound(repo)


def test_a_run_that_comes_and_goes_is_found_each_time(repo: Path) -> None:
    async def main() -> None:
        async with by_stdio(repo) as client:
            await client.call("add_task", id="one", goal="x")
            with served(repo) as server:
                assert (await client.call("show_task", task="one")).json["task"]["id"] == "one"
                server.kill()
            assert (await client.call("show_task", task="one")).json["id"] == "one"
            with served(repo):
                assert (await client.call("list_tasks")).json["total"] == 1

    anyio.run(main)


def test_a_call_whose_run_dies_is_named_by_its_key_and_happens_once(repo: Path, tmp_path: Path) -> None:
    once = tmp_path / "once"
    once.mkdir()
    env = {"HOLDFAST_CRASH_AT": "append.request_answered.before:1", "HOLDFAST_CRASH_ONCE": str(once)}

    async def main() -> None:
        async with by_stdio(repo) as client:
            with served(repo, **env) as server:
                lost = await client.call("add_task", goal="once only")
                wait_for(lambda: server.process.poll() is not None, "the kill")
                assert server.process.returncode == -9 and list(once.iterdir())
            assert lost.is_error and "it happens once" in lost.text
            key = lost.text.partition("key='")[2].partition("'")[0]
            with served(repo):
                assert (await client.call("add_task", goal="once only", key=key)).json["id"] == "once-only"

    anyio.run(main)
    assert list(state(repo).tasks) == ["once-only"]
    sound(repo)


def test_a_call_goes_on_with_the_next_run_under_its_key(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run's answer is lost on the way, and the next run is there when it is looked for again."""
    tried: list[str] = []
    real = http_client.send

    def send(url: str, token: str, *args: Any, **more: Any) -> tuple[int, bytes]:
        answer = real(url, token, *args, **more)
        tried.append(more["headers"]["idempotency-key"])
        if len(tried) == 1:
            first.kill()
            second.__enter__()
            raise http_client.Unreachable("cut", was_sent=True)
        return answer

    monkeypatch.setattr(stdio.http_client, "send", send)
    second = served(repo)
    with served(repo) as first:
        session = stdio.PersonSession(layout(repo), repo, None)
        answer = anyio.run(session.call, tools_of("operator")["add_task"], {"goal": "once only"})
    assert not answer.is_error and len(tried) == 2 and tried[0] == tried[1]
    second.__exit__(None, None, None)
    assert list(state(repo).tasks) == ["once-only"]


def test_an_agents_session_has_its_own_tools(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    add_asking(repo, "a", 'ask "$HOLDFAST_URL/tasks/a"')
    with served(repo, "run", "--stay", "--plain") as server:
        wait_for((repo / "codes").exists, "the agent")
        given = {"HOLDFAST_URL": server.address.url, "HOLDFAST_TOKEN": (repo / "token").read_text()}

        async def act(client: ToolClient) -> None:
            assert set(await client.names()) == {"progress", "ask", "split", "block", "show"}
            assert (await client.call("progress", message="half")).json["task"]["progress"] == "half"
            server.kill()
            gone = await client.call("progress", message="more")
            assert gone.is_error and "cannot be reached" in gone.text and "key=" in gone.text

        asks_by_stdio(act, repo, **given)
    (repo / "go").touch()
    holdfast(repo, "run")
    assert state(repo).tasks["a"].state is TaskState.CLOSED


def test_the_settings_for_a_client_are_what_it_reads(repo: Path) -> None:
    claude = json.loads(holdfast(repo, "mcp", "--print-config", "claude").partition("\nFor ")[0])
    assert claude["mcpServers"]["holdfast"]["args"][-1] == "mcp"
    codex = tomllib.loads(holdfast(repo, "mcp", "--print-config", "codex").partition("For ")[0])
    assert codex["mcp_servers"]["holdfast"]["args"][-1] == "mcp"
    told = json.loads(holdfast(repo, "mcp", "--print-config", "codex", "--json"))
    assert told["client"] == "codex" and "codex mcp add holdfast" in told["advice"]


def test_outside_of_a_data_root_it_says_what_to_type(tmp_path: Path) -> None:
    done = subprocess.run(
        [*HOLDFAST, "mcp"], cwd=tmp_path, env=environment(tmp_path / "x"), capture_output=True, text=True, check=False
    )
    assert done.returncode != 0 and done.stdout == "" and "repository" in done.stderr


def test_without_the_extra_it_says_what_to_type(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.mcp.extra.importlib.util.find_spec", lambda name: None)
    assert "pip install 'holdfast[mcp]'" in holdfast(repo, "mcp", code=22)


def test_nothing_but_a_session_loads_the_sdk(repo: Path) -> None:
    add(repo, "a", "write a.txt x")
    for arguments in (["status"], ["mcp", "--print-config", "codex"], ["run", "--plain"]):
        found = loaded_by(repo, *arguments, **environment(repo, HOLDFAST_SERVER__ENABLED="true"))
        assert not {"mcp.types", "pydantic"} & found, arguments
    assert landed(repo)
