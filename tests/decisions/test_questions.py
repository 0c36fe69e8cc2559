"""Questions of agents: asked, journalled, answered by a person or by time, and told to the agent. Real runs."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.agents.adapters import script
from holdfast.app import App
from holdfast.cli.screen.picture import see
from holdfast.cli.screen.watch_screen import _cells
from holdfast.decisions.questions import ANSWER_POINTS
from holdfast.domain.task import TaskState
from holdfast.domain.wording import moment
from holdfast.questions.records import Verdict
from holdfast.storage.records import attempt_folder
from kit.confined import needs_bwrap
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, layout, settings, state
from kit.tasks import ask, journal
from kit.waiting import wait_for

ASKS = {"permissions": "ask"}
LATER = "write a.txt one\nask-later run echo x >> {ran}\nwrite b.txt two\n"
HELD = "write a.txt one\nask run echo x >> {ran}\nwrite b.txt two\n"


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """A file outside of everything: each run of the tool adds a letter."""
    return tmp_path / "ran.txt"


def asking(repo: Path, script: str, ran: Path, **more: object) -> str:
    """A run ends with the question open; returns its id."""
    add(repo, "a", script.format(ran=ran), **{**ASKS, **more})
    holdfast(repo, "run", code=20)
    (question,) = ask(repo, "questions")
    return str(question["id"])


@pytest.mark.heavy
def test_a_call_that_needs_a_person_becomes_a_question_and_its_task_pauses(repo: Path, ran: Path) -> None:
    name = asking(repo, LATER, ran)
    assert name == "a.1.q1" and not ran.exists()
    task = state(repo).tasks["a"]
    assert task.state is TaskState.OPEN and state(repo).asking == {"a"} and task.attempt.turn == 1
    (entry,) = journal(repo, "question_asked")
    assert entry.inputs["tool"] == "run" and entry.inputs["argument"] == f"echo x >> {ran}"
    assert "wants to call run" in holdfast(repo, "questions", "a")
    assert "There is no task" in holdfast(repo, "questions", "nope", code=2)
    assert "asks a person" in holdfast(repo, "status")
    # It is not ready: another run does not start it again.
    holdfast(repo, "run", code=20)
    assert state(repo).tasks["a"].start.number == 1
    holdfast(repo, "check")


@pytest.mark.heavy
def test_an_allowed_call_is_made_once_and_the_attempt_goes_on(repo: Path, ran: Path) -> None:
    name = asking(repo, LATER, ran)
    holdfast(repo, "answer", name, "--allow")
    assert not state(repo).asking
    holdfast(repo, "run")
    assert ran.read_text() == "x\n"
    task = state(repo).tasks["a"]
    assert task.state is TaskState.CLOSED and task.attempts == 1 and not task.questions
    assert git(repo, "show", "main:b.txt") == "two"
    story = holdfast(repo, "history", "a")
    assert "Asks a person for leave to call run" in story and "allowed it" in story
    holdfast(repo, "check")


@pytest.mark.heavy
def test_a_denied_call_is_not_made_and_the_agent_is_told_why(repo: Path, ran: Path) -> None:
    name = asking(repo, LATER, ran)
    holdfast(repo, "answer", name, "--deny", "not on a Monday")
    holdfast(repo, "run")
    assert not ran.exists() and state(repo).tasks["a"].state is TaskState.CLOSED
    assert "not on a Monday" in layout(repo).attempt_files("a.1").traces.read_text()


@pytest.mark.heavy
def test_an_agent_that_waits_as_a_process_gets_its_answer_while_it_waits(repo: Path, ran: Path) -> None:
    add(repo, "a", HELD.format(ran=ran), **ASKS)
    run = begin(repo)
    wait_for(lambda: ask(repo, "questions"))
    assert state(repo).tasks["a"].state is TaskState.IN_PROGRESS
    holdfast(repo, "answer", "a.1.q1", "--allow")
    said, _ = run.communicate(timeout=60)
    assert f"a: its agent asks: run echo x >> {ran}: `holdfast answer a.1.q1 --allow`" in said and not run.returncode
    assert ran.read_text() == "x\n"
    task = state(repo).tasks["a"]
    assert task.state is TaskState.CLOSED and task.start.number == 1


@pytest.mark.heavy
def test_a_question_in_words_is_answered_in_words(repo: Path, ran: Path) -> None:
    name = asking(repo, "ask-later question Which colour?\n", ran)
    holdfast(repo, "answer", name, "--say", "the blue one")
    holdfast(repo, "run")
    assert git(repo, "show", "main:answer.txt") == "the blue one"


@pytest.mark.parametrize("sandbox", ["none", pytest.param("bwrap", marks=needs_bwrap)])
def test_a_command_asks_a_person_and_gets_the_words_also_when_its_orchestrator_was_killed(
    repo: Path, ran: Path, sandbox: str
) -> None:
    """It waits as a process, and finds its answer also where it was ended meanwhile and asks again."""
    words = f"{sys.executable} -m holdfast ask 'Which colour?'"
    command = f"{words} --wait 0.5 > colour.txt; echo $? > code.txt; {words} > colour.txt"
    content = {"id": "a", "goal": "a", "command": command, "sandbox": sandbox}
    (layout(repo).backlog_open / "a.yaml").write_bytes(msgspec.yaml.encode(content))
    run = begin(repo)
    (question,) = wait_for(lambda: ask(repo, "questions"))
    assert (question["kind"], question["tool"], question["preview"]) == ("words", "ask", "Which colour?")
    wait_for((layout(repo).worktree("a") / "code.txt").exists)
    run.send_signal(signal.SIGKILL)
    run.wait()
    holdfast(repo, "answer", question["id"], "--say", "the blue one")
    holdfast(repo, "run")
    task = state(repo).tasks["a"]
    assert task.state is TaskState.CLOSED and task.start.number == 1 and len(journal(repo, "question_asked")) == 1
    assert git(repo, "show", "main:colour.txt") == "the blue one" and git(repo, "show", "main:code.txt") == "75"
    holdfast(repo, "check")


def test_only_an_agent_at_work_can_ask(repo: Path) -> None:
    assert "only an agent that Holdfast has started can ask" in holdfast(repo, "ask", "Which colour?", code=2)


def shows_the_question(repo: Path) -> None:
    """Every list says that it waits for an answer, how to give it and until when; none, that its agent is at work."""
    (row,) = ask(repo, "list")["tasks"]
    (why,) = row["waits"]
    assert "its agent asks a person" in why and "holdfast answer a.1.q1" in why and "not before" not in why
    (asked,) = state(repo).tasks["a"].questions
    assert why.endswith(f"it waits until {moment(asked.asked_at + 3600)}, then it is denied")
    assert row["next_step"].startswith("holdfast questions a, then holdfast answer a.1.q1 ")
    assert " (asks) " in holdfast(repo, "list")
    told, facts = holdfast(repo, "status"), ask(repo, "status")
    assert "waiting for an answer      1" in told and "a waits for your answer" in told and "\nat work" not in told
    assert facts["asking"] == ["a"] and facts["at_work"] == []
    picture = see(App.find(repo))
    assert picture.counts == "1 asks" and _cells(picture, "a")[-1] == why


@pytest.mark.heavy
@pytest.mark.parametrize("script", [HELD, "ask-later question Which colour?\n"])
def test_a_run_says_that_an_agent_asks_when_it_does_and_at_its_end(repo: Path, ran: Path, script: str) -> None:
    add(repo, "a", script.format(ran=ran), **ASKS)
    settings(repo, question_timeout_s=3600, grace_s=0.5)
    run = begin(repo)
    wait_for(lambda: ask(repo, "questions"))
    shows_the_question(repo)
    run.send_signal(signal.SIGINT)
    said, _ = run.communicate(timeout=60)
    way = "--say WORDS`" if "colour" in script else "--allow`, or --deny WHY"
    assert f": `holdfast answer a.1.q1 {way}" in said
    assert "its agent asks a person" in said and "not before" not in said and "next: holdfast questions a" in said
    holdfast(repo, "cancel", "a")


def test_words_are_no_leave_to_make_a_call(repo: Path, ran: Path) -> None:
    name = asking(repo, LATER, ran)
    said = holdfast(repo, "answer", name, "--say", "go on", code=2)
    assert "words are no leave" in said and f"holdfast answer {name} --allow" in said
    assert not journal(repo, "question_answered") and state(repo).asking == {"a"}
    # As an older journal may have it.
    (question,) = state(repo).tasks["a"].questions
    assert replace(question, answer="say", words="go on").verdict.decision == "deny"


@pytest.mark.parametrize("decision", ["deny", "say", "own"])
def test_the_scripted_agent_makes_a_call_only_when_it_is_allowed(
    ran: Path, decision: Literal["deny", "say", "own"], capsys: pytest.CaptureFixture[str]
) -> None:
    script._turn("run", f"touch {ran}", "1", Verdict(decision, "words"))
    assert not ran.exists() and '"ok":false' in capsys.readouterr().out
    script._turn("run", f"touch {ran}", "2", Verdict("allow"))
    assert ran.exists()


def test_a_second_answer_is_refused_and_says_who_answered_what(repo: Path, ran: Path) -> None:
    name = asking(repo, LATER, ran)
    holdfast(repo, "answer", name, "--deny", "never")
    told = holdfast(repo, "answer", name, "--allow", code=9)
    assert "was answered by" in told and "deny" in told and "never" in told
    holdfast(repo, "run")
    told = holdfast(repo, "answer", name, "--allow", code=9)
    assert "was answered by" in told and "never" in told
    assert "no question" in holdfast(repo, "answer", "a.1.q9", "--allow", code=2)


def kill_agent(repo: Path, attempt: str = "a.1") -> None:
    running = attempt_folder.read_process(layout(repo).attempt_files(attempt))
    assert running is not None
    os.kill(running.agent.pid, signal.SIGKILL)


@pytest.mark.heavy
def test_an_agent_killed_while_it_waits_asks_again_and_nobody_is_asked_twice(repo: Path, ran: Path) -> None:
    add(repo, "a", HELD.format(ran=ran), **ASKS)
    run = begin(repo)
    wait_for(lambda: ask(repo, "questions"))
    kill_agent(repo)
    assert run.wait(60) == 20
    task = state(repo).tasks["a"]
    assert task.state is TaskState.OPEN and [each["id"] for each in ask(repo, "questions")] == ["a.1.q1"]
    holdfast(repo, "answer", "a.1.q1", "--allow")
    holdfast(repo, "run")
    assert ran.read_text() == "x\n" and len(journal(repo, "question_asked")) == 1
    assert state(repo).tasks["a"].state is TaskState.CLOSED


@pytest.mark.heavy
def test_a_waiting_agent_needs_no_slot(repo: Path, ran: Path) -> None:
    add(repo, "a", HELD.format(ran=ran), **ASKS)
    run = begin(repo, HOLDFAST_MAX_AGENTS="1")
    wait_for(lambda: ask(repo, "questions"))
    add(repo, "b", "write c.txt three\n")
    wait_for(lambda: (found := state(repo).tasks.get("b")) is not None and found.state is TaskState.CLOSED)
    holdfast(repo, "answer", "a.1.q1", "--deny", "no")
    assert run.wait(60) == 0


@pytest.mark.heavy
def test_an_unanswered_question_is_denied_after_the_time_that_the_settings_give(repo: Path, ran: Path) -> None:
    asking(repo, LATER, ran)
    holdfast(repo, "run", env={"HOLDFAST_QUESTION_TIMEOUT_S": "0.01"})
    assert not ran.exists() and state(repo).tasks["a"].state is TaskState.CLOSED
    (entry,) = journal(repo, "question_answered")
    assert entry.inputs["by"] == "timeout" and "Nobody answered in time" in holdfast(repo, "history", "a")


@pytest.mark.heavy
@pytest.mark.parametrize("decision", [("cancel", "a"), ("undo", "a", "--turn", "1")])
def test_a_question_of_a_task_that_was_cancelled_or_put_back_is_closed(
    repo: Path, ran: Path, decision: tuple[str, ...]
) -> None:
    name = asking(repo, LATER, ran)
    holdfast(repo, *decision)
    assert ask(repo, "questions") == []
    assert "closed without an answer" in holdfast(repo, "answer", name, "--allow", code=9)
    holdfast(repo, "check")


@pytest.mark.heavy
def test_rules_decide_before_a_person_is_asked(repo: Path, ran: Path) -> None:
    rules = [{"do": "allow", "tool": "run", "input": "echo x >> *"}, {"do": "deny", "tool": "write", "input": "b.txt*"}]
    script = f"ask run echo x >> {ran}\nask write b.txt no\nask write c.txt yes\n"
    add(repo, "a", script, permissions=[*rules, {"do": "allow", "tool": "write"}])
    holdfast(repo, "run")
    assert ran.read_text() == "x\n" and git(repo, "ls-tree", "--name-only", "main", "--", "b.txt", "c.txt") == "c.txt"
    assert not journal(repo, "question_asked")
    assert "forbid" in layout(repo).attempt_files("a.1").traces.read_text()


@pytest.mark.heavy
def test_always_writes_a_rule_that_the_next_call_goes_by(repo: Path, ran: Path) -> None:
    before = layout(repo).settings.read_text()
    name = asking(repo, f"ask-later run echo x >> {ran}\nask-later run echo x >> {ran}\nwrite d.txt done\n", ran)
    # Killed between the rule and the answer: asked again, the rule is there once.
    (point,) = ANSWER_POINTS
    holdfast(repo, "answer", name, "--always", code=None, env={"HOLDFAST_CRASH_AT": f"{point}:1"})
    assert state(repo).asking and not journal(repo, "question_answered")
    holdfast(repo, "answer", name, "--always")
    text = layout(repo).settings.read_text()
    assert text.startswith(before) and text.count("allow") == before.count("allow") + 1
    holdfast(repo, "run")
    assert ran.read_text() == "x\nx\n" and len(journal(repo, "question_asked")) == 1
    (entry,) = journal(repo, "question_answered")
    assert entry.inputs["rule"] == f"allow run echo x >> {ran} (scripted)"
    assert "from now on the settings say" in holdfast(repo, "history", "a")
