"""What Gemini CLI and opencode tell beside their streams: their own records, complaints, a plugin's lines."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from holdfast.agents.adapters.gemini import EXIT_AUTH, Gemini, GeminiStream
from holdfast.agents.adapters.opencode import RETRIES_MAX, Opencode, OpencodeStream
from holdfast.agents.common.cli_base import Calls
from holdfast.config.mcp import McpServer
from holdfast.domain.agent_events import (
    AUTH,
    QUOTA,
    UNREACHABLE,
    AgentEvent,
    Compacted,
    Finished,
    RateLimited,
    Retrying,
    SessionBegan,
    Spent,
    ToolEnded,
    ToolStarted,
)
from holdfast.domain.definition import Definition
from holdfast.ports import Work
from kit.recorded_streams import line

SESSION = "04f73fa0-4d09-44a6-928b-ca52a569bc7f"


def answer(name: str, tokens_in: int, tokens_out: int) -> bytes:
    tokens = {"input": tokens_in, "output": tokens_out, "cached": 0, "total": tokens_in + tokens_out}
    return line(id=name, type="gemini", content="", tokens=tokens, model="gemini-2.5-pro") + b"\n"


@pytest.fixture
def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GEMINI_CLI_HOME", str(tmp_path))
    path = tmp_path / ".gemini" / "tmp" / "t" / "chats" / f"session-2026-11-16T00-11-{SESSION[:8]}.jsonl"
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def spent(events: list[AgentEvent]) -> list[tuple[int, int]]:
    return [(each.tokens_in, each.tokens_out) for each in events if isinstance(each, Spent)]


def tell(reader: GeminiStream | OpencodeStream, *lines: bytes) -> list[AgentEvent]:
    return [event for each in lines for event in reader.read(each)]


def test_gemini_tells_what_each_answer_took_with_its_tools(chat: Path) -> None:
    reader = GeminiStream()
    tell(reader, line(type="init", session_id=SESSION, model="gemini-2.5-pro"))
    began = line(type="tool_use", tool_name="write_file", tool_id="a", parameters={})
    ended = line(type="tool_result", tool_id="a", status="success")
    tell(reader, began)
    chat.write_bytes(answer("1", 1000, 50) + answer("1", 1000, 50) + answer("2", 7, 7)[:-1])
    events = tell(reader, ended)
    assert spent(events) == [(1000, 50)] and isinstance(events[-1], ToolEnded)
    stats = {"input_tokens": 1300, "total_tokens": 1360}
    events = tell(reader, line(type="result", status="success", stats=stats))
    assert spent(events) == [(300, 10)], "the sum of the stream's end is what counts"


def test_spending_that_a_killed_start_did_not_report_is_reported_by_the_next(chat: Path) -> None:
    chat.write_bytes(answer("1", 1000, 50) + answer("2", 1200, 20))
    reader = GeminiStream((1000, 50), "gemini-2.5-pro", SESSION)
    chat.write_bytes(chat.read_bytes() + answer("3", 5, 5))
    events = tell(reader, line(type="init", session_id=SESSION, model="gemini-2.5-pro"))
    assert spent(events) == [(1200, 20)] and isinstance(events[0], SessionBegan)
    assert spent(list(reader.end(0))) == [(5, 5)]


def test_a_conversation_of_geminis_without_an_answer_is_none(chat: Path) -> None:
    reader = GeminiStream()
    assert not tell(reader, line(type="init", session_id=SESSION, model="m"))
    words = line(type="message", role="assistant", content="Hm", delta=True)
    events = tell(reader, words, words, line(type="result", status="success"))
    assert isinstance(events[0], SessionBegan) and events[1].text == "HmHm"  # type: ignore[union-attr]


def test_gemini_that_stops_itself_has_not_done_it() -> None:
    words = line(type="message", role="assistant", content="Again", delta=True)
    stopped = line(type="error", severity="warning", message="Loop detected, stopping execution")
    *_, finished = tell(GeminiStream(), words, stopped, line(type="result", status="success"))
    assert isinstance(finished, Finished) and not finished.ok and "Loop" in finished.detail


@pytest.mark.parametrize(
    ("told", "wait_s"),
    [
        ("Attempt 1 failed: too much. Retrying after 9590ms...", 9.59),
        ("Suggested retry after 8s.. Retrying after 9590ms...", 9.59),
        ("Attempt 2 failed with status 429. Retrying with backoff...", 0),
        ("Attempt 1 failed with status 429. Retrying with backoff...", None),
        ("Attempt 1 failed: too much. Retrying after 900ms...", None),
        ("Error executing tool: Attempt 1 failed. Retrying after 99999ms...", None),
    ],
)
def test_a_long_wait_of_geminis_is_a_rate_limit(told: str, wait_s: float | None) -> None:
    events = GeminiStream().read(told.encode())
    limits = [each.until - time.time() if each.until else 0 for each in events if isinstance(each, RateLimited)]
    assert limits == ([] if wait_s is None else [pytest.approx(wait_s, abs=2)])


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ("You have exhausted your daily quota on this model.", QUOTA),
        ('[API Error: {"error":{"code":403,"status":"PERMISSION_DENIED"}}]', AUTH),
        ("[API Error: API key not valid.]", AUTH),
        ("boom", ""),
    ],
)
def test_an_error_of_geminis_has_its_kind(told: str, kind: str) -> None:
    (finished,) = GeminiStream().read(line(type="result", status="error", error={"message": told}))
    assert isinstance(finished, Finished) and finished.kind == kind and told in finished.detail


def test_a_quota_of_geminis_that_says_its_end() -> None:
    told = "429: quota exceeded. Your quota will reset after 1h2m3s."
    (limit,) = GeminiStream().read(line(type="result", status="error", error={"message": told}))
    assert isinstance(limit, RateLimited) and limit.until == pytest.approx(time.time() + 3723, abs=5)


def test_gemini_without_a_sign_in_says_so_by_its_code() -> None:
    (finished,) = GeminiStream().end(EXIT_AUTH)
    assert isinstance(finished, Finished) and finished.kind == AUTH and "GEMINI_API_KEY" in finished.detail


def test_opencodes_plugin_tells_a_tool_that_the_stream_does_not_tell_again() -> None:
    reader = OpencodeStream()
    (began,) = tell(reader, line(type="holdfast.tool", tool="bash", callID="c1", args={"command": "ls"}))
    assert began == ToolStarted("bash", "c1", '{"command":"ls"}')
    assert list(reader.hook(line(tool="bash", callID="c1", args={}, output="a", exit=3))) == [
        ToolEnded("c1", False, "a")
    ]
    state = {"status": "completed", "input": {}, "output": "a"}
    assert not tell(reader, line(type="tool_use", part={"tool": "bash", "callID": "c1", "state": state}))
    assert reader.hook(b"\x00 no JSON") == ()
    assert tell(reader, line(type="holdfast.compacted")) == [Compacted()]


def test_a_short_pause_is_left_to_opencode() -> None:
    now = time.time()
    told = {"type": "holdfast.retry", "message": "slow down", "status": 429}
    assert not tell(OpencodeStream(), line(**told, next=(now + 2) * 1000))
    (limit,) = tell(OpencodeStream(), line(**told, next=(now + 60) * 1000))
    assert isinstance(limit, RateLimited) and limit.until == pytest.approx(now + 60) and limit.detail == "slow down"
    # Without a status its words count.
    (limit,) = tell(OpencodeStream(), line(type="holdfast.retry", next=(now + 60) * 1000, message="Too Many Requests"))
    assert isinstance(limit, RateLimited)


@pytest.mark.parametrize("status", [500, 503, 0])
def test_opencode_retries_other_errors_than_rate_limits_for_a_while_only(status: int) -> None:
    told = {"type": "holdfast.retry", "message": "out of order; see https://a.example/quota", "status": status}
    tries = [line(**told, attempt=number, next=(time.time() + 60) * 1000) for number in range(1, RETRIES_MAX + 2)]
    reader = OpencodeStream()
    again = tell(reader, *tries[: RETRIES_MAX - 1])
    assert [each.tries for each in again if isinstance(each, Retrying)] == [1, 2, 3, 4] and len(again) == 4
    (finished,) = tell(reader, *tries[RETRIES_MAX - 1 :])
    assert isinstance(finished, Finished) and not finished.ok and "out of order" in finished.detail
    assert finished.kind == (UNREACHABLE if status else "")


def test_a_name_of_a_call_that_is_used_again_is_another_call() -> None:
    """As the plugin and the stream tell it: before, behind it in the hook, and once more."""
    reader, told = OpencodeStream(), []
    for number in (1, 2, 3):
        facts = {"callID": "call_0", "tool": "bash", "args": {"n": number}}
        state = {"status": "completed", "input": {}, "output": "made"}
        told += reader.read(line(type="holdfast.tool", **facts))
        told += reader.hook(line(**facts, output="made"))
        told += reader.read(line(type="tool_use", part={"callID": "call_0", "tool": "bash", "state": state}))
    assert [type(each) for each in told] == [ToolStarted, ToolEnded] * 3
    assert [each.input for each in told if isinstance(each, ToolStarted)] == [
        f'{{"n":{number}}}' for number in (1, 2, 3)
    ]


@pytest.mark.parametrize("order", [["began", "hook", "ended"], ["began", "ended", "hook"], ["hook", "began", "ended"]])
def test_a_call_is_one_in_whatever_order_it_is_reported(order: list[str]) -> None:
    calls = Calls()
    tellings: dict[str, Callable[[], list[AgentEvent]]] = {
        "began": lambda: list(calls.began("t", "c", "")),
        "hook": lambda: [*calls.began("t", "c", "", by_hook=True), *calls.ended("c", True, "", by_hook=True)],
        "ended": lambda: list(calls.ended("c", True, "")),
    }
    for _ in range(2):
        assert [type(each) for name in order for each in tellings[name]()] == [ToolStarted, ToolEnded]


def test_an_answer_of_opencodes_that_broke_off_is_no_end() -> None:
    reader = OpencodeStream()
    tell(reader, line(type="text", part={"text": "half of"}), line(type="step_finish", part={"reason": "length"}))
    (finished,) = reader.end(0)
    assert isinstance(finished, Finished) and not finished.ok and "length" in finished.detail


def test_the_command_lines_of_both_are_as_documented() -> None:
    servers = (
        McpServer("docs", "docs-server", ("-q",), {"T": "${T}"}),
        McpServer("far", url="https://a.example.org", headers={"X": "${X}"}),
    )
    work = Work(
        task="T", attempt="T.1", prompt="Please.", definition=Definition("T", goal="do it"), model="m-1", session="s-1"
    )
    for agent in (Gemini(servers), Opencode(servers)):
        launch = agent.launch(work)
        assert launch.stdin == "Please." and "s-1" in launch.argv and "m-1" in launch.argv and agent.can.resume
    launch = Opencode(servers).launch(work)
    given = msgspec.json.decode(launch.files["opencode.json"])
    assert given["mcp"]["docs"] == {"type": "local", "command": ["docs-server", "-q"], "environment": {"T": "${T}"}}
    assert given["mcp"]["far"]["headers"] == {"X": "${X}"} and launch.references == ("T", "X")
    launch = Gemini(servers).launch(work)
    given = msgspec.json.decode(launch.files[".gemini/extensions/holdfast-servers/gemini-extension.json"])
    assert given["mcpServers"]["docs"] == {"command": "docs-server", "args": ["-q"], "env": {"T": "${T}"}}
    assert given["mcpServers"]["far"]["headers"] == {"X": "${X}"} and launch.references == ("T", "X")


def test_geminis_home_with_servers_leads_to_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_CLI_HOME", str(tmp_path))
    work = Work(task="T", attempt="T.1", prompt="Please.", definition=Definition("T", goal="do it"))
    assert "GEMINI_CLI_HOME" not in Gemini().launch(work).env and not Gemini().launch(work).links
    with_servers = Gemini((McpServer("docs", "docs-server"),))
    folder = tmp_path / ".gemini"
    assert with_servers.launch(work).links == {".gemini/tmp": f"{folder}/tmp/"}, "the conversations are kept nowhere"
    for name in ("extensions/theirs", "extensions/holdfast-servers", "tmp"):
        (folder / name).mkdir(parents=True)
    (folder / "settings.json").write_text("{}")
    (tmp_path / ".env").touch()
    launch = with_servers.launch(work)
    assert launch.env["GEMINI_CLI_HOME"] == "{files}"
    assert launch.links == {
        ".env": f"{tmp_path}/.env",
        ".gemini/tmp": f"{folder}/tmp/",
        ".gemini/settings.json": f"{folder}/settings.json",
        ".gemini/extensions/theirs": f"{folder}/extensions/theirs",
    }
