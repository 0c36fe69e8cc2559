"""What the fold makes of the beginning of a run, beside its epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.domain.entries import AuditNoted, EntryLike, RunStarted
from holdfast.domain.task import TaskState

if TYPE_CHECKING:
    from holdfast.domain.state import State

_OVER = {TaskState.CLOSED, TaskState.CANCELLED}


def start(state: State, started: RunStarted) -> None:
    if started.audit is not None or started.audit_lost:
        state.audit = started.audit
    if started.restored:
        for task in state.tasks.values():
            task.restored = task.state not in _OVER


def note_audit(state: State, entry: EntryLike, noted: AuditNoted) -> None:
    state.audit = noted
