"""Tasks: what a start costs as history grows, what choosing costs as the backlog grows, and reading task files."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from bench.harness import Row, alternate, seconds
from holdfast.backlog.folder import Backlog
from holdfast.domain.graph import Graph, Node
from holdfast.domain.state import State
from holdfast.domain.task import TaskState
from holdfast.storage.journal import checkpoint
from holdfast.storage.journal.checkpoint import Files
from holdfast.storage.journal.entry import Record, Ref
from holdfast.storage.journal.intents import Pairing
from holdfast.storage.journal.reader import Chain
from holdfast.storage.journal.writer import Journal, run_file

RUN = "000001-bench"
TASKS = 200
BATCH = 100


def rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    sizes = (1_000, 10_000, 100_000) if quick else (10_000, 100_000, 1_000_000)
    histories = [History(folder / str(size), size) for size in sizes]
    yield start_is_flat(histories, 3 if quick else 9)
    yield fold_everything(histories[-1], 1 if quick else 3)
    yield memory(histories)
    yield choosing(quick)
    yield parsing(folder / "many", quick)


class History:
    """A journal of so many entries over a few hundred tasks, with a checkpoint near its end."""

    def __init__(self, folder: Path, size: int) -> None:
        self.size, self.wal = size, folder
        folder.mkdir()
        self.files = Files(folder / "tasks.jsonl", folder / "uncommitted.idx.json", folder / "idempotency.jsonl")
        with Journal.start(folder, RUN, None) as journal:
            added = [Record("task_added", {"task": f"t{n}", "definition": "d" * 64}) for n in range(TASKS)]
            journal.append_many(added)
            work = Work(journal)
            work.append((size - TASKS) // BATCH - 1)
            position = journal.position()
            state, pairing = State(), Pairing()
            for run, entry in Chain(folder).entries():
                state.apply(run, entry)
                pairing.apply(run, entry)
            checkpoint.write(Chain(folder), self.files, position, state, pairing)
            work.append(1)

    def start(self) -> float:
        return seconds(lambda: checkpoint.recover(Chain(self.wal), self.files, State, settle=False))

    def scan(self) -> float:
        nowhere = Files(*(self.wal / "none" / name for name in ("a", "b", "c")))
        return seconds(lambda: checkpoint.recover(Chain(self.wal), nowhere, State, settle=False))

    def hash(self) -> float:
        def loop() -> None:
            with run_file(self.wal, RUN).open("rb", buffering=1 << 20) as lines:
                for line in lines:
                    sha256(line).digest()

        return seconds(loop)


class Work:
    """Nine of ten entries are turns; every tenth leads a task on, through claims, effects and closings.

    A batch takes ten tasks one step further. Its intents are closed by the next batch, under a key. Only fifty tasks
    are ever closed, the others begin anew: what is measured is a longer history, not more tasks.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal, self._turns = journal, 0
        self._steps = self._forever()
        self._refs: list[Ref] = []

    def append(self, batches: int) -> None:
        for _ in range(batches):
            steps = next(self._steps)
            self._refs = self._journal.append_many([*steps, *(self._turn() for _ in range(BATCH - len(steps)))])

    def _turn(self) -> Record:
        self._turns += 1
        number, task = self._turns, f"t{self._turns % TASKS}"
        inputs = {"task": task, "attempt": f"{task}.0", "turn": number, "end_offset": number, "usd": 0.01, "tokens": 9}
        return Record("turn_completed", inputs)

    def _forever(self) -> Iterator[list[Record]]:
        for attempt in itertools.count(1):
            for first in range(0 if attempt == 1 else 50, TASKS, 10):
                yield from self._round([f"t{number}" for number in range(first, first + 10)], attempt, first < 50)

    def _round(self, tasks: list[str], attempt: int, closes: bool) -> Iterator[list[Record]]:
        def moves(kind: str, event: str) -> list[Record]:
            more = {"event": event, "reason": "bench", "agent": "w"}
            return [Record(kind, {"task": task, "attempt": f"{task}.{attempt}", **more}) for task in tasks]

        yield moves("task_claimed", "agent_claims_task")
        for effect in ("spawn", "verify", "land"):
            yield [Record(f"task_{effect}_intent", {"task": task}, committed=False) for task in tasks]
            closed = zip(tasks, self._refs, strict=False)
            yield [
                Record(f"task_{effect}_confirmed", {"task": t, "intent": ref, "idempotency_key": f"{t}.{attempt}"})
                for t, ref in closed
            ]
        yield moves("task_started", "agent_starts_work")
        yield moves("task_done", "agent_reports_success")
        if closes:
            yield moves("task_closed", "janitor_verified_and_merged")
        else:
            yield moves("task_failed", "verification_rejected")
            yield moves("task_opened", "retry")


