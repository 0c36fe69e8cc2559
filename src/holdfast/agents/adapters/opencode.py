"""opencode: `opencode run --format json`, with a plugin of ours, named in a configuration beside the user's own.

The stream reports a tool at its end only, and no rate limit. The plugin reports both on the same output, and
keeps each tool's result back until the turn is saved: it is the turn's barrier.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.agents.common import error_phrases, json_fields
from holdfast.agents.common.cli_base import RETRY_S_MAX, Calls, Cli, broke_off, home, references, refused
from holdfast.clock import wall
from holdfast.domain import agent_events as events
from holdfast.domain.attempt_records import Can, Home, Launch, Modes

if TYPE_CHECKING:
    from holdfast.config.mcp import McpServer
    from holdfast.ports import Work

# Ends after this many unreadable answers in a row; opencode itself would ask without end.
EMPTY_STEPS_MAX = 3
# Ends after this many failures of the model's server in a row, about half a minute.
RETRIES_MAX = 5
_LIMITED = (429,)

# The folder of conversations below its data folder, with a folder for each worktree.
CONVERSATIONS = "holdfast"
DATABASE = CONVERSATIONS + "/{worktree}/opencode.db"
# What it keeps beside the conversations, and does not need.
_FORGOTTEN = (CONVERSATIONS, "*.db*", "log", "storage", "snapshot", "tool-output", "repos", "worktree", "plans")

PLUGIN_NAME = "holdfast.js"
PLUGIN = """\
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs"

const say = (line) => process.stdout.write(JSON.stringify(line) + "\\n")
let calls = 0

// A retry says what was wrong in the server's own words; the answer's status says it for certain.
const ask = globalThis.fetch
let status = 0
globalThis.fetch = Object.assign(async (...given) => {
  const answer = await ask(...given)
  if (!answer.ok) status = answer.status
  return answer
}, ask)

