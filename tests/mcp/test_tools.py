"""Every operation that is flagged as a tool makes a whole one, for everybody who is offered it."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec
import pytest

from holdfast.engine.prompt import COMMANDS, TOOLS
from holdfast.mcp import agent_command
from holdfast.mcp.tools import KEY, ArgumentsUnfit, Tool, answer_of, request_of, tools_of
from holdfast.mcp.without_run import COMMAND_LINES
from holdfast.server.operations import Operation
from holdfast.server.routes import all_operations

FLAGGED = [each for each in all_operations() if each.tool is not None]
ROLES: tuple[Any, ...] = ("operator", "reader", "agent")
TOOLS_OF_ALL = [tool for role in ROLES for tool in tools_of(role).values()]
# What a person's session cannot do where no run lives: the answer says what to type.
NEED_A_RUN = {"review_task", "show_review_diff"}


@pytest.mark.parametrize("operation", FLAGGED, ids=lambda each: each.name)
def test_a_flagged_operation_is_offered_and_fit_to_be_a_tool(operation: Operation) -> None:
    assert operation.summary.endswith(".") and (not operation.hint or operation.hint.endswith("."))
    assert operation.body is not bytes and operation.media_type == "application/json"
    kinds = [kind for kind in (operation.query, operation.body) if isinstance(kind, type) and kind is not bytes]
    fields = [each.encode_name for kind in kinds for each in msgspec.structs.fields(kind)]
    names = [*operation.parameters, *fields, KEY]
    assert len(names) == len(set(names)), "two arguments have one name"
    if operation.tool in ("agent", "both"):
        assert operation.parameters == ["task"] and operation.right in ("read", "work"), "it is about one task"
        assert operation.name.endswith("_task")
    if operation.changes and operation.tool == "agent":
        assert operation.hint, "a model has to know when to call it"
    assert any(tool.operation is operation or tool.operation.name == operation.name for tool in TOOLS_OF_ALL)


@pytest.mark.parametrize("tool", TOOLS_OF_ALL, ids=lambda each: f"{each.role}-{each.name}")
def test_a_tool_says_what_it_does_and_takes(tool: Tool) -> None:
    assert 10 < len(tool.description) < 1000 and tool.name.isidentifier()
    properties = tool.schema["properties"]
    assert set(tool.schema["required"]) <= properties.keys()
    for name, schema in properties.items():
        assert isinstance(schema, dict) and (schema or name == "context"), name
    assert (KEY in properties) == tool.operation.changes
    text = msgspec.json.encode(tool.schema).decode()
    assert text.count("$ref") == text.count('"$ref":"#/$defs/')
    assert ("task" in properties) == (tool.role != "agent" and bool(tool.operation.parameters))


def test_each_role_has_its_own_tools() -> None:
    assert set(tools_of("agent")) == {"progress", "ask", "split", "block", "show"}
    assert "claim" not in tools_of("agent")["progress"].schema["properties"]
    person, reader = set(tools_of("operator")), set(tools_of("reader"))
    assert {"add_task", "list_tasks", "show_review", "review_task", "answer_task", "questions"} <= person
    assert reader < person and all(not tools_of("reader")[name].operation.changes for name in reader)


def test_a_prompt_names_every_tool_of_an_agent() -> None:
    for name in tools_of("agent"):
        assert f"`{name}`" in TOOLS
    assert len(TOOLS) < 500


def test_the_command_of_agents_has_what_changes_something() -> None:
    (actions,) = (each for each in agent_command._parser()._actions if isinstance(each, argparse._SubParsersAction))
    wanted = {name for name, tool in tools_of("agent").items() if tool.operation.method != "GET"}
    assert set(actions.choices) == wanted
    assert all(f"`{name} " in COMMANDS for name in wanted)


def test_every_tool_of_a_person_has_its_command_or_needs_a_run() -> None:
    assert set(COMMAND_LINES) | NEED_A_RUN == set(tools_of("operator"))


def test_arguments_become_a_request_in_which_nothing_can_break_out() -> None:
    found = request_of(tools_of("operator")["list_tasks"], {"state": ["OPEN", "FAILED"], "text": "a&b=c", "limit": 3})
    assert (found.method, found.target) == ("GET", "/tasks?state=OPEN&state=FAILED&text=a%26b%3Dc&limit=3")
    found = request_of(tools_of("operator")["cancel_task"], {"task": "../x?y#z", "key": "k"})
    assert (found.target, found.content, found.key) == ("/tasks/..%2Fx%3Fy%23z/cancel", b"{}", "k")
    assert request_of(tools_of("agent")["progress"], {"message": "m"}, "own").target == "/tasks/own/progress"


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("cancel_task", {}, "needs the argument task"),
        ("cancel_task", {"task": ""}, "needs the argument task"),
        ("cancel_task", {"task": 5}, "needs the argument task"),
        ("cancel_task", {"task": "a", "why": "b"}, "has no argument why; its arguments are: task, key"),
        ("status", {"x": 1}, "its arguments are: none"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_a_sentence(name: str, given: dict[str, Any], told: str) -> None:
    with pytest.raises(ArgumentsUnfit, match=told):
        request_of(tools_of("operator")[name], given)


def test_an_agent_cannot_name_another_task() -> None:
    with pytest.raises(ArgumentsUnfit, match="no argument task"):
        request_of(tools_of("agent")["progress"], {"message": "m", "task": "other"}, "own")


def test_an_answer_that_is_no_problem_document_is_an_error_all_the_same() -> None:
    assert answer_of(200, b"{}").text == "{}" and not answer_of(204, b"").is_error
    for content in (b"", b"<html>", b"[]", b"\xff"):
        found = answer_of(502, content)
        assert found.is_error and "502" in found.text
