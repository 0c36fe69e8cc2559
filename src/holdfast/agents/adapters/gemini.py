"""Gemini CLI: `gemini --output-format stream-json`.

Its stream reports the tokens at its end only; those of each answer are in Gemini CLI's own record of the conversation,
which is read meanwhile. That it waits for a rate limit is in its other output.

It accepts another settings file than the user's and the project's only where root owns it and every folder above it.
So it gets no hooks; and MCP servers as an extension, in a home for this start that links to the user's own in all
else: settings, sign-in, conversations. Without servers it has the user's own home.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.agents.common import error_phrases, json_fields, prices, resets
from holdfast.agents.common.cli_base import (
    RETRY_S_MAX,
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
from holdfast.storage.files import plain

if TYPE_CHECKING:
    from holdfast.ports import Work

EXTENSION = "holdfast-servers"
# The exit code of a start without a sign-in.
EXIT_AUTH = 41
TEXT_CHARS_MAX = 1 << 20
CHAT_LINE_BYTES_MAX = 8 << 20
# More answers than any conversation has: later ones are not counted, so memory stays bounded.
ANSWERS_MAX = 100_000
_SESSION = re.compile(r"[0-9a-fA-F-]{8,64}")
_MINUTE = re.compile(r"session-(20\d\d-[01]\d-[0-3]\dT[0-2]\d-[0-5]\d)-")
_RETRY = re.compile(r"(?:Attempt \d+ failed|Suggested retry after).*Retrying after (\d{1,9})ms")
_LIMITED = re.compile(r"Attempt (\d{1,3}) failed with (?:status )?429")
_AGAIN = re.compile(r"(?:Attempt|Retry attempt) (\d{1,3})(?: failed|/|:| )", re.IGNORECASE)


class Gemini(Cli):
    name = "gemini"
    title = "Gemini CLI"
    program = "gemini"
    can = Can(resume=True, cost="estimated", mcp=True)
    permissions = Modes(skip=("--approval-mode", "yolo"), edits=("--approval-mode", "auto_edit"), own=())
    install = "`npm install -g @google/gemini-cli`"
    names_model = True
    sign_in = "Run `gemini` and choose how to sign in, or set GEMINI_API_KEY"
    base_urls = ("GOOGLE_GEMINI_BASE_URL",)
    provider = "google"

    def is_signed_in(self) -> bool | None:
        if self.has_any("GEMINI_API_KEY", "GOOGLE_API_KEY"):
            return True
        folder = _folder()
        if (folder / "oauth_creds.json").exists():
            return True
        # A key may be in a file of variables, and the cloud has a sign-in of its own.
        files = (folder / ".env", folder.parent / ".env", Path(".gemini/.env"), Path(".env"))
        elsewhere = self.has_any("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA", "GOOGLE_APPLICATION_CREDENTIALS")
        elsewhere = elsewhere or mentions(folder / "settings.json", "vertex", "cloud-shell", "compute")
        return None if elsewhere or any(mentions(each, "GEMINI_", "GOOGLE_") for each in files) else False

    def call(self, work: Work) -> Launch:
        argv = [self.program, "--output-format", "stream-json", *self.flags(work), "--skip-trust"]
        argv += ["--model", work.model] if work.model else []
        argv += ["--resume", work.session] if work.session else []
        # One process only: the one that we watch.
        env = {"GEMINI_CLI_NO_RELAUNCH": "true"}
        files = links = {}
        if given := self.servers_of(work):
            env["GEMINI_CLI_HOME"] = "{files}"
            servers = {each.name: server_as_json(each) for each in given}
            extension = {"name": EXTENSION, "version": "1.0.0", "mcpServers": servers}
            files = {f".gemini/extensions/{EXTENSION}/gemini-extension.json": msgspec.json.encode(extension).decode()}
            links = _links(_folder())
        return Launch(
            tuple(argv),
            stdin=work.prompt,
            env=env,
            files=files,
            links=links,
            references=references(given),
            reads_errors=True,
            writes_late=True,
            counted=work.counted,
            stream=self.name,
            model=work.model,
            homes=homes(),
        )

    def talk(self, work: Work) -> Launch:
        return self._as_person(work, "--resume", work.session)


def _folder() -> Path:
    return home("GEMINI_CLI_HOME", "") / ".gemini"


def homes() -> tuple[Home, ...]:
    """`tmp` has a folder for each project and `bin`, whose programs it runs; `history` has git folders of its own."""
    folder = _folder()
    return (
        Home(str(folder), forgotten=("tmp", "history", "projects.json*", "state.json*")),
        Home(str(folder / "tmp"), ("{worktree}",), ("*",), marker=".project_root"),
        Home(str(folder / "history"), forgotten=("*",)),
    )


def begun(session: str) -> float:
    """The minute of the newest file of this conversation, as Unix seconds; 0 where there is none."""
    from datetime import datetime

    names = _folder().glob(f"tmp/*/chats/session-*-{session[:8]}.jsonl") if _SESSION.fullmatch(session) else ()
    found = [each[1] for path in names if (each := _MINUTE.match(path.name))]
    return datetime.strptime(f"{max(found)}+0000", "%Y-%m-%dT%H-%M%z").timestamp() if found else 0.0


def has_kept(session: str, call: str) -> bool:
    """Whether its record of the conversation has the result of this tool, which is written after that was told."""
    if not call or not _SESSION.fullmatch(session):
        return True
    folder, name = _folder(), msgspec.json.encode(call)
    try:
        for path in folder.glob(f"tmp/*/chats/session-*-{session[:8]}.jsonl"):
            with plain.opened(path, folder / "tmp") as file:
                while line := file.readline(CHAT_LINE_BYTES_MAX):
                    if name in line and b'"functionResponse"' in line and line.endswith(b"\n"):
                        return True
    except (OSError, RuntimeError):
        # A record that cannot be read is not waited for.
        return True
    return False


def _links(folder: Path) -> dict[str, str]:
    """Links to all of Gemini CLI's own folder, each extension by itself; to the conversations even before the first."""
    own = (*_entries(folder), *_entries(folder / "extensions"))
    found = {f".gemini/{path.relative_to(folder)}": str(path) for path in own}
    found[".gemini/tmp"] = f"{folder / 'tmp'}/"
    found.pop(".gemini/extensions", None)
    found.pop(f".gemini/extensions/{EXTENSION}", None)
    if (keys := folder.parent / ".env").exists():
        found[".env"] = str(keys)
    return found


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def stream(launch: Launch) -> GeminiStream:
    argv = launch.argv
    return GeminiStream(launch.counted, launch.model, argv[argv.index("--resume") + 1] if "--resume" in argv else "")


