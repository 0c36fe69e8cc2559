"""Codex: `codex exec --json`. It reports the tokens of the whole conversation, at its end only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.agents.common import error_phrases, json_fields, prices, resets
from holdfast.agents.common.cli_base import Cli, broke_off, home, mentions, references, refused
from holdfast.clock import wall
from holdfast.domain import agent_events as events
from holdfast.domain.attempt_records import Can, Home, Launch, Modes
from holdfast.questions.rules import PermissionPolicy

if TYPE_CHECKING:
    from holdfast.config.mcp import McpServer
    from holdfast.ports import Work

_TOOLS = {
    "command_execution": ("shell", "command", "aggregated_output"),
    "file_change": ("apply_patch", "changes", "changes"),
    "mcp_tool_call": ("mcp", "arguments", "result"),
    "web_search": ("web_search", "query", "query"),
}
_AGAIN = "Reconnecting"
_TRIES = re.compile(r"\b(\d{1,4})/\d{1,4}\b")


# The folder of conversations below Codex's own, with a folder for each worktree; and Codex's name for its own.
CONVERSATIONS, _SESSIONS = "holdfast", "sessions"
# What it keeps beside the conversations, and does not need.
_FORGOTTEN = (
    CONVERSATIONS, _SESSIONS,
    "*.sqlite*", "log", "logs", "tmp", ".tmp", "cache", "shell_snapshots", "history.jsonl", "session_index.jsonl",
    "models_cache.json", "version.json", "internal_storage.json", ".sandbox_migration",
)  # fmt: skip


class Codex(Cli):
    name = "codex"
    title = "Codex"
    program = "codex"
    can = Can(resume=True, cost="estimated", mcp=True, asks="held")
    permissions = Modes(
        skip=("--dangerously-bypass-approvals-and-sandbox",),
        edits=("--sandbox", "workspace-write"),
        own=(),
        ask=("app-server",),
    )
    install = "`npm install -g @openai/codex`"
    sign_in = "Run `codex login`, or set OPENAI_API_KEY"
    base_urls = ("OPENAI_BASE_URL",)
    provider = "openai"

    def is_signed_in(self) -> bool | None:
        if self.has_any("CODEX_API_KEY", "OPENAI_API_KEY"):
            return True
        folder = home("CODEX_HOME", ".codex")
        if (folder / "auth.json").exists():
            return True
        # A custom provider has a key of any name, or none; and the key may be in a keyring instead of a file.
        return None if mentions(folder / "config.toml", "model_provider", "env_key", "credentials_store") else False

    def call(self, work: Work) -> Launch:
        policy = work.policy or PermissionPolicy("ask" if self.permission.mode == "ask" else "skip")
        if policy.is_kept:
            argv = [self.program, *self.permissions.offered["ask"], *self._settings.args]
        else:
            argv = [self.program, "exec", "--json", "--skip-git-repo-check", *self.flags(work)]
            argv += ["--model", work.model] if work.model else []
        env: dict[str, str] = {}
        servers = self.servers_of(work)
        for number, server in enumerate(servers):
            options, variables = _server(server, number)
            env |= variables
            argv += [
                part for key, value in options.items() for part in ("-c", f"mcp_servers.{server.name}.{key}={value}")
            ]
        if not policy.is_kept:
            argv += ["resume", work.session, "-"] if work.session else ["-"]
        folder = home("CODEX_HOME", ".codex")
        return Launch(
            tuple(argv),
            stdin=work.prompt,
            env=env,
            references=references(servers),
            counted=work.counted,
            stream="codex_server" if policy.is_kept else self.name,
            policy=policy,
            talks=policy.is_kept,
            session=work.session,
            model=work.model,
            # It has one folder for the conversations of all worktrees: the sandbox gives each worktree its own.
            homes=(Home(str(folder), (f"{CONVERSATIONS}/{{worktree}}",), _FORGOTTEN, seen_as=_SESSIONS),),
        )

    def talk(self, work: Work) -> Launch:
        return self._as_person(work, "resume", work.session)


# Runs a server's command; its arguments begin with pairs: a variable, and the variable that has its secret.
_RENAMED = 'while [ "$1" != -- ]; do eval "export $1=\\"\\$$2\\""; unset "$2"; shift 2; done; shift; exec "$@"'


def _server(server: McpServer, number: int) -> tuple[dict[str, str], dict[str, str]]:
    """The server as options, in TOML. Secrets are passed in variables, as every user can see options.

    Each server has variables of its own: two servers may have a TOKEN each, and Codex, which
    has these variables too, one of its own. A server that is a command gets them under the names that it wants.
    """
    options: dict[str, str] = {}
    given = server.headers if server.url else server.env
    plain = {name: value for name, value in given.items() if not server.refers(value)}
    secret = {name: value for name, value in given.items() if server.refers(value)}
    named = {name: f"MCP_SECRET_{number}_{place}" for place, name in enumerate(secret)}
    if server.url:
        options["url"] = _toml(server.url)
        options |= {"http_headers": _table(plain)} if plain else {}
        options |= {"env_http_headers": _table(named)} if named else {}
        # Our own tools do what the agent's token may do, and need no leave.
        options |= {"default_tools_approval_mode": _toml("approve")} if server.is_own else {}
    else:
        call = [server.command, *server.args]
        if named:
            pairs = [part for pair in named.items() for part in pair]
            call = ["sh", "-c", _RENAMED, "sh", *pairs, "--", *call]
        options["command"], options["args"] = _toml(call[0]), _toml(call[1:])
        options |= {"env": _table(plain)} if plain else {}
        options |= {"env_vars": _toml(list(named.values()))} if named else {}
    return options, {named[name]: value for name, value in secret.items()}


def _toml(value: str | list[str]) -> str:
    """A text, or a list of texts, which TOML writes as JSON does."""
    return msgspec.json.encode(value).decode()


def _table(values: dict[str, str]) -> str:
    return "{" + ", ".join(f"{_toml(name)} = {_toml(value)}" for name, value in values.items()) + "}"


def stream(launch: Launch) -> CodexStream:
    return CodexStream(launch.counted, launch.model)


class CodexStream:
    def __init__(self, counted: tuple[int, int] = (0, 0), model: str = "") -> None:
        self._counted, self._model = counted, model
        self._has_done = False
        self._is_finished = False

    def read(self, line: bytes) -> Sequence[events.AgentEvent]:
        record = json_fields.line(line)
        match json_fields.text(record, "type"):
            case "thread.started":
                session = json_fields.text(record, "thread_id")
                return (events.SessionBegan(session, self._model),) if session else ()
            case "item.started":
                return tuple(self._began(json_fields.inner(record, "item")))
            case "item.completed":
                return tuple(self._ended(json_fields.inner(record, "item")))
            case "turn.completed":
                return tuple(self._completed(json_fields.inner(record, "usage")))
            case "error":
                return tuple(self._trouble(json_fields.text(record, "message"), is_last=False))
            case "turn.failed":
                return tuple(self._trouble(json_fields.text(record, "error", "message"), is_last=True))
        return ()

    def end(self, code: int) -> Sequence[events.AgentEvent]:
        return () if self._is_finished else (broke_off(code),)

    def _began(self, item: dict[str, Any]) -> Iterator[events.AgentEvent]:
        if (tool := _TOOLS.get(json_fields.text(item, "type"))) and (call := json_fields.text(item, "id")):
            self._has_done = True
            name, given, _ = tool
            name = json_fields.text(item, "tool") or name
            yield events.ToolStarted(name, call, json_fields.as_text(json_fields.at(item, given)))

    def _ended(self, item: dict[str, Any]) -> Iterator[events.AgentEvent]:
        kind = json_fields.text(item, "type")
        if tool := _TOOLS.get(kind):
            self._has_done = True
            output = json_fields.as_text(json_fields.at(item, "error") or json_fields.at(item, tool[2]))
            yield events.ToolEnded(json_fields.text(item, "id"), item.get("status") != "failed", output)
        elif kind == "agent_message" and (text := json_fields.text(item, "text")):
            self._has_done = True
            yield events.Said(text)

    def _completed(self, usage: dict[str, Any]) -> Iterator[events.AgentEvent]:
        total = json_fields.count(usage, "input_tokens"), json_fields.count(usage, "output_tokens")
        tokens_in, tokens_out = (max(now - before, 0) for now, before in zip(total, self._counted, strict=True))
        if tokens_in or tokens_out:
            # The share of cached tokens is known for the conversation as a whole only.
            read = json_fields.count(usage, "cached_input_tokens") * tokens_in // max(total[0], 1)
            cost = prices.usd(self._model, tokens_in, tokens_out, read=read)
            yield events.Spent(cost, tokens_in, tokens_out, self._model, estimated=True)
        self._counted = total
        self._is_finished = True
        if self._has_done:
            yield events.Finished(True)
        else:
            yield refused("it ended without a word and without a deed.")

    def _trouble(self, message: str, *, is_last: bool) -> Iterator[events.AgentEvent]:
        """Codex retries by itself, and says so; a trouble that no retry can mend is the end."""
        if message.startswith(_AGAIN) and not is_last:
            if error_phrases.is_limited(message):
                # Before it retries it waits for as long as the server asks, which may be hours, without output.
                event: events.AgentEvent = events.RateLimited(resets.until(message, wall()), message)
            else:
                tries = _TRIES.search(message)
                yield events.Retrying(message, int(tries[1]) if tries else 0)
                return
        else:
            event = Codex.trouble(message)
            is_kindless = isinstance(event, events.Finished) and not event.kind
            if is_kindless and not is_last:
                return
        if not self._is_finished:
            self._is_finished = True
            yield event
