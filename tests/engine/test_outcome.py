"""Every way in which a start can end, and what the journal, the task and a watching person show of it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.domain.attempt_records import Ending, Exit
from holdfast.domain.spend import Spend
from holdfast.domain.task import TaskEvent, TaskState
from holdfast.domain.task_record import Task
from holdfast.engine.orphans import _worked_after_last_turn, continue_orphan, end_as_orphan
from holdfast.engine.outages import QUOTA_S
from holdfast.engine.outcome import apply_exit
from holdfast.storage.journal.entry import Record
from kit.git import git
from kit.states import Run, append, moves, running, turn_line

S, E = TaskState, Ending
NOW = 1_800_000_000.0
DETAIL = "It is so."
SPENT = Spend(usd=0.5, tokens=7, turns=0, seconds=2.0)
FAIL, BACK = "agent_reports_failure", "requeue"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with running(tmp_path / "repo", lambda: NOW, agent="scripted") as run:
        yield run


def ended(ending: Ending, **more: Any) -> Exit:
    told = {"detail": DETAIL, "at": NOW, "session": "s-1", "spent": SPENT, **more}
    return Exit(attempt="t.1", start=1, ending=ending, **told)


def at_work(run: Run, **facts: Any) -> Task:
    return run.task("t", S.IN_PROGRESS, **facts)


# The state that follows, the move's event and reason, whether another attempt follows by itself, whether the
# conversation is given up, and what is said. DONE, pauses and limits have tables of their own.
TABLE: dict[Ending, tuple[TaskState, str, str, bool, bool, list[str]]] = {
    E.FAILED: (S.FAILED, FAIL, "agent_failed", True, False, ["It is so; attempt 2 of 3 follows"]),
    E.NOT_STARTED: (S.FAILED, FAIL, "not_started", True, False, ["It is so; attempt 2 of 3 follows"]),
    E.TIMEOUT: (S.FAILED, FAIL, "timeout", True, False, ["It is so; attempt 2 of 3 follows"]),
    E.STALLED: (S.FAILED, FAIL, "stalled", True, False, ["It is so; attempt 2 of 3 follows"]),
    E.WORKTREE_LOST: (S.FAILED, FAIL, "worktree_lost", True, False, ["It is so; attempt 2 of 3 follows"]),
    E.OVER_LIMIT: (S.FAILED, FAIL, "over_limit", True, False, ["It is so; attempt 2 of 3 follows"]),
    # An agent that refused, or went in circles, would do so again in the same conversation.
    E.REFUSED: (S.FAILED, FAIL, "agent_refused", True, True, ["It is so; attempt 2 of 3 follows"]),
    E.CIRCUIT_OPEN: (S.FAILED, FAIL, "circuit_open", True, True, ["It is so; attempt 2 of 3 follows"]),
    # A person has to change something first.
    E.AUTH_MISSING: (S.FAILED, FAIL, "auth_missing", False, False, [DETAIL]),
    E.STOPPED: (S.OPEN, BACK, "shutdown", False, False, ["t.1 pauses: It is so."]),
    E.ASKING: (S.OPEN, BACK, "asked", False, False, ["t.1 pauses: It is so."]),
    # Neither a failure nor an outage: the same attempt goes on, in another conversation.
    E.SESSION_FULL: (
        S.OPEN,
        BACK,
        "session_full",
        False,
        True,
        ["It is so. t.1 begins another one, with the history in its prompt."],
    ),
    E.TOLD: (S.OPEN, BACK, "told", False, False, ["t.1 goes on with what a person has told it"]),
    # The loop says so itself, once for all tasks that it holds.
    E.ENVIRONMENT: (S.OPEN, BACK, "environment", False, False, []),
    E.CRASHED: (S.ORPHANED, "crash", "crashed", False, False, ["t.1 crashed: It is so."]),
    E.RUNNER_FAILED: (S.ORPHANED, "crash", "crashed", False, False, ["t.1 crashed: It is so."]),
}
PAUSES = {E.UNREACHABLE, E.RATE_LIMITED, E.QUOTA}
TYPE = {S.FAILED: "task_failed", S.OPEN: "task_opened", S.ORPHANED: "task_orphaned"}


def test_the_tables_have_every_ending() -> None:
    assert TABLE.keys() | PAUSES | {E.DONE, E.LIMIT} == set(Ending)
    assert not TABLE.keys() & (PAUSES | {E.DONE, E.LIMIT})


@pytest.mark.parametrize("ending", TABLE)
def test_each_ending_moves_the_task_and_is_reported(run: Run, ending: Ending) -> None:
    state, event, reason, again, forgets, notes = TABLE[ending]
    task = at_work(run)
    apply_exit(run.context, task, ended(ending, snapshot="5" * 40))
    assert run.moved[0] == (TYPE[state], event, reason)
    assert (task.state, task.again, task.claim.agent) == (state, again, "scripted" if state is S.ORPHANED else "")
    assert task.session == ("" if forgets else "s-1")
    # An agent pays for its last words, too; and what it leaves is what the next start goes on with.
    assert (task.spent.usd, task.spent.tokens, task.spent.seconds) == (SPENT.usd, SPENT.tokens, SPENT.seconds)
    assert task.attempt.tree == ("" if state is S.ORPHANED else "5" * 40), "the tree of an orphan is looked at first"
    assert run.notes == notes
    if state is S.FAILED:
        kind = ending if ending is not E.AUTH_MISSING else "auth_missing"
        assert task.outcome == {"kind": str(kind), "detail": DETAIL, "attempt": "t.1"}
    assert len(run.moved) == (2 if ending is E.ENVIRONMENT else 1)


def test_a_fault_of_the_machine_is_shown_while_it_holds_the_task_up(run: Run) -> None:
    task = at_work(run)
    apply_exit(run.context, task, ended(E.ENVIRONMENT))
    assert [kind for kind, *_ in run.moved] == ["task_opened", "task_flagged"]
    assert (task.cause, task.not_before, task.parked, task.attempts) == (DETAIL, 0.0, "", 1)
    assert task.continues and task.outcome["kind"] == "environment"


def test_an_attempt_that_was_cut_short_is_told_so_in_the_next_prompt(run: Run) -> None:
    task = at_work(run)
    apply_exit(run.context, task, ended(E.OVER_LIMIT))
    assert run.context.blobs.get(task.feedback) == b"Your work was cut short. It is so."


@pytest.mark.parametrize("own", [True, False])
def test_the_last_attempt_is_followed_by_none(tmp_path: Path, own: bool) -> None:
    with running(tmp_path / "repo", **({} if own else {"max_attempts": 1})) as run:
        task = at_work(run, definition={"max_attempts": 1} if own else {})
        apply_exit(run.context, task, ended(E.FAILED))
        assert not task.again and run.notes == [DETAIL]


# -- pauses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "reason", "pause_s", "pause_s_max"),
    [
        (E.UNREACHABLE, "unreachable", 5.0, 6.25),
        (E.RATE_LIMITED, "rate_limited", 60.0, 60.0),
        (E.QUOTA, "quota_exhausted", QUOTA_S, QUOTA_S),
    ],
)
@pytest.mark.parametrize("until", [0.0, NOW + 1234.0])
def test_an_agent_that_cannot_use_its_model_pauses_and_costs_no_attempt(
    run: Run, ending: Ending, reason: str, pause_s: float, pause_s_max: float, until: float
) -> None:
    task = at_work(run)
    apply_exit(run.context, task, ended(ending, until=until))
    # The pause is on disk before the task is open.
    assert run.moved == [("task_flagged",), ("task_opened", BACK, reason)]
    lasts_s = task.not_before - NOW
    assert lasts_s == 1234.0 if until else pause_s <= lasts_s <= pause_s_max
    assert task.state is S.OPEN and task.continues and task.session == "s-1"
    assert task.cause.startswith("scripted ") and task.cause.endswith(DETAIL)
    assert task.outcome == {"kind": str(ending), "detail": DETAIL, "attempt": "t.1"}
    assert len(run.notes) == 1 and run.notes[0].startswith("t.1 pauses until ") and run.notes[0].endswith(DETAIL)
    [(agent, _), outage] = next(iter(run.ledger.state.outages.items()))
    assert agent == "scripted" and outage.until == task.not_before


# -- limits -----------------------------------------------------------------------------------------------------------

LIMITS = [
    ("usd", "budget_exhausted"),
    ("tokens", "tokens_exhausted"),
    ("turns", "turns_exhausted"),
    ("seconds", "timeout"),
]


@pytest.mark.parametrize(("limit", "reason"), LIMITS)
def test_a_task_that_has_used_up_its_own_budget_fails_for_good(run: Run, limit: str, reason: str) -> None:
    task = at_work(run, definition={f"budget_{limit}": 1})
    spend = {"usd": 1.0, "tokens": 1, "seconds": 1.0}
    turn = {"task": "t", "attempt": "t.1", "turn": 1, "end_offset": 1, **spend}
    append(run.ledger, Record("turn_completed", turn))
    run.mark()
    apply_exit(run.context, task, ended(E.LIMIT, limit=limit))
    assert run.moved == [("task_failed", FAIL, reason)]
    assert not task.again and task.outcome["kind"] == "limit" and run.notes == [DETAIL]


@pytest.mark.parametrize(("limit", "reason"), LIMITS)
def test_a_task_that_has_used_its_share_of_the_runs_budget_is_given_back(run: Run, limit: str, reason: str) -> None:
    task = at_work(run)
    apply_exit(run.context, task, ended(E.LIMIT, limit=limit))
    assert run.moved == [("task_opened", BACK, reason)]
    assert task.continues and run.notes == ["t.1 pauses: It is so."]


# -- a conversation that is long enough -------------------------------------------------------------------------------


def test_a_conversation_that_is_long_enough_is_not_counted_as_lost(run: Run) -> None:
    """So one that is lost later in the same attempt still costs nothing."""
    task = at_work(run, session="s-0")
    apply_exit(run.context, task, ended(E.SESSION_FULL))
    assert (task.session, task.continues, task.attempts, task.attempt.resumes, task.lost_in) == ("", True, 1, 0, "")
    assert task.outcome["kind"] == "session_full" and not task.not_before and not run.context.ledger.state.outages


# -- a conversation that was lost -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [E.FAILED, E.NOT_STARTED])
def test_a_conversation_that_cannot_be_resumed_is_begun_anew_once_in_an_attempt(run: Run, ending: Ending) -> None:
    task = at_work(run, session="s-0")
    nothing = ended(ending, spent=Spend(), session="")
    apply_exit(run.context, task, nothing)
    assert run.moved == [("task_opened", BACK, "conversation_lost")]
    assert (task.session, task.continues, task.lost_in) == ("", True, "t.1")
    assert "The conversation s-0 was lost" in run.notes[0] and "begins another one" in run.notes[0]

    moved = {"task": "t", "reason": "test", "attempt": "t.1", "agent": "scripted"}
    append(run.ledger, Record("task_claimed", {**moved, "event": TaskEvent.AGENT_CLAIMS_TASK}))
    append(run.ledger, Record("task_started", {**moved, "event": TaskEvent.AGENT_STARTS_WORK, "session": "s-1"}))
    run.mark()
    apply_exit(run.context, task, nothing)
    assert task.state is S.FAILED and task.again and task.session == ""


@pytest.mark.parametrize(
    ("session", "spent", "agent"),
    # There was none; it has spent something; its agent cannot resume one.
    [("", Spend(), "scripted"), ("s-0", SPENT, "scripted"), ("s-0", Spend(), "command")],
)
def test_a_start_that_lost_no_conversation_has_failed(run: Run, session: str, spent: Spend, agent: str) -> None:
    task = at_work(run, session=session, agent=agent)
    apply_exit(run.context, task, ended(E.FAILED, spent=spent, session=""))
    assert run.moved == [("task_failed", FAIL, "agent_failed")]


# -- what it printed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("detail", "printed", "told"),
    [
        (
            "The agent ended with code 1.",
            'one\n\n{"json": 1}\ntwo\nthree\nfour\n',
            ' It printed: "two / three / four".',
        ),
        ("The agent was killed by SIGKILL.", "[1]\n{}\n", ""),
        ("The agent ended with code 1.", "", ""),
        # It gave a reason by itself.
        ("No such model.", "one\n", ""),
    ],
)
@pytest.mark.parametrize("ending", [E.FAILED, E.CRASHED])
def test_an_agent_without_a_reason_is_told_of_with_its_last_lines(
    run: Run, ending: Ending, detail: str, printed: str, told: str
) -> None:
    task = at_work(run)
    files = run.context.layout.attempt_files("t.1")
    files.root.mkdir(parents=True)
    files.start(1).write_text("{}")
    files.output.write_text(printed)
    apply_exit(run.context, task, ended(ending, detail=detail))
    [note] = run.notes
    assert (f"{detail}{told}".removesuffix(".") in note) and ("It printed" in note) is bool(told)


# -- done -------------------------------------------------------------------------------------------------------------


def test_an_agents_work_becomes_a_candidate_on_top_of_its_base(run: Run) -> None:
    task = at_work(run)
    snapshot = run.snapshot("t", made="x")
    apply_exit(run.context, task, ended(E.DONE, snapshot=snapshot))
    assert run.moved == [("task_done", "agent_reports_success", "agent_reported")]
    store = run.context.worktrees.store
    assert store.run("rev-parse", f"{task.candidate}^").line == run.base
    assert store.run("diff", "--name-only", run.base, task.candidate).line == "made"
    assert (task.claim.agent, task.session, task.outcome) == ("scripted", "s-1", {"detail": DETAIL})
    assert task.spent.usd == SPENT.usd and run.notes == ["t.1 is done after 0 turns"]


@pytest.mark.parametrize("has_snapshot", [True, False])
def test_an_agent_that_changed_nothing_is_done_with_its_base_or_with_nothing(run: Run, has_snapshot: bool) -> None:
    task = at_work(run)
    snapshot = run.snapshot("t") if has_snapshot else ""
    apply_exit(run.context, task, ended(E.DONE, snapshot=snapshot, detail=""))
    assert task.state is S.DONE and task.candidate == (run.base if has_snapshot else "") and task.outcome == {}


def test_a_result_that_is_lost_is_for_a_person_to_decide(run: Run) -> None:
    task = at_work(run)
    run.snapshot("t")
    apply_exit(run.context, task, ended(E.DONE, snapshot="5" * 40))
    assert run.moved == [("task_opened", BACK, "parked"), ("task_flagged",)]
    assert "is lost" in task.parked and task.candidate == "" and task.attempt.tree == "5" * 40
    assert run.notes == [task.parked]


def test_work_with_a_repository_of_its_own_inside_is_not_taken(run: Run) -> None:
    task = at_work(run)
    run.snapshot("t")
    inner = run.context.worktrees.path("t") / "inner"
    inner.mkdir()
    subprocess.run(["git", "init", "-q", str(inner)], check=True)
    git(inner, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "x")
    apply_exit(run.context, task, ended(E.DONE, snapshot=run.snapshot("t", made="x")))
    assert run.moved == [("task_failed", FAIL, "verification_failed")]
    assert task.outcome["kind"] == "nested_repository" and task.candidate == "" and task.again
    assert run.context.blobs.get(task.feedback).startswith(b"Your work was not taken: it leaves a git repository")


# -- nobody said how it ended -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "reason"), [(TaskEvent.CRASH, "crashed"), (TaskEvent.HEARTBEAT_TIMEOUT, "heartbeat_lost")]
)
def test_an_attempt_of_which_nobody_said_anything_is_orphaned(run: Run, event: TaskEvent, reason: str) -> None:
    task = at_work(run, session="s-0")
    run.context.layout.attempt_files("t.1").root.mkdir(parents=True)
    (run.context.layout.logs / "t.1.log").write_text("first\nMemoryError\n")
    end_as_orphan(run.context, task, event)
    assert run.moved == [("task_orphaned", event, reason)]
    assert (task.state, task.session) == (S.ORPHANED, "s-0")
    assert run.notes == ["t.1 is orphaned after turn 0; its runner said: MemoryError"]


@pytest.mark.parametrize(
    ("ending", "wanted"),
    [
        (E.FAILED, ("task_failed", FAIL, "agent_failed")),
        # The runner was asked to end for this.
        (E.STOPPED, ("task_orphaned", "crash", "crashed")),
    ],
)
def test_an_attempt_that_said_how_it_ended_just_before_is_believed(
    run: Run, ending: Ending, wanted: tuple[str, str, str]
) -> None:
    task = at_work(run)
    files = run.context.layout.attempt_files("t.1")
    files.root.mkdir(parents=True)
    files.exit.write_bytes(msgspec.json.encode(ended(ending, intent=task.start.intent)))
    end_as_orphan(run.context, task, TaskEvent.CRASH)
    assert run.moved == [wanted]


RESUMED = (
    TaskEvent.REQUEUED_FOR_RETRY,
    TaskEvent.AGENT_CLAIMS_TASK,
    TaskEvent.AGENT_STARTS_WORK,
    TaskEvent.CRASH,
)


@pytest.mark.parametrize(
    ("resumes", "wanted"),
    [
        (0, [("task_opened", "requeued_for_retry", "resumed")]),
        # It came to nothing, and not for the first time: it waits a little.
        (1, [("task_flagged",), ("task_opened", "requeued_for_retry", "resumed")]),
        (2, [("task_failed", "unrecoverable", "resumes_exhausted")]),
    ],
)
def test_an_orphan_is_continued_as_often_as_the_settings_say(
    tmp_path: Path, resumes: int, wanted: list[tuple[str, ...]]
) -> None:
    with running(tmp_path / "repo", lambda: NOW, max_resumes=2) as run:
        task = run.task("t", S.ORPHANED)
        append(run.ledger, *moves("t", S.ORPHANED, *(RESUMED * resumes)), base=run.base)
        run.mark()
        continue_orphan(run.context, task)
        assert run.moved == wanted
        assert task.not_before == (NOW + 0.2 if resumes == 1 else 0.0)
        assert (task.again, task.state) == ((True, S.FAILED) if resumes == 2 else (False, S.OPEN))


@pytest.mark.parametrize(
    ("definition", "has_turn", "wanted"),
    [
        ({"verify": ["true"]}, True, ("task_done", "partial_work_merged", "salvaged")),
        ({"approve": True}, True, ("task_done", "partial_work_merged", "salvaged")),
        # Nothing judges whether it is complete; there is nothing to judge.
        ({}, True, ("task_failed", "unrecoverable", "resumes_exhausted")),
        ({"verify": ["true"]}, False, ("task_failed", "unrecoverable", "resumes_exhausted")),
    ],
)
def test_the_last_turn_of_an_orphan_is_salvaged_only_where_something_judges_it(
    tmp_path: Path, definition: dict[str, Any], has_turn: bool, wanted: tuple[str, ...]
) -> None:
    with running(tmp_path / "repo", max_resumes=0) as run:
        task = at_work(run, definition=definition)
        if has_turn:
            turn = {"task": "t", "attempt": "t.1", "turn": 1, "end_offset": 1, "snapshot": run.snapshot("t", made="x")}
            append(run.ledger, Record("turn_completed", turn))
        append(run.ledger, *moves("t", S.IN_PROGRESS, TaskEvent.CRASH))
        run.mark()
        continue_orphan(run.context, task)
        assert run.moved == [wanted]
        assert bool(task.candidate) is (task.state is S.DONE)


def test_turns_that_the_attempt_completed_are_journalled_before_its_end(run: Run) -> None:
    task = at_work(run)
    files = run.context.layout.attempt_files("t.1")
    files.root.mkdir(parents=True)
    line = turn_line(1, task.start.intent, ts=NOW, changed=True, usd=0.25, tokens=3, seconds=1.0, session="s-1")
    files.turns.write_bytes(msgspec.json.encode(line) + b"\n")
    apply_exit(run.context, task, ended(E.FAILED))
    assert [kind for kind, *_ in run.moved] == ["turn_completed", "task_failed"]
    assert (task.attempt.turn, task.spent.usd, task.spent.tokens) == (1, SPENT.usd, SPENT.tokens), (
        "what a turn has counted is not counted twice"
    )


@pytest.mark.parametrize(("start", "is_kept"), [(2, True), (1, False)], ids=["of this start", "of an earlier start"])
def test_only_a_tool_of_the_orphaned_start_itself_keeps_its_tree(run: Run, start: int, is_kept: bool) -> None:
    """Start 1 was put back to its last turn; that one of its tools had ended says nothing of what start 2 left."""
    files = run.context.layout.attempt_files("t.1")
    files.root.mkdir(parents=True)
    events = [{"ts": NOW, "start": start, "turn": 1, "type": "tool_ended"}, {"ts": NOW, "start": 2, "type": "text"}]
    files.events.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    assert _worked_after_last_turn(files, 2) is is_kept
