"""The agents that work now, as their attempts' folders show them. For who only looks, so nothing slow is loaded.

An attempt's ledgers are read as plain lines: what is no whole line yet is left for the next look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from holdfast.domain.state import Task
from holdfast.domain.task import TaskState
from holdfast.layout import Attempt, Layout

STATES = {TaskState.CLAIMED, TaskState.IN_PROGRESS}
# Enough for the last few events of an agent; one long output may hide the tool before it.
TAIL_BYTES = 1 << 16
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class AtWork(msgspec.Struct, frozen=True):
    """One agent. `turn` is the one that it is in; `usd` and `tokens` are the task's so far; `since` in Unix seconds."""

    task: str
    attempt: str
    agent: str
    turn: int
    tool: str
    usd: float
    tokens: int
    since: float


def at_work(layout: Layout, tasks: Iterable[Task]) -> list[AtWork]:
    found = [glance(layout.attempt_files(task.attempt), task) for task in tasks if task.state in STATES]
    return sorted(found, key=lambda each: each.task)


def glance(files: Attempt, task: Task) -> AtWork:
    """Turns that nobody has journalled yet count, too: an agent works on while no run is alive."""
    ahead = [line for line in lines_from(files.turns, task.offset) if line.get("turn", 0) > task.turn]
    turn = max([task.turn, *(int(line["turn"]) for line in ahead)])
    return AtWork(
        task.id,
        task.attempt,
        task.agent,
        turn + 1,
        last_tool(files),
        task.usd + sum(line.get("usd", 0.0) for line in ahead),
        task.tokens + sum(line.get("tokens", 0) for line in ahead),
        task.changed_at,
    )


def last_tool(files: Attempt) -> str:
    """The tool that was called last, with the beginning of what it was called with."""
    events = list(tail(files.events))
    for event in reversed(events):
        if event.get("type") == "tool_started":
            return f"{event.get('name', '')} {event.get('input', '')}".strip()[:200]
    return ""


def tail(path: Path) -> Iterator[dict[str, Any]]:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return iter(())
    return lines_from(path, max(0, size - TAIL_BYTES))


def lines_from(path: Path, offset: int) -> Iterator[dict[str, Any]]:
    """The records behind the offset; a line that is cut, or no record, is passed over."""
    for _, record in numbered_from(path, offset):
        yield record


def numbered_from(path: Path, offset: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each record behind the offset, with the offset of its end."""
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                offset += len(line)
                try:
                    record = _decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    continue
                yield offset, record
    except FileNotFoundError:
        return


def clock(seconds: float) -> str:
    """`2:05` or `1:02:05`."""
    whole = max(0, int(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
