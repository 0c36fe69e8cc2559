from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies

from holdfast import errors
from holdfast.domain import effect_entries, entries
from holdfast.domain.state import _HANDLERS, State, fold
from holdfast.domain.task import TASK, TaskEvent, TaskState
from holdfast.domain.task_record import PreviousAttempt

RUN = "000001-a"


class Fact(msgspec.Struct, frozen=True):
    """As much of an entry as the fold looks at."""

    seq: int
    timestamp: float
    decision_type: str
    inputs: dict[str, Any]
    output: dict[str, Any] = {}


def facts(*given: tuple[str, dict[str, Any]]) -> list[tuple[str, Fact]]:
    return [(RUN, Fact(seq, 100.0 + seq, kind, inputs)) for seq, (kind, inputs) in enumerate(given)]


def added(task: str = "t", **more: Any) -> tuple[str, dict[str, Any]]:
    return "task_added", {"task": task, "definition": "d1", **more}


def moved(kind: str, event: TaskEvent, **more: Any) -> tuple[str, dict[str, Any]]:
    return kind, {"task": "t", "event": event, "reason": "test", **more}


CLAIM = moved("task_claimed", TaskEvent.AGENT_CLAIMS_TASK, attempt="t.1", agent="claude")
START = moved("task_started", TaskEvent.AGENT_STARTS_WORK)


def test_a_task_goes_from_open_to_closed() -> None:
    story = [
        added(),
        CLAIM,
        START,
        ("turn_completed", {"task": "t", "attempt": "t.1", "turn": 1, "end_offset": 9, "usd": 0.5, "tokens": 7}),
        moved("task_done", TaskEvent.AGENT_REPORTS_SUCCESS),
        moved("task_closed", TaskEvent.JANITOR_VERIFIED_AND_MERGED, outcome={"commit": "abc"}),
    ]
    task = fold(facts(*story)).tasks["t"]
    assert (task.state, task.attempts, task.attempt.id, task.claim.agent) == (TaskState.CLOSED, 1, "t.1", "")
    assert (task.spent.turns, task.spent.usd, task.spent.tokens, task.outcome) == (1, 0.5, 7, {"commit": "abc"})
    assert (task.added_at, task.changed_at) == (100.0, 105.0)


def test_turns_spend_adds_up_for_task_run_and_day() -> None:
    turn = {"task": "t", "attempt": "t.1", "end_offset": 9, "usd": 0.5, "tokens": 7, "seconds": 2.0}
    spent = [("turn_completed", {**turn, "turn": number}) for number in (1, 2, 3)]
    state = fold(facts(added(), CLAIM, START, *spent))
    task = state.tasks["t"]
    assert (task.spent.usd, task.spent.tokens, task.spent.seconds, task.spent.turns) == (1.5, 21, 6.0, 3)
    assert (state.run.usd, state.run.tokens, state.run.turns) == (1.5, 21, 3)


def test_a_reason_to_try_again_is_the_feedback_and_one_of_another_move_is_not() -> None:
    lost = moved("task_failed", TaskEvent.AGENT_REPORTS_FAILURE, outcome={"kind": "timeout", "detail": "2 h"})
    retried = moved("task_opened", TaskEvent.RETRY, feedback="use the other parser")
    task = fold(facts(added(), CLAIM, START, lost, retried)).tasks["t"]
    assert task.feedback == "use the other parser"
    claimed = moved("task_claimed", TaskEvent.AGENT_CLAIMS_TASK, attempt="t.2", agent="claude", feedback="nobody's")
    assert fold(facts(added(), CLAIM, START, lost, retried, claimed)).tasks["t"].feedback == "use the other parser"


def test_an_attempt_that_another_one_replaces_is_past_with_its_undos() -> None:
    turn = {"task": "t", "attempt": "t.1", "end_offset": 9}
    story = [
        added(),
        CLAIM,
        START,
        *(("turn_completed", {**turn, "turn": number}) for number in (1, 2, 3)),
        moved("task_orphaned", TaskEvent.CRASH),
        ("turn_undone", {"task": "t", "attempt": "t.1", "turn": 2, "saved": "s"}),
        moved("task_opened", TaskEvent.REQUEUED_FOR_RETRY),
        moved("task_claimed", TaskEvent.AGENT_CLAIMS_TASK, attempt="t.2", agent="claude"),
    ]
    (past,) = fold(facts(*story)).tasks["t"].past
    assert (past.attempt, past.turn, past.undos) == ("t.1", 3, ((3, 2),))


