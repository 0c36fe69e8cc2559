"""The trees that an attempt left, by its name, and the one that a later start continues from. A first start needs none.

Which tree it is, the journal says, by its commit: of the last turn that stands, of the end of a start that was paused,
or of an orphan that is kept as it was found. An attempt without any begins with its base and the work so far.
"""

from __future__ import annotations

import os

from holdfast.domain.state import State
from holdfast.domain.task_record import PreviousAttempt, Task
from holdfast.domain.wording import plural
from holdfast.engine.prompt import PromptTree
from holdfast.errors import NestedLost, SnapshotLost, TurnUnknown
from holdfast.git import command as git
from holdfast.ports import LedgerReader
from holdfast.snapshots.snapshots import reference
from holdfast.snapshots.store import Store
from holdfast.worktrees import merges
from holdfast.worktrees.worktrees import Worktrees


def attempt_named(state: State, name: str) -> tuple[Task, str] | None:
    """The task and the attempt that `name` means: an attempt itself, or a task, whose last attempt is meant."""
    if name in state.tasks:
        return state.tasks[name], state.tasks[name].attempt
    task = state.tasks.get(name.rpartition(".")[0])
    number = name.rpartition(".")[2]
    if task is None or not number.isascii() or not number.isdigit() or not 1 <= int(number) <= task.attempts:
        return None
    return task, f"{task.id}.{int(number)}"


def base_of(journal: LedgerReader, task: Task | None, attempt: str) -> str:
    """The commit that an attempt began with; empty where the journal does not know it. `task` is the attempt's."""
    if task is not None and task.attempt == attempt:
        return task.base
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


def continued_tree(worktrees: Worktrees, journal: LedgerReader, task: Task) -> tuple[str, PromptTree]:
    """The snapshot that the attempt's next start continues from, and what its prompt says of it."""
    snapshot = tree_of(journal, task)
    if snapshot:
        expect_whole(worktrees.store, task.id, task.attempt, task.stands, snapshot)
        expect_nested(worktrees, task.id, task.attempt, task.stands, task.base, commit=snapshot)
    return snapshot, _interrupted(worktrees.store, journal, task)


def tree_of(journal: LedgerReader, task: Task) -> str:
    """The snapshot that the next start of the attempt goes on with; empty where it begins from its base."""
    if task.tree or not task.stands:
        return task.tree
    # An undo from before its entry said which commit.
    return journalled_turns(journal, task.attempt).get(task.stands, "")


def _interrupted(store: Store, journal: LedgerReader, task: Task) -> PromptTree:
    """What the agent had changed after its last turn when its start was orphaned."""
    orphan = snapshots_of(store, task.attempt).get(f"orphan-{task.starts}")
    if orphan is None or task.was_put_back:
        return PromptTree()
    last = journalled_turns(journal, task.attempt).get(task.stands, "")
    if last and not store.descends(orphan, last):
        # By its name alone it is of an older life of this data root.
        return PromptTree()
    trees = f"{last or task.begun or task.base}^{{tree}}", f"{orphan}^{{tree}}"
    asked = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", *trees)
    names = [git.readable(name) for name in store.run(*asked).fields()]
    return PromptTree(differing=sorted(names), is_kept=task.tree == orphan)


def turn_as_commit(
    trees: Worktrees, journal: LedgerReader, task: Task, left: PreviousAttempt, who: merges.GitAuthor
) -> str:
    """What an earlier attempt had changed by the end of a turn, as one commit on its base."""
    snapshot = snapshot_of(journal, left.attempt, left.turn)
    expect_whole(trees.store, task.id, left.attempt, left.turn, snapshot)
    expect_nested(trees, task.id, left.attempt, left.turn, left.base, commit=snapshot)
    # A nested repository stays in the worktree, for the agent to see to.
    more = (trees.store, left.base, snapshot, f"Turn {left.turn} of {left.attempt}\n", who)
    made = merges.candidate(*more, exclude=trees.exclude, modules=trees.modules, leaves_nested=True)
    return made or left.base


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


def newest_whole(journal: LedgerReader, worktrees: Worktrees, attempt: str, turn: int, base: str) -> tuple[int, str]:
    """The newest turn up to this one whose tree is there, with its commit; (0, "") where none is."""
    turns = {number: commit for number, commit in journalled_turns(journal, attempt).items() if number <= turn}
    lost, task = worktrees.store.incomplete(set(turns.values())), attempt.rpartition(".")[0]
    for number, commit in sorted(turns.items(), reverse=True):
        if commit not in lost and not nested_gone(worktrees, task, base, commit):
            return number, commit
    return 0, ""
