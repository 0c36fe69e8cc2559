"""Talks to an agent by the Agent Client Protocol: JSON-RPC on its standard input and output, one message on each line.

A state machine without I/O: the runner gives it the agent's lines, and sends what it has to say
(agents/runner/dialogue.py). An answer that it gives to a line is sent only after the turn that the line may have
ended is saved. So an agent that asks before a tool is the turn's barrier by itself.

    initialize -> session/new, session/resume or session/load -> the model, where one is asked for -> session/prompt

It offers neither `fs/*` nor `terminal/*`: an agent reads, writes and runs with its own tools, in its worktree and
inside the sandbox. Whatever else it asks for is answered with an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.agents.adapters import acp_messages as messages
from holdfast.agents.adapters.acp_permissions import allowed, outcome
from holdfast.agents.common import environment, json_fields, prices
from holdfast.agents.common.cli_base import CALLS_MAX, broke_off, refused, trouble
from holdfast.clock import monotonic, wall
from holdfast.domain import agent_events as events
from holdfast.storage.files.json_file import decode_json

if TYPE_CHECKING:
    from holdfast.domain.attempt_records import Launch
    from holdfast.questions.records import Verdict

METHOD_NOT_FOUND, AUTH_REQUIRED = -32601, -32000
# An agent may send the last of a loaded conversation after it has said that it is loaded.
QUIET_S = 0.5
TEXT_CHARS_MAX = 1 << 20
PRINTED_CHARS_MAX = 300
# How a prompt ends in which a call was denied.
GOES_ON = ("end_turn", "cancelled")
# Tools that have been named and have not ended; more are reported as they come.
TOOLS_MAX = 100
# Requests for permission that wait for an answer at the same time.
ASKS_MAX = 100
# What may wait to be read by the agent. One that asks without end and never reads is ended.
OUTGOING_BYTES_MAX = 16 << 20
# It is never part of a path, but an id that looks like one is not used.
_SESSION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,255}")


class AcpStream:
    def __init__(self, launch: Launch, worktree: str) -> None:
        call = launch.protocol
        assert call is not None
        self._call, self._prompt, self._worktree = call, launch.stdin, worktree
        self._title, self._model, self._policy = call.title, launch.model, launch.policy
        text = environment.referred(call.servers, launch.references, os.environ, is_json=True)
        self._servers: list[dict[str, Any]] = decode_json(text.encode(), list[dict[str, Any]]) or []
        self._outgoing = bytearray()
        self._asked: dict[int, str] = {}
        self._number = 0
        self._can: dict[str, Any] = {}
        self._session = self._resumed_by = ""
        # The request to go on with a conversation, until it may be sent.
        self._held: dict[str, Any] = {}
        # A conversation is being loaded, and the moment from which nothing more of it is expected.
        self._is_loading = False
        self._quiet_from: float | None = None
        self._is_prompted = self._is_told = self._is_finished = self._awaits_answer = self._has_answered = False
        self._text = self._last_words = self._message = self._last_call = ""
        self._tools: dict[str, dict[str, Any]] = {}
        self._begun: set[str] = set()
        self._ended: set[str] = set()
        self._calls = 0
        # Requests for permission that are not answered: their id, tool and options.
        self._asks: dict[str, tuple[str | int, dict[str, Any], list[dict[str, Any]]]] = {}
        # A person's reasons for a denial, and whether each was sent: the protocol takes them as another prompt only.
        self._reasons: dict[str, bool] = {}
        self._usd = launch.counted_usd
        self._has_cost = False
        # The last line that was no message.
        self._printed = ""
        self._ask("initialize", messages.initialize)

    # -- what is sent -------------------------------------------------------------------------------------------------

    def outgoing(self) -> bytes:
        """What to send now. A prompt behind a loaded conversation waits until nothing more of that comes."""
        now = monotonic()
        if self._held and wall() >= self._call.load_after:
            params, self._held = self._held, {}
            self._ask(self._resumed_by, **params)
        if self._is_loading and self._quiet_from is None:
            self._quiet_from = now + QUIET_S
        elif self._is_loading and self._quiet_from is not None and now >= self._quiet_from:
            self._is_loading = False
            self._send_prompt(self._prompt)
        found = bytes(self._outgoing)
        self._outgoing.clear()
        return found

    def cancel(self) -> bytes:
        # Gemini CLI does not find a conversation again whose prompt was cancelled; that of one that was ended it does.
        if not self._is_prompted or self._is_finished or self._call.program == "gemini":
            return b""
        return messages.line({"method": "session/cancel", "params": {"sessionId": self._session}})

    def has_kept(self) -> bool:
        from holdfast.agents.adapters import gemini

        return gemini.has_kept(self._session, self._last_call)

    def _ask(self, method: str, line: Any = None, **params: Any) -> None:
        self._number += 1
        self._asked[self._number] = method
        self._outgoing += line(self._number) if line is not None else messages.request(self._number, method, params)

    def _send_prompt(self, text: str) -> None:
        self._is_prompted = True
        self._ask("session/prompt", sessionId=self._session, prompt=[{"type": "text", "text": text}])

    # -- what is read -------------------------------------------------------------------------------------------------

    def read(self, line: bytes) -> Sequence[events.AgentEvent]:
        record = json_fields.line(line)
        if self._is_finished:
            return ()
        if not record:
            self._printed = line.decode(errors="replace").strip()[:PRINTED_CHARS_MAX] or self._printed
            return tuple(_beside(line)) if self._call.program == "gemini" else ()
        method, params = json_fields.text(record, "method"), json_fields.inner(record, "params")
        if method and "id" in record:
            found = self._requested(record["id"], method, params) if isinstance(record["id"], str | int) else iter(())
        elif method:
            found = self._updated(params) if method == "session/update" else iter(())
        else:
            found = self._answered(record)
        return tuple(found)

    def end(self, code: int) -> Sequence[events.AgentEvent]:
        if self._is_finished:
            return ()
        if "initialize" in self._asked.values():
            return tuple(self._no_speaker(f"it ended with code {code} before it answered our first request"))
        return (*self._flush_text(), broke_off(code))

    def _no_speaker(self, why: str) -> Iterator[events.AgentEvent]:
        """The end of a program that is no agent of this protocol, or is not started as one."""
        printed = f" It printed last: {self._printed}." if self._printed else ""
        told = f"{self._title} does not speak the Agent Client Protocol: {why}.{printed}"
        advice = f"`holdfast attach {os.path.basename(self._worktree)} --raw` shows all that it printed"
        mend = "correct `acp` of the agent in config/settings.yaml"
        yield from self._finish(events.Finished(False, f"{told} {advice}; {mend}."))

    def _finish(self, event: events.Finished | events.RateLimited) -> Iterator[events.AgentEvent]:
        self._is_finished = True
        yield from self._flush_text()
        yield event

    # -- answers to our requests --------------------------------------------------------------------------------------

    def _answered(self, record: dict[str, Any]) -> Iterator[events.AgentEvent]:
        number = record.get("id")
        method = self._asked.pop(number, "") if isinstance(number, int) else ""
        if not method:
            return
        if "error" in record:
            yield from self._refused(method, json_fields.inner(record, "error"))
            return
        result = json_fields.inner(record, "result")
        match method:
            case "initialize":
                yield from self._initialized(result)
            case "session/prompt":
                yield from self._prompted(result)
            case "session/new" | "session/load" | "session/resume":
                yield from self._opened(method, result)
            case _:
                self._make_ready()

    def _make_ready(self) -> None:
        """Sends the prompt, or begins to wait for the end of a conversation that is loaded."""
        if self._resumed_by == "session/load":
            self._is_loading = True
        else:
            self._send_prompt(self._prompt)

    def _initialized(self, result: dict[str, Any]) -> Iterator[events.AgentEvent]:
        version = result.get("protocolVersion")
        if version != messages.PROTOCOL_VERSION:
            told = f"{self._title} speaks version {json_fields.as_text(version)[:20] or '?'} of the protocol"
            yield from self._finish(
                events.Finished(False, f"{told}; Holdfast speaks version {messages.PROTOCOL_VERSION}.")
            )
            return
        self._can = json_fields.inner(result, "agentCapabilities")
        place = {"cwd": self._worktree, "mcpServers": self._usable_servers()}
        if not self._call.session:
            meta = decode_json(self._call.meta.encode(), dict[str, Any])
            self._ask("session/new", **place, **({"_meta": meta} if meta else {}))
            return
        self._resumed_by = self._resumes_by()
        if self._resumed_by:
            self._session = self._call.session
            self._held = {"sessionId": self._session, **place}
        else:
            told = f"{self._title} cannot go on with a conversation: it offers neither session/resume nor session/load."
            yield from self._finish(events.Finished(False, told))

    def _resumes_by(self) -> str:
        """`session/resume` sends nothing of the conversation; `session/load` sends all of it again."""
        if json_fields.at(self._can, "sessionCapabilities", "resume") is not None:
            return "session/resume"
        return "session/load" if self._can.get("loadSession") is True else ""

    def _usable_servers(self) -> list[dict[str, Any]]:
        has_http = json_fields.at(self._can, "mcpCapabilities", "http") is True
        usable = [each for each in self._servers if has_http or "url" not in each]
        return list({each["name"]: each for each in reversed(usable)}.values())[::-1]

    def _opened(self, method: str, result: dict[str, Any]) -> Iterator[events.AgentEvent]:
        if method == "session/new":
            self._session = json_fields.text(result, "sessionId")
        else:
            self._is_told = True
            yield events.SessionBegan(self._session, self._model)
        choice = messages.model_choice(result, self._model) if self._call.sets_model else None
        if choice is not None:
            self._ask(choice[0], sessionId=self._session, **choice[1])
        elif self._call.sets_model:
            offered = ", ".join(messages.models(result)[:20]) or "none by name"
            told = f"{self._title} does not offer the model {self._model}. It offers: {offered}."
            yield from self._finish(events.Finished(False, told))
        else:
            self._make_ready()

    def _prompted(self, result: dict[str, Any]) -> Iterator[events.AgentEvent]:
        yield from self._flush_text()
        yield from self._used(result)
        reason = json_fields.text(result, "stopReason")
        if (unsent := [each for each, is_sent in self._reasons.items() if not is_sent]) and reason in GOES_ON:
            self._reasons = dict.fromkeys(self._reasons, True)
            self._send_prompt(messages.reasons(unsent))
        elif reason == "end_turn":
            yield from self._finish(self._end_of_turn(has_tokens=bool(messages.used(result))))
        elif reason == "refusal":
            yield from self._finish(refused(self._last_words or "it did not say why."))
        else:
            told = messages.STOPPED.get(reason, f"The prompt ended with {reason[:100] or 'nothing'!r}.")
            yield from self._finish(events.Finished(False, told))

    def _end_of_turn(self, *, has_tokens: bool) -> events.Finished:
        """Gemini CLI calls it a good end, too, when no answer came, and when the model refused to give one."""
        if self._call.program == "gemini" and (self._awaits_answer or not self._has_answered):
            if self._awaits_answer or not has_tokens:
                return events.Finished(False, messages.UNANSWERED, events.UNREACHABLE)
            return refused(messages.SILENT)
        return events.Finished(True, self._last_words)

    def _refused(self, method: str, error: dict[str, Any]) -> Iterator[events.AgentEvent]:
        message, code = messages.error_text(error), error.get("code")
        sign_in = self._call.sign_in
        if code == AUTH_REQUIRED:
            yield from self._finish(trouble(self._title, sign_in, message, status=401))
            return
        status = messages.status(error)
        if method != "session/prompt":
            message = f"{self._title} has refused {method}: {message}"
        yield from self._finish(trouble(self._title, sign_in, message, status=status))

    # -- what the agent asks for --------------------------------------------------------------------------------------

    def _requested(self, name: str | int, method: str, params: dict[str, Any]) -> Iterator[events.AgentEvent]:
        if method == "session/request_permission" and self._is_prompted and len(self._asks) < ASKS_MAX:
            yield from self._permission(name, params)
            return
        if method in self._asked.values():
            # Only we ask for these: it sends back what it reads.
            yield from self._no_speaker("it sends our own requests back")
            return
        error = {"code": METHOD_NOT_FOUND, "message": f"{method[:100]} is not offered by Holdfast"}
        self._outgoing += messages.line({"id": name, "error": error})
        if len(self._outgoing) > OUTGOING_BYTES_MAX:
            yield from self._finish(events.Finished(False, f"{self._title} asks without end, and reads no answer."))

    def _permission(self, name: str | int, params: dict[str, Any]) -> Iterator[events.AgentEvent]:
        """The request is held until the runner has decided: by the policy, by an answer, or by asking a person."""
        told = json_fields.inner(params, "toolCall")
        tool = {**self._tools.get(json_fields.text(told, "toolCallId"), {}), **told}
        yield from self._flush_text()
        if not self._policy.is_kept:
            # It is decided at once, and the tool begins.
            yield from self._tool(told, is_certain=True)
        call = f"{type(name).__name__} {name}"
        self._asks[call] = name, tool, json_fields.each(params, "options")
        shown = messages.shown(tool)
        yield events.PersonAsked(call, messages.tool_name(tool), messages.tool_input(tool), preview=shown)

    def reply(self, asked: events.PersonAsked, verdict: Verdict) -> bytes:
        """The protocol has no place for a person's words: a denied call is rejected, and they follow its prompt."""
        if asked.call not in self._asks:
            return b""
        name, tool, options = self._asks.pop(asked.call)
        allows = verdict.decision == "allow" or (verdict.decision == "own" and allowed(self._policy.mode, tool))
        if verdict.is_answer and not allows and verdict.words:
            self._reasons.setdefault(messages.denied(tool, verdict.words), False)
        return messages.line({"id": name, "result": {"outcome": outcome(options, allows=allows)}})

    # -- what the agent tells -----------------------------------------------------------------------------------------

    def _updated(self, params: dict[str, Any]) -> Iterator[events.AgentEvent]:
        self._quiet_from = None
        if not self._is_prompted or json_fields.text(params, "sessionId") != self._session:
            # It is what was said in an earlier start, or in another conversation.
            return
        update = json_fields.inner(params, "update")
        match json_fields.text(update, "sessionUpdate"):
            case "agent_message_chunk":
                self._awaits_answer = False
                yield from self._began()
                yield from self._chunk(update)
            case "tool_call" | "tool_call_update":
                yield from self._began()
                yield from self._flush_text()
                yield from self._tool(update)
            case "usage_update":
                yield from self._cost(json_fields.inner(update, "cost"))

    def _began(self) -> Iterator[events.AgentEvent]:
        """Reports the conversation at the first answer, where it can be resumed at all: before that it may be lost."""
        self._has_answered = True
        if not self._is_told:
            self._is_told = True
            if self._resumes_by() and _SESSION.fullmatch(self._session):
                yield events.SessionBegan(self._session, self._model)

    def _chunk(self, update: dict[str, Any]) -> Iterator[events.AgentEvent]:
        """A message comes in pieces, and ends where something else begins."""
        message = json_fields.text(update, "messageId")
        if message != self._message or len(self._text) > TEXT_CHARS_MAX:
            yield from self._flush_text()
        self._message = message
        self._text += json_fields.text(update, "content", "text")

    def _flush_text(self) -> Iterator[events.AgentEvent]:
        if self._text:
            self._last_words, self._text = self._text, ""
            yield events.Said(self._last_words)

    def _tool(self, told: dict[str, Any], *, is_certain: bool = False) -> Iterator[events.AgentEvent]:
        """Reports a tool when it is known with what it is called; at the latest when it begins or ends."""
        call, status = json_fields.text(told, "toolCallId"), json_fields.text(told, "status")
        if not call or self._calls >= CALLS_MAX:
            return
        self._awaits_answer = has_ended = status in ("completed", "failed")
        if call in self._ended:
            if has_ended:
                return
            # A model may use an id again.
            self._ended.discard(call)
            self._begun.discard(call)
        known = self._tools.setdefault(call, {})
        known.update({name: value for name, value in told.items() if value and name in messages.KEPT})
        if len(self._tools) > TOOLS_MAX:
            self._tools.pop(next(iter(self._tools)))
        if call not in self._begun and (is_certain or has_ended or status == "in_progress" or known.get("rawInput")):
            self._begun.add(call)
            self._calls += 1
            yield events.ToolStarted(messages.tool_name(known), call, messages.tool_input(known))
        if has_ended:
            self._tools.pop(call, None)
            self._ended.add(call)
            self._last_call = call
            is_good = status == "completed" and not messages.exit_code(known)
            yield events.ToolEnded(call, is_good, messages.tool_output(known))

    # -- tokens and costs ---------------------------------------------------------------------------------------------

    def _cost(self, cost: dict[str, Any]) -> Iterator[events.AgentEvent]:
        """`amount` is of the whole conversation, earlier starts included."""
        if json_fields.text(cost, "currency").upper() != "USD" or "amount" not in cost:
            return
        self._has_cost = True
        usd = json_fields.number(cost, "amount")
        if usd > self._usd:
            more, self._usd = usd - self._usd, usd
            yield events.Spent(more, model=self._model)

    def _used(self, result: dict[str, Any]) -> Iterator[events.AgentEvent]:
        """The tokens of the prompt. Where the agent names no cost, it is estimated."""
        self._model = messages.model_used(result) or self._model
        if found := messages.used(result):
            into, out = found
            usd = 0.0 if self._has_cost else prices.usd(self._model, into, out)
            yield events.Spent(usd, into, out, self._model, estimated=not self._has_cost)


def _beside(line: bytes) -> Iterator[events.AgentEvent]:
    """What Gemini CLI prints beside the protocol: that it tries again, and for how long it waits."""
    from holdfast.agents.adapters.gemini import beside

    return beside(line)
