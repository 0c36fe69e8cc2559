"""The questions of agents as rows, for the command, the API and `watch`."""

from __future__ import annotations

import msgspec

from holdfast.domain.state import State
from holdfast.questions.records import Kind, Question


class QuestionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One question. `held`: its agent waits as a process. `answer` is empty while nobody has answered."""

    id: str
    task: str
    attempt: str
    turn: int
    agent: str
    kind: Kind
    tool: str
    input: str
    argument: str
    preview: str
    held: bool
    asked_at: float
    answer: str
    words: str
    by: str
    rule: str
    next_step: str


def asked(state: State, *, answered: bool = False) -> list[QuestionRow]:
    """The open questions, the oldest first; or also those with an answer that an agent may still need."""
    tasks = state.tasks.values() if answered else [state.tasks[name] for name in state.asking.copy()]
    found = [_row(each, task.claim.worked_by) for task in tasks for each in task.questions if answered or each.is_open]
    return sorted(found, key=lambda row: (row.asked_at, row.id))


def _row(question: Question, agent: str) -> QuestionRow:
    fields = msgspec.structs.asdict(question)
    step = question.answer_command if question.is_open else ""
    kept = {name: fields[name] for name in QuestionRow.__struct_fields__ if name in fields}
    return QuestionRow(**kept, agent=agent, next_step=step)
