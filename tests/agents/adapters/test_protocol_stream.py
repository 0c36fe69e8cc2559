"""The state machine of the Agent Client Protocol, without a process: what it sends, and what an agent's lines mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.agents.adapters.acp_stream import AcpStream
from holdfast.domain.agent_events import (
    AUTH,
    REFUSED,
    UNREACHABLE,
    AgentEvent,
    Finished,
    PersonAsked,
    RateLimited,
    Said,
    SessionBegan,
    Spent,
    ToolEnded,
    ToolStarted,
)
from holdfast.domain.attempt_records import Launch, ProtocolCall
from holdfast.questions.records import Verdict
from holdfast.questions.rules import Mode, PermissionPolicy
from kit.recorded_streams import kinds, line, recorded

FIRST = {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}


class Wire:
    """A stream, and what it has sent."""

    def __init__(self, *, mode: Mode = "skip", model: str = "", program: str = "mine") -> None:
        call = ProtocolCall(title="mine", program=program, sets_model=bool(model), sign_in="Sign in with it")
        launch = Launch(("mine",), stdin="Do it.", model=model, protocol=call, policy=PermissionPolicy(mode))
        self.stream = AcpStream(launch, "/worktree")
        self.events: list[AgentEvent] = []

    def sent(self) -> list[dict[str, Any]]:
        return [json.loads(each) for each in self.stream.outgoing().splitlines()]

    def read(self, **record: Any) -> list[AgentEvent]:
        found = self.stream.read(line(jsonrpc="2.0", **record))
        self.events += found
        return list(found)

    def open(self, first: dict[str, Any] = FIRST, **opened: Any) -> Wire:
        """Up to the prompt, which has the number 3."""
        self.read(id=1, result=first)
        self.read(id=2, **(opened or {"result": {"sessionId": "s"}}))
        return self


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        ({"code": -32000, "message": "Authentication required"}, AUTH, "Sign in with it"),
        ({"code": 429, "message": "Rate limit exceeded"}, "limited", "Rate limit"),
        ({"code": -32603, "message": "no", "data": {"details": "fetch failed: ECONNREFUSED"}}, UNREACHABLE, "fetch"),
        ({"code": 503, "message": "no words"}, UNREACHABLE, "no words"),
        ({"code": 500, "message": "Incomplete JSON"}, "", "Incomplete"),
        ({"code": -32603, "message": "no words", "data": {"errorKind": "rate_limit"}}, "limited", "no words"),
        ({"code": -32603, "message": "API Error: Request rejected (401) no words"}, AUTH, "Sign in"),
        ({"code": -32603, "message": "API Error: 529 no words"}, UNREACHABLE, "no words"),
        ({"code": -32603, "message": "Boom"}, "", "Boom"),
        ({}, "", "did not say why"),
        ("no object", "", "did not say why"),
    ],
)
def test_an_error_of_the_prompt_is_what_it_means_for_the_task(error: Any, kind: str, told: str) -> None:
    (last,) = Wire().open().read(id=3, error=error)
    assert isinstance(last, Finished | RateLimited) and told in last.detail
    assert ("limited" if isinstance(last, RateLimited) else last.kind) == kind


@pytest.mark.parametrize(
    ("wire", "kind", "told"),
    [
        (lambda: Wire().open().read(id=3, result={"stopReason": "refusal"}), REFUSED, "refused"),
        (lambda: Wire().open().read(id=3, result={"stopReason": "max_tokens"}), "", "most tokens"),
        (lambda: Wire().open().read(id=3, result={"stopReason": "whatever"}), "", "'whatever'"),
        (lambda: Wire().open().read(id=3, result=[7]), "", "'nothing'"),
        (
            lambda: Wire().open({"protocolVersion": 2}).events,
            "",
            "version 2 of the protocol; Holdfast speaks version 1",
        ),
        (lambda: Wire().open(error={"code": -32000, "message": "Log in"}).events, AUTH, "mine is not signed in"),
        (lambda: Wire(model="large").open().events, "", "does not offer the model large"),
        (lambda: Wire().open().stream.end(3), "", "code 3"),
    ],
)
def test_an_end_without_success_says_why(wire: Any, kind: str, told: str) -> None:
    (last,) = wire()
    assert isinstance(last, Finished) and not last.ok and last.kind == kind and told in last.detail


@pytest.mark.parametrize(("name", "usd"), [("claude", 0.019375), ("gemini", 0.005125), ("opencode", 0.0)])
def test_a_recorded_task_that_lands_is_read_with_its_turns_and_its_cost(name: str, usd: float) -> None:
    """The cost of claude-agent-acp is that of the three requests of the task: it asks for no title."""
    events = recorded(f"acp_{name}", "a_task_lands.1", "loopback/small" if name == "opencode" else "")
    (session,) = kinds(events, SessionBegan)
    tools, ends, spent = kinds(events, ToolStarted), kinds(events, ToolEnded), kinds(events, Spent)
    assert session.id and [tool.call for tool in tools] == [end.call for end in ends] and len(tools) == 2
    assert [each.text for each in kinds(events, Said)] == ["I write the file. Grüße! ✓", "I look at it.", "It is done."]
    assert sum(each.usd for each in spent) == pytest.approx(usd) and events[-1] == Finished(True, "It is done.")
    if name != "opencode":
        assert (sum(each.tokens_in for each in spent), sum(each.tokens_out for each in spent)) == (3500, 75)


@pytest.mark.parametrize("method", ["fs/read_text_file", "fs/write_text_file", "terminal/create", "x/" + "y" * 500])
def test_a_method_that_is_not_offered_is_answered_with_an_error(method: str) -> None:
    wire = Wire().open()
    assert [each["method"] for each in wire.sent()] == ["initialize", "session/new", "session/prompt"]
    assert wire.read(id="req", method=method, params={"path": "/etc/passwd"}) == []
    (answer,) = wire.sent()
    assert answer["id"] == "req" and answer["error"]["code"] == -32601 and len(answer["error"]["message"]) < 200


@pytest.mark.parametrize(
    ("mode", "kind", "decision", "is_allowed"),
    [
        ("skip", "execute", "allow", True),
        ("edits", "edit", "own", True),
        ("edits", "execute", "own", False),
        ("own", "edit", "own", False),
        ("ask", "edit", "allow", True),
        ("ask", "edit", "deny", False),
    ],
)
def test_a_request_for_permission_is_answered_by_the_decision(
    mode: Mode, kind: str, decision: Any, is_allowed: bool
) -> None:
    wire = Wire(mode=mode).open()
    wire.sent()
    options = [{"optionId": "y", "kind": "allow_once"}, {"optionId": "n", "kind": "reject_once"}]
    tool = {"toolCallId": "c", "kind": kind, "title": "make test", "rawInput": {"command": "make test"}}
    params = {"sessionId": "s", "toolCall": tool, "options": options}
    *_, asked = wire.read(id=0, method="session/request_permission", params=params)
    assert isinstance(asked, PersonAsked) and json.loads(asked.input) == {"command": "make test"} and not wire.sent()
    answer = json.loads(wire.stream.reply(asked, Verdict(decision)))
    assert answer["id"] == 0 and answer["result"]["outcome"]["optionId"] == ("y" if is_allowed else "n")
    assert wire.stream.reply(asked, Verdict(decision)) == b"", "it was answered"


def deny(wire: Wire, words: str, *, is_answer: bool = True) -> None:
    options = [{"optionId": "n", "kind": "reject_once"}]
    params = {"sessionId": "s", "toolCall": {"toolCallId": "c", "title": "make test"}, "options": options}
    *_, asked = wire.read(id=0, method="session/request_permission", params=params)
    assert isinstance(asked, PersonAsked)
    wire.stream.reply(asked, Verdict("deny", words, is_answer=is_answer))


@pytest.mark.parametrize("reason", ["end_turn", "cancelled"])
def test_a_persons_reason_is_the_next_prompt_of_the_same_conversation_and_comes_once(reason: str) -> None:
    wire = Wire(mode="ask").open()
    wire.sent()
    deny(wire, "The moon is full.")
    assert not wire.sent() and not wire.read(id=3, result={"stopReason": reason})
    (prompt,) = wire.sent()
    assert prompt["method"] == "session/prompt" and prompt["params"]["sessionId"] == "s"
    told = prompt["params"]["prompt"][0]["text"]
    assert "make test" in told and "The moon is full." in told
    deny(wire, "The moon is full.")
    (last,) = wire.read(id=4, result={"stopReason": "end_turn"})
    assert isinstance(last, Finished) and last.ok and not wire.sent()


def test_a_call_that_a_rule_denies_is_rejected_without_another_prompt() -> None:
    wire = Wire(mode="ask").open()
    wire.sent()
    deny(wire, "The rules of this project forbid it.", is_answer=False)
    (last,) = wire.read(id=3, result={"stopReason": "end_turn"})
    assert isinstance(last, Finished) and last.ok and not wire.sent()


@pytest.mark.parametrize(("program", "is_sent"), [("mine", True), ("gemini", False)])
def test_a_prompt_is_cancelled_where_its_conversation_is_found_again(program: str, is_sent: bool) -> None:
    wire = Wire(program=program)
    assert not wire.stream.cancel(), "nothing has begun"
    assert bool(wire.open().stream.cancel()) is is_sent


def test_a_request_without_usable_options_is_cancelled_and_too_many_are_refused() -> None:
    wire = Wire().open()
    wire.sent()
    *_, asked = wire.read(id="a", method="session/request_permission", params={"options": [{"kind": 7}, "x"]})
    assert isinstance(asked, PersonAsked)
    assert json.loads(wire.stream.reply(asked, Verdict("allow")))["result"]["outcome"] == {"outcome": "cancelled"}
    for number in range(150):
        wire.read(id=number, method="session/request_permission", params={})
    assert len(wire.sent()) == 50


def test_a_diff_is_shown_to_the_person_who_is_asked() -> None:
    """As Gemini CLI asks: without the input of the tool."""
    wire = Wire(mode="ask").open()
    change = {"type": "diff", "path": "/worktree/a", "oldText": "one\n", "newText": "two\n"}
    tool = {"toolCallId": "c", "kind": "edit", "title": "Writing to a", "content": [change]}
    (asked,) = wire.read(id=1, method="session/request_permission", params={"toolCall": tool, "options": []})
    assert isinstance(asked, PersonAsked) and asked.preview == "--- /worktree/a\n+++ /worktree/a\n-one\n+two"
    assert json.loads(asked.input) == {"path": "/worktree/a", "content": "two\n"}


@pytest.mark.parametrize("kind", ["echo", "garbage", "nothing"])
def test_a_program_that_is_no_agent_is_said_not_to_speak_the_protocol(kind: str) -> None:
    wire = Wire()
    if kind == "echo":
        (last,) = wire.stream.read(wire.stream.outgoing())
    else:
        wire.stream.read(b"Usage: mine [FILE]\n" if kind == "garbage" else b"")
        (last,) = wire.stream.end(2)
    assert isinstance(last, Finished) and not last.ok
    assert last.detail.startswith("mine does not speak the Agent Client Protocol: ")
    assert "`holdfast attach worktree --raw`" in last.detail
    assert ("It printed last: Usage: mine [FILE]." in last.detail) is (kind == "garbage")


@pytest.mark.parametrize(
    ("program", "said", "is_good"), [("gemini", "", False), ("gemini", "Done.", True), ("mine", "", True)]
)
def test_an_end_without_an_answer_to_the_last_tool_is_geminis_lost_connection(
    program: str, said: str, is_good: bool
) -> None:
    wire = Wire(program=program).open()
    tool = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "ls", "rawInput": {"command": "ls"}}
    for update in (tool, {**tool, "sessionUpdate": "tool_call_update", "status": "completed"}):
        wire.read(method="session/update", params={"sessionId": "s", "update": update})
    if said:
        chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": said}}
        wire.read(method="session/update", params={"sessionId": "s", "update": chunk})
    last = wire.read(id=3, result={"stopReason": "end_turn"})[-1]
    assert isinstance(last, Finished) and (last.ok, last.kind) == (is_good, "" if is_good else UNREACHABLE)


@pytest.mark.parametrize(
    ("program", "tokens", "kind"), [("gemini", 10, REFUSED), ("gemini", 0, UNREACHABLE), ("mine", 0, "")]
)
def test_an_end_without_a_word_and_without_a_deed_is_geminis_refusal_or_its_lost_connection(
    program: str, tokens: int, kind: str
) -> None:
    wire = Wire(program=program).open()
    counted = {"quota": {"token_count": {"input_tokens": 10 * tokens, "output_tokens": tokens}, "model_usage": []}}
    last = wire.read(id=3, result={"stopReason": "end_turn", "_meta": counted})[-1]
    assert isinstance(last, Finished) and (last.ok, last.kind) == (kind == "", kind)


def test_a_recorded_refusal_of_gemini_is_one() -> None:
    last = recorded("acp_gemini", "a_refusal_is_a_failed_attempt.1", program="gemini")[-1]
    assert isinstance(last, Finished) and last.kind == REFUSED and "without a word" in last.detail
