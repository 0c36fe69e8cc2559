"""`holdfast agents`: what is here, told of whatever stands on the PATH; and the examples of docs/agents.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import identity
from holdfast.agents.common import program_output
from holdfast.agents.common.prices import AS_OF, PRICES
from holdfast.agents.common.program_output import first_line
from holdfast.agents.registry import agents
from holdfast.agents.tried_versions import TRIED, newer_than
from holdfast.clock import monotonic
from holdfast.config import mcp
from holdfast.config.layers import load
from holdfast.config.settings import Config
from kit import TOP
from kit.program import holdfast, type_in
from kit.project import landed, layout, settings, sound
from kit.waiting import WAIT_S_MAX, wait_for
from real_agents import matrix
from real_agents.matrix import Cells, CellTest

PAGE = TOP / "docs" / "agents.md"
UNSIGNED = dict.fromkeys(
    ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_KEY", "CODEX_API_KEY"), ""
) | dict.fromkeys(("CLAUDE_CONFIG_DIR", "CODEX_HOME"), "")


def program(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    return folder / name


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder that is all of the PATH, with what Holdfast itself needs."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in ("git", "sh", "sleep", "cat", "yes"):
        found = next(Path(each) / name for each in os.defpath.split(":") if (Path(each) / name).exists())
        (folder / name).symlink_to(found)
    return folder


def ask(repo: Path, tools: Path, *args: str) -> dict[str, dict[str, Any]]:
    told = holdfast(repo, "agents", "--json", *args, env={**UNSIGNED, "PATH": str(tools)})
    return {each["name"]: each for each in msgspec.json.decode(told)["agents"]}


def test_installed_and_missing_agents_are_listed(repo: Path, tools: Path) -> None:
    claude = program(tools, "claude", "echo '2.1.7 (Claude Code)'; echo more")
    settings(repo, agents=[{"name": "mine", "command": ["cat"]}, {"name": "ghost", "command": ["no-such-program"]}])
    found = ask(repo, tools)
    assert found.keys() == {*agents(Config()), "mine", "ghost"}
    assert (found["claude"]["path"], found["claude"]["version"]) == (str(claude), "2.1.7 (Claude Code)")
    assert found["claude"]["can"].items() >= {"resume": True, "cost": "reported", "mcp": True}.items()
    assert (found["codex"]["path"], found["codex"]["version"]) == ("", "")
    assert found["mine"]["declared"] and found["mine"]["path"] == str(tools / "cat")
    assert found["mine"]["signed_in"] is None and not found["claude"]["declared"]
    told = holdfast(repo, "agents", env={**UNSIGNED, "PATH": str(tools)})
    assert re.search(r"^mine \(settings\) +\S+/cat +- +unknown +no +- +no +-$", told, re.MULTILINE)
    assert "codex is not installed: `npm install -g @openai/codex`" in told
    assert "ghost is not installed" in told and "claude is not signed in: Run `claude`" in told


def test_a_version_that_is_newer_than_what_was_tried_is_named(repo: Path, tools: Path) -> None:
    program(tools, "claude", "echo '99.1.7 (Claude Code)'")
    program(tools, "codex", f"echo 'codex-cli {TRIED['codex']}'")
    found = ask(repo, tools)
    assert (found["claude"]["tried"], found["codex"]["tried"]) == (TRIED["claude"], "")
    told = holdfast(repo, "agents", env={**UNSIGNED, "PATH": str(tools)})
    assert f"claude is newer than {TRIED['claude']}, the newest that was tried" in told and "codex is newer" not in told


@pytest.mark.parametrize(
    ("told", "is_newer"),
    [("", False), ("latest", False), ("2.1", False), ("2.1.326", False), ("v2.1.327", True), ("2.2", True),
     ("2.1.326.1", True), ("Claude Code 10.0.0 (x)", True), ("2.1.9999999999999999", False), ("x2.9.9", False)],
)  # fmt: skip
def test_versions_are_compared_by_number(told: str, is_newer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRIED, "claude", "2.1.326")
    assert newer_than("claude", told) == ("2.1.326" if is_newer else "") and newer_than("goose", told) == ""


def test_the_versions_that_were_tried_are_those_of_the_pins() -> None:
    folder = TOP / "tests" / "real_agents"
    packages = msgspec.json.decode((folder / "package.json").read_bytes())["dependencies"]
    names = {"@anthropic-ai/claude-code": "claude", "@google/gemini-cli": "gemini", "@openai/codex": "codex"}
    names |= {"opencode-ai": "opencode", "@agentclientprotocol/claude-agent-acp": "claude-agent-acp"}
    pinned = {names[package]: version for package, version in packages.items()}
    for name, package in (("aider", "aider-chat"), ("mini", "mini-swe-agent")):
        (found,) = re.findall(rf"^{package}==(\S+)", (folder / f"requirements-{name}.txt").read_text(), re.MULTILINE)
        pinned[name] = found
    assert pinned == TRIED
    locked = msgspec.json.decode((folder / "package-lock.json").read_bytes())["packages"]
    assert {package: locked[f"node_modules/{package}"]["version"] for package in packages} == packages


def test_an_agent_by_protocol_is_listed_with_what_it_says_of_itself(repo: Path, tools: Path, tmp_path: Path) -> None:
    (plan := tmp_path / "plan.json").write_text('{"steps": []}')
    speaks = {"name": "mine", "acp": [sys.executable, str(TOP / "tests/kit/acp_agent.py"), str(plan)]}
    settings(repo, agents=[speaks, {"name": "mute", "acp": ["cat"]}, {"name": "ghost", "acp": ["no-such-program"]}])
    found = ask(repo, tools, "--wait", "20")
    assert found["mine"]["version"] == "scripted-acp 1.2.3 (ACP 1)" and found["mine"]["declared"]
    assert found["mine"]["permission"]["mode"] == "skip" and (found["mute"]["version"], found["ghost"]["path"]) == (
        "",
        "",
    )
    (layout(repo).backlog_open / "t.yaml").write_text("goal: x\nagent: mute\n")
    told = holdfast(repo, "doctor", code=20, env={**UNSIGNED, "PATH": str(tools)})
    assert "mine speaks ACP 1" in told
    assert "mute does not answer by the Agent Client Protocol, and the task t asks for it" in told


def test_signed_in_is_told_from_files_and_variables(repo: Path, tools: Path) -> None:
    for name in ("claude", "codex"):
        program(tools, name, "echo 1")
    assert ask(repo, tools)["claude"]["signed_in"] is False
    (repo.parent / ".claude").mkdir()
    (repo.parent / ".claude" / ".credentials.json").write_text("{}")
    found = ask(repo, tools)
    assert found["claude"]["signed_in"] is True and found["codex"]["signed_in"] is False
    (repo.parent / ".codex").mkdir()
    (repo.parent / ".codex" / "auth.json").write_text("{}")
    assert ask(repo, tools)["codex"]["signed_in"] is True


@pytest.mark.parametrize("broken", ["exec sleep 1000", "sleep 1000 & exec sleep 1000", "exec yes", "echo 1; exit 3"])
def test_a_broken_program_stops_nothing(repo: Path, tools: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """Its own end is that of the command: had it been waited for, this test would not end."""
    program(tools, "claude", f'echo $$ > "{repo.parent}/pid"; {broken}')
    program(tools, "codex", "echo codex-cli 1.2")
    told, read = repo.parent / "pid", program_output._read

    def read_in_time(child: subprocess.Popen[bytes], deadline: float) -> bytes:
        """All have the time that they need to begin; only the broken one has no more than that."""
        if not str(child.args[0]).endswith("claude"):  # type: ignore[index]
            return read(child, monotonic() + WAIT_S_MAX)
        wait_for(lambda: told.exists() and told.read_text().endswith("\n"), "the broken program")
        return read(child, monotonic() + 0.1)

    monkeypatch.setattr(program_output, "_read", read_in_time)
    typed = type_in(repo, "agents", "--json", environ={**UNSIGNED, "HOME": str(repo.parent), "PATH": str(tools)})
    found = {each["name"]: each for each in msgspec.json.decode(typed.stdout)["agents"]}
    assert (found["claude"]["path"], found["claude"]["version"]) == (str(tools / "claude"), "")
    assert found["codex"]["version"] == "codex-cli 1.2"
    assert not Path("/proc", told.read_text().strip()).exists()


def test_a_program_that_answers_and_leaves_a_child_behind_is_not_waited_for(tmp_path: Path) -> None:
    path = program(tmp_path, "p", f'sleep 1000 & echo $! > "{tmp_path}/left"; echo v7')
    assert first_line([str(path)], 60) == "v7"
    left = int((tmp_path / "left").read_text())
    wait_for(lambda: identity.start_ticks(left) is None, "the end of the child that was left behind")
    assert first_line([str(tmp_path / "nobody")], 60) == ""


def test_without_waiting_no_program_is_started(repo: Path, tools: Path) -> None:
    program(tools, "claude", f'echo x > "{repo.parent}/was-run"; echo 1')
    assert ask(repo, tools, "--wait", "0")["claude"]["version"] == ""
    assert not (repo.parent / "was-run").exists()
    assert ask(repo, tools)["claude"]["version"] == "1" and (repo.parent / "was-run").exists()


def test_doctor_tells_the_same(repo: Path, tools: Path) -> None:
    program(tools, "claude", "echo 1")
    (layout(repo).backlog_open / "t.yaml").write_text("goal: x\n")
    told = holdfast(repo, "doctor", code=20, env={**UNSIGNED, "PATH": str(tools)})
    assert "claude not signed in" in told and "codex" in told.partition(" missing")[0]
    assert "claude is not signed in, and the task t asks for it. Run `claude`" in told
    env = {**UNSIGNED, "PATH": str(tools), "ANTHROPIC_API_KEY": "key"}
    assert "not signed in, and" not in holdfast(repo, "doctor", code=None, env=env)


def test_prices_are_shown_with_their_date_and_the_settings_win(repo: Path) -> None:
    settings(repo, prices={"gpt-5": {"input": 7, "output": 9}, "mine": {"input": 1, "output": 2, "cached": 0.5}})
    told = msgspec.json.decode(holdfast(repo, "agents", "--prices", "--json"))
    found = {each["model"]: each for each in told["prices"]}
    assert told["as_of"] == AS_OF and found.keys() == {*PRICES, "mine"}
    assert (found["gpt-5"]["input"], found["gpt-5"]["cached"], found["gpt-5"]["as_of"]) == (7, 7, "settings")
    assert (found["gpt-5.4"]["output"], found["gpt-5.4"]["as_of"]) == (PRICES["gpt-5.4"][3], AS_OF)
    assert f"as of {AS_OF}" in holdfast(repo, "agents", "--prices")


# -- the page ---------------------------------------------------------------------------------------------------------


def example(name: str) -> str:
    found = re.search(rf"<!-- example: {name} -->\n```\w+\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


# What `show --json` has of every task of the journal, side by side.
FACTS = {
    "id", "state", "pinned", "added_at", "changed_at", "number", "unfiled", "restored", "parked", "not_before",
    "cause", "approved", "happened", "claims", "agent", "worked_by", "model", "why", "endpoint", "remote",
    "progress", "assigned", "attempts", "attempt", "continues", "resumes", "worked_on", "base", "begun", "tree",
    "turn", "offset", "undos", "undone", "session", "lost_in", "starts", "intent", "started", "began", "reserved",
    "used", "candidate", "made", "left", "feedback", "verified", "verified_on", "landed", "landed_on",
    "landing_waits", "outcome", "failed", "again", "past", "turns", "usd", "tokens", "seconds",
}  # fmt: skip


def test_the_declared_agent_of_the_page_does_a_task(repo: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    (tmp_path / "output").write_text(example("output"))
    program(
        folder, "mycli", f'echo "$*" > "{tmp_path}/args"; cat > "{tmp_path}/told"; echo x > y; cat "{tmp_path}/output"'
    )
    layout(repo).settings.write_text(example("declared"))
    (layout(repo).backlog_open / "t.yaml").write_text("goal: Mend the parser.\n")
    holdfast(repo, "run", "--plain", env={"PATH": f"{folder}:{os.environ['PATH']}"})
    assert landed(repo) == ["t"] and (tmp_path / "args").read_text() == "run --json --model large\n"
    assert "Mend the parser." in (tmp_path / "told").read_text()
    turns = msgspec.json.decode(holdfast(repo, "turns", "t", "--json"))["turns"]
    assert [(line["tool"], line["session"], line["files"]) for line in turns] == [("edit", "s-17", ["y"])]
    shown = msgspec.json.decode(holdfast(repo, "show", "t", "--json"))
    assert shown.keys() >= FACTS
    assert (shown["usd"], shown["tokens"], shown["cost"]) == (0.02, 1280, "reported")
    assert (shown["worked_by"], shown["model"], shown["why"]) == ("mycli", "large", "the default")
    sound(repo)


def test_a_failed_gate_wakes_the_conversation_of_the_declared_agent_of_the_page(repo: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    (tmp_path / "output").write_text(example("output"))
    script = f'echo "$*" >> "{tmp_path}/args"; cat > "{tmp_path}/told"; cat "{tmp_path}/output"; echo "$*" > y'
    program(folder, "mycli", script)
    layout(repo).settings.write_text(example("declared"))
    (layout(repo).backlog_open / "t.yaml").write_text(
        "goal: Mend it.\nverify: grep s-17 y || { echo not yet; false; }\n"
    )
    holdfast(repo, "run", "--plain", env={"PATH": f"{folder}:{os.environ['PATH']}"})
    first, second = (tmp_path / "args").read_text().splitlines()
    assert second == f"{first} --resume s-17" and landed(repo) == ["t"]
    assert "not yet" in (tmp_path / "told").read_text() and "You said" not in (tmp_path / "told").read_text()


def test_the_other_examples_of_the_page_are_settings(repo: Path) -> None:
    for name in ("rules", "prices"):
        layout(repo).settings.write_text(example(name))
        config = load(repo, environ={}).config
        assert (len(config.routes), len(config.cascade), len(config.prices)) == (
            (2, 3, 0) if name == "rules" else (0, 0, 2)
        )
    layout(repo).settings.write_text(example("protocol"))
    assert [each.acp[0] for each in load(repo, environ={}).config.agents] == [
        "goose", "gemini", "opencode", "claude-agent-acp",
    ]  # fmt: skip
    layout(repo).mcp_servers.write_text(example("servers"))
    assert [each.name for each in mcp.read(layout(repo).mcp_servers)] == ["docs", "tracker"]


def test_the_page_has_a_place_for_the_matrix() -> None:
    page = PAGE.read_text()
    for sandbox in matrix.SANDBOXES:
        for label in (sandbox, f"{sandbox}, by protocol"):
            assert page.count(f"<!-- matrix, sandbox {label}: made by `make test-agents` -->") == 1


def test_a_cell_that_was_run_is_kept_by_version_and_the_last_run_counts(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    for outcome in ("failed", "passed"):
        Cells(path).add(CellTest("none", "lands", "claude", "first", 1, outcome, "2.1"))
        assert [each.outcome for each in Cells(path).of({"claude": "2.1"})] == [outcome]
    assert Cells(path).of({"claude": "2.2"}) == []


def test_a_matrix_is_whole_when_every_test_of_every_cell_was_run(tmp_path: Path) -> None:
    module = matrix
    made = module.Matrix(["claude"])
    page = tmp_path / "agents.md"
    begin = "<!-- matrix, sandbox bwrap: made by `make test-agents` -->"
    page.write_text(f"before\n{begin}\n<!-- end of the matrix -->\nafter\n")
    assert made.is_empty and not made.is_whole(page, "bwrap")
    for row in module.ROWS:
        made.note(CellTest("none", row, "claude", "first", 2, "passed"))
    assert not made.is_empty and not made.is_whole(page, "bwrap")
    assert "not all run" in made.text() and "yes" not in made.text()
    for row in module.ROWS:
        outcome = "cannot: it has none" if row == "usage" else "passed"
        made.note(CellTest("none", row, "claude", "second", 2, outcome))
    assert made.is_whole(page, "bwrap") and made.text().count("| yes |") == len(module.ROWS) - 1
    assert "| yes; cannot: it has none |" in made.text()
    made.note(CellTest("none", "lands", "claude", "first", 2, "failed"))
    assert made.is_whole(page, "bwrap") and "| FAILS |" in made.text()


def test_a_cell_that_was_not_run_keeps_what_the_page_says_and_of_which_version(tmp_path: Path) -> None:
    page = tmp_path / "agents.md"
    begin = "<!-- matrix, sandbox bwrap: made by `make test-agents` -->"
    page.write_text(f"before\n{begin}\n<!-- end of the matrix -->\nafter\n")
    made, newer = matrix.Matrix(["claude"]), matrix.Matrix(["claude"])
    made.versions, newer.versions = {"claude": "2.1"}, {"claude": "2.2"}
    for row in matrix.ROWS:
        made.note(CellTest("bwrap", row, "claude", "first", 1, "passed"))
    made.write(page, "bwrap")
    newer.note(CellTest("bwrap", "lands", "claude", "first", 1, "passed"))
    for _ in range(2):
        assert newer.is_whole(page, "bwrap")
        newer.write(page, "bwrap")
        table = page.read_text()
        assert table.startswith("before\n") and table.endswith("\nafter\n") and "| claude 2.2 |" in table
        assert table.count("| yes |") == 1 and table.count("| yes (2.1) |") == len(matrix.ROWS) - 1
