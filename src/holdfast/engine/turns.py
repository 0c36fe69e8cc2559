"""Following an attempt: each line of its `turns.jsonl` becomes one `turn_completed`, and then `state.json`.

The journal's own offset says where to go on, and a turn that it knows is passed over: following again from anywhere
doubles nothing. A line is settled before it is journalled, so the journal never names what a power cut could take.
"""

from __future__ import annotations

import msgspec

from holdfast.domain.attempt import TurnLine
from holdfast.domain.state import Task
from holdfast.durable import disk, jsonl
from holdfast.durable.entry import Record
from holdfast.layout import Attempt, Layout
from holdfast.ports import Ledger


class AttemptState(msgspec.Struct, frozen=True):
    """state.json: an attempt at a glance, made from the journal alone."""

    task: str
    attempt: str
    state: str
    agent: str
    start: int
    turn: int
    end_offset: int
    base: str
    session: str
    usd: float
    tokens: int
    seconds: float


def follow(ledger: Ledger, layout: Layout, task: Task) -> int:
    """Journals what the attempt has completed since last time; returns how many turns."""
    files = layout.attempt_files(task.attempt)
    new = new_turns(files, task.offset, task.turn)
    if new:
        jsonl.Ledger(files.turns).settle()
        ledger.append(ledger.epoch, [_completed(task, line, end) for end, line in new])
    return len(new)


def new_turns(files: Attempt, offset: int, turn: int) -> list[tuple[int, TurnLine]]:
    """The turns behind `offset`, each with the offset of its end, but for those up to number `turn`."""
    if not files.turns.exists() or files.turns.stat().st_size <= offset:
        return []
    found = []
    for line in jsonl.Ledger(files.turns).read(offset):
        made = msgspec.convert(line.record, TurnLine)
        if made.turn > turn:
            turn = made.turn
            found.append((line.cursor, made))
    return found


def all_turns(files: Attempt) -> list[TurnLine]:
    return [line for _, line in new_turns(files, 0, 0)]


def project(layout: Layout, task: Task) -> None:
    """Writes state.json. A projection: it is made again whenever the task changes."""
    files = layout.attempt_files(task.attempt)
    content = msgspec.json.format(msgspec.json.encode(state_of(task)), indent=1) + b"\n"
    if files.root.is_dir() and (not files.state.exists() or files.state.read_bytes() != content):
        disk.replace(files.state, content)


def state_of(task: Task) -> AttemptState:
    return AttemptState(
        task.id, task.attempt, task.state, task.agent, task.starts, task.turn, task.offset, task.base, task.session,
        task.usd, task.tokens, task.seconds,
    )  # fmt: skip


def _completed(task: Task, line: TurnLine, end: int) -> Record:
    inputs = {
        "task": task.id,
        "attempt": task.attempt,
        "turn": line.turn,
        "end_offset": end,
        "snapshot": line.snapshot,
        "usd": line.usd,
        "tokens": line.tokens,
        "seconds": line.seconds,
    }
    return Record("turn_completed", inputs, actor="runner")
