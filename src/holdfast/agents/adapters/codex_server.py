"""Codex where it must ask: `codex app-server`, JSON-RPC on its standard input and output.

It asks before each command that it does not know to be harmless, and before each change of files, and waits for the
answer. Killed meanwhile it forgets the call: the resumed conversation has to make it again, and its prompt says so.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import msgspec

from holdfast.agents.adapters.codex import Codex
from holdfast.agents.common import json_fields, prices
from holdfast.agents.common.cli_base import broke_off, refused
from holdfast.domain import agent_events as events
from holdfast.domain.attempt_records import Launch
from holdfast.questions.records import Verdict

# By the type of an item: the tool's name, where the item has its input, and where its output.
_TOOLS = {
    "commandExecution": ("shell", "command", "aggregatedOutput"),
    "fileChange": ("apply_patch", "changes", "changes"),
    "mcpToolCall": ("mcp", "arguments", "result"),
    "webSearch": ("web_search", "query", "query"),
}
_COMMAND, _FILES, _WORDS = (
    "item/commandExecution/requestApproval",
    "item/fileChange/requestApproval",
    "item/tool/requestUserInput",
)
_INITIALIZE, _THREAD, _TURN, _STEER, _INTERRUPT = 1, 2, 3, 4, 5
# Changes of more items than these are shown without their diff.
ITEMS_MAX = 1000
_NOT_KNOWN = {"code": -32601, "message": "Nobody here can answer that."}


def stream(launch: Launch) -> CodexServerStream:
    return CodexServerStream(launch)


class CodexServerStream:
    def __init__(self, launch: Launch) -> None:
        self._launch, self._counted = launch, launch.counted
        self._thread = self._turn = ""
        self._items: dict[str, dict[str, Any]] = {}
        self._has_done = self._is_finished = False
        client = {"name": "holdfast", "title": "Holdfast", "version": "1"}
        self._outgoing = _request(_INITIALIZE, "initialize", {"clientInfo": client})

    def outgoing(self) -> bytes:
        sent, self._outgoing = self._outgoing, b""
        return sent

    def cancel(self) -> bytes:
        if not self._turn or self._is_finished:
            return b""
        return _request(_INTERRUPT, "turn/interrupt", {"threadId": self._thread, "turnId": self._turn})

    def read(self, line: bytes) -> Sequence[events.AgentEvent]:
        record = json_fields.line(line)
        method = json_fields.text(record, "method")
        if not method:
            return tuple(self._answered(record))
        params = json_fields.inner(record, "params")
        if "id" in record:
            return tuple(self._asked(method, record["id"], params))
        reader = self._READERS.get(method)
        return tuple(reader(self, params)) if reader is not None else ()

    def end(self, code: int) -> Sequence[events.AgentEvent]:
        return () if self._is_finished else (broke_off(code),)

    # -- what we asked, and what it asks -------------------------------------------------------------------------------

    def _answered(self, record: dict[str, Any]) -> Iterator[events.AgentEvent]:
        launch, number = self._launch, record.get("id")
        if "error" in record and number not in (_STEER, _INTERRUPT):
            yield from self._finish(Codex.trouble(json_fields.text(record, "error", "message")))
        elif number == _INITIALIZE:
            asks: dict[str, Any] = {"approvalPolicy": "untrusted", "sandbox": "danger-full-access"}
            asks |= {"model": launch.model} if launch.model else {}
            asks |= {"threadId": launch.session} if launch.session else {}
            kind = "thread/resume" if launch.session else "thread/start"
            self._outgoing += _line({"method": "initialized"}) + _request(_THREAD, kind, asks)
        elif number == _TURN:
            self._turn = json_fields.text(record, "result", "turn", "id")
        elif number == _THREAD and (found := json_fields.text(record, "result", "thread", "id")):
            self._thread = found
            told = {"threadId": found, "input": [{"type": "text", "text": launch.stdin}]}
            self._outgoing += _request(_TURN, "turn/start", told)
            yield events.SessionBegan(found, launch.model)

    def _asked(self, method: str, number: object, params: dict[str, Any]) -> Iterator[events.AgentEvent]:
        call = msgspec.json.encode(number).decode()
        item = self._items.get(json_fields.text(params, "itemId"), {})
        self._turn = json_fields.text(params, "turnId") or self._turn
        if method == _COMMAND:
            command = _bare(json_fields.text(params, "command") or json_fields.text(item, "command"))
            yield events.PersonAsked(call, "shell", json_fields.as_text({"command": command}))
        elif method == _FILES:
            changes = json_fields.each(item, "changes")
            # A rule that allows some files allows no list of them: no star stands for a semicolon.
            paths = "; ".join(json_fields.text(each, "path") for each in changes)
            preview = "\n".join(
                f"{json_fields.text(each, 'path')}\n{json_fields.text(each, 'diff')}" for each in changes
            )
            given = {"path": paths, "changes": changes}
            yield events.PersonAsked(call, "apply_patch", json_fields.as_text(given), preview=preview)
        elif method == _WORDS:
            given = {"questions": json_fields.each(params, "questions")}
            yield events.PersonAsked(call, "request_user_input", json_fields.as_text(given), "words")
        else:
            self._outgoing += _line({"id": number, "error": _NOT_KNOWN})

    def reply(self, asked: events.PersonAsked, verdict: Verdict) -> bytes:
        number = msgspec.json.decode(asked.call)
        if asked.kind == "words":
            given = json_fields.line(asked.input.encode())
            wanted = [json_fields.text(each, "id") for each in json_fields.each(given, "questions")]
            return _line({"id": number, "result": {"answers": {key: {"answers": [verdict.words]} for key in wanted}}})
        if verdict.decision == "allow":
            return _line({"id": number, "result": {"decision": "accept"}})
        declined = _line({"id": number, "result": {"decision": "decline"}})
        # It has no word of its own for the reason.
        told = [{"type": "text", "text": verdict.words or "This is not allowed."}]
        steer = {"threadId": self._thread, "expectedTurnId": self._turn, "input": told}
        return declined + _request(_STEER, "turn/steer", steer)

    # -- what it reports -----------------------------------------------------------------------------------------------

    def _began(self, params: dict[str, Any]) -> Iterator[events.AgentEvent]:
        item = json_fields.inner(params, "item")
        call = json_fields.text(item, "id")
        if (tool := _TOOLS.get(json_fields.text(item, "type"))) and call:
            self._has_done = True
            if len(self._items) < ITEMS_MAX:
                self._items[call] = item
            name = json_fields.text(item, "tool") or tool[0]
            yield events.ToolStarted(name, call, json_fields.as_text(json_fields.at(item, tool[1])))

    def _ended(self, params: dict[str, Any]) -> Iterator[events.AgentEvent]:
        item = json_fields.inner(params, "item")
        kind = json_fields.text(item, "type")
        if tool := _TOOLS.get(kind):
            self._items.pop(json_fields.text(item, "id"), None)
            output = json_fields.as_text(json_fields.at(item, "error") or json_fields.at(item, tool[2]))
            is_ok = item.get("status") not in ("failed", "declined")
            yield events.ToolEnded(json_fields.text(item, "id"), is_ok, output)
        elif kind == "agentMessage" and (text := json_fields.text(item, "text")):
            self._has_done = True
            yield events.Said(text)

    def _used(self, params: dict[str, Any]) -> Iterator[events.AgentEvent]:
        usage = json_fields.inner(params, "tokenUsage", "total")
        total = json_fields.count(usage, "inputTokens"), json_fields.count(usage, "outputTokens")
        tokens_in, tokens_out = (max(now - before, 0) for now, before in zip(total, self._counted, strict=True))
        if tokens_in or tokens_out:
            # The share of cached tokens is known for the conversation as a whole only.
            read = json_fields.count(usage, "cachedInputTokens") * tokens_in // max(total[0], 1)
            cost = prices.usd(self._launch.model, tokens_in, tokens_out, read=read)
            yield events.Spent(cost, tokens_in, tokens_out, self._launch.model, estimated=True)
            self._counted = total

    def _completed(self, params: dict[str, Any]) -> Iterator[events.AgentEvent]:
        turn = json_fields.inner(params, "turn")
        if message := json_fields.text(turn, "error", "message"):
            yield from self._finish(Codex.trouble(message))
        elif json_fields.text(turn, "status") != "completed":
            yield from self._finish(events.Finished(False, "Codex ended its turn before it was done."))
        elif self._has_done:
            yield from self._finish(events.Finished(True))
        else:
            yield from self._finish(refused("it ended without a word and without a deed."))

    def _erred(self, params: dict[str, Any]) -> Iterator[events.AgentEvent]:
        if params.get("willRetry"):
            yield events.Retrying(json_fields.text(params, "error", "message"))

    def _finish(self, event: events.AgentEvent) -> Iterator[events.AgentEvent]:
        if not self._is_finished:
            self._is_finished = True
            yield event

    _READERS: ClassVar[dict[str, Callable[[Any, dict[str, Any]], Iterator[events.AgentEvent]]]] = {
        "item/started": _began,
        "item/completed": _ended,
        "thread/tokenUsage/updated": _used,
        "turn/completed": _completed,
        "error": _erred,
    }


def _bare(command: str) -> str:
    """A command without the shell that Codex puts around it."""
    try:
        parts = shlex.split(command)
    except ValueError:
        return command
    return parts[2] if len(parts) == 3 and parts[1] in ("-lc", "-c") else command


def _line(record: dict[str, Any]) -> bytes:
    return msgspec.json.encode(record) + b"\n"


def _request(number: int, method: str, params: dict[str, Any]) -> bytes:
    return _line({"id": number, "method": method, "params": params})
