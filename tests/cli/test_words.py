"""A flag for every key of a definition, and what the commands say about tasks, files and options, to the word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.tasks.add_edit import add, edit
from holdfast.domain.definition import BLOCKS, Definition
from kit.program import type_in
from kit.project import make_repo


def definition(repo: Path, task: str) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(type_in(repo, "show", task, "--json").stdout)["definition"]
    return shown


def said(repo: Path, *words: str, code: int = 0, stdin: str = "") -> str:
    typed = type_in(repo, *words, stdin=stdin)
    assert typed.returncode == code, typed
    return typed.stdout + typed.stderr


# -- a flag for every key ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [add, edit])
def test_every_key_of_a_definition_has_a_flag(command: Any) -> None:
    keys = set(Definition.__struct_fields__) - {"id", "origin", *BLOCKS}
    assert keys <= {option.name for option in command.params}


def test_the_flags_reach_the_definition_and_an_edit_changes_and_removes_them(repo: Path) -> None:
    words = {"script": "say hi\nsay ho", "sandbox": "none", "max_resumes": 0, "subtask_timeout_s": 9.5}
    words |= {"forked_from": "old.1@3", "land": "pull_request"}
    flags = [word for key, value in words.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    context = ["--context", "issue=12", "--context", "said=a=b", "--context", '{"files": ["a.py"], "n": 1}']
    said(repo, "add", "--id", "t", "--goal", "G", *flags, *context)
    expected = {"issue": "12", "said": "a=b", "files": ["a.py"], "n": 1}
    assert definition(repo, "t") == {"id": "t", "goal": "G", **words, "context": expected}
    said(repo, "edit", "t", "--context", "answer=yes", "--max-resumes", "4", "--script", "", "--sandbox", "")
    kept = {
        "max_resumes": 4,
        "subtask_timeout_s": 9.5,
        "forked_from": "old.1@3",
        "land": "pull_request",
        "context": {"answer": "yes"},
    }
    assert definition(repo, "t") == {"id": "t", "goal": "G", **kept}
    said(repo, "edit", "t", "--context", "")
    assert "context" not in definition(repo, "t")


@pytest.mark.parametrize("context", ["words", "=x", '{"a": ', "{x=1}"])
def test_a_context_that_is_none_is_refused(repo: Path, context: str) -> None:
    assert "--context" in said(repo, "add", "--goal", "x", "--context", context, code=2)


# -- adding -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("goal", ["", "  "])
def test_an_empty_goal_is_called_so(repo: Path, goal: str) -> None:
    assert "the goal is empty" in said(repo, "add", "--goal", goal, code=2, stdin="goal: from standard input\n")
    assert "no tasks yet" in said(repo, "list")


def test_words_are_the_goal(repo: Path) -> None:
    said(repo, "add", "Fix the login", "--verify", "make test", "--priority", "1")
    assert definition(repo, "fix-login") == {
        "id": "fix-login", "goal": "Fix the login", "priority": 1, "verify": [{"command": "make test"}],
    }  # fmt: skip
    said(repo, "add", "Fix config.yaml", "--id", "conf")
    assert definition(repo, "conf")["goal"] == "Fix config.yaml"
    (repo / "one.yml").write_text("goal: from a file\n")
    said(repo, "add", "one.yml")
    assert definition(repo, "one")["goal"] == "from a file"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["Fix the login", "--goal", "Fix it"], "the goal is given twice"),
        (["Fix", "the", "login"], 'in quotes, as in `holdfast add "Fix the login"`'),
        (["Fix the login", "one.yaml"], "give a goal or files, not both"),
        (["one.yaml", "--priority", "1"], "give options or files, not both"),
        (["none.yaml"], "there is no file none.yaml"),
        (["words.txt"], "words.txt is no task file: its name does not end in .yaml or .yml"),
        ([" "], "the goal is empty"),
    ],
)
def test_an_argument_that_could_be_a_goal_or_a_file_is_refused(repo: Path, arguments: list[str], told: str) -> None:
    (repo / "one.yaml").write_text("goal: from a file\n")
    (repo / "words.txt").write_text("goal: from a file\n")
    assert told in said(repo, "add", *arguments, code=2)
    assert "no tasks yet" in said(repo, "list")


def test_standard_input_is_given_an_id(repo: Path) -> None:
    said(repo, "add", "-", "--id", "x", stdin="goal: words\n")
    assert definition(repo, "x") == {"id": "x", "goal": "words"}
    said(repo, "add", "-", "--id", "y", stdin="id: y\ngoal: words\n")
    assert "gives itself the id 'z'" in said(repo, "add", "-", "--id", "a", stdin="id: z\ngoal: words\n", code=2)
    assert "only --id goes with -" in said(repo, "add", "-", "--goal", "a", stdin="goal: words\n", code=2)
    assert "There is a task 'x' already" in said(repo, "add", "-", "--id", "x", stdin="goal: words\n", code=2)


# -- looking ----------------------------------------------------------------------------------------------------------


def test_show_says_it_in_words_and_leaves_out_what_is_empty(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", one="write x hi\nspend 0.25 10")
    said(repo, "run")
    shown = type_in(repo, "show", "one").stdout
    facts = shown.partition("\n\n")[0]
    assert "Caps(" not in facts and "Spend(" not in facts and "{" not in facts and "None" not in facts
    assert "\n  spent      $0.25 (reported), 1 turn, 10 tokens, 0:0" in facts
    assert not any(line.split()[1:] in ([], ["0"], ["0.0"]) for line in facts.splitlines()[1:])


def test_a_big_file_is_reported_with_its_true_size(repo: Path) -> None:
    (repo / ".sdd/backlog/open/big.yaml").write_bytes(b"#" * 30_000_000)
    assert "the file has 30,000,000 bytes" in said(repo, "list")


def test_the_option_before_the_command_is_refused_as_json(repo: Path) -> None:
    typed = type_in(repo, "--json", "list")
    assert typed.returncode == 2 and json.loads(typed.stdout)["error"]["code"] == "no_such_option"


def test_the_graph_as_of_a_moment_shows_the_goal_where_there_is_no_title(repo: Path) -> None:
    said(repo, "add", "--id", "t", "--goal", "\nSay hello\nand more")
    said(repo, "add", "--id", "other", "--goal", "o")
    said(repo, "cancel", "other")
    rows = json.loads(said(repo, "log", "--at", "1:3", "--json"))["tasks"]
    assert {row["id"]: row["title"] for row in rows}["t"] == "Say hello"


def test_a_filter_that_names_nothing_says_so(repo: Path) -> None:
    said(repo, "add", "--id", "known", "--goal", "o")
    said(repo, "cancel", "known")
    said(repo, "add", "--id", "fresh", "--goal", "o")
    assert type_in(repo, "log", "--task", "known", "--type", "task_*").stderr == ""
    assert "there is no task 'knwon': did you mean 'known'?" in type_in(repo, "log", "--task", "knwon").stderr
    assert "fresh has no story yet" in type_in(repo, "log", "--task", "fresh").stderr
    typed = type_in(repo, "log", "--type", "task_cancel")
    assert (typed.returncode, typed.stdout) == (0, "") and "did you mean 'task_cancelled'" in typed.stderr
    assert type_in(repo, "log", "--task", "known", "--type", "run_started").stderr == ""
