"""Tasks in any state, for tests of the engine: made by the journal's own entries, whatever the records look like.

`State` and `Task` are only ever folded from entries here, and a run's context comes from the composition root: where
those change, this file does, and no table.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast.app import App
from holdfast.backlog.folder import Backlog
from holdfast.clock import wall
from holdfast.config.layers import load
from holdfast.config.settings import Config
from holdfast.domain.attempt_records import Ending, Exit, TurnLine
from holdfast.domain.effect_entries import EFFECT_OF, EffectIntended, LandIntended
from holdfast.domain.entries import MOVE_TO
from holdfast.domain.graph import Graph, Node
from holdfast.domain.state import State, fold
from holdfast.domain.task import TASK, TaskEvent, TaskState
from holdfast.domain.task_record import Task
from holdfast.engine.board import Board
from holdfast.engine.effects import acknowledge, carry_out
from holdfast.engine.landing import LandingResult, verify_and_land
from holdfast.engine.outcome import apply_exit
from holdfast.engine.plan import Command, Observation, plan
from holdfast.layout import Layout
from holdfast.ledgers.files import FileLedger
from holdfast.ports import Effect, Ledger
from holdfast.storage.journal.data_root import create_root
from holdfast.storage.journal.entry import GENESIS, Entry, Record
from holdfast.storage.journal.intents import OpenIntent
from holdfast.storage.journal.reader import Chain
from holdfast.storage.records.blobs import Blobs
from holdfast.wiring import run_context
from kit.git import git
from kit.program import QUICK
from kit.project import add, layout, make_repo, settings

RUN = "000001-a"
DEFAULTS = Config()
_E = TaskEvent
CLAIMED = (_E.AGENT_CLAIMS_TASK,)
AT_WORK = (*CLAIMED, _E.AGENT_STARTS_WORK)
DONE = (*AT_WORK, _E.AGENT_REPORTS_SUCCESS)
# How an open task comes into each state.
WAY_TO: dict[TaskState, tuple[TaskEvent, ...]] = {
    TaskState.PLANNED: (),
    TaskState.OPEN: (),
    TaskState.CLAIMED: CLAIMED,
    TaskState.IN_PROGRESS: AT_WORK,
    TaskState.ORPHANED: (*AT_WORK, _E.CRASH),
    TaskState.BLOCKED: (*AT_WORK, _E.DEPENDENCY_DISCOVERED),
    TaskState.WAITING_FOR_SUBTASKS: (*AT_WORK, _E.AGENT_DECOMPOSES_TASK),
    TaskState.DONE: DONE,
    TaskState.PENDING_APPROVAL: (*DONE, _E.APPROVAL_REQUESTED),
    TaskState.FAILED: (*AT_WORK, _E.AGENT_REPORTS_FAILURE),
    TaskState.CLOSED: (*DONE, _E.JANITOR_VERIFIED_AND_MERGED),
    TaskState.CANCELLED: (_E.MANUAL_CANCEL,),
}


def story(
    task: str, to: TaskState, *, started: bool = True, flag: Mapping[str, Any] = {}, **facts: Any
) -> list[Record]:
    """The entries that lead a task to a state. `facts` are of its last move, `flag` is set behind that.

    `started`: where a runner is needed on the way, its start is on record, too.
    """
    first = TaskState.PLANNED if to is TaskState.PLANNED else TaskState.OPEN
    records = [Record("task_added", {"task": task, "definition": "d" * 64, "state": first})]
    records += moves(task, TaskState.OPEN, *WAY_TO[to], started=started, **facts)
    return records + ([Record("task_flagged", {"task": task, **flag})] if flag else [])


def moves(
    task: str, at: TaskState, *events: TaskEvent, started: bool = True, agent: str = "scripted", **facts: Any
) -> list[Record]:
    """The entries of these moves, for the task's first attempt; a claim is followed by the start of a runner."""
    records = []
    for event in events:
        inputs = {"task": task, "event": event, "reason": "test", "attempt": f"{task}.1"}
        if event is _E.AGENT_CLAIMS_TASK:
            inputs["agent"] = agent
        at = TASK.next(at, event)
        records.append(Record(MOVE_TO[at], {**inputs, **(facts if event is events[-1] else {})}))
        if at is TaskState.CLAIMED and started:
            records.append(
                Record("task_spawn_confirmed", {"task": task, "intent": {"run": RUN, "seq": 0, "entry_hash": ""}})
            )
    return records


