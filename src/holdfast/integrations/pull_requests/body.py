"""The texts of a pull request: its description, and the answers to comments. Pure.

Each has a hidden line of ours with a key. By it the service is asked whether it has the text already, and comments of
our own are told from those of people.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.domain.definition import Definition
from holdfast.domain.pull_requests.pull_decisions import MARK
from holdfast.domain.task_record import Task
from holdfast.domain.wording import money, plural

BODY_CHARS_MAX, GOAL_CHARS_MAX, WORDS_CHARS_MAX, TITLE_MAX = 30_000, 12_000, 1_500, 120


class GateLine(msgspec.Struct, frozen=True):
    """A gate and how it ended."""

    name: str
    outcome: str
    seconds: float


def mark(key: str) -> str:
    """The hidden line. Two dashes in a row would end the comment early."""
    return f"{MARK}{key.replace('--', '-=')} -->"


def pull_title(task: str, made: Definition) -> str:
    first = ((made.title or "").strip() or (made.goal or "").strip() or task).splitlines()[0]
    words = " ".join(first.split())
    return words if len(words) <= TITLE_MAX else words[: TITLE_MAX - 1].rstrip() + "…"


def pull_body(made: Definition, task: Task, gates: Sequence[GateLine], *, round_number: int, marks: str) -> str:
    """Goal, verdicts, turns and cost, and the hidden lines."""
    goal = cut((made.goal or made.title or task.id).strip(), GOAL_CHARS_MAX)
    lines = [goal, "", "---", "", "**Gates**", ""]
    lines += [f"- {_cell(each.name)}: {each.outcome}, {each.seconds:.1f} s" for each in gates] or ["- none"]
    spent = task.spent
    cost = f", {money(spent.usd)}" if spent.usd else ""
    rounds = f", {plural(round_number, 'round')} of changes" if round_number else ""
    lines += [
        "",
        f"Task `{task.id}`, attempt `{task.attempt.id}`, {plural(spent.turns, 'turn')}{cost}{rounds}.",
        "",
        marks,
    ]
    return "\n".join(lines)[:BODY_CHARS_MAX]


def reply_text(head: str, before: str, words: str, key: str) -> str:
    """What became of a comment."""
    done = f"Changed in {head}." if head != before else "Nothing was changed for this."
    said = cut(words.strip(), WORDS_CHARS_MAX)
    return "\n\n".join(filter(None, (done, said, mark(key))))


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _cell(text: str) -> str:
    return " ".join(text.split())
