"""The Output tab draws the typed events that `holdfast attach` tells, for the recorded streams of all six real CLIs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from browser.site import Site
from kit.program import holdfast
from kit.project import layout
from kit.recorded_streams import CLIS, FIXTURES
from kit.waiting import wait_for

pytest.importorskip("playwright")
from playwright.sync_api import expect

Look = Callable[..., Any]
# What a person must never be shown unasked: the CLIs' own JSON.
RAW = re.compile(r'\{"(type|event|role|content|callID|part)"|"session_id"|"sessionID"|\\u00')


def task(site: Site, name: str, agent: str) -> None:
    (layout(site.repo).backlog_open / f"{name}.yaml").write_text(f"goal: Write a.txt.\nagent: {agent}\n")


def recorded(cli: str, name: str) -> Any:
    (found,) = FIXTURES.glob(f"{cli}-*/{name}.jsonl")
    return found


def told(site: Site, attempt: str) -> list[dict[str, Any]]:
    lines = holdfast(site.repo, "attach", attempt, "--json").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_all_six_are_recorded() -> None:
    assert CLIS == ["aider", "claude", "codex", "gemini", "mini", "opencode"]


@pytest.mark.parametrize("cli", CLIS)
def test_a_real_agents_stream_is_drawn_live_and_afterwards(site: Site, look: Look, cli: str) -> None:
    env = site.records(cli, recorded(cli, "a_task_lands.1"), halt=True)
    task(site, "work", cli)
    page = look(site.start(env=env), "#/task/work?part=output")
    bar, output = page.locator(".output-bar"), page.locator(".output")
    expect(bar).to_contain_text("live")
    site.open_gate()
    wait_for(lambda: site.states().get("work") == "CLOSED", "the landing")
    expect(bar).to_contain_text("the attempt is over")
    expect(page.locator(".ev.said").last).to_be_visible()
    live = output.inner_text()
    page.reload()
    expect(bar).to_contain_text("the attempt is over")
    events = told(site, "work.1")
    said = [each["text"].strip() for each in events if each["type"] == "said"]
    tools = [each for each in events if each["type"] == "tool_started"]
    assert said and tools
    expect(page.locator(".ev.said")).to_have_count(len(said))
    assert [each.strip() for each in page.locator(".ev.said").all_text_contents()] == said
    # Each tool once, with its result folded into it.
    expect(page.locator("details.tool")).to_have_count(len(tools))
    names = page.locator("details.tool > summary > b").all_text_contents()
    assert names == [each["name"] for each in tools]
    assert page.locator("details.tool[open]").count() == page.locator("details.tool.pending").count() == 0
    results = [each["output"].rstrip() for each in events if each["type"] == "tool_ended" and each["output"].strip()]
    assert page.locator("details.tool .result").all_text_contents() == results
    turns = [each for each in events if each["type"] == "turn"]
    assert page.locator(".turn-mark > b").all_text_contents() == [f"Turn {each['turn']}" for each in turns]
    expect(page.locator(".ev.note.good")).to_contain_text("finished")
    for text in (live, output.inner_text()):
        assert not RAW.search(text), text
    # Live and afterwards it is the same, but for the cost that stands where no turn has told it yet.
    assert [line for line in live.splitlines() if "since the last turn" not in line] == [
        line for line in output.inner_text().splitlines() if "since the last turn" not in line
    ]
    page.get_by_role("button", name="Raw").click()
    expect(output).to_contain_text(recorded(cli, "a_task_lands.1").read_text().splitlines()[-1][:60])
    page.get_by_role("button", name="Raw").click()
    expect(page.locator(".ev.said")).to_have_count(len(said))


@pytest.mark.parametrize("cli", CLIS)
def test_the_failure_of_a_real_agent_is_drawn(site: Site, look: Look, cli: str) -> None:
    env = site.records(cli, recorded(cli, "a_refusal_is_a_failed_attempt.1"))
    task(site, "work", cli)
    site.start(env=env)
    wait_for(lambda: site.states().get("work") == "FAILED", "the failure")
    page = look(site, "#/task/work?part=output")
    (finished,) = [each for each in told(site, "work.1") if each["type"] == "finished"]
    expect(page.locator(".ev.note.bad")).to_contain_text("says that it has failed")
    expect(page.locator(".output")).to_contain_text(finished["detail"].strip().splitlines()[0][:80])
    assert not RAW.search(page.locator(".output").inner_text())


def write_events(site: Site, attempt: str, *events: dict[str, Any]) -> None:
    """Makes the attempt's events these."""
    lines = [json.dumps({"ts": 1e9 + place, "start": 1, "turn": 1, **each}) for place, each in enumerate(events)]
    files = layout(site.repo).attempt_files(attempt)
    files.turns.write_text("")
    files.events.write_text("".join(f"{line}\n" for line in lines))


