"""The tasks as the loop sees them: the journal's state, the files' definitions, and the graph that both make.

The graph follows the ledger entry by entry, so that nothing ever looks at all tasks to find the next one.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from hashlib import sha256
from pathlib import Path

from holdfast.backlog.sync import DEFINITION_TYPE, SyncReport, block_of, file_new, is_out_of_place, take_in
from holdfast.config.settings import Config
from holdfast.domain.claims import asking_words
from holdfast.domain.definition import Definition, parse
from holdfast.domain.file_problem import FileProblem
from holdfast.domain.graph import PRIORITY, Graph, Node
from holdfast.domain.task import AT_WORK, FOLDER_OF, TaskState
from holdfast.domain.task_record import Task, open_questions
from holdfast.errors import (
    BacklogFolderMissing,
    BlobCorrupt,
    BlobMissing,
    DefinitionLost,
    HoldfastError,
    TaskFileChanged,
    TaskFileMissing,
)
from holdfast.ports import BacklogFolder, Ledger, TaskFile
from holdfast.storage.journal.entry import Entry
from holdfast.storage.records.blobs import Blobs

_ACTIVE = AT_WORK | {TaskState.ORPHANED, TaskState.DONE}


class Board:
    name = "board"
    cursor = None

    def __init__(self, ledger: Ledger, backlog: BacklogFolder, blobs: Blobs, config: Config) -> None:
        self.ledger = ledger
        self.backlog = backlog
        self.blobs = blobs
        self.config = config
        self.graph = Graph()
        # Grows in place, because a copy for each file that moves would cost as much as there are tasks.
        self.files: dict[str, TaskFile] = {}
        self.problems: list[FileProblem] = []
        self.stopped: set[str] = set()
        # Tasks that are in an attempt or between two: those that a plan has to look at one by one.
        self.active: set[str] = set()
        # The loop and the batch writer of the server both look for the next task.
        self.lock = threading.RLock()
        # Filled by whichever thread appends, emptied by the loop.
        self._changed: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._unprojected: set[str] = set()
        # Tasks of which a crash left two files: one of them goes, also where the other stands right.
        self._doubled: set[str] = set()
        # Definitions that came through the API and have no file yet, so that they need not be read from their text.
        self.early: dict[str, Definition] = {}

    def observe(self, run: str, entry: Entry) -> None:
        self.note_change(entry.inputs.get("task", ""))

    def note_change(self, task: str) -> None:
        if task:
            self._changed.put(task)

    @property
    def folder(self) -> Path:
        return self.backlog.folder

    @property
    def tasks(self) -> dict[str, Task]:
        return self.ledger.state.tasks

    def task(self, name: str) -> Task:
        return self.tasks[name]

    # -- definitions --------------------------------------------------------------------------------------------------

    def definition(self, name: str) -> Definition | None:
        """As the file has it now; None while the file is gone or cannot be used."""
        file = self.files.get(name)
        if file is None and (task := self.tasks.get(name)) is not None:
            # While its file is being written, the journal may know of it before we do.
            return self.unfiled(task) or self.early.get(name)
        return None if file is None or name in self.stopped else file.definition

    def unfiled(self, task: Task) -> Definition | None:
        """The tasks from the API that have no file yet."""
        if not task.unfiled:
            return None
        made = self.early.get(task.id) or parse(task.unfiled.encode(), task.id)
        return made if isinstance(made, Definition) else None

    def worked_on(self, task: Task) -> Definition:
        """As it was when the attempt began: an edit meanwhile counts for the next one."""
        return self.pinned(task.id, task.attempt.worked_on or task.definition)

    def pinned(self, name: str, digest: str) -> Definition:
        task = self.tasks[name]
        if task.unfiled and digest == task.definition and (early := self.unfiled(task)) is not None:
            return early
        made = parse(self._pinned_text(name, digest), name)
        if isinstance(made, Definition):
            return made
        raise TaskFileMissing(task=name, path=digest)

    def _pinned_text(self, name: str, digest: str) -> bytes:
        """A blob that is damaged or gone is mended from the task's file, where that still says the same."""
        try:
            return self.blobs.get(digest)
        except (BlobMissing, BlobCorrupt) as flaw:
            file = self.files.get(name)
            with contextlib.suppress(TaskFileChanged):
                text = self.backlog.bare(file) if file is not None else b""
                if sha256(text).hexdigest() == digest:
                    self.blobs.put(text, content_type=DEFINITION_TYPE)
                    return text
            raise DefinitionLost(task=name, reason=flaw) from flaw

    # -- keeping up ---------------------------------------------------------------------------------------------------

    def take_in(self) -> SyncReport:
        """Reads the backlog, journals what people changed, and updates the graph with the tasks concerned."""
        report = take_in(self.ledger, self.backlog, self.blobs)
        with self.lock:
            self._learn(report)
        return report

    def _learn(self, report: SyncReport) -> None:
        scan = report.scan
        assert scan is not None, "a report of what was taken in has the files"
        files = {**scan.tasks, **{name: copies[-1] for name, copies in scan.moved.items()}}
        stopped = {name for problem in scan.problems for name in problem.tasks}
        stale = {name for name in {*files, *self.files} if files.get(name) != self.files.get(name)}
        stale |= {name for name in self.tasks.copy() if name not in self.graph}
        self.files, self.problems, changed = files, list(report.problems), stale | (stopped ^ self.stopped)
        self.stopped, self._doubled = stopped, set(scan.moved)
        for name in list(self.early):
            if name in files:
                self.early.pop(name, None)
        self._unprojected |= {name for name in self.tasks.copy() if self._is_misplaced(name)}
        for name in changed:
            self._put(name)

    def keep_up(self) -> None:
        """Takes in what was journalled since last time."""
        with self.lock:
            names: set[str] = set()
            with contextlib.suppress(queue.Empty):
                while True:
                    names.add(self._changed.get_nowait())
            for name in names & self.tasks.keys():
                self._put(name)
                self._unprojected.add(name)

    def file_new(self) -> bool:
        """Writes the files of tasks that came through the API; False where their folder is missing."""
        new = [name for name in self._unprojected.copy() if self.tasks[name].unfiled]
        if new:
            try:
                filed = file_new(self.ledger, self.backlog, self.blobs, new)
            except BacklogFolderMissing:
                return False
            with self.lock:
                self.files |= filed
                for name in new:
                    self.early.pop(name, None)
                    self._put(name)
        return True

    def project(self) -> list[HoldfastError]:
        """Puts the files of changed tasks where their states say. What cannot be moved now is tried again next time."""
        failed = []
        for name in sorted(name for name in self._unprojected.copy() if not self.tasks[name].unfiled):
            # First: it may change again while its file is on the way.
            self._unprojected.discard(name)
            try:
                if name in self.files and self._is_misplaced(name):
                    self.files[name] = self._move(name, self.task(name))
            except HoldfastError as error:
                self._unprojected.add(name)
                failed.append(error)
        return failed

    def _move(self, name: str, task: Task) -> TaskFile:
        is_only = name not in self._doubled
        moved = self.backlog.move(name, FOLDER_OF[task.state], block_of(task), self.files[name] if is_only else None)
        self._doubled.discard(name)
        return moved

    def _is_misplaced(self, name: str) -> bool:
        file, task = self.files.get(name), self.tasks.get(name)
        if file is None or task is None:
            return False
        return name in self._doubled or is_out_of_place(file, task)

    def _put(self, name: str) -> None:
        task = self.tasks.get(name)
        if task is None:
            return
        (self.active.add if task.state in _ACTIVE or task.again else self.active.discard)(name)
        made = self.files[name].definition if name in self.files else self.unfiled(task)
        asked, timeout_s = open_questions(task), self.config.question_timeout_s
        self.graph.put(
            Node(
                id=name,
                depends_on=made.depends_on if made else (),
                parent=(made.parent or "") if made else "",
                priority=made.priority if made and made.priority is not None else PRIORITY,
                number=task.number,
                state=task.state,
                parked=task.parked or ("" if self.definition(name) else "its file is gone or cannot be used"),
                asking=asking_words(task, timeout_s),
                answer_due=min(each.asked_at for each in asked) + timeout_s if asked and timeout_s is not None else 0.0,
                not_before=max(task.not_before, (made.not_before or 0.0) if made else 0.0),
                subtask_timeout_s=(made.subtask_timeout_s or 0.0) if made else 0.0,
                role=(made.role or "") if made else "",
                again=task.again,
                cancels=made is not None and made.on_dependency_failed == "cancel",
            )
        )
