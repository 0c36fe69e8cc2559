"""Finds and removes what is no longer needed. It never removes work that has not landed.

- worktrees of closed tasks, where the tree is the landed one
- worktrees of cancelled tasks, once a snapshot has their content
- snapshots of attempts of tasks that closed long ago
- neither of a task whose landed commit is no longer on its branch: they may be all that is left of it
- the worktree in which candidates are judged: the next verdict makes it again
- blobs that nothing names: neither the journal, nor any blob or file that is kept
- bodies of deliveries that came more than 30 days ago

The journal is always kept; its older runs are archived, which takes far less space. A blob counts as named wherever its
digest occurs, in any field: an unknown kind of record keeps its blobs. What is derived from the journal alone, such as
`metrics/`, names no others.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

import msgspec

from holdfast.checks.deliveries import BODY_S_KEPT
from holdfast.checks.expectations import blob_named_by
from holdfast.config.settings import Config
from holdfast.domain.definition import Definition, parse
from holdfast.domain.task import OVER, TaskState
from holdfast.domain.task_record import Task
from holdfast.errors import BlobCorrupt, BlobMissing, NotABlobId
from holdfast.landing.lost_landings import lost_landings
from holdfast.layout import Layout
from holdfast.ledgers.reader import FileLedgerReader
from holdfast.preparation.factory import preparation_of
from holdfast.preparation.preparation import Confinement, confinement_of
from holdfast.preparation.removal import NotedHooks, remove_worktree
from holdfast.preparation.setup import Setup
from holdfast.processes import sandbox
from holdfast.storage.files import disk
from holdfast.storage.journal import archive
from holdfast.storage.records import attempt_folder, blob_meta
from holdfast.storage.records.blobs import Blobs
from holdfast.worktrees import merges
from holdfast.worktrees.content import judging_worktrees
from holdfast.worktrees.factory import worktrees_of
from holdfast.worktrees.worktrees import Worktrees

DAY_S = 86_400
# The name of the snapshot of a cancelled task's worktree.
CANCELLED = "cancelled"
# A blob is put before the record that names it, also by a runner that outlives the orchestrator.
BLOB_AGE_S_MIN = DAY_S
_OF_DELIVERIES = ("delivery_received", "delivery_judged")
_DIGEST = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_CHUNK = 1 << 20
# Files beside the journal that name blobs.
_NAMING = ("attempts/*/*.json", "backlog/*/*", "audit/*", "plans/**/*", "memory/**/*")


class Garbage(msgspec.Struct, frozen=True):
    """One thing to remove. `bytes`: the space it frees; of snapshots this is unknown before they are gone."""

    kind: str
    name: str
    bytes: int


class Collector:
    def __init__(
        self,
        repo: Path,
        layout: Layout,
        config: Config,
        tasks: Iterable[Task],
        *,
        clock: Callable[[], float],
        note: Callable[[str, str], None],
    ) -> None:
        self._repo, self._layout, self._config, self._tasks, self._clock = repo, layout, config, list(tasks), clock
        self._trees = trees = worktrees_of(repo, layout, config)
        self._blobs = blobs = Blobs(layout.cas)
        setup = Setup(layout, config, blobs, trees)
        self._hooks = NotedHooks(preparation_of(repo, layout, config, blobs, worktrees=trees, setup=setup), note)

    # -- finding ------------------------------------------------------------------------------------------------------

    def find(self, keep_days: float) -> Iterator[Garbage]:
        yield from self._worktrees()
        for path in sorted([*judging_worktrees(self._layout), *self._layout.worktrees.glob(".gone-*")]):
            if os.path.lexists(path):
                yield Garbage("scratch", path.name, _size(path))
        yield from (Garbage("snapshots", attempt, 0) for attempt in self._refs(keep_days))
        yield from self._unnamed_blobs()

    def _closed(self) -> Iterator[Task]:
        closed = (task for task in self._tasks if task.state is TaskState.CLOSED)
        return (task for task in closed if task.landing.commit and task.candidate)

    def _worktrees(self) -> Iterator[Garbage]:
        for task in self._closed():
            path = self._trees.path(task.id)
            if not path.is_dir() or task.id in self._lost:
                continue
            if self._trees.is_spent(task.id, landed=task.candidate):
                yield Garbage("worktree", task.id, _size(path))
        for task in self._tasks:
            if is_left_by_cancelling(self._layout, self._trees, task):
                yield Garbage("worktree", task.id, _size(self._trees.path(task.id)))

    def _refs(self, keep_days: float) -> dict[str, dict[str, str]]:
        """The refs of each attempt that may be removed, with their commits."""
        before = self._clock() - keep_days * DAY_S
        old = {task.id: task for task in self._closed() if task.changed_at < before}
        if not old:
            return {}
        found: dict[str, dict[str, str]] = {}
        for ref, commit in self._trees.store.refs("refs/").items():
            attempt = ref.split("/")[2] if ref.count("/") >= 2 else ""
            if attempt.rpartition(".")[0] in old:
                found.setdefault(attempt, {})[ref] = commit
        # What unfinished tasks begin with or have made: it may come from another task's attempt.
        open_tasks = [task for task in self._tasks if task.state not in OVER]
        needed = {each for task in open_tasks for each in (task.attempt.base, task.candidate, task.landing.verified)}
        return {
            attempt: refs
            for attempt, refs in found.items()
            if attempt.rpartition(".")[0] not in self._lost and needed.isdisjoint(refs.values())
        }

    @functools.cached_property
    def _lost(self) -> Collection[str]:
        """The tasks whose branch does not lead to their landing: their snapshots may be all that is left of it."""
        return lost_landings(self._repo, self._closed(), self._layout.snapshots)

    # -- the journal --------------------------------------------------------------------------------------------------

    def runs_to_archive(self, keep: int) -> list[str]:
        return [file.run for file in archive.to_archive(self._layout.wal, keep)]

    def archive_runs(self, keep: int) -> tuple[list[str], int]:
        """Archives all runs but the `keep` newest; returns them, and the space that this freed."""
        before = _size(self._layout.wal)
        runs = archive.archive_ended_runs(self._layout.wal, keep)
        return runs, max(before - _size(self._layout.wal), 0)

    # -- blobs --------------------------------------------------------------------------------------------------------

    def _unnamed_blobs(self) -> Iterator[Garbage]:
        # Listed first: a blob that is put while we look for names is not in the list.
        there = list(self._blobs.digests())
        named = self._named(set(there)) if there else set()
        for digest in there:
            path = self._blob(digest)
            if digest not in named and self._clock() - path.stat().st_mtime > BLOB_AGE_S_MIN:
                yield Garbage("blob", digest, _size(path) + _size(blob_meta.path_of(path)))

    def _named(self, there: set[str]) -> set[str]:
        """Every blob whose digest occurs in the journal, in a file that names some, or in a blob so named."""
        todo = [digest for digest in self._first_names() if digest in there]
        named: set[str] = set()
        while todo:
            digest = todo.pop()
            if digest not in named:
                named.add(digest)
                todo += [found for found in _digests_in(self._blob(digest)) if found in there]
        return named

    def _first_names(self) -> Iterator[str]:
        for _, entry in FileLedgerReader(self._layout).read():
            # The key of a judgement may have the body's digest.
            if entry.decision_type in _OF_DELIVERIES and entry.timestamp < self._clock() - BODY_S_KEPT:
                continue
            yield blob_named_by(entry)[0]
            yield from map(bytes.decode, _DIGEST.findall(msgspec.json.encode([entry.inputs, entry.output])))
        for pattern in _NAMING:
            for path in self._layout.root.glob(pattern):
                yield from _digests_in(path)

    def _blob(self, digest: str) -> Path:
        return self._layout.cas / digest[:2] / digest

    def _kept(self, task: Task) -> str:
        """Saves a cancelled task's worktree as a snapshot; returns a commit of the same tree."""
        attempt = task.attempt
        taken = self._trees.snapshots(task.id, attempt.base).take(attempt.id, CANCELLED, large="leave_out").commit
        who = merges.GitAuthor("holdfast", "holdfast@localhost")
        # A worktree with a nested repository, or a file that is too large, is not the same tree, and so it is kept.
        store, exclude = self._trees.store, self._trees.exclude
        made = merges.candidate(store, attempt.base, taken, "cancelled", who, exclude=exclude, leaves_nested=True)
        return made or attempt.base

    # -- removing -----------------------------------------------------------------------------------------------------

    def remove(self, keep_days: float) -> list[Garbage]:
        """Removes what `find` finds, and returns what is gone. The caller owns the data root."""
        gone, refs = [], self._refs(keep_days)
        for each in list(self.find(keep_days)):
            match each.kind:
                case "worktree":
                    task = next(task for task in self._tasks if task.id == each.name)
                    held = self._kept(task) if task.state is TaskState.CANCELLED else task.candidate
                    if not self._remove_worktree(task, held):
                        continue
                case "scratch":
                    self._trees.drop_scratch()
                case "snapshots":
                    self._trees.store.forget(refs[each.name])
                case "blob":
                    disk.unlink(self._blob(each.name), missing_ok=True)
                    disk.unlink(blob_meta.path_of(self._blob(each.name)), missing_ok=True)
            gone.append(each)
        if any(each.kind == "snapshots" for each in gone):
            self._trees.store.collect()
        return gone

    def _remove_worktree(self, task: Task, landed: str) -> bool:
        confinement = functools.partial(self._confinement, task)
        return remove_worktree(self._hooks, self._trees, task, landed=landed, confinement=confinement)

    def _confinement(self, task: Task) -> Confinement:
        """As its task had it; where its definition is lost, as the settings say."""
        config, made = self._config, None
        with contextlib.suppress(BlobMissing, BlobCorrupt, NotABlobId):
            made = parse(self._blobs.get(task.attempt.worked_on or task.definition), task.id)
        own = made.sandbox if isinstance(made, Definition) else ""
        return confinement_of(config, sandbox.resolved(own or config.sandbox))


