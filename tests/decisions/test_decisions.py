"""What a person decides, with nobody running: real repositories, real agents, and the journal as the witness."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from holdfast.app import App
from holdfast.decisions import mailbox
from holdfast.decisions.context import Answer, DecisionContext
from holdfast.domain.task import TaskState
from holdfast.errors import HoldfastError
from holdfast.short_runs import decide_here
from holdfast.storage.records import attempt_folder
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, landed, layout, sound, state
from kit.roots import short_run
from kit.tasks import ask, failed, hanging, journal, keys, rejected
from kit.waiting import wait_for

KEY = "0" * 32


def decide(repo: Path, kind: str, key: str = KEY, **params: object) -> Answer:
    """One decision under a given id, as the run or a short session makes it."""
    app = App.find(repo, environ={})
    with short_run(app) as context:
        return mailbox.decide(DecisionContext.of(context, key), kind, params)


def orphaned_run(repo: Path, task: str) -> None:
    """A run that was killed while the task's agent works on."""
    run = begin(repo)
    wait_for(lambda: task in state(repo).tasks and state(repo).tasks[task].spent.turns > 0, "the first turn")
    run.kill()
    run.communicate()


# -- cancel -----------------------------------------------------------------------------------------------------------


@pytest.mark.heavy
def test_cancel_ends_an_agent_that_outlived_its_run_and_keeps_its_turns(repo: Path) -> None:
    hanging(repo, "a")
    orphaned_run(repo, "a")
    files = layout(repo).attempt_files("a.1")
    running = attempt_folder.read_process(files)
    assert running is not None and running.agent.is_alive()
    assert ask(repo, "cancel", "a")[0]["state"] == "CANCELLED"
    assert not running.agent.is_alive() and not running.runner.is_alive()
    assert attempt_folder.liveness(files, 1) in (attempt_folder.Liveness.ENDED, attempt_folder.Liveness.DEAD)
    assert state(repo).tasks["a"].spent.turns == 1 and (layout(repo).worktree("a") / "a.txt").exists()
    assert (layout(repo).backlog / "closed" / "a.yaml").exists()
    holdfast(repo, "run")
    assert str(state(repo).tasks["a"].state) == "CANCELLED" and len(journal(repo, "task_cancelled")) == 1
    sound(repo)


def pins_of(repo: Path) -> list[str]:
    return git(repo, "for-each-ref", "--format=%(refname)", "refs/holdfast/base").split()


@pytest.mark.heavy
@pytest.mark.parametrize("killed", [False, True])
def test_a_task_cancelled_without_a_run_pins_no_commit(repo: Path, killed: bool) -> None:
    hanging(repo, "a")
    hanging(repo, "b", parent="a")
    orphaned_run(repo, "b")
    assert len(pins_of(repo)) == 1
    if killed:
        env = {"HOLDFAST_CRASH_AT": "append.task_cancelled.after:1"}
        holdfast(repo, "cancel", "a", code=-signal.SIGKILL, env=env)
        assert len(pins_of(repo)) == 1
        holdfast(repo, "run")
    else:
        holdfast(repo, "cancel", "a")
    assert str(state(repo).tasks["b"].state) == "CANCELLED" and pins_of(repo) == []
    sound(repo)


@pytest.mark.heavy
@pytest.mark.parametrize("how", ["decided", "deleted"])
def test_a_task_cancelled_in_a_run_pins_no_commit_from_then_on(repo: Path, how: str) -> None:
    add(repo, "a", "write a.txt x\nfail on purpose", max_attempts=1)
    holdfast(repo, "run", code=20)
    assert len(pins_of(repo)) == 1
    hanging(repo, "other")
    run = begin(repo)
    wait_for(lambda: "other" in state(repo).tasks and state(repo).tasks["other"].spent.turns > 0, "the run")
    if how == "decided":
        holdfast(repo, "cancel", "a")
    else:
        (layout(repo).backlog / "failed" / "a.yaml").unlink()
    wait_for(lambda: len(pins_of(repo)) == 1 and "/other." in pins_of(repo)[0], "the pin to go")
    assert str(state(repo).tasks["a"].state) == "CANCELLED"
    holdfast(repo, "stop", "--agents")
    run.communicate()


# -- approve, reject --------------------------------------------------------------------------------------------------


