"""Between the backlog's files and the journal, in both directions.

`take_in` journals what people did to the files since last time. In the other direction `is_out_of_place` and `block_of`
say where a file belongs and what it shows; `engine/board.py` moves it there.

- A file that the journal does not know is a new task. It brings the state of its folder along, so that a backlog that
  arrives without a journal (a clone, a copy) keeps what is closed closed.
- A file edited while its task is open or claimed is taken anew; for a claimed task that counts for the next attempt.
- The file of an open or failed task deleted by hand cancels the task. One that a checkout took away is waited for and
  reported; one that went with its whole folder, a stash or `git clean` is put back. Any other is put back, as the
  journal has it, and reported; only what is done, and went with a checkout, stays away, where it would be in the way of
  going back.
- A file in the wrong folder, or in two after a crash, goes where it belongs: the folder is only a projection.
- A file that cannot be used is reported and left alone, and so is every task that it may be of. Of one that cannot be
  read, or is empty, nothing is known: it may be any file that seems to be gone, so while there is one nothing is
  cancelled, and each task that is kept for it is named.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from holdfast.backlog.missing import FOLDERS, carried_off, only_away, swept, without_file
from holdfast.backlog.restore import pinned_text, put_back_open
from holdfast.domain.definition import Definition
from holdfast.domain.entries import MOVE_TO
from holdfast.domain.file_problem import FileProblem
from holdfast.domain.fsm import Reason
from holdfast.domain.task import AT_WORK, FOLDER_OF, OVER, TASK, TaskState, cancel_event
from holdfast.domain.task_record import Task
from holdfast.domain.wording import iso
from holdfast.errors import (
    AlreadyExists,
    EntryUnfit,
    FileMissing,
    TaskExists,
    TaskFileChanged,
)
from holdfast.ports import BacklogFolder, BacklogScan, Ledger, TaskFile
from holdfast.storage.files import disk
from holdfast.storage.journal.entry import Record
from holdfast.storage.records.blobs import Blobs, NewBlob

ACTOR = "intake"
DEFINITION_TYPE = "application/yaml"
LOOK_AGAIN_S = 0.3
TRIES = 5
# So many files are written for one sync: each is open meanwhile, and a process may have only so many.
FILED_MAX = 200
STATE_OF_FOLDER = {
    "open": TaskState.OPEN,
    "issues": TaskState.OPEN,
    "claimed": TaskState.OPEN,
    "closed": TaskState.CLOSED,
    "failed": TaskState.FAILED,
}
EDITABLE = AT_WORK | {state for state, folder in FOLDER_OF.items() if folder == "open"}


class SyncReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a sync, by task; `problems` are files that could not be used."""

    added: list[str]
    edited: list[str]
    cancelled: list[str]
    put_back: list[str]
    problems: list[FileProblem]
    # The files as they are then; None where nothing was read.
    scan: BacklogScan | None = None
    # Of those put back, the ones that a command of git took, and that deleting alone would have cancelled.
    swept: list[str] = []

    def put_back_words(self, task: str) -> str:
        how = f"; `holdfast cancel {task}` gives it up" if task in self.swept else ""
        return f"its file was gone, and is put back{how}"

    def messages(self) -> Iterator[tuple[str, str]]:
        """The lines to print for a person: the task and the words."""
        yield from ((task, "cancelled: its file was deleted") for task in self.cancelled)
        yield from ((task, self.put_back_words(task)) for task in self.put_back)
        yield from (("", f"{problem.file}:{problem.line}: {problem.message}") for problem in self.problems)


NOTHING_NEW = SyncReport(added=[], edited=[], cancelled=[], put_back=[], problems=[])


