"""What a newcomer reads on the second look: stories, what an agent does, why it died, and what a gate said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.engine.outcome import TAIL_BYTES
from kit.program import Terminal, started, type_in
from kit.project import add, make_repo
from kit.waiting import wait_for


def test_lines_that_are_empty_or_only_drawn_are_no_part_of_what_is_told_of_a_gate(tmp_path: Path) -> None:
    """As unittest ends: what says why stands above the rulers."""
    repo = make_repo(tmp_path / "repo")
    gate = "printf 'AssertionError: 1 != 9\\n\\n%s\\nRan 2 tests\\n\\nFAILED (failures=1)\\n' ------; exit 1"
    add(repo, "sum", "write made", max_attempts=1, verify=[gate])
    assert type_in(repo, "run").returncode == 20
    shown = [line.strip() for line in type_in(repo, "show", "sum").stdout.splitlines()]
    at = shown.index("| Ran 2 tests")
    assert shown[at - 1].endswith("| AssertionError: 1 != 9") and shown[at + 1] == "| FAILED (failures=1)"


def test_an_agent_that_is_killed_is_not_told_with_a_piece_of_its_stream(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", dies=f"say {'x' * 2 * TAIL_BYTES}\nonce {tmp_path}/died: crash\nwrite made")
    done = type_in(repo, "run")
    assert done.returncode == 0 and "dies.1 crashed: The agent was killed by SIGKILL." in done.stdout
    assert "It printed" not in done.stdout
    told = type_in(repo, "history", "dies").stdout
    assert told.count("Its agent died") == 1 and "died: " not in told
    assert "To be continued from its last turn" in told


# -- adding -----------------------------------------------------------------------------------------------------------


def test_a_person_is_told_what_was_added_and_what_to_type_and_a_program_the_path(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    asked = ("add", "Fix the login", "--script", "write x", "--verify", "true")
    with Terminal(repo, *asked) as terminal:
        assert terminal.end() == 0
    assert terminal.seen.splitlines()[0] == "Added fix-login: Fix the login"
    assert "Next: `holdfast run` works on it" in terminal.seen and ".sdd" not in terminal.seen
    told = type_in(repo, *asked)
    assert told.stdout == f"{repo / '.sdd/backlog/open/fix-login-2.yaml'}\n" and told.stderr == ""
    with Terminal(repo, "edit", "fix-login", "--priority", "1") as terminal:
        assert terminal.end() == 0
    assert terminal.seen.startswith("Changed fix-login: ")


def test_beside_a_run_a_person_is_told_that_it_takes_the_task_in(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    with started(repo, "run", "--stay") as run:
        wait_for(lambda: f"pid {run.pid}" in type_in(repo, "status").stdout, "it runs")
        with Terminal(repo, "add", "Another", "--script", "write y") as terminal:
            assert terminal.end() == 0
        assert f"The run that is alive (pid {run.pid}) takes it in" in " ".join(terminal.seen.split())
    assert "another has no gate" in " ".join(terminal.seen.split()), "and how to set one:"
    assert "holdfast edit another --verify COMMAND" in " ".join(terminal.seen.split())


# -- words for people, names for programs -----------------------------------------------------------------------------


def test_states_are_told_in_words_and_given_to_programs_by_name(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    add(repo, "asks", "write x", approve=True)
    add(repo, "later", "write y", depends_on=["asks"])
    assert type_in(repo, "run").returncode == 20
    told = "".join(type_in(repo, *each).stdout for each in (["list"], ["status"], ["show", "asks"], ["show", "later"]))
    assert "pending approval" in told and "it waits for asks, which is pending approval" in told
    assert "PENDING" not in told and "OPEN" not in told
    assert "holdfast review asks, then holdfast approve asks | holdfast reject asks" in told
    assert "its result waits for your approval" in told and "for you to approve its result" in told
    rows = json.loads(type_in(repo, "list", "--json", "--state", "pending approval,open").stdout)["tasks"]
    assert [row["state"] for row in rows] == ["PENDING_APPROVAL", "OPEN"]
    assert "state: PENDING_APPROVAL" not in told


@pytest.mark.heavy
def test_gates_of_an_earlier_attempt(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    add(repo, "twice", "attempt 1: write x wrong\nattempt 2: write x right", verify=["grep right x"])
    assert type_in(repo, "run").returncode == 0
    assert "twice.2 passed" in type_in(repo, "gates", "twice").stdout
    first = json.loads(type_in(repo, "gates", "twice.1", "--json").stdout)
    assert (first["task"], first["attempt"], first["passed"]) == ("twice", "twice.1", False)
    assert "No gate has judged twice.3 yet" in type_in(repo, "gates", "twice.3").stderr


def test_the_output_of_a_command_is_its_answer(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    asked = ("--id", "sky", "--may-change-nothing", "--command", "echo It scatters the light.")
    assert type_in(repo, "add", "Why is the sky blue?", *asked).returncode == 0
    assert type_in(repo, "run").returncode == 0
    assert "It scatters the light." in type_in(repo, "show", "sky").stdout.split("id: sky")[0]


def test_ending_a_run_names_the_agents_that_continue(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", slow="write x\nhang")
    with started(repo, "run"):
        wait_for(lambda: "turn 2" in type_in(repo, "status").stdout, "it is at work")
        told = type_in(repo, "stop").stdout
    assert "Still at work: slow.1. `holdfast run` goes on with them, `holdfast stop --agents` ends them." in told
    assert type_in(repo, "stop", "--agents").returncode == 0


def test_a_key_of_watch_that_does_not_fit_the_task_says_so_and_asks_nothing(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", one="write x")
    with Terminal(repo, "watch") as terminal:
        terminal.read_until("y approve")
        terminal.type("y")
        terminal.read_until("one does not wait for an approval: it is ready.")
        terminal.type("s")
        terminal.read_until("No agent is at work on one: it is ready.")
        assert "y: yes" not in terminal.seen
        terminal.type("q")
        assert terminal.end() == 0
