"""Compares the tasks that wait for a pull request with what the journal has of it."""

from __future__ import annotations

from holdfast.checks.report import RESTORE, RUN, Draft
from holdfast.domain.pull_requests.pull_records import PULL_REQUEST
from holdfast.domain.state import State
from holdfast.domain.task import TaskState
from holdfast.domain.task_record import Task


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
