"""The rooms of the source: which there are, who may import whom, and a picture of who does, for ARCHITECTURE.md."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pages

TOP = Path(__file__).parent.parent
SOURCE = TOP / "src"
PAGE = TOP / "ARCHITECTURE.md"
MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(SOURCE.rglob("*.py"))
}
# A room imports itself and the rooms on lines above its own, never one beside it.
ROOMS = [
    ["errors", "clock", "crashpoints", "identity"],
    ["questions", "domain.triggers"],
    [
        "domain.conversations",
        "domain.issues",
        "domain.messages",
        "domain.pull_requests",
        "domain.reviews",
        "layout",
        "storage.files",
    ],
    ["domain"],
    ["config", "git", "storage.records"],
    ["storage.journal"],
    ["ports", "snapshots"],
    [
        "storage.audit",
        "backlog",
        "ledgers",
        "agents.common",
        "integrations.http",
        "integrations.plugins",
        "integrations.triggers",
    ],
    ["processes"],
    ["worktrees", "agents.adapters"],
    ["landing", "agents"],
    ["preparation"],
    ["agents.runner", "engine", "demo"],
    ["integrations.outbox"],
    ["integrations.pull_requests"],
    ["decisions", "observers"],
    ["integrations.notify"],
    ["orchestrator", "checks"],
    ["integrations.trackers"],
    ["app"],
    ["views"],
    ["server"],
    ["mcp"],
    ["cli"],
]
# These are packages of several rooms.
HOUSES = {"domain", "storage", "agents", "integrations"}
# The files of the composition root: what looking needs, what work needs beside it, and a single decision.
SAME = {"wiring": "app", "short_runs": "app"}


@functools.cache
def parsed(source: str) -> ast.Module:
    """Every rule reads every file."""
    return ast.parse(source)


def room_of(module: str) -> str:
    """`holdfast.storage.files.disk` stands in `storage.files`, `holdfast.server.routes.work` in `server`."""
    parts = module.split(".")[1:] or ["__init__"]
    is_inner = parts[0] in HOUSES and len(parts) > 1 and any(".".join(parts[:2]) in line for line in ROOMS)
    return ".".join(parts[:2]) if is_inner else SAME.get(parts[0], parts[0])


def line_of(room: str) -> int | None:
    return next((number for number, line in enumerate(ROOMS) if room in line), None)


def rooms() -> dict[str, list[str]]:
    """Each room with its modules."""
    found: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        if path.name != "__init__.py":
            found.setdefault(room_of(module), []).append(module)
    return found


def imports(tree: ast.AST, module: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: imports are written out whole"
            for alias in node.names:
                deeper = f"{node.module}.{alias.name}"
                yield (deeper if deeper in MODULES else str(node.module)), node.lineno


def used_by() -> dict[str, set[str]]:
    """For each room the rooms that it imports."""
    found: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        names = (name for name, _ in imports(parsed(path.read_text()), module) if name.startswith("holdfast."))
        own = room_of(module)
        found.setdefault(own, set()).update(room_of(name) for name in names if room_of(name) != own)
    return found


# -- the page ---------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str], page: Path = PAGE) -> int:
    return pages.update(page, render, "rooms", arguments)


def render(page: str) -> str:
    parts = {"rooms": table, "arrows": picture}
    return pages.fill(page, parts, lambda name: parts[name]())


def table() -> str:
    lines = ["| room | what it is for | modules |", "| --- | --- | --- |"]
    inside = rooms()
    for room in (room for line in ROOMS for room in line):
        place = SOURCE / "holdfast" / room.replace(".", "/")
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        said = ast.get_docstring(parsed(file.read_text())) or ""
        name = f"{room.replace('.', '/')}/" if place.is_dir() else f"{room}.py"
        lines.append(f"| `{name}` | {' '.join(said.split(chr(10) * 2)[0].split())} | {len(inside[room])} |")
    return "\n".join(lines) + "\n"


def picture() -> str:
    """Who imports whom; what follows from two other arrows is left out."""
    found = used_by()
    known = [room for line in ROOMS for room in line]

    @functools.cache
    def reached(room: str) -> frozenset[str]:
        return frozenset(found.get(room, set()).union(*(reached(each) for each in found.get(room, ()))))

    lines = ["```mermaid", "flowchart BT"]
    for room in known:
        direct = {each for each in found.get(room, ()) if each in known}
        shown = direct - {far for near in direct for far in reached(near)}
        lines += [f"    {_node(room)} --> {_node(each)}" for each in sorted(shown, key=known.index)]
    return "\n".join([*lines, "```"]) + "\n"


def _node(room: str) -> str:
    return f'{room.replace(".", "_")}["{room.replace(".", "/")}"]'


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
