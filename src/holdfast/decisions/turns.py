"""Going back to a turn: `undo` puts the worktree back, `fork` begins anew with the tree that the turn left.

A snapshot is never changed by either: what was undone is saved first, under a name that is never written twice.
"""

from __future__ import annotations

import msgspec

from holdfast.backlog.sync import DEFINITION_TYPE
from holdfast.decisions.context import Answer, DecisionContext, expect_decided, refused
from holdfast.decisions.tasks import who_goes_on
from holdfast.domain.definition import is_id, render
from holdfast.domain.entries import STOPPED, AttemptForked, TaskAdded, TurnUndone
from holdfast.domain.fsm import Reason
from holdfast.domain.task import AT_WORK, OVER, TaskEvent, TaskState
from holdfast.domain.task_record import Task
from holdfast.engine import orphans, outcome
from holdfast.engine.earlier_starts import expect_nested, expect_whole
from holdfast.errors import TaskExists, TurnUnknown
from holdfast.snapshots.snapshots import ROOT
from holdfast.storage.journal.entry import Record
from holdfast.storage.records import attempt_folder
from holdfast.storage.records.attempt_folder import Liveness
from holdfast.worktrees import merges
from holdfast.worktrees.attempt_commits import attempt_named, base_of, snapshot_of, snapshots_of

_ALIVE = {Liveness.ALIVE, Liveness.HEADLESS}


# -- which turn -------------------------------------------------------------------------------------------------------


def candidate_of(decision: DecisionContext, attempt: str, turn: int) -> str:
    """The changes up to the end of a turn, as a commit on top of the attempt's first commit."""
    trees = decision.worktrees
    store, task = trees.store, decision.ledger.state.tasks.get(attempt.rpartition(".")[0])
    snapshot, base = snapshot_of(decision.ledger, attempt, turn), base_of(decision.ledger, task, attempt)
    expect_whole(store, attempt.rpartition(".")[0], attempt, turn, snapshot)
    if not base:
        raise TurnUnknown(turn=turn, attempt=attempt, known="is not in this journal")
    who = merges.identity(decision.repo, decision.config)
    message = f"Turn {turn} of {attempt}\n"
    name = f"{attempt}-turn-{turn}"
    more = (store, base, snapshot, message, who)
    made = merges.candidate(*more, exclude=trees.exclude, modules=trees.modules, attempt=name)
    return made or base


# -- undo -------------------------------------------------------------------------------------------------------------


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task: str
    turn: int


def undo(decision: DecisionContext, asked: Turn) -> Answer:
    """Puts the worktree back to a turn; what stood there is saved as the attempt's next snapshot `undo-<k>`."""
    task = decision.task(asked.task)
    if not decision.has_begun():
        _expect_undoable(decision, task)
        commit = snapshot_of(decision.ledger, task.attempt.id, asked.turn)
        expect_whole(decision.worktrees.store, task.id, task.attempt.id, asked.turn, commit)
        expect_nested(decision.worktrees, task.id, task.attempt.id, asked.turn, task.attempt.base, commit=commit)
        decision.worktrees.mend(task.id, task.attempt.base)
        snapshots = decision.worktrees.snapshots(task.id, task.attempt.base)
        number = sum(name.startswith("undo-") for name in snapshots.names(task.attempt.id)) + 1
        saved = snapshots.take(task.attempt.id, f"undo-{number}", large="leave_out")
        snapshots.restore(commit)
        undone = TurnUndone(task.id, task.attempt.id, asked.turn, saved.ref, commit)
        decision.append([decision.record("turn_undone", 0, msgspec.to_builtins(undone))])
    is_at_rest = task.state is TaskState.FAILED or task.parked == STOPPED
    how = f"`holdfast resume {task.id}`" if is_at_rest else "the next `holdfast run`"
    note = f"its worktree is as turn {asked.turn} left it; {how} goes on from there"
    names = [name for name in snapshots_of(decision.worktrees.store, task.attempt.id) if name.startswith("undo-")]
    last = f"{ROOT}/{task.attempt.id}/{names[-1]}" if names else ""
    return decision.answer(task, note=note, saved=last, turn=asked.turn)


def _expect_undoable(decision: DecisionContext, task: Task) -> None:
    """Only where nobody works, and where the next start goes on with the worktree as it stands."""
    expect_decided(task, "put back", or_stopped=True)
    settle(decision, task)
    if not task.attempt.id:
        raise refused(task, "put back", "there is nothing to undo.", "nobody has worked on it yet")
    if task.state is not TaskState.FAILED and not (task.state is TaskState.OPEN and task.continues):
        raise refused(task, "put back", f"`holdfast fork {task.id} --turn N` begins anew with the tree of a turn.")
    if not decision.worktrees.path(task.id).is_dir():
        raise refused(task, "put back", f"use `holdfast fork {task.id} --turn N`.", "its worktree is gone")


