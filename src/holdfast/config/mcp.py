"""config/mcp_servers.yaml: tools that every agent is given, where it can take them.

    docs:
      command: docs-server
      args: [--quiet]
      env: {DOCS_TOKEN: "${DOCS_TOKEN}"}
    tracker:
      url: https://tracker.example.org/mcp
      headers: {Authorization: "Bearer ${TRACKER_TOKEN}"}

`${NAME}` in a value of `env` and `headers` is a variable of the user who runs Holdfast. It is filled in when an agent
starts, so that no secret is written to a file that stays. The name `holdfast` is that of our own server (`OWN`).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.errors import ConfigUnreadable

REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_ALLOWED = (
    "a mapping of names (letters, digits, dashes, underscores) to servers, each with either command, args and env, or "
    "url and headers"
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_PRINTABLE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
Text = Annotated[str, Meta(min_length=1, max_length=4096)]
OWN_NAME = "holdfast"


class McpServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One with a `command` is started by the agent; one with a `url` is asked over HTTP."""

    name: str = ""
    command: Annotated[str, Meta(max_length=4096)] = ""
    args: Annotated[tuple[str, ...], Meta(max_length=1000)] = ()
    env: Annotated[dict[Text, str], Meta(max_length=200)] = {}
    url: Annotated[str, Meta(max_length=4096)] = ""
    headers: Annotated[dict[Text, str], Meta(max_length=200)] = {}

    @staticmethod
    def refers(value: str) -> bool:
        return REFERENCE.search(value) is not None

    @property
    def is_own(self) -> bool:
        """Whether it is Holdfast's own."""
        return self.name == OWN_NAME

    @property
    def references(self) -> tuple[str, ...]:
        """The variables that its values stand for."""
        values = (*self.env.values(), *self.headers.values(), *([self.url] if self.is_own else []))
        return tuple(dict.fromkeys(name for value in values for name in REFERENCE.findall(value)))


# Our own server, for an agent at work. Its runner has both variables; neither is in a file that stays.
OWN = McpServer(OWN_NAME, url="${HOLDFAST_URL}/mcp", headers={"Authorization": "Bearer ${HOLDFAST_TOKEN}"})
# The same for an agent that starts its servers itself, and speaks to none by HTTP.
OWN_COMMAND = McpServer(
    OWN_NAME,
    command=sys.executable,
    args=("-m", "holdfast", "mcp"),
    env={name: f"${{{name}}}" for name in ("HOLDFAST_URL", "HOLDFAST_TOKEN")},
)


def read(path: Path) -> tuple[McpServer, ...]:
    """The servers of the file, none where there is no file. Raises ConfigUnreadable."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from None
    if not any(line.strip() and not line.strip().startswith(b"#") for line in content.split(b"\n")):
        return ()
    try:
        found = msgspec.yaml.decode(content, type=dict[str, McpServer])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise _unreadable(path, str(error)) from None
    return tuple(_named(path, name, server) for name, server in found.items())


def _named(path: Path, name: str, server: McpServer) -> McpServer:
    if not _NAME.fullmatch(name):
        raise _unreadable(path, f"{name!r} is no name for a server")
    if name == OWN_NAME:
        raise _unreadable(path, f"the name {name} is that of Holdfast's own server, which agents get without an entry")
    if bool(server.command) == bool(server.url):
        raise _unreadable(path, f"{name} needs either a command or a url")
    for variable in server.env:
        if not _VARIABLE.fullmatch(variable):
            raise _unreadable(path, f"{name} has in env {variable!r}, which is no name for a variable")
    # What becomes part of a command line, of a request or of an environment.
    pairs = (*server.env.items(), *server.headers.items())
    texts = (server.command, server.url, *server.args, *(text for pair in pairs for text in pair))
    if broken := [each for each in texts if not _PRINTABLE.fullmatch(each)]:
        raise _unreadable(path, f"{name} has control characters in {broken[0]!r}")
    if (server.url and (server.args or server.env)) or (server.command and server.headers):
        raise _unreadable(path, f"{name} mixes what belongs to a command and what belongs to a url")
    return msgspec.structs.replace(server, name=name)


def _unreadable(path: Path, reason: str) -> ConfigUnreadable:
    return ConfigUnreadable(place=str(path), reason=reason, allowed=_ALLOWED)
