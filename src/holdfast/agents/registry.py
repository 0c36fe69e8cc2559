"""Every agent by name: those that Holdfast knows, those of plugins, and those of the settings, which win."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.agents.adapters.acp import ProtocolAgent
from holdfast.agents.adapters.aider import Aider
from holdfast.agents.adapters.claude import Claude
from holdfast.agents.adapters.codex import Codex
from holdfast.agents.adapters.command import Command, Declared, Scripted
from holdfast.agents.adapters.gemini import Gemini
from holdfast.agents.adapters.mini import Mini
from holdfast.agents.adapters.opencode import Opencode
from holdfast.agents.common.cli_base import Cli
from holdfast.config.mcp import McpServer
from holdfast.config.settings import Config
from holdfast.integrations.plugins import catalog
from holdfast.ports import Agent

CLIS: tuple[type[Cli], ...] = (Claude, Codex, Gemini, Opencode, Aider, Mini)


def agents(config: Config, servers: Sequence[McpServer] = ()) -> dict[str, Agent]:
    """`servers`: of config/mcp_servers.yaml, for every agent that can take them."""
    settings = {each.name: each for each in config.agents}
    known: list[Agent] = [Scripted(), Command(), *(kind(servers, settings.get(kind.name)) for kind in CLIS)]
    names = {agent.name for agent in known}
    known += [agent for agent in _of_plugins(config) if agent.name not in names]
    known += [ProtocolAgent(each, servers) for each in config.agents if each.acp]
    known += [Declared(each) for each in config.agents if not each.acp and (each.command or each.name not in names)]
    return {agent.name: agent for agent in known}


def _of_plugins(config: Config) -> Iterator[Agent]:
    """One that cannot be made is left out: `holdfast plugins` says why."""
    for name, factory in catalog.provided("agents", config.plugins).items():
        agent, _ = catalog.made(f"the agent {name}", factory)
        if agent is not None and agent.name == name:
            yield agent
