"""Tasks of an agent that speaks the Agent Client Protocol, through `holdfast run`: killed, resumed, woken."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.domain.task import TaskState
from holdfast.storage.journal.lock import live_owner
from holdfast.storage.records import attempt_folder
from kit import TOP
from kit.git import git
from kit.program import begin, holdfast
from kit.project import landed, layout, settings, sound, state
from kit.tasks import journal
from kit.waiting import wait_for

pytestmark = [pytest.mark.usefixtures("no_agent_left"), pytest.mark.heavy]


def task(repo: Path, *steps: dict[str, Any], verify: str = "true", **plan: Any) -> Path:
    """A task for the scripted agent; returns the folder with what the agent keeps."""
    folder = repo.parent / "plan"
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps({"steps": steps, **plan}))
    acp = [sys.executable, str(TOP / "tests/kit/acp_agent.py"), str(folder / "plan.json")]
    settings(repo, agents=[{"name": "mine", "acp": acp}], agent="mine", grace_s=0.5)
    holdfast(repo, "add", "Write it", "--id", "t", "--verify", verify)
    return folder


def heard(folder: Path, method: str) -> list[dict[str, Any]]:
    lines = (folder / "heard.jsonl").read_text().splitlines()
    return [each for each in map(json.loads, lines) if each.get("method") == method]


def test_the_agent_goes_on_while_the_orchestrator_is_killed_and_is_adopted(repo: Path) -> None:
    go = repo.parent / "go"
    folder = task(repo, {"write": "b"}, {"wait": str(go)}, {"write": "c", "ask": 1})
    run = begin(repo)
    files = layout(repo).attempt_files("t.1")
    wait_for(lambda: files.turns.exists() and files.turns.read_bytes(), "the first turn")
    agent = attempt_folder.read_process(files)
    run.kill()
    run.wait()
    # The runner answers it while nobody else lives.
    go.touch()
    wait_for(lambda: attempt_folder.read_exit(files, 1), "the end of the start")
    assert live_owner(layout(repo).lock) is None
    holdfast(repo, "run", "--plain")
    found = state(repo).tasks["t"]
    assert agent is not None and found.state is TaskState.CLOSED and found.start.number == 1 and found.spent.turns == 2
    assert len(heard(folder, "session/prompt")) == 1 and landed(repo) == ["t"]
    sound(repo)


@pytest.mark.parametrize("victim", ["agent", "runner"])
def test_a_killed_agent_or_runner_costs_one_turn_at_most_and_the_session_goes_on(repo: Path, victim: str) -> None:
    go = repo.parent / "go"
    folder = task(
        repo, {"write": "b"}, {"wait": str(go)}, {"write": "c"}, verify='test "$(cat b c)" = "$(printf \'b\\nc\')"'
    )
    run = begin(repo)
    files = layout(repo).attempt_files("t.1")
    wait_for(lambda: files.turns.exists() and files.turns.read_bytes(), "the first turn")
    running = attempt_folder.read_process(files)
    assert running is not None
    os.kill((running.agent if victim == "agent" else running.runner).pid, signal.SIGKILL)
    if victim == "runner":
        # The agent has outlived it, and must not finish what nobody saves.
        wait_for(lambda: heard(folder, "session/resume"), "the next start")
    go.touch()
    out, _ = run.communicate(timeout=120)
    found = state(repo).tasks["t"]
    assert found.state is TaskState.CLOSED and found.attempts == 1 and found.start.number == 2, out
    assert [each["params"]["sessionId"] for each in heard(folder, "session/resume")] == ["ses-1"]
    assert found.spent.turns == 2 and git(repo, "show", "main:c") == "c"
    sound(repo)


def test_a_lost_session_begins_anew_with_its_history(repo: Path) -> None:
    folder = task(repo, {"say": "I was here."}, {"write": "a1"}, {"write": "b", "kill": 1}, forgets=True)
    assert "begins another one, with the history in its prompt" in holdfast(repo, "run", "--plain")
    found = state(repo).tasks["t"]
    assert found.state is TaskState.CLOSED and found.attempts == 1 and heard(folder, "session/resume")
    prompts = [each["params"]["prompt"][0]["text"] for each in heard(folder, "session/prompt")]
    assert ["I was here." in each for each in prompts] == [False, True]
    sound(repo)


# -- questions --------------------------------------------------------------------------------------------------------


def asks(repo: Path, *steps: dict[str, Any]) -> Path:
    """A task whose agent asks a person before each tool that it asks for."""
    folder = task(repo, *steps)
    known = msgspec.yaml.decode(layout(repo).settings.read_bytes())
    known["agents"][0]["permissions"] = "ask"
    settings(repo, **known)
    return folder


def open_questions(repo: Path) -> list[str]:
    found = state(repo).tasks.get("t")
    return [each.id for each in found.questions if each.is_open] if found is not None else []


def test_a_question_is_held_while_nobody_runs_and_its_tool_runs_once(repo: Path) -> None:
    folder = asks(repo, {"write": "b"}, {"write": "c", "ask": 1}, {"say": "end"})
    run = begin(repo)
    wait_for(lambda: open_questions(repo), "the question")
    run.kill()
    run.wait()
    assert "wants to call edit" in holdfast(repo, "questions")
    holdfast(repo, "answer", "t.1.q1", "--allow")
    holdfast(repo, "run", "--plain")
    found = state(repo).tasks["t"]
    assert found.state is TaskState.CLOSED and found.start.number == 1 and len(heard(folder, "session/prompt")) == 1
    assert git(repo, "show", "main:c") == "c"
    sound(repo)


def test_a_denied_request_is_rejected_and_the_agent_goes_on(repo: Path) -> None:
    asks(repo, {"write": "c", "ask": 1}, {"write": "d"})
    run = begin(repo)
    wait_for(lambda: open_questions(repo), "the question")
    holdfast(repo, "answer", "t.1.q1", "--deny", "no")
    run.communicate(timeout=120)
    assert state(repo).tasks["t"].state is TaskState.CLOSED
    assert {"c", "d"} & set(git(repo, "ls-tree", "--name-only", "main").splitlines()) == {"d"}


@pytest.mark.parametrize("victim", ["agent", "runner"])
def test_an_equal_question_after_a_kill_is_not_asked_again(repo: Path, victim: str) -> None:
    folder = asks(repo, {"write": "b"}, {"write": "c", "ask": 1})
    run = begin(repo)
    wait_for(lambda: open_questions(repo), "the question")
    running = attempt_folder.read_process(layout(repo).attempt_files("t.1"))
    assert running is not None
    os.kill((running.agent if victim == "agent" else running.runner).pid, signal.SIGKILL)
    run.communicate(timeout=120)
    assert open_questions(repo) == ["t.1.q1"]
    holdfast(repo, "answer", "t.1.q1", "--allow")
    holdfast(repo, "run", "--plain")
    found = state(repo).tasks["t"]
    assert found.state is TaskState.CLOSED and found.attempts == 1 and heard(folder, "session/resume")
    assert git(repo, "show", "main:c") == "c" and len(journal(repo, "question_asked")) == 1
    sound(repo)