def test_a_continued_orphan_costs_no_attempt_and_a_retry_does() -> None:
    orphaned = [
        added(),
        CLAIM,
        START,
        moved("task_orphaned", TaskEvent.CRASH),
        moved("task_opened", TaskEvent.REQUEUED_FOR_RETRY),
    ]
    task = fold(facts(*orphaned, CLAIM)).tasks["t"]
    assert (task.attempts, task.attempt.resumes) == (1, 1)
    failed = [*orphaned, CLAIM, START, moved("task_failed", TaskEvent.AGENT_REPORTS_FAILURE)]
    again = moved("task_claimed", TaskEvent.AGENT_CLAIMS_TASK, attempt="t.2", agent="codex")
    task = fold(facts(*failed, moved("task_opened", TaskEvent.RETRY), again)).tasks["t"]
    assert (task.attempts, task.attempt.resumes, task.attempt.id, task.claim.agent) == (2, 0, "t.2", "codex")


def test_candidate_and_feedback_are_kept_until_a_newer_candidate() -> None:
    again, turn = moved("task_opened", TaskEvent.RETRY), {"task": "t", "end_offset": 9}
    second = moved("task_claimed", TaskEvent.AGENT_CLAIMS_TASK, attempt="t.2", agent="claude")
    third = moved("task_claimed", TaskEvent.AGENT_CLAIMS_TASK, attempt="t.3", agent="claude")
    lost = moved("task_failed", TaskEvent.AGENT_REPORTS_FAILURE, outcome={"kind": "timeout", "detail": "2 h"})
    story = [
        added(),
        CLAIM,
        ("task_spawn_intent", {"task": "t", "attempt": "t.1", "start": 1, "base": "b1"}),
        START,
        ("turn_completed", {**turn, "attempt": "t.1", "turn": 1}),
        moved("task_done", TaskEvent.AGENT_REPORTS_SUCCESS, candidate="c1"),
        moved("task_failed", TaskEvent.VERIFICATION_REJECTED, feedback="f1", outcome={"kind": "gate_failed"}),
        again,
        second,
    ]
    task = fold(facts(*story)).tasks["t"]
    assert (task.candidate, task.feedback, task.left) == ("c1", "f1", None)
    story += [START, lost, again, third]
    task = fold(facts(*story)).tasks["t"]
    assert (task.candidate, task.feedback, task.left) == ("c1", "f1", None)
    assert [(each.attempt, each.turn, each.kind, each.detail) for each in task.past] == [
        ("t.1", 1, "gate_failed", ""),
        ("t.2", 0, "timeout", "2 h"),
    ]
    worked = [("task_spawn_intent", {"task": "t", "attempt": "t.2", "start": 1, "base": "b2"}), START]
    turns = [("turn_completed", {**turn, "attempt": "t.2", "turn": number}) for number in (1, 2, 3)]
    undone = ("turn_undone", {"task": "t", "attempt": "t.2", "turn": 2, "saved": "s"})
    story = [*story[:9], *worked, *turns, lost, undone, again, third]
    task = fold(facts(*story)).tasks["t"]
    assert task.left == PreviousAttempt("t.2", 2, "b2") and task.past[-1].undos == ((3, 2),)
    story += [START, moved("task_done", TaskEvent.AGENT_REPORTS_SUCCESS, candidate="c3")]
    task = fold(facts(*story)).tasks["t"]
    assert (task.candidate, task.feedback, task.left) == ("c3", "", None)


def test_a_conversation_that_was_lost_is_forgotten_and_the_attempt_goes_on() -> None:
    began = [added(), CLAIM, START, moved("task_orphaned", TaskEvent.CRASH, session="s")]
    story = [*began, moved("task_opened", TaskEvent.REQUEUED_FOR_RETRY), CLAIM, START]
    assert fold(facts(*story)).tasks["t"].session == "s"
    task = fold(facts(*story, moved("task_opened", TaskEvent.REQUEUE, forget=True), CLAIM)).tasks["t"]
    assert (task.session, task.lost_in, task.attempt.id, task.attempts) == ("", "t.1", "t.1", 1)


