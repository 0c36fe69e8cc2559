"""Unreachable, limited or failed: what each CLI says of it, recorded and not; and what calls itself a success."""

from __future__ import annotations

import signal
import socket
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents.adapters.aider import Aider, AiderStream
from holdfast.agents.adapters.claude import Claude, ClaudeStream
from holdfast.agents.adapters.codex import Codex, CodexStream
from holdfast.agents.adapters.declared_stream import Mapped
from holdfast.agents.adapters.gemini import Gemini, GeminiStream
from holdfast.agents.adapters.mini import Mini, MiniStream
from holdfast.agents.adapters.opencode import Opencode, OpencodeStream
from holdfast.agents.adapters.simple_streams import OneCall
from holdfast.agents.common import error_phrases, resets
from holdfast.agents.common.cli_base import host
from holdfast.agents.common.error_phrases import Trouble
from holdfast.agents.runner.conversation import Conversation
from holdfast.agents.runner.limits import LimitWatch
from holdfast.agents.runner.start_outcome import judge
from holdfast.domain.agent_events import QUOTA, UNREACHABLE, AgentEvent, Finished, RateLimited, Retrying, ToolStarted
from holdfast.domain.attempt_records import AttemptLimits, Ending
from kit.recorded_streams import FIXTURES, heard, kinds, line, recorded
from kit.tls import answering, untrusted

RECORDED = ("a_connection_is_refused", "a_connection_is_reset", "a_server_is_overloaded")
OUTAGES = sorted(
    {(path.parent.name.partition("-")[0], name) for name in RECORDED for path in FIXTURES.glob(f"*/{name}.*")}
)


def ending(events: list[AgentEvent], code: int = 0) -> Ending:
    talk = Conversation(0)
    for event in events:
        talk.apply(event)
    return judge(None, talk, code, is_wrapped=False).ending


# -- recorded ---------------------------------------------------------------------------------------------------------


def test_every_cli_was_recorded_without_its_model() -> None:
    assert {cli for cli, _ in OUTAGES} == {"claude", "codex", "gemini", "opencode", "aider", "mini"}
    assert len(OUTAGES) == 18


@pytest.mark.parametrize(("cli", "name"), OUTAGES)
def test_a_recorded_outage_is_no_failure_and_no_success(cli: str, name: str) -> None:
    events = recorded(cli, f"{name}.1")
    if (cli, name) == ("codex", "a_connection_is_refused"):
        # It waits for its network without end, and says so: the runner ends it.
        assert len(kinds(events, Retrying)) > 3 and "waiting for network" in kinds(events, Retrying)[-1].detail
        return
    assert ending(events) is Ending.UNREACHABLE, events[-3:]


NAMES_AND_TLS = ("a_name_is_not_found", "tls_is_not_spoken", "a_certificate_is_not_trusted")
# They were ended while they tried again; the others gave up by themselves.
TRYING = {(cli, name) for cli in ("codex", "opencode") for name in NAMES_AND_TLS} - {
    ("opencode", "a_certificate_is_not_trusted")
}


@pytest.mark.parametrize("name", NAMES_AND_TLS)
@pytest.mark.parametrize("cli", ["claude", "codex", "gemini", "opencode"])
def test_a_name_or_a_certificate_that_fails_is_an_outage(cli: str, name: str) -> None:
    events = recorded(cli, f"{name}.1")
    if (cli, name) in TRYING:
        assert kinds(events, Retrying) and all(each.detail for each in kinds(events, Retrying))
        assert not kinds(events, ToolStarted)
    else:
        assert ending(events) is Ending.UNREACHABLE, events[-3:]


@pytest.mark.parametrize("cli", ["claude", "codex", "gemini", "opencode", "aider"])
def test_a_cli_that_tries_again_is_reported_as_retrying(cli: str) -> None:
    events = recorded(cli, "a_server_is_overloaded.1")
    assert kinds(events, Retrying) and all(each.detail for each in kinds(events, Retrying))


