"""Compares the messages that the journal has as queued with those that have left: each once, and none unasked."""

from __future__ import annotations

from collections import Counter

from holdfast.checks.report import RESTORE, RUN, Draft
from holdfast.domain.entries import EntryLike
from holdfast.domain.pull_requests.pull_records import PULL_REQUEST
from holdfast.domain.state import State
from holdfast.domain.task import TaskState
from holdfast.domain.task_record import Task

_GONE = ("sent", "dropped")


class RecordedMessages:
    """Collects the entries about messages, in order."""

    def __init__(self) -> None:
        self.queued: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        self.given_up: Counter[str] = Counter()
        # What another message says: it took these out of the outbox with the entry that queued it.
        self.gathered: Counter[str] = Counter()

    def add(self, entry: EntryLike) -> None:
        match entry.decision_type:
            case "message_queued":
                self.queued[str(entry.inputs.get("idempotency_key"))] += 1
                self.gathered.update(map(str, entry.inputs.get("replaces", [])))
            case "task_publish_confirmed":
                self.left[str(entry.inputs.get("key"))] += 1
            case "message_flagged" if entry.inputs.get("how") in _GONE:
                self.given_up[str(entry.inputs.get("key"))] += 1


def outbox(state: State, recorded: RecordedMessages) -> Draft:
    """Each message was queued once, and has left once, or with another, or was given up, or is in the outbox."""
    waiting = state.outbox
    parked = [each for each in waiting.values() if each.parked]
    draft = Draft("outbox", queued=recorded.queued.total(), left=recorded.left.total(), waiting=len(waiting))
    for key, count in recorded.queued.items():
        if count > 1:
            draft.findings.append(f"the message {key} was queued {count} times; {RESTORE}")
        # Of those that are gathered, one is the reason: to send it is to queue the other.
        left = max(recorded.gathered[key], recorded.left[key])
        ends = left + recorded.given_up[key] + (key in waiting)
        if ends != 1:
            draft.findings.append(f"the message {key} has {ends} ends, and must have one; {RESTORE}")
    for key in (*recorded.left, *waiting):
        if key not in recorded.queued:
            draft.findings.append(f"the message {key} was never queued; {RESTORE}")
    for each in parked:
        draft.notes.append(f"the message {each.key} waits for you: {each.parked}; `holdfast outbox` shows it")
    if due := len(waiting) - len(parked):
        draft.notes.append(f"{due} of them are still to be sent; {RUN}")
    return draft


# -- pull requests ----------------------------------------------------------------------------------------------------


def pull_requests(state: State) -> Draft:
    """Each task that waits has its commit on record; that was pushed, or its message waits, or a person dropped it."""
    tasks = [task for task in state.tasks.values() if task.pull is not None]
    waiting = [
        task
        for task in state.tasks.values()
        if task.state is TaskState.PENDING_APPROVAL and task.outcome.get("kind") == PULL_REQUEST
    ]
    draft = Draft("pull_requests", tasks=len(tasks), waiting=len(waiting))
    for task in waiting:
        _waiting(draft, state, task)
    for task in tasks:
        pull = task.pull
        assert pull is not None
        if len(set(pull.seen)) != len(pull.seen):
            draft.findings.append(f"{task.id} has a comment of its pull request twice; {RESTORE}")
        if pull.state == "merged" and not pull.merged:
            draft.findings.append(f"the pull request of {task.id} is merged, and no commit is on record; {RESTORE}")
    return draft


def _waiting(draft: Draft, state: State, task: Task) -> None:
    pull = task.pull
    if pull is None or not pull.head:
        draft.findings.append(f"{task.id} waits for a pull request, and none is on record; {RESTORE}")
        return
    queued = [each for each in state.outbox.values() if each.task == task.id]
    if pull.due:
        draft.notes.append(f"the pull request of {task.id}: {pull.why}; {RUN}")
    if pull.pushed == pull.head and pull.number:
        return
    what = "opened" if pull.pushed == pull.head else "pushed"
    if queued:
        draft.notes.append(f"the pull request of {task.id} is still to be {what}; `holdfast pr {task.id}` shows it")
    else:
        # A person has dropped the message.
        draft.notes.append(f"the pull request of {task.id} was not {what}, and nothing will do it: `holdfast outbox`")
