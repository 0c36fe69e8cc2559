"""Recovery: what a crash, or a journal that was put back from a backup, left open is settled. Nothing is performed.

`recover` gives every open intent of an earlier run exactly one closing entry. Its effect is asked what the world shows:

- it happened: `_confirmed`, at any age;
- otherwise, older than `replay_age_max_s`: `_abandoned`, and the operator gets a note;
- it did not happen: `_failed` with the reason `not_started`, and the loop plans anew;
- it cannot be told: `_parked`, until `holdfast resolve` says.

Then the claims that the dead orchestrator held and never started are given back, and `wal_replay_completed` tells the
counts. A kill at any point leaves some intents closed and the others open; the next run goes on with those.

`settle_landed` is for landings that the branch has and the journal does not: it was put back from a backup, and they
came after that. A landed commit names its task and its attempt, and so does a colleague's of the same names. So
trailers alone decide nothing. A commit is taken for a task's landing only after a person said that the newer journal is
lost, for a task that this journal has not ended, with an attempt that could have come next, and where the audit log or
git's own log of the branch says that it was landed here. Then it is journalled as landed, and nothing of it runs again.
Where that is not so, the task waits for a person.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from holdfast.config.settings import Config
from holdfast.domain.effect_entries import AGELESS, EffectIntended, LandIntended
from holdfast.domain.entries import MOVE_TO, PAYLOADS, ReplayCompleted
from holdfast.domain.fsm import Reason
from holdfast.domain.task import OVER, TASK, TaskEvent, TaskState
from holdfast.domain.task_record import Task
from holdfast.engine.context import RunContext
from holdfast.engine.effects import Closed, acknowledge, close_intent
from holdfast.engine.turn_follower import as_file, is_final, project
from holdfast.errors import HoldfastError, is_environment, is_fatal
from holdfast.git import command as git
from holdfast.git import lock_files
from holdfast.landing.branch import COMMITS_MAX
from holdfast.layout import Attempt, Layout
from holdfast.ports import DidNotHappen, Effects, Happened, InDoubt, Ledger, LedgerReader, Reconciled
from holdfast.storage.audit.days import day_files
from holdfast.storage.audit.from_journal import ref_of
from holdfast.storage.audit.notes import content
from holdfast.storage.audit.verify import parse
from holdfast.storage.files import disk
from holdfast.storage.journal.entry import Record
from holdfast.storage.journal.intents import OpenIntent
from holdfast.storage.records.attempt_folder import Liveness
from holdfast.worktrees import merges, pins

RECOVER = "recover"
_DOUBT = "It may have landed already: "
_TRAILERS = "Holdfast-Task: ", "Holdfast-Attempt: "
# What leads a task to DONE in the attempt that has landed: from where it is in that attempt, and in another one.
# No move says that a runner has ended: what it left went with the lost journal.
_WAY: dict[TaskState, TaskEvent] = {
    TaskState.PLANNED: TaskEvent.APPROVED,
    TaskState.FAILED: TaskEvent.RETRY,
    TaskState.BLOCKED: TaskEvent.DEPENDENCY_RESOLVED,
    TaskState.OPEN: TaskEvent.AGENT_CLAIMS_TASK,
    TaskState.WAITING_FOR_SUBTASKS: TaskEvent.ALL_SUBTASKS_COMPLETED,
    TaskState.CLAIMED: TaskEvent.FAST_COMPLETION,
    TaskState.IN_PROGRESS: TaskEvent.CRASH,
    TaskState.ORPHANED: TaskEvent.PARTIAL_WORK_MERGED,
    TaskState.PENDING_APPROVAL: TaskEvent.APPROVAL_GRANTED,
}
_WAY_FROM_ANOTHER: dict[TaskState, TaskEvent] = {
    **_WAY,
    TaskState.CLAIMED: TaskEvent.UNCLAIM,
    TaskState.ORPHANED: TaskEvent.REQUEUED_FOR_RETRY,
    TaskState.PENDING_APPROVAL: TaskEvent.APPROVAL_REJECTED,
    TaskState.DONE: TaskEvent.VERIFICATION_REJECTED,
}
_GOES_ON = {*_WAY_FROM_ANOTHER} - {TaskState.PLANNED, TaskState.FAILED, TaskState.BLOCKED, TaskState.OPEN}


# -- open intents ------------------------------------------------------------------------------------------------------


def recover(
    ledger: Ledger, effects: Effects, now: float, replay_age_max_s: float
) -> tuple[ReplayCompleted, list[Closed]]:
    """Closes what is open and releases what is stale. Performs nothing."""
    closed = [
        _close_as_found(ledger, intent, _judge(intent, effects), now, replay_age_max_s)
        for intent in ledger.pairing.open_intents()
    ]
    released = _release_stale_claims(ledger)
    counts = {how: sum(item.how == how for item in closed) for how in ("confirmed", "failed", "abandoned", "parked")}
    completed = ReplayCompleted(**counts, released=released)
    ledger.append(ledger.epoch, [Record("wal_replay_completed", msgspec.to_builtins(completed), actor=RECOVER)])
    return completed, closed


def _judge(intent: OpenIntent, effects: Effects) -> Reconciled:
    kind = PAYLOADS[intent.entry.decision_type]
    effect = effects.get(kind) if issubclass(kind, EffectIntended) else None
    if effect is None:
        return InDoubt(f"nothing here knows how to look for a {intent.entry.decision_type}")
    try:
        return effect.reconcile(intent)
    except HoldfastError as error:
        if is_fatal(error) or is_environment(error):
            # It says nothing of the intent, which stays open: the next run looks again.
            raise
        return InDoubt(f"looking for it failed: {error}")


def _close_as_found(
    ledger: Ledger, intent: OpenIntent, verdict: Reconciled, now: float, replay_age_max_s: float
) -> Closed:
    age_s = now - intent.entry.timestamp
    match verdict:
        case Happened(result):
            how, reason, output = "confirmed", "found done after a crash", result
        case _ if age_s > replay_age_max_s and intent.entry.decision_type not in AGELESS:
            how, reason, output = "abandoned", f"it is {age_s:.0f} s old, and may no longer be wanted", {}
        case DidNotHappen(why):
            how, reason, output = "failed", why or Reason.NOT_STARTED, {}
        case InDoubt(doubt):
            how, reason, output = "parked", doubt, {}
    close_intent(ledger, intent, how, reason, output, actor=RECOVER)
    return Closed(intent.entry.inputs.get("task", ""), intent.entry.decision_type, how, reason)


def _release_stale_claims(ledger: Ledger) -> int:
    """A task that was claimed and never started has nobody working on it: it is open again, under the same attempt."""
    # A copy: requests of the API add tasks meanwhile.
    claimed = (task for task in ledger.state.tasks.copy().values() if task.state is TaskState.CLAIMED)
    # A worker that is none of ours may well live: its lease tells.
    stale = [task for task in claimed if not task.claim.started and not task.claim.remote]
    for task in stale:
        target = TASK.next(task.state, TaskEvent.UNCLAIM)
        inputs = {"task": task.id, "event": TaskEvent.UNCLAIM, "reason": Reason.CLAIM_RELEASED}
        ledger.append(ledger.epoch, [Record(MOVE_TO[target], inputs, actor=RECOVER)])
    return len(stale)


# -- what a killed run left beside the journal -------------------------------------------------------------------------


def free_left(repo: Path, tasks: Iterable[Task]) -> None:
    """Removes the locks that dead processes of ours left on the indexes of the repository's checkouts.

    Not while a checkout is still to be refreshed after a landing: until then nobody should commit there.
    """
    if any(task.state is TaskState.DONE and task.landing.commit and not task.parked for task in tasks):
        return
    for lock in lock_files.left_on_indexes(repo):
        lock_files.free_own(lock)


def catch_up(layout: Layout, tasks: Iterable[Task]) -> None:
    """Writes state.json of each unsettled task as the journal has it: a crash may have left it behind."""
    for task in tasks:
        if task.start.number and not is_final(task):
            files = layout.attempt_files(task.attempt.id)
            if files.root.is_dir():
                project(files, as_file(task))


def note_adopted(context: RunContext, tasks: Iterable[Task]) -> None:
    """Says of the attempts that an earlier run left, stopped or not, what becomes of them."""
    for task in tasks:
        seen = context.spawn.liveness(task) if task.start.number else Liveness.DEAD
        if seen is Liveness.ALIVE:
            context.note(task.id, f"adopted {task.attempt.id}: {task.claim.agent} is at work since an earlier run")
        elif seen is Liveness.ENDED:
            context.note(task.id, f"{task.attempt.id} has ended while nobody ran; its result is taken")


# -- what a killed runner left of its agent's secrets -----------------------------------------------------------------

# Found by the marks in the data root. A mark counts only where nothing of its attempt is alive: `alive.lock` is in
# nobody's hands, and is held meanwhile, so that no start begins in between.


def find_leftovers(layout: Layout) -> list[Path]:
    """The folders of agents that have ended, in which a secret was left."""
    found = []
    for files in _marked(layout):
        with _over(files) as is_over:
            if is_over:
                found.append(files.agent)
    return found


def remove_leftovers(layout: Layout) -> None:
    for files in _marked(layout):
        # `check` reports what cannot be removed.
        with contextlib.suppress(HoldfastError), _over(files) as is_over:
            if is_over:
                if os.path.lexists(files.agent):
                    disk.remove_tree(files.agent)
                disk.unlink(layout.agent_secrets / files.root.name, missing_ok=True)


def _marked(layout: Layout) -> list[Attempt]:
    try:
        names = sorted(os.listdir(layout.agent_secrets))
    except FileNotFoundError:
        return []
    return [layout.attempt_files(name) for name in names if not disk.is_leftover(name)]


@contextlib.contextmanager
def _over(files: Attempt) -> Iterator[bool]:
    if not files.alive.exists():
        # The attempt's folder is gone.
        yield True
        return
    with files.alive.open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


# -- landings that this journal does not know --------------------------------------------------------------------------


def settle_landed(context: RunContext) -> None:
    """Journals what has landed of the tasks that had not ended when the journal was put back; parks those in doubt."""
    tasks = [task for task in context.ledger.state.tasks.values() if task.restored and task.state not in OVER]
    tasks = [task for task in tasks if not task.landing.commit and not is_doubt(task.parked)]
    named = _named(git.discover(context.repo), context.branch) if tasks else {}
    # Those of the attempts that were landed from here, each with what says so.
    witnessed: dict[str, str] = {}
    if named:
        witnessed = dict.fromkeys(_in_branch_log(context) & named.keys(), "git's log of the branch")
        witnessed |= dict.fromkeys(_in_audit_log(context.layout, context.ledger, named.keys()), "the audit log")
    for task in tasks:
        of_task = [attempt for attempt in named if attempt.rpartition(".")[0] == task.id]
        sure = [each for each in of_task if each in witnessed and _can_be(task, each)]
        if sure:
            how = f"its message names the task and {sure[0]}, and {witnessed[sure[0]]} says that it landed here"
            _adopt_landing(context, task, sure[0], named[sure[0]], how)
        elif of_task:
            _park(context, task, of_task[0], named[of_task[0]])


def recognise(context: RunContext, task: Task) -> bool:
    """Whether the branch got a commit since the attempt began that names it: a candidate that is in there has landed.

    Then it is journalled as landed.
    """
    attempt, base = task.attempt.id, task.attempt.base
    named = _named(git.discover(context.repo), context.branch, *([f"^{base}"] if base else []))
    if attempt not in named:
        return False
    _adopt_landing(context, task, attempt, named[attempt], f"its message names the task and {attempt}")
    return bool(task.landing.commit)


def is_doubt(parked: str) -> bool:
    return parked.startswith(_DOUBT)


def closing(repo: Path, config: Config, task: Task, record: Callable[..., Record]) -> list[Record]:
    """A person says that it has landed: the moves to its end, made by `record`. What the branch has of it is in the
    outcome."""
    branch = merges.target_branch(repo, config)
    named = _named(git.discover(repo), branch)
    attempt = next((each for each in named if each.rpartition(".")[0] == task.id), task.attempt.id or f"{task.id}.1")
    records, state, at = list[Record](), task.state, task.attempt.id

    def move(event: TaskEvent, **more: Any) -> None:
        nonlocal state, at
        at, state = more.get("attempt", at), TASK.next(state, event)
        reason = Reason.RESOLVED_BY_PERSON
        inputs = {"task": task.id, "event": event, "reason": reason, "attempt": at, **more}
        records.append(record(MOVE_TO[state], len(records) + 2, inputs))

    while state is not TaskState.DONE or at != attempt:
        event = (_WAY if at == attempt else _WAY_FROM_ANOTHER)[state]
        move(event, **_facts(task, event, attempt, named.get(attempt, "")))
    outcome = {"commit": named.get(attempt, ""), "branch": branch, "attempt": attempt, "left": []}
    move(TaskEvent.JANITOR_VERIFIED_AND_MERGED, outcome=outcome)
    return records


# -- what is there ----------------------------------------------------------------------------------------------------


def _named(repository: git.Repository, branch: str, *since: str) -> dict[str, str]:
    """Each attempt that a commit of the branch names together with its task, and the newest such commit."""
    asked = ("log", f"--max-count={COMMITS_MAX}", "-z", "--format=%H%x01%B", f"--grep=^{_TRAILERS[0]}", branch, *since)
    found: dict[str, str] = {}
    for field in repository.run(*asked, "--", codes=(0, 128)).fields():
        commit, _, message = field.strip("\n").partition("\x01")
        for attempt in _attempts_in(message):
            found.setdefault(attempt, commit)
    return found


def _attempts_in(message: str) -> list[str]:
    # In a squash the lines stand in the middle of the message, where git calls them no trailers.
    lines = [line.strip() for line in message.splitlines()]
    tasks, names = ([line.removeprefix(key) for line in lines if line.startswith(key)] for key in _TRAILERS)
    return [each for each in names if each.rpartition(".")[0] in tasks and each.rpartition(".")[2].isdigit()]


def _in_audit_log(layout: Layout, journal: LedgerReader, named: Collection[str]) -> set[str]:
    """By a record whose journal entry is lost: a landing that this journal has is none of the lost ones."""
    found: set[str] = set()
    for name in day_files(layout.audit):
        for line in content(layout.audit / name).splitlines():
            record = parse(line, None)
            if record is None or record.event != "landed" or record.details.get("attempt") not in named:
                continue
            if (ref := ref_of(record)) is not None and not journal.has(ref):
                found.add(str(record.details["attempt"]))
    return found


def _in_branch_log(context: RunContext) -> set[str]:
    """By how the branch was moved in this repository. Where another data root lands here too, it may have been that."""
    repository = git.discover(context.repo)
    refs = repository.run("for-each-ref", "--format=%(refname)", pins.LANDED).line.splitlines()
    if set(refs) - pins.landed_refs(context.repo, context.layout).keys():
        return set()
    asked = ("log", "--walk-reflogs", f"--max-count={COMMITS_MAX}", "-z", "--format=%gs%x01%B", context.branch, "--")
    found = set[str]()
    for field in repository.run(*asked, codes=(0, 128)).fields():
        words, _, message = field.strip("\n").partition("\x01")
        moved = words.removeprefix("holdfast: ")
        found |= {each for each in _attempts_in(message) if words != moved == each.rpartition(".")[0]}
    return found


def _can_be(task: Task, attempt: str) -> bool:
    """Whether what came after this journal could have been the attempt: the one that goes on, or a later one."""
    goes_on = task.continues or task.state in _GOES_ON
    return int(attempt.rpartition(".")[2]) >= task.attempts + (not goes_on)


# -- what is journalled -----------------------------------------------------------------------------------------------


def _facts(task: Task, event: TaskEvent, attempt: str, commit: str) -> dict[str, Any]:
    if event is TaskEvent.AGENT_CLAIMS_TASK:
        return {"attempt": attempt, "agent": task.claim.worked_by or "unknown", "why": "its landing is on the branch"}
    is_made = event in (TaskEvent.FAST_COMPLETION, TaskEvent.PARTIAL_WORK_MERGED)
    return {"candidate": commit} if is_made else {}


def _adopt_landing(context: RunContext, task: Task, attempt: str, commit: str, how: str) -> None:
    """Step by step, each on disk before the next: after a kill the next run goes on where this one stopped."""
    while task.state is not TaskState.DONE or task.attempt.id != attempt:
        event = (_WAY if task.attempt.id == attempt else _WAY_FROM_ANOTHER)[task.state]
        context.move(task, event, Reason.LANDED, **_facts(task, event, attempt, commit))
    # Its checkouts have followed long since, and may have gone on.
    context.append(context.flagged(task, RECOVER, parked="", happened=["refresh"]))
    repository = git.discover(context.repo)
    old = repository.run("rev-parse", "--verify", "--quiet", f"{commit}^", codes=(0, 1, 128)).line
    wanted = LandIntended(task.id, attempt, context.branch, old or "0" * len(commit), commit)
    if acknowledge(context, wanted):
        short = context.branch.removeprefix("refs/heads/")
        context.note(task.id, f"{commit[:12]} on {short} is its landing ({how}): nothing of it runs again")


def _park(context: RunContext, task: Task, attempt: str, commit: str) -> None:
    if task.parked:
        # A person decides about it in any case.
        return
    short = context.branch.removeprefix("refs/heads/")
    told = (
        f"{_DOUBT}the journal was put back from a backup, and {commit[:12]} on {short} names {attempt}, but nothing "
        f"shows that it was landed from here. Look at it with `git show {commit[:12]}`. If it is this task's work, "
        f"type `holdfast resolve {task.id} --happened`; `--retry` lets the task run, `--abandon` gives it up"
    )
    context.park(task, told)
