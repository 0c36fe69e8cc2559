"""Many tabs of one browser: each is signed in, they share one stream, and none misses what happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from browser.site import Site
from kit.waiting import wait_for

pytest.importorskip("playwright")
from playwright.sync_api import expect

Look = Callable[..., Any]
# Before the page's own scripts: as if somebody looked at another tab.
HIDE = """
window.isHidden = false;
Object.defineProperty(document, "hidden", { get: () => window.isHidden });
window.hide = (is) => { window.isHidden = is; document.dispatchEvent(new Event("visibilitychange")); };
"""


def live(page: Any) -> None:
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")


def seen(page: Any) -> list[str]:
    found: list[str] = page.evaluate("window.seen.map((each) => each.id)")
    return found


def test_a_tab_that_is_opened_from_a_card_is_signed_in(site: Site, look: Look) -> None:
    site.add("one", "write one 1")
    page = look(site.start())
    link = page.locator(".card[data-task=one] a.card-title")
    expect(link).to_be_visible()
    with page.context.expect_page() as opening:
        link.click(modifiers=["ControlOrMeta"])
    other = opening.value
    expect(other.locator(".task-title h1")).to_be_visible()
    live(other)
    assert site.address.token not in other.url
    for kept in ("localStorage", "document.cookie"):
        assert site.address.token not in other.evaluate(f"JSON.stringify({kept})")


def test_signing_in_in_one_tab_signs_in_the_tabs_that_wait(site: Site, look: Look) -> None:
    site.start()
    page = look(site, token="wrong")
    expect(page.get_by_role("alert")).to_be_visible()
    other = page.context.new_page()
    other.goto(site.address.url)
    other.get_by_label("Token").fill(site.address.token)
    other.get_by_role("button", name="Sign in").click()
    live(other)
    live(page)


def test_ten_tabs_share_one_stream_and_the_next_goes_on_where_one_is_closed(site: Site, look: Look) -> None:
    site.start("serve")
    first = look(site)
    live(first)
    streams: list[str] = []
    first.context.on("request", lambda asked: streams.append(asked.url) if "/events" in asked.url else None)
    pages = []
    for _ in range(9):
        page = first.context.new_page()
        page.goto(f"{site.address.url}/#/board")
        live(page)
        pages.append(page)
    assert streams == []
    cursor = site.ask("/status")["cursor"]

    def expected() -> list[str]:
        entries = site.entries_after(cursor)
        return [f"{run}:{entry.seq}" for run, entry in entries]

    site.ask("/tasks", {"id": "before", "title": "Before"})
    wait_for(lambda: all(set(expected()) <= set(seen(page)) for page in pages), "what all tabs are told")
    # While the tab that follows is closed, things happen.
    site.ask("/tasks", {"id": "meanwhile", "title": "Meanwhile"})
    first.goto("about:blank")
    for number in range(5):
        site.ask("/tasks", {"id": f"after{number}", "title": "After"})
    for page in pages:
        expect(page.locator(".card")).to_have_count(7)
    told = expected()
    wait_for(lambda: all(told[-1] in seen(page) for page in pages), "the last event in all tabs")
    for page in pages:
        assert [each for each in seen(page) if each in told] == told
        assert len(seen(page)) == len(set(seen(page)))
    assert len(streams) == 1
    first.goto(f"{site.address.url}/#/board")
    live(first)


def test_output_is_paused_while_nobody_looks_and_goes_on_there(site: Site, look: Look) -> None:
    site.add("talk", "say the first words\nwait\nsay the last words\nwrite talk x")
    page = look(site.start())
    expect(page.locator(".card[data-task=talk][data-state=IN_PROGRESS]")).to_be_visible()
    page.add_init_script(HIDE)
    page.goto(f"{site.address.url}/#/task/talk?part=output")
    page.reload()
    expect(page.locator(".output")).to_contain_text("the first words")
    page.evaluate("window.hide(true)")
    expect(page.locator(".output-bar")).to_contain_text("paused while hidden")
    site.open_gate()
    wait_for(lambda: site.states()["talk"] == "CLOSED", "the end of the agent")
    assert "the last words" not in page.locator(".output").text_content()
    page.evaluate("window.hide(false)")
    expect(page.locator(".output")).to_contain_text("the last words")
    assert page.locator(".output").text_content().count("the first words") == 1


def test_over_plain_http_from_elsewhere_buttons_work_and_hidden_tabs_let_go(site: Site, look: Look) -> None:
    site.start("serve", names=["holdfast.test"])
    page = look(site, host="holdfast.test")
    page.add_init_script(HIDE)
    page.reload()
    live(page)
    assert not page.evaluate("isSecureContext")
    page.get_by_role("button", name="Add the first task").click()
    page.get_by_label("Title").fill("From afar")
    page.locator("dialog button[type=submit]").click()
    expect(page.locator(".card")).to_have_count(1)
    page.evaluate("window.hide(true)")
    expect(page.locator("#connection")).to_have_text("paused while hidden")
    site.ask("/tasks", {"id": "unseen", "title": "Unseen"})
    page.evaluate("window.hide(false)")
    live(page)
    expect(page.locator(".card")).to_have_count(2)
    # The browser says that it leaves a header out of account there; nothing else.
    assert all("Cross-Origin-Opener-Policy header has been ignored" in each for each in page.troubles)
    page.troubles.clear()
