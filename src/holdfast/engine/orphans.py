"""Attempts whose runner died or fell silent without a word: ended, then continued, salvaged or given up.

An orphan's tree as found is saved before it is touched, under a name of its own that is never written twice: doing this
again after a crash loses nothing.
"""

from __future__ import annotations

from typing import Any

from holdfast import identity
from holdfast.domain.attempt_records import Ending
from holdfast.domain.definition import Definition
from holdfast.domain.fsm import Reason
from holdfast.domain.task import TaskEvent
from holdfast.domain.task_record import Task
from holdfast.engine import earlier_starts, turn_follower
from holdfast.engine.context import RunContext
from holdfast.engine.outcome import apply_exit, uncounted_spend
from holdfast.landing import gate_kinds
from holdfast.layout import Attempt
from holdfast.processes import starts
from holdfast.storage.records import attempt_folder
from holdfast.storage.records import ledger as jsonl
from holdfast.worktrees import commit_messages, merges
from holdfast.worktrees.attempt_commits import journalled_turns

# Delay before restarting an attempt that made no progress; doubles each time.
PAUSE_S, PAUSE_S_MAX = 0.1, 60.0


def end_as_orphan(context: RunContext, task: Task, event: TaskEvent) -> None:
    """Ends whatever is left of the attempt, and journals that it is orphaned, or its end if it wrote one just now."""
    attempt, start = task.attempt.id, task.start
    files = context.layout.attempt_files(attempt)
    starts.end_all(files, attempt, start.number, context.config.grace_s)
    # It may have come to its end just now, and said so.
    ended = attempt_folder.read_exit(files, start.number, start.intent)
    if ended is not None and ended.ending is not Ending.STOPPED:
        apply_exit(context, task, ended)
        return
    context.turns.follow(task)
    reason = Reason.HEARTBEAT_LOST if event is TaskEvent.HEARTBEAT_TIMEOUT else Reason.CRASHED
    context.move(
        task, event, reason, session=_session(files) or task.session, rest=uncounted_spend(context, task, None)
    )
    said = _last_words(context, attempt)
    words = f"; its runner said: {said}" if said else ""
    context.note(task.id, f"{attempt} is orphaned after turn {task.attempt.turn}{words}")


def _session(files: Attempt) -> str:
    """The conversation that the stream named last."""
    found = ""
    if files.events.exists():
        for line in jsonl.LineLedger(files.events).read():
            if line.record.get("type") == "session":
                found = line.record.get("id", found)
    return found


def _last_words(context: RunContext, attempt: str) -> str:
    """The end of what the runner printed, which is nothing unless it failed by itself."""
    try:
        lines = (context.layout.logs / f"{attempt}.log").read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return lines[-1].strip() if lines else ""


def continue_orphan(context: RunContext, task: Task) -> None:
    """Opens an orphan to be continued: saves its tree as found and journals whether the next start begins with that.

    The worktree is not changed here; `start.hold` does that. After `max_resumes` it is salvaged, or fails.
    """
    made = context.board.worked_on(task)
    most = made.max_resumes if made.max_resumes is not None else context.config.max_resumes
    if task.attempt.resumes >= most:
        if _salvage(context, task, made):
            return
        detail = f"it was continued {task.attempt.resumes} times, and was orphaned again"
        if said := _last_words(context, task.attempt.id):
            detail += f"; the last words of its runner: {said}"
        more: dict[str, Any] = {"forget": True} if task.session and task.start.came_to_nothing else {}
        context.fail(task, TaskEvent.UNRECOVERABLE, Reason.RESUMES_EXHAUSTED, "resumes_exhausted", detail, **more)
        return
    back = context.moved(task, TaskEvent.REQUEUED_FOR_RETRY, Reason.RESUMED, tree=_save(context, task))
    if task.start.used.turns or not task.attempt.resumes:
        context.append(back)
        return
    # Its start did nothing, and not for the first time: started at once, it would do nothing again.
    not_before = context.clock() + min(PAUSE_S_MAX, PAUSE_S * 2**task.attempt.resumes)
    context.append(context.flagged(task, "holdfast", parked=task.parked, not_before=not_before), back)


def _save(context: RunContext, task: Task) -> str:
    """Saves an orphan's tree as it was found; returns its commit where the next start has to begin with it.

    Empty: the attempt's `tree` stays. Once: a tree that descends from the one that this start began with was saved by
    a process that died before it journalled it.
    """
    attempt, start = task.attempt, task.start.number
    if not context.worktrees.mend(task.id, attempt.base):
        return ""
    snapshots, store = context.worktrees.snapshots(task.id, attempt.base), context.worktrees.store
    name = f"orphan-{start}"
    saved = snapshots.names(attempt.id).get(name, "")
    before = earlier_starts.tree_of(context.ledger, attempt)
    if not saved or (before and not store.descends(saved, before)):
        saved = snapshots.take(attempt.id, name, large="leave_out").commit
    files = context.layout.attempt_files(attempt.id)
    began = attempt_folder.read_start(files, start)
    # After a power cut a worktree lacks what the agent wrote and nobody synced, also of turns before the last.
    is_of_this_boot = began is not None and began.boot_id == identity.boot_id()
    return saved if is_of_this_boot and _worked_after_last_turn(files, start) else ""


def _worked_after_last_turn(files: Attempt, start: int) -> bool:
    """Whether a tool of this start ended after the last turn was saved: what it did must not be undone.

    Tools of earlier starts say nothing about the tree that this one left.
    """
    lines = turn_follower.all_turns(files)
    last = lines[-1].ts if lines else 0.0
    events = (line.record for line in jsonl.LineLedger(files.events).read()) if files.events.exists() else ()
    ended = (event for event in events if event.get("type") == "tool_ended" and event["start"] == start)
    return any(event["ts"] > last for event in ended)


def _salvage(context: RunContext, task: Task, made: Definition) -> bool:
    """Makes a candidate of the orphan's last turn, to be verified like any other; False where there is none.

    Only where something judges whether the work is complete: gates, or a person who must approve it. A candidate that
    they refuse fails the attempt as usual, and the next one begins with it.
    """
    is_judged = bool(gate_kinds.gates_of(made, context.config)) or (made.approve or False)
    turn = task.attempt.stands
    candidate = _candidate(context, task, made) if is_judged and turn else ""
    if not candidate:
        return False
    detail = f"turn {turn} of {task.attempt.id}, which was orphaned too often to be continued, is judged as it is"
    context.move(
        task,
        TaskEvent.PARTIAL_WORK_MERGED,
        Reason.SALVAGED,
        candidate=candidate,
        agent=task.claim.agent,
        outcome={"detail": detail},
    )
    context.note(task.id, detail)
    return True


def _candidate(context: RunContext, task: Task, made: Definition) -> str:
    """The last turn as a commit on the attempt's base; empty where it changed nothing, or is not there."""
    store, attempt = context.worktrees.store, task.attempt
    snapshot = journalled_turns(context.ledger, attempt.id).get(attempt.stands, "")
    if not snapshot or store.flaw_of(snapshot):
        return ""
    if merges.nested(store, attempt.base, snapshot, context.worktrees.exclude):
        # It would be salvaged without files of it.
        return ""
    message = commit_messages.of_candidate(context, task, made)
    who = merges.identity(context.repo, context.config)
    trees = context.worktrees
    found = merges.candidate(
        store, attempt.base, snapshot, message, who, exclude=trees.exclude, modules=trees.modules, attempt=attempt.id
    )
    return found or ""
