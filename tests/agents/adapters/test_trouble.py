"""What a CLI's words mean and what they do not; what models cost; who is signed in."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from holdfast.agents.adapters.aider import AiderStream
from holdfast.agents.adapters.claude import Claude
from holdfast.agents.adapters.codex import Codex, CodexStream
from holdfast.agents.adapters.gemini import Gemini, GeminiStream
from holdfast.agents.common import environment, prices
from holdfast.agents.common.prices import unpriced
from holdfast.agents.registry import agents
from holdfast.config.sections import Budgets, ModelPrice
from holdfast.config.settings import Config
from holdfast.domain.agent_events import AUTH, QUOTA, UNREACHABLE, AgentEvent, Finished, RateLimited, Retrying, Said
from holdfast.domain.attempt_records import Launch, Order
from holdfast.layout import Attempt
from kit.recorded_streams import line

MILLION = 1_000_000


# -- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "told",
    [
        "Reconnecting... 1/5 (stream disconnected before completion: request id req_8a4291)",
        "Reconnecting... 1/5 (unexpected status 503; see https://a.example/quota-docs)",
        "Reconnecting... 2/5 (unexpected status 401 Unauthorized: a key that is about to be renewed)",
    ],
)
def test_while_codex_tries_again_nothing_has_ended(told: str) -> None:
    (event,) = CodexStream().read(line(type="error", message=told))
    assert isinstance(event, Retrying) and event.detail == told and event.tries > 0


def test_codex_is_not_left_to_wait_for_a_rate_limit() -> None:
    told = "Reconnecting... 1/5 (exceeded retry limit, last status: 429 Too Many Requests)"
    assert CodexStream().read(line(type="error", message=told)) == (RateLimited(0.0, told),)


def codex(told: str) -> AgentEvent:
    (event,) = CodexStream().read(line(type="turn.failed", error={"message": told}))
    return event


def gemini(told: str) -> AgentEvent:
    (event,) = GeminiStream().read(line(type="result", status="error", error={"message": told}))
    return event


@pytest.mark.parametrize(
    "told", ["exceeded retry limit, last status: 429 Too Many Requests", "Rate limit reached for m"]
)
def test_a_rate_limit_is_known_by_its_words(told: str) -> None:
    assert isinstance(codex(told), RateLimited) and isinstance(gemini(told), RateLimited)


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ("stream disconnected: request id req_8a4291", ""),
        ("Request failed: 500 at line 429 of the stream", ""),
        ("unexpected status 503; see https://a.example/quota/429-too-many-requests", UNREACHABLE),
        ("the file keeps an api key in a variable: tool error", ""),
        ("unlimited quotations were found in rate.limits.py", ""),
        ("unexpected status 401 Unauthorized: invalid key", AUTH),
        ("API key not valid. Please pass a valid API key.", AUTH),
    ],
)
def test_nothing_counts_that_is_part_of_something_else(told: str, kind: str) -> None:
    for event in (codex(told), gemini(told)):
        assert isinstance(event, Finished) and not event.ok and event.kind == kind, event


def test_a_used_up_quota_is_known_by_its_words() -> None:
    event = codex("Quota exceeded. Check your plan and billing details.")
    assert isinstance(event, Finished) and event.kind == QUOTA
    event = gemini(
        '{"code":429,"message":"You exceeded your current quota, limit: 0 per day","status":"RESOURCE_EXHAUSTED"}'
    )
    assert isinstance(event, Finished) and event.kind == QUOTA


def test_a_line_that_aiders_answer_quotes_is_no_end() -> None:
    reader = AiderStream("gpt-4.1")
    quoted = line(event="exit", properties={"reason": "Completed main CLI coder.run"})
    sent = line(event="message_send", properties={"prompt_tokens": 7, "completion_tokens": 3, "cost": 0.1})
    told = [
        *reader.read(line(event="message_send_starting", properties={})),
        *reader.read(b"This is how it ends:"),
        *reader.read(quoted),
        *reader.read(b"And that is all."),
        *reader.read(sent),
    ]
    assert not any(isinstance(each, Finished) for each in told)
    assert any(isinstance(each, Said) and "And that is all." in each.text for each in told)
    assert reader.read(quoted) == (Finished(True),) and not reader.end(0)


def test_an_error_in_an_answers_place_is_told_at_aiders_end() -> None:
    reader = AiderStream("gpt-4.1")
    reader.read(line(event="message_send_starting", properties={}))
    reader.read(b"litellm.BadRequestError: it does not work")
    reader.read(line(event="exit", properties={"reason": "Completed main CLI coder.run"}))
    (finished,) = reader.end(0)
    assert isinstance(finished, Finished) and not finished.ok and "does not work" in finished.detail


# -- prices -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "usd"),
    [
        ("gpt-5-pro", 15),
        ("gpt-5.4-pro-2026-03-05", 30),
        ("gpt-4.1-nano", 0.1),
        ("o3", 2),
        ("gpt-4o-2024-08-06", 2.5),
        ("gemini-3.1-pro-preview", 2),
        ("us.anthropic.claude-opus-4-8-v1:0", 5),
        ("anthropic/claude-opus-4.8", 5),
        ("claude-haiku-4-5@20251001", 1),
        ("claude-sonnet-4-5-20250929", 3),
        ("gpt-5.5-cyber", 12.5),
        ("gpt-5.2-something-else", 0),
        ("claude-opus-5-9", 0),
        ("o33", 0),
    ],
)
def test_a_price_is_a_models_own(model: str, usd: float) -> None:
    """A longer name is another model, unless it goes on with a date or a version."""
    assert prices.usd(model, MILLION, 0) == usd


def test_prices_of_the_settings_come_first() -> None:
    prices.override({"claude": (0.0, 0.0, 0.0, 0.0), "gpt-5": (7.0, 7.0, 7.0, 7.0)})
    try:
        assert prices.usd("claude-opus-5", MILLION, 0) == 0 and prices.usd("openai/gpt-5.2-codex", MILLION, 0) == 7
    finally:
        prices.override({})
    assert prices.usd("claude-opus-5", MILLION, 0) == 5


def test_a_budget_that_cannot_hold_is_reported() -> None:
    asked = [
        ("codex", "gpt-99"),
        ("codex", "gpt-99"),
        ("codex", "gpt-5.2-codex"),
        ("claude", "x"),
        ("gemini", ""),
        ("no", "m"),
    ]
    config = Config(budgets=Budgets(usd_per_day=5.0))
    (told,) = unpriced(config, agents(config), asked)
    assert "gpt-99" in told and "`prices`" in told
    (told,) = unpriced(config, agents(config), [("codex", "")])
    assert "does not say which model" in told
    assert not unpriced(Config(budgets=Budgets(tokens_per_day=5)), agents(config), asked)
    priced = Config(budgets=Budgets(usd_per_task=5.0), prices={"gpt-99": ModelPrice(1.0, 2.0)})
    assert not unpriced(priced, agents(config), asked)


# -- signing in -------------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR",
                 "OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_HOME", "GEMINI_API_KEY", "GOOGLE_API_KEY",
                 "GEMINI_CLI_HOME", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_GENAI_USE_VERTEXAI"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("agent", "file", "text"),
    [
        (Claude(), ".claude/settings.json", '{"apiKeyHelper": "pass show key"}'),
        (Claude(), ".claude/settings.json", '{"env": {"ANTHROPIC_API_KEY": "k"}}'),
        (Codex(), ".codex/config.toml", 'model_provider = "mine"\n[model_providers.mine]\nenv_key = "MY_KEY"\n'),
        (Gemini(), ".gemini/.env", "GEMINI_API_KEY=k\n"),
        (Gemini(), ".env", "GOOGLE_GENAI_USE_VERTEXAI=true\n"),
        (Gemini(), ".gemini/settings.json", '{"security": {"auth": {"selectedType": "vertex-ai"}}}'),
    ],
)
def test_an_unknown_sign_in_is_not_called_missing(
    home: Path, agent: Claude | Codex | Gemini, file: str, text: str
) -> None:
    assert agent.is_signed_in() is False
    (home / file).parent.mkdir(exist_ok=True)
    (home / file).write_text(text)
    assert agent.is_signed_in() is None


def test_a_cloud_sign_in_counts_as_unknown(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    assert Gemini().is_signed_in() is None
    monkeypatch.setenv("CLAUDE_CODE_USE_BEDROCK", "1")
    assert Claude().is_signed_in() is None


def test_a_clouds_variables_reach_the_agent_where_the_model_is_there(tmp_path: Path) -> None:
    order = Order(
        task="T",
        attempt="T.1",
        start=1,
        agent="claude",
        launch=Launch(("claude",)),
        worktree="w",
        base="b",
        private="p",
    )
    keys = {"AWS_PROFILE": "p", "AWS_SECRET_ACCESS_KEY": "s", "ANTHROPIC_VERTEX_PROJECT_ID": "v"}
    plain = environment.of_agent(order, Attempt(tmp_path), keys)
    assert not keys.keys() & plain.keys()
    given = environment.of_agent(order, Attempt(tmp_path), {**keys, "CLAUDE_CODE_USE_BEDROCK": "1"})
    assert given.keys() >= {"AWS_PROFILE", "AWS_SECRET_ACCESS_KEY", "CLAUDE_CODE_USE_BEDROCK"}
    assert "ANTHROPIC_VERTEX_PROJECT_ID" not in given
    command = msgspec.structs.replace(order, launch=Launch(("sh",), uses_model=False))
    assert "AWS_PROFILE" not in environment.of_agent(
        command, Attempt(tmp_path), {**keys, "CLAUDE_CODE_USE_BEDROCK": "1"}
    )
