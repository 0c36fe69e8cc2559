"""A worktree's setup as a person sees it, its hooks after a start and before it goes, and when it goes."""

from __future__ import annotations

import functools
from typing import Any

from holdfast.clock import monotonic
from holdfast.domain.effect_entries import SetupIntended
from holdfast.domain.task import TaskState
from holdfast.domain.task_record import Task
from holdfast.domain.wording import plural
from holdfast.engine.context import RunContext
from holdfast.engine.effects import carry_out
from holdfast.errors import DefinitionLost
from holdfast.preparation import removal, setup
from holdfast.preparation.preparation import Confinement, Prepared, WorktreePlace
from holdfast.preparation.removal import NotedHooks


def set_up(context: RunContext, intended: SetupIntended) -> dict[str, Any]:
    """Carries out a setup that is due, and notes its beginning, its end, and what it made that git does not ignore."""
    is_judged, began = setup.is_of_gates(intended.worktree), monotonic()
    what = "the worktree for its gates" if is_judged else "its worktree"
    first, *more = context.config.worktree.setup
    told = f"`{first}`" + (f" and {plural(len(more), 'more command')}" if more else "")
    context.note(intended.task, f"setting up {what}: {told}")
    result = carry_out(context, intended)
    context.note(intended.task, f"{what} is set up, after {monotonic() - began:.1f} s")
    if left := result.get("unignored"):
        context.note(intended.task, setup.unignored_words(left))
    return result


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