export const Holdfast = async () => ({
  event: async ({ event }) => {
    const now = event.properties?.status
    if (event.type === "session.status" && now?.type === "retry") say({ ...now, status, type: "holdfast.retry" })
    if (event.type === "session.compacted") say({ type: "holdfast.compacted" })
  },
  "tool.execute.before": async ({ tool, callID }, { args }) => say({ type: "holdfast.tool", tool, callID, args }),
  "tool.execute.after": async ({ tool, callID, args }, result) => {
    const call = `${process.env.HOLDFAST_FILES}/call-${process.pid}-${++calls}`
    const output = result?.output ?? result?.content
    try {
      writeFileSync(`${call}.part`, JSON.stringify({ tool, callID, args, output, exit: result?.metadata?.exit }))
      renameSync(`${call}.part`, `${call}.json`)
    } catch {
      return
    }
    while (existsSync(`${call}.json`)) await new Promise((done) => setTimeout(done, 20))
    // A person's message stands behind the tool's own output, where the model reads it next.
    if (existsSync(`${call}.out`) && typeof result?.output === "string")
      result.output += `\\n\\n${readFileSync(`${call}.out`, "utf8")}`
  },
})
"""


class Opencode(Cli):
    name = "opencode"
    title = "opencode"
    program = "opencode"
    can = Can(resume=True, cost="reported", mcp=True)
    permissions = Modes(skip=("--auto",), own=())
    install = "`npm install -g opencode-ai`"
    sign_in = "Run `opencode auth login`, or set the key of your model's provider"

    def is_signed_in(self) -> bool | None:
        # A key may be in a variable of any name, and some models need none.
        return True if (home("XDG_DATA_HOME", ".local/share") / "opencode" / "auth.json").exists() else None

    def call(self, work: Work) -> Launch:
        argv = [self.program, "run", "--format", "json", *self.flags(work)]
        argv += ["--model", work.model] if work.model else []
        # Without a title it asks a model for one, and does not report that cost.
        argv += ["--session", work.session] if work.session else ["--title", work.task]
        config: dict[str, Any] = {"plugin": [f"./{PLUGIN_NAME}"], "autoupdate": False, "snapshot": False}
        if servers := self.servers_of(work):
            config["mcp"] = {each.name: _server(each) for each in servers}
        return Launch(
            tuple(argv),
            stdin=work.prompt,
            # The user's own database has the conversations of all projects, and commands that opencode runs for them.
            env={"OPENCODE_CONFIG": "{files}/opencode.json", "OPENCODE_DB": DATABASE},
            files={"opencode.json": msgspec.json.encode(config).decode(), PLUGIN_NAME: PLUGIN},
            references=references(servers),
            has_hook=True,
            stream=self.name,
            model=work.model,
            homes=homes(),
        )

    def talk(self, work: Work) -> Launch:
        made = self._as_person(work, "--session", work.session)
        # Its settings file names a plugin that waits for a runner.
        env = {name: value for name, value in made.env.items() if name != "OPENCODE_CONFIG"}
        return msgspec.structs.replace(made, env=env)


def homes() -> tuple[Home, ...]:
    """Makes its programs and plugins read-only: they are beside the conversations, and the next start runs them."""
    data, state, cache = home("XDG_DATA_HOME", ".local/share"), Path.home() / ".local/state", Path.home() / ".cache"
    return (
        Home(str(data / "opencode"), forgotten=_FORGOTTEN),
        Home(str(data / "opencode" / CONVERSATIONS), ("{worktree}",), ("*",)),
        Home(str(state / "opencode"), forgotten=("*",)),
        Home(str(cache / "opencode"), forgotten=("models*.json",)),
        Home(str(home("XDG_CONFIG_HOME", ".config") / "opencode")),
    )


def _server(server: McpServer) -> dict[str, Any]:
    if server.url:
        return {"type": "remote", "url": server.url, "headers": server.headers}
    return {"type": "local", "command": [server.command, *server.args], "environment": server.env}


def stream(launch: Launch) -> OpencodeStream:
    return OpencodeStream(launch.model)


class OpencodeStream:
    def __init__(self, model: str = "") -> None:
        self._model = model
        self._session = ""
        self._calls = Calls()
        self._reason = self._last_words = ""
        self._empty_steps = 0
        self._has_done = False
        self._is_finished = False

    def read(self, line: bytes) -> Sequence[events.AgentEvent]:
        record = json_fields.line(line)
        return (*self._began_session(record), *self._event(record))

    def hook(self, given: bytes) -> Sequence[events.AgentEvent]:
        record = json_fields.line(given)
        call = json_fields.text(record, "callID")
        if not call:
            return ()
        began = self._calls.began(json_fields.text(record, "tool"), call, json_fields.at(record, "args"), by_hook=True)
        output = json_fields.as_text(json_fields.at(record, "output"))
        self._has_done = True
        return (*began, *self._calls.ended(call, not json_fields.count(record, "exit"), output, by_hook=True))

    def answer(self, given: bytes, text: str) -> str:
        """The plugin puts it behind the tool's output."""
        return text

    def end(self, code: int) -> Sequence[events.AgentEvent]:
        if self._is_finished:
            return ()
        if code or not self._reason:
            return (broke_off(code),)
        if self._reason != "stop":
            return (events.Finished(False, f"The model's last answer broke off: {self._reason}."),)
        return (events.Finished(True, self._last_words),)

    # -- the kinds of lines -------------------------------------------------------------------------------------------

    def _began_session(self, record: dict[str, Any]) -> Iterator[events.AgentEvent]:
        session = json_fields.text(record, "sessionID")
        if session and not self._session:
            self._session = session
            yield events.SessionBegan(session, self._model)

    def _event(self, record: dict[str, Any]) -> Iterator[events.AgentEvent]:
        part = json_fields.inner(record, "part")
        match json_fields.text(record, "type"):
            case "text" if text := json_fields.text(part, "text"):
                self._has_done, self._last_words = True, text
                yield events.Said(text)
            case "tool_use" if call := json_fields.text(part, "callID"):
                state = json_fields.inner(part, "state")
                yield from self._began(json_fields.text(part, "tool"), call, json_fields.at(state, "input"))
                ok = state.get("status") == "completed" and not json_fields.count(state, "metadata", "exit")
                yield from self._calls.ended(
                    call, ok, json_fields.text(state, "output") or json_fields.text(state, "error")
                )
            case "step_finish":
                yield from self._step(part)
            case "error":
                yield from self._error(json_fields.inner(record, "error"))
            case "holdfast.tool" if call := json_fields.text(record, "callID"):
                yield from self._began(json_fields.text(record, "tool"), call, json_fields.at(record, "args"))
            case "holdfast.retry":
                yield from self._retry(record)
            case "holdfast.compacted":
                yield events.Compacted()

    def _retry(self, record: dict[str, Any]) -> Iterator[events.AgentEvent]:
        """opencode retries by itself; a long rate limit and too many retries end it here."""
        until, message = json_fields.number(record, "next") / 1000, json_fields.text(record, "message")
        status, tries = json_fields.count(record, "status"), json_fields.count(record, "attempt")
        if status in _LIMITED if status else error_phrases.is_limited(message):
            if until - wall() > RETRY_S_MAX:
                yield events.RateLimited(until, message or "The model's server asks for a pause.")
        elif tries >= RETRIES_MAX:
            what = f"The model's server has failed {tries} times in a row: {message}"
            is_away = status >= 500 or error_phrases.is_unreachable(message)
            yield from self._finish(events.Finished(False, what, events.UNREACHABLE if is_away else ""))
        else:
            yield events.Retrying(message, tries, max(until - wall(), 0.0))

    def _began(self, name: str, call: str, given: Any) -> Iterator[events.AgentEvent]:
        self._has_done = True
        return self._calls.began(name, call, given)

    def _step(self, part: dict[str, Any]) -> Iterator[events.AgentEvent]:
        tokens = json_fields.inner(part, "tokens")
        tokens_in = sum(
            json_fields.count(tokens, *path) for path in (("input",), ("cache", "read"), ("cache", "write"))
        )
        tokens_out = json_fields.count(tokens, "output") + json_fields.count(tokens, "reasoning")
        if tokens_in or tokens_out:
            yield events.Spent(json_fields.number(part, "cost"), tokens_in, tokens_out, self._model)
        self._reason = json_fields.text(part, "reason")
        self._empty_steps = 0 if self._has_done or tokens_in or tokens_out else self._empty_steps + 1
        self._has_done = False
        if self._empty_steps >= EMPTY_STEPS_MAX:
            yield from self._finish(events.Finished(False, "Nothing can be read of what the model's server answers."))

    def _error(self, error: dict[str, Any]) -> Iterator[events.AgentEvent]:
        name, status = json_fields.text(error, "name"), json_fields.count(error, "data", "statusCode")
        message = json_fields.text(error, "data", "message") or name or "opencode has failed, and did not say why."
        if name == "ContentFilterError":
            yield from self._finish(refused(message))
        elif name == "ProviderAuthError":
            yield from self._finish(Opencode.not_signed_in(message))
        else:
            headers = json_fields.inner(error, "data", "responseHeaders")
            after = json_fields.text(headers, "retry-after")
            until = wall() + int(after) if after.isdigit() and len(after) < 9 else 0.0
            yield from self._finish(Opencode.trouble(message, status=status, until=until))

    def _finish(self, event: events.Finished | events.RateLimited) -> Iterator[events.AgentEvent]:
        if not self._is_finished:
            self._is_finished = True
            yield event
