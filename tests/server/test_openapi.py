"""The OpenAPI document says what the server does, and the pages that are made of it are up to date."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import apidocs
from holdfast.cli.commands import COMMANDS
from holdfast.decisions.mailbox import DECISIONS
from holdfast.server import routes
from holdfast.server.openapi import document, statuses
from holdfast.server.operations import Operation
from holdfast.server.static import WEB
from kit.server import Server

OPERATIONS = routes.all_operations()


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "$ref":
                yield inner
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_every_module_of_routes_is_in_the_list() -> None:
    listed = re.findall(r"\*(\w+)\.OPERATIONS", inspect.getsource(routes.all_operations))
    assert sorted(listed) == sorted(each.stem for each in Path(routes.__path__[0]).rglob("[!_]*.py"))


# Decisions that a command of another name makes.
COMMAND_OF = {"settle": "resolve", "give_back": "give-back", "enable": "plugins", "disable": "plugins"}
COMMAND_OF |= {"replay": "triggers", "rearm": "triggers"}


@pytest.mark.parametrize("kind", DECISIONS)
def test_every_decision_has_its_command_and_its_route(kind: str) -> None:
    assert COMMAND_OF.get(kind, kind) in COMMANDS
    about = ("task", "attempt", "agent", "message", "plugin", "rule", "delivery", "source")
    assert {f"{kind}_{what}" for what in about} & {each.name for each in OPERATIONS}


def test_the_served_document_is_whole_and_public(server: Server) -> None:
    answer = server.nobody.ask("GET", "/openapi.json")
    assert answer.status == 200 and answer.json == json.loads(json.dumps(document(OPERATIONS)))
    made = answer.json
    assert made["openapi"].startswith("3.1.") and set(references(made))
    for reference in references(made):
        inner = made
        for name in reference.removeprefix("#/").split("/"):
            inner = inner[name]
    listed = {(method, path) for path, methods in made["paths"].items() for method in methods}
    assert listed == {(each.method.lower(), each.path) for each in OPERATIONS}
    names = [each["operationId"] for methods in made["paths"].values() for each in methods.values()]
    assert len(names) == len(set(names)) == len(OPERATIONS)


def test_every_parameter_header_and_answer_is_described() -> None:
    made = document(OPERATIONS)
    for each in OPERATIONS:
        told = made["paths"][each.path][each.method.lower()]
        by_place = {(parameter["in"], parameter["name"]) for parameter in told["parameters"]}
        assert {("path", name) for name in re.findall(r"\{(\w+)\}", each.path)} <= by_place
        assert (("header", "Idempotency-Key") in by_place) == (each.changes and each.admit is None)
        assert ("requestBody" in told) == (each.body is not None)
        assert {str(each.status), *map(str, statuses(each))} == set(told["responses"])
        assert (told["security"] == []) == (each.right == "public")
    assert "204" in made["paths"]["/tasks/claim"]["post"]["responses"]
    assert {"412", "409"} <= made["paths"]["/tasks/{task}"]["patch"]["responses"].keys()
    edited = made["paths"]["/tasks/{task}"]["patch"]["parameters"]
    assert "If-Match" in [parameter["name"] for parameter in edited]
    for path in ("/events", "/agents/{attempt}/output"):
        told = made["paths"][path]["get"]
        assert "Last-Event-ID" in [parameter["name"] for parameter in told["parameters"]]
        assert "text/event-stream" in told["responses"]["200"]["content"]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_nothing_is_answered_that_the_document_does_not_know(server: Server, operation: Operation) -> None:
    """Asked by somebody who gets everything wrong, and by somebody without a token."""
    path = re.sub(r"\{\w+\}", "nothing", operation.path)
    known = {operation.status, *statuses(operation)}
    for client, query, body in (
        (server.operator, "?limit=-1", None),
        (server.operator, "?nonsense=1", b"{}"),
        (server.operator, "", b"\xff"),
        (server.reader, "", b"[]"),
        (server.nobody, "", b"{}"),
    ):
        if operation.name == "follow_events" and not query and client is not server.nobody:
            continue
        answer = client.ask(operation.method, path + query, body)
        assert answer.status in known, (answer, query, body)
        assert answer.status < 400 or answer.code


def test_the_docs_page_takes_nothing_from_elsewhere(server: Server) -> None:
    page = server.nobody.ask("GET", "/docs")
    assert page.status == 200 and page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    wanted = re.findall(r'(?:src|href)="([^"]+)"', page.content.decode())
    assert wanted and all(each.startswith("/") and not each.startswith("//") for each in wanted)
    for each in wanted:
        assert server.nobody.ask("GET", each).status == 200, each
    script = (WEB / "docs.js").read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|https?://", script)


def test_the_table_of_docs_is_what_the_operations_say() -> None:
    assert apidocs.main(["--check"]) == 0, "docs/api.md is stale: run `make docs`"


def test_a_stale_table_is_seen_and_made_anew(tmp_path: Path) -> None:
    page = tmp_path / "api.md"
    page.write_text("<!-- generated: operations -->\nold\n<!-- end -->\n")
    assert apidocs.main(["--check"], page) == 1
    assert apidocs.main([], page) == 0
    assert apidocs.main(["--check"], page) == 0
    assert "`/tasks/{task}/claim`" in page.read_text()
