"""The base class of the CLIs that Holdfast knows: finding one, and the messages where it cannot be used.

An adapter is a class with `name`, `title`, `program`, `can`, `permissions`, `install`, `sign_in`, `call` and `stream`;
its stream is made of an order's `Launch`, so that a runner can make it without any setting. A parser looks into lines
with `json_fields`, which never raises. One line in `registry` makes an adapter known; `streams` finds its module by
its name.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.agents.common import environment, error_phrases, json_fields, resets
from holdfast.clock import wall
from holdfast.domain import agent_events as events
from holdfast.domain.attempt_records import Permission

if TYPE_CHECKING:
    from holdfast.config.mcp import McpServer
    from holdfast.config.sections import DeclaredAgent
    from holdfast.domain.attempt_records import Can, Launch, Modes
    from holdfast.domain.definition import Definition
    from holdfast.ports import Work
    from holdfast.questions.rules import PermissionPolicy

VERSION_S_MAX = 20.0
# A CLI may make a shorter pause by itself.
RETRY_S_MAX = 5.0
# More calls than any start makes: later ones are not reported, so memory stays bounded.
CALLS_MAX = 100_000
FILE_BYTES_MAX = 1 << 20


class Cli(ABC):
    name: str
    title: str
    program: str
    can: Can
    install: str
    sign_in: str
    permissions: Modes
    # Variables that name the address of its model, and the provider where none is set.
    base_urls: tuple[str, ...] = ()
    provider: str = ""

    def __init__(self, servers: Sequence[McpServer] = (), settings: DeclaredAgent | None = None) -> None:
        """`settings`: the entry of `agents` with its name."""
        self.servers = tuple(servers) if self.can.mcp else ()
        if settings is None:
            # Not needed by runners, which make streams only.
            from holdfast.config.sections import DeclaredAgent

            settings = DeclaredAgent(self.name)
        self._settings = settings

    @abstractmethod
    def call(self, work: Work) -> Launch:
        """The command line and files for the work, without what the settings add."""

    def launch(self, work: Work) -> Launch:
        return environment.with_settings(self.call(work), self._settings)

    def interactive(self, work: Work) -> Launch | None:
        called = self.talk(work) if work.session else None
        return environment.with_settings(called, self._settings) if called is not None else None

    def talk(self, work: Work) -> Launch | None:
        """The command line by which a person continues the conversation; None where there is none."""
        return None

    def _as_person(self, work: Work, *argv: str) -> Launch:
        """Its own program with these arguments: without what a runner needs, and with the permissions of a person, who
        can be asked."""
        call = self.call(work)
        files = {name: text for name, text in call.files.items() if name == "mcp.json"}
        argv = (self.program, *argv, *(("--model", work.model) if work.model else ()))
        facts = {"argv": argv, "stdin": "", "prompt": "", "files": files, "has_hook": False, "stream": ""}
        return msgspec.structs.replace(call, **facts)

    @property
    def permission(self) -> Permission:
        mode = self._settings.permissions
        return self._permission("skip" if mode == "full" else mode)

    def _permission(self, mode: str) -> Permission:
        return Permission(mode, self.permissions.offered.get(mode, ()))

    def flags(self, work: Work) -> tuple[str, ...]:
        """The arguments that the policy and the settings ask for."""
        permission = self.permission if work.policy is None else self._permission(work.policy.mode)
        return (*permission.flags, *self._settings.args)

    @property
    def environ(self) -> Mapping[str, str]:
        """The variables that reach it, as far as they are known here."""
        return {**os.environ, **environment.resolved(self._settings, os.environ)}

    def has_any(self, *names: str) -> bool:
        return any(self.environ.get(name) for name in names)

    def servers_of(self, work: Work) -> tuple[McpServer, ...]:
        """The MCP servers of one start: those of the settings, and our own where there is one."""
        if not work.has_tools or not self.can.mcp:
            return self.servers
        # Not needed by runners, which make streams only.
        from holdfast.config.mcp import OWN

        return (*self.servers, OWN)

    def find(self) -> str | None:
        import shutil

        return shutil.which(self.program)

    def version(self, wait_s: float = VERSION_S_MAX) -> str:
        from holdfast.agents.common.program_output import first_line

        found = self.find()
        return "" if found is None else first_line([found, "--version"], wait_s)

    def is_signed_in(self) -> bool | None:
        return None

    def endpoint(self, model: str) -> str:
        given = next((url for name in self.base_urls if (url := self.environ.get(name))), "")
        # In a name such as openai/gpt-5 the first part is the provider.
        return host(given) or self.provider or model.partition("/")[0] * ("/" in model)

    def missing(self, definition: Definition, policy: PermissionPolicy | None = None) -> str:
        if self.find() is None:
            return f"{self.title} is not installed: there is no program `{self.program}`. Install it: {self.install}."
        mode = policy.mode if policy is not None else self.permission.mode
        if mode not in self.permissions.offered:
            return (
                f"{self.title} does not offer `permissions: {mode}`, only {' and '.join(self.permissions.offered)}; "
                "change that in the settings' `agents` or `permissions`, or in the task's file."
            )
        if policy is not None and not self.can.asks and (kept := [each for each in policy.rules if each.do != "allow"]):
            return (
                f"{self.title} cannot be made to ask before a call, so the rule `{kept[0]}` of the settings' "
                "`permissions` would not be kept; name the agents that it is for, or give the task to another agent."
            )
        if unset := environment.unset(self._settings, os.environ):
            return (
                f"The settings give {self.title} a value of the variable {unset}, which is not set; set it, or take "
                "it out of `env` in the settings' `agents`."
            )
        return environment.unset_of_servers(self.servers, os.environ)

    @classmethod
    def not_signed_in(cls, message: str) -> events.Finished:
        return not_signed_in(cls.title, cls.sign_in, message)

    @classmethod
    def trouble(cls, message: str, *, status: int = 0, until: float = 0.0) -> events.Finished | events.RateLimited:
        return trouble(cls.title, cls.sign_in, message, status=status, until=until)


def not_signed_in(title: str, sign_in: str, message: str) -> events.Finished:
    """The final event of an agent that cannot reach its model for lack of a sign-in."""
    why = f" ({message.strip()})" if message.strip() else ""
    detail = f"{title} is not signed in{why}. {sign_in}, then try the task again."
    return events.Finished(False, detail, events.AUTH)


def trouble(
    title: str, sign_in: str, message: str, *, status: int = 0, until: float = 0.0
) -> events.Finished | events.RateLimited:
    """The final event of an agent that could not continue, by its error text and the server's status.

    `until`: when it may continue, where that is known from elsewhere than the text.
    """
    until = until or resets.until(message, wall())
    match error_phrases.trouble(message, status):
        case error_phrases.Trouble.NO_KEY:
            told = f"{status} {message}" if status and str(status) not in message else message
            return not_signed_in(title, sign_in, told)
        case error_phrases.Trouble.USED_UP if not until:
            return events.Finished(False, message, events.QUOTA)
        case error_phrases.Trouble.USED_UP | error_phrases.Trouble.LIMITED:
            return events.RateLimited(until, message)
        case error_phrases.Trouble.UNREACHABLE:
            return events.Finished(False, message, events.UNREACHABLE)
    return events.Finished(False, message or f"{title} has failed, and did not say why.")


class Calls:
    """Matches the calls of tools: a CLI with a hook reports each of them there, and then again in its stream.

    When one side has reported an end, the other one still reports it. After that the id is free: a model may reuse it.
    """

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._by_hook: set[str] = set()
        self._by_stream: set[str] = set()
        self._begun = 0

    def began(self, name: str, call: str, given: Any, *, by_hook: bool = False) -> Iterator[events.AgentEvent]:
        is_reported = call in self._by_stream if by_hook else call in self._by_hook
        if call not in self._open and not is_reported and self._begun < CALLS_MAX:
            self._begun += 1
            self._open.add(call)
            self._by_stream.discard(call)
            self._by_hook.discard(call)
            yield events.ToolStarted(name or "tool", call, json_fields.as_text(given))

    def ended(self, call: str, ok: bool, output: str, *, by_hook: bool = False) -> Iterator[events.AgentEvent]:
        if call in self._open:
            self._open.discard(call)
            (self._by_hook if by_hook else self._by_stream).add(call)
            yield events.ToolEnded(call, ok, output)
        else:
            (self._by_stream if by_hook else self._by_hook).discard(call)


def refused(message: str) -> events.Finished:
    return events.Finished(False, f"The model refused: {message}", events.REFUSED)


def broke_off(code: int, more: str = "") -> events.Finished:
    return events.Finished(False, f"It ended with code {code}, before its last word.{more}")


def references(servers: Sequence[McpServer]) -> tuple[str, ...]:
    """The variables that the servers' settings refer to."""
    return tuple(dict.fromkeys(name for each in servers for name in each.references))


def server_as_json(server: McpServer) -> dict[str, Any]:
    """The server in the `mcpServers` form, which more than one CLI reads."""
    if server.url:
        return {"type": "http", "url": server.url, "headers": server.headers}
    return {"command": server.command, "args": list(server.args), "env": server.env}


def host(url: str) -> str:
    """The host and port of an address, without a user name and a password in it."""
    from urllib.parse import urlsplit

    try:
        found = urlsplit(url if "//" in url else f"//{url}")
        return f"{found.hostname}:{found.port}" if found.port else found.hostname or ""
    except ValueError:
        return ""


def mentions(file: Path, *texts: str) -> bool:
    """Whether a CLI's own file contains one of the texts; only its first FILE_BYTES_MAX are read."""
    try:
        with file.open("rb") as content:
            found = content.read(FILE_BYTES_MAX)
    except (OSError, RuntimeError):
        return False
    return any(text.encode() in found for text in texts)


def home(variable: str, default: str) -> Path:
    """A CLI's own folder: the one that the variable names, or the default below the user's home."""
    return Path(os.environ.get(variable) or Path.home() / default)