class GeminiStream:
    def __init__(self, counted: tuple[int, int] = (0, 0), model: str = "", session: str = "") -> None:
        """`session`: the one to resume. Its record is read before the agent starts."""
        self._model = model
        self._chat = Chat(_folder(), session)
        before = self._chat.answers()
        into, out = sum(each[1] for each in before), sum(each[2] for each in before)
        self._untold = max(into - counted[0], 0), max(out - counted[1], 0)
        self._told = (0, 0)
        self._text = self._error = self._new = self._last_call = ""
        self._has_done = False
        # A tool's result was sent, and no answer has come.
        self._awaits_answer = False
        self._is_finished = False

    def read(self, line: bytes) -> Sequence[events.AgentEvent]:
        record = json_fields.line(line)
        kind = json_fields.text(record, "type")
        if kind == "message":
            return tuple(self._message(record))
        if not kind:
            return tuple(beside(line))
        return (*self._flush_text(), *self._event(kind, record))

    def end(self, code: int) -> Sequence[events.AgentEvent]:
        rest = (*self._flush_text(), *self._answers())
        if self._is_finished:
            return rest
        if code == EXIT_AUTH:
            return (*rest, Gemini.not_signed_in(""))
        return (*rest, broke_off(code))

    def has_kept(self) -> bool:
        return has_kept(self._chat.session, self._last_call)

    # -- the kinds of lines -------------------------------------------------------------------------------------------

    def _event(self, kind: str, record: dict[str, Any]) -> Iterator[events.AgentEvent]:
        match kind:
            case "init":
                yield from self._init(json_fields.text(record, "session_id"), json_fields.text(record, "model"))
            case "tool_use" if call := json_fields.text(record, "tool_id"):
                yield from self._answered()
                yield events.ToolStarted(
                    json_fields.text(record, "tool_name") or "tool", call, json_fields.as_text(record.get("parameters"))
                )
            case "tool_result" if call := json_fields.text(record, "tool_id"):
                yield from self._answers()
                self._awaits_answer, self._last_call = True, call
                output = json_fields.text(record, "output") or json_fields.text(record, "error", "message")
                yield events.ToolEnded(call, record.get("status") == "success", output)
            case "error" if error := json_fields.text(record, "message"):
                self._error = error
                yield events.Said(error)
            case "result":
                yield from self._result(record)

    def _message(self, record: dict[str, Any]) -> Iterator[events.AgentEvent]:
        """A message comes in pieces, and ends where something else begins."""
        if record.get("role") == "assistant":
            self._text += json_fields.text(record, "content")
            if len(self._text) > TEXT_CHARS_MAX or not record.get("delta"):
                yield from self._flush_text()

    def _flush_text(self) -> Iterator[events.AgentEvent]:
        if self._text:
            yield from self._answered()
            text, self._text = self._text, ""
            yield events.Said(text)

    def _init(self, session: str, model: str) -> Iterator[events.AgentEvent]:
        self._model = model or self._model
        if not session:
            return
        if session == self._chat.session:
            yield events.SessionBegan(session, self._model)
        else:
            self._chat, self._new = Chat(_folder(), session), session
        # What an earlier start spent and did not report before it died.
        if any(self._untold):
            yield self._spent(self._model, *self._untold)
            self._untold = (0, 0)

    def _answered(self) -> Iterator[events.AgentEvent]:
        """Reports the conversation at its first answer: from then on it can be resumed; one without any is dropped."""
        self._has_done, self._error, self._awaits_answer = True, "", False
        if self._new:
            yield events.SessionBegan(self._new, self._model)
            self._new = ""

    def _answers(self) -> Iterator[events.AgentEvent]:
        for model, tokens_in, tokens_out, read in self._chat.answers():
            self._awaits_answer = False
            self._told = self._told[0] + tokens_in, self._told[1] + tokens_out
            yield self._spent(model or self._model, tokens_in, tokens_out, read)

    def _spent(self, model: str, tokens_in: int, tokens_out: int, read: int = 0) -> events.Spent:
        cost = prices.usd(model, tokens_in, tokens_out, read=read)
        return events.Spent(cost, tokens_in, tokens_out, model, estimated=True)

    def _result(self, record: dict[str, Any]) -> Iterator[events.AgentEvent]:
        yield from self._answers()
        stats = json_fields.inner(record, "stats")
        into, total = json_fields.count(stats, "input_tokens"), json_fields.count(stats, "total_tokens")
        tokens_in, tokens_out = max(into - self._told[0], 0), max(total - into - self._told[1], 0)
        if tokens_in or tokens_out:
            read = json_fields.count(stats, "cached") * tokens_in // max(into, 1)
            self._told = self._told[0] + tokens_in, self._told[1] + tokens_out
            yield self._spent(self._model, tokens_in, tokens_out, read)
        if self._is_finished:
            return
        self._is_finished = True
        if record.get("status") != "success":
            yield _trouble(json_fields.text(record, "error", "message") or self._error)
        elif self._error:
            # It reports a success also when it has stopped itself.
            yield _trouble(self._error)
        elif self._awaits_answer:
            # And when the connection was lost before the answer began, so that its own record has none.
            message = "The model's answer to the last tool did not come, though Gemini CLI calls it a success."
            yield events.Finished(False, message, events.UNREACHABLE)
        elif self._has_done:
            yield events.Finished(True)
        else:
            yield refused("it ended without a word and without a deed.")


