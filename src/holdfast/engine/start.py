"""Starting an attempt, or continuing one: claim, tree and prompt, worktree, order, runner.

A crash anywhere on the way leaves a claim without a start, which recovery gives back; the next start does it all again.
Until the first runner of an attempt has begun, its worktree holds nothing that counts, and is made ready anew.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast.config.permissions import policy_of
from holdfast.config.settings import Config
from holdfast.domain.attempt_records import AttemptLimits, Launch, Order
from holdfast.domain.definition import Definition, fork_source
from holdfast.domain.effect_entries import SpawnIntended
from holdfast.domain.fsm import Reason
from holdfast.domain.routing import choose
from holdfast.domain.spend import Caps
from holdfast.domain.task import TaskEvent
from holdfast.domain.task_record import PreviousAttempt, Task, is_answered_start
from holdfast.engine import budget, earlier_starts, outages
from holdfast.engine.context import RunContext
from holdfast.engine.effects import carry_out
from holdfast.engine.prompt import PromptTree, Words, prompt, template_problem
from holdfast.errors import (
    DefinitionLost,
    HoldfastError,
    SetupFailed,
    SnapshotLost,
    SnapshotTooLarge,
    SubmoduleMissing,
    TurnUnknown,
    is_environment,
    is_fatal,
)
from holdfast.layout import Layout
from holdfast.ports import Agent, LedgerReader, Work
from holdfast.preparation.preparation import WorktreePlace
from holdfast.processes import bwrap, host
from holdfast.processes.resources import of_machine
from holdfast.snapshots.snapshots import ROOT
from holdfast.storage.audit.key import configured_path
from holdfast.storage.records.blobs import Blobs
from holdfast.storage.records.session_use import SessionUse, idle_turns, is_rotating, left, rotation, session_use
from holdfast.worktrees import merges, pins
from holdfast.worktrees.attempt_commits import base_of
from holdfast.worktrees.factory import worktrees_of
from holdfast.worktrees.worktrees import Worktrees

ORDER_TYPE = "application/json"


class NotStarted(msgspec.Struct, frozen=True):
    """The reason why a task was not started. `soon`: an agent's end may change it. `for_all`: it holds for every task;
    with `soon`, the run starts nothing for a moment and then looks again.
    `fault`: the machine failed, and the task is open again under the same attempt. `until`: when it may be started
    again, where that is known. `of_agent`: the reason is its agent's, not its own."""

    reason: str
    soon: bool = False
    for_all: bool = False
    fault: bool = False
    until: float = 0.0
    of_agent: bool = False


_OTHERS_INSIDE = ("/tmp/", "/dev/")


