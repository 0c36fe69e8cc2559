"""`take`: a person has the agent's conversation and worktree in a terminal; `give_back` ends that.

While a task is taken it is parked, so no run starts or lands it. Its agent is ended first, as `stop` does. When it is
given back, the worktree is saved as the snapshot `taken-<n>`, and the attempt goes on with that. If the process that
has it is dead, the next run gives it back, or the one that lives; then it stays parked until a person resumes it, for
nobody has said that the tree is fit to go on with.

A person who gives it back as finished makes that tree the candidate: it is given back first, parked, and done then. A
crash in between leaves a task that waits, with the tree saved; it can be given back as finished once more.
"""

from __future__ import annotations

import dataclasses

import msgspec

from holdfast import identity
from holdfast.crashpoints import point
from holdfast.decisions.context import Answer, DecisionContext, Later, expect_decided, refused
from holdfast.decisions.promotion import done_records
from holdfast.decisions.reviews import sent_back
from holdfast.decisions.stops import await_end, flag
from holdfast.decisions.tasks import expect_at_rest, resuming, who_goes_on
from holdfast.decisions.turns import settle
from holdfast.domain.attempt_records import Order
from holdfast.domain.conversations.conversation_entries import TaskGivenBack, TaskTaken
from holdfast.domain.conversations.conversation_records import Taken
from holdfast.domain.entries import STOPPED
from holdfast.domain.spend import Caps
from holdfast.domain.task import AT_WORK, OVER, TaskState
from holdfast.domain.task_record import Task
from holdfast.domain.wording import plural
from holdfast.engine import earlier_starts, outcome
from holdfast.engine.context import RunContext
from holdfast.engine.start import ORDER_TYPE, hold
from holdfast.engine.starting.orders import StartFacts, make_order
from holdfast.errors import InputError, NotFinished
from holdfast.processes import starts
from holdfast.storage.journal.entry import Record

TAKE_POINTS = ("take.journalled", "take.held", "give_back.ended", "give_back.saved")
FINISH_POINTS = ("give_back.given", "give_back.candidate", "give_back.finished")
_JUDGED = (TaskState.DONE, TaskState.PENDING_APPROVAL)
_UNSETTLED = AT_WORK | {TaskState.ORPHANED}


