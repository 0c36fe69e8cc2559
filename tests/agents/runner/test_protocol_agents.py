"""Agents that speak the Agent Client Protocol: real processes, run by a real runner."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.agents.registry import agents
from holdfast.config.mcp import McpServer
from holdfast.config.sections import DeclaredAgent
from holdfast.config.settings import Config
from holdfast.domain.attempt_records import Ending, Exit, Launch
from holdfast.domain.definition import Definition
from holdfast.ports import Work
from kit.runner import LIMITS, Bench, is_dead
from kit.waiting import wait_for

AGENT = Path(__file__).parents[2] / "kit" / "acp_agent.py"


class Talk:
    """A bench, and an agent with a plan."""

    def __init__(self, top: Path) -> None:
        self.bench, self.plan = Bench(top), top / "plan" / "plan.json"
        self.plan.parent.mkdir()

    def launch(self, *steps: dict[str, Any], session: str = "", model: str = "", **plan: Any) -> Launch:
        mode, servers = plan.pop("permissions", "skip"), plan.pop("servers", ())
        self.plan.write_text(json.dumps({"steps": steps, **plan}))
        declared = DeclaredAgent("mine", acp=(sys.executable, str(AGENT), str(self.plan)), permissions=mode)
        agent = agents(Config(agents=(declared,)), servers)["mine"]
        assert agent.missing(Definition("T")) == ""
        usd = sum(line["usd"] for line in self.spends()) if session else 0.0
        work = Work(
            task="T", attempt="T.1", prompt="Do it.", definition=Definition("T"), session=session, model=model,
            counted_usd=usd,
        )  # fmt: skip
        return agent.launch(work)

    def run(self, *steps: dict[str, Any], start: int = 1, turn: int = 0, **plan: Any) -> Exit:
        limits = msgspec.structs.replace(LIMITS, **plan.pop("limits", {}))
        launch = self.launch(*steps, **plan)
        return self.bench.run(agent="mine", launch=launch, start=start, turn=turn, limits=limits)

    def spends(self) -> list[dict[str, Any]]:
        path = self.bench.files.spend
        return self.bench.records(path) if path.exists() else []

    def heard(self, method: str = "") -> list[dict[str, Any]]:
        lines = (self.plan.parent / "heard.jsonl").read_text().splitlines()
        return [each for each in map(json.loads, lines) if not method or each.get("method") == method]

    def said(self) -> list[str]:
        return [each["text"] for each in self.bench.records(self.bench.files.traces) if each["kind"] == "said"]


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[Talk]:
    made = Talk(tmp_path)
    yield made
    made.bench.end()


def test_a_prompt_is_done_in_turns_with_its_session_and_its_spend(talk: Talk) -> None:
    ended = talk.run({"say": "I begin."}, {"write": "b"}, {"cost": 0.25}, {"write": "c", "ask": 1}, {"say": "Done."})
    assert (ended.ending, ended.turn, ended.session, ended.detail) == (Ending.DONE, 2, "ses-1", "Done.")
    assert [turn.files for turn in talk.bench.turns()] == [["b"], ["c"]]
    assert "c" not in talk.bench.tree(talk.bench.turns()[0].snapshot)
    assert (ended.spent.usd, ended.spent.tokens) == (0.25, 107)
    assert talk.said() == ["I begin.", "Done."]
    (new,) = talk.heard("session/new")
    assert new["params"] == {"cwd": str(talk.bench.worktree), "mcpServers": []}
    (began,) = talk.heard("initialize")
    assert began["params"]["clientCapabilities"] == {
        "fs": {"readTextFile": False, "writeTextFile": False},
        "terminal": False,
    }


def test_a_tool_that_is_asked_for_waits_until_the_turn_before_it_is_saved(talk: Talk) -> None:
    """The first tool's end and the request for the second come together: the answer must come after the snapshot."""
    ended = talk.run({"write": "b"}, {"write": "c", "ask": 1})
    first, second = talk.bench.turns()
    assert ended.ending is Ending.DONE and talk.bench.tree(first.snapshot) == {"a", "b"}
    assert talk.bench.tree(second.snapshot) == {"a", "b", "c"}


