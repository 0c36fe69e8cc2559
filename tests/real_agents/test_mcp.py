"""Holdfast's own MCP server with the real programs: an agent at work, and a person's own session."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.task import TaskState
from holdfast.ledgers.reader import read_state
from holdfast.server.serving import read_address
from holdfast.storage.journal.reader import Chain
from kit.model_server import Call, Step
from kit.waiting import wait_for
from real_agents.kits import ALL_KITS, CLAUDE, CODEX, GEMINI_ACP, Kit
from real_agents.site import WAIT_S, Site


def _trusting(kit: Kit) -> Kit:
    """Gemini CLI starts no MCP server in a folder that it does not trust."""
    if kit is not GEMINI_ACP:
        return kit
    (entry,) = kit.settings["agents"]
    return replace(kit, settings={**kit.settings, "agents": [{**entry, "acp": [*entry["acp"], "--skip-trust"]}]})


ONLY = tuple(_trusting(kit) for kit in ALL_KITS if kit.mcp_tool is not None)
TOKEN = b"hfa_"


def tool(kit: Kit, name: str, **arguments: Any) -> Call:
    assert kit.mcp_tool is not None
    return Call(kit.mcp_tool("holdfast", name).name, **arguments)


def test_a_working_agent_says_how_it_goes_and_asks_a_person_by_our_tools(kit: Kit, tmp_path: Path) -> None:
    with Site(tmp_path, kit) as site:
        file = site.add()
        site.model.then(
            Step("I say.", [tool(kit, "progress", message="half-4711", percent=50)]),
            Step("I ask.", [tool(kit, "ask", question="Which colour?")]),
            Step("Now.", [kit.edit(file, "right\n")]),
            Step("Done."),
        )
        run = site.begin()
        (question,) = wait_for(lambda: site.questions())
        assert (question["kind"], question["preview"]) == ("words", "Which colour?")
        site.holdfast("answer", question["id"], "--say", "the-blue-one")
        site.finished(run)
        assert site.task.state is TaskState.CLOSED and site.landed() == "right"
        first, *_, last = site.model.requests
        assert first.has("MCP server `holdfast`"), "the prompt does not name the tools"
        assert last.has("half-4711") and last.has("the-blue-one")
        chain = (entry for _, entry in Chain(site.layout.wal).entries())
        assert [each.inputs["message"] for each in chain if each.decision_type == "task_progressed"] == ["half-4711"]
        kept = [*site.layout.cas.rglob("*"), *site.layout.wal.rglob("*"), *site.layout.attempts.rglob("agent/**/*")]
        files = [path for path in kept if path.is_file() and not path.is_symlink()]
        assert files and not [path for path in files if TOKEN in path.read_bytes()], "a token is in a file that stays"
        site.sound()


def test_an_agent_is_given_no_tools_where_the_settings_refuse_them(kit: Kit, tmp_path: Path) -> None:
    if kit not in (CLAUDE, CODEX):
        pytest.skip("one that has them in a file and one that has them as options are enough")
    with Site(tmp_path, kit, mcp_tools=False) as site:
        file = site.add()
        site.model.then(Step("Now.", [kit.edit(file, "right\n")]), Step("Done."))
        site.run()
        assert site.landed() == "right"
        assert not any(request.has("holdfast") and "mcp__holdfast" in request.text for request in site.model.requests)


def _session(site: Site, kit: Kit) -> list[str]:
    """A person's own session, given our server as `--print-config` says."""
    printed = site.holdfast("mcp", "--print-config", kit.name)
    text = printed.partition("For ")[0]
    if kit is CLAUDE:
        (site.top / "mcp.json").write_text(text)
        given = ["--mcp-config", str(site.top / "mcp.json"), "--allowedTools", "mcp__holdfast"]
        return ["claude", "-p", "Add a task.", "--model", str(kit.settings["model"]), *given]
    settings = site.home / ".codex" / "config.toml"
    settings.write_text(f"{settings.read_text()}\n{text}")
    # It begins without a server that is still starting, unless that is required.
    options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    options += ["-c", "mcp_servers.holdfast.required=true"]
    return ["codex", "exec", *options, "--model", str(kit.settings["model"]), "Add a task."]


@pytest.mark.parametrize("is_served", [True, False], ids=["while a run lives", "while none does"])
def test_a_persons_own_session_adds_a_task(kit: Kit, tmp_path: Path, is_served: bool) -> None:
    if kit not in (CLAUDE, CODEX):
        pytest.skip("the two for which `--print-config` says what to write")
    with Site(tmp_path, kit) as site:
        if is_served:
            site.begin("serve")
            site.until(lambda: read_address(site.layout) is not None, "a server")
        argv = _session(site, kit)
        site.model.then(
            Step("I add it.", [tool(kit, "add_task", id="new", goal="Write b.txt.")]),
            Step("I look.", [tool(kit, "show_task", task="new")]),
            Step("It is added."),
        )
        done = subprocess.run(
            argv, cwd=site.repo, env=site.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=WAIT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "It is added." in done.stdout
        if is_served:
            assert read_state(site.layout)[0].tasks["new"].state is TaskState.OPEN
        else:
            assert (site.layout.backlog_open / "new.yaml").exists()


def test_our_tools_need_nobodys_leave_where_calls_are_asked_about(kit: Kit, tmp_path: Path) -> None:
    if kit not in (CLAUDE, CODEX):
        pytest.skip(
            "the others cannot be made to ask, or ask by protocol, where a call has no name that can be relied on"
        )
    with Site(tmp_path, kit, agents=[{"name": kit.name, "permissions": "ask"}]) as site:
        site.add(may_change_nothing=True, verify=[])
        site.model.then(Step("I say.", [tool(kit, "progress", message="half-4711")]), Step("Done."))
        site.run()
        assert site.task.state is TaskState.CLOSED and site.task.claim.progress == "half-4711"
        assert not site.task.questions
