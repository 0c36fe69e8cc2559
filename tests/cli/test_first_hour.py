"""What a newcomer sees in the first hour: the lists, the reasons, and the words."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from kit.git import git
from kit.program import Terminal, started, type_in
from kit.project import add, make_bare_repo, make_repo
from kit.waiting import wait_for

LONG = "Make the parser of the configuration files accept comments at the end of a line"
FAILS = "fail the compiler is missing on this machine"


def test_tasks_of_one_priority_come_in_the_order_in_which_they_were_added(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    for number, goal in enumerate(("zebra", "monkey", "ant")):
        path = Path(type_in(repo, "add", "--goal", goal, "--script", "say hello").stdout.strip())
        os.utime(path, ns=(10**18, 10**18 + number * 10**9))
    listed = json.loads(type_in(repo, "list", "--json").stdout)["tasks"]
    assert [row["id"] for row in listed] == ["zebra", "monkey", "ant"]
    assert type_in(repo, "cancel", "ant").returncode == 0, "this journals all three"
    listed = json.loads(type_in(repo, "list", "--ready", "--json").stdout)["tasks"]
    assert [row["id"] for row in listed] == ["zebra", "monkey"]


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One closed, one failed, one cancelled, one open."""
    repo = make_repo(tmp_path_factory.mktemp("worked") / "repo", closes="write made\nsay it is there")
    add(repo, "breaks", FAILS, max_attempts=1)
    assert type_in(repo, "run").returncode == 20
    add(repo, "left", "say no")
    assert type_in(repo, "cancel", "left").returncode == 0
    assert type_in(repo, "add", "--goal", LONG).returncode == 0
    return repo


def test_a_list_folds_away_what_has_ended(worked: Path) -> None:
    told = type_in(worked, "list").stdout
    assert "breaks" in told and "make-parser" in told
    assert "closes" not in told and "left  " not in told
    assert "1 closed, 1 cancelled: `holdfast list --all` shows them." in told
    assert {"closes", "left", "breaks"} <= {line.split()[0] for line in _lines(worked, "--all")}
    # Programs get everything, and choose for themselves.
    assert len(json.loads(type_in(worked, "list", "--json").stdout)["tasks"]) == 4


def test_several_states_can_be_asked_for_at_once(worked: Path) -> None:
    assert [line.split()[0] for line in _lines(worked, "--state", "failed,closed")[1:]] == ["closes", "breaks"]
    assert [line.split()[0] for line in _lines(worked, "--state", "FAILED", "--state", "closed")[1:]] == [
        "closes",
        "breaks",
    ]
    refused = type_in(worked, "list", "--state", "failed,lost")
    assert refused.returncode == 2 and "'lost'" in refused.stderr and "pending_approval" in refused.stderr


def test_a_failed_task_has_its_reason(worked: Path) -> None:
    (line,) = [line for line in _lines(worked) if line.startswith("breaks")]
    assert "the compiler is missing" in line


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (160, 50), (40, 12)])
def test_a_list_fits_the_terminal(worked: Path, columns: int, rows: int) -> None:
    with Terminal(worked, "list", columns=columns, rows=rows) as terminal:
        assert terminal.end() == 0
    lines = re.sub(r"\x1b\[[0-9;]*m", "", terminal.seen).splitlines()
    assert max(map(len, lines[:-1])) <= columns
    text = "\n".join(lines)
    assert "the compiler is missing" in text
    # Enough of the title to know the task by.
    assert "Make the pars" in text


def _lines(repo: Path, *options: str) -> list[str]:
    done = type_in(repo, "list", *options)
    assert done.returncode == 0, done
    return done.stdout.splitlines()


