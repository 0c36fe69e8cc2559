"""Aider: one message, answered by edits. Without streaming, because only then does it report the counted tokens.

Its log of events goes to the same output as its text: JSON lines between the text. The edits of one
answer are written all at once, and then named: they are one turn. It runs no commands on its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.agents.common import error_phrases, json_fields, prices, resets
from holdfast.agents.common.cli_base import Cli, broke_off, refused
from holdfast.clock import wall
from holdfast.domain import agent_events as events
from holdfast.domain.attempt_records import Can, Launch, Modes

if TYPE_CHECKING:
    from holdfast.ports import Work

TEXT_CHARS_MAX = 65_536
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY")

_EDITED = "Applied edit to "
_ERROR = "litellm."
_RETRY = "Retrying in "
# What Aider prints after an error's own text.
_NO_KEY = "The API provider is not able to authenticate you"
_LIMITED = "The API provider has rate limited you"
_REFUSED = "The API provider has refused the request"

_OPTIONS = (
    "--no-stream", "--no-pretty", "--no-fancy-input", "--no-check-update", "--no-show-release-notes",
    "--no-show-model-warnings", "--no-auto-commits", "--no-dirty-commits", "--no-gitignore", "--no-detect-urls",
    "--no-suggest-shell-commands", "--no-analytics", "--analytics-log", "/dev/stdout",
)  # fmt: skip
# Its library would wait by itself for as long as a server asks for.
_MODEL_SETTINGS = "- name: aider/extra_params\n  extra_params:\n    max_retries: 0\n"


class Aider(Cli):
    name = "aider"
    title = "Aider"
    program = "aider"
    can = Can(resume=False, cost="reported", mcp=False)
    permissions = Modes(skip=("--yes-always",), edits=("--yes-always",))
    install = "`pipx install aider-chat`"
    base_urls = ("OPENAI_API_BASE", "OPENAI_BASE_URL")
    sign_in = "Set the key of the model's provider, such as OPENAI_API_KEY or ANTHROPIC_API_KEY"

    def is_signed_in(self) -> bool | None:
        return True if self.has_any(*KEYS) else None

    def call(self, work: Work) -> Launch:
        argv = [self.program, *self.flags(work), *_OPTIONS, "--message-file", "{files}/prompt.md"]
        argv += ["--chat-history-file", "{files}/chat.md", "--input-history-file", "{files}/input"]
        argv += ["--model-settings-file", "{files}/model-settings.yml"]
        argv += ["--model", work.model] if work.model else []
        # It would have another model summarise a longer history, without counting that. A start has one
        # message, so nothing needs a summary.
        argv += ["--max-chat-history-tokens", "1000000000"]
        # A message whose first letter is / or ! would be a command of Aider's own.
        files = {"prompt.md": f"\n{work.prompt}", "model-settings.yml": _MODEL_SETTINGS}
        # No line breaks, and no browser for a page that it wants to show.
        env = {"COLUMNS": "10000", "BROWSER": "true"}
        return Launch(tuple(argv), env=env, files=files, stream=self.name, model=work.model)


def stream(launch: Launch) -> AiderStream:
    return AiderStream(launch.model)


class AiderStream:
    def __init__(self, model: str = "") -> None:
        self._model = model
        self._is_answering = False
        self._text: list[str] = []
        self._chars = 0
        self._edits = 0
        self._has_edited = False
        self._error = ""
        self._exit: dict[str, Any] | None = None
        self._is_finished = False

    def read(self, line: bytes) -> Sequence[events.AgentEvent]:
        record = json_fields.line(line)
        if line.strip():
            self._exit = None
        if event := json_fields.text(record, "event"):
            return tuple(self._event(event, json_fields.inner(record, "properties")))
        text = line.decode(errors="replace")
        return tuple(self._answer(text) if self._is_answering else self._notice(text))

    def end(self, code: int) -> Sequence[events.AgentEvent]:
        if self._is_finished or self._exit is not None:
            return tuple(self._finish())
        return (broke_off(code, f" It said: {self._error}" if self._error else ""),)

    def _event(self, name: str, about: dict[str, Any]) -> Iterator[events.AgentEvent]:
        match name:
            case "message_send_starting":
                self._is_answering, self._has_edited = True, False
                self._forget()
            case "message_send" if self._is_answering:
                yield from self._answered(about)
            case "message_send_exception":
                self._error = json_fields.text(about, "exception") or "An error of its own stopped it."
                self._is_answering = False
            case "exit" if not self._is_finished:
                self._exit = about
                # An answer may quote such a line: then there is more to come.
                if not self._is_answering:
                    yield from self._finish()

    def _finish(self) -> Iterator[events.AgentEvent]:
        if self._exit is not None and not self._is_finished:
            self._is_finished = True
            why = (self._text[0] if self._is_answering and self._text else "") or self._error
            reason = json_fields.text(self._exit, "reason")
            if reason.startswith("Completed") and not why:
                yield events.Finished(True)
            elif why.startswith(_ERROR):
                yield Aider.trouble(why)
            else:
                yield events.Finished(False, why or reason or "Aider has failed, and did not say why.")

    def _answered(self, about: dict[str, Any]) -> Iterator[events.AgentEvent]:
        lines = [line for line in self._text if not line.startswith("Tokens: ")]
        self._is_answering, self._error = False, ""
        self._forget()
        if text := "\n".join(lines).strip():
            yield events.Said(text)
        tokens = json_fields.count(about, "prompt_tokens"), json_fields.count(about, "completion_tokens")
        cost = json_fields.number(about, "cost")
        if cost or any(tokens):
            yield events.Spent(cost or prices.usd(self._model, *tokens), *tokens, self._model, estimated=not cost)

    def _answer(self, text: str) -> Iterator[events.AgentEvent]:
        """Reads a line of the answer, or of an error in its place, which is then the first line."""
        is_error = bool(self._text) and self._text[0].startswith(_ERROR)
        if is_error and text.startswith(_RETRY):
            self._error = self._text[0]
            self._forget()
            yield events.Retrying(self._error, 0, _seconds(text))
        elif is_error and text.startswith((_NO_KEY, _LIMITED, _REFUSED)):
            yield from self._trouble(self._text[0], text)
        elif (self._text or text.strip()) and self._chars < TEXT_CHARS_MAX:
            self._chars += len(text) + 1
            self._text.append(text[:TEXT_CHARS_MAX])

    def _forget(self) -> None:
        self._text, self._chars = [], 0

    def _trouble(self, message: str, kind: str) -> Iterator[events.AgentEvent]:
        if kind.startswith(_LIMITED) and not error_phrases.is_used_up(message):
            yield events.RateLimited(resets.until(message, wall()), message)
        else:
            self._is_finished = True
            if kind.startswith(_NO_KEY):
                yield Aider.not_signed_in(message)
            elif kind.startswith(_REFUSED):
                yield refused(message)
            else:
                yield events.Finished(False, message, events.QUOTA)

    def _notice(self, text: str) -> Iterator[events.AgentEvent]:
        if not text.startswith(_EDITED):
            return
        if self._has_edited:
            yield events.Said(text)
            return
        self._has_edited = True
        self._edits += 1
        call = str(self._edits)
        yield events.ToolStarted("edit", call, text.removeprefix(_EDITED))
        yield events.ToolEnded(call, True, text)


def _seconds(text: str) -> float:
    """The number in a line such as `Retrying in 0.5 seconds...`."""
    number = text.removeprefix(_RETRY).partition(" ")[0]
    return float(number) if number.replace(".", "", 1).isdigit() and len(number) < 8 else 0.0
