"""Beginning an attempt, or going on with one: claim, worktree, order, runner.

A crash anywhere on the way leaves a claim without a start, which recovery gives back; the next start does it all again.
Until the first runner of an attempt has begun, its worktree holds nothing that counts, and is made ready anew.
"""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from holdfast.domain.attempt_records import AttemptLimits, Order
from holdfast.domain.definition import Definition
from holdfast.domain.entries import SpawnIntended
from holdfast.domain.fsm import AbortReason
from holdfast.domain.routing import choose
from holdfast.domain.spend import Caps
from holdfast.domain.state import Task
from holdfast.domain.task import TaskEvent
from holdfast.engine import budget, outages
from holdfast.engine.attempt_commits import base_of
from holdfast.engine.base_tree import hold
from holdfast.engine.context import RunContext
from holdfast.engine.effects import carry_out
from holdfast.engine.prompt import template_problem
from holdfast.engine.start_inputs import StartInputs, ready
from holdfast.errors import (
    DefinitionLost,
    HoldfastError,
    SnapshotLost,
    SnapshotTooLarge,
    SubmoduleMissing,
    is_environment,
    is_fatal,
)
from holdfast.ports import Agent, Work
from holdfast.processes import bwrap
from holdfast.processes.resources import of_machine
from holdfast.storage.audit.key import configured_path
from holdfast.storage.journal.entry import Record
from holdfast.storage.records import ledger
from holdfast.worktrees import merges, pins

LEASE_S = 3600.0
ORDER_TYPE = "application/json"


class Held(msgspec.Struct, frozen=True):
    """Why a task was not started. `soon`: an agent's end may change that. `for_all`: no other would be, either.
    `fault`: the machine failed, and the task is open again under the same attempt. `until`: when it may be started
    again, where that is known. `of_agent`: the reason is its agent's, not its own."""

    reason: str
    soon: bool = False
    for_all: bool = False
    fault: bool = False
    until: float = 0.0
    of_agent: bool = False


_OTHERS_INSIDE = ("/tmp/", "/dev/")


def start(shop: RunContext, task: Task, free_slots: int) -> Held | None:
    """Starts a runner for the task, or says why not."""
    made = shop.board.definition(task.id)
    if made is None:
        return Held("its file is gone or cannot be used")
    if lost := [name for name in made.depends_on if name in shop.lost]:
        return Held(f"it builds on {lost[0]}. {shop.lost[lost[0]]}")
    choice = choose(made, shop.config, task, lambda agent, model: outages.is_down(shop, agent, model))
    agent = shop.agents.get(choice.agent)
    if agent is None:
        return Held(f"there is no agent called {choice.agent}; known are {', '.join(sorted(shop.agents))}")
    kind = shop.sandbox_of(made)
    if missing := agent.missing(made) or shop.missing_sandbox(kind):
        return Held(missing)
    if hidden := _hidden_program(shop, agent, made):
        return Held(hidden)
    if kind == "none" and shop.config.sandbox_network == "none":
        return Held("`sandbox_network: none` needs a sandbox, and it has none; install bubblewrap, or set it to `open`")
    if (down := outages.blocking(shop, choice.agent, choice.model)) is not None:
        told = outages.sentence(down[0], shop.clock())
        return Held(told, soon=not math.isfinite(down[1]), until=down[1], of_agent=True)
    if wrong := template_problem(shop.layout):
        return Held(wrong, for_all=True)
    try:
        shop.worktrees.expect_submodules(task.base if task.starts else merges.newest(shop.repo, shop.branch))
    except SubmoduleMissing as error:
        return Held(str(error))
    caps = budget.reserve(shop.ledger.state, task, made, shop.config, shop.clock(), free_slots)
    if isinstance(caps, budget.BudgetRefusal):
        if caps.until is not None:
            shop.append(Record("task_flagged", {"task": task.id, "not_before": caps.until}, actor="loop"))
        return Held(caps.reason, soon=caps.reserved, for_all=caps.scope == "run" and not caps.reserved)
    facts = {"endpoint": found} if (found := agent.endpoint(choice.model)) else {}
    shop.ledger.claim(agent.name, task.id, lease_s=LEASE_S, model=choice.model, why=choice.why, **facts)
    try:
        _begin(shop, task, agent, caps)
    except (DefinitionLost, SnapshotLost, SnapshotTooLarge) as error:
        shop.park(task, str(error))
    except HoldfastError as error:
        if is_fatal(error):
            raise
        if is_environment(error):
            outcome = {"kind": "environment", "detail": str(error), "attempt": task.attempt}
            back = shop.moved(task, TaskEvent.UNCLAIM, AbortReason.ENVIRONMENT, outcome=outcome)
            shop.append(back, shop.held_up(task, str(error)))
            return Held(str(error), fault=True)
        shop.fail(task, TaskEvent.IMMEDIATE_FAILURE, AbortReason.NOT_STARTED, "not_started", str(error))
    return None


