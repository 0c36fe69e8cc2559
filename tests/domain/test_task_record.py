"""What went before in a task: which turns stand after an undo, what an attempt left, and how each one ended."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.spend import Caps, Spend
from holdfast.domain.task import TaskEvent, TaskState
from holdfast.domain.task_record import DETAIL_CHARS_MAX, Landing, LastAttempt, LastClaim, LastStart, Task, standing
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
    attempt = task.attempt
    assert (attempt.stands, attempt.was_put_back, attempt.undone, attempt.tree) == (1, True, 2, "1" * 40)
    attempt = told(turn(1), turn(2), turn(3), undo(1), turn(4)).attempt
    assert (attempt.stands, attempt.was_put_back, attempt.tree) == (4, False, "4" * 40)
    assert standing(attempt.turn, attempt.undos) == [1, 4]


def test_of_two_undos_after_the_same_turn_the_last_counts_and_earlier_ones_stay() -> None:
    task = told(turn(1), turn(2), turn(3), undo(2), turn(4), undo(3), undo(1))
    assert dict(task.attempt.undos) == {3: 2, 4: 1} and task.attempt.undone == 3 and task.attempt.stands == 1
    assert told(turn(1), undo(7)).attempt.undos == ((1, 1),), "nobody goes forward by an undo"


def fail(**outcome: Any) -> list[Record]:
    return moves("t", S.IN_PROGRESS, E.AGENT_REPORTS_FAILURE, outcome=outcome)


def again() -> list[Record]:
    """The next attempt begins."""
    claim = {"task": "t", "event": CLAIMED[0], "reason": "test", "attempt": "t.2", "agent": "scripted"}
    return [*moves("t", S.FAILED, E.RETRY), Record("task_claimed", claim)]


def test_leftovers_of_an_attempt_reach_the_next_one_up_to_the_turn_that_stands() -> None:
    task = told(turn(1), turn(2), *fail(kind="failed", detail="no"), *again())
    assert task.left is not None and (task.left.attempt, task.left.turn) == ("t.1", 2)
    assert (task.attempts, task.attempt.turn, task.attempt.stands, task.attempt.undos) == (2, 0, 0, ())
    task = told(turn(1), turn(2), *fail(kind="failed", detail="no"), *again(), undo(1))
    assert task.left is not None and (task.left.attempt, task.left.turn) == ("t.1", 1), "an undo of the one before"
    task = told(turn(1), turn(2), *fail(kind="failed", detail="no"), *again(), undo(1, "t.7"))
    assert task.left is not None and task.left.turn == 2, "of which nobody has heard"


def start(number: int, attempt: str = "t.1") -> Record:
    inputs = {"task": "t", "attempt": attempt, "start": number, "base": "b" * 40, "tree": "e" * 40}
    return Record("task_spawn_intent", {**inputs, "reserved": {"usd": 2.0}}, committed=False)


def test_the_next_claim_replaces_the_last_one_and_another_attempt_all_but_the_base() -> None:
    before = told(start(1), turn(1), undo(0), *fail(kind="failed", detail="no"))
    assert before.claim == LastClaim(number=1, worked_by="scripted", started=True)
    assert before.attempt.failed == "failed" and before.attempt.begun == "e" * 40 and before.start.number == 1
    task = told(start(1), turn(1), undo(0), *fail(kind="failed", detail="no"), *again())
    assert task.claim == LastClaim(number=2, agent="scripted", worked_by="scripted")
    assert task.attempt == LastAttempt("t.2", worked_on="d" * 64, base="b" * 40)
    assert task.start == LastStart(used=Spend(turns=1)) and task.spent == Spend(turns=1)


def test_the_next_start_replaces_the_last_one_and_a_move_ends_it() -> None:
    task = told(start(1), turn(1), start(2))
    assert task.start == LastStart(2, began=task.start.began, reserved=Caps(usd=2.0)) and task.start.began
    task = told(start(1), turn(1), *fail(kind="failed", detail="no"))
    assert task.start == LastStart(1, used=Spend(turns=1))


def test_the_next_candidate_replaces_the_landing_of_the_one_before() -> None:
    closed = story("t", S.DONE, candidate="c" * 40)
    verified = {"passed": True, "merged": "m" * 40, "target": "e" * 40}
    closing = {"task": "t", "intent": {"run": "000001-a", "seq": 0, "entry_hash": ""}}
    closed += [
        Record("task_verify_confirmed", closing, output=verified),
        Record("task_land_confirmed", closing, output={"new": "m" * 40, "branch": "refs/heads/main"}),
    ]
    landed = Landing("m" * 40, "e" * 40, "m" * 40, "refs/heads/main")
    assert folded(closed).tasks["t"].landing == landed
    rejected = [*moves("t", S.DONE, E.VERIFICATION_REJECTED), *again()]
    assert folded(closed, rejected).tasks["t"].landing == landed
    second = moves("t", S.CLAIMED, E.AGENT_STARTS_WORK, E.AGENT_REPORTS_SUCCESS, candidate="f" * 40)
    assert folded(closed, rejected, second).tasks["t"].landing == Landing()


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
