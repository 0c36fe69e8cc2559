"""mini-swe-agent: `mini` with an agent class that prints each message of its trajectory as a line when it is added.

The class is a file of the attempt's; mini finds it by `--agent-class`. It never asks a person,
reads the task from a file, and leaves it to Holdfast to wait for a rate limit. Everything else is mini's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.agents.adapters.aider import KEYS
from holdfast.agents.common import error_phrases, json_fields, prices, resets
from holdfast.agents.common.cli_base import VERSION_S_MAX, Cli, broke_off, home, refused
from holdfast.clock import wall
from holdfast.domain import agent_events as events
from holdfast.domain.attempt_records import Can, Home, Launch, Modes

if TYPE_CHECKING:
    from holdfast.ports import Work

# More calls than ever run at once: later ones are not reported, so memory stays bounded.
CALLS_MAX = 1000
_SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"

_CLASS = """\
import json
import os
import pathlib

# It was only for finding this file: the commands that the model runs have no use for it.
os.environ.pop("PYTHONPATH", None)

import litellm
from minisweagent.agents.default import DefaultAgent


def tell(message):
    print(json.dumps(message, default=str), flush=True)


class Agent(DefaultAgent):
    def __init__(self, model, *more, **config):
        super().__init__(model, *more, **config)
        model.abort_exceptions = [*getattr(model, "abort_exceptions", ()), litellm.exceptions.RateLimitError]
        if hasattr(model.config, "model_kwargs"):
            model.config.model_kwargs = {"max_retries": 0, **model.config.model_kwargs}
        ask = model._query if hasattr(model, "_query") else None

        def tell_trouble(*given, **more):
            try:
                return ask(*given, **more)
            except Exception as error:
                # mini itself tries again, and says so in its log only.
                tell({"role": "retrying", "error": str(error)[:500]})
                raise

        if ask is not None:
            model._query = tell_trouble

    def run(self, task="", **more):
        return super().run(pathlib.Path(task).read_text(encoding="utf-8"), **more)

    def add_messages(self, *messages):
        for message in messages:
            tell(message)
        return super().add_messages(*messages)

    def handle_uncaught_exception(self, error):
        headers = getattr(error, "litellm_response_headers", None) or {}
        tell({"role": "error", "retry_after": headers.get("retry-after")})
        return super().handle_uncaught_exception(error)