def test_a_killed_agent_is_resumed_and_redoes_one_turn_at_most(talk: Talk) -> None:
    steps = ({"say": "hm"}, {"write": "b"}, {"cost": 0.5}, {"write": "c", "kill": 1}, {"cost": 0.75})
    assert talk.run(*steps).ending is Ending.CRASHED
    ended = talk.run(*steps, start=2, turn=1, session="ses-1")
    assert (ended.ending, ended.turn, ended.session) == (Ending.DONE, 2, "ses-1")
    assert (talk.bench.worktree / "b").read_text() == "b\n" and (talk.bench.worktree / "c").read_text() == "c\nagain\n"
    assert [each["params"]["sessionId"] for each in talk.heard("session/resume")] == ["ses-1"]
    # The agent names the cost of the whole conversation; each start counts its own part.
    assert [line["usd"] for line in talk.spends() if line["usd"]] == [0.5, 0.25]


def test_a_loaded_conversation_that_is_sent_again_makes_no_turn(talk: Talk) -> None:
    """Also where it is sent after the answer to session/load."""
    can = {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}
    steps = ({"write": "b"}, {"write": "c", "kill": 1})
    assert talk.run(*steps, initialize=can).ending is Ending.CRASHED
    ended = talk.run(*steps, start=2, turn=1, session="ses-1", initialize=can)
    assert ended.ending is Ending.DONE and talk.heard("session/load")
    assert [turn.turn for turn in talk.bench.turns()] == [1, 2]


def test_an_agent_that_keeps_no_conversation_reports_none(talk: Talk) -> None:
    can: dict[str, Any] = {"protocolVersion": 1, "agentCapabilities": {}}
    assert talk.run({"say": "x"}, initialize=can).session == ""
    ended = talk.run({"say": "x"}, start=2, session="ses-1", initialize=can)
    assert ended.ending is Ending.FAILED and "neither session/resume nor session/load" in ended.detail


def test_a_lost_conversation_is_a_failure_without_any_work(talk: Talk) -> None:
    ended = talk.run({"say": "x"}, session="ses-1")
    assert ended.ending is Ending.FAILED and "refused session/resume: No such session" in ended.detail
    assert ended.spent.turns == 0 and not talk.heard("session/prompt")


def test_a_stopped_agent_is_asked_to_cancel_first(talk: Talk) -> None:
    runner = talk.bench.start(talk.bench.order(agent="mine", launch=talk.launch({"hang": "begun"})))
    wait_for(talk.bench.is_in("begun"), "the agent at work")
    runner.send_signal(signal.SIGTERM)
    runner.wait()
    assert talk.bench.exit().ending is Ending.STOPPED
    assert [each["params"] for each in talk.heard("session/cancel")] == [{"sessionId": "ses-1"}]


def test_an_agent_ends_with_its_runner_or_is_found_by_the_next(talk: Talk) -> None:
    runner = talk.bench.start(talk.bench.order(agent="mine", launch=talk.launch({"hang": "begun"})))
    wait_for(talk.bench.is_in("begun"), "the agent at work")
    agent = talk.bench.agent().pid
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()
    # Its input has ended with the runner, and so has the work of an agent by protocol.
    wait_for(lambda: is_dead(agent), "the end of the agent")


def test_the_model_is_asked_for_in_the_way_that_the_agent_offers(talk: Talk) -> None:
    grouped = [{"name": "all", "options": [{"value": "large", "name": "Large"}]}]
    option = {"id": "m", "category": "model", "type": "select", "currentValue": "small", "options": grouped}
    assert talk.run({"say": "x"}, model="large").ending is Ending.FAILED
    assert talk.run({"say": "x"}, start=2, model="large", opened={"configOptions": [option]}).ending is Ending.DONE
    (asked,) = talk.heard("session/set_config_option")
    assert (asked["params"]["configId"], asked["params"]["value"]) == ("m", "large")


