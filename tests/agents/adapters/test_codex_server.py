"""Codex by its app-server: what it is sent, and what its lines mean."""

from __future__ import annotations

import json

from holdfast.agents.adapters.codex_server import CodexServerStream
from holdfast.domain.attempt_records import Launch
from kit.recorded_streams import line


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