def folded(*stories: list[Record]) -> State:
    """The state after these entries. Time goes on by one second with each."""
    records = [record for each in stories for record in each]
    made = [
        Entry(
            seq=seq, prev_hash=GENESIS, timestamp=100.0 + seq, decision_type=record.decision_type,
            inputs=msgspec.to_builtins(record.inputs), output=record.output, actor=record.actor,
            committed=record.committed, synced=0, entry_hash=GENESIS,
        )
        for seq, record in enumerate(records)
    ]  # fmt: skip
    return fold((RUN, entry) for entry in made)


def planned(
    state: State,
    observed: Mapping[str, Observation] = {},
    *,
    nodes: Mapping[str, Mapping[str, Any]] = {},
    active: Collection[str] | None = None,
    now: float = 1000.0,
    config: Config = DEFAULTS,
    **more: Any,
) -> list[Command]:
    """What `plan` makes of the state. `nodes` has what a task's node in the graph has beside its state."""
    graph = Graph()
    for task in state.tasks.values():
        own = {"parked": task.parked, "again": task.again, "number": task.number, **nodes.get(task.id, {})}
        graph.put(Node(id=task.id, state=task.state, **own))
    names = list(state.tasks) if active is None else active
    return plan(state, graph, names, observed, now, config, **more)


class Run:
    """A real run's context in a small repository, with what it has journalled and said since `mark`."""

    def __init__(self, repo: Path, context: Any, notes: list[tuple[str, str]]) -> None:
        self.repo, self.context, self._notes = repo, context, notes
        self.base = git(repo, "rev-parse", "HEAD")
        self.mark()

    def mark(self) -> None:
        self._seen = len(entries_of(self.context.layout))
        self._notes.clear()

    def task(self, name: str, to: TaskState = TaskState.OPEN, **facts: Any) -> Task:
        """A task with a file, in this state. `definition`: what the file has beside a script; the rest: see `story`."""
        add(self.repo, name, "write made x", **facts.pop("definition", {}))
        self.context.board.take_in()
        append(self.ledger, *story(name, to, **facts)[1:], base=self.base)
        self.context.board.keep_up()
        self.mark()
        return self.known(name)

    def snapshot(self, name: str, **files: str) -> str:
        """The commit of a snapshot of the task's worktree with these files in it, as a runner takes one at its end."""
        worktrees = self.context.worktrees
        worktrees.prepare(name, self.base)
        for path, text in files.items():
            (worktrees.path(name) / path).write_text(text)
        found: str = worktrees.snapshots(name, self.base).take(f"{name}.1", "end").commit
        return found

    def done(self, definition: Mapping[str, Any] = {}, name: str = "t", **files: str) -> Task:
        """A task whose agent has made these files: a candidate on top of the commit of the beginning."""
        task = self.task(name, TaskState.IN_PROGRESS, definition=definition)
        ended = Exit(f"{name}.1", 1, Ending.DONE, "", at=1.0, snapshot=self.snapshot(name, **files))
        apply_exit(self.context, task, ended)
        self.mark()
        return task

    def landed(self, name: str = "t", **files: str) -> Task:
        """A task that is closed, with these files on the target."""
        task = self.done({}, name, **files)
        assert verify_and_land(self.context, task) is LandingResult.CLOSED
        self.mark()
        return task

    def commit(self, name: str, text: str) -> str:
        """A person's commit on the target."""
        (self.repo / name).write_text(text)
        git(self.repo, "add", name)
        git(self.repo, "commit", "-qm", f"change {name}")
        return git(self.repo, "rev-parse", "main")

    def set_back(self, commit: str, words: str) -> None:
        """Moves the target, and the checkout with it; the branch's log has these words."""
        git(self.repo, "update-ref", "-m", words, "refs/heads/main", commit)
        git(self.repo, "read-tree", "--reset", "-u", commit)

    def before(self, kind: str, *acts: Callable[[], object]) -> None:
        """Has each of these done once before the effect of this kind is performed, one each time."""
        intent = next(intent for intent, name in EFFECT_OF.items() if name == kind)
        effect, todo = self.context.effects[intent], list(acts)
        perform = effect.perform

        def interposed(intent: OpenIntent) -> dict[str, Any]:
            if todo:
                todo.pop(0)()
            result: dict[str, Any] = perform(intent)
            return result

        effect.perform = interposed

    def known(self, name: str) -> Task:
        found: Task = self.context.ledger.state.tasks[name]
        return found

    @property
    def ledger(self) -> Any:
        return self.context.ledger

    @property
    def journalled(self) -> list[Entry]:
        return entries_of(self.context.layout)[self._seen :]

    @property
    def moved(self) -> list[tuple[str, ...]]:
        """Type, event and reason of each entry; those that are no moves have their type alone."""
        return [
            (entry.decision_type, *(str(entry.inputs[key]) for key in ("event", "reason") if "event" in entry.inputs))
            for entry in self.journalled
        ]

    @property
    def notes(self) -> list[str]:
        return [text for _, text in self._notes]


