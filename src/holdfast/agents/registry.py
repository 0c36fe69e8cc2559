"""Every agent by name: those that Holdfast knows, and those that the settings declare, which win."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.agents.aider import Aider
from holdfast.agents.claude import Claude
from holdfast.agents.codex import Codex
from holdfast.agents.command import Command, Declared
from holdfast.agents.gemini import Gemini
from holdfast.agents.mini import Mini
from holdfast.agents.opencode import Opencode
from holdfast.agents.scripted import Scripted
from holdfast.config.mcp import McpServer
from holdfast.config.settings import Config
from holdfast.ports import Agent

CLIS: tuple[Callable[[Sequence[McpServer]], Agent], ...] = (Claude, Codex, Gemini, Opencode, Aider, Mini)


def agents(config: Config, servers: Sequence[McpServer] = ()) -> dict[str, Agent]:
    """`servers`: of config/mcp_servers.yaml, for every agent that can take them."""
    clis = (kind(servers) for kind in CLIS)
    known: list[Agent] = [Scripted(), Command(), *clis, *(Declared(each) for each in config.agents)]
    return {agent.name: agent for agent in known}
