"""Places and talk on the page: two candidates judged at once, the hooks of worktrees, what disk and memory have left,
and a person's message on its way into the agent's conversation. One run for all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from browser.site import Site, confirm, shot
from kit.program import holdfast
from kit.project import settings
from kit.waiting import wait_for

pytest.importorskip("playwright")
from playwright.sync_api import expect

Look = Callable[..., Any]
HOSTILE = "<img src=x onerror=window.hostile=1>"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("places"))
    hooks = {"setup": ["seq 1 3; echo ready"], "before_remove": [f"echo '{HOSTILE}'; exit 4"]}
    settings(made.repo, judging=2, max_agents=4, worktree=hooks)
    yield made.start()
    made.close()


def test_two_candidates_that_are_judged_at_once_say_on_top_of_what(site: Site, look: Look) -> None:
    hold = site.gate.with_name("hold")
    hold.touch()
    page = look(site)
    gate = [f"while test -e {hold}; do sleep 0.05; done"]
    site.add("first", "write first.txt x", verify=gate)
    wait_for(lambda: site.states().get("first") == "DONE", "the first candidate")
    site.add("second", "write second.txt x", verify=gate)
    try:
        first, second = (page.locator(f'[data-column=judge] .card[data-task="{name}"]') for name in ("first", "second"))
        for card in (first, second):
            expect(card.locator(".card-why")).to_contain_text("judged as")
        expect(second.locator(".card-why")).to_contain_text("on top of first, ahead of its turn")
        shot(page, "two-judged-at-once")
        page.goto(f"{site.address.url}/#/task/second")
        expect(page.locator("[data-judging=second]")).to_contain_text("on top of first")
    finally:
        hold.unlink()
    expect(page.locator(".task-title .badge")).to_contain_text("landed")
    expect(page.locator("[data-judging]")).to_have_count(0)


def test_the_hooks_of_a_worktree_are_listed_with_what_they_printed(site: Site, look: Look) -> None:
    site.add("hooked", "write hooked.txt x")
    page = look(site, "#/task/hooked?part=gates")
    hooks = page.get_by_role("region", name="Setup and hooks")
    failed = hooks.locator('[data-gate="before_remove of hooked.1"]')
    expect(failed).to_have_attribute("data-outcome", "failed")
    expect(failed).to_contain_text("code 4")
    expect(failed.locator("pre")).to_contain_text(HOSTILE)
    passed = hooks.locator('[data-gate="setup of hooked.1"]')
    expect(passed).to_have_attribute("data-outcome", "passed")
    passed.get_by_role("button", name="Output").click()
    expect(passed.locator("pre")).to_contain_text("ready")
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_board_has_tiles_for_free_memory_worktrees_and_snapshots(site: Site, look: Look) -> None:
    page = look(site)
    taken = r"[<>]?[\d.]+ [MG]B"
    for label, value in {"Free memory": r"\d+\.\d GB", "Worktrees": taken, "Snapshots": taken}.items():
        tile = page.locator(".tile", has=page.get_by_text(label, exact=True))
        expect(tile.locator("b")).to_have_text(re.compile(f"^{value}$"))


def test_a_message_from_the_page_is_in_the_story_and_reaches_the_agent(site: Site, look: Look) -> None:
    site.add("told", "wait\nwrite told.txt x", approve=True)
    page = look(site, "#/task/told")
    wait_for(lambda: site.states().get("told") == "IN_PROGRESS", "an agent at work")
    page.get_by_role("button", name="Tell").click()
    page.get_by_label("Message").fill(f"Mind the gap. {HOSTILE}")
    confirm(page)
    expect(page.locator(".toast")).to_contain_text("told: told. Its agent gets it at the end of its turn.")
    story = page.locator(".story")
    expect(story.get_by_text("told it: Mind the gap.")).to_be_visible()
    # Until its agent has it, the page says so.
    expect(page.locator("[data-told]")).to_contain_text("Mind the gap.")
    shot(page, "told")
    assert "told it: Mind the gap." in holdfast(site.repo, "history", "told")
    site.open_gate()
    expect(page.locator(".task-title .badge")).to_contain_text("wants approval")
    expect(page.locator("[data-told]")).to_have_count(0)
