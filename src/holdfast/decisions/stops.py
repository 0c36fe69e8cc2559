"""`stop`: a person ends the agents of some tasks, with or without a run. What they did is kept, and can be resumed.

The task is parked first, so that no run goes on with the attempt at once; then its runner is asked to end the agent in
order. A loop that lives takes the result by itself. Without one, this waits for the runner and journals what it said.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from holdfast.clock import Deadline, monotonic
from holdfast.decisions.context import Answer, DecidedNow, DecisionContext, expect_decided, refused
from holdfast.decisions.tasks import Several
from holdfast.decisions.turns import settle
from holdfast.domain.entries import STOPPED
from holdfast.domain.task import AT_WORK, TaskEvent, TaskState
from holdfast.domain.task_record import Task
from holdfast.engine import orphans
from holdfast.engine.context import RunContext
from holdfast.storage.journal.entry import Record
from holdfast.storage.records.attempt_folder import POLL_S, Liveness

# Beyond its grace period a runner takes a snapshot and writes its ledgers.
SPARE_S = 30.0
# So long a run that ends waits for runners that it has just begun.
BEGIN_S_MAX = 30.0


def stop(decision: DecisionContext, asked: Several) -> Answer:
    """Every task is checked before the first agent is asked to end."""
    tasks = decision.each_once(asked.tasks)
    todo = [(number, task) for number, task in enumerate(tasks) if not decision.has_done("task_flagged", number)]
    for _, task in todo:
        _expect_stoppable(task)
    decision.append([flag(decision, task, number) for number, task in todo])
    for task in tasks:
        if task.state in AT_WORK:
            decision.context.spawn.ask_to_stop(task)
    if decision.context.landing_thread is None:
        for task in tasks:
            await_end(decision.context, task)
            settle(decision, task)
    note = "its runner was asked to end the agent; `holdfast resume {}` goes on with the attempt"
    return Answer([DecidedNow(task.id, task.state, note.format(task.id)) for task in tasks])


def flag(decision: DecisionContext, task: Task, number: int = 0) -> Record:
    """Parks the task: a run would go on with the attempt at once."""
    return decision.flagged(task, number, parked=STOPPED, not_before=task.not_before, cause=task.cause)


def _expect_stoppable(task: Task) -> None:
    if task.state not in AT_WORK:
        raise refused(task, "stopped", f"nobody works on it; `holdfast cancel {task.id}` gives it up.")
    if task.claim.remote:
        hint = f"`holdfast cancel {task.id}` gives it up."
        raise refused(task, "stopped", hint, f"{task.claim.agent} works on it elsewhere")
    expect_decided(task, "stopped", or_stopped=True)


def await_end(context: RunContext, task: Task) -> None:
    """Returns when the runner has ended; one that does not in time is ended like any other process of the attempt."""
    deadline = monotonic() + context.config.grace_s + SPARE_S
    while task.state in AT_WORK and context.spawn.liveness(task) is Liveness.ALIVE:
        if monotonic() > deadline:
            orphans.end_as_orphan(context, task, TaskEvent.CRASH)
            return
        time.sleep(POLL_S)


def leave(context: RunContext, tasks: Collection[Task]) -> None:
    """Before the run ends: waits until every runner has taken its start. The next run takes a start that nobody has
    for one that never began, and the runner, however late it comes, then does nothing."""
    deadline = Deadline(BEGIN_S_MAX, POLL_S)
    told = False
    while (beginning := [task for task in tasks if context.spawn.is_beginning(task)]) and not deadline.is_over():
        if not told:
            context.note(beginning[0].id, f"{beginning[0].attempt.id} still begins; the run ends when it has")
            told = True
        time.sleep(POLL_S)
    agents = "1 agent goes" if len(tasks) == 1 else f"{len(tasks)} agents go"
    context.note("", f"stopped; {agents} on working, and the next run takes over")


def end_agents(context: RunContext, tasks: Iterable[Task]) -> None:
    """Asks the runners of the tasks to end."""
    for task in tasks:
        if task.state is TaskState.IN_PROGRESS and context.spawn.liveness(task) is Liveness.ALIVE:
            context.spawn.ask_to_stop(task)
