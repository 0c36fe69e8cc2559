"""The scene of README.md: docs/images/board.png, and the screen of `holdfast watch` below it.

`HOLDFAST_GOLDEN=write make test-browser ARGS="-k readme -s -n 0"` takes the picture anew and prints the screen.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import pytest

from browser.site import Site
from kit import TOP
from kit.git import git
from kit.program import Terminal
from kit.project import state
from kit.waiting import wait_for

pytest.importorskip("playwright")
from playwright.sync_api import expect

COLUMNS = {
    "Waiting": ["manual"],
    "At work": ["login", "rounding"],
    "Judging": ["receipts"],
    "Failed or parked": ["search"],
    "Closed": ["cards"],
}


def shop(site: Site) -> Site:
    """A repository with one task of each kind; two agents are in the middle of `make test`."""
    site.repo = site.repo.rename(site.repo.parent / "shop")
    (site.repo / "Makefile").write_text(f"test:\n\t@while ! test -e {site.gate}; do sleep 0.05; done\n")
    git(site.repo, "add", "Makefile")
    git(site.repo, "commit", "-qm", "Tests")
    site.add("cards", "spend 0.12\nwrite cards.py expired", title="Reject expired cards", verify=["true"])
    site.add(
        "receipts", "spend 0.44\nwrite receipts.py pdf", title="Send receipts as PDF", approve=True, verify=["true"]
    )
    search = {"title": "Search by colour", "max_attempts": 1, "verify": ["grep -q colour search.py"]}
    site.add("search", "spend 0.09\nwrite search.py size", **search)
    login = "spend 0.21\nwrite login.py 1\nrun make test"
    site.add("login", login, title="Fix the login after a password change")
    rounding = "spend 0.31\nwrite round.py 1\nwrite half.py 1\nappend round.py 2\nrun make test"
    site.add("rounding", rounding, title="Round totals half to even")
    site.add("manual", "write manual.md login", title="Describe the login in the manual", depends_on=["login"])
    return site


def test_the_pictures_of_the_readme_are_what_there_is_to_see(site: Site, look: Callable[..., Any]) -> None:
    shop(site).start(env={"HOLDFAST_MAX_AGENTS": "3"})
    ended = {"cards": "CLOSED", "receipts": "PENDING_APPROVAL", "search": "FAILED"}
    wait_for(lambda: ended.items() <= site.states().items(), "the end of three")
    two = "login", "rounding"
    wait_for(lambda: [state(site.repo).tasks[each].spent.turns for each in two] == [1, 3], "their turns")
    page = look(site, width=1280, height=400)
    for label, tasks in COLUMNS.items():
        for task in tasks:
            expect(page.get_by_label(label, exact=True).locator(f'.card[data-task="{task}"]')).to_be_visible()
    with Terminal(site.repo, "watch", columns=100) as terminal:
        terminal.read_until("q leave")
        screen = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.seen)
    if os.environ.get("HOLDFAST_GOLDEN") == "write":
        page.screenshot(path=TOP / "docs" / "images" / "board.png")
        print(screen)
    told = (TOP / "README.md").read_text().partition("\nholdfast watch  ")[2].partition("\n```")[0].splitlines()
    assert len(told) == 9
    for line in told[1:]:
        # Turns, money and time differ each time.
        words = [word for word in line.split() if not re.fullmatch(r"\d|[$]\S+|\d+:\d\d", word)]
        assert re.search(r"[^\n]*?".join(map(re.escape, words)), screen), f"{line}\n{screen}"
