"""What is drawn can be read: edges of the graph run between the boxes, and the timeline folds the time in which nothing
happened."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from browser.site import Site

pytest.importorskip("playwright")
from playwright.sync_api import expect

Look = Callable[..., Any]

# Every edge is walked in small steps; a step that is inside of a box that the edge neither leaves nor leads to is told.
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
    told = page.evaluate(CROSSED)
    assert told["boxes"] and told["steps"] > 20 * edges
    found: list[str] = told["found"]
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
