"""Reads the results of an attempt's gates: for people, with the end of their output, and as feedback for the agent."""

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
# How much of it the agent gets.
TAIL_LINES, FILES_SHOWN_MAX = 200, 100
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


# -- for the next attempt ---------------------------------------------------------------------------------------------


def feedback(verdict: GateVerdict, blobs: Blobs) -> str:
    """The feedback for the agent when it is resumed."""
    parts = [f"Your work was not taken: {verdict.detail}."]
    files = "\n".join(f"  {name}" for name in verdict.files[:FILES_SHOWN_MAX])
    if len(verdict.files) > FILES_SHOWN_MAX:
        files += f"\n  … and {len(verdict.files) - FILES_SHOWN_MAX} more"
    match verdict.kind:
        case "conflict":
            parts.append(f"These files were changed by you and by what landed since you began:\n{files}")
            parts.append(
                "Your worktree is now at the newest target, with your work merged into it. Look for the conflict "
                "markers (<<<<<<<, =======, >>>>>>>), keep what both sides meant, remove the markers, and test again."
            )
        case "conflict_markers":
            parts.append(f"These files still have the markers of a conflict (<<<<<<<, =======, >>>>>>>):\n{files}")
            parts.append("Keep what both sides meant, remove the markers, and test again.")
        case "paths_violated":
            parts.append(f"These files must stay as they are in the target:\n{files}")
            parts.append("Undo your changes to them, and reach the goal within the paths that the task allows.")
        case "empty_change" | "no_candidate":
            parts.append("Change the files in your worktree so that the goal is reached; they are what is judged.")
    parts += [_gate_feedback(result, blobs) for result in verdict.results if result.outcome in _NOT_PASSED]
    if verdict.kind in ("gate_failed", "gate_timed_out"):
        parts.append("Mend the cause in your worktree. Do not weaken the check itself.")
    return "\n\n".join(parts) + "\n"


def _gate_feedback(result: GateRun, blobs: Blobs) -> str:
    advisory = "" if result.required else " (advisory: it does not stop the landing)"
    end = "was ended after" if result.outcome == "timed_out" else f"ended with code {result.code} after"
    head = f"Gate {result.name}{advisory}: `{shown_command(result.command)}` {end} {result.seconds:.1f} s."
    lines = output_lines(blobs, result)
    if not lines:
        is_there = not result.output or blobs.has(result.output)
        return f"{head} {'It printed nothing.' if is_there else 'Its output is no longer there.'}"
    return "\n".join((f"{head} The end of its output:", *lines[-TAIL_LINES:]))
