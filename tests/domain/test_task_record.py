"""What went before in a task: which turns stand after an undo, what an attempt left, and how each one ended."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.task import TaskEvent, TaskState
from holdfast.domain.task_record import DETAIL_CHARS_MAX, Task, standing
from holdfast.storage.journal.entry import Record
from kit.states import CLAIMED, folded, moves, story

S, E = TaskState, TaskEvent


@pytest.mark.parametrize(
    ("turn", "undos", "wanted"),
    [
        (3, (), [1, 2, 3]),
        (3, ((3, 1),), [1]),
        (4, ((3, 1),), [1, 4]),
        (5, ((3, 1), (5, 4)), [1, 4]),
        (4, ((3, 1), (4, 3)), [1, 2, 3]),
        (2, ((2, 0),), []),
    ],
)
def test_turns_that_were_undone_do_not_stand(turn: int, undos: tuple[tuple[int, int], ...], wanted: list[int]) -> None:
    assert standing(turn, undos) == wanted


def turn(number: int, attempt: str = "t.1") -> Record:
    inputs = {"task": "t", "attempt": attempt, "turn": number, "end_offset": number, "snapshot": f"{number}" * 40}
    return Record("turn_completed", inputs)


def undo(to: int, attempt: str = "t.1") -> Record:
    return Record("turn_undone", {"task": "t", "attempt": attempt, "turn": to, "saved": "s", "tree": f"{to}" * 40})


def told(*records: Record) -> Task:
    return folded(story("t", S.IN_PROGRESS), list(records)).tasks["t"]


def test_an_undo_goes_back_to_a_turn_and_what_comes_then_stands_on_it() -> None:
    task = told(turn(1), turn(2), turn(3), undo(1))
    assert (task.stands, task.was_put_back, task.undone, task.tree) == (1, True, 2, "1" * 40)
    task = told(turn(1), turn(2), turn(3), undo(1), turn(4))
    assert (task.stands, task.was_put_back, task.tree) == (4, False, "4" * 40)
    assert standing(task.turn, task.undos) == [1, 4]


def test_of_two_undos_after_the_same_turn_the_last_counts_and_earlier_ones_stay() -> None:
    task = told(turn(1), turn(2), turn(3), undo(2), turn(4), undo(3), undo(1))
    assert dict(task.undos) == {3: 2, 4: 1} and task.undone == 3 and task.stands == 1
    assert told(turn(1), undo(7)).undos == ((1, 1),), "nobody goes forward by an undo"


def fail(**outcome: Any) -> list[Record]:
    return moves("t", S.IN_PROGRESS, E.AGENT_REPORTS_FAILURE, outcome=outcome)


def again() -> list[Record]:
    """The next attempt begins."""
    claim = {"task": "t", "event": CLAIMED[0], "reason": "test", "attempt": "t.2", "agent": "scripted"}
    return [*moves("t", S.FAILED, E.RETRY), Record("task_claimed", claim)]


def test_leftovers_of_an_attempt_reach_the_next_one_up_to_the_turn_that_stands() -> None:
    task = told(turn(1), turn(2), *fail(kind="failed", detail="no"), *again())
    assert task.left is not None and (task.left.attempt, task.left.turn) == ("t.1", 2)
    assert (task.attempts, task.turn, task.stands, task.undos) == (2, 0, 0, ())
    task = told(turn(1), turn(2), *fail(kind="failed", detail="no"), *again(), undo(1))
    assert task.left is not None and (task.left.attempt, task.left.turn) == ("t.1", 1), "an undo of the one before"
    task = told(turn(1), turn(2), *fail(kind="failed", detail="no"), *again(), undo(1, "t.7"))
    assert task.left is not None and task.left.turn == 2, "of which nobody has heard"


def test_an_attempt_that_is_over_is_remembered_once_with_its_reason() -> None:
    task = told(turn(1), *fail(kind="failed", detail="x" * (DETAIL_CHARS_MAX + 1)))
    [past] = task.past
    assert (past.attempt, past.number, past.turn, past.kind) == ("t.1", 1, 1, "failed")
    assert past.detail == "x" * DETAIL_CHARS_MAX + "…"
    task = told(turn(1), *fail(kind="failed", detail="no"), undo(0))
    [past] = task.past
    assert past.undos == ((1, 0),) and past.detail == "no", "an undo behind its end is part of it"
    task = told(turn(1), *fail(kind="failed", detail="no"), *again())
    assert [each.attempt for each in task.past] == ["t.1"]