def settle(decision: DecisionContext, task: Task) -> None:
    """An attempt that ended, or died, while nobody ran is taken for what it is before anything is put back."""
    context = decision.context
    if task.state not in AT_WORK | {TaskState.ORPHANED}:
        return
    if task.claim.remote:
        hint = f"its worker can give it back, and `holdfast cancel {task.id}` gives it up."
        raise refused(task, "put back", hint, f"{task.claim.agent} works on it elsewhere")
    if task.state is not TaskState.ORPHANED:
        seen = context.spawn.liveness(task)
        if seen in _ALIVE and task.parked == STOPPED:
            raise refused(task, "put back", "ask again in a moment.", "its agent is just being ended")
        if seen in _ALIVE:
            hint = f"`holdfast stop {task.id}` ends it, and `holdfast cancel` gives it up."
            raise refused(task, "put back", hint, "its agent is at work")
        if task.state is TaskState.CLAIMED:
            context.move(task, TaskEvent.AGENT_STARTS_WORK, Reason.SCHEDULED, agent=task.claim.agent)
        files = context.layout.attempt_files(task.attempt.id)
        ended = attempt_folder.read_exit(files, task.start.number, task.start.intent)
        if ended is not None:
            outcome.apply_exit(context, task, ended)
        else:
            orphans.end_as_orphan(context, task, TaskEvent.CRASH)
    if task.state is TaskState.ORPHANED:
        orphans.continue_orphan(context, task)


# -- fork -------------------------------------------------------------------------------------------------------------


class Fork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`id`: the new task that is wanted. `spare`: how it may be called where there must be one and none is named."""

    task: str
    turn: int
    id: str = ""
    spare: str = ""


def fork(decision: DecisionContext, asked: Fork) -> Answer:
    """The next attempt begins with the tree of a turn; of a task that has ended, that is a new task."""
    found = attempt_named(decision.ledger.state, asked.task)
    task, attempt = found if found is not None else (decision.task(asked.task), "")
    if asked.id or (task.state in OVER and not decision.has_begun()) or decision.has_done("task_added", 0):
        return _fork_apart(decision, task, attempt, asked)
    if not decision.has_done("attempt_forked", 1) and not decision.has_done("attempt_forked", 0):
        expect_decided(task, "forked", or_stopped=True)
        if task.state in AT_WORK and task.parked == STOPPED:
            raise refused(task, "forked", "ask again in a moment.", "its agent is just being ended")
        if task.state not in (TaskState.FAILED, TaskState.OPEN):
            hint = "--id NEW makes a task of its own that begins there; `holdfast cancel` gives this one up."
            raise refused(task, "forked", hint)
        decision.append(_forking(decision, task, attempt, asked.turn))
    begins = f"begins with turn {asked.turn} of {attempt}"
    note = f"`holdfast resume {task.id}` {begins}" if task.parked == STOPPED else who_goes_on(decision, begins)
    return decision.answer(task, note=note, attempt=attempt, turn=asked.turn)


def _forking(decision: DecisionContext, task: Task, attempt: str, turn: int) -> list[Record]:
    candidate = candidate_of(decision, attempt, turn)
    told = f"Go on from turn {turn} of {attempt}: the worktree holds what it left, on top of the newest target.\n"
    feedback = decision.blobs.put(told.encode(), content_type="text/plain")
    has_begun = decision.has_begun()
    records = []
    if task.state is TaskState.FAILED:
        records = [decision.moved(task, TaskEvent.RETRY, Reason.REQUESTED_BY_PERSON)]
    forked = AttemptForked(task.id, attempt, turn, candidate, feedback)
    return [*records, decision.record("attempt_forked", 1 if records or has_begun else 0, msgspec.to_builtins(forked))]


def _fork_apart(decision: DecisionContext, task: Task, attempt: str, asked: Fork) -> Answer:
    """A file first, then its record: a file without one is taken in by the next run, a task without a file is not."""
    name = asked.id or asked.spare or f"{task.id}-fork"
    if not decision.has_done("task_added", 0):
        if not is_id(name) or name in decision.tasks:
            raise TaskExists(task=name, path=decision.layout.backlog)
        candidate_of(decision, attempt, asked.turn)
        made = msgspec.structs.replace(
            decision.definition(task),
            id=name,
            forked_from=f"{attempt}@{asked.turn}",
            claim=None,
            result=None,
            error=None,
        )
        text = render(made)
        file = decision.backlog.scan().tasks.get(name)
        # The same file is what this very request left when it was cut short.
        if file is None or file.definition != made:
            decision.backlog.add(text, name)
        added = TaskAdded(name, decision.blobs.put(text, content_type=DEFINITION_TYPE))
        decision.append([decision.record("task_added", 0, msgspec.to_builtins(added))])
    note = who_goes_on(decision, f"begins it with turn {asked.turn} of {attempt}")
    return decision.answer(decision.tasks[name], note=note, attempt=attempt, turn=asked.turn)
