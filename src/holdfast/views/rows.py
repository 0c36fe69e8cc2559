"""The tasks as they are on disk, journal and files together. Reading takes no lock and changes nothing.

`build_row` makes the rows of every list of tasks: of `holdfast list`, of the API, and of the journal as of a moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from holdfast.app import App, View
from holdfast.backlog.scan_cache import scan_remembering
from holdfast.backlog.scanner import FoundFile
from holdfast.clock import wall
from holdfast.domain.claims import asking_words
from holdfast.domain.definition import Definition
from holdfast.domain.file_problem import FileProblem
from holdfast.domain.graph import PRIORITY, Graph, Node
from holdfast.domain.task import OVER, TaskState
from holdfast.domain.task_record import Task, open_questions
from holdfast.domain.wording import fault_words, moment, plain
from holdfast.errors import HoldfastError
from holdfast.layout import Layout
from holdfast.storage.journal.lock import Holder, live_owner
from holdfast.views.next_step import asks_of, next_step_of, stuck_behind, waiting_words

if TYPE_CHECKING:
    from holdfast.checks.doctor import Finding

R = TypeVar("R", bound=msgspec.Struct)


class Row(msgspec.Struct, frozen=True):
    """A task at a glance. `new`: the journal does not know it yet, and the next run takes it in.

    `agent` is the task's agent, or else the one that its definition asks for. `waits`: why it is not worked on; empty
    for one that is ready, and for one whose state says it all.
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
    # The commit that is being judged, and on top of what.
    judging: str = ""
    # What to type for it to go on.
    next_step: str = ""
    # Why it failed.
    reason: str = ""
    # What has become of its landing, where that is not on its branch any more.
    lost: str = ""
    # What became of the last attempt of one that is open again.
    last_try: str = ""
    # Its agent waits for a person's answer.
    is_asking: bool = False
    # What its result waits for: an approval, or its pull request.
    asks: str = ""

    @property
    def is_ready(self) -> bool:
        return self.state is TaskState.OPEN and not self.waits


class Overview(msgspec.Struct, frozen=True):
    """`problems` are those of files that cannot be used; they name the tasks that they stop.

    `owner` was alive before anything was read: where it is None, the rest is what the last run left.
    """

    owner: Holder | None
    view: View
    files: Mapping[str, FoundFile]
    rows: Mapping[str, Row]
    problems: Sequence[FileProblem]

    @property
    def taken(self) -> set[str]:
        """The ids that no new task can have."""
        return {*self.rows, *(task for problem in self.problems for task in problem.tasks)}

    @property
    def unfinished(self) -> list[Definition]:
        """The definitions of the tasks that are not over."""
        return [file.definition for name, file in self.files.items() if self.rows[name].state not in OVER]


def read_overview(app: App) -> Overview:
    owner = live_owner(app.layout.lock)
    view = app.read()
    scan = scan_remembering(view.layout.backlog, view.layout.definitions)
    files: dict[str, FoundFile] = {**scan.tasks, **{name: copies[0] for name, copies in scan.moved.items()}}
    problems = list(scan.problems)
    if any(name not in scan.tasks for name in view.state.tasks):
        from holdfast.backlog.missing import absent

        problems += absent(view.state.tasks, scan)
    rows = _rows(view.state.tasks, files, scan.problems, app.config.question_timeout_s)
    for name, missing in _without_submodule(app, view, rows).items():
        rows[name] = msgspec.structs.replace(rows[name], waits=[missing.said], next_step=missing.next)
    for name, (why, step) in _lost(app, view).items():
        rows[name] = msgspec.structs.replace(rows[name], lost=why, next_step=step)
    return Overview(owner, view, files, rows, problems)


def _lost(app: App, view: View) -> dict[str, tuple[str, str]]:
    """Git alone knows whether a landing is still on its branch; empty where git cannot be asked."""
    landed = [task for task in view.state.tasks.values() if task.landing.commit]
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
    bases = {name: task.attempt.base if task is not None and task.start.number else "" for name, task in tasks.items()}
    try:
        found = {base: missing_submodule(app.repo, view.layout, app.config, base) for base in set(bases.values())}
    except (HoldfastError, OSError):
        return {}
    return {name: missing for name, base in bases.items() if (missing := found[base]) is not None}


def without_agent(app: App, overview: Overview) -> dict[str, str]:
    """The ready tasks whose agent's program is missing, each with the reason."""
    ready = [name for name, row in overview.rows.items() if row.is_ready and name in overview.files]
    if not ready:
        return {}
    from holdfast.agents.registry import agents
    from holdfast.domain.routing import choose

    known, found, asked = agents(app.config), dict[str, str](), dict[str, str]()
    for name in ready:
        made = overview.files[name].definition
        agent = choose(made, app.config, overview.view.state.tasks.get(name)).agent
        if agent in known and agent not in asked:
            asked[agent] = "" if known[agent].find() is not None else known[agent].missing(made)
        if why := asked.get(agent, ""):
            found[name] = why
    return found


def print_problems(layout: Layout, problems: Iterable[FileProblem]) -> None:
    """On standard error, in the form that editors can jump to."""
    for problem in problems:
        click.echo(plain(f"{layout.backlog}/{problem}"), err=True)


# -- one task ---------------------------------------------------------------------------------------------------------