def start_is_flat(histories: list[History], rounds: int) -> Row:
    small, middle, large = histories
    ratio, mine, theirs = alternate(large.start, small.start, rounds)
    between = middle.start()
    detail = f"{theirs * 1e3:.1f} ms, {between * 1e3:.1f} ms, {mine * 1e3:.1f} ms at " + ", ".join(
        f"{history.size:,}" for history in histories
    )
    return Row(f"start behind a checkpoint, {large.size:,} entries", f"{small.size:,} entries", ratio, 2, True, detail)


def fold_everything(history: History, rounds: int) -> Row:
    ratio, mine, theirs = alternate(history.scan, history.hash, rounds)
    detail = f"{mine:.2f} s against {theirs:.2f} s"
    name = f"verify + fold of {history.size:,} entries, no checkpoint"
    return Row(name, "hashlib.sha256 over the same lines", ratio, 6, True, detail)


def memory(histories: list[History]) -> Row:
    """What a process that folds everything holds at its most: it must not grow with the history."""
    peaks = [peak_kib(history) for history in (histories[0], histories[-1])]
    detail = f"{peaks[1] / 1024:.0f} MiB against {peaks[0] / 1024:.0f} MiB, {TASKS} tasks in both"
    name = f"peak memory of folding {histories[-1].size:,} entries"
    return Row(name, f"{histories[0].size:,} entries", peaks[1] / peaks[0], 1.3, True, detail)


def peak_kib(history: History) -> int:
    script = (
        "import resource, sys; from pathlib import Path; from holdfast.domain.state import fold\n"
        "from holdfast.storage.journal.reader import Chain; fold(Chain(Path(sys.argv[1])).entries())\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    argv = [sys.executable, "-c", script, str(history.wal)]
    return int(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def choosing(quick: bool) -> Row:
    """Take the next ready task and put it back claimed, over and over."""
    times = {size: choose(size) for size in (1_000, 10_000, 100_000)}
    detail = ", ".join(f"{taken * 1e6:.1f} µs" for taken in times.values()) + " each at 1,000, 10,000, 100,000 tasks"
    return Row("choosing the next of 100,000 tasks", "of 1,000 tasks", times[100_000] / times[1_000], 4, True, detail)


def choose(size: int) -> float:
    graph = Graph()
    nodes = [
        Node(id=f"t{n}", depends_on=[f"t{n - 1}"] if n % 5 == 4 else [], priority=n % 9, number=n) for n in range(size)
    ]
    for node in nodes:
        graph.put(node)
    by_name = {node.id: node for node in nodes}
    start = time.perf_counter()
    for _ in range(500):
        name = graph.next_ready(0.0)
        assert name is not None
        node = by_name[name]
        graph.put(
            Node(
                id=name, depends_on=node.depends_on, priority=node.priority, number=node.number, state=TaskState.CLOSED
            )
        )
    return (time.perf_counter() - start) / 500


def parsing(folder: Path, quick: bool) -> Row:
    many = folder / "open"
    many.mkdir(parents=True)
    count = 2_000 if quick else 10_000
    for number in range(count):
        (many / f"t{number}.yaml").write_text(f"title: Task {number}\ngoal: do number {number}\npriority: 3\n")
    backlog = Backlog(many.parent)
    cold, warm = seconds(backlog.scan), seconds(backlog.scan)
    backlog.scan()
    detail = f"{cold:.2f} s cold ({count / cold:,.0f} files/s), {warm:.2f} s again right after"
    return Row(f"cold parse of {count:,} task files", "10,000 files in 10 s", cold / (count / 1000), 1, True, detail)