def is_left_by_cancelling(layout: Layout, trees: Worktrees, task: Task) -> bool:
    """Whether the worktree of a cancelled task exists whole, and no process works in it."""
    if task.state is not TaskState.CANCELLED or not task.attempt.id or not task.attempt.base:
        return False
    if not trees.path(task.id).is_dir() or not trees.is_made(task.id):
        return False
    seen = attempt_folder.liveness(layout.attempt_files(task.attempt.id), task.start.number, task.start.intent)
    return seen not in (attempt_folder.Liveness.ALIVE, attempt_folder.Liveness.HEADLESS)


def _digests_in(path: Path) -> Iterator[str]:
    """Reads in pieces that overlap, so that no digest is missed at a seam."""
    try:
        with open(path, "rb") as file:
            rest = b""
            while chunk := file.read(_CHUNK):
                text = rest + chunk
                yield from map(bytes.decode, _DIGEST.findall(text))
                rest = text[-65:]
    except (IsADirectoryError, FileNotFoundError):
        return


def _size(path: Path) -> int:
    """The space it takes on disk."""
    try:
        own = path.lstat().st_blocks * 512
    except OSError:
        return 0
    if not path.is_dir() or path.is_symlink():
        return own
    return own + sum(_size(Path(entry.path)) for entry in os.scandir(path))
