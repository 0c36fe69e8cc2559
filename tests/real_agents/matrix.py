"""The matrix of behaviours and agents, made from a run: which cell passed, which failed, which cannot work and why."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

ROWS = {
    "lands": "does a task end to end through `holdfast run`, change landed",
    "turns": "tool-call turns seen, each with snapshot and provenance",
    "spend": "tokens and cost in spend.jsonl equal what the server counted",
    "adopted": "orchestrator killed mid-stream, adopted, finishes, no second start",
    "resumed": "agent killed mid-task: conversation resumed on its tree, the server sees the earlier messages again",
    "woken": "gate fails: the same conversation is woken with the failing output, and lands",
    "told": "`tell` while it works: heard behind its turn, in the same conversation, no attempt spent",
    "told_later": "`tell` when it has ended, waiting for approval or failed: the same conversation goes on with it",
    "asked": "question asked, orchestrator killed, answered while nobody runs: the call is made once, or not at all, "
    "and the reason is heard",
    "sent_back": "sent back: the same conversation gets each comment with its file, line and quoted lines; no attempt "
    "spent, the next candidate lands",
    "limited": "429: paused with durable not_before, goes on after it",
    "unreachable": "connection refused or reset, no such name, TLS that fails, 503, 529: paused, costs no attempt, the "
    "same conversation goes on, nothing is done twice",
    "usage": "usage limit with a reset time: paused until then, which is shown; the same conversation goes on",
    "suspended": "suspended for longer than the heartbeat: goes on in the same start, nothing is done twice",
    "later": "stopped, and continued a day later (set clock): same conversation, no attempt spent, nothing twice",
    "failures": "auth missing, program missing, refusal, garbage output: the right outcome and sentence",
}
SANDBOXES = ("none", "bwrap")
NOT_RUN, IN_PART = "not run", "not all run"


class CellTest(msgspec.Struct, frozen=True):
    """The outcome of one test of a cell, which has `of` tests: passed, failed, or `cannot: ` and why."""

    sandbox: str
    row: str
    agent: str
    test: str
    of: int
    outcome: str
    version: str = ""


class Cells:
    """What was run, now and before, in a file. The last run of a test counts."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, found: CellTest) -> None:
        self._path.parent.mkdir(exist_ok=True)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(found) + b"\n")

    def of(self, versions: Mapping[str, str]) -> list[CellTest]:
        """The last outcome of each test with these versions."""
        lines = self._path.read_bytes().splitlines() if self._path.exists() else []
        kept = [msgspec.json.decode(line, type=CellTest) for line in lines]
        fitting = [each for each in kept if each.version == versions.get(each.agent, "") and each.row in ROWS]
        return list({each.test: each for each in fitting}.values())


class Matrix:
    """The table of one sandbox. Each test names its cell's number of tests: a run may leave some out."""

    def __init__(self, agents: Iterable[str]) -> None:
        self._agents = list(agents)
        self._cells: dict[tuple[str, str], dict[str, str]] = {}
        self._tests: dict[tuple[str, str], int] = {}
        self.versions: dict[str, str] = {}

    def note(self, found: CellTest) -> None:
        self._cells.setdefault((found.row, found.agent), {})[found.test] = found.outcome
        self._tests[found.row, found.agent] = found.of

    def _cell(self, row: str, agent: str, known: Mapping[tuple[str, str], str]) -> str:
        cell = self._cells.get((row, agent), {})
        if "failed" in cell.values():
            return "FAILS"
        if not cell or len(cell) < self._tests[row, agent]:
            return known.get((row, agent), IN_PART if cell else NOT_RUN)
        return "; ".join(sorted({"yes" if each == "passed" else each for each in cell.values()}, reverse=True))

    @property
    def is_empty(self) -> bool:
        return not self._cells

    def is_whole(self, page: Path, sandbox: str) -> bool:
        """Whether each cell was run, now or for the page."""
        known = self._known(page, sandbox)
        cells = [self._cell(row, each, known) for row in ROWS for each in self._agents]
        return not {NOT_RUN, IN_PART}.intersection(cells)

    def text(self, page: Path | None = None, sandbox: str = "") -> str:
        """The table. A cell that was not run is as the page has it, with the version that it was run with."""
        known = self._known(page, sandbox) if page is not None else {}
        heads = [f"{each} {self.versions.get(each, '')}".strip() for each in self._agents]
        lines = ["| behaviour | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
        for row, told in ROWS.items():
            lines.append(f"| {told} | " + " | ".join(self._cell(row, each, known) for each in self._agents) + " |")
        return "\n".join(lines) + "\n"

    def _known(self, page: Path, sandbox: str) -> dict[tuple[str, str], str]:
        """The cells of the page's table, by the row and the agent."""
        begin, end = _marks(sandbox)
        table = page.read_text().partition(begin)[2].partition(end)[0] if page.exists() else ""
        lines = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.strip().splitlines()]
        if len(lines) < 3:
            return {}
        heads = [head.partition(" ") for head in lines[0][1:]]
        rows = {told: row for row, told in ROWS.items()}
        found = {}
        for told, *cells in lines[2:]:
            for (agent, _, version), cell in zip(heads, cells, strict=False):
                is_same = "(" in cell or version == self.versions.get(agent, "")
                found[rows.get(told, ""), agent] = cell if is_same else f"{cell} ({version})"
        return found

    def write(self, page: Path, sandbox: str) -> None:
        """Into the page's place for it, where the page has one."""
        begin, end = _marks(sandbox)
        if not page.exists() or begin not in (before := page.read_text()):
            return
        made = f"{begin}\n{self.text(page, sandbox)}{end}"
        page.write_text(re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: made, before, flags=re.DOTALL))


def _marks(sandbox: str) -> tuple[str, str]:
    return f"<!-- matrix, sandbox {sandbox}: made by `make test-agents` -->", "<!-- end of the matrix -->"
