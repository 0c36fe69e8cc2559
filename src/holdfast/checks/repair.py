"""Rebuilds projections, and nothing else: the three checkpoint files, each attempt's `state.json`, and the place and
the block of the backlog's files.

It owns the data root meanwhile but begins no run: the journal stays as it is, byte for byte. A damaged journal is
refused, because whatever is built from it would be wrong. A damaged projection is kept in `quarantine/`, beside a file
with the reason, before it is replaced.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from holdfast.backlog.sync import block_of
from holdfast.checks.check import drift_of
from holdfast.checks.projections import Reading
from holdfast.checks.witnesses import expect_whole_root
from holdfast.clock import wall
from holdfast.domain.task import FOLDER_OF
from holdfast.engine import turn_follower
from holdfast.errors import HoldfastError
from holdfast.layout import Layout
from holdfast.ports import BacklogFolder
from holdfast.storage.audit.from_journal import without_run
from holdfast.storage.files.quarantine import set_aside
from holdfast.storage.journal import checkpoint
from holdfast.storage.journal.lock import DataLock
from holdfast.storage.journal.reader import Chain
from holdfast.storage.journal.writer import epoch_of, run_id
from holdfast.storage.records.blobs import Blobs


class Repaired(msgspec.Struct, frozen=True):
    """The result of a repair. `quarantined` are paths; `left` says which tasks' files could not be mended, and why."""

    quarantined: list[str]
    rebuilt: list[str]
    moved: list[str]
    put_back: list[str]
    left: list[str]


@contextlib.contextmanager
def holding(layout: Layout, repo: Path | None, clock: Callable[[], float] = wall) -> Iterator[None]:
    """Owns the data root without a run of its own, for work that changes no decision. Raises Locked, JournalShorter."""
    runs = Chain(layout.wal).runs()
    epoch_min = epoch_of(runs[-1].run) if runs else 0
    with DataLock.acquire(layout.lock, lambda epoch: run_id(epoch, clock()), epoch_min):
        expect_whole_root(layout, repo)
        yield


def repair(
    layout: Layout,
    backlog: BacklogFolder,
    *,
    repo: Path | None = None,
    clock: Callable[[], float] = wall,
    say: Callable[[str], None] = lambda line: None,
    key_path: Path | None = None,
) -> Repaired:
    with holding(layout, repo, clock):
        Chain(layout.wal).settle()
        reading = Reading(layout)
        if reading.flaw is not None:
            raise reading.flaw
        with without_run(layout, "repair", say, clock, key_path) as facts:
            repaired = _rebuild(layout, backlog, reading)
            facts.update({name: len(items) for name, items in msgspec.structs.asdict(repaired).items()})
        return repaired


def _rebuild(layout: Layout, backlog: BacklogFolder, reading: Reading) -> Repaired:
    damaged = [projection for projection in reading.projections if projection.flaw]
    quarantined = [str(set_aside(layout.quarantine, each.path, each.flaw)) for each in damaged]
    rebuilt = []
    if reading.chain.end is not None:
        files = checkpoint.Files(layout.tasks, layout.uncommitted, layout.idempotency)
        checkpoint.write(reading.chain, files, reading.chain.end, reading.state, reading.pairing)
        rebuilt = [str(path) for path in (files.tasks, files.uncommitted, files.idempotency)]
    drifts = drift_of(reading.state.tasks, backlog.scan())
    left = []
    for drift in drifts:
        task = reading.state.tasks[drift.task]
        folder = FOLDER_OF[task.state]
        try:
            if drift.kind == "missing":
                backlog.add(Blobs(layout.cas).get(task.definition), task.id, folder)
            backlog.move(task.id, folder, block_of(task))
        except HoldfastError as error:
            left.append((drift, f"{drift.task}: {error}"))
    mended = [drift for drift in drifts if drift not in [each for each, _ in left]]
    moved = [drift.task for drift in mended if drift.kind != "missing"]
    put_back = [drift.task for drift in mended if drift.kind == "missing"]
    for task in (task for task in reading.state.tasks.values() if task.start.number):
        # state.json of the attempt that the task is in, or was in last.
        attempt = layout.attempt_files(task.attempt.id)
        if turn_follower.project(attempt, turn_follower.as_file(task)):
            rebuilt.append(str(attempt.state))
    return Repaired(quarantined, rebuilt, moved, put_back, [words for _, words in left])
