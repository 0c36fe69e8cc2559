"""What a person writes into the settings of their own Claude Code or Codex, so that its sessions have our tools."""

from __future__ import annotations

import shlex
import shutil
import sys

import msgspec

CLIENTS = ("claude", "codex")


def command(data_root: str | None) -> list[str]:
    """The command line of the server: by its name where the PATH has it, otherwise by this interpreter."""
    found = ["holdfast"] if shutil.which("holdfast") else [sys.executable, "-m", "holdfast"]
    return [*found, *(["--data-root", data_root] if data_root else []), "mcp"]


def text(client: str, data_root: str | None) -> str:
    program, *args = command(data_root)
    if client == "claude":
        servers = {"mcpServers": {"holdfast": {"command": program, "args": args}}}
        return msgspec.json.format(msgspec.json.encode(servers), indent=2).decode() + "\n"
    quoted = [msgspec.json.encode(each).decode() for each in (program, args)]
    return f"[mcp_servers.holdfast]\ncommand = {quoted[0]}\nargs = {quoted[1]}\n"


def advice(client: str, data_root: str | None) -> str:
    """Where it belongs, and the command that puts it there."""
    line = shlex.join(command(data_root))
    if client == "claude":
        return f"For .mcp.json of the project; or type: claude mcp add holdfast -- {line}"
    return f"For ~/.codex/config.toml; or type: codex mcp add holdfast -- {line}"