# -- the output of gates and of agents that die -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A task whose second gate fails after ten lines, and what the run said."""
    repo = make_repo(tmp_path_factory.mktemp("judged") / "repo")
    gate = "i=1; while [ $i -le 10 ]; do echo line $i; i=$((i+1)); done; echo the login is broken; exit 3"
    add(repo, "login", "write made\nsay done", max_attempts=1, verify=["echo fine", gate, "echo never"])
    done = type_in(repo, "run")
    assert done.returncode == 20, done
    return repo, done.stdout


def test_a_failed_gate_shows_its_last_lines(judged: tuple[Path, str]) -> None:
    repo, said = judged
    assert said.count("| the login is broken") == 2, "as it happens, and in the summary"
    for command in ("show", "history"):
        told = type_in(repo, command, "login").stdout
        assert "| the login is broken" in told and "| line 10" in told and "| line 1\n" not in told, command
    assert json.loads(type_in(repo, "show", "login", "--json").stdout)["gate_output"][-1] == "the login is broken"


def test_gates_tells_of_every_gate(judged: tuple[Path, str]) -> None:
    repo, _ = judged
    told = type_in(repo, "gates", "login").stdout
    assert re.search(r"passed +verify-1 +[0-9.]+ s +echo fine", told) and "      fine" not in told
    assert re.search(r"FAILED +verify-2 +[0-9.]+ s, code 3", told) and "      the login is broken" in told
    assert re.search(r"not run +verify-3 +echo never", told)
    assert "      fine" in type_in(repo, "gates", "login", "--full").stdout
    facts = json.loads(type_in(repo, "gates", "login", "--json").stdout)
    assert [each["outcome"] for each in facts["gates"]] == ["passed", "failed", "not_run"]
    assert facts["gates"][1]["output"][-1] == "the login is broken" and not facts["passed"]


def test_gates_of_a_task_that_was_never_judged(judged: tuple[Path, str]) -> None:
    repo, _ = judged
    add(repo, "later", "say hello")
    done = type_in(repo, "gates", "later")
    assert done.returncode == 2 and "No gate has judged later yet: the task is open" in done.stderr
    assert "did you mean login?" in type_in(repo, "gates", "logins").stderr


