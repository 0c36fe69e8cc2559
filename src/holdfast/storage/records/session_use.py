"""How much one conversation of an agent has used, over all attempts of its task, and whether that is enough."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.domain.attempt_records import Ending
from holdfast.domain.task_record import Task, is_answered_start
from holdfast.domain.wording import plural
from holdfast.layout import Attempt, Layout
from holdfast.storage.records import attempt_folder, ledger

# An attempt that was started so often stays in its conversation, however long: otherwise an agent that needs more turns
# than `session_turns_max` to find its way would begin new ones for ever.
ROTATED_STARTS_MAX = 50


class SessionUse(NamedTuple):
    turns: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float = 0.0

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out


def session_use(layout: Layout, task: str, attempts: int, session: str) -> SessionUse:
    """Counts what the attempts' own files say of the conversation; nothing for a start that begins one."""
    turns, tokens_in, tokens_out, usd = 0, 0, 0, 0.0
    for number in range(1, attempts + 1) if session else ():
        files = layout.attempt_files(f"{task}.{number}")
        turns += sum(1 for _ in _of_session(files.turns, session))
        for record in _of_session(files.spend, session):
            tokens_in += record["tokens_in"]
            tokens_out += record["tokens_out"]
            usd += record["usd"]
    return SessionUse(turns, tokens_in, tokens_out, usd)


def _of_session(path: Path, session: str) -> Iterator[dict[str, Any]]:
    lines = ledger.LineLedger(path).read() if path.exists() else ()
    return (line.record for line in lines if line.record.get("session") == session)


def full_session(used: SessionUse, turns_max: int | None, tokens_max: int | None) -> str:
    """The reason why a conversation is not resumed any more, as a part of a sentence; empty where it may be."""
    if turns_max is not None and used.turns >= turns_max:
        return f"the conversation has had {plural(used.turns, 'turn')}, and session_turns_max is {turns_max:,}"
    if tokens_max is not None and used.tokens >= tokens_max:
        return f"the conversation has taken {used.tokens:,} tokens, and session_tokens_max is {tokens_max:,}"
    return ""


def is_rotating(task: Task) -> bool:
    """Whether its attempt may still begin another conversation."""
    return task.start.number < ROTATED_STARTS_MAX


def rotation(layout: Layout, task: Task, turns_max: int | None, tokens_max: int | None) -> str:
    """The reason why the task's conversation is not resumed by its next start; empty where it is, or there is none."""
    if not task.session or (turns_max, tokens_max) == (None, None) or not is_rotating(task):
        return ""
    if is_answered_start(task):  # Only the conversation that asked knows what the answer is to.
        return ""
    return full_session(session_use(layout, task.id, task.attempts, task.session), turns_max, tokens_max)


def left(most: int | None, used: int | None) -> int | None:
    """What is left of a limit; None: no limit."""
    return None if most is None or used is None else max(0, most - used)


def idle_turns(files: Attempt) -> int:
    """The turns that changed no file at the end of a conversation that was long enough: an agent that does nothing but
    find its way again in each conversation is ended as one that goes in circles."""
    before = attempt_folder.last_exit(files)
    if before is None or before.ending is not Ending.SESSION_FULL or not files.turns.exists():
        return 0
    lines = [line.record for line in ledger.LineLedger(files.turns).read()]
    return sum(1 for _ in itertools.takewhile(lambda line: not line.get("changed"), reversed(lines)))