def test_an_approval_is_remembered_until_the_work_is_thrown_back() -> None:
    asked = [added(), CLAIM, moved("task_done", TaskEvent.FAST_COMPLETION)]
    asked.append(moved("task_approval_requested", TaskEvent.APPROVAL_REQUESTED))
    granted = [*asked, moved("task_done", TaskEvent.APPROVAL_GRANTED)]
    assert not fold(facts(*asked)).tasks["t"].approved
    assert fold(facts(*granted)).tasks["t"].approved
    thrown_back = [*granted, moved("task_failed", TaskEvent.VERIFICATION_REJECTED)]
    assert not fold(facts(*thrown_back)).tasks["t"].approved


def test_a_task_that_is_sent_back_goes_on_in_the_same_attempt_and_conversation() -> None:
    done = moved("task_done", TaskEvent.AGENT_REPORTS_SUCCESS, candidate="c1", session="s", tree="t1")
    asked = [added(), CLAIM, START, done, moved("task_approval_requested", TaskEvent.APPROVAL_REQUESTED)]
    back = moved("task_opened", TaskEvent.CHANGES_REQUESTED, feedback="f1")
    task = fold(facts(*asked, back)).tasks["t"]
    assert task.state is TaskState.OPEN and task.continues and not task.approved and not task.claim.agent
    assert (task.candidate, task.feedback, task.session, task.attempt.tree) == ("c1", "f1", "s", "t1")
    again = fold(facts(*asked, back, CLAIM)).tasks["t"]
    assert (again.attempt.id, again.attempts, again.attempt.tree, again.past) == ("t.1", 1, "t1", ())
    assert (again.candidate, again.feedback, again.session) == ("c1", "f1", "s")


def test_a_task_without_an_attempt_that_is_sent_back_continues_none() -> None:
    split = [added(), moved("task_split", TaskEvent.DECOMPOSED_BEFORE_CLAIM)]
    split += [moved("task_done", TaskEvent.ALL_SUBTASKS_COMPLETED)]
    split += [moved("task_approval_requested", TaskEvent.APPROVAL_REQUESTED)]
    task = fold(facts(*split, moved("task_opened", TaskEvent.CHANGES_REQUESTED))).tasks["t"]
    assert task.state is TaskState.OPEN and not task.continues


def test_a_message_stays_on_the_task_until_a_start_has_seen_it() -> None:
    told = [("task_told", {"task": "t", "id": name, "message": f"say {name}", "by": "ada"}) for name in "abca"]
    turn = {"task": "t", "attempt": "t.1", "turn": 1, "end_offset": 9}
    task = fold(facts(added(), *told, CLAIM, START)).tasks["t"]
    assert [(each.id, each.text, each.by) for each in task.told] == [(name, f"say {name}", "ada") for name in "abc"]
    seen = [added(), *told, CLAIM, START, ("turn_completed", {**turn, "told": ["a"]})]
    assert [each.id for each in fold(facts(*seen)).tasks["t"].told] == ["b", "c"]
    lost = [*seen, moved("task_orphaned", TaskEvent.CRASH), moved("task_opened", TaskEvent.REQUEUED_FOR_RETRY)]
    assert [each.id for each in fold(facts(*lost)).tasks["t"].told] == ["b", "c"]
    done = moved("task_done", TaskEvent.AGENT_REPORTS_SUCCESS, candidate="c1", told=["b", "c", "unknown"])
    assert fold(facts(*seen, done)).tasks["t"].told == ()