def test_an_agent_that_dies_without_a_word_of_its_own_is_reported_with_what_it_printed(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    path = repo / ".sdd/backlog/open/dies.yaml"
    path.write_text("title: dies\nmax_attempts: 1\ncommand: \"echo 'execvp claude: No such file' >&2; exit 7\"\n")
    said = type_in(repo, "run").stdout
    assert "The command ended with code 7." in said
    assert said.count("execvp claude: No such file") == 2
    for command in ("show", "history", "list"):
        assert (
            "execvp claude: No such file"
            in type_in(repo, *([command, "dies"] if command != "list" else [command])).stdout
        )


# -- words ------------------------------------------------------------------------------------------------------------


def test_one_turn_and_a_small_cost_read_well(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", one="write x hi\nspend 0.00125 10")
    said = type_in(repo, "run").stdout
    assert "1 turn, $0.00125\n" in said
    assert "after 1 turn\n" in said
    told = type_in(repo, "show", "one").stdout + type_in(repo, "history", "one").stdout
    assert "1 turns" not in told and "$0.00125" in told and " USD" not in told


# -- doctor -----------------------------------------------------------------------------------------------------------


def _findings(folder: Path) -> dict[str, list[dict[str, str]]]:
    report = json.loads(type_in(folder, "doctor", "--json").stdout)
    return {part["name"]: part["findings"] for part in report["parts"]}


def test_doctor_tells_of_failed_tasks_and_of_files_that_cannot_be_used(worked: Path) -> None:
    for number in range(12):
        (worked / f".sdd/backlog/open/broken-{number:02}.yaml").write_text("priority: high\n")
    try:
        found = _findings(worked)["tasks"]
    finally:
        for path in worked.glob(".sdd/backlog/open/broken-*"):
            path.unlink()
    assert len([each for each in found if "cannot be used: priority" in each["said"]]) == 10
    assert {"said": "and 2 more files that cannot be used", "next": "holdfast list"} in found
    failed = {
        "said": "breaks has failed: the compiler is missing on this machine",
        "next": "holdfast retry breaks | holdfast cancel breaks",
    }
    assert failed in found


def test_doctor_tells_of_a_default_agent_that_is_not_signed_in(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    environ = {"HOME": str(tmp_path), "PATH": f"{program.parent}:{os.environ['PATH']}", "ANTHROPIC_API_KEY": None,
               "CLAUDE_CONFIG_DIR": None, "HOLDFAST_AGENT": "claude"}  # fmt: skip
    done = type_in(repo, "doctor", environ=environ)
    assert done.returncode == 20 and "claude is not signed in, and gets every task that names no other" in done.stdout


@pytest.mark.parametrize("command", ["doctor", "agents"])
def test_doctor_and_agents_work_outside_a_repository(command: str, tmp_path: Path) -> None:
    done = type_in(tmp_path, command, *(["--wait", "0"] if command == "agents" else []))
    assert "claude" in done.stdout and done.returncode == (20 if command == "doctor" else 0), done
    if command == "doctor":
        assert "git init" in done.stdout and "ok  git" in done.stdout


def test_before_init_doctor_says_so(tmp_path: Path) -> None:
    done = type_in(make_bare_repo(tmp_path / "repo"), "doctor")
    assert done.returncode == 20 and "next: holdfast init" in done.stdout


def test_gc_takes_the_worktree_of_a_cancelled_task_and_keeps_what_stood_there(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", gone="write y hi\nfail no")
    (repo / ".sdd/config/settings.yaml").write_text("max_attempts: 1\n")
    assert type_in(repo, "run").returncode == 20
    tree = repo / ".sdd/worktrees/gone"
    (tree / "mine").write_text("by hand\n")
    assert type_in(repo, "cancel", "gone").returncode == 0 and tree.is_dir()
    assert [each["next"] for each in _findings(repo)["worktrees"]] == ["holdfast gc"]
    assert type_in(repo, "gc").returncode == 0 and not tree.exists()
    assert _findings(repo)["worktrees"] == []
    store = repo / ".sdd/snapshots.git"
    assert git(store, "show", "refs/attempts/gone.1/cancelled:mine") == "by hand"
    assert type_in(repo, "check").returncode == 0


def test_the_same_problem_is_reported_once_in_a_run(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", one="write x")
    (repo / ".sdd/backlog/open/bad.yaml").write_text("goal: g\npriority: high\n")
    done = type_in(repo, "run")
    assert (done.stdout + done.stderr).count("priority: expected") == 1, done
    assert "1 file cannot be used: open/bad.yaml:2" in done.stdout


# -- adding, and questions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [(("--verify", ""), "--verify is empty"), (("--verify", " "), "--verify is empty"),
     (("--agent", "nosuch"), "there is no agent 'nosuch'; known are aider, claude"),
     (("--sandbox", "box"), "there is no sandbox 'box'; use auto, none, bwrap"),
     (("--script", "say hi\nattempt 2+: once x: sing"), "a script has no step 'sing'; known are write, append")],
)  # fmt: skip
def test_values_that_no_task_could_run_with_are_refused(tmp_path: Path, options: tuple[str, str], told: str) -> None:
    repo = make_repo(tmp_path / "repo")
    done = type_in(repo, "add", "--goal", "g", *options)
    assert done.returncode == 2 and told in done.stderr, done
    assert list((repo / ".sdd/backlog/open").iterdir()) == []


def test_without_a_gate_add_init_and_a_landing_say_so(tmp_path: Path) -> None:
    repo = make_bare_repo(tmp_path / "repo")
    assert "no gate is set" in type_in(repo, "init").stderr
    assert "one has no gate" in type_in(repo, "add", "--id", "one", "--script", "write x").stderr
    assert "no gate" not in type_in(repo, "add", "--id", "two", "--script", "write y", "--verify", "true").stderr
    said = type_in(repo, "run").stdout
    assert "one: it lands unchecked, because there is no gate" in said and "two: it lands" not in said
    (repo / ".sdd/config/settings.yaml").write_text("gates: [{name: t, command: 'true'}]\n")
    assert "no gate" not in type_in(repo, "add", "--id", "three", "--script", "write z").stderr


def test_a_refused_decision_is_told_in_plain_words(worked: Path) -> None:
    done = type_in(worked, "cancel", "closes")
    assert done.returncode == 9 and "The task closes cannot be cancelled: it is closed." in done.stderr
    assert "event" not in done.stderr and "manual" not in done.stderr


def test_a_question_ends_closed_with_its_answer(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    question = ("--id", "why", "--may-change-nothing", "--goal", "Why is it slow?")
    added = type_in(repo, "add", *question, "--script", "say It sorts twice.", "--verify", "false")
    assert added.returncode == 0 and added.stderr == ""
    done = type_in(repo, "run")
    assert done.returncode == 0 and "why: closed with an answer, and nothing changed" in done.stdout, done
    assert re.search(r"answer +It sorts twice\.", type_in(repo, "show", "why").stdout)
    assert json.loads(type_in(repo, "show", "why", "--json").stdout)["outcome"]["answer"] == "It sorts twice."
    assert type_in(repo, "check").returncode == 0 and not (repo / ".sdd/worktrees/why").exists()
    assert git(repo, "log", "--format=%s") == "begin"


def test_a_task_that_failed_without_changes_says_what_helps(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    add(repo, "asks", "say It sorts twice.", max_attempts=1)
    said = type_in(repo, "run").stdout
    offered = "holdfast cancel asks | holdfast edit asks --may-change-nothing, then holdfast retry asks"
    assert f"next: {offered}" in said, said
    for command in offered.partition(" | ")[2].split(", then "):
        assert type_in(repo, *command.split()[1:]).returncode == 0, command
    assert "closed with an answer" in type_in(repo, "run").stdout


def test_a_question_that_changes_something_is_judged_like_any_task(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    add(repo, "asks", "write x", may_change_nothing=True, max_attempts=1, verify=["false"])
    assert type_in(repo, "run").returncode == 20
    assert json.loads(type_in(repo, "show", "asks", "--json").stdout)["outcome"]["kind"] == "gate_failed"


# -- where one stands, and who runs already ---------------------------------------------------------------------------


@pytest.mark.heavy
def test_in_a_linked_worktree_work_lands_on_its_branch(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", one="write x hi")
    git(repo, "worktree", "add", "-q", "-b", "feature", str(tmp_path / "linked"))
    (tmp_path / "linked" / "below").mkdir()
    done = type_in(tmp_path / "linked" / "below", "run")
    assert done.returncode == 0 and "one: landed on feature as" in done.stdout, done
    assert "work lands on feature; you are in a worktree of feature" in done.stdout
    assert git(repo, "log", "--format=%s", "main") == "begin" and (tmp_path / "linked/x").read_text() == "hi\n"
    add(repo, "two", "write y hi")
    assert "two: landed on main as" in type_in(repo, "run").stdout
    (repo / ".sdd/config/settings.yaml").write_text("git: {target_branch: main}\n")
    add(repo, "three", "write z hi")
    assert "three: landed on main as" in type_in(tmp_path / "linked", "run").stdout


def test_a_run_in_the_background_beside_another_is_told_who_runs(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", one="hang")
    with started(repo, "run", "--plain") as run:
        wait_for(lambda: "in progress" in type_in(repo, "list").stdout, "it works")
        done = type_in(repo, "run", "--detach")
        assert done.returncode == 7 and "A run is already active here" in done.stderr and str(run.pid) in done.stderr
        assert type_in(repo, "stop", "--agents").returncode == 0
