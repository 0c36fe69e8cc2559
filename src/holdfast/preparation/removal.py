"""The one way to remove the worktree of a task: its hook `before_remove` first. For runs, and for `holdfast gc`."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.domain.task_record import Task
from holdfast.errors import HoldfastError, SetupFailed, is_fatal
from holdfast.preparation.preparation import Confinement, Preparation, Prepared, WorktreePlace
from holdfast.worktrees.worktrees import Worktrees


class NotedHooks(msgspec.Struct, frozen=True):
    """Runs hooks whose failure changes nothing; `note` tells a person of it, by task."""

    preparation: Preparation
    note: Callable[[str, str], None]

    def run(self, hook: str, place: WorktreePlace, prepared: Prepared) -> None:
        try:
            self.preparation.run_hook(hook, self.preparation.commands(hook), place, prepared)
        except SetupFailed as error:
            told = f"{error.what}, which changes nothing; `holdfast hooks {place.task}` shows its output"
            self.note(place.task, told)
        except HoldfastError as error:
            if is_fatal(error):
                raise
            self.note(place.task, f"the hook {hook} could not be run: {error}")


def remove_worktree(
    hooks: NotedHooks, worktrees: Worktrees, task: Task, *, landed: str, confinement: Callable[[], Confinement]
) -> bool:
    """Removes the worktree where it holds exactly what `landed` does; False: it was kept, and no hook has run."""
    hook = "before_remove"
    if hooks.preparation.commands(hook) and worktrees.is_spent(task.id, landed=landed):
        folder = worktrees.path(task.id)
        place = WorktreePlace(
            task=task.id, attempt=task.attempt.id, folder=folder, target="", tree="", confinement=confinement()
        )
        with hooks.preparation.leased(folder) as prepared:
            hooks.run(hook, place, prepared)
    return worktrees.remove(task.id, landed=landed)
