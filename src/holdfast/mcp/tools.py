"""Tools, made of the operations that are flagged as such: name, description, arguments, and the request that a call is.

A call is an HTTP request to the API, whichever way it goes there: so it has the same rights, checks and keys. An
agent's tools are about its own task: the argument `task` and the ending `_task` of the name fall away.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from holdfast.server.operations import Operation, Role
from holdfast.server.routes import all_operations

REFERENCES = "#/$defs/{name}"
KEY = "key"
_KEY_WORDS = (
    "A name of your own for this call. Repeated with the same key, after a lost connection perhaps, it happens once."
)
# Workers from elsewhere prove with it that a task is theirs; an agent has a token for that.
_NOT_FOR_AGENTS = ("claim",)


class Tool(msgspec.Struct, frozen=True):
    """`schema` is the JSON schema of its arguments."""

    name: str
    description: str
    schema: dict[str, Any]
    operation: Operation
    role: Role


class ToolRequest(msgspec.Struct, frozen=True):
    """One request to the API. `target`: its path and query."""

    method: str
    target: str
    content: bytes = b""
    key: str = ""

    @property
    def headers(self) -> dict[str, str]:
        keyed = {"idempotency-key": self.key} if self.key else {}
        return {**({"content-type": "application/json"} if self.content else {}), **keyed}


class ToolAnswer(msgspec.Struct, frozen=True):
    text: str
    is_error: bool = False


class ArgumentsUnfit(Exception):
    """A sentence for the caller of a tool. Nothing was asked."""


@functools.cache
def tools_of(role: Role) -> Mapping[str, Tool]:
    """The tools of a token's role, by name. A reader has those of a person that only read."""
    return {tool.name: tool for tool in (_tool(each, role) for each in offered(all_operations(), role))}


def offered(operations: Iterable[Operation], role: Role) -> list[Operation]:
    wanted = ("agent", "both") if role == "agent" else ("person", "both")
    found = [each for each in operations if each.tool in wanted]
    return [each for each in found if each.right in ("read", "any")] if role == "reader" else found


def _tool(operation: Operation, role: Role) -> Tool:
    name = operation.name.removesuffix("_task") if role == "agent" else operation.name
    # Not by `getdoc`, which finds the docstring of the base class where there is none.
    said = [vars(kind).get("__doc__") or "" for kind in _kinds(operation) if _fields(kind)]
    notes = [" ".join(text.split()) for text in said]
    description = " ".join(filter(None, (operation.summary, operation.hint, *notes)))
    return Tool(name, description, _schema(operation, role), operation, role)


def _kinds(operation: Operation) -> list[type[msgspec.Struct]]:
    body = operation.body
    return [operation.query, *([body] if body is not None and issubclass(body, msgspec.Struct) else [])]


def _fields(kind: type[Any]) -> tuple[str, ...]:
    return tuple(each.encode_name for each in msgspec.structs.fields(kind))


def _schema(operation: Operation, role: Role) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    needed: list[str] = []
    if role != "agent":
        needed = list(operation.parameters)
        properties |= {name: {"type": "string", "minLength": 1} for name in needed}
    kinds = _kinds(operation)
    _, components = msgspec.json.schema_components(kinds, ref_template=REFERENCES)
    for kind in kinds:
        own = components.pop(kind.__name__)
        properties |= own.get("properties", {})
        needed += own.get("required", [])
    if role == "agent":
        properties = {name: schema for name, schema in properties.items() if name not in _NOT_FOR_AGENTS}
    if operation.changes:
        properties[KEY] = {"type": "string", "maxLength": 200, "description": _KEY_WORDS}
    made = {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}
    return {**made, **({"$defs": components} if components else {})}


# -- a call -----------------------------------------------------------------------------------------------------------


def request_of(tool: Tool, arguments: Mapping[str, Any], own_task: str = "") -> ToolRequest:
    """The request that a call is; `own_task` is that of an agent. Raises ArgumentsUnfit."""
    operation, rest = tool.operation, dict(arguments)
    if unknown := sorted(rest.keys() - tool.schema["properties"].keys()):
        known = ", ".join(tool.schema["properties"]) or "none"
        detail = f"The tool {tool.name} has no argument {', '.join(unknown)}; its arguments are: {known}."
        raise ArgumentsUnfit(f"{detail} Nothing was asked.")
    key = rest.pop(KEY, "") if operation.changes else ""
    path = operation.path
    for name in operation.parameters:
        value = own_task if tool.role == "agent" else rest.pop(name, None)
        if not isinstance(value, str) or not value:
            raise ArgumentsUnfit(f"The tool {tool.name} needs the argument {name}, a text. Nothing was asked.")
        path = path.replace(f"{{{name}}}", quote(value, safe=""))
    asked = {name: rest.pop(name) for name in _fields(operation.query) if name in rest}
    query = urlencode({name: _plain(value) for name, value in asked.items()}, doseq=True)
    content = msgspec.json.encode(rest) if operation.body is not None else b""
    return ToolRequest(operation.method, f"{path}?{query}" if query else path, content, str(key))


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return str(value).lower() if isinstance(value, bool) else str(value)


def answer_of(status: int, content: bytes) -> ToolAnswer:
    """The answer for the caller: JSON as the API gives it, or the sentence of its problem document."""
    if status < 400:
        return ToolAnswer(content.decode(errors="replace") or "{}")
    try:
        problem = msgspec.json.decode(content)
        told = f"{problem['detail']} ({problem['code']})"
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        told = f"Holdfast answered with status {status}. Nothing else is known."
    return ToolAnswer(told, is_error=True)
