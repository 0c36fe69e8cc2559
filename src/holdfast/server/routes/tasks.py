"""Tasks: what they are, and what is decided about them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast.decisions.context import DecisionContext
from holdfast.domain.claims import asking_words
from holdfast.domain.definition import Definition
from holdfast.domain.task import TaskState
from holdfast.domain.task_ids import from_values
from holdfast.domain.task_record import Task
from holdfast.errors import InputError
from holdfast.landing.gate_kinds import gates_of
from holdfast.server.api_state import Api
from holdfast.server.operations import Ask, Operation
from holdfast.server.repository import RUN
from holdfast.views.rows import build_row, fault_of, last_reason

LIMIT_MAX = 1000
BATCH_MAX = 1000
REASON_CHARS_MAX = 1000
TITLE_CHARS_MAX = 200
Limit = Annotated[int, Meta(ge=1, le=LIMIT_MAX)]


class TaskRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task in a list. `landing_waits`: the paths in a checkout for which its landing waits. `judging`: the commit
    that is being judged, and on top of what. `approved`: by a person, and not landed yet. `held` says
    why it is left alone until somebody acts; `not_before` is when its time comes, and `cause` why it is paused until
    then.
    `fault`: a fault of the machine holds it up. `lost`: its landing is not on its branch any more. `next_step`: what to
    type, where one of these two is the matter. `reason`: why it has failed or was cancelled, or what became of the last
    attempt of one that is open again. `asks`: the question for which its agent waits, with what to type."""

    id: str
    state: TaskState
    title: str = ""
    role: str = ""
    priority: int = 5
    labels: tuple[str, ...] = ()
    agent: str = ""
    model: str = ""
    attempt: str = ""
    attempts: int = 0
    turns: int = 0
    usd: float = 0.0
    tokens: int = 0
    parked: str = ""
    progress: str = ""
    added_at: float = 0.0
    changed_at: float = 0.0
    parent: str = ""
    depends_on: tuple[str, ...] = ()
    not_before: float = 0.0
    held: str = ""
    cause: str = ""
    landing_waits: tuple[str, ...] = ()
    judging: str = ""
    approved: bool = False
    fault: str = ""
    lost: str = ""
    next_step: str = ""
    reason: str = ""
    asks: str = ""


class WaitingMessage(msgspec.Struct, frozen=True):
    """A person's message that no start of the task's agent is known to have seen."""

    text: str
    by: str
    at: float


class TaskView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task with its definition. `etag` is what `If-Match` takes. `gates`: how many judge what is made of it, by its
    own `verify` and the settings; `unchecked`: none does, and it is to change something. `told`: messages that wait for
    its agent. `pull_request`: the address of the one that it has."""

    task: TaskRow
    definition: dict[str, Any]
    etag: str
    waits: list[str] = []
    outcome: dict[str, Any] = {}
    candidate: str = ""
    verified: str = ""
    landed: str = ""
    landed_on: str = ""
    pull_request: str = ""
    not_before: float = 0.0
    session: str = ""
    why: str = ""
    subtasks: list[str] = []
    gates: int = 0
    unchecked: bool = False
    told: list[WaitingMessage] = []


class TaskPage(msgspec.Struct, frozen=True):
    """`next` is the cursor of the next page; empty on the last one."""

    tasks: list[TaskRow]
    total: int
    next: str = ""


class TaskQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    state: tuple[TaskState, ...] = ()
    role: str = ""
    label: str = ""
    agent: str = ""
    parent: str = ""
    text: str = ""
    after: str = ""
    limit: Limit = 100


class NewTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A definition, with the keys of a task file; without an id it is given one."""

    id: str | None = None
    title: str | None = None
    goal: str | None = None
    role: str | None = None
    priority: int | None = None
    depends_on: tuple[str, ...] = ()
    on_dependency_failed: Literal["wait", "cancel"] | None = None
    parent: str | None = None
    agent: str | None = None
    model: str | None = None
    command: str | tuple[str, ...] | None = None
    script: str | None = None
    sandbox: str | None = None
    budget_usd: float | None = None
    budget_tokens: int | None = None
    budget_turns: int | None = None
    budget_seconds: float | None = None
    max_attempts: int | None = None
    max_resumes: int | None = None
    timeout_s: float | None = None
    subtask_timeout_s: float | None = None
    paths: tuple[str, ...] = ()
    verify: tuple[str | dict[str, Any], ...] = ()
    approve: bool | None = None
    land: Literal["merge", "pull_request"] | None = None
    may_change_nothing: bool | None = None
    not_before: float | str | None = None
    labels: tuple[str, ...] = ()
    forked_from: str | None = None
    context: Any = None

    @staticmethod
    def explain(values: Any) -> None:
        """Raises the error that a file would get for an unknown key."""
        if isinstance(values, dict) and not values.keys() <= set(NewTask.__struct_fields__):
            from_values({"id": "new", **values})
            # What a file may have, and nobody gives.
            raise InputError(detail="claim, result and error are written by Holdfast; leave them out")