# -- successes that are none ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"subtype": "success", "is_error": True, "result": "API Error: 529 Overloaded"}, Ending.UNREACHABLE),
        ({"subtype": "success", "is_error": False, "result": "API Error: 503 overloaded"}, Ending.UNREACHABLE),
        ({"subtype": "success", "is_error": False, "result": "API Error: Connection error."}, Ending.UNREACHABLE),
        ({"subtype": "success", "is_error": True, "result": "API Error: Failed to parse JSON"}, Ending.FAILED),
        ({"subtype": "success", "is_error": True, "result": "Nobody can say why"}, Ending.FAILED),
        ({"subtype": "success", "result": "x", "api_error_status": 500}, Ending.UNREACHABLE),
        ({"subtype": "error_during_execution", "is_error": True, "result": "connection refused"}, Ending.FAILED),
        ({"subtype": "success", "is_error": False, "result": "I mended the API Error: it is gone."}, Ending.DONE),
    ],
)
def test_claudes_success_with_an_error_is_none(told: dict[str, Any], expected: Ending) -> None:
    assert ending(heard(ClaudeStream(), line(type="result", **told))) is expected


def test_geminis_success_without_an_answer_is_none() -> None:
    call = (
        line(type="tool_use", tool_id="c", tool_name="t")
        + b"\n"
        + line(type="tool_result", tool_id="c", status="success")
    )
    lost = heard(GeminiStream(), call + b"\n" + line(type="result", status="success"))
    assert ending(lost) is Ending.UNREACHABLE
    answer = line(type="message", role="assistant", content="Done.", delta=True)
    assert (
        ending(heard(GeminiStream(), call + b"\n" + answer + b"\n" + line(type="result", status="success")))
        is Ending.DONE
    )


def test_geminis_success_behind_an_error_is_what_the_error_says() -> None:
    error = line(type="error", severity="error", message="[API Error: fetch failed]")
    assert ending(heard(GeminiStream(), error + b"\n" + line(type="result", status="success"))) is Ending.UNREACHABLE


def test_an_error_as_the_last_words_of_aider_is_no_success() -> None:
    begin, end = line(event="message_send_starting"), line(event="exit", properties={"reason": "Completed --message"})
    error = b"litellm.APIConnectionError: APIConnectionError: OpenAIException - Connection error."
    assert ending(heard(AiderStream(), b"\n".join((begin, error, end)))) is Ending.UNREACHABLE


def test_an_error_of_opencode_is_no_success_though_its_code_is_0() -> None:
    told = {"name": "APIError", "data": {"message": "Bad Gateway", "statusCode": 502}}
    assert ending(heard(OpencodeStream(), line(type="error", error=told))) is Ending.UNREACHABLE


def test_an_error_of_codex_and_mini_is_no_success_though_the_code_is_0() -> None:
    failed = line(type="turn.failed", error={"message": "stream disconnected before completion: error sending request"})
    assert ending(heard(CodexStream(), failed)) is Ending.UNREACHABLE
    exit = {"role": "exit", "content": "litellm.APIConnectionError: x", "extra": {"exit_status": "APIConnectionError"}}
    assert ending(heard(MiniStream(), line(**exit))) is Ending.UNREACHABLE


@pytest.mark.parametrize("code", [-signal.SIGKILL, -signal.SIGTERM, -signal.SIGSEGV])
def test_an_end_by_a_signal_is_no_success_whatever_was_said(code: int) -> None:
    assert ending([Finished(True, "All is well.")], code) is Ending.CRASHED


def test_a_code_is_no_success_whatever_was_said() -> None:
    assert ending([Finished(True, "All is well.")], 1) is Ending.FAILED


# -- what tries again -------------------------------------------------------------------------------------------------