def take_in(ledger: Ledger, backlog: BacklogFolder, blobs: Blobs) -> SyncReport:
    """Journals every change of the backlog's files. Afterwards the journal knows each usable file as it is."""
    put_back = put_back_open(ledger, backlog, blobs)
    # What came through the API has its file first: one that is missing would mean that somebody deleted it.
    file_new(ledger, backlog, blobs, [task.id for task in list(ledger.state.tasks.values()) if task.unfiled])
    for _ in range(TRIES - 1):
        # A file that is written between being found and being read is found again. Nothing was journalled by then.
        # The same where the API was quicker with a task, or with the end of one: the next look knows it.
        # The same where git takes the folder away in that moment.
        with contextlib.suppress(TaskFileChanged, EntryUnfit, FileMissing):
            return _with(_take_in(ledger, backlog, blobs), put_back)
    # Nobody else appends meanwhile.
    with ledger.together():
        return _with(_take_in(ledger, backlog, blobs), put_back)


def _with(report: SyncReport, put_back: list[str]) -> SyncReport:
    return (
        msgspec.structs.replace(report, put_back=[*put_back, *report.put_back], swept=[*put_back, *report.swept])
        if put_back
        else report
    )


def _take_in(ledger: Ledger, backlog: BacklogFolder, blobs: Blobs) -> SyncReport:
    scan = backlog.scan()
    # Of several files that a crash left, the one that came furthest: what is closed stays closed.
    files = {**scan.tasks, **{name: copies[-1] for name, copies in scan.moved.items()}}
    # As it is now: others may add tasks meanwhile. What has no file yet is not missing one.
    known = {name: task for name, task in ledger.state.tasks.copy().items() if not task.unfiled or name in files}
    # In the order of adding, which is that of their writing: a scan has them by name.
    added = [name for name in files if name not in ledger.state.tasks]
    added.sort(key=lambda name: files[name].written_ns)
    edited = [name for name, task in known.items() if name in files and _is_edited(backlog, files[name], task)]
    # The pinned text of each, in hand before anything is decided; empty where the blob is lost.
    missing = {name: pinned_text(known[name], blobs) for name in without_file(known, scan)}
    if missing:
        # An editor may be saving by renaming, or somebody switching branches: nothing final on one look alone.
        time.sleep(LOOK_AGAIN_S)
        scan = backlog.scan()
        missing = {name: missing[name] for name in without_file(known, scan) if name in missing}
    gone = {name: text for name, text in missing.items() if is_given_up_by_deleting(known[name])}
    done = {name: text for name, text in missing.items() if known[name].state in OVER}
    left = carried_off(backlog, known, done) if done else set[str]()
    put_back = [name for name, text in missing.items() if name not in gone and name not in left and text]
    away = only_away(backlog, scan, known, gone) if gone else []
    taken = swept(backlog, known, gone)
    waited_for = {name for problem in away for name in problem.tasks}
    taken = {name for name in taken if gone[name] and name not in waited_for}
    cancelled = [name for name, text in gone.items() if text and name not in waited_for and name not in taken]
    if cancelled:
        # A stash that is not there any more when git is asked has brought its files back before.
        still = without_file(known, backlog.scan())
        cancelled = [name for name in cancelled if name in still]
    put_back = [*sorted(taken), *put_back]
    if not away:
        _make_folders(backlog)

    texts = [backlog.bare(files[name]) for name in [*added, *edited]]
    digests = blobs.put_many([NewBlob(text, DEFINITION_TYPE) for text in texts])
    records = [_added(files[name], digest) for name, digest in zip(added, digests, strict=False)]
    for name, digest in zip(edited, digests[len(added) :], strict=True):
        records.append(Record("task_edited", {"task": name, "definition": digest}, actor=ACTOR))
    records += [_cancelled(known[name]) for name in cancelled]
    if records:
        ledger.append(ledger.epoch, records)
    for name in [*put_back, *cancelled]:
        # Where somebody was quicker, theirs stays, or git has taken the folder again: the next look sees to it.
        with contextlib.suppress(TaskExists, AlreadyExists, FileMissing):
            backlog.add(missing[name], name, FOLDER_OF[ledger.state.tasks[name].state])
    if put_back or cancelled:
        # A file that names one of those as its parent is sound again.
        scan = backlog.scan()
    return SyncReport(
        added=added,
        edited=edited,
        cancelled=cancelled,
        put_back=put_back,
        problems=[*scan.problems, *away],
        scan=scan,
        swept=sorted(taken),
    )


