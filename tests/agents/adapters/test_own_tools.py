"""Our own MCP server, as each adapter hands it to its agent."""

from __future__ import annotations

import itertools
import json
import tomllib
from pathlib import Path

import msgspec
import pytest

from holdfast.agents.adapters.acp import ProtocolAgent
from holdfast.agents.adapters.acp_stream import AcpStream
from holdfast.agents.common.environment import referred
from holdfast.agents.registry import CLIS
from holdfast.agents.runner import private_files
from holdfast.config import mcp
from holdfast.config.sections import DeclaredAgent
from holdfast.domain.attempt_records import Launch
from holdfast.domain.definition import Definition
from holdfast.errors import ConfigUnreadable
from holdfast.layout import Layout
from holdfast.ports import Work
from holdfast.questions.rules import PermissionPolicy

URL, TOKEN = "http://127.0.0.1:4711", "hfa_T.1.1.secret"
VARIABLES = {"HOLDFAST_URL": URL, "HOLDFAST_TOKEN": TOKEN}
TAKE_SERVERS = [kind for kind in CLIS if kind.can.mcp]


def work(**more: object) -> Work:
    given = {"task": "T", "attempt": "T.1", "prompt": "Please.", "definition": Definition("T")}
    return Work(**{**given, "has_tools": True, **more})  # type: ignore[arg-type]


def given_to(launch: Launch) -> str:
    """All that the agent finds in its files and variables."""
    parts = (*launch.files.values(), *launch.env.values())
    return "\n".join(referred(each, launch.references, VARIABLES) for each in parts)


@pytest.mark.parametrize("kind", TAKE_SERVERS, ids=lambda kind: kind.name)
def test_an_agent_that_takes_servers_gets_ours_with_its_own_token(kind: type, tmp_path: Path) -> None:
    launch = kind().launch(work())
    assert TOKEN in given_to(launch) and set(launch.references) == set(VARIABLES)
    order = msgspec.json.encode(launch).decode()
    assert TOKEN not in order and "${HOLDFAST_TOKEN}" in order, "an order is a file that stays"
    assert not any("TOKEN" in part for part in launch.argv), "every user sees a command line"


@pytest.mark.parametrize("kind", CLIS, ids=lambda kind: kind.name)
def test_an_agent_gets_nothing_of_ours_where_there_is_nothing(kind: type) -> None:
    launch = kind().launch(work(has_tools=False))
    assert "HOLDFAST_TOKEN" not in msgspec.json.encode(launch).decode() and not launch.references
    if kind not in TAKE_SERVERS:
        assert kind().launch(work()) == launch


@pytest.mark.parametrize("kind", TAKE_SERVERS, ids=lambda kind: kind.name)
def test_a_persons_takeover_has_no_token_of_the_agents(kind: type) -> None:
    launch = kind().interactive(work(session="s-1", has_tools=False))
    assert launch is not None and "HOLDFAST_TOKEN" not in msgspec.json.encode(launch).decode()


def test_a_runner_fills_in_the_address_and_removes_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    layout = Layout(tmp_path)
    files = layout.attempt_files("T.1")
    files.root.mkdir(parents=True)
    for kind in TAKE_SERVERS:
        launch = kind().launch(work())
        argv = private_files.prepare(layout, files, launch)
        assert not any("${" in part or TOKEN in part for part in argv), kind.name
        found = [
            path for path in files.agent.rglob("*") if path.is_file() and TOKEN in path.read_text(errors="replace")
        ]
        assert bool(found) == bool(launch.files) or kind.name == "codex"
        assert all(path.stat().st_mode & 0o777 == 0o600 for path in found)
        private_files.remove_secrets(layout, files, launch)
        assert not any(path.exists() for path in found)


def test_codex_is_told_the_address_as_an_option_and_asks_nobody_about_our_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (codex,) = (kind for kind in CLIS if kind.name == "codex")
    launch = codex().launch(work())
    monkeypatch.setenv("HOLDFAST_URL", URL)
    files = Layout(tmp_path).attempt_files("T.1")
    files.root.mkdir(parents=True)
    argv = private_files.prepare(Layout(tmp_path), files, launch)
    options = [part for before, part in itertools.pairwise(argv) if before == "-c"]
    given = tomllib.loads("\n".join(options))["mcp_servers"]["holdfast"]
    assert given["url"] == f"{URL}/mcp" and given["default_tools_approval_mode"] == "approve"
    variable = given["env_http_headers"]["Authorization"]
    assert referred(launch.env[variable], launch.references, VARIABLES) == f"Bearer {TOKEN}"


def test_claude_needs_no_leave_for_our_tools_and_asks_about_all_others() -> None:
    (claude,) = (kind for kind in CLIS if kind.name == "claude")
    launch = claude().launch(work(policy=PermissionPolicy("ask")))
    assert launch.policy.decide("mcp__holdfast__progress", "{}")[0] == "allow"
    assert launch.policy.decide("mcp__holdfast_else__x", "{}")[0] == "ask"
    assert launch.policy.decide("Bash", "ls")[0] == "ask"
    assert not claude().launch(work(policy=PermissionPolicy("skip"))).policy.is_kept


@pytest.mark.parametrize(("has_http", "key"), [(True, "url"), (False, "command")])
def test_an_agent_by_protocol_gets_the_form_that_it_can_speak_to(
    has_http: bool, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    agent = ProtocolAgent(DeclaredAgent("goose", acp=("goose", "acp")))
    stream = AcpStream(agent.launch(work()), "/w")
    list(stream.outgoing())
    can = {"mcpCapabilities": {"http": has_http}}
    answer = {"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": 1, "agentCapabilities": can}}
    stream.outgoing()
    for number in (0, 1):
        stream.read(json.dumps({**answer, "id": number}).encode() + b"\n")
    new = [json.loads(line) for line in stream.outgoing().splitlines() if b"session/new" in line]
    (server,) = new[0]["params"]["mcpServers"]
    assert server["name"] == "holdfast" and key in server and TOKEN in json.dumps(server)


def test_gemini_by_protocol_gets_tools_only_where_it_trusts_the_folder() -> None:
    plain = ProtocolAgent(DeclaredAgent("g", acp=("gemini", "--acp")))
    trusting = ProtocolAgent(DeclaredAgent("g", acp=("gemini", "--acp", "--skip-trust")))
    assert not plain.can.mcp and trusting.can.mcp
    assert "HOLDFAST_TOKEN" not in plain.launch(work()).references


def test_the_name_of_our_server_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "mcp_servers.yaml"
    path.write_text("holdfast: {url: http://elsewhere}\n")
    with pytest.raises(ConfigUnreadable, match="that of Holdfast's own server"):
        mcp.read(path)
