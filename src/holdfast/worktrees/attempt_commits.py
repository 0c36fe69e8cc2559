"""The commits of an attempt, by its name: that which it began with, and those of its turns, as the journal has them."""

from __future__ import annotations

from holdfast.domain.state import State
from holdfast.domain.task_record import Task
from holdfast.domain.wording import plural
from holdfast.errors import TurnUnknown
from holdfast.ports import LedgerReader
from holdfast.snapshots.snapshots import reference
from holdfast.snapshots.store import Store


def attempt_named(state: State, name: str) -> tuple[Task, str] | None:
    """The task and the attempt that `name` means: an attempt itself, or a task, whose last attempt is meant."""
    if name in state.tasks:
        return state.tasks[name], state.tasks[name].attempt.id
    task = state.tasks.get(name.rpartition(".")[0])
    number = name.rpartition(".")[2]
    if task is None or not number.isascii() or not number.isdigit() or not 1 <= int(number) <= task.attempts:
        return None
    return task, f"{task.id}.{int(number)}"


def base_of(journal: LedgerReader, task: Task | None, attempt: str) -> str:
    """The commit that an attempt began with; empty where the journal does not know it. `task` is the attempt's."""
    if task is not None and task.attempt.id == attempt:
        return task.attempt.base
    found = (
        str(entry.inputs.get("base", ""))
        for _, entry in journal.read()
        if entry.decision_type == "task_spawn_intent" and entry.inputs.get("attempt") == attempt
    )
    return next(filter(None, found), "")


def journalled_turns(journal: LedgerReader, attempt: str) -> dict[int, str]:
    """The commit of each turn of an attempt that left a snapshot, as the journal has it."""
    found = (
        entry.inputs
        for _, entry in journal.read()
        if entry.decision_type == "turn_completed" and entry.inputs.get("attempt") == attempt
    )
    return {int(turn["turn"]): str(turn["snapshot"]) for turn in found if turn.get("snapshot")}


def snapshot_of(journal: LedgerReader, attempt: str, turn: int) -> str:
    """The commit that holds the tree as the turn left it, as the journal has it."""
    found = journalled_turns(journal, attempt)
    commit = found.get(turn, "")
    if not commit:
        known = f"has {plural(max(found), 'turn')}" if found else "has completed none"
        raise TurnUnknown(turn=turn, attempt=attempt, known=known)
    return commit


def snapshots_of(store: Store, attempt: str) -> dict[str, str]:
    """Every snapshot of an attempt, as name → commit; also of one whose worktree is gone."""
    folder = reference(attempt, "x").removesuffix("x")
    return {ref.removeprefix(folder): commit for ref, commit in store.refs(folder).items()}
