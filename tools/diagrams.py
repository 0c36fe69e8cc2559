"""`make docs`: writes the generated parts of docs/lifecycle.md from the tables in holdfast.domain.

With `--check` nothing is written, and the exit code says whether the page is what the tables say.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pages
from holdfast.domain.attempt_records import TURN
from holdfast.domain.fsm import Machine, Reason
from holdfast.domain.task import FOLDER_OF, TASK

PAGE = Path(__file__).parent.parent / "docs" / "lifecycle.md"
MACHINES: tuple[Machine[Any, Any], ...] = (TASK, TURN)


def main(arguments: Sequence[str], page: Path = PAGE) -> int:
    return pages.update(page, render, "tables", arguments)


def render(page: str) -> str:
    wanted = parts()
    return pages.fill(page, wanted, wanted.get)


def parts() -> dict[str, str]:
    made = {"task folders": folders(), "reasons": ", ".join(f"`{reason}`" for reason in Reason) + "\n"}
    for machine in MACHINES:
        made[f"{machine.name} diagram"] = f"```mermaid\n{machine.mermaid()}```\n"
        made[f"{machine.name} table"] = moves(machine)
    return made


def moves(machine: Machine[Any, Any]) -> str:
    """One row per move; a terminal state has one row that says so."""
    rows = []
    for state in machine.states:
        name = f"{state!s} (initial)" if state in machine.initial else str(state)
        legal = machine.legal(state)
        rows += [(name, f"`{event}`", str(target)) for event, target in legal.items()] or [(name, "none", "terminal")]
    return table(("state", "event", "next state"), rows)


def folders() -> str:
    names = dict.fromkeys(FOLDER_OF.values())
    return table(
        ("folder", "states"),
        [(f"`backlog/{name}/`", ", ".join(state for state in FOLDER_OF if FOLDER_OF[state] == name)) for name in names],
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
