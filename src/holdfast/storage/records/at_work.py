"""The agents at work now, from their attempts' folders. For read-only commands, so nothing slow is loaded.

Reads an attempt's ledgers as plain lines; a line that is not whole yet is left for the next read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from holdfast.domain.task import AT_WORK
from holdfast.domain.task_record import Task, open_questions
from holdfast.domain.wording import given_words
from holdfast.layout import Attempt, Layout
from holdfast.storage.files import plain
from holdfast.storage.files.json_file import decode_json, read_json

# Enough for the last few events of an agent; one long output may hide the tool before it.
TAIL_BYTES = 1 << 16


class AtWork(msgspec.Struct, frozen=True, kw_only=True):
    """One agent. `turn` is the one that it is in; `usd` and `tokens` are the task's so far; `since` in Unix seconds.

    `tool` is the last one; `tool_runs` says whether it still runs. `retrying`: the reason why the agent only retries
    its model call; empty where it does not.
    """

    task: str
    attempt: str
    agent: str
    turn: int
    tool: str
    usd: float
    tokens: int
    since: float
    tool_runs: bool = False
    # The start has ended or died, and no run has applied its result yet.
    ended: bool = False
    retrying: str = ""
    # The id of the question for which it waits, as a process: then it is not at work.
    asks: str = ""


def at_work(layout: Layout, tasks: Iterable[Task]) -> list[AtWork]:
    """Also those that wait for an answer: their processes live."""
    found = [agent_at_work(layout.attempt_files(task.attempt.id), task) for task in tasks if task.state in AT_WORK]
    return sorted(found, key=lambda each: each.task)


def agent_at_work(files: Attempt, task: Task) -> AtWork:
    """Counts turns that are not journalled yet, too: an agent continues while no run is alive."""
    ahead = [line for line in lines_from(files.turns, task.attempt.offset) if line.get("turn", 0) > task.attempt.turn]
    turn = max([task.attempt.turn, *(int(line["turn"]) for line in ahead)])
    tool, runs = last_tool(files)
    return AtWork(
        task=task.id,
        attempt=task.attempt.id,
        agent=task.claim.agent,
        turn=turn + 1,
        tool=tool,
        usd=task.spent.usd + sum(line.get("usd", 0.0) for line in ahead),
        tokens=task.spent.tokens + sum(line.get("tokens", 0) for line in ahead),
        since=task.changed_at,
        tool_runs=runs,
        ended=not task.claim.remote and has_ended(files, task.start.number),
        retrying=retrying(files),
        asks=next((each.id for each in open_questions(task)), ""),
    )


def has_ended(files: Attempt, start: int) -> bool:
    """Whether the start wrote its exit, or no process holds its lock; a start without a file has not begun yet."""
    if (read_json(files.exit, dict[str, Any]) or {}).get("start") == start:
        return True
    return files.start(start).exists() and plain.is_free(files.alive)


def last_tool(files: Attempt) -> tuple[str, bool]:
    """The running tool, or else the last one, with the beginning of its input; and whether it runs."""
    running: dict[str, str] = {}
    start, last = 0, ""
    for event in tail(files.events):
        kind, call = event.get("type"), str(event.get("call", ""))
        # A tool that ran when a start ended, or another began, no longer runs.
        if kind == "ended" or event.get("start") != start:
            running.clear()
        start = event.get("start", 0)
        if kind == "tool_started":
            last = f"{event.get('name', '')} {given_words(str(event.get('input', '')))}".strip()[:200]
            running[call] = last
        elif kind == "tool_ended" and running:
            # A stream may name a call at its end only, or not at all: then it is the one that began first.
            other = "" if call else next(iter(running))
            running.pop(call if call in running else other, None)
    return next(reversed(running.values()), last), bool(running)


def retrying(files: Attempt) -> str:
    """The detail of the agent's last event, if that is a retry."""
    last: dict[str, Any] = {}
    for event in tail(files.events):
        last = event
    if last.get("type") != "retrying":
        return ""
    return str(last.get("detail", "")).strip()[:200] or "it does not say why"


def tail(path: Path) -> Iterator[dict[str, Any]]:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return iter(())
    return lines_from(path, max(0, size - TAIL_BYTES))


def lines_from(path: Path, offset: int) -> Iterator[dict[str, Any]]:
    """The records behind the offset; skips lines that are cut, or no record."""
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
                if (record := decode_json(line, dict[str, Any])) is not None:
                    yield offset, record
    except FileNotFoundError:
        return


def clock(seconds: float) -> str:
    """`2:05` or `1:02:05`."""
    whole = max(0, int(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