def _hidden_program(shop: RunContext, agent: Agent, made: Definition) -> str:
    """Why a confined agent's program is not there for it; each start would fail the same way."""
    program = agent.find() or ""
    shown = (Path(program).is_relative_to(each) for each in bwrap.shown_below_covered(shop.repo))
    is_seen = not program.startswith(_OTHERS_INSIDE) or any(shown)
    if shop.sandbox_of(made) != "bwrap" or is_seen:
        return ""
    return (
        f"{agent.name} is {program}, and the sandbox has a {'/'.join(program.split('/')[:2])} of its own, without that "
        "program. Nothing was started; put it elsewhere, or set `sandbox: none` for the task."
    )


def _begin(shop: RunContext, task: Task, agent: Agent, caps: Caps) -> None:
    made = shop.board.worked_on(task)
    room = StartInputs(
        shop.repo, shop.layout, shop.config, shop.blobs, shop.branch, lambda name: base_of(shop.ledger, name)
    )
    found = ready(room, task, made, agent)
    base = found.base
    pins.pin(shop.repo, shop.layout, task.attempt, base)
    hold(shop.worktrees, task, base, found.snapshot, found.begin)
    work = Work(
        task.id,
        task.attempt,
        found.prompt,
        made,
        task.model,
        found.session,
        task.turn,
        _counted(shop, task, found.session),
    )
    start_number = task.starts + 1
    launch = agent.launch(work)
    order = Order(
        task.id,
        task.attempt,
        start_number,
        agent.name,
        launch,
        str(shop.worktrees.path(task.id)),
        base,
        str(shop.worktrees.private(task.id)),
        task.turn,
        task.turn - task.undone,
        _limits(shop, made, caps),
        tuple(shop.config.agent_env),
        exclude=shop.worktrees.exclude,
        sandbox=shop.sandbox_of(made),
        sandbox_writable=shop.config.sandbox_writable,
        sandbox_network=shop.config.sandbox_network,
        audit_key=str(configured_path(shop.repo, shop.config.audit.key_path) or ""),
        prices={name: price.per_million for name, price in shop.config.prices.items()},
    )
    digest = shop.blobs.put(msgspec.json.encode(order), content_type=ORDER_TYPE)
    intended = SpawnIntended(
        task.id, task.attempt, start_number, digest, list(launch.argv), order.worktree, base, caps, True, found.begin
    )
    carry_out(shop.ledger, shop.effects, "spawn", intended)
    shop.move(task, TaskEvent.AGENT_STARTS_WORK, "scheduled", agent=agent.name)
    shop.note(
        task.id,
        f"{task.attempt} is at work with {agent.name}"
        + (f" ({task.model})" if task.model else "")
        + (f", start {start_number}" if start_number > 1 else ""),
    )


def _counted(shop: RunContext, task: Task, session: str) -> tuple[int, int]:
    """The tokens in and out that the conversation has reported, whichever attempt of the task it was then."""
    tokens_in = tokens_out = 0
    for number in range(1, task.attempts + 1) if session else ():
        path = shop.layout.attempt_files(f"{task.id}.{number}").spend
        for line in ledger.LineLedger(path).read() if path.exists() else ():
            if line.record.get("session") == session:
                tokens_in += line.record["tokens_in"]
                tokens_out += line.record["tokens_out"]
    return tokens_in, tokens_out


def _limits(shop: RunContext, made: Definition, caps: Caps) -> AttemptLimits:
    config = shop.config
    return AttemptLimits(
        caps,
        made.timeout_s or config.timeout_s,
        config.stall_timeout_s,
        config.grace_s,
        config.heartbeat_s,
        config.same_calls_max,
        config.idle_turns_max,
        config.output_bytes_max,
        config.retry_timeout_s,
        of_machine(config.limits.resources),
    )
