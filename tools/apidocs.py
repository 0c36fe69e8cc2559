"""`make docs`: writes the generated part of docs/api.md: every operation of the API, with who may use it.

With `--check` nothing is written, and the exit code says whether the page is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pages
from holdfast.server.openapi import TAGS, statuses
from holdfast.server.operations import Operation
from holdfast.server.routes import all_operations

PAGE = Path(__file__).parent.parent / "docs" / "api.md"


def main(arguments: Sequence[str], page: Path = PAGE) -> int:
    return pages.update(page, render, "operations", arguments)


def render(page: str) -> str:
    return pages.fill(page, ["operations"], lambda name: table(all_operations()))


def table(listed: list[Operation]) -> str:
    parts = []
    for tag, told in TAGS.items():
        rows = [_row(each) for each in listed if each.tag == tag]
        if rows:
            parts.append(
                f"### {tag}\n\n{told}\n\n| | path | who | problems | |\n|---|---|---|---|---|\n" + "".join(rows)
            )
    return "\n".join(parts)


def _row(operation: Operation) -> str:
    usual = {401, 403, 421, 422}
    problems = ", ".join(str(status) for status in statuses(operation) if status not in usual)
    return f"| {operation.method} | `{operation.path}` | {operation.right} | {problems} | {operation.summary} |\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
