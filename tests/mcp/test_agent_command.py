"""`holdfast-agent`, called by agents at work."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.domain.task import TaskState
from kit.confined import needs_bwrap
from kit.git import git
from kit.program import environment, holdfast
from kit.project import layout, sound, state
from kit.server import served
from kit.waiting import wait_for

PROGRAM = f"{shlex.quote(sys.executable)} -m holdfast.mcp.agent_command"


def add_command(repo: Path, task: str, command: str, **more: object) -> None:
    content = {"id": task, "goal": task, "command": command, **more}
    (layout(repo).backlog_open / f"{task}.yaml").write_bytes(msgspec.yaml.encode(content))


@pytest.mark.parametrize("sandbox", ["none", pytest.param("bwrap", marks=needs_bwrap)])
def test_an_agent_says_how_it_goes_and_asks_also_inside_the_sandbox(repo: Path, sandbox: str) -> None:
    lines = [
        f"{PROGRAM} progress 'half done' --percent 50 > told.txt",
        f"{PROGRAM} ask 'Which colour?' --wait 0 > colour.txt 2>&1; echo $? > code.txt",
        f"{PROGRAM} ask 'Which colour?' > colour.txt",
        f"{PROGRAM} progress now --json > facts.json",
    ]
    add_command(repo, "a", "; ".join(lines), sandbox=sandbox)
    with served(repo, "run", "--stay", "--plain") as server:
        (question,) = wait_for(lambda: server.operator.get("/questions"), "the question")
        assert server.operator.get("/tasks/a")["task"]["progress"] == "half done"
        holdfast(repo, "answer", question["id"], "--say", "the blue one")
        wait_for(lambda: state(repo).tasks["a"].state is TaskState.CLOSED, "its end")
    assert git(repo, "show", "main:told.txt") == "It is noted." and git(repo, "show", "main:code.txt") == "75"
    assert git(repo, "show", "main:colour.txt") == "the blue one"
    assert json.loads(git(repo, "show", "main:facts.json"))["task"]["progress"] == "now"
    sound(repo)


def test_an_agent_splits_its_task(repo: Path) -> None:
    add_command(repo, "a", f"{PROGRAM} split 'Write the parser' 'Write the printer'; sleep 600")
    with served(repo, "run", "--stay", "--plain", "--only", "a"):
        wait_for(lambda: state(repo).tasks["a"].state is TaskState.WAITING_FOR_SUBTASKS, "the split")
    found = state(repo).tasks
    assert {"write-parser", "write-printer"} <= found.keys()
    sound(repo)


def test_an_agent_finds_that_another_task_comes_first(repo: Path) -> None:
    add_command(repo, "first", "echo 1 > first.txt", parent=None, not_before="2099-01-01T00:00:00Z")
    add_command(repo, "a", f"{PROGRAM} block first --reason 'its table'; sleep 600")
    with served(repo, "run", "--stay", "--plain"):
        wait_for(lambda: state(repo).tasks["a"].state is TaskState.BLOCKED, "the block")
    assert "first" in (next(layout(repo).backlog.rglob("a.yaml"))).read_text()
    sound(repo)


def run_it(repo: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "holdfast.mcp.agent_command", *arguments]
    return subprocess.run(
        argv, cwd=repo, env=environment(repo, **env), input="", capture_output=True, text=True, check=False
    )


def test_somebody_else_is_told_that_it_is_for_agents(repo: Path) -> None:
    for arguments in (["progress", "x"], ["ask", "x"], ["block", "t"], ["split", "x"]):
        done = run_it(repo, *arguments)
        assert done.returncode == 2 and "agent" in done.stderr, arguments
    told = json.loads(run_it(repo, "progress", "x", "--json").stdout)
    assert told["error"]["exit_code"] == 2


def test_a_server_that_is_gone_and_a_token_that_is_worth_nothing_are_sentences(repo: Path) -> None:
    given = {"HOLDFAST_URL": "http://127.0.0.1:1", "HOLDFAST_TOKEN": "hfa_a.1.1.x", "HOLDFAST_TASK": "a"}
    done = run_it(repo, "progress", "x", **given)
    assert done.returncode == 69 and "cannot be reached" in done.stderr and "go on working" in done.stderr
    with served(repo) as server:
        done = run_it(repo, "progress", "x", **{**given, "HOLDFAST_URL": server.address.url})
    assert done.returncode == 1 and "This token is not, or no longer, valid." in done.stderr
    assert "hfa_a.1.1.x" not in done.stderr


def test_the_command_loads_neither_the_api_nor_the_sdk(repo: Path) -> None:
    script = "import sys, holdfast.mcp.agent_command; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=repo)
    loaded = set(done.stdout.split())
    assert not {"mcp", "pydantic", "starlette", "click", "holdfast.server.operations", "asyncio"} & loaded
