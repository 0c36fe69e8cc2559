"""Tasks that may change nothing: a question, a review. What the agent said is their result."""

from __future__ import annotations

from holdfast.domain.task_record import Task
from holdfast.engine.context import RunContext
from holdfast.storage.records import ledger

CHARS_MAX = 20_000
# What a runner says where the agent ended without words of its own.
_WITHOUT_WORDS = ("", "The agent has finished.", "The command has finished.")


def is_answer(context: RunContext, task: Task) -> bool:
    """Whether the task may change nothing, and has changed nothing."""
    is_unchanged = not task.landed and task.candidate in ("", task.base)
    return is_unchanged and bool(context.board.worked_on(task).may_change_nothing)


def answer_of(context: RunContext, task: Task) -> str:
    """The agent's last words: those of its end, or else the last that it said, or that its command printed."""
    told = str(task.outcome.get("detail", "")).strip()
    if told in _WITHOUT_WORDS:
        traces = context.layout.attempt_files(task.attempt).traces
        records = [line.record for line in ledger.LineLedger(traces).read()] if traces.exists() else []
        said = [str(record.get("text", "")) for record in records if record.get("kind") == "said"]
        printed = [str(record["output"]) for record in records if record.get("kind") == "tool" and "output" in record]
        told = (said or printed or [""])[-1].strip()
    return told if len(told) <= CHARS_MAX else told[:CHARS_MAX] + "…"
