"""The queue as a table: who is judged, on what, who lands, and what is withdrawn."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.task import TaskState
from holdfast.domain.task_record import Landing, Task
from holdfast.landing.merge_queue import (
    JudgeAhead,
    JudgedMerge,
    QueueStep,
    QueueView,
    VerifyAndLand,
    Withdraw,
    queue_steps,
)

DONE, NOT_YET = TaskState.DONE, Landing()


def a_task(name: str, state: TaskState, landing: Landing = NOT_YET) -> Task:
    return Task(id=name, state=state, definition="", added_at=1.0, changed_at=1.0, landing=landing)


def queued(*names: str, **landings: Landing) -> list[Task]:
    return [a_task(name, DONE, landings.get(name, NOT_YET)) for name in names]


def steps(done: list[Task], *others: Task, **view: Any) -> list[QueueStep]:
    return queue_steps(done, {task.id: task for task in (*done, *others)}, QueueView(**{"most": 3, **view}))


def merged(**commits: str) -> dict[str, JudgedMerge]:
    """Each made on the one before it; the first on the target `T`."""
    made, on = {}, "T"
    for name, commit in commits.items():
        made[name], on = JudgedMerge(on, commit), commit
    return made


A_ON_T = {"landing": "a", "merged": merged(a="A")}
B_ON_A, C_ON_B = JudgeAhead("b", "A", "a"), JudgeAhead("c", "B", "b")
BOTH_AHEAD = {"landing": "a", "merged": merged(a="A", b="B", c="C"), "ahead": {"b": B_ON_A, "c": C_ON_B}}
VERIFIED_B = Landing(verified="B", verified_on="A")


@pytest.mark.parametrize("most", [1, 2, 16])
def test_the_oldest_candidate_is_landed_first_and_alone_until_its_merge_is_known(most: int) -> None:
    assert steps(queued("a", "b", "c"), most=most) == [VerifyAndLand("a")]
    assert steps(queued("a", "b", "c"), most=most, landing="a") == []


@pytest.mark.parametrize(
    ("most", "wanted"), [(1, []), (2, [B_ON_A]), (3, [B_ON_A])], ids=["one", "two", "three"]
)  # fmt: skip
def test_the_next_is_judged_on_top_of_the_one_that_is_judged(most: int, wanted: list[QueueStep]) -> None:
    assert steps(queued("a", "b", "c"), most=most, **A_ON_T) == wanted


def test_each_is_judged_on_the_one_before_it_as_far_as_there_is_room() -> None:
    more = {"landing": "a", "merged": merged(a="A", b="B"), "ahead": {"b": B_ON_A}}
    assert steps(queued("a", "b", "c", "d"), most=2, **more) == []
    assert steps(queued("a", "b", "c", "d"), most=3, **more) == [C_ON_B]
    assert steps(queued("a", "b", "c", "d"), most=4, **more) == [C_ON_B], "d waits until c is merged"


def test_the_next_waits_for_one_before_it_that_is_still_judged() -> None:
    landed = a_task("a", TaskState.CLOSED, Landing(commit="A"))
    ahead = {"ahead": {"b": B_ON_A}, "merged": {"b": JudgedMerge("A", "B")}}
    assert steps(queued("b", "c"), landed, most=2, **ahead) == [C_ON_B], "c is judged on b, and does not overtake it"
    assert steps(queued("b", "c", b=VERIFIED_B), landed, most=2) == [VerifyAndLand("b")]


def test_one_that_was_judged_ahead_waits_verified_and_the_next_is_judged_on_it() -> None:
    assert steps(queued("a", "b", "c", b=VERIFIED_B), **A_ON_T) == [C_ON_B]
    assert steps(queued("a", "b", "c", b=Landing(verified="B", verified_on="old")), **A_ON_T) == [B_ON_A]


def test_one_that_did_not_pass_ahead_waits_for_its_turn_and_the_next_is_judged_without_it() -> None:
    assert steps(queued("a", "b", "c"), refused={"b": "A"}, **A_ON_T) == [JudgeAhead("c", "A", "a")]
    assert steps(queued("a", "b", "c"), refused={"b": "old"}, **A_ON_T) == [B_ON_A]
    assert steps(queued("b"), refused={"b": "A"}) == [VerifyAndLand("b")]


@pytest.mark.parametrize(
    "before",
    [
        a_task("a", TaskState.FAILED),
        a_task("a", TaskState.PENDING_APPROVAL, Landing(verified="A", verified_on="T")),
        a_task("a", TaskState.CLOSED, Landing(commit="other")),
        a_task("a", TaskState.CANCELLED),
        # Its landing waits for a person's files, so that it is held up.
        a_task("a", DONE, Landing(verified="A", verified_on="T")),
    ],
    ids=["failed", "asks", "landed otherwise", "cancelled", "held up"],
)
def test_all_that_was_judged_on_one_that_does_not_land_is_withdrawn(before: Task) -> None:
    view = {**BOTH_AHEAD, "landing": "", "merged": {"b": JudgedMerge("A", "B"), "c": JudgedMerge("B", "C")}}
    assert steps(queued("b", "c"), before, **view) == [Withdraw("b"), Withdraw("c")]
    # Once: they are being ended. Then the first has its turn.
    assert steps(queued("b", "c"), before, withdrawn={"b", "c"}, **view) == []
    assert steps(queued("b", "c"), before) == [VerifyAndLand("b")]


def test_all_that_was_judged_on_it_is_withdrawn_when_the_first_is_merged_anew_with_a_newer_target() -> None:
    anew = {**BOTH_AHEAD, "merged": {**merged(a="A", b="B", c="C"), "a": JudgedMerge("T2", "A2")}}
    assert steps(queued("a", "b", "c"), **anew) == [Withdraw("b"), Withdraw("c")]


def test_nothing_is_withdrawn_while_the_one_before_it_lands_or_is_about_to() -> None:
    assert steps(queued("a", "b", "c"), **BOTH_AHEAD) == []
    about_to = queued("a", "b", "c", a=Landing(verified="A", verified_on="T"))
    assert steps(about_to, **{**BOTH_AHEAD, "landing": "", "merged": merged(b="B", c="C")}) == [VerifyAndLand("a")]
    unknown = {"b": JudgedMerge("A", "B"), "c": JudgedMerge("B", "C")}
    assert steps(about_to, **{**BOTH_AHEAD, "merged": unknown}) == []


def test_one_that_is_cancelled_or_parked_while_it_is_judged_is_withdrawn() -> None:
    assert steps(queued("a", "c"), *queued("b"), **BOTH_AHEAD) == [Withdraw("b"), Withdraw("c")]


def test_nothing_is_built_on_one_that_waits_for_a_person_and_nothing_waits_for_it() -> None:
    # In the landing thread, to be verified: the next is judged on the same target.
    assert steps(queued("a", "b"), apart={"a"}, **A_ON_T) == [JudgeAhead("b", "T")]
    assert steps(queued("b"), ahead={"b": JudgeAhead("b", "T")}, merged={"b": JudgedMerge("T", "B")}) == []
    # Ahead of its turn: those behind it are judged on the one before it.
    ahead = {**A_ON_T, "ahead": {"b": B_ON_A}}
    assert steps(queued("a", "b", "c"), apart={"b"}, **ahead) == [JudgeAhead("c", "A", "a")]
    assert steps(queued("b", "c"), apart={"b"}, ahead={"b": JudgeAhead("b", "T")}) == [VerifyAndLand("c")]
    both = steps(queued("a", "b", "c"), apart={"b"}, **A_ON_T)
    assert both == [B_ON_A, JudgeAhead("c", "A", "a")]


def test_one_that_has_just_landed_is_built_on_until_its_thread_is_through() -> None:
    landed = a_task("a", TaskState.CLOSED, Landing(verified="A", verified_on="T", commit="A"))
    assert steps(queued("b"), landed, **A_ON_T) == [B_ON_A]
    failed = a_task("a", TaskState.FAILED)
    assert steps(queued("b"), failed, **A_ON_T) == [JudgeAhead("b", "T")]


def test_none_overtakes_one_that_is_being_withdrawn() -> None:
    failed = a_task("a", TaskState.FAILED)
    assert steps(queued("b", "c"), failed, ahead={"b": B_ON_A}, withdrawn={"b"}) == []


def test_nothing_is_built_on_one_whose_landing_waits_for_files_of_a_person() -> None:
    assert steps(queued("a", "b", a=Landing(waits=("x",))), **A_ON_T) == [JudgeAhead("b", "T")]


def test_one_with_a_gate_that_must_not_run_twice_is_judged_only_in_its_turn() -> None:
    assert steps(queued("a", "b", "c"), once={"b"}, **A_ON_T) == []
    assert steps(queued("b", "c"), once={"b"}) == [VerifyAndLand("b")]
    view = {"landing": "b", "merged": merged(b="B")}
    assert steps(queued("b", "c"), once={"b"}, **view) == [C_ON_B], "on top of it others are judged"
