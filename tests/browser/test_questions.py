"""Two browsers: one sees what an agent asks, the other answers, and the first one learns of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from browser.site import PHONE, Site, shot
from kit.tasks import journal
from kit.waiting import wait_for

pytest.importorskip("playwright")
from playwright.sync_api import expect

Look = Callable[..., Any]


@pytest.mark.parametrize("verb", ["ask", "ask-later"])
def test_a_question_is_seen_in_one_browser_and_answered_in_another(
    site: Site, look: Look, tmp_path: Path, verb: str
) -> None:
    ran = tmp_path / "ran.txt"
    page = look(site.start())
    # As wide as a phone.
    phone = look(site, width=360)
    site.add("one", f"{verb} run echo '<b>x</b>' >> {ran}\nwrite one 1", permissions="ask")
    question = page.locator('[data-question="one.1.q1"]')
    expect(question).to_be_visible()
    expect(question.locator("pre")).to_contain_text("echo '<b>x</b>'")
    expect(question.locator("p")).to_have_text(re.compile("^one wants to call run scripted, (just now|.* ago)$"))
    # It is not at work, also where its agent waits as a process.
    card = page.locator("[data-column=wait] .card[data-task=one]")
    expect(card).to_contain_text("asks you")
    expect(card).to_contain_text("holdfast answer one.1.q1 --allow")
    expect(page.locator(".tile", has_text="At work")).to_contain_text("0")
    asked = phone.locator('[data-question="one.1.q1"]')
    expect(asked).to_be_visible()
    assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")
    asked.locator("[data-action=allow]").click()
    expect(question).to_be_hidden()
    expect(page.locator("[data-column=good] .card[data-task=one]")).to_be_visible()
    assert ran.read_text() == "<b>x</b>\n"


def test_an_answer_in_words_and_a_denial_reach_the_agent(site: Site, look: Look) -> None:
    # With a thumb, on a phone.
    page = look(site.start(), **PHONE)
    site.add("one", "ask-later question Which colour?\nask-later run false\nwrite one 1", permissions="ask")
    button = page.locator('[data-question="one.1.q1"] [data-action=say]')
    button.tap()
    assert button.bounding_box()["height"] >= 32, "for a thumb"
    page.get_by_label("Your answer").fill("the blue one")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shot(page, "question-on-a-phone")
    page.get_by_role("dialog").get_by_role("button", name="Answer").tap()
    # The next one on the task's own page.
    page.goto(f"{site.address.url}/#/task/one")
    page.locator('[data-question="one.1.q2"] [data-action=deny]').tap()
    page.get_by_label("Reason, for the agent").fill("not now")
    page.get_by_role("dialog").get_by_role("button", name="Deny").click()
    expect(page.locator("[data-question]")).to_have_count(0)
    wait_for(lambda: site.states().get("one") == "CLOSED", "the landing")
    answers = wait_for(lambda: journal(site.repo, "question_answered"))
    assert [(each.inputs["answer"], each.inputs["words"]) for each in answers] == [
        ("say", "the blue one"),
        ("deny", "not now"),
    ]
