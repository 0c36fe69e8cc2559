"""The task graph as it was at an entry or a moment: the journal folded up to there, with the definitions it pinned."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.cli.screen.terminal import Printer, local_time
from holdfast.domain.definition import Definition, parse
from holdfast.domain.graph import Graph, Node
from holdfast.domain.state import State, Task
from holdfast.domain.task import TaskState
from holdfast.errors import BlobCorrupt, BlobMissing, NoSuchEntry, NotABlobId
from holdfast.layout import Layout
from holdfast.storage.journal.entry import Entry
from holdfast.storage.journal.reader import Chain
from holdfast.storage.records.blobs import Blobs


class PastRow(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    state: str
    title: str
    depends_on: list[str]
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


def at_entry(wal: Chain, run: str, seq: int) -> tuple[State, str, Entry]:
    """Everything up to an entry, and that too. What stands behind it is not even read."""
    state = State()
    for found, entry in wal.entries():
        state.apply(found, entry)
        if (found, entry.seq) == (run, seq):
            return state, found, entry
    raise NoSuchEntry(what=f"entry {seq} of run {run}", wal=wal.wal)


def at_moment(wal: Chain, unix_s: float) -> tuple[State, str, Entry]:
    """Everything before the first entry that was written later."""
    state = State()
    last: tuple[str, Entry] | None = None
    for found, entry in wal.entries():
        if entry.timestamp > unix_s:
            break
        state.apply(found, entry)
        last = found, entry
    if last is None:
        raise NoSuchEntry(what=f"entry as old as {local_time(unix_s)}", wal=wal.wal)
    return state, *last


def graph_of(state: State, run: str, entry: Entry, layout: Layout, wanted: Callable[[str], bool]) -> AsOf:
    blobs, graph = Blobs(layout.cas), Graph()
    definitions = {name: _definition(blobs, task) for name, task in state.tasks.items()}
    for name, task in state.tasks.items():
        graph.put(_node(task, definitions[name]))
    rows = [
        _row(task, definitions[name], _waits(graph, task, entry.timestamp))
        for name, task in state.tasks.items()
        if wanted(name)
    ]
    return AsOf(run, entry.seq, entry.timestamp, rows)


def show(printer: Printer, found: AsOf) -> None:
    printer.text(f"as of {found.run}:{found.seq}, {local_time(found.timestamp)}", "")
    head = ["TASK", "STATE", "ATTEMPTS", "SINCE", "DEPENDS ON", "TITLE"]
    rows = [_cells(row) for row in found.tasks]
    printer.reserve(head, *rows)
    printer.columns(head)
    for cells in rows:
        printer.columns(cells, ["cyan"])


def _cells(row: PastRow) -> list[str]:
    title = " · ".join(part for part in (row.title, "; ".join(row.waits)) if part)
    since, needs = local_time(row.changed_at), " ".join(row.depends_on) or "-"
    return [row.id, f"{TaskState(row.state)}", str(row.attempts), since, needs, title]


def _definition(blobs: Blobs, task: Task) -> Definition:
    """As pinned then. A blob that is gone or does not read takes the words away, not the task."""
    try:
        parsed = parse(blobs.get(task.definition), task.id)
    except (BlobMissing, BlobCorrupt, NotABlobId):
        return Definition(task.id, title="(its definition is lost)")
    return parsed if isinstance(parsed, Definition) else Definition(task.id, title="(its definition does not read)")


def _node(task: Task, definition: Definition) -> Node:
    return Node(
        id=task.id,
        depends_on=definition.depends_on,
        parent=definition.parent or "",
        number=task.number,
        state=task.state,
        parked=task.parked,
        not_before=task.not_before,
        again=task.again,
        cancels=definition.on_dependency_failed == "cancel",
    )


def _waits(graph: Graph, task: Task, now: float) -> list[str]:
    """Why an open task is not worked on. In any other state, the state itself says it."""
    return graph.reasons_to_wait(task.id, now) if task.state in {TaskState.OPEN, TaskState.WAITING_FOR_SUBTASKS} else []


def _row(task: Task, definition: Definition, waits: list[str]) -> PastRow:
    return PastRow(
        id=task.id,
        state=str(task.state),
        title=_title(definition),
        depends_on=list(definition.depends_on),
        parent=definition.parent or "",
        waits=waits,
        attempts=task.attempts,
        attempt=task.attempt,
        agent=task.agent,
        parked=task.parked,
        added_at=task.added_at,
        changed_at=task.changed_at,
        definition=task.definition,
    )


def _title(definition: Definition) -> str:
    """As `holdfast list` shows it."""
    words = definition.title or definition.goal or str(definition.command or "")
    return words.strip().partition("\n")[0]
