"""The run as a whole, and the graph of its tasks."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from holdfast import __version__
from holdfast.domain.spend import DAY_S, Spend
from holdfast.domain.task import AT_WORK, TaskState
from holdfast.engine import outages
from holdfast.engine.outages import OutageRow
from holdfast.errors import HoldfastError
from holdfast.orchestrator.holds import ALL
from holdfast.preparation.disk_use import DiskUse
from holdfast.server.api_state import Api
from holdfast.server.operations import Ask, Operation
from holdfast.server.repository import LockRow, LostRow
from holdfast.server.routes.tasks import row
from holdfast.views.host import HostRow, host_row
from holdfast.views.questions import QuestionRow, asked

PROBLEMS_MAX = 100
NODES_MAX = 5_000


class ProblemRow(msgspec.Struct, frozen=True):
    """A problem of a file of the backlog."""

    file: str
    line: int
    message: str
    tasks: tuple[str, ...]


class JudgingRow(msgspec.Struct, frozen=True):
    """A task that is being judged; `what`: the commit, and on top of what."""

    task: str
    what: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """`works`: it starts agents and lands; where not, it only serves. `cursor` is where the journal ends.

    `finishing`: the task that is verified or landed in its turn; `judging`: all that are judged now, also ahead of it.
    `outages`: agents that cannot use their model for now. `lost`: landings that are not on their branch any more.
    `asking`: how many tasks wait for a person's answer (GET /questions).
    `unconfined`: what to know where there is no sandbox and nobody has said so.
    `host`: the machine's free memory and load; `held`: why no agent is started though tasks are ready, or empty.
    `disk`: what worktrees and snapshots take, counted once a minute.
    `locks`: those with which a run that died keeps git from committing in a checkout.
    """

    run: str
    version: str
    began: float
    url: str
    works: bool
    stopping: str
    states: dict[str, int]
    agents: int
    remote: int
    usd_run: float
    usd_today: float
    turns_run: int
    tokens_run: int
    finishing: str
    judging: list[JudgingRow]
    asking: int
    problems: list[ProblemRow]
    cursor: str
    data_root: str
    repo: str
    branch: str
    outages: list[OutageRow] = []
    lost: list[LostRow] = []
    locks: list[LockRow] = []
    unconfined: str = ""
    host: HostRow
    held: str = ""
    disk: DiskUse


class GraphNode(msgspec.Struct, frozen=True):
    id: str
    state: TaskState
    title: str
    priority: int
    parent: str


class Edge(msgspec.Struct, frozen=True):
    """From the task that waits to the one that it waits for; from a subtask to its parent."""

    from_: str = msgspec.field(name="from")
    to: str
    kind: Literal["depends_on", "parent"]


class TaskGraph(msgspec.Struct, frozen=True):
    """`total` counts all tasks, also those that did not fit in."""

    nodes: list[GraphNode]
    edges: list[Edge]
    total: int


class GraphQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=NODES_MAX)] = 2000


def status(api: Api, ask: Ask) -> Status:
    """Asks git for the branch, once in a run, and now and then whether all landings are on theirs."""
    api.repository.refresh()
    state, loop, position = api.context.ledger.state, api.loop, api.context.ledger.position
    tasks = list(api.tasks.values())
    # One that waits for an answer is not at work.
    held = [task for task in tasks if task.state in AT_WORK and task.id not in state.asking]
    remote = sum(task.claim.remote for task in held)
    today = state.days.get(int(api.context.clock() // DAY_S), Spend())
    problems = [ProblemRow(each.file, each.line, each.message, each.tasks) for each in api.board.problems]
    branch = ""
    with contextlib.suppress(HoldfastError):
        branch = api.context.branch.removeprefix("refs/heads/")
    return Status(
        run=position.run,
        version=__version__,
        began=api.began,
        url=api.url,
        works=loop.works,
        stopping=loop.stopping,
        states=dict(Counter(str(task.state) for task in tasks)),
        agents=len(held) - remote,
        remote=remote,
        usd_run=state.run.usd,
        usd_today=today.usd,
        turns_run=state.run.turns,
        tokens_run=state.run.tokens,
        finishing=loop.landing,
        judging=[JudgingRow(task.id, task.landing.judging) for task in tasks if task.landing.judged],
        asking=len(state.asking),
        problems=problems[:PROBLEMS_MAX],
        cursor=f"{position.run}:{position.seq}",
        data_root=str(api.layout.root),
        repo=str(api.context.repo),
        branch=branch,
        outages=outages.rows(state, api.config, api.context.clock()),
        lost=list(api.repository.lost.values())[:PROBLEMS_MAX],
        locks=list(api.repository.locks),
        unconfined=api.context.unconfined,
        host=host_row(api.config, tasks, api.context.clock(), folder=api.layout.root),
        disk=api.repository.disk_use(),
        held=hold.reason if (hold := loop.holds.get(ALL)) is not None else "",
    )


def graph(api: Api, ask: Ask) -> TaskGraph:
    """The graph; where not all tasks fit in, the newest do: what is over is at the beginning."""
    tasks = list(api.tasks.values())
    shown = [row(task, api.definition(task.id)) for task in tasks[-ask.query.limit :]]
    nodes = [GraphNode(each.id, each.state, each.title, each.priority, each.parent) for each in shown]
    known = {node.id for node in nodes}
    waits = [Edge(each.id, name, "depends_on") for each in shown for name in each.depends_on if name in known]
    parents = [Edge(each.id, each.parent, "parent") for each in shown if each.parent in known]
    return TaskGraph(nodes, waits + parents, len(tasks))


def questions(api: Api, ask: Ask) -> list[QuestionRow]:
    return asked(api.context.ledger.state)


OPERATIONS = [
    Operation("GET", "/questions", "questions", "What agents ask a person, the oldest first.", questions,
              answer=list[QuestionRow], right="operate", tag="status", tool="person",
              hint="Each is answered with `answer_task`, by its id."),
    Operation("GET", "/status", "status", "The run as a whole.", status, answer=Status, lane="aside", tag="status",
              tool="person"),
    Operation("GET", "/tasks/graph", "task_graph", "What waits for what.", graph, answer=TaskGraph, query=GraphQuery),
]  # fmt: skip
