"""Reads the results of an attempt's gates, for people: of the last verification, with the end of their output."""

from __future__ import annotations

import msgspec

from holdfast.domain.task_record import Task
from holdfast.errors import HoldfastError
from holdfast.landing.gates import GateRun, output_lines
from holdfast.landing.verify import GateVerdict, read_verdict, shown_command
from holdfast.layout import Layout
from holdfast.storage.files.json_file import read_json
from holdfast.storage.records.blobs import Blobs

# How many of the last lines of a failed gate's output are shown beside something else.
TOLD_LINES = 6
# How many where the gates themselves are shown.
SHOWN_LINES = 20
LINE_CHARS_MAX = 300
# The prefix of a note that is a line of output.
OUTPUT = "  | "
_NOT_PASSED = ("failed", "timed_out")


class GateFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one gate. `blob` has all that it printed, `output` the lines that are shown. `told`: it was not
    run again, because a person said that it had passed."""

    name: str
    outcome: str
    required: bool
    seconds: float
    code: int | None
    command: str
    told: bool
    blob: str
    output: list[str]


def facts(result: GateRun, output: list[str]) -> GateFacts:
    command = shown_command(result.command)
    return GateFacts(
        name=result.name,
        outcome=result.outcome,
        required=result.required,
        seconds=result.seconds,
        code=result.code,
        command=command,
        told=result.told,
        blob=result.output,
        output=output,
    )


def shown_output(blobs: Blobs, result: GateRun) -> list[str]:
    """The lines that are shown by default: the last ones of a gate that did not pass."""
    return last_lines(blobs, result, SHOWN_LINES) if result.outcome in _NOT_PASSED else []


def last_verdict(layout: Layout, task: Task) -> tuple[str, GateVerdict] | None:
    """The newest attempt of the task that was judged, and its verdict."""
    attempts = (f"{task.id}.{number}" for number in range(task.attempts, 0, -1))
    return next(((attempt, found) for attempt in attempts if (found := verdict_of(layout, attempt))), None)


def verdict_of(layout: Layout, attempt: str) -> GateVerdict | None:
    return read_json(layout.attempt_files(attempt).verdict, GateVerdict, lenient=True)


def failed_output(blobs: Blobs, verdict: GateVerdict, most: int = TOLD_LINES) -> list[str]:
    """The last lines with words of the gate that stopped the landing; empty where none did."""
    broken = [each for each in verdict.results if each.required and each.outcome in _NOT_PASSED]
    return last_lines(blobs, broken[0], most, with_words=True) if broken and not verdict.passed else []


def output_of_verdict(blobs: Blobs, digest: str) -> list[str]:
    """The same for a verdict given by its blob; empty where that, or the output, is gone."""
    try:
        return failed_output(blobs, read_verdict(blobs, digest))
    except (HoldfastError, msgspec.MsgspecError):
        return []


def output_of_task(layout: Layout, blobs: Blobs, task: Task) -> list[str]:
    """The same for a task that failed because of a gate."""
    if task.outcome.get("kind") not in ("gate_failed", "gate_timed_out"):
        return []
    found = last_verdict(layout, task)
    return failed_output(blobs, found[1]) if found and found[0] == task.outcome.get("attempt") else []


def last_lines(blobs: Blobs, result: GateRun, most: int, *, with_words: bool = False) -> list[str]:
    """The last lines of its output, without empty ones at the end; `with_words` drops those without words."""
    lines = output_lines(blobs, result)
    if with_words:
        lines = [line for line in lines if any(map(str.isalnum, line))]
    while lines and not lines[-1].strip():
        lines.pop()
    return [line.rstrip()[:LINE_CHARS_MAX] for line in lines[-most:]]
