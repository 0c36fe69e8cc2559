"""The oracle: does everything in the data root fit together? It takes no lock, writes nothing and trusts no projection.

It has three answers. A *finding* is something that must not be: the root is not sound. *Pending* is what the journal
has decided and the files do not show yet: an open intent, a task file that was not moved. A crash leaves such things,
the next run finishes them, and the root is sound. A *note* is reported and does not count: what people did to their
files and no run has read yet, what a crash tore before it was acknowledged, and what cannot be judged.

It is right also while a run is active. Between a decision in the journal and the file that follows from it lies a
moment, and a running effect has an open intent. So what such a moment can explain counts only when the root had no
owner and nothing changed from the beginning of the check to its end; otherwise it is a note.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import msgspec

from holdfast.backlog.missing import carried_off, only_away, swept, without_file
from holdfast.backlog.restore import pinned_text
from holdfast.backlog.sync import is_given_up_by_deleting, shows_state
from holdfast.checks import audit, witnesses, work
from holdfast.checks.deliveries import deliveries
from holdfast.checks.outbox import outbox, pull_requests
from holdfast.checks.projections import Projection, Reading, read_journal
from holdfast.checks.report import LOOK, REPAIR, RESTORE, RUN, Draft
from holdfast.checks.report import Section as Section
from holdfast.checks.setups import setups
from holdfast.clock import wall
from holdfast.domain.task import FOLDER_OF
from holdfast.domain.task_record import Task
from holdfast.domain.wording import plural
from holdfast.errors import DiskError, GitFailed, GitUnusable, NotAWorktree, TaskFileChanged
from holdfast.git.repository import as_checked_out
from holdfast.layout import Layout
from holdfast.ports import BacklogFolder, BacklogScan, TaskFile
from holdfast.snapshots import after_boot
from holdfast.snapshots.store import Store
from holdfast.storage.audit.key import AuditKey
from holdfast.storage.journal.data_root import FORMAT, read_format
from holdfast.storage.journal.lock import Holder, live_owner, read_holder
from holdfast.storage.journal.reader import plain_files
from holdfast.storage.records.blobs import Blobs


class CheckReport(msgspec.Struct, frozen=True):
    """`sound`: there are no findings. `pending`: it is sound, and the next run has something to finish."""

    sections: list[Section]
    sound: bool
    pending: bool = False


class Drift(msgspec.Struct, frozen=True):
    """A task whose file is not as the journal says. `kind` is `place`, `block` or `missing`.

    `file` is the wrong one; empty where it is missing, or where there are several.
    """

    task: str
    kind: str
    words: str
    file: str = ""


def check(
    layout: Layout,
    backlog: BacklogFolder,
    key: AuditKey | None,
    *,
    repo: Path | None = None,
    chain_only: bool = False,
    progress: Callable[[int], None] | None = None,
) -> CheckReport:
    """`repo` is the repository; without it, what is in git is not checked."""
    before = _moment(layout)
    reading = read_journal(layout, fold=not chain_only, progress=progress)
    drafts = [_chain(reading)]
    if not chain_only:
        blobs = Blobs(layout.cas)
        drafts += [
            _unless_flawed(reading, "tasks", lambda: _tasks(reading)),
            _unless_flawed(reading, "backlog", lambda: _backlog(reading, backlog, blobs)),
            _unless_flawed(reading, "attempts", lambda: work.attempts(reading.state, reading.recorded, layout)),
            _unless_flawed(reading, "questions", lambda: work.questions(reading.state, reading.recorded, layout)),
            _unless_flawed(reading, "setups", lambda: setups(reading.recorded, layout, blobs)),
            _unless_flawed(reading, "outbox", lambda: outbox(reading.state, reading.recorded.messages)),
            _unless_flawed(
                reading, "deliveries", lambda: deliveries(reading.state, reading.recorded.deliveries, blobs, wall())
            ),
            _unless_flawed(reading, "pull_requests", lambda: pull_requests(reading.state)),
            _unless_flawed(reading, "witnesses", lambda: _witnesses(reading, layout, repo)),
            _in_git(reading, "snapshots", repo, lambda at: _snapshots(reading, layout, at)),
            _in_git(reading, "landings", repo, lambda at: work.landings(reading.state, at, layout)),
            _unless_flawed(reading, "intents", lambda: _intents(reading, before[0])),
            _unless_flawed(reading, "idempotency", lambda: _idempotency(reading)),
            _unless_flawed(reading, "closings", lambda: _closings(reading)),
            _if_readable("blobs", lambda: _blobs(reading, blobs)),
            _if_readable("audit", lambda: audit.audit(reading, layout, key)),
        ]
    calm = before[0] is None and _moment(layout) == before
    sections = [draft.section(calm) for draft in drafts]
    sound = not any(section.findings for section in sections)
    return CheckReport(sections, sound, sound and any(section.pending for section in sections))


def _snapshots(reading: Reading, layout: Layout, repo: Path) -> Draft:
    is_older = read_format(layout).format < FORMAT
    store, is_due = Store.of(layout.snapshots, repo), after_boot.is_due(layout)
    return work.snapshots(reading.state, reading.recorded, store, is_older=is_older, is_due=is_due)


def _moment(layout: Layout) -> tuple[Holder | None, Holder | None, list[tuple[str, int]]]:
    """A value that differs between two moments if the root had an owner in between."""
    runs = []
    for path in plain_files(layout.wal):
        try:
            runs.append((path.name, path.stat().st_size))
        except FileNotFoundError:
            continue
    return live_owner(layout.lock), read_holder(layout.lock), runs


# -- the journal and what follows from it alone -----------------------------------------------------------------------


def _chain(reading: Reading) -> Draft:
    torn, runs = reading.chain.torn, reading.runs
    draft = Draft("chain", runs=len(runs), entries=reading.entries, torn=len(torn))
    draft.counted["archived"] = sum(file.path.parent != reading.chain.wal for file in runs)
    draft.notes += [
        f"run {each.run}: a crash tore {plural(each.length, 'byte')} at byte {each.offset}, never acknowledged"
        for each in torn
    ]
    if reading.flaw is not None:
        draft.findings.append(str(reading.flaw))
    return draft


def _unless_flawed(reading: Reading, name: str, examine: Callable[[], Draft]) -> Draft:
    if reading.flaw is None:
        return _if_readable(name, examine)
    draft = Draft(name)
    draft.not_checked = "it is judged by the journal, and that is damaged"
    return draft


def _in_git(reading: Reading, name: str, repo: Path | None, examine: Callable[[Path], Draft]) -> Draft:
    """Checks in git; without a repository or git, the section is reported as not checked, which is no finding."""

    def examined() -> Draft:
        draft = Draft(name)
        try:
            if repo is not None:
                return examine(repo)
            draft.not_checked = "no repository was given"
        except (GitUnusable, NotAWorktree) as error:
            draft.not_checked = str(error)
        return draft

    return _unless_flawed(reading, name, examined)


def _if_readable(name: str, examine: Callable[[], Draft]) -> Draft:
    """A section that cannot be read is a finding, and stops no other section."""
    try:
        return examine()
    except (DiskError, OSError, GitFailed, GitUnusable) as error:
        draft = Draft(name)
        draft.findings.append(f"not checked: {error}")
        return draft


def _judge(draft: Draft, projection: Projection) -> None:
    if projection.flaw:
        draft.findings.append(f"{projection.path}: {projection.flaw}; {REPAIR}")
    elif projection.foreign:
        draft.notes.append(f"{projection.path}: {projection.foreign}; it is passed over, and written anew")


def _tasks(reading: Reading) -> Draft:
    draft = Draft("tasks", tasks=len(reading.state.tasks))
    _judge(draft, reading.tasks)
    return draft


def _intents(reading: Reading, owner: Holder | None) -> Draft:
    still_open = reading.pairing.open_intents()
    draft = Draft("intents", intents=reading.intents, open=len(still_open))
    _judge(draft, reading.index)
    for intent in still_open:
        what = f"{intent.entry.decision_type} of task {intent.entry.inputs.get('task')}"
        place = f"entry {intent.entry.seq} of run {intent.run}"
        if owner is not None and owner.run in reading.recovered_runs and intent.run != owner.run:
            draft.findings.append(f"{what} ({place}) is open, though run {owner.run} has recovered; stop it, and {RUN}")
        else:
            draft.pending.append(f"{what} ({place}) is open, and nobody owns the data root; {RUN}")
    if owner is not None:
        # The owner may be working on each of them right now.
        draft.pending.clear()
    return draft


def _idempotency(reading: Reading) -> Draft:
    draft = Draft("idempotency", keys=len(reading.pairing.executed()))
    _judge(draft, reading.keys)
    draft.findings += [f"{words}; {LOOK}" for words in reading.keys_repeated]
    return draft


def _closings(reading: Reading) -> Draft:
    draft = Draft(
        "closings",
        intents_closed=reading.closings,
        tasks_closed=reading.count_of("task_closed"),
        landings=reading.count_of("task_land_confirmed"),
    )
    draft.findings += [f"{words}; {LOOK}" for words in reading.facts_repeated]
    if reading.intents != reading.closings + len(reading.pairing.open_intents()):
        draft.findings.append(f"the numbers of intents and closings do not agree; {LOOK}")
    return draft


def _witnesses(reading: Reading, layout: Layout, repo: Path | None) -> Draft:
    """The files beside the journal were written after it, and so must not know more than the journal."""
    draft = Draft("witnesses")
    end = reading.chain.end.ref if reading.chain.end else None
    asked = repo if repo is not None and repo.is_dir() and shutil.which("git") else None
    found = witnesses.contradictions(layout, reading.state, end, read_holder(layout.lock), asked)
    way = "put the newer journal back, or type `holdfast resolve --journal-restored`"
    draft.passing += [f"the journal is older than this: {words}; {way}" for words in found]
    return draft


# -- files beside the journal -----------------------------------------------------------------------------------------


def _backlog(reading: Reading, backlog: BacklogFolder, blobs: Blobs) -> Draft:
    tasks, scan = reading.state.tasks, backlog.scan()
    drifts = drift_of(tasks, scan)
    if drifts:
        # A person may have moved a file just then: only what both scans show counts.
        scan = backlog.scan()
        again = drift_of(tasks, scan)
        drifts = [drift for drift in drifts if drift in again]
    new = [name for name in [*scan.tasks, *scan.moved] if name not in tasks]
    draft = Draft("backlog", files=len(scan.tasks) + len(scan.moved), new=len(new), problems=len(scan.problems))
    by_git = _by_git(drifts, tasks, backlog, blobs) if drifts else []
    for drift in drifts:
        if drift.kind == "missing" and not pinned_text(tasks[drift.task], blobs):
            draft.passing.append(f"{drift.words}, and so is its copy in cas/; {RESTORE}")
        elif drift.task in scan.doubled:
            # A start does not choose between files that differ, so it cannot settle this.
            draft.passing.append(f"{drift.words}; choose one of its files, then {REPAIR}")
        elif drift not in by_git:
            draft.pending.append(f"{drift.words}; {RUN}, or {REPAIR}")
    draft.notes += [f"{drift.words}: git has it so in this checkout; {RUN}" for drift in by_git]
    draft.notes += [str(problem) for problem in scan.problems]
    draft.notes += [_to_choose(name, files, tasks.get(name)) for name, files in scan.doubled.items()]
    done = sum(file.folder in ("closed", "failed") for file in scan.tasks.values())
    if done and not reading.runs:
        draft.notes.append(
            f"there is no journal here; the next run begins one, and imports {plural(done, 'file')} of finished tasks"
        )
    draft.notes += [
        f"{file.path} was edited after {name} was {tasks[name].state}, which counts for nothing; add a new task instead"
        for name, file in scan.tasks.items()
        if name in tasks and FOLDER_OF[tasks[name].state] == "closed" and _is_edited(backlog, file, tasks[name])
    ]
    gone = [name for name in without_file(tasks, scan) if is_given_up_by_deleting(tasks[name])]
    texts = {name: pinned_text(tasks[name], blobs) for name in gone}
    away = only_away(backlog, scan, tasks, texts) if gone else []
    draft.notes += [str(problem) for problem in away]
    kept = {name for problem in away for name in problem.tasks}
    taken = swept(backlog, tasks, texts)
    for name in gone:
        if name in taken and texts[name]:
            draft.pending.append(f"the file of the task {name} is gone with its folder or a stash; {RUN}")
        elif name not in kept:
            draft.notes.append(f"the file of the task {name} was deleted, which cancels it; {RUN}")
    return draft


def _by_git(drifts: list[Drift], tasks: Mapping[str, Task], backlog: BacklogFolder, blobs: Blobs) -> list[Drift]:
    """The drifts that a checkout explains: the backlog is versioned, and the journal is not."""
    lost = {drift.task: pinned_text(tasks[drift.task], blobs) for drift in drifts if drift.kind == "missing"}
    if not backlog.folder.is_dir():
        return []
    taken, brought = carried_off(backlog, tasks, lost), as_checked_out(backlog.folder)
    return [drift for drift in drifts if (drift.task in taken if drift.task in lost else drift.file in brought)]


def _to_choose(name: str, files: Sequence[TaskFile], task: Task | None) -> str:
    """Says how a person settles several differing files of one task; nobody else can."""
    folder = FOLDER_OF[task.state] if task is not None else "open"
    kept = min(files, key=lambda file: (len(_drift_of_file(file, task, folder)) if task else 0, file.folder != folder))
    rest = shlex.join(str(file.path) for file in files if file.path != kept.path)
    sentence = f"{name} has {len(files)} files that differ, and is not worked on until there is one"
    return f"{sentence}: put what counts of them into {kept.path}, then type `rm {rest}`"


def _is_edited(backlog: BacklogFolder, file: TaskFile, task: Task) -> bool:
    try:
        return sha256(backlog.bare(file)).hexdigest() != task.definition
    except TaskFileChanged:
        # It is being written right now, and the next check sees the result.
        return False


def drift_of(tasks: Mapping[str, Task], scan: BacklogScan) -> list[Drift]:
    """The files that are not where, or not as, the journal says, without what a person may do to them."""
    missing, drifts = set(without_file(tasks, scan)), []
    for name, task in tasks.items():
        folder = FOLDER_OF[task.state]
        if name in scan.moved:
            places = " and ".join(file.folder for file in scan.moved[name])
            drifts.append(
                Drift(name, "place", f"the file of {name} ({task.state}) stands in {places}, not in {folder}")
            )
        elif name in scan.tasks:
            drifts += _drift_of_file(scan.tasks[name], task, folder)
        elif name in scan.doubled:
            # A person has to say which of them is the task; still, one of them must be as the journal says.
            each = [_drift_of_file(file, task, folder) for file in scan.doubled[name]]
            drifts += min(each, key=lambda found: [drift.kind for drift in found])
        elif name in missing and not is_given_up_by_deleting(task):
            drifts.append(Drift(name, "missing", f"the file of {name} ({task.state}) is missing from {folder}"))
    return drifts


def _drift_of_file(file: TaskFile, task: Task, folder: str) -> list[Drift]:
    # A file from an issue tracker stays in its own folder until work on it begins.
    if file.folder != folder and not (file.folder == "issues" and folder == "open"):
        words = f"{file.path} stands in {file.folder}, and {task.id} is {task.state}, which belongs in {folder}"
        return [Drift(task.id, "place", words, f"{file.folder}/{file.path.name}")]
    if not shows_state(file.definition, task):
        words = f"{file.path} does not show what the journal says of {task.id}"
        return [Drift(task.id, "block", words, f"{file.folder}/{file.path.name}")]
    return []


def _blobs(reading: Reading, blobs: Blobs) -> Draft:
    draft = work.blobs(reading.recorded, blobs)
    if reading.flaw is not None:
        draft.not_checked = "only those were that the journal names before its damage"
    return draft
