"""What was spent stays spent, whatever a later line says; and what an agent says of its work has an end."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.domain.attempt_records import Ending, Launch
from holdfast.server.access import quotas
from holdfast.server.operations import Ask, NoQuery, Principal
from holdfast.server.problems import Problem
from holdfast.server.routes.work import OPERATIONS, Progress
from kit.runner import Bench


def _result(usd: float, text: str) -> str:
    used = {"m": {"inputTokens": 10, "outputTokens": 10}}
    line = {"type": "result", "subtype": "success", "is_error": False, "result": text, "total_cost_usd": usd}
    return json.dumps(line | {"modelUsage": used})


def _run(bench: Bench, *lines: str) -> float:
    script = "\n".join(f"echo '{line}'" for line in lines)
    launch = Launch(("sh", "-c", script), files={"x": "y"}, has_hook=True, stream="claude")
    ended = bench.run(agent="claude", launch=launch)
    assert ended.ending is Ending.DONE and ended.detail != "cheap"
    return ended.spent.usd


def test_a_second_result_does_not_hide_what_was_spent(bench: Bench) -> None:
    assert _run(bench, _result(5.0, "dear"), _result(0.01, "cheap")) == pytest.approx(5.0)


def test_a_correction_does_not_lower_what_was_counted(bench: Bench) -> None:
    """The estimates were held against the budget already."""
    usage = {"input_tokens": 1_000_000, "output_tokens": 1}
    begun = {"type": "message_start", "message": {"model": "claude-opus-4-8", "usage": usage}}
    told = json.dumps({"type": "stream_event", "event": begun})
    assert _run(bench, told, _result(0.0, "nothing")) >= 5.0


def _ask(text: str = "", attempt: str = "t.1") -> tuple[Ask, str]:
    return Ask(principal=Principal("agent", "agent", "t", attempt), path={}, query=NoQuery(), body=None), text


def test_an_agents_messages_have_a_rate_and_a_sum() -> None:
    now = [0.0]
    room = quotas.Quotas(lambda: now[0])
    for _ in range(quotas.MESSAGES_AT_ONCE):
        room.expect_room(*_ask("x"))
    with pytest.raises(Problem) as refused:
        room.expect_room(*_ask("x"))
    assert refused.value.document.status == 429 and refused.value.document.code == "says_too_often"
    room.expect_room(*_ask("x", "u.1"))
    now[0] += 2 * quotas.PAUSE_S
    room.expect_room(*_ask("x"))
    for _ in range(quotas.CHARS_MAX // 10_000):
        now[0] += quotas.PAUSE_S
        room.expect_room(*_ask("x" * 10_000))
    now[0] += 1e6
    with pytest.raises(Problem) as refused:
        room.expect_room(*_ask("x" * 10_000))
    assert refused.value.document.code == "said_too_much"


def test_progress_is_asked_for_its_room_before_it_is_written() -> None:
    operation = next(each for each in OPERATIONS if each.name == "progress_task")
    body = Progress("x" * 9_000)
    ask = Ask(principal=Principal("agent", "agent", "t", "t.1"), path={}, query=NoQuery(), body=body)
    api: Any = SimpleNamespace(quotas=quotas.Quotas(lambda: 0.0))
    assert operation.before is not None
    for _ in range(quotas.MESSAGES_AT_ONCE):
        operation.before(api, ask)
    with pytest.raises(Problem):
        operation.before(api, ask)
