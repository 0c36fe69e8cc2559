"""Codex by its app-server: what it is sent, and what its lines mean."""

from __future__ import annotations

import json

from holdfast.agents.adapters.codex_server import CodexServerStream
from holdfast.domain.agent_events import Finished, PersonAsked, Said, SessionBegan, Spent, ToolEnded, ToolStarted
from holdfast.domain.attempt_records import Launch
from holdfast.questions.records import Verdict
from kit.recorded_streams import FIXTURES, kinds, line, recorded, stream

ASKED = "a_call_is_made_once_or_not_at_all_when_its_orchestrator_was_killed_while_it_asked.1"
KILLED = "an_agent_killed_while_the_real_codex_waits_is_not_asked_about_twice.1"


def test_a_recorded_call_is_asked_about_and_denied() -> None:
    events = recorded("codex_server", ASKED, "gpt-5.2-codex")
    (session,), (asked,) = kinds(events, SessionBegan), kinds(events, PersonAsked)
    assert session.id and asked.name == "shell" and asked.kind == "permission"
    assert json.loads(asked.input)["command"].startswith("echo x >> /top/")
    (tool,), (ended,) = kinds(events, ToolStarted), kinds(events, ToolEnded)
    assert tool.call == ended.call and not ended.ok
    assert [each.text for each in kinds(events, Said)] == ["Let me.", "Done."] and events[-1] == Finished(True)
    spent = kinds(events, Spent)
    assert (sum(each.tokens_in for each in spent), sum(each.tokens_out for each in spent)) == (200, 20)


def test_a_denial_is_sent_with_its_reason_to_the_turn_that_asked() -> None:
    (path,) = FIXTURES.glob(f"codex_server-*/{ASKED}.jsonl")
    reader = stream("codex_server")
    assert isinstance(reader, CodexServerStream)
    asked = kinds([event for each in path.read_bytes().split(b"\n") for event in reader.read(each)], PersonAsked)
    declined, steer = map(json.loads, reader.reply(asked[0], Verdict("deny", "the moon is full")).splitlines())
    assert (declined["id"], declined["result"]) == (0, {"decision": "decline"})
    assert steer["method"] == "turn/steer" and steer["params"]["input"][0]["text"] == "the moon is full"
    assert steer["params"]["threadId"] and steer["params"]["expectedTurnId"]


def test_a_resumed_conversation_is_the_same_and_asks_the_same_again() -> None:
    events = recorded("codex_server", KILLED, "gpt-5.2-codex")
    first, second = kinds(events, SessionBegan)
    one, two = kinds(events, PersonAsked)
    assert first.id == second.id and (one.name, one.input) == (two.name, two.input)
    assert kinds(events, ToolEnded)[-1].ok and events[-1] == Finished(True)


def test_a_turn_under_way_is_interrupted_and_one_that_has_ended_is_not() -> None:
    stream = CodexServerStream(Launch(("codex",), stdin="Do it.", model="m"))
    assert not stream.cancel(), "nothing has begun"
    stream.read(line(id=1, result={}))
    stream.read(line(id=2, result={"thread": {"id": "t"}}))
    stream.read(line(id=3, result={"turn": {"id": "u"}}))
    sent = json.loads(stream.cancel())
    assert sent["method"] == "turn/interrupt" and sent["params"] == {"threadId": "t", "turnId": "u"}
    assert not stream.read(line(id=sent["id"], error={"message": "there is no such turn"}))
    stream.read(line(method="turn/completed", params={"turn": {"status": "interrupted"}}))
    assert not stream.cancel()