"""


class Mini(Cli):
    name = "mini"
    title = "mini-swe-agent"
    program = "mini"
    can = Can(resume=False, cost="reported", mcp=False)
    permissions = Modes(skip=("--yolo",))
    install = "`pipx install mini-swe-agent && pipx inject mini-swe-agent mcp`"
    base_urls = ("OPENAI_API_BASE", "OPENAI_BASE_URL")
    sign_in = "Run `mini-extra config setup`, or set the key of the model's provider, such as OPENAI_API_KEY"

    def version(self, wait_s: float = VERSION_S_MAX) -> str:
        """It has no option for that, but prints it first."""
        from holdfast.agents.common.program_output import first_line

        found = self.find()
        line = "" if found is None else first_line([found, "--help"], wait_s)
        return line.partition(" version ")[2].removesuffix(".")

    def is_signed_in(self) -> bool | None:
        return True if self.has_any(*KEYS) else None

    def call(self, work: Work) -> Launch:
        argv = [self.program, "--agent-class", "holdfast_mini.Agent", "--task", "{files}/prompt.md"]
        # Holdfast limits the cost. The trajectory is printed line by line; its file would be written anew after
        # each step.
        argv += [*self.flags(work), "--exit-immediately", "--cost-limit", "0", "--output", "/dev/null"]
        argv += ["--model", work.model] if work.model else []
        env = {
            "PYTHONPATH": "{files}",
            "COLUMNS": "10000",
            "MSWEA_CONFIGURED": "true",
            "MSWEA_SILENT_STARTUP": "1",
            "MSWEA_COST_TRACKING": "ignore_errors",
            # From the sixth retry on it would wait for a minute each time.
            "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "5",
        }
        files = {"prompt.md": work.prompt, "holdfast_mini.py": _CLASS}
        # It makes its folder where there is none.
        own = Home(str(home("XDG_CONFIG_HOME", ".config") / "mini-swe-agent"))
        return Launch(tuple(argv), env=env, files=files, stream=self.name, model=work.model, homes=(own,))


def stream(launch: Launch) -> MiniStream:
    return MiniStream(launch.model)


class MiniStream:
    def __init__(self, model: str = "") -> None:
        self._model = model
        self._open: dict[str, None] = {}
        self._calls = 0
        self._retry_s = 0.0
        self._is_finished = False

    def read(self, line: bytes) -> Sequence[events.AgentEvent]:
        record = json_fields.line(line)
        more = json_fields.inner(record, "extra")
        match json_fields.text(record, "role"):
            case "assistant":
                return tuple(self._answer(record, more))
            case "tool":
                return tuple(self._ended(record, more))
            case "user" if "response" in more:
                return tuple(self._unfit(more))
            case "retrying":
                return (events.Retrying(json_fields.text(record, "error")),)
            case "error":
                self._retry_s = _seconds(record.get("retry_after"))
            case "exit" if not self._is_finished:
                return tuple(self._exit(json_fields.text(record, "content"), more))
        return ()

    def end(self, code: int) -> Sequence[events.AgentEvent]:
        return () if self._is_finished else (broke_off(code),)

    def _answer(self, record: dict[str, Any], more: dict[str, Any]) -> Iterator[events.AgentEvent]:
        if text := json_fields.text(record, "content"):
            yield events.Said(text)
        yield from self._spent(more)
        for action in json_fields.each(more, "actions"):
            command = json_fields.text(action, "command")
            if command.strip() != _SUBMIT and len(self._open) < CALLS_MAX:
                self._calls += 1
                call = json_fields.text(action, "tool_call_id") or f"call {self._calls}"
                self._open[call] = None
                yield events.ToolStarted("bash", call, command)

    def _ended(self, record: dict[str, Any], more: dict[str, Any]) -> Iterator[events.AgentEvent]:
        call = json_fields.text(record, "tool_call_id")
        if call in self._open:
            del self._open[call]
            output = json_fields.text(more, "raw_output") or json_fields.as_text(record.get("content"))
            yield events.ToolEnded(call, more.get("returncode") == 0, output)

    def _unfit(self, more: dict[str, Any]) -> Iterator[events.AgentEvent]:
        """An answer without a call: mini asks for another one, unless the model refused."""
        yield from self._spent(more)
        for choice in json_fields.each(more, "response", "choices")[:1]:
            text = json_fields.text(choice, "message", "content") or json_fields.text(choice, "message", "refusal")
            if text:
                yield events.Said(text)
            if choice.get("finish_reason") == "content_filter" or json_fields.text(choice, "message", "refusal"):
                self._is_finished = True
                yield refused(text)

    def _spent(self, more: dict[str, Any]) -> Iterator[events.AgentEvent]:
        usage, cost = json_fields.inner(more, "response", "usage"), json_fields.number(more, "cost")
        tokens = json_fields.count(usage, "prompt_tokens"), json_fields.count(usage, "completion_tokens")
        if cost or any(tokens):
            model = json_fields.text(more, "response", "model") or self._model
            read = json_fields.count(usage, "prompt_tokens_details", "cached_tokens")
            usd = cost or prices.usd(model, *tokens, read=read)
            yield events.Spent(usd, *tokens, model, estimated=not cost)

    def _exit(self, content: str, more: dict[str, Any]) -> Iterator[events.AgentEvent]:
        self._is_finished = True
        status = json_fields.text(more, "exit_status")
        message = content.strip() or status
        # A command that also submits has no message of its own; one that failed may not have ended.
        for call in tuple(self._open):
            del self._open[call]
            yield events.ToolEnded(call, status == "Submitted", content)
        match status:
            case "Submitted":
                yield events.Finished(True, content.strip())
            case "AuthenticationError" | "PermissionDeniedError":
                yield Mini.not_signed_in(message)
            case "ContentPolicyViolationError":
                yield refused(message)
            case "RateLimitError" if not error_phrases.is_used_up(message):
                self._is_finished = False
                yield events.RateLimited(
                    wall() + self._retry_s if self._retry_s else resets.until(message, wall()), message
                )
            case _:
                yield Mini.trouble(message, until=wall() + self._retry_s if self._retry_s else 0.0)


def _seconds(value: Any) -> float:
    return float(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 8 else 0.0