def test_mcp_servers_are_given_with_the_session_and_their_secrets_are_nowhere_else(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCS_TOKEN", 's3cret"quoted')
    servers = (
        McpServer(name="docs", command="docs-server", args=("-q",), env={"T": "${DOCS_TOKEN}"}),
        McpServer(name="web", url="http://localhost/mcp", headers={"A": "B ${DOCS_TOKEN}"}),
    )
    assert talk.run({"say": "x"}, servers=servers).ending is Ending.DONE
    docs, web = talk.heard("session/new")[0]["params"]["mcpServers"]
    assert docs == {
        "name": "docs", "command": "docs-server", "args": ["-q"], "env": [{"name": "T", "value": 's3cret"quoted'}],
    }  # fmt: skip
    assert web["type"] == "http" and web["headers"] == [{"name": "A", "value": 'B s3cret"quoted'}]
    kept = [path for path in talk.bench.layout.root.rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()]
    assert kept == []


HOSTILE = (
    "\xff\xfe\x00 no json\n", "{}\n", "[]\n", "null\n", '{"jsonrpc":"2.0"}\n', '{"id":99,"result":{}}\n',
    '{"id":null,"method":"x"}\n', '{"id":{"a":1},"method":"x"}\n', '{"id":[[[]]],"method":"x","params":7}\n',
    '{"method":"session/update"}\n', '{"method":"session/update","params":[1]}\n',
    '{"method":"session/update","params":{"sessionId":"other","update":{"sessionUpdate":"tool_call","toolCallId":"z"}}}\n',
    '{"method":"session/update","params":{"sessionId":"ses-1","update":{"sessionUpdate":"tool_call","toolCallId":7}}}\n',
    '{"method":"session/update","params":{"sessionId":"ses-1","update":{"sessionUpdate":"usage_update","cost":'
    '{"amount":-5,"currency":"USD"}}}}\n',
    '{"method":"session/update","params":{"sessionId":"ses-1","update":{"sessionUpdate":"agent_message_chunk",'
    '"content":[1,2]}}}\n',
    '{"id":3,"error":"no object"}\n' * 0,
    "[" * 100_000 + "\n",
)  # fmt: skip


def test_nothing_that_an_agent_prints_breaks_the_runner(talk: Talk) -> None:
    steps = [{"raw": line} for line in HOSTILE]
    ended = talk.run(*steps, {"raw": "x" * 1000, "times": 9000}, {"raw": "\n"}, {"write": "b"}, {"say": "end"})
    assert (ended.ending, ended.turn, ended.spent.usd) == (Ending.DONE, 1, 0.0)
    assert talk.bench.turns()[0].files == ["b"]
    assert any("was not read" in each for each in talk.bench.refusals())


def test_an_agent_that_ends_before_its_answer_has_not_finished(talk: Talk) -> None:
    declared = DeclaredAgent("mine", acp=("sh", "-c", "echo hello; exit 0"))
    work = Work(task="T", attempt="T.1", prompt="x" * 1_000_000, definition=Definition("T"))
    ended = talk.bench.run(agent="mine", launch=agents(Config(agents=(declared,)))["mine"].launch(work))
    assert ended.ending is Ending.FAILED and "does not speak the Agent Client Protocol" in ended.detail


def test_a_long_prompt_reaches_an_agent_that_reads_slowly(talk: Talk) -> None:
    launch = talk.launch({"say": "x"})
    launch = msgspec.structs.replace(launch, stdin="é" * 500_000)
    assert talk.bench.run(agent="mine", launch=launch).ending is Ending.DONE
    assert talk.heard("session/prompt")[0]["params"]["prompt"] == [{"type": "text", "text": "é" * 500_000}]


def test_the_version_is_asked_without_a_model(talk: Talk) -> None:
    talk.launch()
    declared = DeclaredAgent("mine", acp=(sys.executable, str(AGENT), str(talk.plan)))
    agent = agents(Config(agents=(declared,)))["mine"]
    assert agent.version(20.0) == "scripted-acp 1.2.3 (ACP 1)" and len(talk.heard()) == 1
    silent = agents(Config(agents=(DeclaredAgent("mine", acp=("sleep", "60")),)))["mine"]
    assert silent.version(0.2) == ""
    gone = agents(Config(agents=(DeclaredAgent("mine", acp=("no-such-program",)),)))["mine"]
    assert gone.version(1.0) == "" and "mine is not installed: there is no program 'no-such-program'" in gone.missing(
        Definition("T")
    )
