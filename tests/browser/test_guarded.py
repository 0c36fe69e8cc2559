"""What must not happen: hostile text that runs, a page that cannot be reached by keyboard, or is wider than a phone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from browser.site import Site
from kit.waiting import wait_for

pytest.importorskip("playwright")
from playwright.sync_api import expect

Look = Callable[..., Any]
HOSTILE = [
    "<img src=x onerror=window.hostile=1>",
    "</script><script>window.hostile=1</script>",
    "javascript:window.hostile=1",
    "\u202egnp.exe \u2066 \u200f right to left",
    "\u0007\u001b[31mred\u001b]0;title\u0007 \u009b",
    '"><svg onload=window.hostile=1> ${window.hostile=1} {{7*7}}',
    "x" * 10_000,
    "<a href='javascript:window.hostile=1'>" + "y" * 300,
]
VIEWS = ["board", "graph", "agents", "timeline", "costs", "journal"]
PARTS = ["story", "turns", "output", "gates", "spend", "definition"]
FOCUSABLE = "a[href], button:not([disabled]), input, select, textarea, summary, [tabindex='0']"


@pytest.fixture
def hostile(site: Site) -> Site:
    """Titles, labels, output, file contents and reasons, all of them hostile."""
    site.start()
    for number, text in enumerate(HOSTILE):
        plain = "".join(each for each in text if each.isprintable())
        shell = f"printf %s '{plain[:500].replace(chr(39), '')}' | tee out{number}.html"
        script = f"say {plain}\nrun {shell}\nfail {plain[:300]}"
        body = {
            "id": f"h{number}",
            "title": text,
            "goal": text,
            "script": script,
            "labels": [plain[:60]],
            "max_attempts": 1,
        }
        site.ask("/tasks", body)
    names = {f"h{number}" for number in range(len(HOSTILE))}
    wait_for(lambda: all(site.states().get(name) == "FAILED" for name in names), "the end of all of them")
    return site


def test_hostile_text_never_runs(hostile: Site, look: Look) -> None:
    page = look(hostile, width=360, height=740)
    for view in VIEWS:
        page.goto(f"{hostile.address.url}/#/{view}")
        expect(page.locator("main h1")).to_be_visible()
        _settle(page)
        _expect_no_scroll(page, view)
    for number in range(len(HOSTILE)):
        for part in PARTS:
            page.goto(f"{hostile.address.url}/#/task/h{number}?part={part}")
            expect(page.locator(f"#tab-{part}[aria-selected=true]")).to_be_visible()
            _settle(page)
            _expect_no_scroll(page, f"h{number} {part}")
            for summary in page.locator("li[data-turn] > details > summary").all():
                summary.click()
    assert page.locator("main img, main script, main iframe").count() == 0
    assert page.locator("a[href^='javascript']").count() == 0


def test_hostile_addresses_are_only_addresses(site: Site, look: Look) -> None:
    page = look(site.start())
    for text in (
        "%3Cimg%20src=x%20onerror=window.hostile=1%3E",
        "%E0%A4%A",
        "..%2F..%2Fauth",
        "javascript:window.hostile=1",
    ):
        page.goto(f"{site.address.url}/#/task/{text}")
        expect(page.locator("main")).to_contain_text("To the board")
        page.goto(f"{site.address.url}/#/{text}")
        expect(page.locator("main")).to_contain_text("To the board")
        page.goto(f"{site.address.url}/#/board?text={text}")
        expect(page.locator("main h1")).to_be_visible()


def test_the_policy_would_stop_what_slips_through(site: Site, look: Look) -> None:
    """The second wall: were markup parsed, or a script put in, the browser would refuse it."""
    page = look(site.start())
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    refused = page.evaluate(
        "() => { try { document.body.innerHTML = '<img src=x onerror=window.hostile=1>'; return ''; } catch (error) { return error.name; } }"  # noqa: E501
    )
    assert refused == "TypeError"
    page.evaluate(
        "() => { const made = document.createElement('div'); made.setAttribute('style', 'color: red'); document.body.append(made); }"  # noqa: E501
    )
    wait_for(lambda: len(page.evaluate("window.violations")) >= 1, "a reported violation")
    assert any("TrustedHTML" in each for each in page.troubles)
    page.troubles.clear()
    page.evaluate("window.violations.length = 0")


@pytest.mark.parametrize("width", [360, 390, 768, 1400])
def test_no_view_is_wider_than_the_screen(site: Site, look: Look, width: int) -> None:
    site.add("one", "spend 0.5 2000\nwrite one x")
    site.add("two", "wait", depends_on=["one"])
    site.add("three", "write three x", approve=True)
    page = look(site.start(), width=width, height=800)
    wait_for(lambda: site.states().get("three") == "PENDING_APPROVAL", "what waits for a person")
    wait_for(lambda: site.states().get("two") == "IN_PROGRESS", "what is at work")
    for view in [*VIEWS, "task/one", "task/one?part=turns", "task/two?part=output", "task/three"]:
        page.goto(f"{site.address.url}/#/{view}")
        expect(page.locator("main h1")).to_be_visible()
        _settle(page)
        _expect_no_scroll(page, view)
    page.goto(f"{site.address.url}/#/board")
    page.get_by_role("button", name="Add a task").click()
    _expect_no_scroll(page, "dialog")


def test_everything_is_reached_by_keyboard(site: Site, look: Look) -> None:
    site.add("ask", "write ask x", approve=True)
    page = look(site.start())
    expect(page.locator(".card[data-state=PENDING_APPROVAL]")).to_be_visible()
    for view in ("board", "journal", "task/ask"):
        page.goto(f"{site.address.url}/#/{view}")
        expect(page.locator("main h1")).to_be_visible()
        _settle(page)
        wanted = set(page.evaluate(f"{NAMED}('{FOCUSABLE.replace(chr(39), chr(34))}')"))
        page.evaluate("document.activeElement.blur()")
        reached: set[str] = set()
        for _ in range(len(wanted) + 30):
            page.keyboard.press("Tab")
            reached |= set(page.evaluate(f"{NAMED}(null)"))
        assert wanted - reached == set(), view
    # What has the focus shows it.
    page.goto(f"{site.address.url}/#/board")
    page.locator("nav a").first.focus()
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.locator("nav a[aria-current=page]")).to_have_text("Graph")


def test_everything_that_is_used_has_a_name(site: Site, look: Look) -> None:
    site.add("one", "write one x", approve=True)
    page = look(site.start())
    for view in [*VIEWS, "task/one"]:
        page.goto(f"{site.address.url}/#/{view}")
        expect(page.locator("main h1")).to_be_visible()
        _settle(page)
        assert page.evaluate(NAMELESS) == [], view


def test_a_reader_sees_no_buttons_that_change_something(site: Site, look: Look) -> None:
    site.add("ask", "write ask x", approve=True)
    site.start()
    page = look(site, token=site.address.reader_token)
    expect(page.locator(".card[data-state=PENDING_APPROVAL]")).to_be_visible()
    assert page.locator("[data-action]").count() == 0
    page.goto(f"{site.address.url}/#/task/ask?part=turns")
    expect(page.locator("li[data-turn]").first).to_be_visible()
    assert page.locator("[data-action]").count() == 0


def test_the_token_is_asked_for_and_never_kept_in_the_address(site: Site, look: Look) -> None:
    site.start()
    page = look(site, token="wrong")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.locator(".sign-in")).to_contain_text("holdfast dashboard")
    page.get_by_label("Token").fill(f"{site.address.url}/#token={site.address.token}")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    assert site.address.token not in page.url
    assert site.address.token not in page.evaluate("JSON.stringify([...Object.entries(localStorage)])")


def test_the_parser_of_events_does_not_care_where_pieces_end(site: Site, look: Look) -> None:
    page = look(site.start())
    whole = ': hi\r\nid: 1:2\nevent: a\ndata: x\ndata: y\n\nid: 1:3\rdata: {"z": "ä€😀"}\r\r\n\ndata\n\n'
    found = page.evaluate(PIECES, whole)
    assert [(each["id"], each["kind"], each["data"]) for each in found[0]] == [
        ("1:2", "a", "x\ny"),
        ("1:3", "message", '{"z": "ä€😀"}'),
        ("", "message", ""),
    ]
    assert all(each == found[0] for each in found)


PIECES = """async (whole) => {
  const { parser } = await import("/web/stream.js");
  const cut = (...pieces) => { const told = []; const take = parser((event) => told.push(event)); pieces.forEach(take); return told; };
  const found = [cut(whole)];
  for (let place = 0; place <= whole.length; place += 1) found.push(cut(whole.slice(0, place), whole.slice(place)));
  found.push(cut(...whole));
  return found;
}"""  # noqa: E501
# What can have the focus, or what has it, by name: an element is named by its tag, its words and its place.
NAMED = """((selector) => {
  const all = [...document.querySelectorAll("a, button, input, select, textarea, summary, [tabindex]")];
  const shown = selector ? all.filter((each) => each.matches(selector) && each.checkVisibility({ visibilityProperty: true })) : [document.activeElement];
  return shown.map((each) => `${each.tagName} ${(each.textContent || "").slice(0, 30)} ${each.getAttribute("href") || each.getAttribute("aria-label") || each.id || ""}`);
})"""  # noqa: E501
NAMELESS = """() => [...document.querySelectorAll("a[href], button, input, select, textarea, svg[role]")]
  .filter((each) => each.checkVisibility() && !(each.textContent || "").trim() && !each.getAttribute("aria-label") && !(each.labels && each.labels.length))
  .map((each) => each.outerHTML.slice(0, 200))"""  # noqa: E501


def _settle(page: Any) -> None:
    """Until nothing is being asked for but what stays open."""
    wait_for(lambda: page.evaluate("!document.querySelector('main').textContent.includes('Reading…')"), "what is shown")


def _expect_no_scroll(page: Any, where: str) -> None:
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"{where}: {wide} pixels too wide"