def is_given_up_by_deleting(task: Task) -> bool:
    """Whether deleting its file cancels the task: nobody works on it, and it has not ended."""
    return FOLDER_OF[task.state] == "open" or (task.state is TaskState.FAILED and not task.again)


def file_new(ledger: Ledger, backlog: BacklogFolder, blobs: Blobs, names: Iterable[str]) -> Mapping[str, TaskFile]:
    """Writes the blob and the file of each task that came through the API, and journals that they are there.

    Where somebody was quicker and wrote a file of that name, theirs stays: it is the newer word.
    """
    filed: dict[str, TaskFile] = {}
    rest = iter(names)
    while some := list(itertools.islice(rest, FILED_MAX)):
        texts = {name: text.encode() for name in some if (text := ledger.state.tasks[name].unfiled)}
        if texts:
            blobs.put_many([NewBlob(text, DEFINITION_TYPE) for text in texts.values()])
            filed |= backlog.add_many(texts)
            ledger.append(ledger.epoch, [Record("tasks_filed", {"tasks": list(texts)}, actor=ACTOR)])
    return filed


def _make_folders(backlog: BacklogFolder) -> None:
    """Git removes a folder with its last file. Where nothing is waited for, one that is missing means nothing."""
    for folder in (*FOLDERS, "failed"):
        if not os.path.lexists(backlog.folder / folder):
            disk.mkdir(backlog.folder / folder)


def block_of(task: Task) -> dict[str, Any] | None:
    """The block with a task's state that its file carries, for people who read the folder."""
    match FOLDER_OF[task.state]:
        case "claimed":
            return _readable({"agent": task.claim.agent, "attempt": task.attempt.id, "since": task.changed_at})
        case "closed":
            return _readable({"state": str(task.state), "at": task.changed_at, **task.outcome})
        case "failed":
            return _readable({"attempts": task.attempts, "at": task.changed_at, **task.outcome})
    return None


def shows_state(definition: Definition, task: Task) -> bool:
    """Whether the file's block says what the journal does; older files have their times in Unix seconds."""
    shown = definition.claim or definition.result or definition.error
    return (_readable(shown) if shown else None) == block_of(task)


def _readable(block: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: iso(value) if key in ("at", "since") and type(value) in (int, float) else value
        for key, value in block.items()
    }


def state_of_new(file: TaskFile) -> TaskState:
    """The state that a file brings along when the journal does not know its task."""
    state = STATE_OF_FOLDER[file.folder]
    is_cancelled = state is not TaskState.OPEN and _outcome(file.definition).get("state") == TaskState.CANCELLED
    return TaskState.CANCELLED if is_cancelled else state


def is_out_of_place(file: TaskFile, task: Task) -> bool:
    """Whether a file stands in another folder than its task's state says, or shows another state."""
    if file.folder != FOLDER_OF[task.state]:
        # What came from an issue tracker stays in its own folder until somebody works on it.
        return not (file.folder == "issues" and FOLDER_OF[task.state] == "open")
    return not shows_state(file.definition, task)


def _is_edited(backlog: BacklogFolder, file: TaskFile, task: Task) -> bool:
    """Only where an edit can still count; a file that we moved differs by our block alone, so that is left out."""
    if task.state not in EDITABLE or file.digest == task.definition:
        return False
    return sha256(backlog.bare(file)).hexdigest() != task.definition


def _added(file: TaskFile, digest: str) -> Record:
    definition, state = file.definition, state_of_new(file)
    outcome = _outcome(definition) if state is not TaskState.OPEN else {}
    inputs = {"task": definition.id, "definition": digest, "state": state, "imported": file.folder != "open"}
    return Record("task_added", {**inputs, "outcome": outcome}, actor=ACTOR)


def _outcome(definition: Definition) -> dict[str, Any]:
    return dict(definition.result or definition.error or {})


def _cancelled(task: Task) -> Record:
    event = cancel_event(task.state)
    assert event is not None, f"{task.id} is {task.state}"
    inputs = {"task": task.id, "event": event, "reason": Reason.DEFINITION_DELETED}
    return Record(MOVE_TO[TASK.next(task.state, event)], inputs, actor=ACTOR)
