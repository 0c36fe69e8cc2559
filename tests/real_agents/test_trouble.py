"""What is not a row of the matrix: MCP servers, models that stumble, agents that go round in circles."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.domain.task import TaskState
from kit.model_server import Step
from real_agents.kits import CLAUDE, OPENCODE, Kit
from real_agents.site import GATE, Site

# Such as a text of any kind may look.
SECRET = "hush-$5711-'{}'"


def _words(count: int, word: str) -> str:
    """Never twice the same: a CLI may take it for a model that goes round in circles."""
    return " ".join(f"{word} {number}" for number in range(count))


def test_an_mcp_server_is_handed_over_and_its_secret_is_kept_nowhere(kit: Kit, tmp_path: Path) -> None:
    if kit.mcp_tool is None:
        pytest.skip("it takes no MCP servers")
    with Site(tmp_path, kit) as site:
        server = {
            "command": sys.executable,
            "args": [str(Path(__file__).with_name("mcp_server.py"))],
            "env": {"MEMORY_TOKEN": "${MEMORY_TOKEN}"},
        }
        site.layout.mcp_servers.write_bytes(msgspec.yaml.encode({"memory": server}))
        file = site.add(verify=[{"command": "test -e b.txt"}])
        assert "MEMORY_TOKEN" in site.run(code=None), "a variable that is not set was not told"
        site.environ["MEMORY_TOKEN"] = SECRET
        site.model.then(
            Step("I ask.", [kit.mcp_tool("memory", "recall")]),
            Step("Now.", [kit.edit(file, "right\n")]),
            Step("I think it is done."),
            Step("Oh.", [kit.shell("touch b.txt")]),
        )
        site.run()
        assert site.landed() == "right"
        asked = site.model.requests
        assert asked[1].has(f"it is {SECRET}"), "the tool was not called"
        assert asked[3].has(f"it is {SECRET}") and asked[3].has("I think it is done."), (
            "the conversation is not the same"
        )
        agents = [path for path in site.layout.attempts.rglob("agent/**/*") if path.suffix == ".json"]
        kept = [path for path in (*site.layout.cas.rglob("*"), *site.layout.wal.rglob("*"), *agents) if path.is_file()]
        assert kept and not any(SECRET.encode() in path.read_bytes() for path in kept)
        site.sound()


@pytest.mark.parametrize(
    "stumble",
    [
        Step(status=500, error="out of order"),
        Step("half of", drop_after=1),
        Step(_words(400, "slowly"), pause_s=0.2),
        Step(_words(2000, "Grüße ✓"), chunk=3),
        Step(_words(200_000, "x")),
    ],
    ids=["500", "dropped", "slow", "torn letters", "huge"],
)
def test_a_model_that_stumbles_is_no_trouble(kit: Kit, tmp_path: Path, stumble: Step) -> None:
    if kit.cannot_mend:
        pytest.skip(kit.cannot_mend)
    if kit.name == "mini" and stumble.drop_after is not None:
        pytest.skip("mini asks for whole answers, which are not cut in the middle of a stream")
    if kit.name == "aider" and len(stumble.text) > 1_000_000:
        pytest.skip("Aider is busy for minutes with an answer of this size")
    if kit.name == "opencode" and len(stumble.text) > 1_000_000:
        pytest.skip("opencode ends before all of its output is read, where that is more than a pipe holds")
    with Site(tmp_path, kit) as site:
        file = site.add()
        stumble = Step(**{**vars(stumble), "calls": [kit.edit(file, "right\n")]})
        is_answer = stumble.status == 200 and stumble.drop_after is None
        site.model.then(stumble, *([] if is_answer else [Step("Again.", [kit.edit(file, "right\n")])]), Step("Done."))
        site.run()
        assert site.task.state is TaskState.CLOSED and site.landed() == "right"
        assert len(site.records("turns")) == 1 and site.task.attempts == 1


def test_an_endless_loop_is_ended(kit: Kit, tmp_path: Path) -> None:
    if not kit.has_tools:
        pytest.skip("it answers once, and runs no commands")
    with Site(tmp_path, kit, same_calls_max=3, max_attempts=1) as site:
        site.add()
        site.model.then(Step("Again.", [kit.shell("echo the same")], again=True))
        told = site.run(code=20)
        assert site.task.state is TaskState.FAILED and len(site.model.requests) <= 6
        assert site.task.outcome["kind"] == "circuit_open" and site.task.outcome["detail"] in told


def test_a_budget_of_tokens_ends_the_agent(kit: Kit, tmp_path: Path) -> None:
    if not kit.has_tools:
        pytest.skip("it answers once, and runs no commands")
    if kit.name == "codex":
        pytest.skip("Codex tells its tokens at its end only")
    with Site(tmp_path, kit, budgets={"tokens_per_task": 500}, max_attempts=1) as site:
        site.add()
        site.model.then(Step("Again.", [kit.shell("date >> a.txt")], usage=(200, 20), again=True))
        assert "used up" in site.run(code=20)
        assert len(site.model.requests) <= 4 and site.task.spent.tokens >= 500


def test_a_long_conversation_is_followed_by_another_with_its_history(kit: Kit, tmp_path: Path) -> None:
    """The second one sees nothing of the first but the prompt."""
    if not kit.has_tools:
        pytest.skip("it answers once, and runs no commands")
    with Site(tmp_path, kit, session_turns_max=1, max_attempts=1) as site:
        file = site.add(verify=GATE)
        site.model.then(
            Step("I begin.", [kit.shell("echo begun > b.txt")]),
            Step("I go on.", [kit.edit(file, "right\n")]),
            Step("It is done."),
        )
        told = site.run()
        assert site.task.state is TaskState.CLOSED and site.task.attempts == 1 and site.task.start.number >= 2
        assert "begins another one, with the history in its prompt" in told
        assert len({turn["session"] for turn in site.records("turns")}) >= 2
        site.sound()


def test_claudes_hook_is_the_barrier_of_its_turns(tmp_path: Path) -> None:
    with Site(tmp_path, CLAUDE) as site:
        file = site.add()
        site.model.then(
            Step("Both.", [CLAUDE.edit(file, "right\n"), CLAUDE.shell("exit 3")]),
            Step("Then.", [CLAUDE.shell("echo more > b.txt")]),
        )
        site.run()
        said = site.layout.attempt_files("T.1").output.read_bytes()
        turns, ends = site.records("turns"), [each for each in site.records("events") if each["type"] == "tool_ended"]
        assert len(turns) >= 2 and [end["ok"] for end in ends] == [True, False, True]
        for turn in turns:
            call = [end["call"] for end in ends if end["turn"] == turn["turn"]][-1]
            told = f'"tool_use_id":"{call}"'.encode()
            assert told in said and told not in said[: turn["output"]], "the turn was saved too late"


def test_a_server_that_stays_out_of_order_is_no_rate_limit(tmp_path: Path) -> None:
    """opencode tells by way of the plugin alone that it tries again, and what was wrong."""
    with Site(tmp_path, OPENCODE, [Step(status=500, error="out of order", again=True)], outage_pause_s=1000) as site:
        site.add()
        run = site.begin()
        site.until(lambda: site.state.outages, "the pause")
        run.kill()
        run.wait()
        assert site.task.state is TaskState.OPEN and site.task.start.number == site.task.attempts == 1
        assert "out of order" in site.task.cause and "is unreachable" in site.task.cause


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="there is no bwrap")
def test_an_agent_works_in_the_sandbox(kit: Kit, tmp_path: Path) -> None:
    with Site(tmp_path, kit, sandbox="bwrap", sandbox_writable=[str(tmp_path / "home")]) as site:
        file = site.add()
        site.model.then(Step("I write.", [kit.edit(file, "right\n")]), Step("Done."))
        site.run()
        assert site.task.state is TaskState.CLOSED and site.landed() == "right" and site.task.attempts == 1
