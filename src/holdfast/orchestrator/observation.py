"""Observes the attempt of a task in progress, for the plan."""

from __future__ import annotations

from holdfast.domain.task import TaskState
from holdfast.engine.context import RunContext
from holdfast.engine.plan import Observation
from holdfast.storage.records import attempt_folder
from holdfast.storage.records.attempt_folder import Liveness


def observe(context: RunContext, name: str) -> Observation | None:
    """Journals the turns so far of a task in progress, and observes its attempt."""
    task = context.board.task(name)
    if task.state is not TaskState.IN_PROGRESS or task.claim.remote:
        return None
    files = context.layout.attempt_files(task.attempt.id)
    seen = context.spawn.liveness(task)
    context.turns.follow(task)
    context.spawn.deliver(task)
    if seen is not Liveness.ALIVE:
        context.silence.forget(task.attempt.id)
    if seen is Liveness.ENDED:
        return Observation(seen, attempt_folder.read_exit(files, task.start.number, task.start.intent))
    if seen is not Liveness.ALIVE:
        return Observation(seen)
    sign = attempt_folder.last_sign(files, task.start.number)
    return Observation(seen, silent_s=context.silence.update(task.attempt.id, task.start.number, sign))
