"""The tree that a start continues from, and a worktree that holds exactly that: one way for every start.

Which tree it is, the journal says, by its commit: of the last turn that stands, of the end of a start that was paused,
or of an orphan that is kept as it was found. An attempt without any begins with its base and the work so far. What else
stands in the folder by then is saved first, as the attempt's snapshot `found-<n>`.
"""

from __future__ import annotations

import os

from holdfast.domain.task_record import Task
from holdfast.errors import NestedLost, ResultLost, SnapshotLost
from holdfast.git import command as git
from holdfast.ports import LedgerReader
from holdfast.snapshots.snapshots import ROOT
from holdfast.snapshots.store import Store
from holdfast.worktrees import merges
from holdfast.worktrees.worktrees import Worktrees


def journalled_turns(journal: LedgerReader, attempt: str) -> dict[int, str]:
    """The commit of each turn of an attempt that left a snapshot, as the journal has it."""
    found = (
        entry.inputs
        for _, entry in journal.read()
        if entry.decision_type == "turn_completed" and entry.inputs.get("attempt") == attempt
    )
    return {int(turn["turn"]): str(turn["snapshot"]) for turn in found if turn.get("snapshot")}


def tree_of(journal: LedgerReader, task: Task) -> str:
    """The snapshot that the next start of the attempt goes on with; empty where it begins from its base."""
    if task.tree or not task.stands:
        return task.tree
    # An undo from before its entry said which commit.
    return journalled_turns(journal, task.attempt).get(task.stands, "")


def expect_whole(store: Store, task: str, attempt: str, turn: int, commit: str) -> None:
    """Before anything is begun with it: what the journal acknowledged and is gone is for a person to decide."""
    reason = store.flaw_of(commit) if store.exists else "the store is missing"
    if reason:
        raise SnapshotLost(task=task, attempt=attempt, turn=turn, commit=commit, store=store.path, reason=reason)


def expect_nested(worktrees: Worktrees, task: str, attempt: str, turn: int, base: str, commit: str) -> None:
    """Before a start goes on with a snapshot: the repositories that were made inside the worktree stand there still."""
    if gone := nested_gone(worktrees, task, base, commit):
        raise NestedLost(task=task, attempt=attempt, turn=turn, folder=worktrees.path(task) / git.readable(gone[0]))


def nested_gone(worktrees: Worktrees, task: str, base: str, commit: str) -> list[str]:
    """The nested repositories of a snapshot that are not in the task's worktree: nobody else has their files."""
    inner, top = merges.nested(worktrees.store, base, commit, worktrees.exclude), worktrees.path(task)
    return [path for path in inner if not os.path.lexists(top / path / ".git")]


def expect_result(store: Store, task: Task, *commits: str) -> None:
    """Before what an attempt came to is taken, judged or landed."""
    for commit, reason in store.incomplete({commit for commit in commits if commit}).items():
        raise ResultLost(task=task.id, attempt=task.attempt, commit=commit, store=store.path, reason=reason)


def newest_whole(journal: LedgerReader, worktrees: Worktrees, attempt: str, turn: int, base: str) -> tuple[int, str]:
    """The newest turn up to this one whose tree is there, with its commit; (0, "") where none is."""
    turns = {number: commit for number, commit in journalled_turns(journal, attempt).items() if number <= turn}
    lost, task = worktrees.store.incomplete(set(turns.values())), attempt.rpartition(".")[0]
    for number, commit in sorted(turns.items(), reverse=True):
        if commit not in lost and not nested_gone(worktrees, task, base, commit):
            return number, commit
    return 0, ""


def hold(worktrees: Worktrees, task: Task, base: str, snapshot: str, begin: str) -> None:
    """Makes the worktree equal to the snapshot or, where there is none, to the commit `begin`, whatever stands there.

    The caller vouches that nobody is at work in it. Done half by a crash, it is done whole by doing it again.
    """
    store, stood = worktrees.store, worktrees.path(task.id).is_dir()
    worktrees.prepare(task.id, base)
    snapshots = worktrees.snapshots(task.id, base)
    is_equal = False
    if stood:
        standing = snapshots.standing(task.attempt)
        is_equal = bool(snapshot) and standing == store.run("rev-parse", f"{snapshot}^{{tree}}").line
        known = store.trees(f"{ROOT}/{task.id}.*/*") | {store.run("rev-parse", f"{base}^{{tree}}").line}
        if not is_equal and standing not in known:
            number = sum(name.startswith("found-") for name in snapshots.names(task.attempt)) + 1
            snapshots.take(task.attempt, f"found-{number}", large="leave_out")
    with worktrees.holding(task.id, base, snapshot or begin or base):
        if snapshot and not is_equal:
            snapshots.restore(snapshot)
        elif not snapshot:
            worktrees.reset(task.id, base, begin or base)
