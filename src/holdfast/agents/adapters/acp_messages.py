"""The messages of the Agent Client Protocol: those that Holdfast sends, and what is in those of an agent.

An agent's message may be anything: nothing here raises, and what is missing is empty.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from holdfast.agents.common import json_fields

PROTOCOL_VERSION = 1
DIFF_CHARS_MAX = 16_384
TITLE_CHARS_MAX = 1000


def request(number: int, method: str, params: dict[str, Any]) -> bytes:
    return line({"id": number, "method": method, "params": params})


def initialize(number: int = 1) -> bytes:
    no_files = {"readTextFile": False, "writeTextFile": False}
    params = {
        "protocolVersion": PROTOCOL_VERSION,
        "clientCapabilities": {"fs": no_files, "terminal": False},
        "clientInfo": {"name": "holdfast", "title": "Holdfast", "version": "1"},
    }
    return request(number, "initialize", params)


def line(message: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n"


# What it says when the connection was lost before an answer began is the same as at a good end.
UNANSWERED = "The model's last answer did not come, though Gemini CLI calls it a good end."
SILENT = "it ended without a word and without a deed."
STOPPED = {
    "max_tokens": "The model's last answer was cut: it reached the most tokens that it may have.",
    "max_turn_requests": "The agent has asked its model as often as it may in one prompt.",
    "cancelled": "The prompt was cancelled.",
}


def denied(tool: dict[str, Any], words: str) -> str:
    """A person's reason, and what it is about."""
    about = json_fields.text(tool, "title") or tool_name(tool)
    return f"You asked for leave to call: {about[:TITLE_CHARS_MAX]}\n{words}"


def reasons(told: list[str]) -> str:
    """The prompt behind one in which calls were denied."""
    return "\n\n".join([*told, "Go on with the task without it, or say why it cannot be done."])


# -- tools ------------------------------------------------------------------------------------------------------------

KEPT = ("name", "kind", "title", "rawInput", "rawOutput", "content")


def tool_name(tool: dict[str, Any]) -> str:
    return json_fields.text(tool, "name") or json_fields.text(tool, "kind") or json_fields.text(tool, "title") or "tool"


def tool_input(tool: dict[str, Any]) -> str:
    """What it is called with, as JSON; made of what it shows where the agent does not say."""
    if given := tool.get("rawInput"):
        return json_fields.as_text(given)
    title = json_fields.text(tool, "title")
    for part in json_fields.each(tool, "content"):
        if path := json_fields.text(part, "path"):
            return json_fields.as_json({"path": path, "content": json_fields.text(part, "newText")})
    return json_fields.as_json({"command" if tool.get("kind") == "execute" else "title": title})


def shown(tool: dict[str, Any]) -> str:
    """What it would do, as the agent shows it to a person: the files that it would change; else empty."""
    changed = [part for part in json_fields.each(tool, "content") if json_fields.text(part, "path")]
    return "\n".join(_diff(part) for part in changed)


def _diff(part: dict[str, Any]) -> str:
    path, old, new = (json_fields.text(part, name)[:DIFF_CHARS_MAX] for name in ("path", "oldText", "newText"))
    lines = [*(f"-{line}" for line in old.splitlines()), *(f"+{line}" for line in new.splitlines())]
    return "\n".join([f"--- {path}", f"+++ {path}", *lines])


def tool_output(tool: dict[str, Any]) -> str:
    raw = tool.get("rawOutput")
    return json_fields.text(raw, "output") or (raw if isinstance(raw, str) else "") or _content(tool)


def exit_code(tool: dict[str, Any]) -> int:
    return json_fields.count(tool, "rawOutput", "metadata", "exit")


def _content(tool: dict[str, Any]) -> str:
    """The texts of a tool's content; of an edit the file and what is in it then."""
    found = []
    for part in json_fields.each(tool, "content"):
        changed = (json_fields.text(part, "path"), json_fields.text(part, "newText"))
        found.append(json_fields.text(part, "content", "text") or "\n".join(filter(None, changed)))
    return "\n".join(filter(None, found))


def tokens(usage: dict[str, Any]) -> tuple[int, int] | None:
    """Tokens in and out. Some count cached ones among those in, some beside them: the total tells."""
    total, out = json_fields.count(usage, "totalTokens"), json_fields.count(usage, "outputTokens")
    names = ("inputTokens", "cachedReadTokens", "cachedWriteTokens")
    into = sum(json_fields.count(usage, name) for name in names)
    if total:
        into = min(into, max(total - out, 0))
        out = max(out, total - into)
    return (into, out) if into or out else None


def used(result: dict[str, Any]) -> tuple[int, int] | None:
    """The tokens of a prompt. Gemini CLI has them beside the protocol."""
    if found := tokens(json_fields.inner(result, "usage")):
        return found
    quota = json_fields.inner(result, "_meta", "quota", "token_count")
    into, out = json_fields.count(quota, "input_tokens"), json_fields.count(quota, "output_tokens")
    return (into, out) if into or out else None


def model_used(result: dict[str, Any]) -> str:
    """As Gemini CLI names it; else empty."""
    each_model = json_fields.each(json_fields.inner(result, "_meta", "quota"), "model_usage")
    return next((json_fields.text(each, "model") for each in each_model), "")


def values(option: dict[str, Any]) -> list[str]:
    """The values of an option; some are in groups."""
    found = json_fields.each(option, "options")
    return [json_fields.text(each, "value") for one in found for each in (one, *json_fields.each(one, "options"))]


def models(result: dict[str, Any]) -> list[str]:
    offered = [each for each in json_fields.each(result, "configOptions") if each.get("category") == "model"]
    found = [json_fields.text(each, "modelId") for each in json_fields.each(result, "models", "availableModels")]
    return list(filter(None, [*(value for each in offered for value in values(each)), *found]))


def model_choice(result: dict[str, Any], model: str) -> tuple[str, dict[str, str]] | None:
    """The request by which this agent is given the model; None where it does not offer it."""
    for option in json_fields.each(result, "configOptions"):
        if json_fields.text(option, "category") == "model" and model in values(option):
            return "session/set_config_option", {"configId": json_fields.text(option, "id"), "value": model}
    return ("session/set_model", {"modelId": model}) if model in models(result) else None


def error_text(error: dict[str, Any]) -> str:
    """The error's message, with what its data say beyond that."""
    message = json_fields.text(error, "message") or "It did not say why."
    data = error.get("data")
    more = json_fields.text(data, "details") or json_fields.text(data, "message") or json_fields.text(error, "data")
    return f"{message}: {more}" if more and more not in message else message


def status(error: dict[str, Any]) -> int:
    """The status of the model's server, as far as an error tells it; else 0.

    The protocol has no place for it. Gemini CLI has it as the error's code, where 500 stands for all that it does not
    know; claude-agent-acp has a word for it, and the number in its message.
    """
    found = json_fields.count(error, "data", "statusCode") or json_fields.count(error, "data", "status")
    code = json_fields.count(error, "code")
    if found or (400 <= code < 600 and code != 500):
        return found or code
    if word := _KINDS.get(json_fields.text(error, "data", "errorKind")):
        return word
    named = _STATUS.search(json_fields.text(error, "message")[:1000])
    return int(named[1] or named[2]) if named else 0


_KINDS = {"rate_limit": 429, "authentication_failed": 401, "authentication_error": 401, "overloaded": 529}
_STATUS = re.compile(r"\bAPI Error: ([45]\d\d)\b|\bAPI Error: [^(]{0,100}\(([45]\d\d)\)")
