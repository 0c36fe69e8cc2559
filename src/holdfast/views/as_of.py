"""The task graph as it was at an entry or a moment: the journal folded up to there, with the definitions it pinned."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from holdfast.domain.definition import Definition, parse
from holdfast.domain.graph import Graph
from holdfast.domain.state import State
from holdfast.domain.task import TaskState
from holdfast.domain.task_record import Task
from holdfast.errors import BlobCorrupt, BlobMissing, NotABlobId
from holdfast.layout import Layout
from holdfast.ports import LedgerReader
from holdfast.storage.journal.entry import Entry
from holdfast.storage.records.blobs import Blobs
from holdfast.views.rows import build_node, build_row

_WAITING = {TaskState.OPEN, TaskState.WAITING_FOR_SUBTASKS}


class PastRow(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    state: TaskState
    title: str
    depends_on: Sequence[str]
    parent: str
    waits: list[str]
    attempts: int
    attempt: str
    agent: str
    parked: str
    added_at: float
    changed_at: float
    definition: str


class AsOf(msgspec.Struct, frozen=True):
    """`run`, `seq` and `timestamp` are of the last entry that counts."""

    run: str
    seq: int
    timestamp: float
    tasks: list[PastRow]


def at_entry(journal: LedgerReader, run: str, seq: int) -> tuple[State, str, Entry] | None:
    """Everything up to an entry, and that too; None: there is no such entry. What follows it is not read."""
    state = State()
    for found, entry in journal.read():
        state.apply(found, entry)
        if (found, entry.seq) == (run, seq):
            return state, found, entry
    return None


def at_moment(journal: LedgerReader, unix_s: float) -> tuple[State, str, Entry] | None:
    """Everything before the first entry that was written later; None: the journal begins later."""
    state = State()
    last: tuple[str, Entry] | None = None
    for found, entry in journal.read():
        if entry.timestamp > unix_s:
            break
        state.apply(found, entry)
        last = found, entry
    return None if last is None else (state, *last)


def graph_of(state: State, run: str, entry: Entry, layout: Layout, wanted: Callable[[str], bool]) -> AsOf:
    blobs, graph = Blobs(layout.cas), Graph()
    definitions = {name: _definition(blobs, task) for name, task in state.tasks.items()}
    for name, task in state.tasks.items():
        graph.put(build_node(task, definitions[name], number=task.number, not_before=task.not_before))
    rows = []
    for name, task in state.tasks.items():
        if wanted(name):
            # In any other state, the state itself says why it is not worked on.
            waits = graph.reasons_to_wait(name, entry.timestamp) if task.state in _WAITING else []
            rows.append(build_row(PastRow, task, definitions[name], waits=waits))
    return AsOf(run, entry.seq, entry.timestamp, rows)


def _definition(blobs: Blobs, task: Task) -> Definition:
    """The definition as pinned then. A blob that is gone or does not read takes the words away, not the task."""
    try:
        parsed = parse(blobs.get(task.definition), task.id)
    except (BlobMissing, BlobCorrupt, NotABlobId):
        return Definition(task.id, title="(its definition is lost)")
    return parsed if isinstance(parsed, Definition) else Definition(task.id, title="(its definition does not read)")
