"""Starting an attempt, or continuing one: claim, tree and prompt, worktree, order, runner.

A crash anywhere on the way leaves a claim without a start, which recovery gives back; the next start does it all again.
Until the first runner of an attempt has begun, its worktree holds nothing that counts, and is made ready anew.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from holdfast.config.permissions import policy_of
from holdfast.config.settings import Config
from holdfast.domain.attempt_records import Ending
from holdfast.domain.definition import Definition, fork_source
from holdfast.domain.effect_entries import SpawnIntended
from holdfast.domain.fsm import Reason
from holdfast.domain.routing import choose
from holdfast.domain.spend import Caps
from holdfast.domain.task import TaskEvent, TaskState
from holdfast.domain.task_record import PreviousAttempt, Task, is_answered_start
from holdfast.engine import budget, earlier_starts, outages
from holdfast.engine.context import Ended, RunContext
from holdfast.engine.effects import carry_out
from holdfast.engine.prompt import PromptTree, WayBack, Words, prompt, template_problem
from holdfast.engine.starting.orders import StartFacts, full_session_of, make_order, way_back
from holdfast.engine.starting.worktree_hooks import after_start, set_up
from holdfast.errors import (
    BudgetTaken,
    DefinitionLost,
    HoldfastError,
    IncludeTooLarge,
    SetupFailed,
    SnapshotLost,
    SnapshotTooLarge,
    SubmoduleMissing,
    TurnUnknown,
    is_environment,
    is_fatal,
)
from holdfast.landing import gate_kinds
from holdfast.layout import Layout
from holdfast.ports import Agent, LedgerReader
from holdfast.preparation.preparation import Prepared, WorktreePlace
from holdfast.processes import bwrap, host
from holdfast.snapshots.snapshots import ROOT
from holdfast.storage.records.blobs import Blobs
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
    if unusable := _hidden_program(context, agent, made) or gate_kinds.missing(made, context.config):
        return NotStarted(unusable)
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
        base = task.attempt.base if task.start.number else merges.newest(context.repo, context.branch_for(task))
        context.worktrees.expect_submodules(base)
    except SubmoduleMissing as error:
        return NotStarted(str(error))
    caps = budget.reserve(context.ledger.state, task, made, context.config, context.clock(), free_slots=free_slots)
    if isinstance(caps, budget.BudgetRefusal):
        if caps.until is not None:
            context.append(context.flagged(task, not_before=caps.until))
        return NotStarted(caps.reason, soon=caps.reserved, for_all=caps.scope == "run" and not caps.reserved)
    facts: dict[str, Any] = {"endpoint": found} if (found := agent.endpoint(choice.model)) else {}
    if full := full_session_of(context.layout, context.config, task, agent):
        facts["forget"] = True
    elif task.outcome.get("kind") == Ending.SESSION_FULL:
        detail = str(task.outcome.get("detail", ""))
        full = f"{detail[:1].lower()}{detail[1:].removesuffix('.')}"
    why = "; ".join(filter(None, (choice.why, f"begins another conversation: {full}" if full else "")))
    context.ledger.claim(agent.name, task.id, lease_s=None, model=choice.model, why=why, **facts)
    return _guarded(context, task, lambda: _begin(context, task, agent, caps, free_slots))


def finish_prepared(context: RunContext) -> Iterator[tuple[Task, NotStarted | None]]:
    """Starts the tasks whose worktrees were made ready beside the loop; yields each with why it was not started."""
    threads = context.preparing
    while threads is not None and (ended := threads.next_ended()) is not None:
        planned: _PlannedStart = ended.key
        task, held = planned.task, None
        if not planned.is_claimed():
            # Cancelled, or taken away, meanwhile.
            if ended.result is not None:
                ended.result[0].close()
        elif threads.is_stopping:
            if ended.result is not None:
                ended.result[0].close()
            context.move(task, TaskEvent.UNCLAIM, Reason.SHUTDOWN)
        else:
            held = _guarded(context, task, functools.partial(_take_prepared, context, planned, ended))
        yield task, held


def _guarded(context: RunContext, task: Task, act: Callable[[], None]) -> NotStarted | None:
    """Carries out a part of a start. What goes wrong without the task's fault costs no attempt."""
    try:
        act()
    except (DefinitionLost, SnapshotLost, SnapshotTooLarge) as error:
        context.park(task, str(error))
    except HoldfastError as error:
        if is_fatal(error):
            raise
        if is_environment(error):
            reason = Reason.SETUP_FAILED if isinstance(error, (IncludeTooLarge, SetupFailed)) else Reason.ENVIRONMENT
            outcome = {"kind": str(reason), "detail": str(error), "attempt": task.attempt.id}
            back = context.moved(task, TaskEvent.UNCLAIM, reason, outcome=outcome)
            context.append(back, context.held_up(task, str(error)))
            return NotStarted(str(error), fault=True)
        context.fail(task, TaskEvent.IMMEDIATE_FAILURE, Reason.NOT_STARTED, "not_started", str(error))
    return None