@contextlib.contextmanager
def running(folder: Path, clock: Callable[[], float] = wall, **values: Any) -> Iterator[Run]:
    """A run in a new repository in this folder, with these settings."""
    repo = make_repo(folder)
    settings(repo, **values)
    app = App(repo, load(repo, environ={"HOME": str(folder.parent), **QUICK}), clock)
    notes: list[tuple[str, str]] = []
    with run_context(app, lambda task, text: notes.append((task, text)), watches=False) as context:
        yield Run(repo, context, notes)


@contextlib.contextmanager
def opened(folder: Path, **tasks: TaskState) -> Iterator[FileLedger]:
    """A ledger in a new data root, without a repository; each task is in its state."""
    with FileLedger.open(create_root(folder / ".sdd")) as ledger:
        for name, to in tasks.items():
            append(ledger, *story(name, to))
        yield ledger


def append(ledger: Ledger, *records: Record, base: str = "") -> None:
    """`base`: the commit that a start on the way begins from."""
    for record in records:
        if record.decision_type == "task_spawn_confirmed":
            # A real ledger wants the intent that this closes.
            task = record.inputs["task"]
            intent = {"task": task, "attempt": f"{task}.1", "start": 1, "base": base}
            [ref] = ledger.append(ledger.epoch, [Record("task_spawn_intent", intent, committed=False)])
            record = Record(record.decision_type, {**record.inputs, "intent": ref})
        ledger.append(ledger.epoch, [record])


def entries_of(layout: Layout) -> list[Entry]:
    return [entry for _, entry in Chain(layout.wal).entries()]


def expect_landed_as_judged(repo: Path, count: int) -> None:
    """Each of the newest commits of main passed its gates as it is, on the parent that it has."""
    passed = {
        (entry.output["merged"], entry.output["target"])
        for entry in entries_of(layout(repo))
        if entry.decision_type == "task_verify_confirmed" and entry.output["passed"]
    }
    commits = [tuple(line.split()) for line in git(repo, "log", "--format=%H %P", "main").splitlines()]
    assert set(commits[:count]) <= passed, "a commit landed that was not judged as it is"


def landing_of(task: str) -> LandIntended:
    """An intent to land, which needs no process and no file to be on record."""
    return LandIntended(task, f"{task}.1", branch="refs/heads/main", old="0" * 40, new="1" * 40)


class _Effects(msgspec.Struct, frozen=True):
    ledger: Ledger
    effects: Mapping[type[EffectIntended], Effect]


def carried_out(ledger: Ledger, effect: Effect, task: str = "t") -> dict[str, Any]:
    """Performs the effect as the landing of this task."""
    return carry_out(_Effects(ledger, {LandIntended: effect}), landing_of(task))


def acknowledged(ledger: Ledger, effect: Effect, task: str = "t") -> dict[str, Any]:
    return acknowledge(_Effects(ledger, {LandIntended: effect}), landing_of(task))


def board_of(ledger: FileLedger) -> Board:
    """The board of a ledger, which follows it as in a run."""
    board = Board(ledger, Backlog(ledger.layout.backlog), Blobs(ledger.layout.cas), DEFAULTS)
    ledger.observe(board)
    return board


def turn_line(turn: int, intent: str, **facts: Any) -> TurnLine:
    """A line of `turns.jsonl`, of the first start; `facts` say what it cost and changed."""
    costs: dict[str, Any] = {"usd": 0.0, "tokens": 0, "seconds": 0.0, "session": "", "changed": False, "files": []}
    offsets = {"traces": 0, "spend": 0, "provenance": 0, "output": 0}
    told = {"ts": 1.0, "start": 1, "tool": "edit", "snapshot": "", **costs, **offsets, **facts}
    return TurnLine(turn=turn, intent=intent, **told)


def entry(kind: str, seq: int, output: dict[str, Any] | None = None, **inputs: Any) -> Entry:
    """An entry as a reader gets it, outside of any journal."""
    return Entry(
        seq,
        "",
        float(seq),
        kind,
        inputs,
        output=output or {},
        actor="somebody",
        committed=True,
        synced=False,
        entry_hash="",
    )
