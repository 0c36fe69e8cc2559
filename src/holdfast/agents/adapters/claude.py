"""Claude Code: `claude -p` with its JSON stream. Its hook after each tool is the turn's barrier.

It asks for partial messages, because only they report an answer's usage before its tools begin; the
last line has the cost as Claude Code counts it, which corrects what was counted before.

Where calls are asked about, its hook before each tool waits for the decision. `defer` ends Claude Code there; resumed,
it calls the hook for the same call once more, before anything else, and then goes on without another prompt.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast.agents.common import hook, json_fields, prices, resets
from holdfast.agents.common.cli_base import (
    RETRY_S_MAX,
    Calls,
    Cli,
    broke_off,
    home,
    mentions,
    references,
    refused,
    server_as_json,
)
from holdfast.clock import wall
from holdfast.domain import agent_events as events
from holdfast.domain.attempt_records import Can, Home, Launch, Modes
from holdfast.questions.records import Verdict
from holdfast.questions.rules import PermissionPolicy, PermissionRule

if TYPE_CHECKING:
    from holdfast.ports import Work

# The first refused key may be one that is about to be renewed.
REFUSED_KEYS_MAX = 2
# As config/mcp.py has it, which is slow to import for a runner.
OWN_NAME = "holdfast"
# Each says that the model is reached through a cloud, which has a sign-in of its own.
CLOUDS = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")


# What Claude Code prints in place of an answer, also where it calls that a success.
_API_ERROR = re.compile(r"API Error\b|(?:Request timed out|Connection error)\.?\Z", re.IGNORECASE)
_USAGE_LIMIT = re.compile(
    r"(?:Claude(?: AI)? usage limit reached|You've (?:hit|reached) your (?:\w+ ){0,3}limit\b)", re.IGNORECASE
)


# What it keeps beside the conversations, and does not need.
_FORGOTTEN = (
    "todos", "tasks", "shell-snapshots", "session-env", "sessions", "file-history", "paste-cache", "debug", "statsig",
    "telemetry", "cache", "backups", "projects", "history.jsonl", "stats-cache.json", ".claude.json.*",
)  # fmt: skip


class Claude(Cli):
    name = "claude"
    title = "Claude Code"
    program = "claude"
    can = Can(resume=True, cost="reported", mcp=True, asks="deferred")
    permissions = Modes(
        skip=("--permission-mode", "bypassPermissions"),
        edits=("--permission-mode", "acceptEdits"),
        own=(),
        # With a way to ask, it offers its model a tool for questions, too; our hook answers before that way is taken.
        ask=("--permission-mode", "default", "--permission-prompt-tool", "stdio"),
    )
    install = "`npm install -g @anthropic-ai/claude-code`"
    sign_in = "Run `claude` and type /login, or set ANTHROPIC_API_KEY"
    base_urls = ("ANTHROPIC_BASE_URL",)
    provider = "anthropic"

    def is_signed_in(self) -> bool | None:
        if self.has_any("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"):
            return True
        if (home("CLAUDE_CONFIG_DIR", ".claude") / ".credentials.json").exists():
            return True
        # With a cloud its own sign-in counts, on a Mac the keychain; and a helper program may have the key.
        elsewhere = sys.platform == "darwin" or self.has_any(*CLOUDS)
        settings = ("settings.json", "settings.local.json")
        folders = (home("CLAUDE_CONFIG_DIR", ".claude"), Path(".claude"), Path("/etc/claude-code"))
        files = [folder / name for folder in folders for name in settings] + [folders[2] / "managed-settings.json"]
        named = ("apiKeyHelper", "ANTHROPIC_", "CLAUDE_CODE_")
        return None if elsewhere or any(mentions(each, *named) for each in files) else False

    def call(self, work: Work) -> Launch:
        argv = [self.program, "-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"]
        argv += [*self.flags(work), "--settings", "{files}/settings.json"]
        argv += ["--model", work.model] if work.model else []
        argv += ["--resume", work.session] if work.session else []
        servers = self.servers_of(work)
        argv += ["--mcp-config", "{files}/mcp.json"] if servers else []
        # Also where it would ask: these do what the agent's token may do, and asking a person is one of them.
        argv += ["--allowedTools", f"mcp__{OWN_NAME}"] if work.has_tools else []
        policy = work.policy or PermissionPolicy("ask" if self.permission.mode == "ask" else "skip")
        if work.has_tools and policy.is_kept:
            own = PermissionRule("allow", f"mcp__{OWN_NAME}__*")
            policy = msgspec.structs.replace(policy, rules=(*policy.rules, own))
        files = {"settings.json": _settings(asks=policy.is_kept), hook.SCRIPT_NAME: hook.SCRIPT}
        if servers:
            named = {each.name: server_as_json(each) for each in servers}
            files["mcp.json"] = msgspec.json.encode({"mcpServers": named}).decode()
        env = {"DISABLE_AUTOUPDATER": "1"}
        if os.geteuid() == 0:
            # Without it Claude Code refuses to work without asking as root.
            env["IS_SANDBOX"] = "1"
        return Launch(
            tuple(argv),
            # It goes on by itself with the call that was answered: a prompt would be a second thing to do.
            stdin="" if work.answers else work.prompt,
            env=env,
            files=files,
            references=references(servers),
            has_hook=True,
            counted=work.counted,
            counted_usd=work.counted_usd,
            stream=self.name,
            model=work.model,
            policy=policy,
            homes=homes(),
        )

    def talk(self, work: Work) -> Launch:
        servers = ("--mcp-config", "{files}/mcp.json") if self.servers else ()
        return self._as_person(work, "--resume", work.session, *servers)


def homes() -> tuple[Home, ...]:
    """`projects` has a folder for each worktree, with its conversations and its memory."""
    folder = home("CLAUDE_CONFIG_DIR", ".claude")
    return (Home(str(folder), forgotten=_FORGOTTEN), Home(str(folder / "projects"), ("{worktree}",), ("*",)))


_HOOK = {"type": "command", "command": hook.COMMAND, "timeout": hook.TIMEOUT_S}
# Its tool for questions to the user.
QUESTION = "AskUserQuestion"


def _settings(*, asks: bool) -> str:
    names = ("PreToolUse", "PostToolUse", "PostToolUseFailure")[0 if asks else 1 :]
    return msgspec.json.encode({"hooks": {name: [{"matcher": "*", "hooks": [_HOOK]}] for name in names}}).decode()


_ALONE = (
    "This call needs a person's leave, and a person is asked about one call at a time. Make it again, as the only call "
    "of your message."
)
_NOT_BELOW = "This call needs a person's leave, and a sub-agent cannot ask for it: leave it to the main conversation."


def _response(response: object) -> str:
    """A tool's output: what a command printed, or else the text or the whole record."""
    printed = [json_fields.text(response, name) for name in ("stdout", "stderr")]
    is_command = isinstance(response, dict) and "stdout" in response
    return "\n".join(filter(None, printed)) if is_command else json_fields.as_text(response)


