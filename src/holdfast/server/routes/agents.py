"""The agents at work now: those that we run, and workers that hold a task through the API."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec

from holdfast.decisions.context import DecisionContext, refused
from holdfast.decisions.stops import flag
from holdfast.domain.task import AT_WORK
from holdfast.domain.task_record import Task
from holdfast.layout import Attempt
from holdfast.server.api_state import Api
from holdfast.server.operations import Ask, NewestQuery, NoBody, Operation, row_from
from holdfast.server.problems import Problem
from holdfast.server.routes.decisions import Changed
from holdfast.server.routes.tasks import row, rows_of
from holdfast.server.routes.work import Claimed, Hold, beat_of
from holdfast.storage.records import attempt_folder
from holdfast.storage.records.at_work import agent_at_work, tail
from holdfast.storage.records.attempt_folder import Liveness
from holdfast.worktrees.attempt_commits import attempt_named

_WORDS = {
    Liveness.ALIVE: "working",
    Liveness.ABSENT: "starting",
    Liveness.ENDED: "ended",
    Liveness.DEAD: "lost",
    Liveness.HEADLESS: "lost",
}


class AgentRow(msgspec.Struct, frozen=True, kw_only=True):
    """One agent at work. `turn` is the one that it is in; `usd` and `tokens` are the task's so far.

    `context_tokens`: what the agent last said that it gave to its model; 0 where it does not say. `silent_s`: how long
    it has printed nothing. `tool` runs now; while none does, `last_tool` is the one that ran last. `worker` and
    `until` are of one that holds its task through the API. `retrying`: it does not reach its model, and tries again;
    what went wrong. `asks`: the question for which it waits; its `state` is then `asking`.
    """

    attempt: str
    task: str
    title: str
    agent: str
    model: str
    state: str
    turn: int
    tool: str
    usd: float
    tokens: int
    context_tokens: int
    since: float
    heartbeat_age_s: float
    silent_s: float
    remote: bool
    worker: str = ""
    until: float = 0.0
    pid: int = 0
    last_tool: str = ""
    retrying: str = ""
    asks: str = ""


class Agents(msgspec.Struct, frozen=True):
    agents: list[AgentRow]


def list_agents(api: Api, ask: Ask) -> Agents:
    return Agents(rows_at_work(api))


def show_agent(api: Api, ask: Ask) -> AgentRow:
    task = api.tasks.get(ask.attempt.rpartition(".")[0])
    if task is None or task.attempt.id != ask.attempt or task.state not in AT_WORK:
        detail = f"Nobody works on {ask.attempt!r}. See /agents for those who work, /attempts/… for what was done."
        raise Problem(404, "agent_unknown", detail)
    return row_of(api, task)


def rows_at_work(api: Api) -> list[AgentRow]:
    found = [row_of(api, task) for task in list(api.tasks.values()) if task.state in AT_WORK]
    return sorted(found, key=lambda each: each.since)


def row_of(api: Api, task: Task) -> AgentRow:
    title = row(task, api.definition(task.id)).title
    lease = api.context.ledger.lease(task.id) if task.claim.remote else None
    if task.claim.remote:
        until = lease.until if lease else 0.0
        age = max(0.0, api.config.lease_s - (until - api.context.clock()))
        return AgentRow(
            attempt=task.attempt.id,
            task=task.id,
            title=title,
            agent=task.claim.agent,
            model=task.claim.model,
            state="working",
            turn=task.attempt.turn + 1,
            tool=task.claim.progress[:200],
            usd=task.spent.usd,
            tokens=task.spent.tokens,
            context_tokens=0,
            since=task.changed_at,
            heartbeat_age_s=age,
            silent_s=age,
            remote=True,
            worker=task.claim.agent,
            until=until,
        )
    files = api.layout.attempt_files(task.attempt.id)
    seen, at = attempt_folder.liveness(files, task.start.number, task.start.intent), agent_at_work(files, task)
    running = attempt_folder.read_process(files)
    return row_from(
        AgentRow,
        at,
        title=title,
        model=task.claim.model,
        state="asking" if at.asks and seen is Liveness.ALIVE else _WORDS[seen],
        tool=at.tool if at.tool_runs else "",
        context_tokens=_context(files),
        heartbeat_age_s=api.context.silence.seconds(task.attempt.id),
        silent_s=age_of(files.output, api.context.clock()),
        remote=False,
        pid=running.agent.pid if running is not None and seen is Liveness.ALIVE else 0,
        last_tool="" if at.tool_runs else at.tool,
    )


def _context(files: Attempt) -> int:
    spent = [line for line in tail(files.events) if line.get("type") == "spent"]
    counted = spent[-1].get("tokens_in", 0) if spent else 0
    return counted if isinstance(counted, int) else 0


def age_of(path: Path, now: float) -> float:
    """The seconds since a file was written to; 0 where there is none."""
    try:
        return max(0.0, now - path.stat().st_mtime)
    except FileNotFoundError:
        return 0.0


# -- asking something of an agent -------------------------------------------------------------------------------------


def beat(decision: DecisionContext, ask: Ask) -> Claimed:
    return beat_of(decision, ask, _task_of(decision, ask.attempt))


def stop(decision: DecisionContext, ask: Ask) -> Changed:
    """Its runner ends it in order. The task is open then, and waits for a person who says that it shall go on."""
    task = _task_of(decision, ask.attempt)
    if task.claim.remote:
        raise refused(task, "stopped", "it can be cancelled.", "its worker is none of ours")
    if not decision.has_done("task_flagged", 0):
        decision.append([flag(decision, task)])
    decision.context.spawn.ask_to_stop(task)
    note = f"its runner was asked to end it; `holdfast resume {task.id}` goes on with the attempt, also after an undo"
    return Changed(rows_of(decision, [task.id])[0], note)


def _task_of(decision: DecisionContext, attempt: str) -> Task:
    task = decision.tasks.get(attempt.rpartition(".")[0])
    if task is None or task.attempt.id != attempt or task.state not in AT_WORK:
        raise Problem(404, "agent_unknown", f"Nobody works on {attempt!r}. See /agents for those who work.")
    return task


def known_attempt(api: Api, name: str) -> str:
    """The id of an attempt that there is, or was."""
    found = attempt_named(api.context.ledger.state, name)
    if found is None or found[1] != name or not name:
        raise Problem(404, "attempt_unknown", f"There is no attempt {name!r}. A task's are at /tasks/…/attempts.")
    return name


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """`session` is the agent's own name for its conversation; `ended` is null while it works."""

    attempt: str
    task: str
    agent: str
    start: int
    session: str
    began: float
    ended: float | None
    turns: int


