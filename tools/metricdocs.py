"""`make docs`: writes the table of docs/metrics.md from the names in `server/observability/metrics.py`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pages
from holdfast.server.observability.metrics import NAMES

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"
PARTS = {"histograms": "histogram", "counters": "counter", "gauges": "gauge"}


def main(arguments: Sequence[str], page: Path = PAGE) -> int:
    return pages.update(page, render, "metrics", arguments)


def render(page: str) -> str:
    return pages.fill(page, PARTS, table)


def table(part: str) -> str:
    rows = [named for named in NAMES.values() if named.kind == PARTS[part]]
    lines = [f"| `{each.name}` | {_labels(each.labels)} | {each.meaning} |" for each in rows]
    return "\n".join(["| name | labels | meaning |", "| --- | --- | --- |", *lines]) + "\n"


def _labels(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
