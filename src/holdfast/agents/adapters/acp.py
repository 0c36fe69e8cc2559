"""An agent of the settings that speaks the Agent Client Protocol: `acp: [goose, acp]`.

The runner talks to it by `acp_stream`. What a program keeps in the user's home, and the variables that it needs, are
those of its own adapter, where Holdfast has one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.agents.adapters import acp_messages, acp_stream
from holdfast.agents.common import environment, json_fields
from holdfast.agents.common.cli_base import references
from holdfast.config.mcp import OWN, OWN_COMMAND
from holdfast.domain.attempt_records import Can, Home, Launch, Permission, ProtocolCall
from holdfast.questions.rules import Mode, PermissionPolicy

if TYPE_CHECKING:
    from holdfast.config.mcp import McpServer
    from holdfast.config.sections import DeclaredAgent
    from holdfast.domain.definition import Definition
    from holdfast.ports import Work

VERSION_CHARS_MAX = 100


class ProtocolAgent:
    install = ""

    def __init__(self, declared: DeclaredAgent, servers: Sequence[McpServer] = ()) -> None:
        self._declared, self._servers = declared, tuple(servers)
        self.name = declared.name

    @property
    def can(self) -> Can:
        """Whether it resumes only the agent can tell: what it cannot load begins anew, with the history in its prompt.

        Gemini CLI starts no MCP server in a folder that it was not told to trust.
        """
        is_distrustful = Path(self._program).name == "gemini" and "--skip-trust" not in self._declared.acp
        return Can(resume=True, cost="reported", mcp=not is_distrustful, asks="held")

    @property
    def _program(self) -> str:
        return self._declared.acp[0]

    @property
    def sign_in(self) -> str:
        return f"Sign in with `{self._program}` itself, in a terminal"

    @property
    def permission(self) -> Permission:
        return Permission(self._mode)

    @property
    def _mode(self) -> Mode:
        mode = self._declared.permissions
        return "skip" if mode == "full" else mode

    def find(self) -> str | None:
        return shutil.which(self._program)

    def version(self, wait_s: float) -> str:
        """What it says of itself, and the version of the protocol: no model is asked."""
        from holdfast.agents.common.program_output import answer

        if self.find() is None:
            return ""
        argv = [_filled(part, "") for part in self._declared.acp]
        result = json_fields.inner(json_fields.line(answer(argv, acp_messages.initialize(), wait_s)), "result")
        if not result:
            return ""
        named, version = json_fields.text(result, "agentInfo", "name"), json_fields.text(result, "agentInfo", "version")
        protocol = f"ACP {json_fields.count(result, 'protocolVersion')}"
        return " ".join(filter(None, (named, version, f"({protocol})")))[:VERSION_CHARS_MAX]

    def is_signed_in(self) -> bool | None:
        return None

    def endpoint(self, model: str) -> str:
        # In a name such as openai/gpt-5 the first part is the provider.
        return model.partition("/")[0] * ("/" in model)

    def missing(self, definition: Definition, policy: PermissionPolicy | None = None) -> str:
        if self.find() is None:
            return (
                f"The agent {self.name} is not installed: there is no program {self._program!r}. Install it, or write "
                "where it is in the settings' `agents`."
            )
        if unset := environment.unset(self._declared, os.environ):
            return f"The settings give {self.name} a value of the variable {unset}, which is not set; set it."
        return environment.unset_of_servers(self._servers, os.environ)

    def interactive(self, work: Work) -> Launch | None:
        return None

    def launch(self, work: Work) -> Launch:
        declared = self._declared
        policy = work.policy or PermissionPolicy(self._mode)
        # Each under the same name: the stream takes the first that the agent can speak to.
        servers = (*self._servers, OWN, OWN_COMMAND) if work.has_tools and self.can.mcp else self._servers
        names_model = any("{model}" in part for part in declared.acp)
        call = ProtocolCall(
            title=self.name,
            program=Path(self._program).name,
            session=work.session,
            servers=msgspec.json.encode([_server(each) for each in servers]).decode(),
            meta=_meta(Path(self._program).name, work.task),
            sets_model=bool(work.model) and not names_model,
            load_after=_load_after(Path(self._program).name, work.session),
            sign_in=self.sign_in,
        )
        launch = Launch(
            tuple(_filled(part, work.model) for part in declared.acp),
            stdin=work.prompt,
            env=_environ(Path(self._program).name, policy),
            references=references(servers),
            model=work.model,
            homes=_homes(Path(self._program).name),
            protocol=call,
            counted_usd=work.counted_usd,
            reads_errors=Path(self._program).name == "gemini",
            writes_late=Path(self._program).name == "gemini",
            talks=True,
            policy=policy,
        )
        return environment.with_settings(launch, declared)


def stream(launch: Launch, worktree: str) -> acp_stream.AcpStream:
    return acp_stream.AcpStream(launch, worktree)


def _filled(part: str, model: str) -> str:
    return part.replace("{model}", model)


def _server(server: McpServer) -> dict[str, Any]:
    """As the protocol wants it: variables and headers are lists of names and values."""
    if server.url:
        return {"type": "http", "name": server.name, "url": server.url, "headers": _pairs(server.headers)}
    return {"name": server.name, "command": server.command, "args": list(server.args), "env": _pairs(server.env)}


def _pairs(values: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


# -- programs that Holdfast knows -------------------------------------------------------------------------------------


# opencode runs every tool unasked, unless told otherwise. What only reads is left to it.
_ASKS = {"*": "ask", "read": {"*": "allow", "*.env": "ask", "*.env.*": "ask"}} | dict.fromkeys(
    ("glob", "grep", "list", "todoread", "todowrite"), "allow"
)


def _environ(program: str, policy: PermissionPolicy) -> dict[str, str]:
    match program:
        case "gemini":
            # One process only: the one that we watch.
            return {"GEMINI_CLI_NO_RELAUNCH": "true"}
        case "opencode":
            from holdfast.agents.adapters.opencode import DATABASE

            asks = {"OPENCODE_PERMISSION": msgspec.json.encode(_ASKS).decode()} if policy.is_kept else {}
            return {"OPENCODE_DB": DATABASE, **asks}
        case "claude-agent-acp":
            # It asks its model what a person might type next, and does not report that cost.
            env = {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION": "false"}
            # It retries in silence: an outage is for Holdfast to wait for.
            env["CLAUDE_CODE_MAX_RETRIES"] = "2"
            return {**env, **({"IS_SANDBOX": "1"} if os.geteuid() == 0 else {})}
    return {}


def _meta(program: str, task: str) -> str:
    """claude-agent-acp asks its model for the title of a conversation that has none."""
    if program != "claude-agent-acp":
        return "{}"
    return msgspec.json.encode({"claudeCode": {"options": {"title": f"Holdfast: {task}"}}}).decode()


def _load_after(program: str, session: str) -> float:
    """Gemini CLI names a conversation's file by the minute of its start, and one that it loads, too: in the same minute
    it writes over the file before it reads it, and finds nothing."""
    if program != "gemini" or not session:
        return 0.0
    from holdfast.agents.adapters import gemini

    return gemini.begun(session) + 60.0


def _homes(program: str) -> tuple[Home, ...]:
    match program:
        case "gemini":
            from holdfast.agents.adapters import gemini

            return gemini.homes()
        case "opencode":
            from holdfast.agents.adapters import opencode

            return opencode.homes()
        case "claude-agent-acp":
            from holdfast.agents.adapters import claude

            return claude.homes()
    return ()