def beside(line: bytes) -> Iterator[events.AgentEvent]:
    """Reads its output beside the stream."""
    text = line[:4096].decode(errors="replace")
    retry = _RETRY.match(text)
    if retry and not error_phrases.is_unreachable(text) and (wait_s := int(retry[1]) / 1000) > RETRY_S_MAX:
        # Its own pause is somewhat longer than the server's, which the text before it names.
        until = resets.until(text, wall()) or wall() + wait_s
        yield events.RateLimited(until, f"The model's rate limit lasts for {until - wall():.0f} s.")
    elif (limited := _LIMITED.match(text)) and int(limited[1]) > 1:
        yield events.RateLimited(0.0, "The model's server answered 429, and 429 again.")
    elif (again := _AGAIN.match(text)) and not _LIMITED.match(text):
        yield events.Retrying(text[:300], int(again[1] or 0))


def _trouble(message: str) -> events.Finished | events.RateLimited:
    low = message.lower()
    if re.search(r"\bblocked\b", low) and re.search(r"\b(?:safety|prohibited)", low):
        return refused(message)
    found = Gemini.trouble(message)
    if isinstance(found, events.Finished) and found.kind == events.QUOTA:
        # It calls a limit that ends in a minute a quota, too.
        is_long = re.search(r"\bdaily\b|\bper day\b|\bbilling\b|\blimit: 0\b", low)
        return found if is_long else events.RateLimited(0.0, message)
    return found


class Chat:
    """The record that Gemini CLI itself keeps of a conversation: a line for each answer, with its tokens."""

    def __init__(self, folder: Path, session: str) -> None:
        self.session = session
        self._folder = folder
        self._path: Path | None = None
        self._offset = 0
        self._seen: set[str] = set()

    def answers(self) -> list[tuple[str, int, int, int]]:
        """The answers since the last call: model, tokens in and out, and how many of those in were cached."""
        if not _SESSION.fullmatch(self.session):
            return []
        found = []
        try:
            if self._path is None:
                name = f"tmp/*/chats/session-*-{self.session[:8]}.jsonl"
                self._path = next(iter(sorted(self._folder.glob(name))), None)
            if self._path is None:
                return []
            with plain.opened(self._path, self._folder / "tmp") as file:
                file.seek(self._offset)
                while (line := file.readline(CHAT_LINE_BYTES_MAX)).endswith(b"\n") or len(line) == CHAT_LINE_BYTES_MAX:
                    self._offset += len(line)
                    if b'"tokens"' in line and (answer := self._answer(json_fields.line(line))):
                        found.append(answer)
        except (OSError, RuntimeError):
            # Where this record cannot be read, the stream's last line has the sum.
            return found
        return found

    def _answer(self, record: dict[str, Any]) -> tuple[str, int, int, int] | None:
        """An answer is recorded again when its tools have ended, and counts once."""
        name, tokens = json_fields.text(record, "id"), json_fields.inner(record, "tokens")
        if record.get("type") != "gemini" or not tokens or name in self._seen or len(self._seen) >= ANSWERS_MAX:
            return None
        self._seen.add(name)
        into, total = json_fields.count(tokens, "input"), json_fields.count(tokens, "total")
        return json_fields.text(record, "model"), into, max(total - into, 0), json_fields.count(tokens, "cached")
