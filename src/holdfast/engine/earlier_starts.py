"""Leftovers of earlier starts: trees to continue from, and files of a lost journal that are in the way.

Which tree a later start continues from, the journal says, by its commit: of the last turn that stands, of the end of a
start that was paused, or of an orphan that is kept as it was found. An attempt without any begins with its base and the
work so far. A first start of a task needs nothing of this.
"""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.domain.task_record import LastAttempt, PreviousAttempt, Task
from holdfast.engine.prompt import PromptTree
from holdfast.errors import NestedLost, SnapshotLost
from holdfast.git import command as git
from holdfast.layout import Layout
from holdfast.ports import LedgerReader
from holdfast.processes import starts
from holdfast.snapshots.snapshots import ROOT
from holdfast.snapshots.store import Store
from holdfast.storage.files.quarantine import set_aside, set_end_aside
from holdfast.storage.records import attempt_folder, ledger
from holdfast.worktrees import merges
from holdfast.worktrees.attempt_commits import journalled_turns, snapshot_of, snapshots_of
from holdfast.worktrees.worktrees import Worktrees

# What a runner of a lost journal is given to end by itself.
STRANGER_GRACE_S = 5.0


# -- the tree to continue from -----------------------------------------------------------------------------------------


def continued_tree(worktrees: Worktrees, journal: LedgerReader, task: Task) -> tuple[str, PromptTree]:
    """The snapshot that the attempt's next start continues from, and what its prompt says of it."""
    attempt, snapshot = task.attempt, tree_of(journal, task.attempt)
    if snapshot:
        expect_whole(worktrees.store, task.id, attempt.id, attempt.stands, snapshot)
        expect_nested(worktrees, task.id, attempt.id, attempt.stands, attempt.base, commit=snapshot)
    return snapshot, _interrupted(worktrees.store, journal, attempt, task.start.number)


def tree_of(journal: LedgerReader, attempt: LastAttempt) -> str:
    """The snapshot that the next start of the attempt goes on with; empty where it begins from its base."""
    if attempt.tree or not attempt.stands:
        return attempt.tree
    # An undo from before its entry said which commit.
    return journalled_turns(journal, attempt.id).get(attempt.stands, "")


def _interrupted(store: Store, journal: LedgerReader, attempt: LastAttempt, start: int) -> PromptTree:
    """The files that the agent changed after its last turn, before this start was orphaned."""
    orphan = snapshots_of(store, attempt.id).get(f"orphan-{start}")
    if orphan is None or attempt.was_put_back:
        return PromptTree()
    last = journalled_turns(journal, attempt.id).get(attempt.stands, "")
    if last and not store.descends(orphan, last):
        # By its name alone it is of an older life of this data root.
        return PromptTree()
    trees = f"{last or attempt.begun or attempt.base}^{{tree}}", f"{orphan}^{{tree}}"
    asked = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", *trees)
    names = [git.readable(name) for name in store.run(*asked).fields()]
    return PromptTree(differing=sorted(names), is_kept=attempt.tree == orphan)


def turn_as_commit(
    trees: Worktrees, journal: LedgerReader, task: Task, left: PreviousAttempt, who: merges.GitAuthor
) -> str:
    """The changes of an earlier attempt up to the end of a turn, as one commit on its base."""
    snapshot = snapshot_of(journal, left.attempt, left.turn)
    expect_whole(trees.store, task.id, left.attempt, left.turn, snapshot)
    expect_nested(trees, task.id, left.attempt, left.turn, left.base, commit=snapshot)
    # A nested repository stays in the worktree, for the agent to see to.
    more = (trees.store, left.base, snapshot, f"Turn {left.turn} of {left.attempt}\n", who)
    made = merges.candidate(*more, exclude=trees.exclude, modules=trees.modules, leaves_nested=True)
    return made or left.base


def expect_whole(store: Store, task: str, attempt: str, turn: int, commit: str) -> None:
    """Raises SnapshotLost where the commit of a journalled turn is not whole. Called before a start begins with it."""
    reason = store.flaw_of(commit) if store.exists else "the store is missing"
    if reason:
        raise SnapshotLost(task=task, attempt=attempt, turn=turn, commit=commit, store=store.path, reason=reason)


def expect_nested(worktrees: Worktrees, task: str, attempt: str, turn: int, base: str, commit: str) -> None:
    """Raises NestedLost where a repository inside the worktree is gone. Called before a start with a snapshot."""
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


# -- what a start of a lost journal left -------------------------------------------------------------------------------

# Nothing of it is taken for an attempt of the same name. A first start owns the whole folder. Of a later one its own
# files go, and the end of each ledger, with what it said and spent: lines stand in the order of the starts, so what the
# journal knows keeps its place and its offsets.


def set_strangers_aside(
    layout: Layout, attempt: str, start: int, intent: str, reason: str, repo: Path | None = None
) -> list[Path]:
    """Moves files in the way of a start that belong to another intent; ends the processes there first. Returns
    where each is now. With `repo`, its snapshots lose their names. The caller has seen that there are such files."""
    files = layout.attempt_files(attempt)
    starts.end_all(files, attempt, None, STRANGER_GRACE_S)
    found = attempt_folder.strangers(files, start, intent)
    own = attempt_folder.read_start(files, start)
    first = start + 1 if own is not None and own.intent == intent else start
    is_all = found == [files.root]
    # The files of the start last: they say that there is something to set aside.
    moved = []
    for path in () if is_all else (
        files.turns, files.events, files.traces, files.spend, files.provenance, files.told,
    ):  # fmt: skip
        if path.exists() and (kept := _end_before(path, first)) < path.stat().st_size:
            name = f"{attempt}-{path.name}"
            moved.append(set_end_aside(layout.quarantine, path, kept, reason, name, mode=attempt_folder.PRIVATE))
    if repo is not None:
        _forget_snapshots(layout, repo, attempt, first)
    names = {path: attempt if is_all else f"{attempt}-{path.name}" for path in found}
    return moved + [set_aside(layout.quarantine, path, reason, name) for path, name in names.items()]


def _end_before(path: Path, start: int) -> int:
    """The offset at which the lines of the earlier starts end."""
    return max(
        (line.cursor for line in ledger.LineLedger(path).read() if line.record.get("start", 0) < start), default=0
    )


def _forget_snapshots(layout: Layout, repo: Path, attempt: str, start: int) -> None:
    """Refs in our own store that a lost start has made, by names that a new start uses, too."""
    store, files = Store.of(layout.snapshots, repo), layout.attempt_files(attempt)
    lines = ledger.LineLedger(files.turns).read() if files.turns.exists() else ()
    last = max((line.record.get("turn", 0) for line in lines), default=0)
    gone = {}
    for ref, commit in store.refs(f"{ROOT}/{attempt}/").items():
        kind, _, number = ref.rpartition("/")[2].rpartition("-")
        first = last + 1 if kind == "turn" else start
        if start == 1 or (kind != "found" and number.isdigit() and int(number) >= first):
            gone[ref] = commit
    store.forget(gone)
