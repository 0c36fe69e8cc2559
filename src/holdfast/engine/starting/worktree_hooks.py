"""The hooks of a worktree after a start and before it goes, and when it goes."""

from __future__ import annotations

import functools

from holdfast.domain.task import TaskState
from holdfast.domain.task_record import Task
from holdfast.engine.context import RunContext
from holdfast.errors import DefinitionLost
from holdfast.preparation import removal
from holdfast.preparation.preparation import Confinement, Prepared, WorktreePlace
from holdfast.preparation.removal import NotedHooks


def after_start(context: RunContext, task: Task, place: WorktreePlace, prepared: Prepared) -> None:
    """Runs the hook beside the loop, where there is one. The agent works on, however it comes out."""
    commands = context.config.worktree.after_start
    if not commands:
        return
    attempt, threads = task.attempt.id, context.preparing
    # Its ports are in the hands of the runner now.
    held = Prepared(prepared.variables)

    def is_wanted() -> bool:
        return task.attempt.id == attempt and not (threads is not None and threads.is_stopping)

    place = WorktreePlace(
        task=place.task,
        attempt=attempt,
        folder=place.folder,
        target=place.target,
        tree=place.tree,
        confinement=place.confinement,
        is_wanted=is_wanted,
    )
    hooks = NotedHooks(context.preparation, context.note)
    work = functools.partial(hooks.run, "after_start", place, held)
    if threads is not None:
        threads.begin(None, work)
    else:
        work()


def leave_worktree(context: RunContext, task: Task, landed: str) -> None:
    """Removes the worktree of a task that has landed, if nothing else is in it; not before `worktree.keep_s`."""
    if not context.config.worktree.keep_s:
        remove_worktree(context, task, landed)


def remove_worktree(context: RunContext, task: Task, landed: str) -> bool:
    def confinement() -> Confinement:
        try:
            return context.confinement(context.board.worked_on(task))
        except DefinitionLost:
            return context.resolve_sandbox(context.config.sandbox), (), "open"

    hooks = NotedHooks(context.preparation, context.note)
    return removal.remove_worktree(hooks, context.worktrees, task, landed=landed, confinement=confinement)


def remove_kept(context: RunContext) -> None:
    """Removes the worktrees whose time is over."""
    keep_s, now = context.config.worktree.keep_s, context.clock()
    if not keep_s or not context.layout.worktrees.is_dir():
        return
    for path in context.layout.worktrees.iterdir():
        task = context.ledger.state.tasks.get(path.name)
        if task is None or task.state is not TaskState.CLOSED or now < task.changed_at + keep_s:
            continue
        landed = task.candidate or task.attempt.base
        if landed and task.id not in context.lost and remove_worktree(context, task, landed):
            context.note(task.id, f"its worktree is removed: it has landed {keep_s:g} s ago")
