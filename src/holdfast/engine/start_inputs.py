"""Builds the tree and the prompt of a task's next start. `holdfast prompt` uses it read-only.

Nothing is changed but that git learns new objects: the worktree is made ready by the start alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.config.settings import Config
from holdfast.domain.definition import Definition, fork_source
from holdfast.domain.task_record import PreviousAttempt, Task
from holdfast.engine.attempt_commits import snapshot_of, snapshots_of
from holdfast.engine.base_tree import expect_nested, expect_whole, journalled_turns, tree_of
from holdfast.engine.prompt import PromptTree, Words, prompt
from holdfast.errors import TurnUnknown
from holdfast.git import command as git
from holdfast.layout import Layout
from holdfast.ports import Agent, LedgerReader
from holdfast.snapshots.store import Store
from holdfast.storage.records.blobs import Blobs
from holdfast.worktrees import merges
from holdfast.worktrees.factory import worktrees_of
from holdfast.worktrees.worktrees import Worktrees


class StartInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Where it is looked up. `base_of` knows the commit that any attempt began with, empty where nobody does."""

    repo: Path
    layout: Layout
    config: Config
    blobs: Blobs
    branch: str
    base_of: Callable[[str], str]
    journal: LedgerReader

    @property
    def worktrees(self) -> Worktrees:
        return worktrees_of(self.repo, self.layout, self.config)

    @property
    def store(self) -> Store:
        return self.worktrees.store


class StartPlan(msgspec.Struct, frozen=True):
    """`snapshot` is what the worktree has to be; where there is none, it is `begin`, on top of `base`."""

    base: str
    snapshot: str
    begin: str
    prompt: str
    session: str


def plan_start(inputs: StartInputs, task: Task, made: Definition, agent: Agent) -> StartPlan:
    """Of a task that was just claimed for this agent. `made` is the definition with which its attempt began."""
    session = task.session if agent.resumes else ""
    snapshot = ""
    if task.starts:
        base, begin, snapshot = task.base, task.begun, tree_of(inputs.journal, task)
        if snapshot:
            expect_whole(inputs.store, task.id, task.attempt, task.stands, snapshot)
            expect_nested(inputs.worktrees, task.id, task.attempt, task.stands, base, commit=snapshot)
        found = _interrupted(inputs, task)
    else:
        base = merges.newest(inputs.repo, inputs.branch)
        begun, by = _work_so_far(inputs, task, made)
        begin, conflicts = _on_top(inputs, base, begun)
        found = PromptTree(conflicts, by)
    words = Words(inputs.layout, inputs.blobs, inputs.config)
    return StartPlan(base, snapshot, begin, prompt(words, task, made, found, resumes=bool(session)), session)


def _on_top(inputs: StartInputs, target: str, begun: str) -> tuple[str, list[str]]:
    """The tree of the target with the work so far, and the files in which the two conflict."""
    if not begun:
        return target, []
    who = merges.identity(inputs.repo, inputs.config)
    merged = merges.merge(inputs.store, target, begun, "the work so far", who)
    return merged.commit or merged.marked, merged.conflicts


def _work_so_far(inputs: StartInputs, task: Task, made: Definition) -> tuple[str, PreviousAttempt | None]:
    """The newest that was made for the task and has not landed, as a commit; and whose it is, if no candidate."""
    if task.left is not None:
        with contextlib.suppress(TurnUnknown):
            return _candidate(inputs, task, task.left), task.left
    if task.candidate and task.feedback:
        return task.candidate, None
    source = fork_source(made)
    if source is None:
        return "", None
    attempt, turn = source
    base = inputs.base_of(attempt)
    if not base:
        raise TurnUnknown(turn=turn, attempt=attempt, known="is not in this journal")
    return _candidate(inputs, task, PreviousAttempt(attempt, turn, base)), None


def _candidate(inputs: StartInputs, task: Task, left: PreviousAttempt) -> str:
    who = merges.identity(inputs.repo, inputs.config)
    store = inputs.store
    snapshot = snapshot_of(inputs.journal, left.attempt, left.turn)
    expect_whole(store, task.id, left.attempt, left.turn, snapshot)
    trees = inputs.worktrees
    expect_nested(trees, task.id, left.attempt, left.turn, left.base, commit=snapshot)
    message = f"Turn {left.turn} of {left.attempt}\n"
    # A nested repository stays in the worktree, for the agent to see to.
    more = (store, left.base, snapshot, message, who)
    made = merges.candidate(*more, exclude=trees.exclude, modules=trees.modules, leaves_nested=True)
    return made or left.base


def _interrupted(inputs: StartInputs, task: Task) -> PromptTree:
    """What the agent had changed after its last turn when its start was orphaned."""
    store = inputs.store
    orphan = snapshots_of(store, task.attempt).get(f"orphan-{task.starts}")
    if orphan is None or task.was_put_back:
        return PromptTree()
    last = journalled_turns(inputs.journal, task.attempt).get(task.stands, "")
    if last and not store.descends(orphan, last):
        # By its name alone it is of an older life of this data root.
        return PromptTree()
    trees = f"{last or task.begun or task.base}^{{tree}}", f"{orphan}^{{tree}}"
    asked = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", *trees)
    names = [git.readable(name) for name in store.run(*asked).fields()]
    return PromptTree(differing=sorted(names), is_kept=task.tree == orphan)