def test_nothing_lands_before_it_is_approved_and_then_what_was_verified_does(repo: Path) -> None:
    add(repo, "a", "write a.txt one", approve=True)
    holdfast(repo, "run", code=20)
    assert str(state(repo).tasks["a"].state) == "PENDING_APPROVAL" and landed(repo) == []
    verified = state(repo).tasks["a"].landing.verified
    told = ask(repo, "approve", "a")
    assert told == [{"id": "a", "state": "DONE", "note": "the next `holdfast run` lands it"}]
    assert "only what waits for an approval" in holdfast(repo, "approve", "a", code=9)
    holdfast(repo, "run")
    assert git(repo, "rev-parse", "main") == verified and landed(repo) == ["a"]
    sound(repo)


def test_a_rejection_is_told_to_the_next_attempt_which_goes_on_with_the_work(repo: Path) -> None:
    add(repo, "a", "attempt 1: write a.txt one\nattempt 2: append a.txt two", approve=True)
    holdfast(repo, "run", code=20)
    assert "holdfast retry a" in holdfast(repo, "reject", "a", "--reason", "say two as well")
    task = state(repo).tasks["a"]
    assert task.state is TaskState.FAILED and task.outcome["detail"] == "say two as well" and landed(repo) == []
    holdfast(repo, "retry", "a")
    holdfast(repo, "run", code=20)
    holdfast(repo, "approve", "a")
    holdfast(repo, "run")
    assert git(repo, "show", "main:a.txt").split() == ["one", "two"]
    sound(repo)


# -- resume -----------------------------------------------------------------------------------------------------------


@pytest.mark.heavy
def test_resume_goes_on_with_the_same_attempt_and_its_worktree(repo: Path) -> None:
    marker = repo.parent / "marker"
    add(repo, "a", f"write a.txt one\nonce {marker}: fail no luck\nwrite b.txt two", max_attempts=1)
    holdfast(repo, "run", code=20)
    assert "the next `holdfast run` goes on with a.1" in holdfast(repo, "resume", "a")
    assert "goes on with it" in holdfast(repo, "resume", "a"), "open: there is nothing to decide"
    assert len(journal(repo, "attempt_resumed")) == 1
    holdfast(repo, "run")
    task = state(repo).tasks["a"]
    assert (task.attempt.id, task.attempts, task.start.number, task.spent.turns) == ("a.1", 1, 2, 2)
    assert git(repo, "ls-tree", "--name-only", "main").split() == [".gitignore", "README.md", "a.txt", "b.txt"]
    assert "cannot be resumed: it is closed" in holdfast(repo, "resume", "a", code=9)
    sound(repo)


# -- promote ----------------------------------------------------------------------------------------------------------


@pytest.mark.heavy
def test_promote_lands_what_failed_once_its_gate_passes(repo: Path) -> None:
    key = rejected(repo)
    told = ask(repo, "promote", "a", code=1)[0]
    assert told["state"] == "FAILED" and landed(repo) == [], "the gate still refuses it"
    assert state(repo).tasks["a"].claim.worked_by == "scripted", (
        "it stays the work of its agent, which may go on with it"
    )
    key.write_text("")
    assert ask(repo, "promote", "a")[0]["state"] == "CLOSED"
    task = state(repo).tasks["a"]
    assert (task.attempt.id, task.attempts) == ("a.1", 1) and landed(repo) == ["a"]
    assert git(repo, "rev-parse", "main") == task.landing.commit and (repo / "b.txt").exists()
    assert not layout(repo).worktree("a").exists()
    sound(repo)


