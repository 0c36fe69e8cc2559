"""Reading what the CLIs say: the recorded streams of the real ones, and anything else that could come."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents.adapters.claude import ClaudeStream
from holdfast.agents.adapters.codex import CodexStream
from holdfast.agents.common import json_fields
from holdfast.agents.common.json_fields import NUMBER_MAX
from holdfast.agents.runner.conversation import SPENDS_MAX, TURN_CHARS_MAX, Conversation
from holdfast.domain.agent_events import (
    AUTH,
    QUOTA,
    REFUSED,
    AgentEvent,
    Compacted,
    Finished,
    RateLimited,
    Said,
    SessionBegan,
    Spent,
    ToolEnded,
    ToolStarted,
)
from kit.recorded_streams import FIXTURES, RECORDED, STREAMS, heard, kinds, line, recorded, stream


@pytest.mark.parametrize("cli", ["claude", "codex", "gemini", "opencode"])
def test_a_task_that_lands(cli: str) -> None:
    events = recorded(cli, "a_task_lands.1")
    (session,) = kinds(events, SessionBegan)
    assert session.id
    tools, ends = kinds(events, ToolStarted), kinds(events, ToolEnded)
    assert [tool.call for tool in tools] == [end.call for end in ends] and len(tools) == 2
    assert all(end.ok for end in ends) and "right" in ends[1].output and "cat a.txt" in tools[1].input
    assert [each.text for each in kinds(events, Said)] == ["I write the file. Grüße! ✓", "I look at it.", "It is done."]
    spent = kinds(events, Spent)
    assert (sum(each.tokens_in for each in spent), sum(each.tokens_out for each in spent)) == (3500, 75)
    (finished,) = kinds(events, Finished)
    assert finished.ok and events[-1] is finished


def test_the_cost_that_claude_reports_counts() -> None:
    events = recorded("claude", "a_task_lands.1")
    assert sum(each.usd for each in kinds(events, Spent)) == pytest.approx(0.019375)


@pytest.mark.parametrize(
    ("cli", "name", "kind", "words"),
    [
        ("claude", "a_refusal_is_a_failed_attempt.1", REFUSED, "refused"),
        ("codex", "a_refusal_is_a_failed_attempt.1", REFUSED, "refused"),
        ("claude", "without_a_sign_in_the_task_fails_at_once.1", AUTH, "type /login"),
        ("codex", "without_a_sign_in_the_task_fails_at_once.1", AUTH, "codex login"),
        ("claude", "a_key_that_is_refused_is_told.1", AUTH, "401"),
        ("codex", "a_key_that_is_refused_is_told.1", AUTH, "401"),
        ("claude", "a_malformed_answer_is_a_failed_attempt.1", "", "parse JSON"),
        ("codex", "a_malformed_answer_is_a_failed_attempt.1", "", "stream disconnected"),
        ("gemini", "a_refusal_is_a_failed_attempt.1", REFUSED, "refused"),
        ("opencode", "a_refusal_is_a_failed_attempt.1", REFUSED, "refused"),
        ("gemini", "a_key_that_is_refused_is_told.1", AUTH, "401"),
        ("opencode", "a_key_that_is_refused_is_told.1", AUTH, "401"),
        ("opencode", "without_a_sign_in_the_task_fails_at_once.1", AUTH, "opencode auth login"),
        ("gemini", "a_malformed_answer_is_a_failed_attempt.1", "", "Incomplete JSON"),
        ("opencode", "a_malformed_answer_is_a_failed_attempt.1", "", "Nothing can be read"),
        ("aider", "a_refusal_is_a_failed_attempt.1", REFUSED, "refused"),
        ("mini", "a_refusal_is_a_failed_attempt.1", REFUSED, "I cannot help with that."),
        ("aider", "without_a_sign_in_the_task_fails_at_once.1", AUTH, "OPENAI_API_KEY"),
        ("mini", "without_a_sign_in_the_task_fails_at_once.1", AUTH, "mini-extra config setup"),
        ("aider", "a_key_that_is_refused_is_told.1", AUTH, "invalid key"),
        ("mini", "a_key_that_is_refused_is_told.1", AUTH, "invalid key"),
        ("aider", "a_malformed_answer_is_a_failed_attempt.1", "", "litellm."),
        ("mini", "a_malformed_answer_is_a_failed_attempt.1", "", "litellm."),
    ],
)
def test_a_recorded_failure_is_read_as_its_kind(cli: str, name: str, kind: str, words: str) -> None:
    finished = kinds(recorded(cli, name), Finished)[0]
    assert not finished.ok and finished.kind == kind and words in finished.detail


def test_a_recorded_limit_lasts_as_long_as_the_cli_says() -> None:
    (limit,) = kinds(recorded("claude", "a_rate_limit_is_waited_for.1"), RateLimited)
    assert 0 < limit.until - time.time() <= 8
    # Codex does not say.
    (limit,) = kinds(recorded("codex", "a_rate_limit_is_waited_for.1")[:-1], RateLimited)
    assert limit.until == 0 and "429" in limit.detail


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_recorded_stream_can_be_read(path: Path) -> None:
    events = heard(stream(path.parent.name.partition("-")[0]), path.read_bytes())
    assert kinds(events, SessionBegan) or kinds(events, Finished)
    started = {tool.call for tool in kinds(events, ToolStarted)}
    assert started >= {end.call for end in kinds(events, ToolEnded)}


# -- what was not recorded --------------------------------------------------------------------------------------------


def test_a_subscription_says_when_it_goes_on() -> None:
    info = {"status": "rejected", "resetsAt": 1900000000, "rateLimitType": "five_hour"}
    (limit,) = ClaudeStream().read(line(type="rate_limit_event", rate_limit_info=info))
    assert isinstance(limit, RateLimited) and limit.until == 1900000000 and "five hour" in limit.detail
    assert not ClaudeStream().read(line(type="rate_limit_event", rate_limit_info=info | {"status": "allowed"}))


def test_a_short_pause_is_left_to_claude() -> None:
    retry = {"type": "system", "subtype": "api_retry", "error_status": 429, "attempt": 1}
    assert not ClaudeStream().read(line(**retry, retry_delay_ms=900))
    assert ClaudeStream().read(line(**retry, retry_delay_ms=9000))


def test_an_empty_account_is_a_quota() -> None:
    claude = ClaudeStream()
    claude.read(line(type="assistant", error="billing_error", message={"content": []}))
    *_, finished = claude.read(
        line(type="result", subtype="success", is_error=True, result="Credit balance is too low")
    )
    assert isinstance(finished, Finished) and finished.kind == QUOTA
    (finished,) = CodexStream().read(line(type="turn.failed", error={"message": "Quota exceeded. Check it."}))
    assert isinstance(finished, Finished) and finished.kind == QUOTA


def test_codex_says_in_words_how_long_its_limit_lasts() -> None:
    told = "You've hit your usage limit. Try again in 2 hours 3 minutes."
    (limit,) = CodexStream().read(line(type="error", message=told))
    assert isinstance(limit, RateLimited) and limit.until == pytest.approx(time.time() + 7380, abs=5)


def test_codex_counts_on_where_the_conversation_stood() -> None:
    usage = {"input_tokens": 6600, "output_tokens": 85}
    events = CodexStream((3500, 75), "gpt-5.2-codex").read(line(type="turn.completed", usage=usage))
    (spent,) = kinds(list(events), Spent)
    assert (spent.tokens_in, spent.tokens_out, spent.estimated) == (3100, 10, True) and spent.usd > 0


def test_a_hook_tells_an_end_that_the_stream_does_not_tell_again() -> None:
    claude = ClaudeStream()
    hooked = {
        "tool_name": "Bash",
        "tool_use_id": "t1",
        "tool_input": {"command": "ls"},
        "tool_response": {"stdout": "a", "stderr": "b", "interrupted": False},
    }
    told = claude.hook(line(**hooked))
    assert [type(event) for event in told] == [ToolStarted, ToolEnded]
    (ended,) = kinds(list(told), ToolEnded)
    assert ended.output == "a\nb", "what the command printed, and not the record that it came in"
    block = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}
    assert not claude.read(line(type="assistant", message={"content": [block]}))
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "a"}
    assert not claude.read(line(type="user", message={"content": [result]}))
    assert claude.hook(b"\x00 no JSON") == () and claude.hook(b"{}") == ()


def test_compaction_is_reported() -> None:
    assert list(ClaudeStream().read(line(type="system", subtype="compact_boundary"))) == [Compacted()]


# -- anything ---------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**320) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def _with(value: Any, steps: list[int], other: Any) -> Any:
    """The value with some part of it replaced: which one, the steps say."""
    if not steps or not isinstance(value, dict | list) or not value:
        return other
    keys = list(value) if isinstance(value, dict) else range(len(value))
    key = keys[steps[0] % len(keys)]
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[key] = _with(value[key], steps[1:], other)
    return changed


def _lines() -> list[tuple[str, Any]]:
    found = []
    for path in RECORDED:
        for each in path.read_bytes().split(b"\n"):
            if each.startswith(b"{"):
                found.append((path.parent.name.partition("-")[0], msgspec.json.decode(each)))
    return found


LINES = _lines()


def test_every_cli_has_recorded_lines() -> None:
    assert {"claude", "codex", "gemini", "opencode"} <= set(STREAMS) and len(LINES) > 50


@given(st.data())
def test_no_line_with_something_else_in_it_stops_a_parser(data: st.DataObject) -> None:
    cli, record = data.draw(st.sampled_from(LINES))
    reader, talk = stream(cli), Conversation(0)
    for _ in range(3):
        steps, other = data.draw(st.lists(st.integers(0, 50), max_size=6)), data.draw(JSON)
        given_line = msgspec.json.encode(_with(record, steps, other))
        for event in [*reader.read(given_line), *_hooked(reader, given_line)]:
            talk.apply(event)
            msgspec.json.encode(event)
    last = list(reader.end(data.draw(st.integers(0, 255))))
    assert len(kinds(last, Finished)) <= 1 and not kinds(last, ToolStarted, ToolEnded, RateLimited)


@given(st.sampled_from(STREAMS), st.lists(st.binary(max_size=200), max_size=5))
def test_no_bytes_stop_a_parser(cli: str, lines: list[bytes]) -> None:
    reader = stream(cli)
    for each in lines:
        assert not [event for event in [*reader.read(each), *_hooked(reader, each)] if not isinstance(event, Said)]


@pytest.mark.parametrize("cli", STREAMS)
@pytest.mark.parametrize(
    "given_line", [b"[" * 100_000, b'{"type":' * 100_000, b'{"a":1e999999}', b"{" + b"\xff" * 9 + b"}"]
)
def test_no_depth_and_no_number_stops_a_parser(cli: str, given_line: bytes) -> None:
    reader = stream(cli)
    assert not reader.read(given_line) and not _hooked(reader, given_line)


def _hooked(reader: Any, given_line: bytes) -> list[AgentEvent]:
    return list(reader.hook(given_line)) if hasattr(reader, "hook") else []


def test_an_agent_that_talks_without_end_fills_no_memory() -> None:
    talk = Conversation(0)
    for number in range(20_000):
        talk.apply(Said("x" * 10_000))
        talk.apply(Spent(0.5, 1, 1))
        talk.apply(ToolStarted("Read", str(number), "y" * 10_000))
        talk.apply(ToolStarted("Read", "open", "y" * 10_000))
        talk.apply(ToolEnded(str(number), True, "z" * 10_000))
    held = sum(len(value) for record in talk.traces for value in record.values() if isinstance(value, str))
    assert held < 2 * TURN_CHARS_MAX and len(talk.traces) < 2000 and len(talk.spends) <= SPENDS_MAX
    assert talk.pending.usd == 10_000 and talk.spent.tokens == 40_000


def test_no_number_is_too_large_to_be_read() -> None:
    for number, wanted in ((b"1" + b"0" * 320, NUMBER_MAX), (b"-1" + b"0" * 320, 0), (b"1.5", 1)):
        assert json_fields.count(json_fields.line(b'{"n":' + number + b"}"), "n") == wanted


def test_a_resumed_conversation_of_claude_counts_its_own_start_only() -> None:
    (path,) = FIXTURES.glob("claude-2.1.326/a_resumed_conversation_counts_on.2.jsonl")
    spent = kinds(heard(ClaudeStream((200, 20), 0.0015), path.read_bytes()), Spent)
    assert (sum(each.tokens_in for each in spent), sum(each.tokens_out for each in spent)) == (200, 20)
    assert sum(each.usd for each in spent) == pytest.approx(0.0015)


def test_the_last_line_of_a_resumed_conversation_counts_earlier_starts_again() -> None:
    """As Claude Code 2.1.326 does; an earlier one did not."""
    told = {"subtype": "success", "result": "Done.", "is_error": False}
    for times in (2, 1):
        claude = ClaudeStream((200, 20), 0.0015)
        used = {"inputTokens": 200 * times, "outputTokens": 20 * times}
        claude.read(line(type="system", subtype="init", session_id="s", model="claude-opus-4-8"))
        message = {"usage": {"input_tokens": 200, "output_tokens": 20}, "model": "claude-opus-4-8"}
        own = claude.read(line(type="stream_event", event={"type": "message_start", "message": message}))
        last = claude.read(line(type="result", modelUsage={"m": used}, total_cost_usd=0.0015 * times, **told))
        spent = [each for each in (*own, *last) if isinstance(each, Spent)]
        assert (sum(each.tokens_in for each in spent), sum(each.tokens_out for each in spent)) == (200, 20)
        assert sum(each.usd for each in spent if each.usd > 0) == pytest.approx(0.0015)
