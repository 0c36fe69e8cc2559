"""Landings that are no longer on their branch: those that were rewritten, and those that were undone by accident.

`git reset --hard`, which `git stash` runs too, reads where the branch is, and at its end puts it there, without
checking whether it has moved meanwhile. A landing in between is undone. The branch's reflog tells such a move from an
intended one: it says "moving to HEAD", and yet the branch moved. Such a landing is made again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec

from holdfast.domain.entries import LandingSettled
from holdfast.domain.task_record import Task
from holdfast.git import command as git
from holdfast.landing.branch import branch_of, find_rewritten, lost_landings
from holdfast.layout import Layout
from holdfast.ports import Ledger
from holdfast.storage.journal.entry import Record

UNASKED = "reset: moving to HEAD"
# How far back the reflog is read: the next landing, or the next run, notices a race.
MOVES_MAX = 200
TRIES = 5


def recognised(repo: Path, task: Task) -> tuple[str, str]:
    """The commit on the task's branch that its landing was rewritten as, and the evidence; empty where none is."""
    return find_rewritten(git.discover(repo), branch_of(task), task.landed, task.id, task.attempt)


def settle_rewritten(repo: Path, ledger: Ledger, layout: Layout, note: Callable[[str, str], None]) -> dict[str, str]:
    """Journals every lost landing that is found in a rewritten history; returns a sentence for each other."""
    for _ in range(TRIES):
        tasks = list(ledger.state.tasks.values())
        lost, is_settled = lost_landings(repo, tasks, layout.snapshots), False
        for name in lost:
            task = ledger.state.tasks[name]
            commit, how = recognised(repo, task)
            if commit:
                settled = LandingSettled(
                    task=name,
                    attempt=task.attempt,
                    branch=branch_of(task),
                    commit=task.landed,
                    rewritten=commit,
                    how=how,
                )
                ledger.append(ledger.epoch, [Record("landing_settled", msgspec.to_builtins(settled), actor="recover")])
                note(name, f"its landing {settled.commit[:12]} was rewritten as {commit[:12]}: {how}")
                is_settled = True
        if not is_settled:
            break
        # A person may amend a commit once more meanwhile.
    return lost


class LostLanding(msgspec.Struct, frozen=True):
    """A lost landing for display: what is wrong, and what to type."""

    why: str
    next_step: str


def shown(repo: Path, tasks: Collection[Task], layout: Layout) -> dict[str, LostLanding]:
    """The landings that are no longer on their branch, but for those that the next run recognises as rewritten."""
    by_name, found = {task.id: task for task in tasks}, {}
    lost = lost_landings(repo, tasks, layout.snapshots)
    again = {task.id for task in undone(repo, [by_name[name] for name in lost])} if lost else set()
    for name, sentence in lost.items():
        task = by_name[name]
        if recognised(repo, task)[0]:
            continue
        why = f"its landing {task.landed[:12]} is not on {branch_of(task).removeprefix('refs/heads/')} any more"
        found[name] = LostLanding(why, "holdfast run" if name in again else next_step(name, sentence))
    return found


def next_step(name: str, sentence: str) -> str:
    """The commands to type, from the sentence about a lost landing."""
    first = (sentence.split("`")[1::2] or ["git fetch --all"])[0]
    settles = f"holdfast resolve {name} --rewritten COMMIT | --dropped"
    return settles if first.startswith(f"holdfast resolve {name}") else f"{first} | {settles}"


def undone(repo: Path, lost: Collection[Task]) -> list[Task]:
    """The tasks whose landing was undone by accident, in the order in which they landed."""
    found: list[Task] = []
    repository = git.discover(repo)
    for branch in dict.fromkeys(branch_of(task) for task in lost):
        by_commit = {task.landed: task for task in lost if branch_of(task) == branch}
        for old, new, words in _moves(repository, branch):
            # The commits that the branch no longer leads to after the move, oldest first.
            taken = repository.run("rev-list", "--reverse", old, f"^{new}", codes=(0, 128)).line.splitlines()
            found += [by_commit.pop(commit) for commit in taken if commit in by_commit and words == UNASKED]
            # Only a person can say whether an intended move was to undo the landing.
            by_commit = {commit: task for commit, task in by_commit.items() if commit not in taken}
            if not by_commit:
                break
    return found


def _moves(repository: git.Repository, branch: str) -> Sequence[tuple[str, str, str]]:
    """The moves of the branch, newest first: from, to, and the reflog's message."""
    asked = ("log", "--walk-reflogs", f"--max-count={MOVES_MAX}", "-z", "--format=%H%x01%gs", branch, "--")
    entries = [field.split("\x01", 1) for field in repository.run(*asked, codes=(0, 128)).fields() if field]
    return [(old[0], new, words) for (new, words), old in itertools.pairwise(entries)]
