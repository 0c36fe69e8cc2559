"""The real agents. Only `make test-agents`, which installs them and sets HOLDFAST_AGENTS, runs what is here.

A test with `row` in its name's marker is part of a cell of the matrix: `@pytest.mark.row("lands")`, run for each kit.
There are two matrices, without a sandbox and in bwrap. One of which anything was run is printed at the end, and written
to build/agents-matrix-*.md; one of which all was run is written into docs/agents.md, too. What was run is kept in
build/agents-cells.jsonl, by the version of the CLI, so the rows may be run one after the other. A cell that was not run
with these versions is as the page has it, with the version that it was run with.
"""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from kit import TOP
from kit.confined import why_not
from real_agents import site
from real_agents.kits import ALL_KITS, KITS, PROTOCOL_KITS, Kit
from real_agents.matrix import ROWS, SANDBOXES, Cells, CellTest, Matrix
from real_agents.site import bins

collect_ignore_glob = [] if "HOLDFAST_AGENTS" in os.environ else ["test_*.py"]
# By the sandbox, and whether the agents are called by protocol.
_matrices = {
    (sandbox, kits is PROTOCOL_KITS): Matrix(kit.name for kit in kits)
    for sandbox in SANDBOXES
    for kits in (KITS, PROTOCOL_KITS)
}
_cells = Cells(TOP / "build" / "agents-cells.jsonl")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "row(name): the row of the matrix that the test belongs to")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kit" in metafunc.fixturenames:
        is_row = metafunc.definition.get_closest_marker("row") is not None
        kits = getattr(metafunc.module, "ONLY", ALL_KITS if is_row else KITS)
        metafunc.parametrize("kit", kits, ids=lambda kit: kit.name)
        if is_row:
            metafunc.parametrize("sandbox", SANDBOXES, indirect=True)


@pytest.fixture(autouse=True)
def sandbox(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every row of the matrix is run without a sandbox, and in one."""
    kind = getattr(request, "param", "none")
    if kind == "bwrap" and (why := why_not()):
        pytest.skip(why)
    site.sandbox = kind
    yield kind
    site.sandbox = "none"


def _is_done_otherwise(item: Any, row: str, kit: Kit) -> bool:
    return not hasattr(item.module, "ONLY") and (row in kit.own or item.originalname in kit.own)


def _why_not(item: Any, row: str, kit: Kit) -> str:
    names = (row, item.originalname, f"{item.originalname}[{item.callspec.params.get('how', '')}]")
    return next((kit.cannot[name] for name in names if name in kit.cannot), "")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before `-k` takes any away: a cell is whole when all of its tests were run, not those that were asked for."""
    cells: dict[tuple[str, ...], list[tuple[pytest.Item, str]]] = {}
    for item in list(items):
        marker, kit = (
            item.get_closest_marker("row"),
            getattr(item, "callspec", None) and item.callspec.params.get("kit"),
        )
        if marker is not None and isinstance(kit, Kit):
            assert marker.args[0] in ROWS
            if _is_done_otherwise(item, marker.args[0], kit):
                items.remove(item)
                continue
            sandbox = item.callspec.params["sandbox"]  # type: ignore[attr-defined]
            why = _why_not(item, marker.args[0], kit)
            cells.setdefault((sandbox, marker.args[0], kit.name), []).append((item, why))
            if why:
                item.add_marker(pytest.mark.skip(why))
    for cell, tests in cells.items():
        for item, why in tests:
            item.user_properties.append(("cell", [*cell, item.nodeid, len(tests), why]))


def pytest_runtest_logreport(report: Any) -> None:
    cells = [value for name, value in report.user_properties if name == "cell"]
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    if cells and not is_worker and (report.when == "call" or report.outcome != "passed"):
        sandbox, row, agent, test, of, why = cells[0]
        outcome, kit = report.outcome, next(kit for kit in ALL_KITS if kit.name == agent)
        if outcome == "skipped":
            if not why:  # It is this machine that cannot.
                return
            outcome = f"cannot: {why}"
        _cells.add(CellTest(sandbox, row, agent, test, of, outcome, _version(kit.command)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if "HOLDFAST_AGENTS" not in os.environ or hasattr(terminalreporter.config, "workerinput"):
        return
    versions = {kit.name: _version(kit.command) for kit in ALL_KITS}
    build = TOP / "build"
    build.mkdir(exist_ok=True)
    page = TOP / "docs" / "agents.md"
    for each in _cells.of(versions):
        _matrices[each.sandbox, each.agent.endswith("-acp")].note(each)
    for (sandbox, by_protocol), matrix in _matrices.items():
        if matrix.is_empty:
            continue
        matrix.versions = versions
        text = matrix.text()
        label = f"{sandbox}, by protocol" if by_protocol else sandbox
        terminalreporter.write_line(f"\nsandbox {label}:\n{text}")
        (build / f"agents-matrix-{label.replace(', by ', '-')}.md").write_text(text)
        if matrix.is_whole(page, label):
            matrix.write(page, label)


@functools.cache
def _version(program: str) -> str:
    environ = {"PATH": ":".join([*bins(), "/usr/bin", "/bin"]), "HOME": str(TOP / "build")}
    try:
        told = subprocess.run(
            [program, "--version"], env=environ, capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    numbers = [word for word in told.stdout.split() if word[:1].isdigit()]
    return numbers[0].rstrip(".") if numbers else ""
