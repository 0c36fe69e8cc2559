"""A person takes a task: the agent's conversation and worktree in a terminal, and the way back."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from holdfast import identity
from holdfast.app import App
from holdfast.decisions.context import Answer
from holdfast.decisions.takeovers import TAKE_POINTS
from holdfast.domain.task import TaskState
from holdfast.short_runs import decide_here
from kit.git import git
from kit.program import Terminal, begin, holdfast
from kit.project import add, landed, layout, settings, sound, state
from kit.tasks import agent_is_alive, failed, journal, turns, worktree
from kit.waiting import shell_wait, wait_for


def decide(repo: Path, kind: str, key: str, **params: object) -> Answer:
    return decide_here(App.find(repo, environ={}), key, kind, {"task": "a", **params}, print)


def test_a_taken_task_is_nobody_elses_and_goes_on_with_the_tree_as_the_person_left_it(repo: Path) -> None:
    failed(repo)
    answer = decide(repo, "take", "k1")
    assert decide(repo, "take", "k1") == answer and answer.facts["worktree"] == str(worktree(repo))
    assert len(journal(repo, "task_taken")) == 1 and state(repo).tasks["a"].state is TaskState.OPEN
    assert "taken by " in holdfast(repo, "list") and "holdfast give-back a" in holdfast(repo, "show", "a")
    assert "taken by " in holdfast(repo, "run", code=20) and len(journal(repo, "task_spawn_intent")) == 1
    for words in (["resume", "a"], ["cancel", "a"], ["resolve", "a", "--retry"], ["undo", "a", "--turn", "1"]):
        assert "it is taken by" in holdfast(repo, *words, code=9)
    holdfast(repo, "tell", "a", "Told meanwhile.")
    assert state(repo).tasks["a"].taken is not None
    (worktree(repo) / "mine.txt").write_text("mine\n")
    holdfast(repo, "give-back", "a")
    task = state(repo).tasks["a"]
    assert task.taken is None and not task.parked and task.continues and task.attempts == 1
    store = layout(repo).snapshots
    assert git(store, "rev-parse", "refs/attempts/a.1/taken-1") == task.attempt.tree
    assert "mine.txt" in git(store, "ls-tree", "--name-only", task.attempt.tree)
    prompt = holdfast(repo, "prompt", "a")
    assert "A person has worked in this worktree since" in prompt and "Told meanwhile." in prompt
    assert "nobody has taken it" in holdfast(repo, "give-back", "a", code=9)
    sound(repo)


def test_a_task_that_nobody_has_worked_on_or_that_has_ended_cannot_be_taken(repo: Path) -> None:
    add(repo, "a", "write a.txt x")
    with Terminal(repo, "take", "a") as terminal:
        assert terminal.end() == 9 and "nobody has worked on it yet" in terminal.seen
    assert "needs a terminal" in holdfast(repo, "take", "a", code=2)
    holdfast(repo, "run")
    with Terminal(repo, "take", "a") as terminal:
        assert terminal.end() == 9 and "`holdfast fork a" in terminal.seen.replace("\r\n", " ")


@pytest.mark.parametrize(("parks", "by_hand"), [(False, False), (True, False), (True, True)])
def test_a_task_whose_taker_died_goes_on_only_when_a_person_says_so(repo: Path, parks: bool, by_hand: bool) -> None:
    failed(repo)
    me = identity.current()
    process = {"pid": me.pid, "start_ticks": me.start_ticks + 1, "boot_id": me.boot_id, "host": me.host}
    decide(repo, "take", "k1", park=parks, **process)
    (worktree(repo) / "mine.txt").write_text("mine\n")
    if by_hand:
        assert "`holdfast resume a` goes on" in holdfast(repo, "give-back", "a")
    else:
        assert "It waits for you: `holdfast resume a`" in holdfast(repo, "run", code=20)
    task = state(repo).tasks["a"]
    assert task.taken is None and task.parked
    assert len(journal(repo, "task_spawn_intent")) == 1 and not (repo / "mine.txt").exists()
    (taken,), (given,) = journal(repo, "task_taken"), journal(repo, "task_given_back")
    assert taken.inputs["park"] is parks and given.inputs["park"]
    assert "holdfast resume a" in holdfast(repo, "show", "a")
    holdfast(repo, "resume", "a")
    assert not state(repo).tasks["a"].parked


def at_work(repo: Path) -> Path:
    """A task whose agent works until the returned file is there."""
    go = repo.parent / "go"
    settings(repo, grace_s=0.5)
    add(repo, "a", f"session s1\nwrite a.txt x\nrun {shell_wait(go)}\nwrite b.txt y")
    return go


@pytest.mark.heavy
@pytest.mark.parametrize("with_run", [True, False])
def test_the_agent_at_work_is_ended_and_a_shell_in_its_worktree_is_given_back_when_it_ends(
    repo: Path, with_run: bool
) -> None:
    go = at_work(repo)
    add(repo, "keeper", f"run {shell_wait(repo.parent / 'keep')}\nwrite kept.txt x")
    process = begin(repo)
    wait_for(lambda: turns(repo, "a") == 1, "the first turn")
    if not with_run:
        process.send_signal(signal.SIGINT)
        process.communicate()
    with Terminal(repo, "take", "a") as terminal:
        terminal.read_until(f"in {worktree(repo)}")
        wait_for(lambda: state(repo).tasks["a"].taken is not None, "that it is taken")
        assert not agent_is_alive(repo, "a.1")
        terminal.type('echo "$HOLDFAST_ATTEMPT" > mine.txt; sleep 300 & exit\n')
        assert terminal.end() == 0 and not terminal.is_raw, terminal.seen
        assert "goes on with the tree as you left it" in terminal.seen
    go.touch()
    (repo.parent / "keep").touch()
    if with_run:
        process.communicate()
    else:
        holdfast(repo, "run")
    task = state(repo).tasks["a"]
    assert task.state is TaskState.CLOSED and (task.attempts, task.attempt.turn, task.session) == (1, 3, "s1")
    assert (repo / "mine.txt").read_text() == "a.1\n" and (repo / "b.txt").exists() and "a" in landed(repo)
    sound(repo)


@pytest.mark.heavy
def test_after_the_death_of_its_terminal_the_next_run_gives_the_task_back_with_the_tree(repo: Path) -> None:
    go = at_work(repo)
    process = begin(repo)
    wait_for(lambda: turns(repo, "a") == 1, "the first turn")
    process.kill()
    process.communicate()
    with Terminal(repo, "take", "a") as terminal:
        terminal.read_until(f"in {worktree(repo)}")
        terminal.type("echo mine > mine.txt\n")
        wait_for((worktree(repo) / "mine.txt").exists, "the person's file")
        assert "process " in holdfast(repo, "run", code=20)
        terminal.process.kill()
    go.touch()
    assert "that process is gone: given back" in holdfast(repo, "run", code=20)
    assert not (repo / "mine.txt").exists() and state(repo).tasks["a"].parked
    holdfast(repo, "resume", "a")
    holdfast(repo, "run")
    assert (repo / "mine.txt").read_text() == "mine\n"
    (given,) = journal(repo, "task_given_back")
    assert given.inputs["died"] and state(repo).tasks["a"].attempts == 1
    sound(repo)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("point", "options"),
    [
        *((point, ()) for point in TAKE_POINTS),
        *((point, (option,)) for point in TAKE_POINTS[:2] for option in ("--shell", "--done")),
    ],
)
def test_a_kill_during_take_or_give_back_loses_nothing(repo: Path, point: str, options: tuple[str, ...]) -> None:
    failed(repo)
    env = {"HOLDFAST_CRASH_AT": f"{point}:1"}
    if point.startswith("take."):
        # The decision is made in the process that takes: it dies with it, and the next run gives the task back.
        with Terminal(repo, "take", "a", *options, env=env) as terminal:
            assert terminal.end() == -signal.SIGKILL
        assert state(repo).tasks["a"].taken is not None
    else:
        decide(repo, "take", "k1")
        (worktree(repo) / "mine.txt").write_text("mine\n")
        holdfast(repo, "give-back", "a", code=-signal.SIGKILL, env=env)
        assert state(repo).tasks["a"].taken is not None
        holdfast(repo, "give-back", "a")
    holdfast(repo, "run", code=20)
    task = state(repo).tasks["a"]
    assert task.taken is None and task.attempts == 1 and len(journal(repo, "task_given_back")) == 1
    if not point.startswith("take."):
        assert "mine.txt" in git(layout(repo).snapshots, "ls-tree", "--name-only", "refs/attempts/a.1/taken-1")
    sound(repo)
