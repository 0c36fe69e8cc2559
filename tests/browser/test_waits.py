"""What waits says on the page why, until when, and what a person can do: nobody has to read a log for it."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from browser.site import Site, confirm
from kit.git import faulty_git, git
from kit.program import begin, holdfast
from kit.project import landed, settings, state
from kit.waiting import wait_for

pytest.importorskip("playwright")
from playwright.sync_api import expect

Look = Callable[..., Any]


def card(page: Any, task: str) -> Any:
    return page.locator(f'.card[data-task="{task}"]')


def waiting(site: Site, name: str = "readme", script: str = "append README.md more") -> Site:
    """One result whose landing waits for the person's own changes of README.md."""
    site.add(name, script)
    (site.repo / "README.md").write_text("mine\n")
    site.start()
    wait_for(lambda: bool(state(site.repo).tasks[name].landing.waits), "a landing that waits")
    return site


def test_a_landing_that_waits_is_seen_and_can_be_sent_back(site: Site, look: Look) -> None:
    page = look(
        waiting(
            site, script="attempt 1: append README.md more\nattempt 2+: run git checkout README.md\nwrite other.txt x"
        )
    )
    why = card(page, "readme").locator(".card-why")
    expect(why).to_contain_text("you have changed README.md")
    # All of it: the end says what to do.
    expect(why).to_contain_text("or cancel it.")
    expect(card(page, "readme").get_by_role("button", name="Land on a branch")).to_be_visible()
    expect(page.locator(".tile.ask")).to_contain_text("1")
    expect(card(page, "readme").locator(".badge")).to_contain_text("waits to land")
    card(page, "readme").get_by_role("button", name="Send back").click()
    page.locator("dialog button[type=submit]").click()
    expect(page.locator("dialog [role=alert]")).to_have_text("Reason is needed.")
    page.get_by_label("Reason").fill("Leave the README alone.")
    confirm(page)
    expect(page.locator('.card[data-task="readme"][data-state="CLOSED"]')).to_be_visible()
    assert landed(site.repo) == ["readme"] and (site.repo / "README.md").read_text() == "mine\n"
    assert git(site.repo, "show", "main:other.txt") == "x"


def test_a_landing_that_waits_can_land_on_a_branch(site: Site, look: Look) -> None:
    page = look(waiting(site), "#/task/readme")
    notice = page.locator(".notice.warn")
    expect(notice).to_contain_text("you have changed README.md in your checkout")
    expect(notice).to_contain_text("Commit or put away your changes")
    expect(page.locator("[data-action]")).to_have_text(["Send back", "Land on a branch", "Tell", "Edit", "Cancel"])
    page.get_by_role("button", name="Land on a branch").click()
    page.get_by_label("New branch").fill("main")
    page.locator("dialog button[type=submit]").click()
    expect(page.locator("dialog [role=alert]")).to_contain_text("there is a branch main already")
    page.get_by_label("New branch").fill("later/readme")
    confirm(page)
    expect(page.locator(".facts")).to_contain_text("later/readme")
    expect(notice).to_have_count(0)
    assert landed(site.repo, "later/readme") == ["readme"] and (site.repo / "README.md").read_text() == "mine\n"


def test_a_landing_that_waits_can_be_cancelled(site: Site, look: Look) -> None:
    page = look(waiting(site), "#/task/readme")
    page.get_by_role("button", name="Cancel").click()
    confirm(page)
    expect(page.locator(".task-title .badge")).to_have_text("⊖cancelled")
    assert landed(site.repo) == []


def test_an_agent_that_is_unreachable_is_reported_with_its_next_try(site: Site, look: Look) -> None:
    settings(site.repo, outage_after=1, outage_pause_s=5000, outage_pause_max_s=5000)
    site.add("away", "unreachable no route to the model")
    page = look(site.start())
    notice = page.locator("[data-outage]")
    expect(notice).to_contain_text("scripted is unreachable since")
    expect(notice).to_contain_text("next try at")
    why = card(page, "away").locator(".card-why")
    expect(why).to_contain_text("not before")
    expect(why).to_contain_text("no route to the model")
    assert state(site.repo).tasks["away"].attempts == 1
    page.goto(f"{site.address.url}/#/task/away")
    expect(page.locator(".task-head .notice")).to_contain_text("no route to the model")
    page.goto(f"{site.address.url}/#/agents")
    expect(page.locator("[data-outage]")).to_contain_text("scripted is unreachable since")