def stream(launch: Launch) -> ClaudeStream:
    return ClaudeStream(launch.counted, launch.counted_usd)


class ClaudeStream:
    def __init__(self, counted: tuple[int, int] = (0, 0), usd: float = 0.0) -> None:
        """`counted` and `usd`: of earlier starts, which the last line of a resumed conversation counts again."""
        self._model = ""
        self._calls = Calls()
        self._usage = (0, 0, 0, 0)
        self._counted_in, self._counted_out = counted
        self._counted_usd = usd
        self._limit: events.RateLimited | None = None
        self._error = ""
        self._reset = 0.0
        self._is_finished = self._has_result = False
        # How many tools the message calls that is being read, and whether it has been read to its end.
        self._uses, self._is_whole = 0, True

    def read(self, line: bytes) -> Sequence[events.AgentEvent]:
        record = json_fields.line(line)
        match json_fields.text(record, "type"):
            case "system":
                return tuple(self._system(record))
            case "stream_event":
                return tuple(self._partial(json_fields.inner(record, "event")))
            case "assistant":
                return tuple(self._assistant(record))
            case "user":
                return tuple(self._results(record))
            case "rate_limit_event":
                return tuple(self._rate_limit(json_fields.inner(record, "rate_limit_info")))
            case "result":
                return tuple(self._result(record))
        return ()

    def hook(self, given: bytes) -> Sequence[events.AgentEvent] | None:
        record = json_fields.line(given)
        call = json_fields.text(record, "tool_use_id")
        if not call:
            return ()
        if json_fields.text(record, "hook_event_name") == "PreToolUse":
            return self._before(record, call) if self._is_whole else None
        failure = json_fields.text(record, "error")
        output = failure or _response(json_fields.at(record, "tool_response"))
        began = self._calls.began(
            json_fields.text(record, "tool_name"), call, json_fields.at(record, "tool_input"), by_hook=True
        )
        return (*began, *self._calls.ended(call, not failure, output, by_hook=True))

    def _before(self, record: dict[str, Any], call: str) -> Sequence[events.AgentEvent]:
        """A call that it wants to make. Deferred, it must be the only one of its message: others would be lost."""
        tool, given = json_fields.text(record, "tool_name"), json_fields.at(record, "tool_input")
        cannot = _ALONE if self._uses > 1 else _NOT_BELOW if json_fields.text(record, "agent_id") else ""
        kind: Literal["permission", "words"] = "words" if tool == QUESTION else "permission"
        text = json_fields.as_text(given)
        asked = events.PersonAsked(call, tool or "tool", text, kind, defers=not cannot, cannot=cannot)
        return (*self._calls.began(tool, call, given), asked)

    def reply(self, asked: events.PersonAsked, verdict: Verdict) -> bytes:
        told: dict[str, Any] = {"hookEventName": "PreToolUse", "permissionDecision": verdict.decision}
        if verdict.decision == "own":
            return b""
        if verdict.decision == "say" and asked.kind == "words":
            given = json_fields.line(asked.input.encode())
            wanted = [json_fields.text(each, "question") for each in json_fields.each(given, "questions")]
            told["permissionDecision"] = "allow"
            told["updatedInput"] = {**given, "answers": dict.fromkeys(wanted, verdict.words)}
        elif verdict.decision in ("say", "deny"):
            told |= {"permissionDecision": "deny", "permissionDecisionReason": verdict.words}
        return msgspec.json.encode({"hookSpecificOutput": told})

    def answer(self, given: bytes, text: str) -> str:
        name = json_fields.text(json_fields.line(given), "hook_event_name") or "PostToolUse"
        return msgspec.json.encode({"hookSpecificOutput": {"hookEventName": name, "additionalContext": text}}).decode()

    def end(self, code: int) -> Sequence[events.AgentEvent]:
        return () if self._is_finished else (broke_off(code),)

    # -- the kinds of lines -------------------------------------------------------------------------------------------

    def _system(self, record: dict[str, Any]) -> Iterator[events.AgentEvent]:
        match json_fields.text(record, "subtype"):
            case "init":
                self._model = json_fields.text(record, "model") or self._model
                if session := json_fields.text(record, "session_id"):
                    yield events.SessionBegan(session, self._model)
            case "compact_boundary":
                yield events.Compacted()
            case "api_retry":
                status, delay_s = (
                    json_fields.count(record, "error_status"),
                    json_fields.number(record, "retry_delay_ms") / 1000,
                )
                if status == 429 and delay_s > RETRY_S_MAX:
                    yield events.RateLimited(wall() + delay_s, f"The model's rate limit lasts for {delay_s:g} s.")
                elif status in (401, 403) and json_fields.count(record, "attempt") >= REFUSED_KEYS_MAX:
                    yield from self._finish(Claude.not_signed_in(f"the model's server answered {status}"))
                elif status not in (401, 403, 429):
                    why = f"the model's server answered {status}" if status else "no connection to the model's server"
                    yield events.Retrying(why, json_fields.count(record, "attempt"), delay_s)

    def _partial(self, event: dict[str, Any]) -> Iterator[events.AgentEvent]:
        """Counts a message's usage: first the one at its start, then the difference to the one at its end."""
        match event.get("type"):
            case "message_start":
                self._uses, self._is_whole = 0, False
            case "content_block_start" if json_fields.text(event, "content_block", "type") == "tool_use":
                self._uses += 1
            case "message_stop":
                self._is_whole = True
        if event.get("type") == "message_start":
            self._usage = (0, 0, 0, 0)
            self._model = json_fields.text(event, "message", "model") or self._model
            yield from self._used(json_fields.inner(event, "message", "usage"))
        elif event.get("type") == "message_delta":
            yield from self._used(json_fields.inner(event, "usage"))

    def _used(self, usage: dict[str, Any]) -> Iterator[events.AgentEvent]:
        before = self._usage
        names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
        self._usage = now = tuple(  # type: ignore[assignment]
            max(json_fields.count(usage, name), old) for name, old in zip(names, before, strict=True)
        )
        new, read, written, out = (after - old for after, old in zip(now, before, strict=True))
        if new or read or written or out:
            cost = prices.usd(self._model, new + read + written, out, read=read, written=written)
            yield self._spent(new + read + written, out, cost, estimated=True)

    def _spent(self, tokens_in: int, tokens_out: int, cost: float, *, estimated: bool) -> events.Spent:
        """Counts an estimate, or the correction of the estimates to the true cost."""
        self._counted_in += tokens_in
        self._counted_out += tokens_out
        self._counted_usd += cost
        return events.Spent(cost, tokens_in, tokens_out, self._model, estimated, corrects=not estimated)

    def _assistant(self, record: dict[str, Any]) -> Iterator[events.AgentEvent]:
        self._error = json_fields.text(record, "error") or self._error
        for block in json_fields.each(record, "message", "content"):
            if text := json_fields.text(block, "text"):
                yield events.Said(text)
            elif block.get("type") == "tool_use" and (call := json_fields.text(block, "id")):
                yield from self._calls.began(json_fields.text(block, "name"), call, json_fields.at(block, "input"))

    def _results(self, record: dict[str, Any]) -> Iterator[events.AgentEvent]:
        for block in json_fields.each(record, "message", "content"):
            if block.get("type") == "tool_result":
                output = json_fields.as_text(json_fields.at(block, "content"))
                yield from self._calls.ended(json_fields.text(block, "tool_use_id"), not block.get("is_error"), output)

    def _rate_limit(self, info: dict[str, Any]) -> Iterator[events.AgentEvent]:
        self._reset = json_fields.number(info, "resetsAt") or self._reset
        if info.get("status") == "rejected":
            kind = json_fields.text(info, "rateLimitType").replace("_", " ")
            yield events.RateLimited(
                json_fields.number(info, "resetsAt"), f"The {kind or 'rate'} limit of the account is reached."
            )

    def _result(self, record: dict[str, Any]) -> Iterator[events.AgentEvent]:
        """The first one counts: any process that can write to the stream may send another."""
        if self._has_result:
            return
        self._has_result = self._is_whole = True
        yield from self._correct_estimates(record)
        message = json_fields.text(record, "result") or json_fields.text(record, "subtype").replace("_", " ")
        status = json_fields.count(record, "api_error_status")
        is_error = bool(record.get("is_error")) or status >= 400 or bool(_API_ERROR.match(message))
        if record.get("subtype") == "success" and not is_error:
            yield from self._finish(events.Finished(True, message))
        elif json_fields.text(record, "stop_reason") == "refusal":
            yield from self._finish(refused(message))
        elif self._error == "authentication_failed" or status in (401, 403):
            yield from self._finish(Claude.not_signed_in(message))
        elif self._error == "billing_error":
            yield from self._finish(events.Finished(False, f"The account cannot pay for more: {message}", events.QUOTA))
        elif self._error == "rate_limit" or status == 429:
            self._is_finished = True
            yield events.RateLimited(self._reset or resets.until(message, wall()), message)
        elif self._error == "overloaded" or status >= 500:
            yield from self._finish(events.Finished(False, message, events.UNREACHABLE))
        elif _API_ERROR.match(message) or _USAGE_LIMIT.match(message):
            # The rest of the text is from the server, not from the model.
            yield from self._finish(Claude.trouble(message, status=status))
        else:
            yield from self._finish(events.Finished(False, message))

    def _finish(self, event: events.Finished | events.RateLimited) -> Iterator[events.AgentEvent]:
        self._is_finished = True
        yield event

    def _correct_estimates(self, record: dict[str, Any]) -> Iterator[events.AgentEvent]:
        """Counts what the partial messages lacked: other models' work, and the difference to the true cost."""
        used = [each for each in json_fields.inner(record, "modelUsage").values() if isinstance(each, dict)]
        into = ("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
        tokens_in = sum(json_fields.count(each, name) for each in used for name in into) - self._counted_in
        tokens_out = sum(json_fields.count(each, "outputTokens") for each in used) - self._counted_out
        cost = json_fields.number(record, "total_cost_usd") - self._counted_usd
        if used:
            # Also where nothing is left: that confirms the estimates.
            yield self._spent(max(tokens_in, 0), max(tokens_out, 0), max(cost, 0.0), estimated=False)
