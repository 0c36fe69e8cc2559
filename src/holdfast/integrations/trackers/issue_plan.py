"""What follows from a round's issues for the tasks: a list of changes. Pure, so that `sync --dry-run` shows the same.

The definition is the tracker's, the state is the journal's: an issue that is edited there rewrites the file of a task
that is still open, and one that is closed there cancels the task, or asks. What is over here stays over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

import msgspec

from holdfast.backlog.issue_files import IssueFile, file_of, is_edited_here
from holdfast.backlog.sync import EDITABLE
from holdfast.config.trackers import SourceSettings
from holdfast.domain.definition import Definition
from holdfast.domain.issues.issue_records import ROUNDS_MAX, Issue, is_task_of, task_id
from holdfast.domain.pull_requests.pull_records import PULL_REQUEST
from holdfast.domain.task import OVER, TaskState
from holdfast.domain.task_record import Task
from holdfast.integrations.trackers.source_rounds import SourceRound

# `later`: nothing yet, because of the state that the task is in; it is looked at again in the next round.
ChangeKind = Literal["add", "edit", "cancel", "ask", "later", "problem"]


class IssueChange(msgspec.Struct, frozen=True, kw_only=True):
    """`why` is for people. `key` is the decision's, so that it is made once."""

    kind: ChangeKind
    task: str
    number: str
    url: str = ""
    why: str = ""
    key: str = ""
    file: IssueFile | None = None


class Known(msgspec.Struct, frozen=True):
    """What is here: tasks, the definitions of usable files, and those that the sync has cancelled."""

    tasks: Mapping[str, Task]
    definitions: Mapping[str, Definition]
    cancelled: Collection[str] = ()


def cancel_key(task: str) -> str:
    """The key of the decision that cancels a task because its issue was closed. A task is cancelled once."""
    return f"sync:closed:{task}"


def changes_of(source: SourceSettings, found: SourceRound, known: Known) -> list[IssueChange]:
    """In the order of the issues; each at most once."""
    issues = {issue.number: issue for issue in found.issues}
    return [change for issue in issues.values() for change in _changes(source, issue, known)]


def round_of(source: str, issue: Issue, known: Known) -> int:
    """The round that an issue is in: another begins when it is open again behind the end that its closing made."""
    for number in range(1, ROUNDS_MAX):
        name = task_id(source, issue.number, number)
        if name not in known.tasks:
            return number if issue.is_open or number == 1 else number - 1
        if name not in known.cancelled:
            return number
    return ROUNDS_MAX


def _changes(source: SourceSettings, issue: Issue, known: Known) -> Iterator[IssueChange]:
    round = round_of(source.name, issue, known)
    name = task_id(source.name, issue.number, round)
    task, made = known.tasks.get(name), known.definitions.get(name)
    about: dict[str, Any] = {"task": name, "number": issue.number, "url": issue.url}
    if task is None:
        if issue.is_open and issue.wanted:
            new = file_of(issue, source=source.name, tracker=source.tracker, round=round)
            again = "" if round == 1 else "it was opened again there"
            yield IssueChange(kind="add", file=new, why=again, **about)
            yield from _problems(new, about)
        return
    if task.state in OVER:
        return
    if made is None or made.origin is None or not is_task_of(name, made.origin):
        if made is not None:
            told = f"there is a task {name} that came from no issue; rename it, and the issue becomes a task"
            yield IssueChange(kind="problem", why=told, **about)
        return
    if not issue.is_open:
        yield from _closed(source, issue, task, about)
        return
    if not issue.wanted:
        yield from _unwanted(source, issue, task, about)
    new = file_of(issue, source=source.name, tracker=source.tracker, round=round)
    assert new.definition.origin is not None
    if new.definition.origin.etag == made.origin.etag:
        return
    if task.state not in EDITABLE:
        yield IssueChange(kind="later", why=f"it was edited there, and its task is {task.state}", **about)
    else:
        over = "; what was changed in the file is overwritten by it" if is_edited_here(made) else ""
        yield IssueChange(kind="edit", file=new, why=f"it was edited there{over}", **about)
        yield from _problems(new, about)


def _closed(source: SourceSettings, issue: Issue, task: Task, about: dict[str, Any]) -> Iterator[IssueChange]:
    why = "its issue is gone there" if issue.is_gone else "its issue was closed there"
    if _is_left_to_pull(task):
        yield IssueChange(kind="later", why=f"{why}, and its pull request decides", **about)
    elif source.on_closed == "cancel":
        yield IssueChange(kind="cancel", why=why, key=cancel_key(task.id), **about)
    else:
        yield from _asked(task, why, f"sync:ask:{task.id}:{issue.closed_at or 'gone'}", about)


def _is_left_to_pull(task: Task) -> bool:
    """Whether its pull request says what becomes of it: a merge closes the issue, too. One that may be open at the
    service though nobody knows its number yet counts; one that was closed unmerged is asked about."""
    if task.state is TaskState.PENDING_APPROVAL and task.outcome.get("kind") == PULL_REQUEST:
        return True
    return task.pull is not None and task.pull.state in ("open", "merged")


def _unwanted(source: SourceSettings, issue: Issue, task: Task, about: dict[str, Any]) -> Iterator[IssueChange]:
    """It has lost its label, which is a mistake as often as a wish: asked, and never cancelled."""
    if source.label not in source.labels_off:
        why = f"its issue has not the label {source.label!r} any more" if source.label else "its issue does not fit"
        yield from _asked(task, why, f"sync:ask:{task.id}:{issue.updated_at}", about)


def _asked(task: Task, why: str, key: str, about: dict[str, Any]) -> Iterator[IssueChange]:
    """Only what nobody works on: who is at work is let finish, and the result is then looked at in any case."""
    is_free = task.state is TaskState.OPEN and not task.parked
    yield IssueChange(kind="ask" if is_free else "later", why=why, key=key, **about)


def _problems(new: IssueFile, about: dict[str, Any]) -> Iterator[IssueChange]:
    if new.problem:
        told = f"its front matter was left as text: {new.problem}"
        yield IssueChange(kind="problem", why=told, **about)
