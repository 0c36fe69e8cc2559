"""How the CLIs are called: what is asked of them, which conversation they go on with, and the tools they are given."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from pathlib import Path

import msgspec
import pytest

from holdfast.agents.adapters.acp import ProtocolAgent
from holdfast.agents.adapters.claude import Claude
from holdfast.agents.adapters.codex import Codex
from holdfast.agents.adapters.opencode import Opencode
from holdfast.agents.common import prices
from holdfast.agents.common.environment import referred
from holdfast.agents.registry import agents
from holdfast.config import mcp
from holdfast.config.mcp import McpServer
from holdfast.config.sections import DeclaredAgent
from holdfast.config.settings import Config
from holdfast.domain.attempt_records import Launch
from holdfast.domain.definition import Definition
from holdfast.errors import ConfigUnreadable
from holdfast.ports import Work
from holdfast.questions.rules import Mode

TASK = Definition("T", goal="do it")
SERVERS = """
docs:
  command: docs-server
  args: [--quiet, 'a "word"']
  env: {LEVEL: low, DOCS_TOKEN: "${DOCS_TOKEN}"}
tracker:
  url: https://tracker.example.org/mcp
  headers: {Authorization: "Bearer ${TRACKER_TOKEN}", X-Team: red}
"""


def work(**more: object) -> Work:
    return msgspec.structs.replace(Work(task="T", attempt="T.1", prompt="Please.", definition=TASK), **more)


@pytest.fixture
def servers(tmp_path: Path) -> tuple[McpServer, ...]:
    path = tmp_path / "mcp_servers.yaml"
    path.write_text(SERVERS)
    return mcp.read(path)


def test_the_prompt_is_no_argument_and_the_conversation_is_named() -> None:
    for agent in (Claude(), Codex()):
        launch = agent.launch(work(model="m-1", session="s-1"))
        assert launch.stdin == "Please." and not any("Please" in part for part in launch.argv)
        assert "s-1" in launch.argv and "m-1" in launch.argv and agent.can.resume
        assert not {"s-1", "--resume", "resume"} & set(agent.launch(work()).argv)


def test_claude_is_given_its_servers_in_a_file(servers: tuple[McpServer, ...]) -> None:
    launch = Claude(servers).launch(work())
    assert launch.argv[launch.argv.index("--mcp-config") + 1] == "{files}/mcp.json"
    assert launch.references == ("DOCS_TOKEN", "TRACKER_TOKEN")
    text = referred(launch.files["mcp.json"], launch.references, {"DOCS_TOKEN": "one", "TRACKER_TOKEN": "two"})
    given = msgspec.json.decode(text)["mcpServers"]
    assert given["docs"]["env"] == {"LEVEL": "low", "DOCS_TOKEN": "one"}
    assert given["tracker"]["headers"] == {"Authorization": "Bearer two", "X-Team": "red"}


def test_codex_is_given_its_servers_as_options_without_a_secret(servers: tuple[McpServer, ...]) -> None:
    launch = Codex(servers).launch(work())
    options = [part for before, part in zip(launch.argv, launch.argv[1:], strict=False) if before == "-c"]
    given = tomllib.loads("\n".join(options))["mcp_servers"]
    (token,) = given["docs"]["env_vars"]
    assert given["docs"]["env"] == {"LEVEL": "low"} and given["docs"]["args"][-2:] == ["--quiet", 'a "word"']
    assert given["tracker"]["http_headers"] == {"X-Team": "red"}
    variable = given["tracker"]["env_http_headers"]["Authorization"]
    assert launch.env == {token: "${DOCS_TOKEN}", variable: "Bearer ${TRACKER_TOKEN}"}


def test_each_of_codexs_servers_gets_its_own_secret_under_the_name_it_wants() -> None:
    show = ("-c", 'echo "$OPENAI_API_KEY $1"', "sh", "a 'word'")
    servers = [McpServer(name, "sh", show, {"OPENAI_API_KEY": f"${{{name}}}"}) for name in ("one", "two")]
    launch = Codex(servers).launch(work())
    assert "OPENAI_API_KEY" not in launch.env, "Codex would take a server's key for its own"
    options = [part for before, part in zip(launch.argv, launch.argv[1:], strict=False) if before == "-c"]
    given = tomllib.loads("\n".join(options))["mcp_servers"]
    values = {"one": '$(id) "1"\n`2`', "two": "second"}
    env = {name: referred(value, launch.references, values) for name, value in launch.env.items()}
    for name, server in given.items():
        passed = {each: env[each] for each in server["env_vars"]} | {"PATH": os.environ["PATH"]}
        told = subprocess.run(
            [server["command"], *server["args"]], env=passed, capture_output=True, text=True, check=True
        )
        assert told.stdout == f"{values[name]} a 'word'\n"


def test_a_secret_may_hold_anything(servers: tuple[McpServer, ...]) -> None:
    secret = '"}, \\ ${TRACKER_TOKEN}\nline two \udcff'
    for agent, name in ((Claude(servers), "mcp.json"), (Opencode(servers), "opencode.json")):
        launch = agent.launch(work())
        values = {"DOCS_TOKEN": secret, "TRACKER_TOKEN": "t"}
        text = referred(launch.files[name], launch.references, values, is_json=True)
        given = json.loads(text)
        (docs,) = (each["docs"] for key, each in given.items() if key.startswith("mcp"))
        assert (docs.get("env") or docs["environment"])["DOCS_TOKEN"] == secret


def test_a_variable_that_is_not_set_is_reported(
    servers: tuple[McpServer, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Claude, "program", "sh")
    monkeypatch.setenv("DOCS_TOKEN", "x")
    monkeypatch.delenv("TRACKER_TOKEN", raising=False)
    assert "tracker needs the variable TRACKER_TOKEN" in Claude(servers).missing(TASK)
    monkeypatch.setenv("TRACKER_TOKEN", "x")
    assert Claude(servers).missing(TASK) == ""


def test_a_program_that_is_not_there_is_reported_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for agent in (Claude(), Codex()):
        assert agent.find() is None and agent.version() == ""
        assert "is not installed" in agent.missing(TASK) and "npm install" in agent.missing(TASK)
    program = tmp_path / "claude"
    program.write_text("#!/bin/sh\necho 2.9.9 '(Claude Code)'\n")
    program.chmod(0o755)
    assert Claude().find() == str(program) and Claude().version() == "2.9.9 (Claude Code)"


def test_a_cli_is_signed_in_by_its_files_and_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "CODEX_API_KEY",
        "OPENAI_API_KEY",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    assert Claude().is_signed_in() is False and Codex().is_signed_in() is False
    (tmp_path / ".credentials.json").touch()
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert Claude().is_signed_in() and Codex().is_signed_in()


def test_every_known_agent_can_be_asked_what_it_can() -> None:
    for agent in agents(Config()).values():
        assert agent.can.cost in ("", "reported", "estimated")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("docs: {command: a, url: b}", "either a command or a url"),
        ("docs: {}", "either a command or a url"),
        ("docs: {url: b, env: {A: b}}", "mixes"),
        ("'a b': {command: a}", "no name"),
        ("docs: {command: a, port: 3}", "port"),
        ("docs: {command: a, env: {'A B': x}}", "no name for a variable"),
        ('docs: {command: "a\\0b"}', "control characters"),
        ('docs: {url: u, headers: {X: "a\\r\\nY: b"}}', "control characters"),
        ("docs: {command: a, env: [x]}", "env"),
        ("docs: {command: 3}", "command"),
        ("docs: [1", "line"),
        ("- docs", "object"),
    ],
)
def test_a_file_that_says_nothing_good_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "mcp_servers.yaml"
    path.write_text(text)
    with pytest.raises(ConfigUnreadable, match=words):
        mcp.read(path)


def test_no_file_and_an_empty_one_have_no_servers(tmp_path: Path) -> None:
    path = tmp_path / "mcp_servers.yaml"
    assert mcp.read(path) == ()
    path.write_text("# nothing yet\n")
    assert mcp.read(path) == ()


def test_a_price_is_found_by_the_longest_beginning() -> None:
    million = 1_000_000
    assert (
        prices.usd("claude-opus-4-8[1m]", million, 0) == 5 and prices.usd("claude-opus-4-1-20250805", million, 0) == 15
    )
    assert prices.usd("openai/gpt-5.1-codex-mini", million, million) == 2.25 and prices.usd("m", million, 1) == 0
    assert prices.usd("gpt-5", million, 0, read=million) == 0.125


def test_programs_known_by_protocol_are_told_what_they_would_do_otherwise() -> None:
    """opencode runs everything unasked, and claude-agent-acp has its model think of a title for a conversation."""

    def launch(program: str, mode: Mode) -> Launch:
        return ProtocolAgent(DeclaredAgent("mine", acp=(f"/bin/{program}",), permissions=mode)).launch(work())

    assert json.loads(launch("opencode", "ask").env["OPENCODE_PERMISSION"])["*"] == "ask"
    assert "OPENCODE_PERMISSION" not in launch("opencode", "skip").env
    named, other = launch("claude-agent-acp", "skip").protocol, launch("goose", "skip").protocol
    assert named is not None and other is not None and other.meta == "{}"
    assert json.loads(named.meta) == {"claudeCode": {"options": {"title": "Holdfast: T"}}}
