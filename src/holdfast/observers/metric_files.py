"""Metric files: a line for each sitting, task and turn, for users who analyse files instead of calling the API.

    sessions.jsonl              each sitting of an agent, when it ends
    metrics/tasks.jsonl         each task, when it comes to its end, and when it lands once more
    metrics/snapshots.jsonl     each turn that left a snapshot
    metrics/position.json       how far these have followed the journal

They are projections. A line is made from one journal entry and the state right behind it, and names that entry by
`run` and `seq`: so none is missing or doubled after a kill between the journal and here. The owner of the data
root begins with what is missing: the position says where that is, and the lines behind it what is there already. Where
a ledger is gone, it is made anew from the whole journal.

The work waits for none of this. A thread writes what came together, since whatever is lost with a crash is made again;
where it cannot write, that is said once, and the next owner of the data root adds what is missing.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from holdfast.config.sections import LedgerSettings as Limits
from holdfast.domain.entries import MOVES
from holdfast.domain.state import State
from holdfast.domain.task import AT_WORK, OVER, TaskState
from holdfast.domain.task_record import Task
from holdfast.errors import HoldfastError
from holdfast.layout import Layout
from holdfast.ports import Ledger
from holdfast.storage.files import disk
from holdfast.storage.files.json_file import read_json
from holdfast.storage.journal.entry import Entry, Ref
from holdfast.storage.journal.writer import epoch_of, is_run_id
from holdfast.storage.records.ledger import LineLedger

PAUSE_S = 1.0
# A batch is written at once, and never cut in two by a rotation: a line is rarely longer than this.
_LINE_BYTES = 512
_BATCH_MAX = 1000

Say = Callable[[str], None]
# Where an entry stands among all: the entries of the journal, in order, have growing places.
Place = tuple[int, str, int]
_START: Place = (-1, "", -1)


class MetricCursor(msgspec.Struct, frozen=True):
    """All lines that follow from the entries up to `position` are there; `ends` is where each ledger ended then."""

    position: Ref
    ends: dict[str, int]


class MetricLines:
    """Makes lines of entries, which come in order. It has a state of its own, and so knows that behind each of them."""

    version = State.version

    def __init__(self, write: Callable[[str, Place, dict[str, Any]], None]) -> None:
        self._state = State()
        self._write = write

    def begin_with(self, state: State) -> None:
        self._state.tasks = {name: copy.copy(task) for name, task in state.tasks.items()}
        # A message that was queued before is sent now.
        self._state.connections = state.connections.trial()

    def load(self, lines: list[bytes]) -> None:
        self._state.load(lines)

    def dump(self) -> Iterator[bytes]:
        yield from self._state.dump()

    def apply(self, run: str, entry: Entry) -> None:
        before = self._state.tasks.get(str(entry.inputs.get("task", "")))
        began = before.start.began if before is not None else 0.0
        self._state.apply(run, entry)
        for name, line in _lines_of(entry, before, began):
            self._write(name, place(run, entry.seq), {"ts": entry.timestamp, "run": run, "seq": entry.seq, **line})


def _lines_of(entry: Entry, task: Task | None, began: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """`task` is as the entry left it; `began`, when the sitting did that was under way before."""
    kind = entry.decision_type
    if task is None:
        return
    if kind == "turn_completed" and entry.inputs.get("snapshot"):
        names = ("task", "attempt", "turn", "snapshot", "usd", "tokens", "seconds")
        yield "snapshots", {name: entry.inputs.get(name, 0) for name in names}
    if kind in MOVES and began and task.state not in AT_WORK:
        yield "sessions", {**_sitting(task), "began": began, "ended": entry.timestamp, **_ending(entry, task)}
    if kind in MOVES and (task.state in OVER or (task.state is TaskState.FAILED and not task.again)):
        yield "tasks", {**_whole(task), **_ending(entry, task)}
    if kind == "task_land_confirmed" and task.state is TaskState.CLOSED:
        yield "tasks", {**_whole(task), "ended": entry.timestamp, **_ending(entry, task)}


def _sitting(task: Task) -> dict[str, Any]:
    claim, start, used = task.claim, task.start, task.start.used
    return {
        "task": task.id, "attempt": task.attempt.id, "start": start.number,
        "agent": claim.worked_by, "model": claim.model, "session": task.session,
        "turns": used.turns, "usd": used.usd, "tokens": used.tokens, "seconds": used.seconds,
    }  # fmt: skip


def _whole(task: Task) -> dict[str, Any]:
    claim, spent = task.claim, task.spent
    return {
        "task": task.id, "attempts": task.attempts, "agent": claim.worked_by, "model": claim.model,
        "turns": spent.turns, "usd": spent.usd, "tokens": spent.tokens, "seconds": spent.seconds,
        "added": task.added_at, "ended": task.changed_at,
        "landed": task.landing.commit, "landed_on": task.landing.branch,
    }  # fmt: skip


def _ending(entry: Entry, task: Task) -> dict[str, Any]:
    """The ending: the state, the reason for it, and of a failure its kind."""
    failed = task.attempt.failed if task.state is TaskState.FAILED else ""
    return {"state": task.state, "reason": str(entry.inputs.get("reason", "")), "kind": failed}


def place(run: str, seq: int) -> Place:
    return epoch_of(run), run, seq


def _places(ledger: LineLedger, cursor: int) -> Iterator[Place]:
    for line in ledger.read(cursor):
        run, seq = line.record.get("run"), line.record.get("seq")
        if isinstance(run, str) and is_run_id(run) and isinstance(seq, int):
            yield place(run, seq)


class MetricFiles:
    """Writes the files for the owner of a data root. Calls `say` once when it cannot."""

    name = "metric_files"

    def __init__(self, layout: Layout, limits: Limits, say: Say) -> None:
        self._layout = layout
        self._say = say
        self._batch = max(1, min(_BATCH_MAX, limits.rotate_bytes_max // _LINE_BYTES))
        most = {name: getattr(limits, name) for name in ("rotate_bytes_max", "rotate_age_s_max")}
        most |= {name: getattr(limits, name) for name in ("retain_bytes_max", "retain_age_s_max")}
        paths = {
            "sessions": layout.sessions,
            "tasks": layout.metrics_tasks,
            "snapshots": layout.metrics_snapshots,
        }
        self._ledgers = {name: LineLedger(path, **most) for name, path in paths.items()}
        self._ends: dict[str, int] = {}
        # The place behind which each ledger takes lines, and those behind it that it has already.
        self._after: dict[str, Place] = {}
        self._there: dict[str, set[Place]] = {name: set() for name in paths}
        self._lines = MetricLines(self._put)
        self._made: dict[str, list[dict[str, Any]]] = {name: [] for name in paths}
        self._heard: deque[tuple[str, Entry]] = deque()
        self._position: Ref | None = None
        self._journal: Ledger | None = None
        self._is_usable = False
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="ledgers", daemon=True)

    def open(self, journal: Ledger, before: Ref | None) -> None:
        """Adds what is missing up to where the journal is now, and goes on from there. `before`: its end before us."""
        self._journal = journal
        try:
            self._begin(journal, before)
        except HoldfastError as error:
            self._give_up(str(error))
            return
        self._is_usable = True
        self._thread.start()

    @property
    def cursor(self) -> Ref | None:
        return self._position if self._is_usable else None

    def observe(self, run: str, entry: Entry) -> None:
        if self._is_usable:
            self._heard.append((run, entry))

    def close(self) -> None:
        self._is_ending.set()
        if self._thread.is_alive():
            self._thread.join()
        self._flush(at_end=True)
        for ledger in self._ledgers.values():
            ledger.close()

    # -- what is missing ----------------------------------------------------------------------------------------------

    def _begin(self, journal: Ledger, before: Ref | None) -> None:
        self._position = journal.position
        known = read_json(self._layout.metrics_position, MetricCursor, lenient=True)
        self._ends = {name: ledger.end() for name, ledger in self._ledgers.items()}
        if known is not None and known.position == before and known.ends == self._ends:
            self._after = dict.fromkeys(self._ledgers, place(before.run, before.seq))
            self._lines.begin_with(journal.state)
            return
        for name in self._ledgers:
            self._look_into(name, known)
        # From the checkpoint on, where that stands before all that is missing.
        epoch, _, seq = min(self._after.values())
        self._lines = journal.fold(lambda: MetricLines(self._put), (epoch, seq))
        self._write(at_end=True)

    def _look_into(self, name: str, known: MetricCursor | None) -> None:
        """Up to the position all is there. Behind it, a power cut may have left any lines, and not the others."""
        ledger = self._ledgers[name]
        ledger.settle()
        if known is not None and known.ends.get(name, 0) <= self._ends[name]:
            self._after[name] = place(known.position.run, known.position.seq)
            self._there[name] = set(_places(ledger, known.ends.get(name, 0)))
        else:
            self._after[name] = max(_places(ledger, 0), default=_START)

    # -- writing ------------------------------------------------------------------------------------------------------

    def _put(self, name: str, at: Place, line: dict[str, Any]) -> None:
        if at > self._after[name] and at not in self._there[name]:
            self._made[name].append(line)
            if len(self._made[name]) >= self._batch:
                self._write_out(name)

    def _work(self) -> None:
        while not self._is_ending.wait(PAUSE_S):
            self._flush()

    def _flush(self, at_end: bool = False) -> None:
        if not self._is_usable:
            return
        try:
            while self._heard:
                run, entry = self._heard.popleft()
                if self._position is None or entry.prev_hash != self._position.entry_hash:
                    # An interrupt came between the journal and us. A later line must not pass over one that is missing.
                    self._give_up(f"entry {entry.seq} of run {run} does not follow the one that was heard before it.")
                    return
                self._lines.apply(run, entry)
                self._position = Ref(run, entry.seq, entry.entry_hash)
            self._write(at_end)
        except HoldfastError as error:
            self._give_up(str(error))

    def _write(self, at_end: bool) -> None:
        """Writes what there is, and then how far that goes."""
        if self._journal is not None:
            self._journal.expect_owned()
        made = [name for name, lines in self._made.items() if lines]
        for name in made:
            self._write_out(name)
        if self._position is not None and (made or at_end):
            reached = MetricCursor(self._position, self._ends)
            disk.replace(self._layout.metrics_position, msgspec.json.encode(reached) + b"\n")

    def _write_out(self, name: str) -> None:
        lines, self._made[name] = self._made[name], []
        self._ends[name] = self._ledgers[name].append_many(lines)

    def _give_up(self, reason: str) -> None:
        self._is_usable = False
        self._heard.clear()
        self._say(
            f"nothing is written to sessions.jsonl and metrics/ for now: {reason} The work goes on; what is missing "
            "there is added by the next command that can"
        )


@contextlib.contextmanager
def following(layout: Layout, limits: Limits, journal: Ledger, before: Ref | None, say: Say) -> Iterator[MetricFiles]:
    """The ledgers, from a run's first entry to its last."""
    ledgers = MetricFiles(layout, limits, say)
    ledgers.open(journal, before)
    try:
        yield ledgers
    finally:
        ledgers.close()
