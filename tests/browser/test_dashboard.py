"""What a person does on the dashboard, from the first task to what it has landed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from browser.site import Site, confirm
from kit.project import landed, layout, state
from kit.waiting import wait_for

pytest.importorskip("playwright")
from playwright.sync_api import expect

Look = Callable[..., Any]
# Each view, with what it shows where there is something to show.
SHOWN = {
    "graph": ".node", "agents": ".agent", "timeline": ".row", "costs": ".plot svg", "journal": ".entries li",
    "task/done?part=gates": ".verdicts", "task/done?part=spend": ".plot svg", "task/done?part=definition": "dt",
}  # fmt: skip


def card(page: Any, task: str, state: str) -> Any:
    return page.locator(f'.card[data-task="{task}"][data-state="{state}"]')


def test_a_task_is_added_in_the_page_and_lands(site: Site, look: Look) -> None:
    page = look(site.start())
    page.get_by_role("button", name="Add the first task").click()
    page.get_by_label("Title").fill("Write a greeting")
    page.get_by_text("More", exact=True).click()
    page.get_by_label("Id", exact=True).fill("greet")
    page.get_by_label("Script").fill("say hello\nspend 0.25 1000\nwrite hello.txt hello\n")
    confirm(page)
    expect(card(page, "greet", "CLOSED")).to_be_visible()
    assert landed(site.repo) == ["greet"]
    page.locator(".card[data-task=greet] a.card-title").click()
    expect(page.locator(".story")).to_contain_text("Verified and landed")
    page.get_by_role("tab", name="Turns").click()
    page.locator("li[data-turn='1'] summary").first.click()
    expect(page.locator(".diff .add").first).to_have_text("+hello")


def test_a_server_that_is_killed_leaves_no_gap(site: Site, look: Look) -> None:
    site.add("long", "write a 1\nwait\nwrite b 2\nwrite c 3")
    page = look(site.start())
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    expect(card(page, "long", "IN_PROGRESS")).to_be_visible()
    cursor = site.ask("/status")["cursor"]
    site.ask("/tasks", {"id": "before", "title": "Before", "script": "write before x"})
    expect(card(page, "before", "CLOSED")).to_be_visible()
    site.kill()
    expect(page.locator("#connection")).to_have_attribute("data-state", "lost")
    site.open_gate()
    site.add("meanwhile", "write meanwhile x")
    site.start()
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    expect(card(page, "long", "CLOSED")).to_be_visible()
    expect(card(page, "meanwhile", "CLOSED")).to_be_visible()
    told = [f"{run}:{entry.seq}" for run, entry in site.entries_after(cursor)]
    assert len({each.partition(":")[0] for each in told}) == 2
    wait_for(lambda: told[-1] in page.evaluate("window.seen.map((each) => each.id)"), "the last event")
    seen = page.evaluate("window.seen.map((each) => each.id)")
    assert [each for each in seen if each in told] == told
    assert len(seen) == len(set(seen))


def test_a_result_that_waits_for_a_person_is_approved_or_rejected(site: Site, look: Look) -> None:
    site.add("yes", "write yes x", approve=True)
    site.add("no", "write no x", approve=True, max_attempts=1)
    page = look(site.start())
    card(page, "yes", "PENDING_APPROVAL").get_by_role("button", name="Approve").click()
    confirm(page)
    expect(card(page, "yes", "CLOSED")).to_be_visible()
    card(page, "no", "PENDING_APPROVAL").get_by_role("button", name="Reject").click()
    page.locator("dialog button[type=submit]").click()
    expect(page.locator("dialog [role=alert]")).to_have_text("Reason is needed.")
    page.get_by_label("Reason").fill("It is not what was asked for.")
    confirm(page)
    expect(card(page, "no", "FAILED")).to_be_visible()
    assert landed(site.repo) == ["yes"]


def test_a_turn_is_undone_and_another_forked(site: Site, look: Look) -> None:
    site.add("twice", "write one 1\nwrite two 2\nattempt 1: fail no more", max_attempts=1)
    page = look(site.start())
    expect(card(page, "twice", "FAILED")).to_be_visible()
    page.goto(f"{site.address.url}/#/task/twice?part=turns")
    worktree = layout(site.repo).worktrees / "twice"
    assert (worktree / "two").exists()
    page.locator("li[data-turn='1']").get_by_role("button", name="Undo to here").click()
    confirm(page)
    wait_for(lambda: not (worktree / "two").exists(), "the tree of the first turn")
    assert (worktree / "one").exists()
    page.locator("li[data-turn='2']").get_by_role("button", name="Fork").click()
    confirm(page)
    wait_for(lambda: site.states()["twice"] == "CLOSED", "the fork's landing")
    page.get_by_role("tab", name="Story").click()
    expect(page.locator(".story")).to_contain_text("Verified and landed")


def test_a_problem_is_told_in_its_own_sentence(site: Site, look: Look) -> None:
    site.add("one", "write one 1")
    page = look(site.start())
    expect(card(page, "one", "CLOSED")).to_be_visible()
    page.keyboard.press("n")
    page.get_by_label("Title").fill("The same again")
    page.get_by_text("More", exact=True).click()
    page.get_by_label("Id", exact=True).fill("one")
    page.locator("dialog button[type=submit]").click()
    expect(page.locator("dialog [role=alert]")).to_contain_text("one")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)


def test_an_edit_is_saved_and_a_cancel_asked_for_again(site: Site, look: Look) -> None:
    site.add("other", "write x x", depends_on=["held"])
    site.add("held", "wait")
    page = look(site.start(), "#/task/other")
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Priority").fill("2")
    confirm(page)
    assert site.ask("/tasks/other")["task"]["priority"] == 2
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Back").click()
    assert site.states()["other"] == "OPEN"
    page.get_by_role("button", name="Cancel").click()
    confirm(page)
    expect(page.locator(".task-title .badge")).to_have_text("⊖cancelled")


def test_output_is_followed_as_it_comes(site: Site, look: Look) -> None:
    site.add("talk", "say the first words\nwait\nsay the last words")
    page = look(site.start())
    expect(card(page, "talk", "IN_PROGRESS")).to_be_visible()
    page.goto(f"{site.address.url}/#/task/talk?part=output")
    expect(page.locator(".output")).to_contain_text("the first words")
    site.open_gate()
    expect(page.locator(".output")).to_contain_text("the last words")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_has_something_to_show(site: Site, look: Look, scheme: str) -> None:
    site.add("done", "spend 0.5 2000\nwrite done x", verify=["true"])
    site.add("bad", "fail no", max_attempts=1)
    site.add("held", "wait", depends_on=["done"])
    page = look(site.start(), color_scheme=scheme)
    expect(card(page, "held", "IN_PROGRESS")).to_be_visible()
    for path, shown in SHOWN.items():
        page.goto(f"{site.address.url}/#/{path}")
        expect(page.locator(shown).first).to_be_visible()
        expect(page.locator(".notice.bad")).to_have_count(0)
    page.locator("#theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light" if scheme == "dark" else "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "light" if scheme == "dark" else "dark")


def test_two_thousand_tasks_are_not_two_thousand_cards(site: Site, look: Look) -> None:
    site.start("serve")
    for half in (0, 1000):
        tasks = [{"id": f"t{n}", "title": f"Task {n}", "script": "write a b"} for n in range(half, half + 1000)]
        site.ask("/tasks/batch", {"tasks": tasks})
    page = look(site)
    expect(page.locator(".column.wait .number")).to_have_text("2,000")
    assert page.locator(".card").count() < 100
    page.get_by_role("searchbox", name="Search tasks").fill("t1777")
    expect(page.locator(".card")).to_have_count(1)
    page.goto(f"{site.address.url}/#/graph")
    expect(page.locator(".node").first).to_be_visible()
    assert page.locator(".node").count() <= 300
    expect(page.locator("main [role=status]").first).to_contain_text("nothing is at work, and nothing is linked")


def test_an_agent_is_told_in_the_page_and_the_whole_change_stands_beside_the_approval(site: Site, look: Look) -> None:
    site.add("told", "write one 1", approve=True)
    page = look(site.start())
    expect(card(page, "told", "PENDING_APPROVAL")).to_be_visible()
    page.goto(f"{site.address.url}/#/task/told?part=turns")
    page.locator("[data-action=tell]").first.click()
    page.get_by_label("Message").fill("Mind the gap.")
    confirm(page)
    wait_for(lambda: not state(site.repo).tasks["told"].told, "that it was told")
    wait_for(lambda: site.states()["told"] == "PENDING_APPROVAL", "its second result")
    page.get_by_role("tab", name="Output").click()
    expect(page.locator(".ev.told")).to_have_text("Mind the gap.")
    page.get_by_role("tab", name="Turns").click()
    whole = page.locator("[data-part=whole]")
    whole.locator("summary").first.click()
    expect(whole).to_contain_text("+1")
    whole.get_by_role("button", name="Approve").click()
    confirm(page)
    wait_for(lambda: landed(site.repo) == ["told"], "its landing")