def start(context: RunContext, task: Task, free_slots: int) -> NotStarted | None:
    """Starts a runner for the task, or says why not."""
    if short := _shortage(context):
        return NotStarted(short, soon=True, for_all=True)
    made = context.board.definition(task.id)
    if made is None:
        return NotStarted("its file is gone or cannot be used")
    if lost := [name for name in made.depends_on if name in context.lost]:
        return NotStarted(f"it builds on {lost[0]}. {context.lost[lost[0]]}")
    choice = choose(made, context.config, task, lambda agent, model: outages.is_down(context, agent, model))
    agent = context.agents.get(choice.agent)
    if agent is None:
        return NotStarted(f"there is no agent called {choice.agent}; known are {', '.join(sorted(context.agents))}")
    kind = context.sandbox_of(made)
    policy = policy_of(context.config, made, agent.name)
    if missing := agent.missing(made, policy) or context.missing_sandbox(kind):
        return NotStarted(missing)
    if hidden := _hidden_program(context, agent, made):
        return NotStarted(hidden)
    if kind == "none" and context.config.sandbox_network == "none":
        return NotStarted(
            "`sandbox_network: none` needs a sandbox, and it has none; install bubblewrap, or set it to `open`"
        )
    if (down := outages.blocking(context, choice.agent, choice.model)) is not None:
        told = outages.sentence(down[0], context.clock())
        return NotStarted(told, soon=not math.isfinite(down[1]), until=down[1], of_agent=True)
    if wrong := template_problem(context.layout):
        return NotStarted(wrong, for_all=True)
    try:
        base = task.attempt.base if task.start.number else merges.newest(context.repo, context.branch)
        context.worktrees.expect_submodules(base)
    except SubmoduleMissing as error:
        return NotStarted(str(error))
    caps = budget.reserve(context.ledger.state, task, made, context.config, context.clock(), free_slots=free_slots)
    if isinstance(caps, budget.BudgetRefusal):
        if caps.until is not None:
            context.append(context.flagged(task, not_before=caps.until))
        return NotStarted(caps.reason, soon=caps.reserved, for_all=caps.scope == "run" and not caps.reserved)
    facts: dict[str, Any] = {"endpoint": found} if (found := agent.endpoint(choice.model)) else {}
    why = choice.why
    if full := _full_session(context.layout, context.config, task, agent):
        facts["forget"], why = True, "; ".join(filter(None, (why, f"begins another conversation: {full}")))
    context.ledger.claim(agent.name, task.id, lease_s=None, model=choice.model, why=why, **facts)
    try:
        _begin(context, task, agent, caps)
    except (DefinitionLost, SnapshotLost, SnapshotTooLarge) as error:
        context.park(task, str(error))
    except HoldfastError as error:
        if is_fatal(error):
            raise
        if is_environment(error):
            reason = Reason.SETUP_FAILED if isinstance(error, SetupFailed) else Reason.ENVIRONMENT
            outcome = {"kind": str(reason), "detail": str(error), "attempt": task.attempt.id}
            back = context.moved(task, TaskEvent.UNCLAIM, reason, outcome=outcome)
            context.append(back, context.held_up(task, str(error)))
            return NotStarted(str(error), fault=True)
        context.fail(task, TaskEvent.IMMEDIATE_FAILURE, Reason.NOT_STARTED, "not_started", str(error))
    return None


def _shortage(context: RunContext) -> str:
    """The reason why the machine has no room for another agent."""
    if (least := context.config.memory_free_min) is None:
        return ""
    at_work = map(context.board.task, sorted(context.board.active))
    return host.shortage(host.look(), least, host.young(at_work, context.clock()))


def _hidden_program(context: RunContext, agent: Agent, made: Definition) -> str:
    """The reason why the sandbox hides the agent's program; every start would fail the same way."""
    program = agent.find() or ""
    shown = (Path(program).is_relative_to(each) for each in bwrap.shown_below_covered(context.repo))
    is_seen = not program.startswith(_OTHERS_INSIDE) or any(shown)
    if context.sandbox_of(made) != "bwrap" or is_seen:
        return ""
    return (
        f"{agent.name} is {program}, and the sandbox has a {'/'.join(program.split('/')[:2])} of its own, without that "
        "program. Nothing was started; put it elsewhere, or set `sandbox: none` for the task."
    )


def _begin(context: RunContext, task: Task, agent: Agent, caps: Caps) -> None:
    made = context.board.worked_on(task)
    inputs = StartInputs(
        repo=context.repo,
        layout=context.layout,
        config=context.config,
        blobs=context.blobs,
        branch=context.branch,
        base_of=lambda name: base_of(context.ledger, context.board.tasks.get(name.rpartition(".")[0]), name),
        journal=context.ledger,
    )
    found = plan_start(inputs, task, made, agent)
    base = found.base
    pins.pin(context.repo, context.layout, task.attempt.id, base)
    place = WorktreePlace(
        task=task.id,
        attempt=task.attempt.id,
        folder=context.worktrees.path(task.id),
        target=merges.newest(context.repo, context.branch),
        tree=found.snapshot or found.begin or base,
        confinement=context.confinement(made),
    )
    make_tree = functools.partial(hold, context.worktrees, task, base, found.snapshot, found.begin)
    with context.preparation.prepare(place, make_tree, functools.partial(carry_out, context)) as prepared:
        context.preparation.run_hook("before_start", context.config.worktree.before_start, place, prepared)
        order = order_of(context, task, made, agent, found, caps=caps, variables=prepared.variables)
        digest = context.blobs.put(msgspec.json.encode(order), content_type=ORDER_TYPE)
        intended = SpawnIntended(
            task=task.id,
            attempt=task.attempt.id,
            start=order.start,
            order=digest,
            argv=list(order.launch.argv),
            worktree=order.worktree,
            base=base,
            reserved=caps,
            names_files=True,
            tree=found.begin,
        )
        context.spawn.leases[task.attempt.id] = prepared.descriptors
        carry_out(context, intended)
        del context.spawn.leases[task.attempt.id]
    context.move(task, TaskEvent.AGENT_STARTS_WORK, "scheduled", agent=agent.name)
    context.note(
        task.id,
        f"{task.attempt.id} is at work with {agent.name}"
        + (f" ({task.claim.model})" if task.claim.model else "")
        + (f", start {order.start}" if order.start > 1 else ""),
    )


