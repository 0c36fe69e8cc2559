"""Going back to a turn: `undo` puts the worktree back, `fork` begins anew with the tree that the turn left.

A snapshot is never changed by either: what was undone is saved first, under a name that is never written twice.
"""

from __future__ import annotations

import msgspec

from holdfast.backlog.sync import DEFINITION_TYPE
from holdfast.decisions.tasks import Answer, DecisionContext, expect_decided, refused
from holdfast.domain.definition import is_id, render
from holdfast.domain.entries import STOPPED, AttemptForked, TaskAdded, TurnUndone
from holdfast.domain.fsm import TransitionReason
from holdfast.domain.state import Task
from holdfast.domain.task import TaskEvent, TaskState
from holdfast.engine import outcome
from holdfast.engine.attempt_commits import attempt_named, base_of, snapshot_of, snapshots_of
from holdfast.engine.base_tree import expect_nested, expect_whole
from holdfast.engine.plan import AT_WORK
from holdfast.errors import TaskExists, TurnUnknown
from holdfast.snapshots.snapshots import ROOT
from holdfast.storage.journal.entry import Record
from holdfast.storage.records import attempt_folder
from holdfast.storage.records.attempt_folder import Liveness
from holdfast.worktrees import merges

_ENDED = {TaskState.CLOSED, TaskState.CANCELLED}
_ALIVE = {Liveness.ALIVE, Liveness.HEADLESS}


# -- which turn -------------------------------------------------------------------------------------------------------


def candidate_of(desk: DecisionContext, attempt: str, turn: int) -> str:
    """What a turn of an attempt had changed by its end, as a commit on top of what the attempt began with."""
    trees = desk.worktrees
    store = trees.store
    snapshot, base = snapshot_of(desk.layout, attempt, turn), base_of(desk.ledger, attempt)
    expect_whole(store, attempt.rpartition(".")[0], attempt, turn, snapshot)
    if not base:
        raise TurnUnknown(turn=turn, attempt=attempt, known="is not in this journal")
    who = merges.identity(desk.repo, desk.config)
    message = f"Turn {turn} of {attempt}\n"
    name = f"{attempt}-turn-{turn}"
    more = (store, base, snapshot, message, who)
    made = merges.candidate(*more, exclude=trees.exclude, modules=trees.modules, attempt=name)
    return made or base


# -- undo -------------------------------------------------------------------------------------------------------------


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task: str
    turn: int


def undo(desk: DecisionContext, asked: Turn) -> Answer:
    """Puts the worktree back to a turn; what stood there is saved as the attempt's next snapshot `undo-<k>`."""
    task = desk.task(asked.task)
    if not desk.has_begun():
        _expect_undoable(desk, task)
        commit = snapshot_of(desk.layout, task.attempt, asked.turn)
        expect_whole(desk.worktrees.store, task.id, task.attempt, asked.turn, commit)
        expect_nested(desk.worktrees, task.id, task.attempt, asked.turn, task.base, commit)
        desk.worktrees.mend(task.id, task.base)
        snapshots = desk.worktrees.snapshots(task.id, task.base)
        number = sum(name.startswith("undo-") for name in snapshots.names(task.attempt)) + 1
        saved = snapshots.take(task.attempt, f"undo-{number}", large="leave_out")
        snapshots.restore(commit)
        undone = TurnUndone(task.id, task.attempt, asked.turn, saved.ref, commit)
        desk.append([desk.record("turn_undone", 0, msgspec.to_builtins(undone))])
    is_at_rest = task.state is TaskState.FAILED or task.parked == STOPPED
    how = f"`holdfast resume {task.id}`" if is_at_rest else "the next `holdfast run`"
    note = f"its worktree is as turn {asked.turn} left it; {how} goes on from there"
    return desk.answer(task, note=note, saved=_last_undo(desk, task), turn=asked.turn)


def _last_undo(desk: DecisionContext, task: Task) -> str:
    names = [name for name in snapshots_of(desk.worktrees.store, task.attempt) if name.startswith("undo-")]
    return f"{ROOT}/{task.attempt}/{names[-1]}" if names else ""


def _expect_undoable(desk: DecisionContext, task: Task) -> None:
    """Only where nobody works, and where the next start goes on with the worktree as it stands."""
    expect_decided(task, "put back", or_stopped=True)
    settle(desk, task)
    if not task.attempt:
        raise refused(task, "put back", "there is nothing to undo.", "nobody has worked on it yet")
    if task.state is not TaskState.FAILED and not (task.state is TaskState.OPEN and task.continues):
        raise refused(task, "put back", f"`holdfast fork {task.id} --turn N` begins anew with the tree of a turn.")
    if not desk.worktrees.path(task.id).is_dir():
        raise refused(task, "put back", f"use `holdfast fork {task.id} --turn N`.", "its worktree is gone")