def test_an_agent_may_try_again_only_for_so_long() -> None:
    watch = LimitWatch(AttemptLimits(retry_timeout_s=60.0), 0.0)
    watch.retrying(10.0, "no route")
    watch.retrying(50.0, "no route")
    assert watch.overdue(69.0) is None and watch.next_s(60.0) == pytest.approx(10.0)
    verdict = watch.overdue(70.0)
    assert verdict is not None and verdict.ending is Ending.UNREACHABLE and "no route" in verdict.detail
    watch.reached()
    assert watch.overdue(70.0) is None


def test_claude_says_what_went_wrong_and_how_long_it_waits() -> None:
    retry = line(type="system", subtype="api_retry", attempt=3, retry_delay_ms=2500, error_status=503)
    assert ClaudeStream().read(retry) == (Retrying("the model's server answered 503", 3, 2.5),)


def test_a_declared_agent_says_it_by_its_events() -> None:
    events = {"finished.when": "type=end", "finished.ok": "ok=yes", "finished.kind": "why", "retrying.detail": "again"}
    told = heard(Mapped(events), line(again="no route") + b"\n" + line(type="end", ok="no", why="unreachable"))
    assert told == [Retrying("no route"), Finished(False, "", UNREACHABLE)] and ending(told) is Ending.UNREACHABLE


def test_a_command_says_it_by_its_code() -> None:
    (began, finished) = OneCall(("sh", "-c", "x")).end(75)
    assert isinstance(began, ToolStarted) and isinstance(finished, Finished) and finished.kind == UNREACHABLE


# -- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("getaddrinfo ENOTFOUND api.example.org", Trouble.UNREACHABLE),
        ("connect ECONNREFUSED 127.0.0.1:1", Trouble.UNREACHABLE),
        ("Connection reset by peer", Trouble.UNREACHABLE),
        ("SSL: CERTIFICATE_VERIFY_FAILED certificate verify failed", Trouble.UNREACHABLE),
        ("unable to get local issuer certificate", Trouble.UNREACHABLE),
        ("The model is overloaded. Please try again later.", Trouble.UNREACHABLE),
        ("unexpected status 502 Bad Gateway", Trouble.UNREACHABLE),
        ("HTTP 504", Trouble.UNREACHABLE),
        ("error 5xx", Trouble.OTHER),
        ("the tests on port 503 fail", Trouble.OTHER),
        ("see https://connection-refused.example/503-service-unavailable", Trouble.OTHER),
        ("stream disconnected before completion: UTF8 error", Trouble.OTHER),
        ("InternalServerError: cannot decode, Received response - <APIResponse [200 OK]>", Trouble.OTHER),
        ("429 Too Many Requests: the server is overloaded", Trouble.LIMITED),
        ("401 Unauthorized: connection closed", Trouble.NO_KEY),
    ],
)
def test_error_texts_are_recognised_by_kind(told: str, expected: Trouble) -> None:
    assert error_phrases.trouble(told) is expected


def test_a_status_says_more_than_words() -> None:
    found = {error_phrases.trouble("overloaded", status) for status in (401, 403)}
    assert found == {Trouble.NO_KEY} and error_phrases.trouble("x", 402) is Trouble.USED_UP
    assert (
        error_phrases.trouble("overloaded", 429) is Trouble.LIMITED
        and error_phrases.trouble("x", 529) is Trouble.UNREACHABLE
    )


# -- when a limit ends ------------------------------------------------------------------------------------------------

NOON = datetime(2026, 11, 17, 12, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        ("You've hit your usage limit. Try again in 3 days 2 hours 5 minutes.", 3 * 86400 + 2 * 3600 + 300),
        ("Rate limit reached for gpt-5. Please try again in 1.5s.", 1.5),
        ("Please try again in 250ms", 0.25),
        ("Your quota will reset after 1h2m3s.", 3723),
        ('{"error":{"type":"usage_limit_reached","resets_in_seconds":7200}}', 7200),
        ('"retryDelay": "41s"', 41),
        ("Claude AI usage limit reached|1795000000", 1795000000 - NOON),
        ("You've hit your limit · resets 3pm (UTC)", 3 * 3600),
        ("resets 11:30am (UTC)", 23.5 * 3600),
        ("try again at Nov 20th, 2026 3:45 PM (UTC)", 3 * 86400 + 3.75 * 3600),
        ("resets Nov 18, 9am (UTC)", 21 * 3600),
        ("try again at 15:30 (UTC)", 3.5 * 3600),
    ],
)
def test_a_limits_end_is_read_from_its_sentence(told: str, seconds: float) -> None:
    assert resets.until(told, NOON) - NOON == pytest.approx(seconds)


