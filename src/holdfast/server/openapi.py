"""The OpenAPI document, made of the operations themselves: their paths, types and rights.

So it cannot say anything else than the code does. What every operation shares (tokens, keys, limits and the problems
that come with them) is said here once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast import __version__
from holdfast.server.operations import Operation
from holdfast.server.problems import CONTENT_TYPE, TITLES, ProblemDocument

VERSION = "3.1.0"
REFERENCES = "#/components/schemas/{name}"
DESCRIPTION = (
    "Tasks, the agents that work on them, and what they made. Every answer to a change means that the change is on "
    "disk. Times are Unix seconds. Whatever is refused is a problem document (RFC 9457) and has changed nothing."
)
TAGS = {
    "tasks": "Tasks: adding, showing, working on them, deciding about them.",
    "attempts": "What an attempt did, turn by turn.",
    "reviews": "What a person says of a result before it lands.",
    "agents": "The agents at work now.",
    "events": "What happens, as it happens.",
    "journal": "The one ledger.",
    "blobs": "Bytes under the name of their own SHA-256.",
    "costs": "What work has cost.",
    "quality": "Gates and verdicts.",
    "status": "The run as a whole.",
    "messages": "Messages that leave, and have not left yet.",
    "triggers": "What arrives from elsewhere, and the rules that make tasks of it.",
    "plugins": "Installed packages that are called for what happens, and provide agents and gates.",
    "auth": "Tokens.",
    "health": "For monitors of the server.",
}
_ONE_OF_ITS_KIND = ("edit_task",)


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    listed = list(operations)
    types = _Types(listed)
    paths: dict[str, Any] = {}
    for each in listed:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, types)
    known = {each.tag for each in listed}
    return {
        "openapi": VERSION,
        "info": {"title": "Holdfast", "version": __version__, "description": DESCRIPTION},
        "tags": [{"name": name, "description": TAGS.get(name, "")} for name in [*TAGS, *known - TAGS.keys()]],
        "paths": paths,
        "components": {
            "schemas": types.components,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "runtime/secret/server.json has the operator's token and the reader's.",
                }
            },
            "responses": {
                str(status): {"description": title, "content": {CONTENT_TYPE: {"schema": types[_PROBLEM]}}}
                for status, title in TITLES.items()
                if status >= 400
            },
        },
    }


class _Types:
    """The schemas of all types, made at once, so that each type has one name in the document.

    By what they are for: an operation's name, and `answer`, `body` or the name of a field of its query.
    """

    def __init__(self, operations: list[Operation]) -> None:
        kinds: dict[tuple[str, str], Any] = {_PROBLEM: ProblemDocument}
        for each in operations:
            if _is_described(each):
                kinds[each.name, "answer"] = each.answer
            if each.body not in (None, bytes):
                kinds[each.name, "body"] = each.body
            kinds |= {(each.name, f"?{field.name}"): field.type for field in msgspec.structs.fields(each.query)}
        schemas, self.components = msgspec.json.schema_components(kinds.values(), ref_template=REFERENCES)
        self._schemas = dict(zip(kinds, schemas, strict=True))

    def __getitem__(self, what: tuple[str, str]) -> dict[str, Any]:
        return self._schemas[what]


_PROBLEM = ("", "problem")


def _is_described(operation: Operation) -> bool:
    return operation.answer not in (None, str, bytes)


def _operation(operation: Operation, types: _Types) -> dict[str, Any]:
    text = {"type": "string", "minLength": 1}
    path = [{"name": name, "in": "path", "required": True, "schema": text} for name in operation.parameters]
    made: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [*path, *_query(operation, types), *_headers(operation)],
        "responses": _responses(operation, types),
        "security": [] if operation.right == "public" else [{"bearer": []}],
        "x-right": operation.right,
    }
    if operation.body is bytes:
        content: dict[str, Any] = {"application/octet-stream": {"schema": {}}}
        made["requestBody"] = {"required": True, "content": content}
    elif operation.body is not None:
        assert issubclass(operation.body, msgspec.Struct)
        is_needed = any(field.required for field in msgspec.structs.fields(operation.body))
        made["requestBody"] = {
            "required": is_needed,
            "content": {"application/json": {"schema": types[operation.name, "body"]}},
        }
    return made


# -- parameters -------------------------------------------------------------------------------------------------------


def _query(operation: Operation, types: _Types) -> list[dict[str, Any]]:
    made = []
    for field in msgspec.structs.fields(operation.query):
        schema = dict(types[operation.name, f"?{field.name}"])
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if default is not msgspec.NODEFAULT and default is not None:
            schema["default"] = msgspec.to_builtins(default)
        made.append({"name": field.encode_name, "in": "query", "required": field.required, "schema": schema})
    return made


def _headers(operation: Operation) -> list[dict[str, Any]]:
    made = []
    if operation.changes and operation.admit is None:
        told = "The same key gets the same answer, and has one effect, also across restarts."
        schema = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[ -~]+$"}
        made.append(_header("Idempotency-Key", told, schema))
    if operation.name in _ONE_OF_ITS_KIND:
        made.append(_header("If-Match", "The etag of what was read: it is only changed where it is still that."))
    if "text/event-stream" in operation.media_type:
        made.append(_header("Last-Event-ID", "Goes on behind the event with this id."))
    return made


def _header(name: str, told: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": told, "schema": schema or {"type": "string"}}


# -- answers ----------------------------------------------------------------------------------------------------------


def _responses(operation: Operation, types: _Types) -> dict[str, Any]:
    schema: dict[str, Any] = {} if operation.answer is bytes else {"type": "string"}
    if _is_described(operation):
        schema = types[operation.name, "answer"]
    media = operation.media_type.split(", ")
    made: dict[str, Any] = {}
    if operation.answer is None:
        made["204"] = {"description": "It is done."}
    else:
        # A stream is text to its reader, whatever else the operation can answer.
        text = {"type": "string"}
        content = {each: {"schema": text if each == "text/event-stream" else schema} for each in media}
        made[str(operation.status)] = {"description": operation.summary, "content": content}
    for status in statuses(operation):
        if status < 400:
            made[str(status)] = {"description": "There is nothing to answer."}
        else:
            made[str(status)] = {"$ref": f"#/components/responses/{status}"}
    return made


def statuses(operation: Operation) -> list[int]:
    """Every status beside that of success.

    A query that it does not know is refused by every operation, and so is a request from another site's page.
    """
    found = {403, 421, 422, *operation.problems}
    if operation.right != "public":
        found.add(401)
    if operation.parameters:
        found.add(404)
    if operation.body is not None:
        found |= {400, 413} if operation.body is not bytes else {413}
    if operation.changes:
        found |= {413, 503}
    return sorted(found)