def _shortage(context: RunContext) -> str:
    """The reason why the machine has no room for another agent."""
    if short := host.disk_shortage(context.layout.root, context.config.disk_free_min):
        return short
    if (least := context.config.memory_free_min) is None:
        return ""
    at_work = map(context.board.task, sorted(context.board.active))
    return host.shortage(host.measure(), least, host.young(at_work, context.clock()))


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


class _PlannedStart(msgspec.Struct, frozen=True, kw_only=True):
    """A claimed task whose worktree is being prepared. `claim`: the number of that claim."""

    task: Task
    claim: int
    found: StartPlan
    facts: StartFacts
    place: WorktreePlace
    free_slots: int

    def is_claimed(self) -> bool:
        return self.task.state is TaskState.CLAIMED and self.task.claim.number == self.claim


def _begin(context: RunContext, task: Task, agent: Agent, caps: Caps, free_slots: int) -> None:
    made = context.board.worked_on(task)
    inputs = StartInputs(
        repo=context.repo,
        layout=context.layout,
        config=context.config,
        blobs=context.blobs,
        branch=context.branch_for(task),
        base_of=lambda name: base_of(context.ledger, context.board.tasks.get(name.rpartition(".")[0]), name),
        journal=context.ledger,
    )
    found = plan_start(inputs, task, made, agent, way_back(agent, context))
    pins.pin(context.repo, context.layout, task.attempt.id, found.base)
    claim, threads = task.claim.number, context.preparing
    place = WorktreePlace(
        task=task.id,
        attempt=task.attempt.id,
        folder=context.worktrees.path(task.id),
        target=merges.newest(context.repo, context.branch),
        tree=found.snapshot or found.begin or found.base,
        confinement=context.confinement(made),
        is_wanted=lambda: planned.is_claimed() and not (threads is not None and threads.is_stopping),
    )
    facts = StartFacts(
        made=made,
        agent=agent,
        base=found.base,
        prompt=found.prompt,
        session=found.session,
        caps=caps,
        # As the prompt has them: what comes while the worktree is prepared is delivered later.
        told=task.told,
        answered=tuple(each for each in task.questions if not each.is_open),
        answers=bool(found.session) and is_answered_start(task) and not task.told,
    )
    planned = _PlannedStart(task=task, claim=claim, found=found, facts=facts, place=place, free_slots=free_slots)
    if threads is not None and context.preparation.is_slow:
        threads.begin(planned, functools.partial(_prepare, context, planned))
    else:
        _spawn(context, planned, caps, _prepare(context, planned))


def _prepare(context: RunContext, planned: _PlannedStart) -> tuple[contextlib.ExitStack, Prepared]:
    """Makes the worktree ready. What it holds meanwhile, such as ports, is held until the stack is closed."""
    task, found, place = planned.task, planned.found, planned.place
    make_tree = functools.partial(hold, context.worktrees, task, found.base, found.snapshot, found.begin)
    with contextlib.ExitStack() as stack:
        preparing = context.preparation.prepare(place, make_tree, functools.partial(set_up, context))
        prepared = stack.enter_context(preparing)
        for told in prepared.notes:
            context.note(task.id, told)
        context.preparation.run_hook("before_start", context.config.worktree.before_start, place, prepared)
        return stack.pop_all(), prepared


def _take_prepared(context: RunContext, planned: _PlannedStart, ended: Ended) -> None:
    if ended.error is not None:
        raise ended.error
    state, clock = context.ledger.state, context.clock()
    # What others have reserved meanwhile counts.
    caps = budget.reserve(state, planned.task, planned.facts.made, context.config, clock, free_slots=planned.free_slots)
    if isinstance(caps, budget.BudgetRefusal):
        ended.result[0].close()
        raise BudgetTaken(task=planned.task.id, reason=caps.reason)
    _spawn(context, planned, caps, ended.result)


def _spawn(
    context: RunContext, planned: _PlannedStart, caps: Caps, ready: tuple[contextlib.ExitStack, Prepared]
) -> None:
    task, found, agent, (stack, prepared) = planned.task, planned.found, planned.facts.agent, ready
    with stack:
        facts = msgspec.structs.replace(planned.facts, caps=caps, variables=prepared.variables)
        order = make_order(context, task, facts)
        digest = context.blobs.put(msgspec.json.encode(order), content_type=ORDER_TYPE)
        intended = SpawnIntended(
            task=task.id,
            attempt=task.attempt.id,
            start=order.start,
            order=digest,
            argv=list(order.launch.argv),
            worktree=order.worktree,
            base=found.base,
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
    after_start(context, task, planned.place, prepared)


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


def plan_start(inputs: StartInputs, task: Task, made: Definition, agent: Agent, back: WayBack = "") -> StartPlan:
    """Of a task that was just claimed for this agent. `made` is the definition with which its attempt began."""
    is_full = bool(full_session_of(inputs.layout, inputs.config, task, agent))
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
    words = Words(inputs.layout, inputs.blobs, inputs.config, back)
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
