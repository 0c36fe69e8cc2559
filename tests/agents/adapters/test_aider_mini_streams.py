"""Reading Aider and mini-swe-agent: the recorded ones, and what their words mean that were not recorded."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents.adapters.aider import TEXT_CHARS_MAX, Aider, AiderStream
from holdfast.agents.adapters.mini import Mini, MiniStream
from holdfast.agents.runner.conversation import Conversation
from holdfast.domain.agent_events import (
    QUOTA,
    UNREACHABLE,
    Finished,
    RateLimited,
    Retrying,
    Said,
    Spent,
    ToolEnded,
    ToolStarted,
)
from holdfast.domain.definition import Definition
from holdfast.ports import Work
from kit.recorded_streams import heard, kinds, recorded


def test_aiders_answer_is_a_turn() -> None:
    events = recorded("aider", "a_task_lands.1", "openai/gpt-4.1")
    (tool,), (end,) = kinds(events, ToolStarted), kinds(events, ToolEnded)
    assert (tool.name, tool.call) == ("edit", end.call) and tool.input in ("a.txt", "b.txt")
    words = [each.text for each in kinds(events, Said)]
    assert words[0] == "I want to see README.md. Grüße! ✓" and words[1].startswith("I write the files.")
    assert not any("Tokens:" in each for each in words) and words[2].startswith("Applied edit to ")
    spent = kinds(events, Spent)
    assert [(each.tokens_in, each.tokens_out) for each in spent] == [(1000, 50), (1200, 20)]
    assert not any(each.estimated for each in spent)
    assert sum(each.usd for each in spent) == pytest.approx((2 * 2200 + 8 * 70) / 1e6)
    assert kinds(events, Finished) == [Finished(True)] and isinstance(events[-1], Finished)


def test_minis_commands_are_turns_and_its_submission_is_none() -> None:
    events = recorded("mini", "a_task_lands.1")
    tools, ends = kinds(events, ToolStarted), kinds(events, ToolEnded)
    assert [tool.call for tool in tools] == [end.call for end in ends] and len(tools) == 2
    assert "cat a.txt" in tools[1].input and ends[1].output == "right\n" and all(end.ok for end in ends)
    assert [each.text for each in kinds(events, Said)] == ["I write the file. Grüße! ✓", "I look at it.", "It is done."]
    spent = kinds(events, Spent)
    assert (sum(each.tokens_in for each in spent), sum(each.tokens_out for each in spent)) == (3500, 75)
    assert sum(each.usd for each in spent) == pytest.approx((2 * 3500 + 8 * 75) / 1e6)
    assert not any(each.estimated for each in spent) and kinds(events, Finished) == [Finished(True)]


def test_a_recorded_limit_lasts_as_long_as_the_cli_says() -> None:
    (limit,) = kinds(recorded("mini", "a_rate_limit_is_waited_for.1"), RateLimited)
    assert 0 < limit.until - time.time() <= 8 and "RateLimitError" in limit.detail
    # Aider does not say.
    (limit,) = kinds(recorded("aider", "a_rate_limit_is_waited_for.1"), RateLimited)
    assert limit.until == 0 and "RateLimitError" in limit.detail


# -- what was not recorded --------------------------------------------------------------------------------------------


def event(name: str, **about: Any) -> bytes:
    return msgspec.json.encode({"event": name, "properties": about}) + b"\n"


BEGIN, SENT, EXIT = event("message_send_starting"), event("message_send"), event("exit", reason="Completed --message")


def test_the_models_text_is_not_read_as_aiders_own_output() -> None:
    text = b"""It said:
