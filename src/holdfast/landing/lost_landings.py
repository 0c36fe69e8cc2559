"""Landings that are no longer on their branch: those that were rewritten, and those that were undone by accident.

`git reset --hard`, which `git stash` runs too, reads where the branch is, and at its end puts it there, without
checking whether it has moved meanwhile. A landing in between is undone. The branch's reflog tells such a move from an
intended one: it says "moving to HEAD", and yet the branch moved. Such a landing is made again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.domain.entries import LandingSettled
from holdfast.domain.task import TaskState
from holdfast.domain.task_record import Task
from holdfast.git import command as git
from holdfast.landing.branch import branch_of, find_rewritten
from holdfast.layout import Layout
from holdfast.ports import Ledger
from holdfast.snapshots.store import Store
from holdfast.storage.journal.entry import Record

UNASKED = "reset: moving to HEAD"
# How far back the reflog is read: the next landing, or the next run, notices a race.
MOVES_MAX = 200
TRIES = 5


def lost_landings(repo: Path, tasks: Iterable[Task], snapshots: Path | None = None) -> dict[str, str]:
    """A sentence for each task whose branch no longer leads to its landed commit, by the task's id.

    Checks every landing, not only the last, with one git call for each branch, and one more.
    """
    by_branch: dict[str, list[Task]] = {}
    for task in tasks:
        if task.landing.commit:
            by_branch.setdefault(branch_of(task), []).append(task)
    if not by_branch:
        return {}
    repository, landed = git.discover(repo), [task for each in by_branch.values() for task in each]
    seen = Store(snapshots, repository).seen if snapshots is not None else repository
    names = {
        *by_branch,
        *(task.landing.commit for task in landed),
        *(task.candidate for task in landed if task.candidate),
    }
    # A landed commit must be in the repository itself; a candidate may be in our store alone.
    found = _commits(repository, names)
    found |= _commits(seen, {task.candidate for task in landed if task.candidate and not found[task.candidate]})
    lost: dict[str, str] = {}
    for branch, each in by_branch.items():
        at, commits = found[branch], [task.landing.commit for task in each if found[task.landing.commit]]
        missed, why = _unreached(repository, at, commits) if at else (set(commits), "")
        place = why or (f"the branch is at {at}, which does not lead to it" if at else "the branch is gone")
        newest = _newest(repository, commits) if commits and not at else ""
        lost |= {
            task.id: f"The landing of {task.id} on {branch} is lost: its commit is {task.landing.commit}, and {place}. "
            f"Nothing was changed; {_way_back(task, branch, found, newest)}"
            for task in each
            if not found[task.landing.commit] or task.landing.commit in missed
        }
    return lost


def newest_landing(repo: Path, branch: str, tasks: Iterable[Task]) -> str:
    """The newest commit in the repository that a task has landed on this branch; empty where there is none."""
    commits = {task.landing.commit for task in tasks if task.landing.commit and branch_of(task) == branch}
    repository = git.discover(repo)
    there = [commit for commit in _commits(repository, commits).values() if commit] if commits else []
    return _newest(repository, there) if there else ""


def _commits(repository: git.Repository, names: Iterable[str]) -> dict[str, str]:
    """The commit that each name refers to; empty where there is none."""
    asked = list(names)
    if not asked:
        return {}
    text = "".join(f"{name}^{{commit}}\n" for name in asked).encode()
    answers = repository.run("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=text).line.split("\n")
    return {
        name: answer.removesuffix(" commit") if answer.endswith(" commit") else ""
        for name, answer in zip(asked, answers, strict=True)
    }


def _unreached(repository: git.Repository, at: str, commits: Iterable[str]) -> tuple[set[str], str]:
    """The commits that `at` does not lead to; all of them where git cannot tell, and then why."""
    wanted = set(commits)
    text = "".join(f"{commit}\n" for commit in (*sorted(wanted), f"^{at}")).encode()
    asked = repository.run("rev-list", "--stdin", stdin=text, codes=(0, 128))
    if asked.failure is not None:
        return wanted, f"git cannot follow the branch ({asked.failure.stderr})"
    return wanted.intersection(asked.line.split("\n")), ""


def _newest(repository: git.Repository, commits: Iterable[str]) -> str:
    """The commit that leads to the others."""
    text = "".join(f"{commit}\n" for commit in commits).encode()
    return repository.run("rev-list", "--topo-order", "--max-count=1", "--stdin", stdin=text, codes=(0, 128)).line


def _way_back(task: Task, branch: str, found: Mapping[str, str], newest: str) -> str:
    short = branch.removeprefix("refs/heads/")
    if not found[branch]:
        if not newest:
            return "neither the branch nor the commit is in the repository: fetch them from a copy of the repository."
        return f"make the branch again with `git branch {short} {newest}`."
    again = ""
    if task.state is TaskState.CLOSED and found.get(task.candidate):
        again = f"`holdfast promote {task.id}` verifies and lands it again"
    settle = settling(task.id)
    if found[task.landing.commit]:
        merging = f"merge the commit into {short} with `git merge {task.landing.commit}`"
        return f"{again}, or {merging}. {settle}" if again else f"{merging}. {settle}"
    gone = "the commit is not in the repository any more"
    return f"{gone}: {again}. {settle}" if again else f"{gone}: fetch it from a copy of the repository. {settle}"


def settling(task: str) -> str:
    """The command for a person who has rewritten or dropped a landing on purpose."""
    rewritten_as = f"say `holdfast resolve {task} --rewritten COMMIT` if it is there as another commit"
    return f"Or {rewritten_as}, `holdfast resolve {task} --dropped` if it shall be gone."


# -- rewritten, or undone by accident ---------------------------------------------------------------------------------


def recognised(repo: Path, task: Task) -> tuple[str, str]:
    """The commit on the task's branch that its landing was rewritten as, and the evidence; empty where none is."""
    return find_rewritten(git.discover(repo), branch_of(task), task.landing.commit, task.id, task.attempt.id)


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
                    attempt=task.attempt.id,
                    branch=branch_of(task),
                    commit=task.landing.commit,
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
        why = f"its landing {task.landing.commit[:12]} is not on {branch_of(task).removeprefix('refs/heads/')} any more"
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
        by_commit = {task.landing.commit: task for task in lost if branch_of(task) == branch}
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
