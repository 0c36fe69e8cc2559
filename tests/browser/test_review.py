"""Review on the page: the change, comments on its lines, a draft in two browsers and through a kill, the verdict."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from browser.site import Site, confirm, shot
from holdfast.domain.task_record import Task
from kit.git import git
from kit.project import state
from kit.waiting import wait_for

pytest.importorskip("playwright")
from playwright.sync_api import expect

Look = Callable[..., Any]
HOSTILE = "<img src=x onerror=window.hostile=1>"
APP = "".join(f"line {number}\n" for number in range(1, 41))
PAGE = "#/task/t?part=review"


def wait_until_it_waits(site: Site, than: str = "") -> None:
    def is_so() -> bool:
        task = state(site.repo).tasks.get("t")
        return task is not None and str(task.state) == "PENDING_APPROVAL" and task.candidate != than

    wait_for(is_so, "a result that waits")


def begin(site: Site) -> None:
    """A task with a change of two files, which changes one line once more when it is sent back."""
    (site.repo / "app.txt").write_text(APP)
    git(site.repo, "add", ".")
    git(site.repo, "commit", "-qm", "app")
    steps = ["run sed -i 's/line 10/LINE 10/; s/line 20/LINE 20/; s/line 30/LINE 30/' app.txt"]
    steps += [f"write new.py def f(): # {HOSTILE}", f"while {site.gate}: run sed -i 's/LINE 20/line twenty/' app.txt"]
    site.add("t", "\n".join(steps), approve=True)
    site.start()
    wait_until_it_waits(site)


def task_of(site: Site) -> Task:
    return state(site.repo).tasks["t"]


def line(page: Any, number: int, side: str = "new", path: str = "app.txt") -> Any:
    return page.locator(f'[data-path="{path}"] button[data-side={side}][data-line="{number}"]')


def drag(page: Any, begin: Any, end: Any) -> None:
    """With the mouse, from one number to another, over those between."""
    begin.hover()
    page.mouse.down()
    place = end.bounding_box()
    page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2, steps=8)
    page.mouse.up()


def comment(page: Any, words: str) -> None:
    page.locator(".comment-form textarea").fill(words)
    page.get_by_role("button", name="Keep comment").click()
    expect(page.locator(".comment-form")).to_have_count(0)


def test_a_comment_on_a_line_or_a_range_goes_back_to_the_agent_and_its_fate_is_shown(site: Site, look: Look) -> None:
    begin(site)
    page = look(site, PAGE)
    expect(page.locator("[data-approval]")).to_contain_text("the task says `approve: true`")
    expect(page.locator(".review-file")).to_have_count(2)
    expect(page.locator('[data-path="new.py"] .code')).to_contain_text([HOSTILE])
    assert page.evaluate("window.hostile") == 0
    line(page, 10).click()
    comment(page, "Why so loud?")
    # A range with Shift, and one by keys.
    line(page, 19).click()
    line(page, 21).click(modifiers=["Shift"])
    comment(page, "All three.")
    line(page, 30).focus()
    page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".comment-form")).to_contain_text("Lines 30")
    comment(page, "By keys.")
    drag(page, line(page, 12), line(page, 10))
    expect(page.locator(".comment-form")).to_contain_text("Lines 10")
    expect(page.locator("tr.picked")).to_have_count(3)
    shot(page, "range-by-dragging")
    comment(page, "Dragged upwards.")
    expect(page.locator("tr.picked")).to_have_count(0)
    page.locator('[data-path="new.py"]').get_by_role("button", name="Comment on the file").click()
    comment(page, "Needed?")
    expect(page.locator(".verdict .num")).to_have_text("5 comments")
    before = task_of(site)
    site.open_gate()
    page.get_by_role("button", name="Send back", exact=True).click()
    confirm(page)
    wait_until_it_waits(site, than=before.candidate)
    now = task_of(site)
    assert (now.attempts, now.attempt.id, now.start.number) == (1, before.attempt.id, 2)
    [last] = now.reviews.submitted
    assert [(each.path, each.line, each.last, each.words) for each in last.comments] == [
        ("app.txt", 10, 10, "Why so loud?"),
        ("app.txt", 19, 21, "All three."),
        ("app.txt", 30, 31, "By keys."),
        ("app.txt", 10, 12, "Dragged upwards."),
        ("new.py", 0, 0, "Needed?"),
    ]
    assert last.comments[1].quote == "line 19\nLINE 20\nline 21"
    expect(page.locator(".last-review li.touched")).to_contain_text(["All three."])
    expect(page.locator(".last-review li.untouched")).to_have_count(4)
    page.get_by_label("Which change").select_option("since")
    expect(page.locator(".review-file")).to_have_count(1)
    expect(page.locator(".code.add")).to_have_text(["line twenty"])
    page.get_by_label("Which change").select_option("turn:1")
    expect(page.locator('[data-path="app.txt"] .code.add')).to_have_count(3)
    page.get_by_role("button", name="Approve", exact=True).last.click()
    confirm(page)
    wait_for(lambda: site.states()["t"] == "CLOSED", "the landing")


def test_a_draft_of_one_browser_is_in_the_other_and_survives_a_kill(site: Site, look: Look) -> None:
    begin(site)
    one, other = look(site, PAGE), look(site, PAGE, width=390, height=800)
    line(one, 20).click()
    comment(one, f"Kept. {HOSTILE}")
    expect(one.locator(".kept")).to_have_text("Draft kept")
    expect(other.locator(".comment")).to_contain_text([HOSTILE])
    expect(other.locator(".verdict .num")).to_have_text("1 comment")
    # A phone is as wide as its window: nothing is cut off.
    assert other.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    site.kill()
    # What is written while there is no server stays in this browser, and is saved when there is one again.
    line(one, 30).click()
    comment(one, "Without a server.")
    expect(one.locator(".kept")).to_contain_text("Kept in this browser only")
    site.start()
    third = look(site, PAGE)
    expect(third.locator(".comment")).to_contain_text(["Kept."])
    expect(one.locator(".kept")).to_have_text("Draft kept")
    wait_for(lambda: len(task_of(site).reviews.drafts[0].comments) == 2, "the draft in the journal")
    expect(third.locator(".comment")).to_have_count(2)
    for page in (one, other):
        page.troubles[:] = [each for each in page.troubles if "ERR_" not in each and "Failed to load" not in each]


def test_a_review_of_an_older_result_is_refused_and_its_words_stay(site: Site, look: Look) -> None:
    begin(site)
    page = look(site, PAGE)
    line(page, 10).click()
    comment(page, "Too late.")
    expect(page.locator(".kept")).to_have_text("Draft kept")
    page.get_by_role("button", name="Send back", exact=True).click()
    site.open_gate()
    old = task_of(site).candidate
    site.ask("/tasks/t/review", {"candidate": old, "verdict": "send_back", "summary": "Again."})
    wait_until_it_waits(site, than=old)
    page.locator("dialog button[type=submit]").click()
    expect(page.locator("dialog [role=alert]")).to_contain_text("came too late")
    page.get_by_role("button", name="Back", exact=True).click()
    assert str(task_of(site).state) == "PENDING_APPROVAL"
    expect(page.locator(".comment")).to_contain_text(["Too late."])
    page.troubles[:] = [each for each in page.troubles if "409" not in each]


def test_a_hostile_name_a_binary_and_a_huge_file_are_shown_as_what_they_are(site: Site, look: Look) -> None:
    name = "a\u202egnp.exe"
    made = f"run printf '\\000\\001' > data.bin; seq 1 200000 > huge.txt; echo x > '{name}'; mkdir -p 'a b'"
    made += "; echo y > 'a b/c\"d'"
    site.add("t", made, approve=True)
    site.start()
    wait_until_it_waits(site)
    assert os.environ["HOLDFAST_BROWSER"]
    page = look(site, PAGE)
    expect(page.locator(".review-file")).to_have_count(4)
    expect(page.get_by_text("It is not text, and cannot be shown.")).to_be_visible()
    expect(page.locator("summary").filter(has_text="202E")).to_have_count(1)
    huge = page.locator('[data-path="huge.txt"]')
    huge.scroll_into_view_if_needed()
    expect(huge).to_contain_text("It is longer than this.")
    expect(huge.locator("tr")).to_have_count(601)
    huge.get_by_role("button", name="more lines").click()
    expect(huge.locator("tr")).to_have_count(1201)
    quoted = page.locator("details", has=page.get_by_text('c"d')).last
    quoted.get_by_role("button", name="Comment on the file").click()
    comment(page, "Odd.")
    expect(page.locator(".kept")).to_have_text("Draft kept")
    assert task_of(site).reviews.drafts[0].comments[0].path == 'a b/c"d'