litellm.RateLimitError: RateLimitError
The API provider has rate limited you. Try again later or check your quotas.
Retrying in 0.2 seconds...
Applied edit to nothing.txt
"""
    events = heard(AiderStream(), BEGIN + text + SENT + EXIT)
    assert [type(each) for each in events] == [Said, Finished] and events[-1] == Finished(True)


def test_an_error_that_aider_got_over_is_none() -> None:
    trouble = b"litellm.InternalServerError: no\nThe API provider's servers are down.\nRetrying in 0.2 seconds...\n"
    again = Retrying("litellm.InternalServerError: no", wait_s=0.2)
    assert heard(AiderStream(), BEGIN + trouble + b"Yes.\n" + SENT + EXIT) == [again, Said("Yes."), Finished(True)]
    told = heard(AiderStream(), BEGIN + trouble + EXIT)
    assert told == [again, Finished(False, "litellm.InternalServerError: no", UNREACHABLE)]


def test_an_empty_account_is_a_quota() -> None:
    told = b"litellm.RateLimitError: You exceeded your current quota\nThe API provider has rate limited you.\n"
    (finished,) = heard(AiderStream(), BEGIN + told)
    assert isinstance(finished, Finished) and finished.kind == QUOTA
    exit = {"role": "exit", "content": "exceeded your quota", "extra": {"exit_status": "RateLimitError"}}
    (finished,) = heard(MiniStream(), msgspec.json.encode(exit))
    assert isinstance(finished, Finished) and finished.kind == QUOTA


def test_a_model_without_a_known_price_is_estimated() -> None:
    line = event("message_send", prompt_tokens=1000, completion_tokens=100, cost=0)
    (spent,) = kinds(heard(AiderStream("x/gpt-4.1"), BEGIN + line), Spent)
    assert spent.estimated and spent.usd == pytest.approx(0.0028)


def test_a_command_that_submits_beside_its_work_is_a_turn() -> None:
    mini, talk = MiniStream(), Conversation(0)
    action = {"command": "touch a && echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "tool_call_id": "c1"}
    lines = [
        {"role": "assistant", "content": "All.", "extra": {"actions": [action]}},
        {"role": "exit", "content": "", "extra": {"exit_status": "Submitted"}},
    ]
    turned = [talk.apply(each) for line in lines for each in mini.read(msgspec.json.encode(line))]
    assert turned.count(True) == 1 and talk.finished == Finished(True)


def test_the_prompt_is_in_a_file_and_never_a_command() -> None:
    work = Work(task="T", attempt="T.1", prompt="/exit", definition=Definition("T", goal="do it"), model="openai/m-1")
    for agent in (Aider(), Mini()):
        launch = agent.launch(work)
        assert "openai/m-1" in launch.argv and "{files}/prompt.md" in launch.argv and "/exit" not in launch.argv
        assert launch.files["prompt.md"].strip() == "/exit" and not agent.can.resume and not launch.stdin
    assert not Aider().launch(work).files["prompt.md"].startswith(("/", "!"))
    compile(Mini().launch(work).files["holdfast_mini.py"], "holdfast_mini.py", "exec")


WORDS = st.sampled_from(
    [
        b"litellm.RateLimitError: x", b"The API provider has rate limited you", b"Retrying in 1 seconds", b"Tokens: 1",
        b"The API provider is not able to authenticate you", b"Applied edit to \xff", BEGIN.strip(), SENT.strip(),
        EXIT.strip(), event("message_send", prompt_tokens=-1, cost="x").strip(),
        event("message_send_exception").strip(),
    ]
)  # fmt: skip


@given(st.lists(WORDS | st.binary(max_size=50), max_size=20), st.integers(0, 255))
def test_no_order_of_words_stops_aiders_parser(lines: list[bytes], code: int) -> None:
    aider, talk = AiderStream(), Conversation(0)
    told = [each for line in lines for each in aider.read(line)] + list(aider.end(code))
    for each in told:
        talk.apply(each)
        msgspec.json.encode(each)
    assert len(kinds(told, ToolStarted)) == len(kinds(told, ToolEnded))
    assert kinds(told, Finished), "it ended without a word"


def test_an_endless_answer_fills_no_memory() -> None:
    aider = AiderStream()
    aider.read(BEGIN.strip())
    for _ in range(100_000):
        aider.read(b"x" * 1000)
    (said, *_) = aider.read(SENT.strip())
    assert isinstance(said, Said) and len(said.text) < 2 * TEXT_CHARS_MAX