def test_flags_stand_beside_the_state() -> None:
    state = fold(facts(added(), ("task_flagged", {"task": "t", "not_before": 500.0})))
    assert state.tasks["t"].not_before == 500.0 and state.tasks["t"].state is TaskState.OPEN
    intent = {"run": RUN, "seq": 1, "entry_hash": "0" * 64}
    closing = ("task_land_parked", {"intent": intent, "task": "t", "reason": "nobody knows"})
    state = fold(facts(added(), ("task_land_intent", {"task": "t"}), closing))
    assert state.tasks["t"].parked == "task_land_parked: nobody knows"
    assert fold(facts(added(), ("task_flagged", {"task": "t"}))).tasks["t"].parked == ""


def test_imported_tasks_keep_their_state_and_outcome() -> None:
    task = fold(facts(added(state="CLOSED", imported=True, outcome={"commit": "abc"}))).tasks["t"]
    assert task.state is TaskState.CLOSED and task.outcome == {"commit": "abc"}


@pytest.mark.parametrize(
    ("story", "reason"),
    [
        ([CLAIM], "there is no task 't'"),
        ([added(), added()], "was added before"),
        ([added(), START], "in state open"),
        ([added(), moved("task_closed", TaskEvent.AGENT_CLAIMS_TASK)], "leads from open to claimed"),
        ([added(), ("task_claimed", {"task": "t"})], "event"),
        ([added(), ("task_claimed", {"task": "t", "event": "bribe", "reason": "x"})], "bribe"),
        ([("task_edited", {"task": "t", "definition": "d"})], "there is no task"),
    ],
)
def test_an_impossible_entry_is_an_error_that_names_it(story: list[tuple[str, dict[str, Any]]], reason: str) -> None:
    with pytest.raises(errors.EntryUnfit, match=rf"Entry {len(story) - 1} of run {RUN}.*{reason}"):
        fold(facts(*story))


def test_an_unknown_type_is_refused_by_name() -> None:
    with pytest.raises(errors.EntryUnknown, match="a task_teleported, which this Holdfast does not know"):
        fold(facts(added(), ("task_teleported", {"task": "t"})))


def test_every_type_has_a_payload_a_version_and_a_move_for_each_state_but_the_first() -> None:
    assert set(entries.VERSIONS) == set(entries.PAYLOADS)
    reached = {transition.target for transition in TASK.transitions}
    assert set(entries.MOVE_TO) == reached
    assert effect_entries.effect_of("task_land_intent") == "land"
    assert effect_entries.effect_of("task_land_confirmed") == effect_entries.effect_of("task_fly_intent") == ""


def test_every_type_is_folded_or_known_to_change_no_task() -> None:
    answers = {"run_ended", "request_answered", "wal_replay_completed", "task_move_refused", "landing_promoted"}
    answers |= {"gate_warned"}
    # Of these only the outcome counts.
    folded = {"task_spawn_intent", "task_verify_intent", "task_land_intent", "task_publish_intent"}
    intents = {f"task_{effect}_intent" for effect in effect_entries.EFFECTS} - folded
    assert {name for name, kind in entries.PAYLOADS.items() if kind not in _HANDLERS} == answers | intents


@given(data=strategies.data())
def test_any_legal_walk_folds_and_survives_a_checkpoint(data: strategies.DataObject) -> None:
    story: list[tuple[str, dict[str, Any]]] = []
    model: dict[str, TaskState] = {}
    for _ in range(data.draw(strategies.integers(1, 40))):
        task = data.draw(strategies.sampled_from("abc"))
        if task not in model:
            model[task] = data.draw(strategies.sampled_from([TaskState.OPEN, TaskState.PLANNED]))
            story.append(added(task, state=model[task]))
            continue
        legal = TASK.legal(model[task])
        if legal:
            event = data.draw(strategies.sampled_from(sorted(legal)))
            model[task] = legal[event]
            inputs = {"task": task, "event": event, "reason": "walk", "attempt": f"{task}.1", "agent": "x"}
            story.append((entries.MOVE_TO[model[task]], inputs))
    whole = fold(facts(*story))
    assert {name: task.state for name, task in whole.tasks.items()} == model
    cut = data.draw(strategies.integers(0, len(story)))
    first = fold(facts(*story)[:cut])
    second = State()
    second.load(list(first.dump()))
    for run, entry in facts(*story)[cut:]:
        second.apply(run, entry)
    assert second.tasks == whole.tasks and list(second.dump()) == list(whole.dump())