def build_row(kind: type[R], task: Task | None, made: Definition, **more: Any) -> R:
    """A row of any kind: of the task and its definition the fields that this kind has, and `more`, which wins."""
    words = made.title or made.goal or str(made.command or "")
    facts = _facts_of(task) if task is not None else {"id": made.id, "parked": ""}
    facts |= {
        "title": words.strip().partition("\n")[0],
        "role": made.role or "",
        "priority": PRIORITY if made.priority is None else made.priority,
        "labels": made.labels,
        "parent": made.parent or "",
        "depends_on": made.depends_on,
        "not_before": start_time(task, made),
        **more,
    }
    return kind(**{name: facts[name] for name in kind.__struct_fields__ if name in facts})


def _facts_of(task: Task) -> dict[str, Any]:
    """What every kind of row that has such a field shows as the journal has it."""
    return {
        "id": task.id,
        "state": task.state,
        "definition": task.definition,
        "added_at": task.added_at,
        "changed_at": task.changed_at,
        "parked": task.parked,
        "cause": task.cause,
        "agent": task.claim.agent,
        "model": task.claim.model,
        "progress": task.claim.progress,
        "attempts": task.attempts,
        "attempt": task.attempt.id,
        "landing_waits": task.landing.waits,
        "judging": task.landing.judging,
        "approved": task.approved,
        "turns": task.spent.turns,
        "usd": task.spent.usd,
        "tokens": task.spent.tokens,
    }


def build_node(task: Task | None, made: Definition, answer_s: float | None = None, **more: Any) -> Node:
    """The task in a graph that gives its reasons to wait. `answer_s`: how long a question waits for a person, where
    not for ever. `more` are fields of the node."""
    facts: dict[str, Any] = {"id": (task or made).id, "depends_on": made.depends_on, "parent": made.parent or ""}
    facts["cancels"] = made.on_dependency_failed == "cancel"
    if task is not None:
        facts |= {"state": task.state, "parked": task.parked, "again": task.again}
        facts["asking"] = asking_words(task, answer_s)
    return Node(**(facts | more))


def start_time(task: Task | None, made: Definition) -> float:
    """The time before which it does not start, by its definition or because it was put off; 0: none."""
    return max(task.not_before if task else 0.0, made.not_before or 0.0)


def fault_of(task: Task | None) -> str:
    """The fault, of the machine or of its setup, that holds a task up, in words."""
    if task is None or task.state in OVER:
        return ""
    return fault_words(task.cause, task.not_before)


def last_reason(task: Task) -> str:
    """The reason for its failure or cancellation; for a task that is open again, the end of its last attempt."""
    is_told = task.state in (TaskState.FAILED, TaskState.CANCELLED) or (task.state is TaskState.OPEN and task.attempts)
    detail = str(task.outcome.get("detail") or "") if is_told else ""
    # What still holds it up is said as that.
    return "" if task.state is TaskState.OPEN and detail == task.cause else detail


# -- all of them ------------------------------------------------------------------------------------------------------


def _rows(
    tasks: Mapping[str, Task], files: Mapping[str, FoundFile], problems: Sequence[FileProblem], answer_s: float | None
) -> dict[str, Row]:
    # As the next run takes them in: those that were written first come first.
    new = sorted((name for name in files if name not in tasks), key=lambda name: files[name].written_ns)
    found = {name: files[name].definition if name in files else Definition(name) for name in [*tasks, *new]}
    states = {name: task.state for name, task in tasks.items()}
    if new:
        from holdfast.backlog.sync import state_of_new

        states |= {name: state_of_new(files[name]) for name in new}
    graph, now, stopped = Graph(), wall(), {name for each in problems for name in each.tasks}
    for name, made in found.items():
        # Without its time: `_reasons_to_wait` names that with its cause.
        graph.put(build_node(tasks.get(name), made, answer_s, state=states[name]))
    rows = {}
    for name, made in found.items():
        task, file, state = tasks.get(name), files.get(name), states[name]
        waits = _reasons_to_wait(graph, name, task, made, now)
        if name in stopped:
            waits.insert(0, "its file has a problem")
        elif task is not None and file is None:
            waits.insert(0, "the next run writes its file" if task.unfiled else "its file is gone")
        more: dict[str, Any] = {"attempts": 0, "added_at": now} if task is None else {}
        rows[name] = build_row(
            Row,
            task,
            made,
            **more,
            state=state,
            new=task is None,
            agent=(task.claim.agent if task else "") or made.agent or "",
            waits=[] if state in OVER else waits,
            file=str(file) if file else "",
            next_step=next_step_of(name, state, task, stuck=stuck_behind(graph, name)),
            reason=last_reason(task) if task is not None and state is TaskState.FAILED else "",
            last_try=last_reason(task) if task is not None and state is TaskState.OPEN else "",
            is_asking=task is not None and bool(open_questions(task)),
            asks=asks_of(task),
        )
    return rows


def _reasons_to_wait(graph: Graph, name: str, task: Task | None, made: Definition, now: float) -> list[str]:
    waits = [why for why in graph.reasons_to_wait(name, now) if not why.startswith("it is ")]
    if (start := start_time(task, made)) > now:
        cause = f": {task.cause}" if task is not None and task.cause and start == task.not_before else ""
        waits.append(f"not before {moment(start)}{cause}")
    elif fault := fault_of(task):
        waits.append(fault)
    if task is not None and task.landing.waits:
        waits.append(waiting_words(task.landing.waits))
    return waits
