"""Judging: how long candidates with a slow gate take to land, judged one after the other and two at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.engine import Repo
from bench.harness import Row
from holdfast.ledgers.reader import FileLedgerReader

# Two at once can be no more than twice as fast.
BAR = 1.5


def rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    tasks, gate_s = (4, 1.5) if quick else (8, 3.0)
    one, two = (landed_in(Repo(folder / f"judging-{judging}"), judging, tasks, gate_s) for judging in (1, 2))
    detail = f"{one:.1f} s one after the other, {two:.1f} s two at once; the limit is 2"
    yield Row(f"{tasks} tasks with a gate of {gate_s:g} s, judging: 2", "judging: 1", one / two, BAR, False, detail)


def landed_in(repo: Repo, judging: int, tasks: int, gate_s: float) -> float:
    """The seconds from the first candidate that is judged to the last that is closed."""
    gates = [{"name": "slow", "command": f"sleep {gate_s}"}]
    settings = {"judging": judging, "max_agents": tasks, "sandbox": "none", "gates": gates}
    repo.layout.settings.write_bytes(msgspec.yaml.encode(settings))
    for number in range(tasks):
        repo.add(f"task-{number}", script=f"write file-{number}.txt x")
    run = repo.start()
    code = run.wait()
    assert code == 0, f"the run ended with {code}"
    entries = [entry for _, entry in FileLedgerReader(repo.layout).read()]
    began = next(entry.timestamp for entry in entries if entry.decision_type == "task_verify_intent")
    closed = [entry.timestamp for entry in entries if entry.decision_type == "task_closed"]
    assert len(closed) == tasks, f"{len(closed)} of {tasks} landed"
    return closed[-1] - began