@pytest.mark.parametrize(
    "told", ["", "try again later", "try again in a moment", "3 tests reset 5 times", "again at 99:99 PM"]
)
def test_a_text_without_a_time_gives_no_reset_time(told: str) -> None:
    assert resets.until(told, NOON) == 0.0


def test_a_usage_limit_with_a_time_is_waited_for_and_one_without_is_a_quota() -> None:
    for cli in (Claude, Codex, Gemini, Opencode, Aider, Mini):
        limit = cli.trouble("The usage limit has been reached; try again in 2 hours.")
        assert isinstance(limit, RateLimited) and limit.until == pytest.approx(time.time() + 7200, abs=5)
        quota = cli.trouble("The usage limit has been reached.")
        assert isinstance(quota, Finished) and quota.kind == QUOTA


def test_claudes_reset_is_the_one_of_its_event() -> None:
    reader = ClaudeStream()
    reader.read(line(type="rate_limit_event", rate_limit_info={"status": "allowed_warning", "resetsAt": 2_000_000_000}))
    result = line(type="result", subtype="success", is_error=True, api_error_status=429, result="You've hit your limit")
    (limit,) = reader.read(result)
    assert isinstance(limit, RateLimited) and limit.until == 2_000_000_000


# -- endpoints --------------------------------------------------------------------------------------------------------


def test_an_endpoint_is_a_host_or_a_provider_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "OPENAI_API_BASE", "GOOGLE_GEMINI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    assert [cli().endpoint("openai/gpt-5") for cli in (Claude, Codex, Gemini)] == ["anthropic", "openai", "google"]
    assert Opencode().endpoint("openrouter/x/y") == "openrouter" and Mini().endpoint("gpt-5") == ""
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://me:hush@proxy.example:8443/v1?key=hush")
    assert Claude().endpoint("") == "proxy.example:8443" and host("not a url [") == ""


def test_geminis_limit_ends_when_the_server_says_and_not_when_it_tries_again() -> None:
    told = b"Attempt 1 failed: Your quota will reset after 2h0m0s. Retrying after 7314000ms..."
    (limit,) = GeminiStream().read(told)
    assert isinstance(limit, RateLimited) and limit.until == pytest.approx(time.time() + 7200, abs=5)
    (limit,) = GeminiStream().read(b"Attempt 1 failed: too many. Retrying after 500000ms...")
    assert isinstance(limit, RateLimited) and limit.until == pytest.approx(time.time() + 500, abs=5)


# -- real failures on loopback ----------------------------------------------------------------------------------------


def failure_of(url: str) -> str:
    """What Python says, and with it the CLIs that are made of it."""
    with pytest.raises(OSError) as caught:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=60)
    return str(caught.value)


def test_a_name_that_there_is_not_and_a_closed_port_are_outages() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for url in ("http://model.invalid/", f"http://127.0.0.1:{port}/"):
        told = failure_of(url)
        assert error_phrases.trouble(told) is Trouble.UNREACHABLE, told


@pytest.mark.parametrize("how", ["untrusted", "plain text", "reset"])
def test_a_tls_that_fails_is_an_outage(tmp_path: Path, how: str) -> None:
    if how == "untrusted":
        with untrusted(tmp_path) as url:
            told = failure_of(url)
    else:
        with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n" if how == "plain text" else b"") as port:
            told = failure_of(f"https://127.0.0.1:{port}/")
    assert error_phrases.trouble(told) is Trouble.UNREACHABLE, told
