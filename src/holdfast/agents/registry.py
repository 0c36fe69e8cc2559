"""Every agent by name: those that Holdfast knows, and those that the settings declare, which win."""

from __future__ import annotations

from holdfast.agents.command import Command, Declared
from holdfast.agents.scripted import Scripted
from holdfast.config.settings import Config
from holdfast.ports import Agent


def agents(config: Config) -> dict[str, Agent]:
    known: list[Agent] = [Scripted(), Command(), *(Declared(each) for each in config.agents)]
    return {agent.name: agent for agent in known}
