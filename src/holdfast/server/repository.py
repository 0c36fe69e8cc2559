"""Reports what only the repository shows: landings that are not on their branch any more, locks of dead runs, and what
worktrees take of the disk.

Git is asked at most once in LOOK_S, the disk in DISK_LOOK_S, and only by requests that run in a thread of the pool.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

import msgspec

from holdfast.clock import monotonic
from holdfast.engine.context import RunContext
from holdfast.errors import HoldfastError
from holdfast.git import lock_files
from holdfast.landing.lost_landings import shown
from holdfast.landing.refresh import left_words
from holdfast.preparation import disk_use
from holdfast.preparation.disk_use import DiskUse

LOOK_S = 5.0
DISK_LOOK_S = 60.0
# The server owns the data root, so a run starts only when the server has ended.
RUN = "holdfast stop, then holdfast run"


class LostRow(msgspec.Struct, frozen=True):
    """A landing that is not on its branch any more. `next_step`: what to type."""

    task: str
    why: str
    next_step: str


class LockRow(msgspec.Struct, frozen=True):
    """A lock with which a run that died keeps git from committing. `next_step`: what to type."""

    path: str
    why: str
    next_step: str


class RepositoryStatus:
    """The newest answer; `refresh` renews it. Where git cannot be asked, the answer before stays."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._looked: tuple[float, tuple[str, ...]] | None = None
        self.lost: Mapping[str, LostRow] = {}
        self.locks: tuple[LockRow, ...] = ()
        self._disk: tuple[float, DiskUse] | None = None

    def disk_use(self) -> DiskUse:
        context = self._context
        with self._lock:
            if self._disk is None or monotonic() - self._disk[0] >= DISK_LOOK_S:
                self._disk = monotonic(), disk_use.measure(context.layout, context.config.disk_free_min)
            return self._disk[1]

    def refresh(self) -> None:
        landed = [task for task in list(self._context.ledger.state.tasks.values()) if task.landing.commit]
        commits = tuple(task.landing.commit for task in landed)
        with self._lock:
            if self._looked is not None and self._looked[1] == commits and monotonic() - self._looked[0] < LOOK_S:
                return
            try:
                lost = shown(self._context.repo, landed, self._context.layout) if landed else {}
                locks = lock_files.left_on_indexes(self._context.repo)
            except (HoldfastError, OSError):
                return
            steps = {name: RUN if told.next_step == "holdfast run" else told.next_step for name, told in lost.items()}
            self.lost = {name: LostRow(name, told.why, steps[name]) for name, told in lost.items()}
            self.locks = tuple(LockRow(str(lock), left_words(lock), RUN) for lock in locks)
            self._looked = monotonic(), commits
