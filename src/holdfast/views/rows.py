"""The tasks as they are on disk, journal and files together. Looking takes no lock and changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.app import App, View
from holdfast.backlog.scan_cache import RememberingScanner
from holdfast.backlog.scanner import FoundFile, Scan
from holdfast.clock import wall
from holdfast.domain.file_problem import FileProblem
from holdfast.domain.graph import PRIORITY, Graph, Node
from holdfast.domain.moments import moment
from holdfast.domain.printable import plain
from holdfast.domain.state import Task
from holdfast.domain.task import TaskState
from holdfast.domain.wording import fault_words
from holdfast.errors import HoldfastError, TaskUnknown
from holdfast.layout import Layout
from holdfast.views.next_step import is_faulted, next_step, stuck_behind, waiting_words

if TYPE_CHECKING:
    from holdfast.checks.doctor import Finding


class Row(msgspec.Struct, frozen=True):
    """A task at a glance. `new`: the journal does not know it yet, and the next run takes it in.

    `agent` is who has the task, or else whom its definition asks for. `waits`: why it is not worked on; empty for one
    that is ready, and for one whose state says it all.
    """

    id: str
    state: TaskState
    new: bool
    priority: int
    attempts: int
    agent: str
    parked: str
    waits: list[str]
    title: str
    labels: Sequence[str]
    file: str
    added_at: float
    # The paths in a checkout for which the landing waits.
    landing_waits: Sequence[str] = ()
    # What to type for it to go on.
    next_step: str = ""
    # Why it failed.
    reason: str = ""
    # What has become of its landing, where that is not on its branch any more.
    lost: str = ""

    @property
    def is_ready(self) -> bool:
        return self.state is TaskState.OPEN and not self.waits


class Overview(msgspec.Struct, frozen=True):
    """`problems` are those of files that cannot be used; they name the tasks that they stop."""

    view: View
    files: Mapping[str, FoundFile]
    rows: Mapping[str, Row]
    problems: Sequence[FileProblem]


def look(app: App) -> Overview:
    view = app.look()
    scan = RememberingScanner(view.layout.backlog, view.layout.definitions).scan()
    files: dict[str, FoundFile] = {**scan.tasks, **{name: copies[0] for name, copies in scan.moved.items()}}
    problems = [*scan.problems, *_absent(view, scan)]
    rows = _rows(view.state.tasks, files, scan.problems)
    for name, missing in _without_submodule(app, view, rows).items():
        rows[name] = msgspec.structs.replace(rows[name], waits=[missing.said], next_step=missing.next)
    for name, (why, step) in _lost(app, view).items():
        rows[name] = msgspec.structs.replace(rows[name], lost=why, next_step=step)
    return Overview(view, files, rows, problems)


def _lost(app: App, view: View) -> dict[str, tuple[str, str]]:
    """Git alone knows whether a landing is still on its branch; where it cannot be asked, nothing is told."""
    landed = [task for task in view.state.tasks.values() if task.landed]
    if not landed:
        return {}
    from holdfast.landing.lost_landings import shown

    try:
        return {name: (told.why, told.next_step) for name, told in shown(app.repo, landed, view.layout).items()}
    except (HoldfastError, OSError):
        return {}


def _without_submodule(app: App, view: View, rows: Mapping[str, Row]) -> dict[str, Finding]:
    """The tasks that a run would not start because a submodule of their tree cannot be set up."""
    if app.config.submodules != "init" or not (ready := [name for name, row in rows.items() if row.is_ready]):
        return {}
    from holdfast.checks.doctor import missing_submodule

    tasks = {name: view.state.tasks.get(name) for name in ready}
    bases = {name: task.base if task is not None and task.starts else "" for name, task in tasks.items()}
    try:
        found = {base: missing_submodule(app.repo, view.layout, app.config, base) for base in set(bases.values())}
    except (HoldfastError, OSError):
        return {}
    return {name: missing for name, base in bases.items() if (missing := found[base]) is not None}


def _absent(view: View, scan: Scan) -> list[FileProblem]:
    if all(name in scan.tasks for name in view.state.tasks):
        return []
    from holdfast.backlog.missing import absent

    return absent(view.state.tasks, scan)


def unknown(task: str, known: Iterable[str]) -> TaskUnknown:
    import difflib

    near = difflib.get_close_matches(task, known, 1)
    return TaskUnknown(task=task, hint=f"did you mean {near[0]}?" if near else "`holdfast list` shows all.")


def tell_problems(layout: Layout, problems: Iterable[FileProblem]) -> None:
    """On standard error, in the form that editors can jump to."""
    for problem in problems:
        click.echo(plain(f"{layout.backlog}/{problem}"), err=True)


def _rows(tasks: Mapping[str, Task], files: Mapping[str, FoundFile], problems: Sequence[FileProblem]) -> dict[str, Row]:
    # As the next run takes them in: those that were written first come first.
    new = sorted((name for name in files if name not in tasks), key=lambda name: files[name].written_ns)
    names = [*tasks, *new]
    graph, now, stopped = Graph(), wall(), {name for each in problems for name in each.tasks}
    for name in names:
        graph.put(_node(name, tasks.get(name), files.get(name)))
    rows = {}
    for name in names:
        task, file = tasks.get(name), files.get(name)
        waits = [] if name not in stopped else ["its file has a problem"]
        if task is not None and file is None and name not in stopped:
            waits.append("the next run writes its file" if task.unfiled else "its file is gone")
        waits += [why for why in graph.reasons_to_wait(name, now) if not why.startswith("it is ")]
        if (start := _not_before(task, file)) > now:
            cause = f": {task.cause}" if task is not None and task.cause and start == task.not_before else ""
            waits.append(f"not before {moment(start)}{cause}")
        elif task is not None and (fault := fault_words(task.cause, task.not_before)):
            waits.append(fault)
        if task is not None and task.landing_waits:
            waits.append(waiting_words(task.landing_waits))
        rows[name] = _row(name, task, file, waits, now, stuck=stuck_behind(graph, name))
    return rows


def _node(name: str, task: Task | None, file: FoundFile | None) -> Node:
    """Without the time, which is told with its cause."""
    made = file.definition if file else None
    return Node(
        id=name,
        depends_on=made.depends_on if made else (),
        parent=(made.parent or "") if made else "",
        state=_state(task, file),
        parked=task.parked if task else "",
        again=task is not None and task.again,
        cancels=made is not None and made.on_dependency_failed == "cancel",
    )


def _row(
    name: str, task: Task | None, file: FoundFile | None, waits: list[str], now: float, stuck: Sequence[Node]
) -> Row:
    made, state = file.definition if file else None, _state(task, file)
    return Row(
        id=name,
        state=state,
        new=task is None,
        priority=made.priority if made and made.priority is not None else PRIORITY,
        attempts=task.attempts if task else 0,
        agent=(task.agent if task else "") or (made.agent if made else None) or "",
        parked=task.parked if task else "",
        waits=[] if state in (TaskState.CLOSED, TaskState.CANCELLED) else waits,
        title=_title(made.title or made.goal or str(made.command or "")) if made else "",
        labels=made.labels if made else (),
        file=str(file) if file else "",
        added_at=task.added_at if task else now,
        landing_waits=task.landing_waits if task else (),
        next_step=next_step(
            name,
            state,
            task.parked if task else "",
            faulted=is_faulted(task),
            landing_waits=task.landing_waits if task else (),
            stuck=stuck,
            kind=str(task.outcome.get("kind") or "") if task else "",
        ),
        reason=str(task.outcome.get("detail") or "") if task and state is TaskState.FAILED else "",
    )


def _state(task: Task | None, file: FoundFile | None) -> TaskState:
    if task is not None:
        return task.state
    if file is None:
        return TaskState.OPEN
    from holdfast.backlog.sync import state_of_new

    return state_of_new(file)


def _not_before(task: Task | None, file: FoundFile | None) -> float:
    return max(task.not_before if task else 0.0, (file.definition.not_before or 0.0) if file else 0.0)


def _title(text: str) -> str:
    return text.strip().partition("\n")[0]