def test_long_attempts_are_read_page_by_page_and_long_results_in_parts(site: Site, look: Look) -> None:
    site.add("many", "write many x")
    site.start()
    wait_for(lambda: site.states().get("many") == "CLOSED", "the landing")
    calls = [{"type": "said", "text": f"words {number}"} for number in range(649)]
    # The call stands at the end of one page, and its result at the beginning of the next.
    calls[450:450] = [{"type": "tool_started", "name": "cross", "call": "c", "input": "cat\n" + "i" * 9000}]
    calls[451:451] = [{"type": "tool_ended", "call": "c", "ok": True, "output": "line\n" * 3000}]
    write_events(site, "many.1", *calls)
    page = look(site, "#/task/many?part=output")
    said, earlier = page.locator(".ev.said"), page.get_by_role("button", name="Show what came before")
    expect(said).to_have_count(199)
    expect(page.locator("details.tool > summary")).to_contain_text("the result of a call")
    expect(said.last).to_be_in_viewport()
    for count in (398, 598, 649):
        earlier.click()
        expect(said).to_have_count(count)
    expect(earlier).to_be_hidden()
    assert said.all_text_contents() == [f"words {number}" for number in range(649)]
    tool = page.locator("details.tool")
    expect(tool).to_have_count(1)
    expect(tool.locator("summary")).to_contain_text("cross")
    expect(tool.locator("summary")).to_contain_text("3,000 lines")
    tool.locator("summary").click()
    result = tool.locator(".result")
    assert len(result.text_content()) < 6000
    for _ in range(3):
        result.get_by_role("button").click()
    assert result.text_content() == "\n".join(["line"] * 3000)


def test_every_kind_of_event_has_a_drawing(site: Site, look: Look) -> None:
    site.add("kinds", "write kinds x")
    site.start()
    wait_for(lambda: site.states().get("kinds") == "CLOSED", "the landing")
    hostile = "<img src=x onerror='window.hostile=1'>\u202e\u001b[31m"
    write_events(
        site, "kinds.1",
        {"type": "session", "id": "abc", "model": hostile},
        {"type": "said", "text": hostile},
        {"type": "tool_started", "name": hostile, "call": "1", "input": hostile},
        {"type": "tool_ended", "call": "1", "ok": False, "output": hostile},
        {"type": "spent", "usd": 0.00125, "tokens_in": 1000, "tokens_out": 20},
        {"type": "spent", "usd": 0.00125, "tokens_in": 1000, "tokens_out": 20},
        {"type": "compacted"},
        {"type": "rate_limited", "detail": "five hours"},
        {"type": "retrying", "detail": "refused", "tries": 1, "wait_s": 2},
        {"type": "retrying", "detail": "refused", "tries": 2, "wait_s": 4},
        {"type": "refused", "detail": "Counted otherwise than told."},
        {"type": "tool_started", "name": "sleep", "call": "2", "input": "1"},
        {"type": "said", "text": "again", "start": 2},
        {"type": "finished", "ok": False, "detail": "no quota", "start": 2},
        {"type": "ended", "start": 2},
    )  # fmt: skip
    page = look(site, "#/task/kinds?part=output")
    output = page.locator(".output")
    expect(page.locator(".ev.note.bad")).to_have_text("✕says that it has failed: no quota")
    expect(output).to_contain_text("rate limited: five hours")
    expect(output).to_contain_text("tries again, in 4 s (2 times now): refused")
    expect(output).not_to_contain_text("in 2 s")
    expect(output).to_contain_text("$0.0025, 2,040 tokens since the last turn")
    expect(output).to_contain_text("compacted its context")
    expect(output).to_contain_text("it goes on: start 2")
    expect(output).to_contain_text("Counted otherwise than told.")
    # A failed tool is open, and says so; one without an end has none.
    expect(page.locator("details.tool.bad[open]")).to_contain_text("failed")
    expect(page.locator("details.tool.pending")).to_contain_text("no result yet")
    expect(page.locator("details.tool .result")).to_contain_text("<img src=x")
    expect(page.locator("details.tool .result")).to_contain_text("202E")
    assert page.locator(".output img").count() == 0


def test_output_that_could_not_be_parsed_is_shown_raw(site: Site, look: Look) -> None:
    site.add("odd", "write odd x")
    site.start()
    wait_for(lambda: site.states().get("odd") == "CLOSED", "the landing")
    write_events(site, "odd.1")
    layout(site.repo).attempt_files("odd.1").output.write_text("".join(f"row {n}\n" for n in range(20_000)))
    page = look(site, "#/task/odd?part=output")
    expect(page.locator(".output-bar")).to_contain_text("nothing that could be read: see Raw")
    page.get_by_role("button", name="Raw").click()
    expect(page.locator(".output")).to_contain_text("row 19999")
    expect(page.locator(".output-bar")).to_contain_text("the attempt is over")
    earlier = page.get_by_role("button", name="Show what came before")
    while earlier.is_visible():
        before = len(page.locator(".output").text_content())
        earlier.click()
        wait_for(lambda had=before: len(page.locator(".output").text_content()) > had, "the page before")
    rows = re.findall(r"row (\d+)\n", page.locator(".output").text_content())
    assert [int(each) for each in rows] == list(range(20_000))