def settle(desk: DecisionContext, task: Task) -> None:
    """An attempt that ended, or died, while nobody ran is taken for what it is before anything is put back."""
    shop = desk.shop
    if shop is None or task.state not in (TaskState.CLAIMED, TaskState.IN_PROGRESS, TaskState.ORPHANED):
        return
    if task.remote:
        hint = f"its worker can give it back, and `holdfast cancel {task.id}` gives it up."
        raise refused(task, "put back", hint, f"{task.agent} works on it elsewhere")
    if task.state is not TaskState.ORPHANED:
        seen = shop.spawn.look(task)
        if seen in _ALIVE and task.parked == STOPPED:
            raise refused(task, "put back", "ask again in a moment.", "its agent is just being ended")
        if seen in _ALIVE:
            hint = f"`holdfast stop {task.id}` ends it, and `holdfast cancel` gives it up."
            raise refused(task, "put back", hint, "its agent is at work")
        if task.state is TaskState.CLAIMED:
            shop.move(task, TaskEvent.AGENT_STARTS_WORK, TransitionReason.SCHEDULED, agent=task.agent)
        ended = attempt_folder.read_exit(shop.layout.attempt_files(task.attempt), task.starts, task.intent)
        if ended is not None:
            outcome.take(shop, task, ended)
        else:
            outcome.orphan(shop, task, TaskEvent.CRASH)
    if task.state is TaskState.ORPHANED:
        outcome.go_on(shop, task)


# -- fork -------------------------------------------------------------------------------------------------------------


class Fork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`id`: the new task that is wanted. `spare`: how it may be called where there must be one and none is named."""

    task: str
    turn: int
    id: str = ""
    spare: str = ""


def fork(desk: DecisionContext, asked: Fork) -> Answer:
    """The next attempt begins with the tree of a turn; of a task that has ended, that is a new task."""
    found = attempt_named(desk.ledger.state, asked.task)
    task, attempt = found if found is not None else (desk.task(asked.task), "")
    if asked.id or (task.state in _ENDED and not desk.has_begun()) or desk.has_done("task_added", 0):
        return _fork_apart(desk, task, attempt, asked)
    if not desk.has_done("attempt_forked", 1) and not desk.has_done("attempt_forked", 0):
        expect_decided(task, "forked", or_stopped=True)
        if task.state in AT_WORK and task.parked == STOPPED:
            raise refused(task, "forked", "ask again in a moment.", "its agent is just being ended")
        if task.state not in (TaskState.FAILED, TaskState.OPEN):
            hint = "--id NEW makes a task of its own that begins there; `holdfast cancel` gives this one up."
            raise refused(task, "forked", hint)
        desk.append(_forking(desk, task, attempt, asked.turn))
    who = "the run" if desk.is_run else "the next `holdfast run`"
    who = f"`holdfast resume {task.id}`" if task.parked == STOPPED else who
    return desk.answer(task, note=f"{who} begins with turn {asked.turn} of {attempt}", attempt=attempt, turn=asked.turn)


def _forking(desk: DecisionContext, task: Task, attempt: str, turn: int) -> list[Record]:
    candidate = candidate_of(desk, attempt, turn)
    told = f"Go on from turn {turn} of {attempt}: the worktree holds what it left, on top of the newest target.\n"
    feedback = desk.blobs.put(told.encode(), content_type="text/plain")
    has_begun = desk.has_begun()
    records = []
    if task.state is TaskState.FAILED:
        records = [desk.moved(task, TaskEvent.RETRY, TransitionReason.REQUESTED_BY_PERSON)]
    forked = AttemptForked(task.id, attempt, turn, candidate, feedback)
    return [*records, desk.record("attempt_forked", 1 if records or has_begun else 0, msgspec.to_builtins(forked))]


def _fork_apart(desk: DecisionContext, task: Task, attempt: str, asked: Fork) -> Answer:
    """A file first, then its record: a file without one is taken in by the next run, a task without a file is not."""
    name = asked.id or asked.spare or f"{task.id}-fork"
    if not desk.has_done("task_added", 0):
        if not is_id(name) or name in desk.tasks:
            raise TaskExists(task=name, path=desk.layout.backlog)
        candidate_of(desk, attempt, asked.turn)
        made = msgspec.structs.replace(
            desk.definition(task), id=name, forked_from=f"{attempt}@{asked.turn}", claim=None, result=None, error=None
        )
        text = render(made)
        file = desk.backlog.scan().tasks.get(name)
        # The same file is what this very request left when it was cut short.
        if file is None or file.definition != made:
            desk.backlog.add(text, name)
        added = TaskAdded(name, desk.blobs.put(text, content_type=DEFINITION_TYPE))
        desk.append([desk.record("task_added", 0, msgspec.to_builtins(added))])
    who = "the run" if desk.is_run else "the next `holdfast run`"
    note = f"{who} begins it with turn {asked.turn} of {attempt}"
    return desk.answer(desk.tasks[name], note=note, attempt=attempt, turn=asked.turn)
