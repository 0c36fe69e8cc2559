"""The hooks that ran for a task's attempts, for the command and the page. Read-only."""

from __future__ import annotations

import msgspec

from holdfast.domain.task_record import Task
from holdfast.landing import gate_results
from holdfast.layout import Layout
from holdfast.preparation import hooks
from holdfast.storage.records.blobs import Blobs


class HookRow(msgspec.Struct, frozen=True, kw_only=True):
    """One command of a hook. `is_gates`: it ran in the worktree for gates. `output` is the blob with all that it
    printed, `lines` are the last lines of that for one that failed."""

    attempt: str
    hook: str
    is_gates: bool
    at: float
    outcome: str
    seconds: float
    code: int | None
    command: str
    output: str
    lines: list[str]


def rows(layout: Layout, blobs: Blobs, task: Task, attempt: str = "") -> list[HookRow]:
    """Those of one attempt, or of all of the task's, the oldest first."""
    names = [attempt] if attempt else [f"{task.id}.{number}" for number in range(1, task.attempts + 1)]
    return [_row(blobs, name, each) for name in names for each in hooks.recorded(layout.attempt_files(name))]


def _row(blobs: Blobs, attempt: str, ended: hooks.HookRun) -> HookRow:
    told = gate_results.facts(ended.run, gate_results.shown_output(blobs, ended.run))
    return HookRow(
        attempt=attempt,
        hook=ended.hook,
        is_gates=ended.worktree.rpartition("/")[2].startswith("."),
        at=ended.at,
        outcome=told.outcome,
        seconds=told.seconds,
        code=told.code,
        command=told.command,
        output=told.blob,
        lines=told.output,
    )
