"""What the CLIs that Holdfast knows have in common: how one is found, and what is said where it is not there.

An adapter is a class with `name`, `title`, `program`, `can`, `install`, `sign_in`, `launch` and `stream`; its stream is
made of an order's `Launch`, so that a runner can make it without any setting. A parser looks into lines with `said`,
which never raises. An adapter is known by one line in `registry` and one in `streams`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.domain.agent_events import AUTH, Finished

if TYPE_CHECKING:
    from holdfast.config.mcp import McpServer
    from holdfast.domain.attempt import Can
    from holdfast.domain.definition import Definition

VERSION_S_MAX = 20.0


class Cli:
    name: str
    title: str
    program: str
    can: Can
    install: str
    sign_in: str

    def __init__(self, servers: Sequence[McpServer] = ()) -> None:
        self.servers = tuple(servers) if self.can.mcp else ()

    @property
    def resumes(self) -> bool:
        return self.can.resume

    def find(self) -> str | None:
        import shutil

        return shutil.which(self.program)

    def version(self, wait_s: float = VERSION_S_MAX) -> str:
        from holdfast.agents.asking import first_line

        found = self.find()
        return "" if found is None else first_line([found, "--version"], wait_s)

    def is_signed_in(self) -> bool | None:
        return None

    def missing(self, definition: Definition) -> str:
        if self.find() is None:
            return f"{self.title} is not installed: there is no program `{self.program}`. Install it: {self.install}."
        for server in self.servers:
            for name in server.references:
                if name not in os.environ:
                    return (
                        f"The MCP server {server.name} needs the variable {name}, which is not set; set it, or take "
                        "the server out of config/mcp_servers.yaml."
                    )
        return ""

    @classmethod
    def not_signed_in(cls, told: str) -> Finished:
        """The last word of one that cannot reach its model."""
        why = f" ({told.strip()})" if told.strip() else ""
        return Finished(False, f"{cls.title} is not signed in{why}. {cls.sign_in}, then try the task again.", AUTH)


def has_any(*names: str) -> bool:
    return any(os.environ.get(name) for name in names)


def home(variable: str, default: str) -> Path:
    """The folder of a CLI's own: the one that the variable names, or the default below the user's home."""
    return Path(os.environ.get(variable) or Path.home() / default)