class NewTasks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tasks: Annotated[tuple[NewTask, ...], Meta(min_length=1, max_length=BATCH_MAX)]

    @staticmethod
    def explain(values: Any) -> None:
        tasks = values.get("tasks") if isinstance(values, dict) else None
        for each in tasks if isinstance(tasks, list) else ():
            NewTask.explain(each)


class Added(msgspec.Struct, frozen=True):
    tasks: list[TaskRow]


def row(task: Task, made: Definition | None, held: str = "", lost: str = "", step: str = "") -> TaskRow:
    bare = build_row(TaskRow, task, made or Definition(task.id), held=held, lost=lost, next_step=step)
    reason = last_reason(task)[:REASON_CHARS_MAX]
    return msgspec.structs.replace(bare, title=bare.title[:TITLE_CHARS_MAX], fault=fault_of(task), reason=reason)


def given(new: NewTask) -> dict[str, Any]:
    values = msgspec.to_builtins(new)
    return {key: value for key, value in values.items() if value is not None and value != ()}


def rows_of(decision: DecisionContext, names: list[str]) -> list[TaskRow]:
    return [row(decision.tasks[name], decision.board.definition(name)) for name in names]


def list_tasks(api: Api, ask: Ask) -> TaskPage:
    """In the order in which they were added, so that a task that changes between two pages is on neither twice."""
    query: TaskQuery = ask.query
    behind = api.task(query.after).id if query.after else ""
    api.repository.refresh()
    found, first = [], 0
    for task in list(api.tasks.values()):
        if _fits(api, task, query):
            found.append(task)
        if task.id == behind:
            first = len(found)
    page = found[first : first + query.limit]
    more = first + len(page) < len(found)
    return TaskPage([row_of(api, task) for task in page], len(found), page[-1].id if more else "")


def row_of(api: Api, task: Task) -> TaskRow:
    hold = api.loop.holds.get(task.id)
    with api.board.lock:
        held = hold.reason if hold else api.board.graph.stuck(task.id)
    lost = api.repository.lost.get(task.id)
    # A working run tries it again by itself.
    step = lost.next_step if lost else RUN if fault_of(task) and not api.loop.works else ""
    found = row(task, api.definition(task.id), held, lost.why if lost else "", step)
    asks = asking_words(task, api.config.question_timeout_s)
    return msgspec.structs.replace(found, asks=asks) if asks else found


def _fits(api: Api, task: Task, query: TaskQuery) -> bool:
    if (query.state and task.state not in query.state) or (query.agent and task.claim.agent != query.agent):
        return False
    if not (query.role or query.label or query.parent or query.text):
        return True
    each = row(task, api.definition(task.id))
    if (query.role and each.role != query.role) or (query.parent and each.parent != query.parent):
        return False
    if query.label and query.label not in each.labels:
        return False
    return not query.text or query.text.lower() in f"{each.id} {each.title}".lower()


def show_task(api: Api, ask: Ask) -> TaskView:
    task = api.task(ask.task)
    api.repository.refresh()
    return view_of(api, task)


def view_of(api: Api, task: Task) -> TaskView:
    made = api.definition(task.id)
    with api.board.lock:
        graph = api.board.graph
        waits = graph.reasons_to_wait(task.id, api.context.clock()) if task.id in graph else []
        subtasks = graph.subtasks(task.id)
    waits += [fault] if (fault := fault_of(task)) else []
    gates = len(gates_of(made, api.config)) if made else 0
    return TaskView(
        task=row_of(api, task),
        definition=msgspec.to_builtins(made) if made else {},
        etag=task.definition,
        waits=waits,
        outcome=task.outcome,
        candidate=task.candidate,
        verified=task.landing.verified,
        landed=task.landing.commit,
        landed_on=task.landing.branch,
        pull_request=task.pull.url if task.pull is not None else "",
        not_before=task.not_before,
        session=task.session,
        why=task.claim.why,
        subtasks=subtasks,
        gates=gates,
        unchecked=made is not None and not gates and not made.may_change_nothing,
        told=[WaitingMessage(each.text, each.by, each.at) for each in task.told],
    )


OPERATIONS = [
    Operation("GET", "/tasks", "list_tasks", "List tasks, filtered, a page at a time.", list_tasks, answer=TaskPage,
              lane="aside", query=TaskQuery, problems=(404,), tool="person"),
    Operation("GET", "/tasks/{task}", "show_task", "Show one task with its definition.", show_task, answer=TaskView,
              lane="aside", problems=(404,), tool="both"),
]  # fmt: skip
