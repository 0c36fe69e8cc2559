"""The graph and the timeline can be read: edges run between the boxes, and idle time is folded."""

from __future__ import annotations

import functools
import itertools
import json
import random
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from browser.site import Site
from kit.waiting import wait_for

pytest.importorskip("playwright")
from playwright.sync_api import expect

Look = Callable[..., Any]

# Every edge is walked in small steps; a step inside a box that the edge neither leaves nor leads to is returned.
CROSSED = """
() => {
  const boxes = [...document.querySelectorAll("svg.graph .node")].map((node) => {
    const [, x, y] = /translate\\(([-\\d.]+) ([-\\d.]+)\\)/.exec(node.getAttribute("transform"));
    const rect = node.querySelector("rect");
    return { id: node.dataset.id, x: +x, y: +y, w: +rect.getAttribute("width"), h: +rect.getAttribute("height") };
  });
  const found = [];
  let steps = 0;
  for (const edge of document.querySelectorAll("svg.graph .edge")) {
    const { from, to } = edge.dataset;
    const length = edge.getTotalLength();
    for (let at = 0; at <= length; at += 2) {
      const { x, y } = edge.getPointAtLength(at);
      steps += 1;
      const hit = boxes.find((box) => box.id !== from && box.id !== to && x > box.x && x < box.x + box.w && y > box.y && y < box.y + box.h);
      if (hit) { found.push(`${from} → ${to} behind ${hit.id}`); break; }
    }
  }
  return { found, steps, boxes: boxes.length };
}
"""  # noqa: E501


def crossed(page: Any, edges: int) -> list[str]:
    expect(page.locator("svg.graph .edge")).to_have_count(edges)

    def drawn() -> Any:
        # The page may be drawing anew at this very moment.
        told = page.evaluate(CROSSED)
        return told["boxes"] and told["steps"] > 20 * edges and told

    found: list[str] = wait_for(drawn, "the graph")["found"]
    return found


def test_no_edge_of_a_long_chain_runs_behind_a_box(site: Site, look: Look) -> None:
    names = [f"t{number}" for number in range(6)]
    # Each waits for all before it: the shortest way of most leads through the boxes between.
    tasks = [{"id": name, "title": name, "depends_on": names[:place]} for place, name in enumerate(names)]
    site.start("serve").ask("/tasks/batch", {"tasks": tasks})
    assert crossed(look(site, "#/graph"), 15) == []


def test_no_edge_of_a_large_graph_runs_behind_a_box(site: Site, look: Look) -> None:
    chance = random.Random(11)
    tasks: list[dict[str, Any]] = []
    edges = 0
    for number in range(60):
        before = chance.sample(range(number), min(number, chance.randrange(4)))
        parent = {"parent": f"t{chance.randrange(number)}"} if number and chance.random() < 0.2 else {}
        tasks.append({"id": f"t{number}", "title": f"Task {number}", "depends_on": [f"t{n}" for n in before], **parent})
        edges += len(before) + len(parent)
    site.start("serve").ask("/tasks/batch", {"tasks": tasks})
    page = look(site, "#/graph")
    assert crossed(page, edges) == []
    page.get_by_label("Show the neighbourhood of a task").fill("t30")
    expect(page.locator("main [role=status]").first).to_contain_text("the neighbourhood of t30")
    count = page.locator("svg.graph .edge").count()
    assert count and crossed(page, count) == []


def _answer(text: str, route: Any) -> None:
    route.fulfill(body=text, content_type="application/json")


def at_times(page: Any, *times: tuple[float, float], ago_s: float) -> None:
    """The server tells of one attempt for each of these times, in seconds after a moment so long ago."""
    start = time.time() - ago_s
    sessions = [
        {"task": "t", "attempt": f"t.{number}", "agent": "scripted", "began": start + began, "ended": start + ended,
         "turns": 3, "session": ""}
        for number, (began, ended) in enumerate(times, 1)
    ]  # fmt: skip
    last = start + times[-1][1]
    runs = [{"run": "1-a", "began": start, "ended": last, "how": "orderly", "recovered": {}}]
    answers = {"timeline": {"runs": runs, "marks": []}, "sessions": {"sessions": sessions}, "agents": {"agents": []}}
    for name, answer in answers.items():
        page.route(re.compile(rf"/{name}(\?|$)"), functools.partial(_answer, json.dumps(answer)))
    page.goto(page.url.partition("#")[0] + "#/timeline")
    expect(page.locator(".row .span")).to_have_count(len(times))


def widths(page: Any, count: int) -> list[float]:
    """Of the bars; a view that is just shown anew has none for a moment."""
    asked = "[...document.querySelectorAll('.row .span')].map((each) => Number(each.getAttribute('width')))"
    found: list[float] = wait_for(lambda: found if len(found := page.evaluate(asked)) == count else None, "the bars")
    return found


def test_long_idle_time_is_folded_in_the_timeline(site: Site, look: Look) -> None:
    page = look(site.start("serve"))
    day = 86_400.0
    at_times(page, (0, 600), (3 * day, 3 * day + 1200), ago_s=5 * day)
    # Between the two, and from the last one to now.
    expect(page.locator(".fold")).to_have_count(2)
    expect(page.locator(".fold").first).to_contain_text("3 d")
    expect(page.locator(".fold").first.locator("title")).to_contain_text("3 d in which no agent worked")
    short, long = widths(page, 2)
    assert short > 150 and long == pytest.approx(2 * short, rel=0.02)
    # The marks stand in order, and no label of the axis stands on another or in a fold.
    edges = page.evaluate(
        """[...document.querySelectorAll('.timeline-stage svg > .tick, .timeline-stage .fold')].map((each) => {
          const box = (each.querySelector('rect') || each).getBoundingClientRect(); return [box.left, box.right]; })"""
    )
    edges.sort()
    assert len(edges) > 5 and all(left[1] <= right[0] for left, right in itertools.pairwise(edges))


def test_without_long_idle_time_nothing_is_folded(site: Site, look: Look) -> None:
    page = look(site.start("serve"))
    at_times(page, (0, 600), (620, 1200), ago_s=1200)
    expect(page.locator(".fold")).to_have_count(0)
    one, other = widths(page, 2)
    assert one == pytest.approx(other * 600 / 580, rel=0.02)