def test_a_task_behind_one_that_failed_says_so_and_what_to_do(site: Site, look: Look) -> None:
    site.add("first", "fail on purpose", max_attempts=1)
    site.add("second", "write second.txt x", depends_on=["first"])
    page = look(site.start())
    why = card(page, "second").locator(".card-why")
    expect(why).to_contain_text("depends on first, which is failed: retry that")
    page.goto(f"{site.address.url}/#/task/second")
    expect(page.locator(".task-head .notice")).to_contain_text("first, which is failed")
    expect(page.locator(".task-head .notice")).to_contain_text("holdfast retry first")


def test_a_lost_landing_is_reported_with_what_to_type_until_it_is_settled(site: Site, look: Look) -> None:
    site.add("t", "write t.txt x")
    holdfast(site.repo, "run")
    page = look(site.start())
    expect(card(page, "t")).to_be_visible()
    expect(page.locator("[data-lost]")).to_have_count(0)
    # By hand, while the page is open and nothing else happens.
    git(site.repo, "update-ref", "refs/heads/main", "main~1")
    notice = page.locator('[data-lost="t"]')
    expect(notice).to_contain_text("is not on main any more. Type: ")
    expect(notice).to_contain_text("holdfast resolve t --rewritten COMMIT | --dropped")
    expect(card(page, "t").locator(".card-why")).to_contain_text("is not on main any more")
    expect(page.locator(".tile.ask")).to_contain_text("1")
    page.goto(f"{site.address.url}/#/task/t")
    expect(page.locator(".task-head [data-lost]")).to_contain_text("--dropped")
    holdfast(site.repo, "resolve", "t", "--dropped")
    expect(page.locator("[data-lost]")).to_have_count(0)


def test_a_lock_of_a_dead_run_is_reported(site: Site, look: Look) -> None:
    site.add("t", "write t.txt x")
    assert begin(site.repo, HOLDFAST_CRASH_AT="land.swap.after:1").wait() == -signal.SIGKILL
    page = look(site.start("serve"))
    notice = page.locator("[data-lock]")
    expect(notice).to_contain_text(str(site.repo / ".git" / "index.lock"))
    expect(notice).to_contain_text("Do not remove it")
    expect(notice).to_contain_text("Type: holdfast stop, then holdfast run")


def test_a_fault_of_the_machine_is_reported(
    site: Site, look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fired = faulty_git(tmp_path, monkeypatch, '"worktree add"*', "kill -KILL $$")
    site.add("t", "write t.txt x")
    page = look(site.start())
    why = card(page, "t").locator(".card-why")
    expect(why).to_contain_text("held up by a fault of the machine")
    # A card is short; all of it is in its title, and on the task's page.
    expect(why).to_have_attribute("title", re.compile("SIGKILL"))
    assert fired.exists()
    page.goto(f"{site.address.url}/#/task/t")
    expect(page.locator(".task-head .notice.warn")).to_contain_text("SIGKILL")
    (tmp_path / "mended").touch()
    expect(page.locator(".task-title .badge")).to_have_text("●landed")


def test_a_failed_task_says_why_and_links_to_its_gates_output(site: Site, look: Look) -> None:
    site.add("broken", "write a x", verify=["echo the door is open; false"], max_attempts=1)
    site.add("luckless", "fail no luck", max_attempts=1)
    page = look(site.start())
    expect(card(page, "luckless").locator(".card-why")).to_have_text("no luck")
    expect(card(page, "broken").locator(".card-why")).to_contain_text("the gate verify-1")
    page.goto(f"{site.address.url}/#/task/broken")
    reason = page.locator(".task-head [data-reason=FAILED]")
    expect(reason).to_contain_text("Failed: the gate verify-1")
    reason.get_by_role("link", name="What the gate printed").click()
    expect(page.locator(".gates pre")).to_have_text("the door is open")
    page.goto(f"{site.address.url}/#/task/luckless")
    expect(page.locator(".task-head [data-reason=FAILED]")).to_have_text("Failed: no luck")


def test_the_answer_to_a_question_is_on_its_page(site: Site, look: Look) -> None:
    site.add("ask", "say It is in store.py.", may_change_nothing=True)
    page = look(site.start(), "#/task/ask")
    expect(page.locator(".notice.answer")).to_contain_text("It is in store.py.")
    # Nothing was to be checked.
    expect(page.locator(".task-head")).not_to_contain_text("No gate")
    page.get_by_role("tab", name="Gates").click()
    expect(page.locator(".no-gate")).to_have_count(0)