class Sessions(msgspec.Struct, frozen=True):
    """The newest first."""

    sessions: list[SessionRow]


def sessions(api: Api, ask: Ask) -> Sessions:
    query: NewestQuery = ask.query
    with api.chronicle as told:
        newest = (each for each in reversed(told.sittings) if not query.task or each.task == query.task)
        return Sessions([row_from(SessionRow, each) for each in itertools.islice(newest, query.limit)])


OPERATIONS = [
    Operation("GET", "/agents", "list_agents", "The agents at work now.", list_agents, answer=Agents, lane="aside",
              tag="agents"),
    Operation("GET", "/agents/{attempt}", "show_agent", "One agent at work.", show_agent, answer=AgentRow, lane="aside",
              tag="agents", problems=(404,)),
    Operation("POST", "/agents/{attempt}/heartbeat", "beat_agent", "Keep a claim alive.", beat, answer=Claimed,
              right="work", lane="batch", body=Hold, tag="agents", problems=(404, 409)),
    Operation("POST", "/agents/{attempt}/stop", "stop_agent", "End an agent in order; its work can be continued.", stop,
              answer=Changed, right="operate", lane="loop", body=NoBody, tag="agents", problems=(404, 409)),
    Operation("GET", "/sessions", "sessions", "Each sitting of an agent on an attempt.", sessions, answer=Sessions,
              lane="aside", query=NewestQuery, tag="agents"),
]  # fmt: skip