class Taking(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The process that has the task; after its end the task is given back. Without one only a person does that.

    `park`: when it is given back it waits for `resume`.
    """

    task: str
    pid: int = 0
    start_ticks: int = 0
    boot_id: str = ""
    host: str = ""
    shell: bool = False
    park: bool = False


class GivingBack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`pid`: the process that asks, which may be the one that has it. `done`: the work is finished, and the worktree as
    it stands is what the attempt made."""

    task: str
    park: bool = False
    pid: int = 0
    done: bool = False


# -- take -------------------------------------------------------------------------------------------------------------


def take(decision: DecisionContext, asked: Taking) -> Answer:
    task = decision.task(asked.task)
    if not decision.has_done("task_taken", 0):
        if task.taken is not None and not _is_held(task.taken):
            return_abandoned(decision.context)
        _expect_takeable(decision, task)
        _end_agent(decision, task)
        decision.append([*_opening(decision, task), _taken(decision, task, asked)])
        point("take.journalled")
    order = _prepare(decision.context, task, is_shell=asked.shell)
    point("take.held")
    digest = decision.blobs.put(msgspec.json.encode(order), content_type=ORDER_TYPE)
    way = f"`holdfast give-back {task.id}` gives it back" if not asked.pid else "it is given back when you leave"
    return decision.answer(task, note=f"yours; {way}", order=digest, worktree=order.worktree, attempt=task.attempt.id)


def _expect_takeable(decision: DecisionContext, task: Task) -> None:
    expect_decided(task, "taken", or_stopped=True)
    if task.state in OVER:
        raise refused(task, "taken", f"`holdfast fork {task.id} --turn N` begins a task with its work.")
    if not task.start.number:
        raise refused(task, "taken", "`holdfast run` begins it.", "nobody has worked on it yet")
    if task.claim.remote and task.state in AT_WORK:
        hint = f"its worker can give it back, and `holdfast cancel {task.id}` gives it up."
        raise refused(task, "taken", hint, f"{task.claim.agent} works on it elsewhere")
    if task.state in (TaskState.BLOCKED, TaskState.WAITING_FOR_SUBTASKS, TaskState.PLANNED):
        raise refused(task, "taken", f"`holdfast show {task.id}` tells what it waits for.")
    if task.claim.worked_by not in decision.context.agents:
        known = ", ".join(sorted(decision.context.agents))
        raise refused(task, "taken", f"known are {known}.", f"there is no agent called {task.claim.worked_by!r}")
    expect_at_rest(decision, task, "taken")


def _end_agent(decision: DecisionContext, task: Task) -> None:
    """Returns when nobody works on the task and its last start is settled. Raises Later where a run takes care."""
    if task.state not in _UNSETTLED:
        return
    if task.parked != STOPPED:
        decision.append([flag(decision, task)])
    if task.state in AT_WORK:
        decision.context.spawn.ask_to_stop(task)
    if decision.context.landing_thread is not None:
        raise Later
    await_end(decision.context, task)
    settle(decision, task)


def _opening(decision: DecisionContext, task: Task) -> list[Record]:
    """The moves after which the task is open, and its next claim continues the attempt."""
    if task.state in _JUDGED:
        return [sent_back(decision, task)]
    records = resuming(decision, task)
    if not records and not task.continues:
        # Opened for another attempt, which has not begun: the one that the person takes goes on instead.
        records = [decision.record("attempt_resumed", 1, {"task": task.id, "attempt": task.attempt.id})]
    return records


def _taken(decision: DecisionContext, task: Task, asked: Taking) -> Record:
    process = (asked.pid, asked.start_ticks, asked.boot_id, asked.host)
    made = TaskTaken(task.id, task.attempt.id, decision.key, decision.by, *process, park=asked.park)
    return decision.record("task_taken", 0, msgspec.to_builtins(made))


def _prepare(context: RunContext, task: Task, *, is_shell: bool) -> Order:
    """Makes the worktree equal to the tree that the attempt goes on with; returns how its program is called."""
    made, attempt = context.board.worked_on(task), task.attempt
    agent = context.agents[task.claim.worked_by]
    snapshot, _ = earlier_starts.continued_tree(context.worktrees, context.ledger, task)
    hold(context.worktrees, task, attempt.base, snapshot, attempt.begun)
    session = task.session if agent.can.resume and not is_shell else ""
    facts = StartFacts(
        made=made, agent=agent, base=attempt.base, prompt="", session=session, caps=Caps(), is_interactive=True
    )
    return make_order(context, task, facts)


# -- give back --------------------------------------------------------------------------------------------------------


def give_back(decision: DecisionContext, asked: GivingBack) -> Answer:
    if asked.done and asked.park:
        raise InputError(detail="work that is finished goes on to be verified: leave out `park`, or `done`")
    task = decision.task(asked.task)
    if not decision.has_done("task_given_back", 0):
        was_given = task.taken is None and task.was_taken and task.parked == STOPPED and task.state is TaskState.OPEN
        if was_given and not asked.done:
            return decision.answer(task, note=f"it was given back; `holdfast resume {task.id}` goes on with the tree")
        park = was_given or _expect_returnable(task, asked.pid)
        decision.append([_given_back(decision, task, park=park or asked.park or asked.done)])
        point("give_back.given")
    if asked.done:
        return _finish(decision, task)
    if task.parked == STOPPED:
        return decision.answer(task, note=f"`holdfast resume {task.id}` goes on with the tree as you left it")
    return decision.answer(task, note=who_goes_on(decision, "goes on with the tree as you left it"))


def _expect_returnable(task: Task, pid: int) -> bool:
    """Raises where the task cannot be given back; returns whether it waits for `resume` then."""
    if task.taken is None:
        raise refused(task, "given back", "there is nothing to do.", "nobody has taken it")
    is_held = _is_held(task.taken)
    if is_held and task.taken.pid not in (0, pid):
        raise refused(task, "given back", "leave the session in that terminal.", f"it is {task.parked}")
    return task.taken.park or not is_held


def _finish(decision: DecisionContext, task: Task) -> Answer:
    """Makes the saved tree the attempt's candidate, as if its agent had said that it is done."""
    if not decision.has_done("task_done", 3):
        _expect_fit(decision, task)
        candidate = outcome.make_candidate(decision.context, task, task.attempt.tree)
        point("give_back.candidate")
        # The flag comes last: a crash before leaves the task parked.
        done = done_records(decision, task, candidate, "a person has finished it")
        decision.append([*done, decision.flagged(task, 4)])
        point("give_back.finished")
    elif not decision.has_done("task_flagged", 4):
        decision.append([decision.flagged(task, 4)])
    note = who_goes_on(decision, "verifies and lands it")
    unseen = f"; its agent has not seen {plural(len(task.told), 'message')}" if task.told else ""
    return decision.answer(task, note=note + unseen)


def _expect_fit(decision: DecisionContext, task: Task) -> None:
    """Raises NotFinished where the tree of a task that was given back cannot become a candidate."""
    attempt, trees = task.attempt, decision.worktrees
    again = f"then type `holdfast give-back {task.id} --done`. `holdfast resume {task.id}` goes on with its agent."
    if not attempt.tree or not trees.path(task.id).is_dir():
        hint = f"`holdfast resume {task.id}` goes on with its agent."
        raise NotFinished(task=task.id, reason="its worktree is gone", hint=hint)
    decision.context.expect_result(task, attempt.tree)
    if not trees.snapshots(task.id, attempt.base).standing(attempt.id):
        reason = f"a file in {trees.path(task.id)} is too large for a snapshot, and would not land"
        hint = f"remove it, list it in .gitignore, or raise limits.file_bytes_max in config/settings.yaml, {again}"
        raise NotFinished(task=task.id, reason=reason, hint=hint)
    if (found := outcome.unfit(decision.context, task, attempt.tree)) is not None:
        raise NotFinished(task=task.id, reason=found.detail, hint=f"do that first, {again}")


def _given_back(decision: DecisionContext, task: Task, *, park: bool = False, died: bool = False) -> Record:
    """Ends what is left of the session, and saves the tree before anything is journalled."""
    attempt, worktrees = task.attempt, decision.worktrees
    files = decision.layout.attempt_files(attempt.id)
    starts.end_all(files, attempt.id, None, decision.config.grace_s)
    point("give_back.ended")
    made = TaskGivenBack(task.id, attempt.id, park=park, died=died)
    if worktrees.path(task.id).is_dir() and worktrees.mend(task.id, attempt.base):
        snapshots = worktrees.snapshots(task.id, attempt.base)
        number = sum(name.startswith("taken-") for name in snapshots.names(attempt.id)) + 1
        saved = snapshots.take(attempt.id, f"taken-{number}", large="leave_out")
        made = msgspec.structs.replace(made, tree=saved.commit, saved=saved.ref)
    point("give_back.saved")
    return decision.record("task_given_back", 0, msgspec.to_builtins(made))


def _is_held(taken: Taken) -> bool:
    """Whether its process may live: one on another machine cannot be looked for."""
    if not taken.pid or taken.host != identity.current().host:
        return True
    return identity.Identity(taken.pid, taken.start_ticks, taken.boot_id, taken.host).is_alive()


def return_abandoned(context: RunContext) -> None:
    """Gives back every task whose taker's process is dead, parked: it may have died in the middle of something."""
    for task in [each for each in context.ledger.state.tasks.values() if each.taken is not None]:
        if task.taken is None or _is_held(task.taken):
            continue
        decision = dataclasses.replace(DecisionContext.of(context, f"{task.taken.id}.back"), actor="loop")
        was = task.parked
        decision.append([_given_back(decision, task, park=True, died=True)])
        context.note(
            task.id,
            f"it was {was}, and that process is gone: given back, with the worktree as it was left. It waits for you: "
            f"`holdfast resume {task.id}` goes on with that, `holdfast give-back {task.id} --done` says it is finished",
        )
