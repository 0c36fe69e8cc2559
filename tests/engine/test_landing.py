"""From done to closed: what each outcome of verifying, landing and refreshing makes of the task."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast import errors
from holdfast.domain.task import TaskEvent, TaskState
from holdfast.engine.landing import ANSWER_CHARS_MAX, LandingResult, land_on, see_to_lost, verify_and_land
from holdfast.landing.lost_landings import UNASKED
from holdfast.storage.journal.entry import Record
from kit.git import git
from kit.states import Run, append, moves

S, CLOSED, REJECTED = TaskState, LandingResult.CLOSED, LandingResult.REJECTED
VERIFIED = [("task_verify_intent",), ("task_verify_confirmed",)]
LANDED = [("task_land_intent",), ("task_land_confirmed",)]
REFRESHED = [("task_refresh_intent",), ("task_refresh_confirmed",)]
CLOSE = [("task_closed", "janitor_verified_and_merged", "landed")]
FAULT = errors.GitFault(command="x", path="/x", reason="killed")


def refuse(reason: str = "verification_failed") -> list[tuple[str, ...]]:
    return [("task_failed", "verification_rejected", reason)]


def test_a_verified_result_lands_and_the_checkout_follows(run: Run) -> None:
    task = run.done({"verify": ["test -e made"]}, made="x")
    assert verify_and_land(run.context, task) is CLOSED
    assert run.moved == [*VERIFIED, *LANDED, *REFRESHED, *CLOSE]
    assert git(run.repo, "rev-parse", "main") == task.landing.commit and (run.repo / "made").read_text() == "x"
    assert task.outcome == {"commit": task.landing.commit, "branch": "refs/heads/main", "attempt": "t.1", "left": []}
    assert not run.context.worktrees.path("t").exists(), "nobody comes back to it"
    verifying, landed = run.notes
    assert verifying.startswith("verifying ") and verifying.endswith("with 1 gate")
    assert landed == f"landed on main as {task.landing.commit[:12]}"


def test_without_a_gate_it_is_told_that_it_lands_unchecked(run: Run) -> None:
    task = run.done(made="x")
    assert verify_and_land(run.context, task) is CLOSED
    assert run.notes[0].startswith("it lands unchecked")


@pytest.mark.parametrize(
    ("definition", "files", "kind", "told"),
    [
        ({"verify": ["echo why; false"]}, {"made": "x"}, "gate_failed", "why"),
        ({"verify": [{"command": "sleep 60", "timeout_s": 0.1}]}, {"made": "x"}, "gate_timed_out", "sleep 60"),
        ({"paths": ["docs/**"]}, {"made": "x"}, "paths_violated", "made"),
        ({}, {}, "empty_change", ""),
    ],
)
def test_a_failed_gate_fails_the_attempt_and_the_next_one_gets_the_reason(
    run: Run, definition: dict[str, Any], files: dict[str, str], kind: str, told: str
) -> None:
    task = run.done(definition, **files)
    assert verify_and_land(run.context, task) is REJECTED
    assert run.moved == [*VERIFIED, *refuse()]
    assert (task.outcome["kind"], task.again, task.landing.commit) == (kind, True, "")
    assert told in run.context.blobs.get(task.feedback).decode()
    assert run.notes[1].endswith("; attempt 2 of 3 follows")
    assert run.notes[2:] == (["  | why"] if kind == "gate_failed" else [])
    assert git(run.repo, "rev-parse", "main") == run.base


def test_a_candidate_that_does_not_merge_is_refused_before_anything_is_run(run: Run) -> None:
    task = run.done(made="x")
    newer = run.commit("made", "y")
    assert verify_and_land(run.context, task) is REJECTED
    assert run.moved == refuse("landing_conflict")
    assert task.outcome["kind"] == "conflict" and "made" in run.context.blobs.get(task.feedback).decode()
    assert git(run.repo, "rev-parse", "main") == newer


def test_a_candidate_is_verified_on_top_of_the_newest_target(run: Run) -> None:
    task = run.done({"verify": ["test -e made && test -e theirs"]}, made="x")
    newer = run.commit("theirs", "y")
    assert verify_and_land(run.context, task) is CLOSED
    assert git(run.repo, "rev-parse", "main^1") == newer or git(run.repo, "rev-parse", "main^2") == newer
    assert task.landing.verified_on == newer


# -- nothing to land --------------------------------------------------------------------------------------------------


def test_a_task_whose_subtasks_were_its_work_is_closed(run: Run) -> None:
    task = run.task("t")
    events = (TaskEvent.DECOMPOSED_BEFORE_CLAIM, TaskEvent.ALL_SUBTASKS_COMPLETED)
    append(run.ledger, *moves("t", S.OPEN, *events, attempt=""))
    run.mark()
    assert verify_and_land(run.context, task) is CLOSED
    assert run.moved == CLOSE and task.outcome == {"kind": "subtasks"}
    assert run.notes == ["closed: its subtasks landed"]


@pytest.mark.parametrize(
    ("gates", "result", "wanted"), [([], CLOSED, CLOSE), (["true"], REJECTED, refuse())], ids=["no gate", "gate"]
)
def test_a_worker_from_elsewhere_is_believed_only_where_nothing_could_judge_it(
    run: Run, gates: list[str], result: LandingResult, wanted: list[tuple[str, ...]]
) -> None:
    task = run.task("t", S.OPEN, definition={"verify": gates})
    append(run.ledger, *moves("t", S.OPEN, TaskEvent.AGENT_CLAIMS_TASK, started=False, remote=True))
    append(run.ledger, *moves("t", S.CLAIMED, TaskEvent.FAST_COMPLETION, outcome={"detail": "by hand"}))
    run.mark()
    assert verify_and_land(run.context, task) is result
    assert run.moved == wanted
    if result is CLOSED:
        assert task.outcome == {"kind": "reported", "detail": "by hand", "attempt": "t.1"}
        assert run.notes == ["closed on its worker's word, with nothing to land"]
    else:
        assert task.outcome["kind"] == "no_candidate"


def test_a_question_is_closed_with_its_answer(run: Run) -> None:
    task = run.task("t", S.DONE, definition={"may_change_nothing": True}, outcome={"detail": "It is 42."})
    assert verify_and_land(run.context, task) is CLOSED
    assert run.moved == CLOSE and task.outcome == {"kind": "answer", "answer": "It is 42.", "attempt": "t.1"}
    assert run.notes == ["closed with an answer, and nothing changed: `holdfast show t`"]


def test_a_result_that_is_gone_is_not_judged(run: Run) -> None:
    task = run.task("t", S.DONE, candidate="5" * 40)
    run.snapshot("t")
    with pytest.raises(errors.ResultLost):
        verify_and_land(run.context, task)
    assert run.moved == [] and task.state is S.DONE


# -- approval ---------------------------------------------------------------------------------------------------------


def test_a_result_that_needs_approval_waits_verified_and_lands_without_another_verification(run: Run) -> None:
    task = run.done({"approve": True}, made="x")
    assert verify_and_land(run.context, task) is LandingResult.APPROVAL
    asked = ("task_approval_requested", "approval_requested", "approval_required")
    assert run.moved == [*VERIFIED, asked] and task.claim.agent == "scripted"
    assert (
        "`holdfast approve`: the task says `approve: true`" in run.notes[-1]
        and git(run.repo, "rev-parse", "main") == run.base
    )
    append(run.ledger, *moves("t", S.PENDING_APPROVAL, TaskEvent.APPROVAL_GRANTED))
    run.mark()
    assert verify_and_land(run.context, task) is CLOSED
    assert run.moved == [*LANDED, *REFRESHED, *CLOSE]


# -- others move the target, or stand in the way ----------------------------------------------------------------------


def test_a_landing_that_lost_a_race_is_verified_with_the_newer_target(run: Run) -> None:
    task = run.done(made="x")
    run.before("land", lambda: git(run.repo, "update-ref", "refs/heads/main", _empty_commit(run)))
    assert verify_and_land(run.context, task) is CLOSED
    lost = [("task_land_intent",), ("task_land_failed",)]
    assert run.moved == [*VERIFIED, *lost, *VERIFIED, *LANDED, *REFRESHED, *CLOSE]
    assert "the target moved meanwhile; verifying with the newer one" in run.notes
    assert git(run.repo, "log", "--format=%s", "-1", task.landing.verified_on) == "meanwhile"


def _empty_commit(run: Run) -> str:
    return git(run.repo, "commit-tree", "main^{tree}", "-p", "main", "-m", "meanwhile")


def test_a_landing_waits_for_what_a_person_has_changed_and_says_so_once(run: Run) -> None:
    task = run.done(made="x")
    (run.repo / "made").write_text("mine")
    for _ in range(2):
        with pytest.raises(errors.LandingWaits):
            verify_and_land(run.context, task)
    assert run.moved == [*VERIFIED, ("landing_waits",)] and run.journalled[-1].actor == "loop"
    assert task.landing.waits == ("made",) and (run.repo / "made").read_text() == "mine"
    assert git(run.repo, "rev-parse", "main") == run.base
    (run.repo / "made").unlink()
    run.mark()
    assert verify_and_land(run.context, task) is CLOSED
    assert run.moved == [*LANDED, *REFRESHED, *CLOSE], "and it is not verified again"


def test_files_that_a_person_changed_during_the_landing_are_left_and_named(run: Run) -> None:
    task = run.done(made="x", other="y")
    run.before("refresh", lambda: (run.repo / "made").write_text("mine"))
    assert verify_and_land(run.context, task) is CLOSED
    assert (run.repo / "made").read_text() == "mine" and (run.repo / "other").read_text() == "y"
    assert task.outcome["left"] == ["made"]
    assert "landed; left as you have them in your checkout: made" in run.notes


# -- interrupted between two steps ------------------------------------------------------------------------------------


def fail() -> None:
    raise FAULT


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("verify", [("task_verify_intent",), ("task_verify_failed",)], [*VERIFIED, *LANDED, *REFRESHED, *CLOSE]),
        ("land", [*VERIFIED, ("task_land_intent",), ("task_land_failed",)], [*LANDED, *REFRESHED, *CLOSE]),
        (
            "refresh",
            [*VERIFIED, *LANDED, ("task_refresh_intent",), ("task_refresh_failed",)],
            [*REFRESHED, *CLOSE],
        ),
    ],
)
def test_a_step_that_failed_is_done_again_and_none_before_it(
    run: Run, kind: str, before: list[tuple[str, ...]], after: list[tuple[str, ...]]
) -> None:
    task = run.done(made="x")
    run.before(kind, fail)
    with pytest.raises(errors.GitFault):
        verify_and_land(run.context, task)
    assert run.moved == before and task.state is S.DONE
    run.mark()
    assert verify_and_land(run.context, task) is CLOSED
    assert run.moved == after and (run.repo / "made").read_text() == "x"


def test_a_refresh_that_took_place_as_a_person_said_is_not_repeated(run: Run) -> None:
    task = run.done(made="x")
    run.before("refresh", fail)
    with pytest.raises(errors.GitFault):
        verify_and_land(run.context, task)
    append(run.ledger, Record("task_flagged", {"task": "t", "happened": ["refresh"]}))
    run.mark()
    assert verify_and_land(run.context, task) is CLOSED
    assert run.moved == CLOSE and not (run.repo / "made").exists()


# -- another branch ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gate", ["true", "false"])
def test_a_result_lands_as_a_new_branch_once_it_has_passed(run: Run, gate: str) -> None:
    task = run.done({"verify": [gate]}, made="x")
    verdict = land_on(run.context, task, "refs/heads/aside")
    assert git(run.repo, "rev-parse", "main") == run.base and not (run.repo / "made").exists()
    if gate == "false":
        assert verdict is not None and verdict.kind == "gate_failed"
        assert run.moved == VERIFIED and task.state is S.DONE, "a person decides what becomes of it"
        return
    assert verdict is None and run.moved == [*VERIFIED, *LANDED, *CLOSE]
    assert git(run.repo, "rev-parse", "aside") == task.landing.commit and task.landing.branch == "refs/heads/aside"
    assert run.notes[-1] == f"landed on aside as {task.landing.commit[:12]}"


# -- landings that are no longer on their branch ----------------------------------------------------------------------

PROMOTED = [("landing_promoted",)]


def test_a_landing_that_a_reset_undid_by_accident_is_made_again(run: Run) -> None:
    task = run.landed(made="x")
    first = task.landing.commit
    run.set_back(run.base, UNASKED)
    # As at a start: nothing has landed in this run.
    run.context.last_landed = ""
    see_to_lost(run.context)
    assert run.moved == [*PROMOTED, *LANDED, *REFRESHED], "and it is not verified again"
    assert {entry.actor for entry in run.journalled if entry.decision_type == "landing_promoted"} == {"loop"}
    assert task.state is S.CLOSED and git(run.repo, "rev-parse", "main") == task.landing.commit
    assert (run.repo / "made").read_text() == "x" and run.context.lost == {}
    assert run.notes == [
        f"a `git reset` or `git stash` undid its landing {first[:12]}, which came meanwhile",
        f"landed again as {task.landing.commit[:12]}",
    ]


def test_a_landing_that_no_longer_merges_is_named_once(run: Run) -> None:
    task = run.landed(made="x")
    other = git(run.repo, "commit-tree", f"{run.base}^{{tree}}", "-p", run.base, "-m", "theirs")
    run.set_back(other, UNASKED)
    conflicting = run.commit("made", "y")
    for _ in range(2):
        see_to_lost(run.context)
    assert git(run.repo, "rev-parse", "main") == conflicting and set(run.context.lost) == {"t"}
    assert [note for note in run.notes if note.startswith("it cannot be landed again: conflict: ")]
    assert [note for note in run.notes if "is lost" in note] == [run.context.lost["t"]]
    assert task.landing.commit[:12] in run.context.lost["t"]


def test_a_landing_that_a_person_took_back_is_named_and_not_made_again(run: Run) -> None:
    run.landed(made="x")
    run.set_back(run.base, "reset: moving to HEAD~1")
    see_to_lost(run.context)
    assert run.moved == [] and git(run.repo, "rev-parse", "main") == run.base
    assert run.notes == [run.context.lost["t"]]


def test_nothing_lands_on_top_before_a_lost_landing_was_seen_to(run: Run) -> None:
    first = run.landed(made="x")
    second = run.done({}, "u", other="y")
    run.set_back(run.base, UNASKED)
    assert verify_and_land(run.context, second) is CLOSED
    assert run.moved == [*PROMOTED, *LANDED, *REFRESHED, *VERIFIED, *LANDED, *REFRESHED, *CLOSE]
    assert second.landing.verified_on == first.landing.commit
    assert git(run.repo, "rev-parse", "main") == second.landing.commit


# -- answers ----------------------------------------------------------------------------------------------------------

SAID = [{"kind": "said", "text": "First."}, {"kind": "said", "text": " It is 42.\n"}]
PRINTED = [{"kind": "tool", "output": "41"}, {"kind": "tool", "output": "42\n"}, {"kind": "tool"}]


@pytest.mark.parametrize(
    ("detail", "traces", "answer"),
    [
        ("It is 43.", SAID, "It is 43."),
        ("The agent has finished.", [*SAID, *PRINTED], "It is 42."),
        ("The command has finished.", PRINTED, "42"),
        ("", [{"kind": "turn"}], ""),
        (" ", [], ""),
        ("", [{"kind": "said", "text": "x" * ANSWER_CHARS_MAX}], "x" * ANSWER_CHARS_MAX),
        ("x" * ANSWER_CHARS_MAX + "yz", [], "x" * ANSWER_CHARS_MAX + "…"),
    ],
    ids=["of its end", "said", "printed", "neither", "nothing", "long", "too long"],
)
def test_an_answer_is_what_was_said_last(run: Run, detail: str, traces: list[dict[str, str]], answer: str) -> None:
    task = run.task("t", S.DONE, definition={"may_change_nothing": True}, outcome={"detail": detail})
    if traces:
        files = run.context.layout.attempt_files("t.1")
        files.root.mkdir(parents=True, exist_ok=True)
        files.traces.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in traces))
    assert verify_and_land(run.context, task) is CLOSED
    assert task.outcome["answer"] == answer
