"""The Gates tab tells of each gate how it came out, with what it printed: of one that failed at once, of others on
demand. What did not run is not called failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from browser.site import Site
from kit.program import holdfast
from kit.project import layout, settings
from kit.recorded_streams import CLIS, FIXTURES
from kit.waiting import wait_for

pytest.importorskip("playwright")
from playwright.sync_api import expect

Look = Callable[..., Any]
HOSTILE = "<img src=x onerror=window.hostile=1>"
VERIFY = ["echo all is well", f"seq 1 9000; echo '{HOSTILE}'; echo it is broken >&2; exit 3", "echo never"]


def gate(page: Any, name: str) -> Any:
    return page.locator(f'[data-gate="{name}"]')


def test_a_gate_that_failed_shows_its_end_and_one_that_did_not_run_says_so(site: Site, look: Look) -> None:
    site.add("bad", "write bad x", verify=VERIFY, max_attempts=1)
    site.start()
    wait_for(lambda: site.states().get("bad") == "FAILED", "the verdict")
    page = look(site, "#/task/bad?part=gates")
    outcomes = [gate(page, f"verify-{number}").get_attribute("data-outcome") for number in (1, 2, 3)]
    assert outcomes == ["passed", "failed", "not_run"]
    expect(page.locator(".verdict-head")).to_contain_text("3 gates: 1 passed, 1 failed, 1 not run")
    expect(gate(page, "verify-3")).to_contain_text("not run")
    expect(gate(page, "verify-3")).not_to_contain_text("failed")
    expect(gate(page, "verify-3").get_by_role("button")).to_have_count(0)
    failed = gate(page, "verify-2")
    expect(failed).to_contain_text("code 3")
    # The same lines as `holdfast gates` prints.
    shown = msgspec.json.decode(holdfast(site.repo, "gates", "bad", "--json"))["gates"][1]["output"]
    assert failed.locator("pre").text_content().split("\n") == shown and shown[-1] == "it is broken"
    expect(failed.locator("pre")).not_to_contain_text("\n42\n")
    failed.get_by_role("button", name="Whole output").click()
    whole = failed.locator("pre.whole")
    expect(whole).to_be_visible()
    while whole.get_by_role("button").count():
        whole.get_by_role("button").click()
    assert whole.text_content().split("\n") == [*map(str, range(1, 9001)), HOSTILE, "it is broken"]
    # Of one that passed, on demand.
    gate(page, "verify-1").get_by_role("button", name="Output").click()
    expect(gate(page, "verify-1").locator("pre")).to_have_text("all is well")


def test_every_verification_is_told_the_newest_first(site: Site, look: Look) -> None:
    settings(site.repo, gates=[{"name": "lint", "command": "test -e done", "required": False}])
    site.add("twice", "attempt 1: write one x\nattempt 2: write good x", verify=["test -e good"], max_attempts=2)
    page = look(site.start(), "#/task/twice?part=gates")
    expect(page.locator(".verdicts > li")).to_have_count(2)
    attempts = [each.get_attribute("data-attempt") for each in page.locator(".verdicts > li").all()]
    assert attempts == ["twice.2", "twice.1"]
    first, second = page.locator(".verdicts > li").all()
    expect(first.locator(".verdict-head .badge")).to_contain_text("passed")
    # Advisory: it failed, and stopped nothing.
    expect(first.locator('[data-gate="lint"]')).to_contain_text("advisory")
    expect(second.locator(".verdict-head .badge")).to_contain_text("not passed")
    expect(second.locator('[data-gate="verify-1"]')).to_have_attribute("data-outcome", "failed")


def test_a_task_without_gates_says_so(site: Site, look: Look) -> None:
    site.add("bare", "wait\nwrite bare x")
    page = look(site.start(), "#/task/bare?part=gates")
    expect(page.locator(".no-gate")).to_contain_text("set `gates:` in config/settings.yaml")
    page.get_by_role("tab", name="Story").click()
    expect(page.locator(".task-head .unchecked")).to_contain_text("No gate")
    site.open_gate()
    wait_for(lambda: site.states().get("bare") == "CLOSED", "the landing")
    page.get_by_role("tab", name="Gates").click()
    expect(page.locator(".verdict-head")).to_contain_text("no gate ran")
    expect(page.locator(".no-gate")).to_be_visible()


def test_the_work_of_every_real_agent_is_judged_on_the_page(site: Site, look: Look) -> None:
    settings(site.repo, max_agents=2)
    for cli in CLIS:
        (stream,) = FIXTURES.glob(f"{cli}-*/a_task_lands.1.jsonl")
        env = site.records(cli, stream)
        gates = [f"test -e made-by-{cli}.txt", f"echo {cli} is wrong; false", "echo never"]
        lines = ["goal: Write.", f"agent: {cli}", "max_attempts: 1", "verify:", *(f"  - {each}" for each in gates)]
        (layout(site.repo).backlog_open / f"by-{cli}.yaml").write_text("\n".join(lines) + "\n")
    page = look(site.start(env=env))
    wait_for(lambda: sorted(site.states().values()) == ["FAILED"] * len(CLIS), "all verdicts")
    for cli in CLIS:
        page.goto(f"{site.address.url}/#/task/by-{cli}?part=gates")
        expect(gate(page, "verify-1")).to_have_attribute("data-outcome", "passed")
        expect(gate(page, "verify-2").locator("pre")).to_have_text(f"{cli} is wrong")
        expect(gate(page, "verify-3")).to_have_attribute("data-outcome", "not_run")