@pytest.mark.heavy
def test_promote_of_a_closed_task_does_nothing_unless_its_landing_was_lost(repo: Path) -> None:
    add(repo, "a", "write a.txt one")
    before = git(repo, "rev-parse", "main")
    holdfast(repo, "run")
    there = git(repo, "rev-parse", "main")
    entries = len(journal(repo, "task_land_intent", "task_verify_intent"))
    assert "is on main already" in holdfast(repo, "promote", "a")
    assert len(journal(repo, "task_land_intent", "task_verify_intent")) == entries
    git(repo, "reset", "-q", "--hard", before)
    (repo / "other.txt").write_text("meanwhile\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "meanwhile")
    told = ask(repo, "promote", "a")[0]
    assert told["state"] == "CLOSED" and "landed again" in told["note"]
    assert git(repo, "rev-parse", "main") == told["landed"] != there
    assert (repo / "a.txt").exists() and (repo / "other.txt").exists() and git(repo, "status", "--short") == ""
    sound(repo)


@pytest.mark.heavy
def test_promote_says_why_it_cannot(repo: Path) -> None:
    failed(repo)
    assert "no attempt has made a candidate" in holdfast(repo, "promote", "a", code=9)
    add(repo, "b", "write x.txt y", depends_on=["a"])
    assert "cannot be promoted: it is open" in holdfast(repo, "promote", "b", code=9)


# -- once and no more -------------------------------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("kind", "params", "kinds"),
    [
        ("cancel", {"tasks": ["b", "c"]}, ["task_cancelled"] * 2),
        ("resume", {"task": "a"}, ["task_opened", "attempt_resumed"]),
        ("fork", {"task": "a", "turn": 2}, ["task_opened", "attempt_forked"]),
        ("fork", {"task": "a", "turn": 2, "id": "new"}, ["task_added"]),
    ],
)
def test_the_same_id_gives_the_same_answer_and_nothing_happens_twice(
    repo: Path, kind: str, params: dict[str, object], kinds: list[str]
) -> None:
    failed(repo)
    for name in ("b", "c"):
        add(repo, name, "write x.txt y", depends_on=["a"])
    first = decide(repo, kind, **params)
    found = keys(repo)
    assert [entry.decision_type for entry in journal(repo, *kinds) if "idempotency_key" in entry.inputs] == kinds
    assert found[0] == KEY and len(found) == len(kinds) == len(set(found))
    assert decide(repo, kind, **params) == first and keys(repo) == found
    sound(repo)


@pytest.mark.heavy
@pytest.mark.parametrize(("kind", "second"), [("resume", "attempt_resumed"), ("fork", "attempt_forked")])
def test_a_decision_that_a_crash_cut_in_half_is_finished_under_its_id(repo: Path, kind: str, second: str) -> None:
    failed(repo)
    decide(repo, "retry", tasks=["a"])  # the first record of both, and nothing more
    assert keys(repo) == [KEY] and not journal(repo, second)
    decide(repo, kind, **({"task": "a"} if kind == "resume" else {"task": "a", "turn": 2}))
    assert keys(repo) == [KEY, f"{KEY}#1"] and len(journal(repo, second)) == 1
    sound(repo)


@pytest.mark.heavy
def test_a_promotion_that_a_crash_cut_in_half_is_finished_under_its_id(repo: Path) -> None:
    rejected(repo).write_text("")
    decide(repo, "retry", tasks=["a"])  # the first of its four records
    app = App.find(repo)
    for _ in range(2):
        answer = decide_here(app, KEY, "promote", {"task": "a"}, print)
        assert answer.tasks[0].state is TaskState.CLOSED
    assert keys(repo) == [KEY, f"{KEY}#1", f"{KEY}#2", f"{KEY}#3"]
    assert landed(repo) == ["a"] and state(repo).tasks["a"].attempts == 1
    sound(repo)


def test_a_refused_decision_leaves_the_id_unused(repo: Path) -> None:
    failed(repo)
    with pytest.raises(HoldfastError, match="it is failed"):
        decide(repo, "approve", task="a")
    assert keys(repo) == []


@pytest.mark.parametrize(
    ("kind", "params"),
    [("cancel", {"task": "a"}), ("undo", {"task": "a", "turn": "1"}), ("fork", {"task": "a", "turn": 1, "run": "x"}),
     ("__class__", {}), ("resolve", {"task": "a", "decision": "rm -rf"})],
)  # fmt: skip
def test_a_decision_that_does_not_fit_the_state_is_refused(repo: Path, kind: str, params: dict[str, object]) -> None:
    with pytest.raises(HoldfastError) as caught:
        decide(repo, kind, **params)
    assert caught.value.exit_code == 2 and keys(repo) == []


@pytest.mark.heavy
def test_an_agent_that_is_stopped_by_a_signal_is_ended_too(repo: Path) -> None:
    hanging(repo, "a")
    orphaned_run(repo, "a")
    running = attempt_folder.read_process(layout(repo).attempt_files("a.1"))
    assert running is not None
    os.kill(running.runner.pid, signal.SIGSTOP)
    holdfast(repo, "cancel", "a")
    assert not running.agent.is_alive() and not running.runner.is_alive()
