"""What an agent's prompt says of its way back to the run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from holdfast.agents.adapters.claude import Claude
from holdfast.config.settings import Config
from holdfast.engine.starting.orders import way_back
from kit.program import holdfast
from kit.project import layout, settings

TOOLS, COMMAND = "The MCP server `holdfast` has tools", "holdfast-agent` in a shell"


@pytest.mark.parametrize(
    ("agent", "served", "given", "wanted"),
    [
        ("claude", "true", {}, TOOLS),
        ("codex", "true", {}, TOOLS),
        ("aider", "true", {}, COMMAND),
        ("claude", "false", {}, ""),
        ("claude", "true", {"mcp_tools": False}, ""),
        ("aider", "true", {"mcp_tools": False}, ""),
    ],
)
def test_a_prompt_names_the_way_back_that_the_agent_has(
    repo: Path, agent: str, served: str, given: dict[str, object], wanted: str
) -> None:
    settings(repo, **given)
    content = msgspec.yaml.encode({"id": "a", "goal": "Do it.", "agent": agent})
    (layout(repo).backlog_open / "a.yaml").write_bytes(content)
    told = holdfast(repo, "prompt", "a", env={"HOLDFAST_SERVER__ENABLED": served})
    assert [each for each in (TOOLS, COMMAND) if each in told] == ([wanted] if wanted else [])
    assert "HOLDFAST_URL" not in told


class NoExtra(msgspec.Struct, frozen=True):
    """A run that serves, without the extra."""

    config: Config = Config()
    serves: bool = True
    has_tools: bool = False


def test_an_agent_has_the_command_where_the_extra_is_missing() -> None:
    assert way_back(Claude(), NoExtra()) == "command" and way_back(Claude(), NoExtra(serves=False)) == ""
