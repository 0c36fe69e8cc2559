"""The facts on the pages: figures, agents at work, and what was killed, has failed or is not known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from browser.site import Site
from kit.project import layout, settings
from kit.waiting import wait_for

pytest.importorskip("playwright")
from playwright.sync_api import expect

Look = Callable[..., Any]


def closed(site: Site, *names: str) -> None:
    wait_for(lambda: all(site.states().get(name) == "CLOSED" for name in names), "what lands")


def test_diffs_have_the_names_and_counts_of_their_files(site: Site, look: Look) -> None:
    makes = r"run printf 'a\000b' > bin.dat; echo 1 > 'größe ä.txt'; echo 2 > 'with space'; printf '1\n2\n' > plain"
    site.add("files", makes)
    page = look(site.start(), "#/task/files?part=turns")
    closed(site, "files")
    page.locator("li[data-turn='1'] summary").first.click()
    expect(page.locator("details.file")).to_have_count(4)

    def heads() -> list[str]:
        # Whether there is a blank between two boxes depends on how they are laid out.
        return sorted(re.sub(r"\s+", "", each) for each in page.locator("details.file > summary").all_inner_texts())

    # The page may be drawn again between two looks.
    wait_for(
        lambda: heads() == ["bin.datbinary", "größeä.txt+1\u22120", "plain+2\u22120", "withspace+1\u22120"], "the files"
    )


def test_a_task_that_has_landed_says_who_worked_on_it_and_how_it_was_judged(site: Site, look: Look) -> None:
    site.add("done", "write done x", verify=["true"])
    page = look(site.start())
    closed(site, "done")
    expect(page.locator(".card[data-task=done] .who")).to_have_text("scripted")
    page.get_by_label("Agent").select_option("scripted")
    expect(page.locator(".card[data-task=done]")).to_be_visible()
    # Of this task: what was judged since must not push it out.
    with page.expect_request(lambda asked: "/quality?task=done&" in asked.url):
        page.goto(f"{site.address.url}/#/task/done?part=gates")
    expect(page.locator(".verdicts")).to_contain_text("passed")
    expect(page.locator(".facts")).to_contain_text("scripted")


def test_the_definition_is_the_edited_one(site: Site, look: Look) -> None:
    site.start("serve")
    site.ask("/tasks", {"id": "one", "title": "The old title"})
    page = look(site, "#/task/one?part=definition")
    expect(page.locator(".definition")).to_contain_text("The old title")
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Title").fill("The new title")
    page.locator("dialog button[type=submit]").click()
    expect(page.locator(".definition")).to_contain_text("The new title")
    expect(page.locator(".definition")).not_to_contain_text("The old title")


def test_the_story_is_in_plain_words_and_in_full_on_demand(site: Site, look: Look) -> None:
    site.add("tale", "spend 0.25 1000\nwrite tale x\nattempt 1: fail no luck", max_attempts=2)
    page = look(site.start(), "#/task/tale")
    closed(site, "tale")
    story = page.locator(".story")
    expect(story.get_by_text("Verified and landed as")).to_be_visible()
    plain = story.inner_text()
    assert "The attempt failed: no luck; another attempt follows" in plain and "Turn 1, $0.25, 1,000 tokens" in plain
    assert not re.search(r"[a-z]_[a-z]|intent|about to|confirmed|definition", plain)
    page.get_by_role("button", name="In full").click()
    expect(story.get_by_text("janitor_verified_and_merged")).to_be_visible()
    expect(story.get_by_text("about to land")).to_be_visible()
    expect(story.get_by_text("Verified and landed as")).to_be_hidden()


def test_a_conversation_that_is_followed_by_another_says_so_and_why(site: Site, look: Look) -> None:
    settings(site.repo, session_turns_max=1)
    site.add("long", "write a 1\nwait")
    page = look(site.start(), "#/task/long")
    expect(page.locator(".facts > div", has_text="New conversation")).to_contain_text(
        "the conversation was ended behind a turn, because it has reached session_turns_max"
    )
    expect(page.locator(".facts > div", has_text="Chosen because")).to_have_text(re.compile("the task has a script$"))
    expect(page.locator(".story")).to_contain_text("Put back, for another conversation with the history in its prompt")


def test_kills_and_failures_are_told_apart_and_live_bars_count_whole_turns(site: Site, look: Look) -> None:
    site.add("bad", "fail no", max_attempts=1)
    site.add("long", "wait")
    site.start()
    wait_for(lambda: site.states().get("bad") == "FAILED" and site.states().get("long") == "IN_PROGRESS", "both")
    site.kill()
    page = look(site.start(), "#/timeline")
    expect(page.locator(".kill-mark")).to_have_count(1)
    expect(page.locator(".mark.bad")).to_have_count(1)
    expect(page.locator(".legend")).to_contain_text("run killed")
    expect(page.locator(".legend")).to_contain_text("task failed")
    # The lines that go through all rows are those of kills and of what was lost; a failure has none.
    expect(page.locator("line.kill")).to_have_count(1)
    expect(page.locator(".mark.bad line")).to_have_count(0)
    title = page.locator(".row", has_text="long.1").locator("title").text_content()
    assert title.endswith("0 turns")


def test_a_tool_is_called_current_only_while_it_runs(site: Site, look: Look) -> None:
    site.add("runs", "wait")
    site.add("thinks", f"write a 1\nrun true\nonce {site.gate}.begun: sleep 600", max_attempts=1)
    page = look(site.start(), "#/agents")
    try:
        tool = {
            name: page.get_by_label(f"scripted on {name}").locator(".facts > div").first for name in ("runs", "thinks")
        }
        expect(tool["runs"]).to_have_text(re.compile(r"^Tool\s*run while"))
        expect(tool["thinks"]).to_have_text(re.compile(r"^No tool runs; the last was\s*run true"))
    finally:
        site.ask("/tasks/thinks/cancel", {})


def test_the_journal_page_verifies_the_chain_by_itself(site: Site, look: Look) -> None:
    page = look(site.start("serve"), "#/journal")
    expect(page.locator(".chain")).to_contain_text("the chain holds")
    expect(page.locator(".chain time")).to_be_visible()
    with page.expect_response(lambda answer: "/journal/verify" in answer.url):
        page.get_by_role("button", name="Verify the chain").click()
    expect(page.locator(".chain")).to_contain_text("the chain holds")


def test_more_turns_than_a_page_has_are_all_shown(site: Site, look: Look) -> None:
    site.add("many", "write many x")
    site.start()
    closed(site, "many")
    path = layout(site.repo).attempt_files("many.1").turns
    line = json.loads(path.read_text())
    with open(path, "a") as file:
        file.writelines(json.dumps({**line, "turn": number}) + "\n" for number in range(2, 2502))
    page = look(site, "#/task/many?part=turns")
    expect(page.locator("li[data-turn]")).to_have_count(2501)
    assert page.locator("li[data-turn]").first.get_attribute("data-turn") == "2501"