# -- what it begins with -----------------------------------------------------------------------------------------------

# Nothing is changed here but that git learns new objects: the worktree is made ready by `hold` alone.


class StartInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a start's plan; `holdfast prompt` has them without a run.

    `base_of` knows the commit that any attempt began with, empty where nobody does.
    """

    repo: Path
    layout: Layout
    config: Config
    blobs: Blobs
    branch: str
    base_of: Callable[[str], str]
    journal: LedgerReader

    @property
    def worktrees(self) -> Worktrees:
        return worktrees_of(self.repo, self.layout, self.config)


class StartPlan(msgspec.Struct, frozen=True):
    """`snapshot` is what the worktree has to be; where there is none, it is `begin`, on top of `base`."""

    base: str
    snapshot: str
    begin: str
    prompt: str
    session: str


def plan_start(inputs: StartInputs, task: Task, made: Definition, agent: Agent) -> StartPlan:
    """Of a task that was just claimed for this agent. `made` is the definition with which its attempt began."""
    is_full = bool(_full_session(inputs.layout, inputs.config, task, agent))
    session = task.session if agent.can.resume and not is_full else ""
    snapshot = ""
    if task.start.number:
        base, begin = task.attempt.base, task.attempt.begun
        snapshot, found = earlier_starts.continued_tree(inputs.worktrees, inputs.journal, task)
    else:
        base = begin = merges.newest(inputs.repo, inputs.branch)
        found = PromptTree()
        begun, by = _work_so_far(inputs, task, made)
        if begun:
            who = merges.identity(inputs.repo, inputs.config)
            merged = merges.merge(inputs.worktrees.store, base, begun, "the work so far", who)
            begin, found = merged.commit or merged.marked, PromptTree(merged.conflicts, by)
    words = Words(inputs.layout, inputs.blobs, inputs.config)
    return StartPlan(base, snapshot, begin, prompt(words, task, made, found, resumes=bool(session)), session)


def _work_so_far(inputs: StartInputs, task: Task, made: Definition) -> tuple[str, PreviousAttempt | None]:
    """The newest that was made for the task and has not landed, as a commit; and whose it is, if no candidate."""
    if task.left is not None:
        with contextlib.suppress(TurnUnknown):
            return _as_commit(inputs, task, task.left), task.left
    if task.candidate and task.feedback:
        return task.candidate, None
    source = fork_source(made)
    if source is None:
        return "", None
    attempt, turn = source
    base = inputs.base_of(attempt)
    if not base:
        raise TurnUnknown(turn=turn, attempt=attempt, known="is not in this journal")
    return _as_commit(inputs, task, PreviousAttempt(attempt, turn, base)), None


def _as_commit(inputs: StartInputs, task: Task, left: PreviousAttempt) -> str:
    who = merges.identity(inputs.repo, inputs.config)
    return earlier_starts.turn_as_commit(inputs.worktrees, inputs.journal, task, left, who)


def hold(worktrees: Worktrees, task: Task, base: str, snapshot: str, begin: str) -> None:
    """Makes the worktree equal to the snapshot or, where there is none, to the commit `begin`, whatever stands there.

    The caller vouches that nobody is at work in it. Done half by a crash, it is done whole by doing it again.
    """
    store, stood = worktrees.store, worktrees.path(task.id).is_dir()
    worktrees.prepare(task.id, base)
    snapshots = worktrees.snapshots(task.id, base)
    is_equal = False
    if stood:
        standing = snapshots.standing(task.attempt.id)
        is_equal = bool(snapshot) and standing == store.run("rev-parse", f"{snapshot}^{{tree}}").line
        known = store.trees(f"{ROOT}/{task.id}.*/*") | {store.run("rev-parse", f"{base}^{{tree}}").line}
        if not is_equal and standing not in known:
            number = sum(name.startswith("found-") for name in snapshots.names(task.attempt.id)) + 1
            snapshots.take(task.attempt.id, f"found-{number}", large="leave_out")
    with worktrees.holding(task.id, base, snapshot or begin or base):
        if snapshot and not is_equal:
            snapshots.restore(snapshot)
        elif not snapshot:
            worktrees.reset(task.id, base, begin or base)


# -- the order for its runner ------------------------------------------------------------------------------------------


def order_of(
    context: RunContext,
    task: Task,
    made: Definition,
    agent: Agent,
    found: StartPlan,
    *,
    caps: Caps,
    variables: Mapping[str, str],
    is_interactive: bool = False,
) -> Order:
    """All that the runner needs to know for this start. `is_interactive`: a person talks to the agent, or has a shell
    where its program has no such mode."""
    used = session_use(context.layout, task.id, task.attempts, found.session)
    work = Work(
        task=task.id,
        attempt=task.attempt.id,
        prompt=found.prompt,
        definition=made,
        model=task.claim.model,
        session=found.session,
        turn=task.attempt.turn,
        counted=(used.tokens_in, used.tokens_out),
        counted_usd=used.usd,
        policy=policy_of(context.config, made, agent.name),
        answers=bool(found.session) and is_answered_start(task) and not task.told,
    )
    launch = (agent.interactive(work) or shell()) if is_interactive else agent.launch(work)
    # A task's own command, started anew, would do everything again.
    can_rotate = (agent.can.resume or launch.uses_model) and is_rotating(task)
    return Order(
        task=task.id,
        attempt=task.attempt.id,
        start=task.start.number + 1,
        agent=agent.name,
        launch=launch,
        worktree=str(context.worktrees.path(task.id)),
        base=found.base,
        private=str(context.worktrees.private(task.id)),
        turn=task.attempt.turn,
        done=task.attempt.turn - task.attempt.undone,
        limits=_limits(context, made, caps, used if can_rotate and not is_interactive else None),
        idle_turns=idle_turns(context.layout.attempt_files(task.attempt.id)),
        passed_on=tuple(context.config.agent_env),
        exclude=context.worktrees.left_out(task.id),
        sandbox=context.sandbox_of(made),
        sandbox_writable=context.config.sandbox_writable,
        sandbox_network=context.config.sandbox_network,
        answered=tuple(each for each in task.questions if not each.is_open),
        audit_key=str(configured_path(context.repo, context.config.audit.key_path) or ""),
        told=task.told,
        prices={name: price.per_million for name, price in context.config.prices.items()},
        variables=dict(variables),
    )


def shell() -> Launch:
    return Launch((os.environ.get("SHELL") or "/bin/sh",), uses_model=False)


def _full_session(layout: Layout, config: Config, task: Task, agent: Agent) -> str:
    """The reason why the task's conversation is not resumed by this start; empty where there is none, or none yet."""
    most = config.session_turns_max, config.session_tokens_max
    return rotation(layout, task, *most) if agent.can.resume else ""


def _limits(context: RunContext, made: Definition, caps: Caps, used: SessionUse | None) -> AttemptLimits:
    """`used`: what the conversation has had before this start; None where it is not to be followed by another."""
    config = context.config
    return AttemptLimits(
        caps=caps,
        timeout_s=made.timeout_s or config.timeout_s,
        stall_timeout_s=config.stall_timeout_s,
        grace_s=config.grace_s,
        heartbeat_s=config.heartbeat_s,
        same_calls_max=config.same_calls_max,
        idle_turns_max=config.idle_turns_max,
        output_bytes_max=config.output_bytes_max,
        retry_timeout_s=config.retry_timeout_s,
        session_turns=left(config.session_turns_max, used and used.turns),
        session_tokens=left(config.session_tokens_max, used and used.tokens),
        resources=of_machine(config.limits.resources),
    )
