"""What a person sees between a review and the landing: a conflict that the agent resolved, a target that has moved, an
approval that is asked for again, and a result that is on its way. One run for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from browser.site import PHONE, Site, shot
from kit.git import git
from kit.project import state
from kit.waiting import wait_for

pytest.importorskip("playwright")
from playwright.sync_api import expect

Look = Callable[..., Any]
APP = "def a():\n    return 1\n\n\ndef b():\n    return 2\n"
SOLVED = APP.replace("1", "15").replace("\n", "\\n").removesuffix("\\n")
ON_TOP = """(name) => {
  const node = document.querySelector(name);
  const box = node.getBoundingClientRect();
  return document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2) === node;
}"""
TASKS = {
    "solved": f"attempt 1: run sed -i s/1/10/ app.py\nattempt 2: write app.py {SOLVED}",
    "again": "write again.txt hello\nwrite also.txt world",
    "held": "write held.txt hello",
    "phone": f"write phone.py {'x = 1 + ' * 30}1\nwrite a/rather/long/folder/for/one/small/file.txt hello",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("landing"))
    commit(made, "app", app=APP)
    hold = made.gate.with_name("hold")
    # Waits on request, so that a landing can be looked at.
    gate = f"while test -e {hold}; do sleep 0.05; done"
    for name, script in TASKS.items():
        made.add(name, script, approve=True, verify=[gate] if name == "held" else [])
    made.start()
    for name in TASKS:
        wait_for(lambda name=name: waits(made, name), f"the result of {name}")
    yield made
    hold.unlink(missing_ok=True)
    made.close()


def commit(site: Site, message: str, app: str = "", **files: str) -> None:
    given = {**({"app.py": app} if app else {}), **{f"{name}.txt": text for name, text in files.items()}}
    for name, text in given.items():
        (site.repo / name).write_text(text)
    git(site.repo, "add", *given)
    git(site.repo, "commit", "-qm", message)


def waits(site: Site, name: str, attempts: int = 1) -> bool:
    task = state(site.repo).tasks.get(name)
    return task is not None and str(task.state) == "PENDING_APPROVAL" and task.attempts == attempts


def approve(site: Site, name: str) -> None:
    candidate = state(site.repo).tasks[name].candidate
    site.ask(f"/tasks/{name}/review", {"candidate": candidate, "verdict": "approve"})


def test_a_conflict_that_the_agent_resolved_is_shown_with_how(site: Site, look: Look) -> None:
    # The target changes the same line: the landing conflicts, and the next attempt finds the markers.
    commit(site, "meanwhile", app=APP.replace("1", "5"))
    approve(site, "solved")
    wait_for(lambda: waits(site, "solved", attempts=2), "the resolution")
    page = look(site, "#/task/solved?part=review")
    notice = page.locator("[data-resolved]")
    expect(notice).to_contain_text("The agent has resolved a merge conflict in app.py.")
    expect(page.locator(".last-review summary")).to_contain_text("Approved by")
    # As it would land: the newer target's line becomes the agent's.
    expect(page.locator(".code.cut")).to_have_text(["    return 5"])
    notice.get_by_role("button", name="Show how").click()
    expect(page.get_by_label("Which change")).to_have_value("resolution")
    expect(page.locator(".code.cut").filter(has_text="<<<<<<<")).to_be_visible()
    expect(page.locator(".code.cut").filter(has_text="return 10")).to_be_visible()
    expect(page.locator(".code.add")).to_have_text(["    return 15"])
    # From there to the decision it is one step.
    expect(page.locator("[data-verdict=approve]")).to_be_visible()


def test_a_change_that_became_another_on_the_newer_target_is_asked_about_again(site: Site, look: Look) -> None:
    page = look(site, "#/task/again?part=review")
    expect(page.locator(".review-file")).to_have_count(2)
    expect(page.locator("[data-relanding]")).to_have_count(0)
    # A part of the change is on the target already, and lands without it.
    commit(site, "meanwhile", also="world\n")
    approve(site, "again")
    expect(page.locator("[data-approval]")).to_contain_text("its change is another in also.txt")
    notice = page.locator("[data-relanding]")
    expect(notice).to_contain_text("The target has moved since it was approved")
    expect(notice).to_contain_text("the change itself is another now in also.txt.")
    expect(page.locator(".review-file")).to_have_count(1)
    notice.get_by_role("button", name="Show the difference").click()
    expect(page.get_by_label("Which change")).to_have_value("landing")
    # What it would have added, and adds no more.
    expect(page.locator('[data-path="also.txt"] .code.cut').last).to_have_text("+world")
    expect(page.locator('[data-path="also.txt"] .code.add')).to_have_count(0)
    # It is no file of the change any more, so there is nothing to comment on.
    expect(page.get_by_role("button", name="Comment on the file")).to_have_count(0)
    shot(page, "what-lands")
    page.get_by_label("Which change").select_option("whole")
    page.locator("[data-verdict=approve]").click()
    page.locator("dialog button[type=submit]").click()
    expect(page.locator(".task-title .badge")).to_contain_text("landed")


def test_an_approved_result_says_that_it_is_landing_and_what_it_waits_for(site: Site, look: Look) -> None:
    page = look(site, "#/task/held?part=review")
    site.gate.with_name("hold").touch()
    commit(site, "meanwhile", other="other\n")
    page.locator("[data-verdict=approve]").click()
    page.locator("dialog button[type=submit]").click()
    notice = page.locator("[data-landing]")
    expect(notice).to_contain_text("Approved, and landing.")
    expect(notice).to_contain_text("its gates run once more")
    expect(page.locator(".task-title .badge")).to_contain_text("approved, lands")
    shot(page, "approved-and-landing")
    # Nothing is left to decide.
    expect(page.locator("[data-verdict]")).to_have_count(0)
    expect(page.locator("[data-approval]")).to_have_count(0)
    board = look(site)
    expect(board.locator('.card[data-task="held"] .badge')).to_contain_text("approved, lands")
    site.gate.with_name("hold").unlink()
    expect(page.locator(".task-title .badge")).to_contain_text("landed")
    expect(notice).to_have_count(0)
    expect(page.locator("[data-relanding]")).to_contain_text("the change itself is the same")


def test_a_change_is_read_commented_on_and_sent_back_on_a_phone(site: Site, look: Look) -> None:
    page = look(site, "#/task/phone?part=review", **PHONE)
    expect(page.locator(".review-file")).to_have_count(2)
    page.locator('[data-path="phone.py"] button[data-line="1"]').tap()
    page.locator(".comment-form textarea").fill("Too long for my screen.")
    # All of the form is to be seen: nothing stands over it.
    expect(page.get_by_role("button", name="Keep comment")).to_be_in_viewport(ratio=1)
    assert page.evaluate(ON_TOP, ".comment-form textarea") and page.evaluate(ON_TOP, ".comment-form button")
    shot(page, "comment-on-a-phone")
    page.get_by_role("button", name="Keep comment").tap()
    expect(page.locator(".comment")).to_contain_text("Too long for my screen.")
    # Nothing is cut off, and the decision is in reach.
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    expect(page.locator("[data-verdict=send_back]")).to_be_in_viewport()
    expect(page.locator("[data-verdict=approve]")).to_be_in_viewport()
    expect(page.locator(".kept")).to_have_text("Draft kept")
    shot(page, "review-on-a-phone")
    page.locator("[data-verdict=send_back]").tap()
    page.locator("dialog button[type=submit]").tap()
    wait_for(lambda: state(site.repo).tasks["phone"].start.number == 2, "the next start")
    [last] = state(site.repo).tasks["phone"].reviews.submitted
    assert [(each.path, each.line, each.words) for each in last.comments] == [
        ("phone.py", 1, "Too long for my screen.")
    ]
