"""What the outcome of an effect, and a person's word, change in the task; and words for a state and for a number."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import errors
from holdfast.domain.fsm import Reason
from holdfast.domain.graph import Graph, Node
from holdfast.domain.outage import after
from holdfast.domain.task import TaskEvent, TaskState
from holdfast.domain.task_record import Task
from holdfast.domain.wording import plural
from holdfast.storage.journal.entry import Record
from kit.states import folded, moves, story

S = TaskState


def closed(kind: str, output: dict[str, Any] = {}) -> Task:  # noqa: B006
    inputs = {"task": "t", "intent": {"run": "r", "seq": 1, "entry_hash": ""}, "reason": "why"}
    return folded(story("t", S.DONE), [Record(f"task_{kind}", inputs, output)]).tasks["t"]


def test_a_verdict_that_passed_names_the_commit_and_what_it_lands_on() -> None:
    task = closed("verify_confirmed", {"passed": True, "merged": "m", "target": "o"})
    assert (task.landing.verified, task.landing.verified_on) == ("m", "o")
    task = closed("verify_confirmed", {"passed": False, "merged": "m", "target": "o"})
    assert (task.landing.verified, task.landing.verified_on) == ("", "")
    task = closed("verify_confirmed", {"passed": True})
    assert (task.landing.verified, task.landing.verified_on) == ("", "")


def test_a_landing_names_its_commit_and_its_branch() -> None:
    task = closed("land_confirmed", {"new": "n", "branch": "refs/heads/main"})
    assert (task.landing.commit, task.landing.branch) == ("n", "refs/heads/main")
    assert (closed("land_confirmed").landing.commit, closed("land_confirmed", {"new": "n"}).landing.branch) == ("", "")


@pytest.mark.parametrize("effect", ["spawn", "verify", "land", "refresh"])
@pytest.mark.parametrize(("how", "waits"), [("parked", True), ("abandoned", True), ("failed", False)])
def test_an_undecided_or_outdated_effect_waits_for_a_person(effect: str, how: str, waits: bool) -> None:
    assert closed(f"{effect}_{how}").parked == (f"task_{effect}_{how}: why" if waits else "")


def test_an_open_task_goes_on_with_its_last_attempt_when_a_person_says_so_and_with_no_other() -> None:
    def resumed(attempt: str, to: TaskState = S.FAILED) -> Task:
        back = moves("t", S.FAILED, TaskEvent.RETRY) if to is S.FAILED else []
        return folded(story("t", to), back, [Record("attempt_resumed", {"task": "t", "attempt": attempt})]).tasks["t"]

    assert not folded(story("t", S.FAILED), moves("t", S.FAILED, TaskEvent.RETRY)).tasks["t"].continues
    assert resumed("t.1").continues
    for attempt, to in (("t.2", S.FAILED), ("t.1", S.IN_PROGRESS)):
        with pytest.raises(errors.EntryUnfit):
            resumed(attempt, to)


def test_another_reason_begins_an_outages_rounds_anew() -> None:
    first = after(None, ("claude", ""), Reason.UNREACHABLE, "x", at=100.0, until=110.0)
    second = after(first, ("claude", ""), Reason.UNREACHABLE, "x", at=110.0, until=130.0)
    assert (first.rounds, second.rounds, second.in_a_row, second.until) == (1, 2, 2, 130.0)
    other = after(second, ("claude", ""), Reason.RATE_LIMITED, "y", at=120.0, until=125.0)
    assert (other.rounds, other.in_a_row, other.since, other.until) == (1, 3, 100.0, 125.0)


# -- the graph --------------------------------------------------------------------------------------------------------


def graph(*nodes: Node) -> Graph:
    made = Graph()
    for node in nodes:
        made.put(node)
    return made


def test_tasks_of_a_role_are_offered_to_that_role_and_to_whoever_takes_any() -> None:
    made = graph(Node(id="a", role="docs"), Node(id="b", number=1))
    assert (list(made.ready(0.0)), list(made.ready(0.0, "docs")), list(made.ready(0.0, ""))) == (
        ["a", "b"],
        ["a"],
        ["b"],
    )
    assert (made.next_ready(0.0), made.next_ready(0.0, "docs"), made.next_ready(0.0, "x")) == ("a", "a", None)


def test_a_task_behind_one_that_failed_says_so_however_far_behind_and_another_does_not() -> None:
    made = graph(
        Node(id="a", state=S.FAILED), Node(id="b", depends_on=["a"]), Node(id="c", depends_on=["b"]),
        Node(id="open"), Node(id="fine", depends_on=["open"]), Node(id="done", state=S.CLOSED, depends_on=["a"]),
        Node(id="after", depends_on=["done"]), Node(id="begun", state=S.CLAIMED, depends_on=["a"]),
    )  # fmt: skip
    assert "which is failed: `holdfast retry a`" in made.stuck("b")
    assert "waits for b, which is open and waits for a, which is failed" in made.stuck("c")
    assert [made.stuck(name) for name in ("fine", "after", "begun", "a", "nobody")] == [""] * 5


def test_subtasks_are_cancelled_once_with_their_parent_unless_they_are_over() -> None:
    made = graph(
        Node(id="p", state=S.CANCELLED), Node(id="a", parent="p"), Node(id="b", parent="a"),
        Node(id="over", parent="a", state=S.CLOSED), Node(id="below", parent="over"),
    )  # fmt: skip
    assert [(each.task, each.cause) for each in made.due_cancels()] == [("a", "p"), ("b", "a")]


def test_a_state_is_told_in_words_of_any_width_and_a_number_with_its_noun() -> None:
    assert f"{S.IN_PROGRESS}|{S.OPEN:>6}|{S.OPEN!s}" == "in progress|  open|OPEN"
    assert (plural(1, "turn"), plural(0, "turn"), plural(1234, "turn")) == ("1 turn", "0 turns", "1,234 turns")
    assert (plural(1, "reply", "replies"), plural(2, "reply", "replies")) == ("1 reply", "2 replies")
