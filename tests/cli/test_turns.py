"""`turns`, `diff`, `undo`, `fork` and `snapshots`: what they show and make is what git says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import click
import pytest

from holdfast.cli.commands import holdfast as group
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, landed, layout, sound, state
from kit.tasks import THREE_TURNS, ask, failed, hanging, journal
from kit.waiting import wait_for

REFS = "refs/attempts/a.1"


def store(repo: Path) -> Path:
    return repo / ".sdd" / "snapshots.git"


@pytest.mark.parametrize(
    "name", ["approve", "reject", "resume", "promote", "turns", "diff", "undo", "fork", "snapshots"]
)
def test_help_has_an_example(name: str) -> None:
    context = click.Context(group, **group.context_settings)
    command = group.get_command(context, name)
    assert command is not None
    told = " ".join(command.get_help(click.Context(command, context, name)).split())
    assert "--json" in told and "Example" in told and f"holdfast {name}" in told


def tree(repo: Path, commit: str) -> str:
    return git(repo, "ls-tree", "-r", commit)


def test_turns_are_listed_with_what_each_did_and_cost(repo: Path) -> None:
    failed(repo, script="write a.txt one\nspend 0.25 1070\nwrite b.txt two\nspend 0.5 30\n")
    table = holdfast(repo, "turns", "a").splitlines()
    assert table[0].split() == ["TURN", "TOOL", "FILES", "COST", "TOKENS", "SECONDS", "SNAPSHOT"]
    assert [line.split()[:-2] for line in table[1:3]] == [
        ["1", "write", "a.txt", "$0.00", "0"],
        ["2", "write", "b.txt", "$0.25", "(reported)", "1,070"],
    ]
    assert table[3:] == ["In all $0.75 and 1,100 tokens, with what came after the last turn."]
    told = ask(repo, "turns", "a.1")
    assert [line["cost"] for line in told["turns"]] == ["", "reported"]
    assert told["attempt"] == "a.1"
    assert [line["snapshot"] for line in told["turns"]] == [
        git(store(repo), "rev-parse", f"{REFS}/turn-{n}") for n in (1, 2)
    ]
    assert "nobody has worked on it yet" not in holdfast(repo, "turns", "a")
    for name in ("b", "a.2", "a.x"):
        assert "There is no task" in holdfast(repo, "turns", name, code=2)


@pytest.mark.heavy
def test_diffs_are_those_of_git(repo: Path) -> None:
    failed(repo)
    base = state(repo).tasks["a"].attempt.base
    options = ("--no-color", "-M", "-p", "--binary", "--full-index")
    for line, old, new in (
        ((), base, f"{REFS}/turn-3"),
        (("--turn", "1"), base, f"{REFS}/turn-1"),
        (("--turn", "3"), f"{REFS}/turn-2", f"{REFS}/turn-3"),
        (("--turn", "1", "--to", "3"), f"{REFS}/turn-1", f"{REFS}/turn-3"),
        (("--turn", "3", "--to", "1"), f"{REFS}/turn-3", f"{REFS}/turn-1"),
    ):
        wanted = git(store(repo), "diff", *options, old, new)
        assert wanted and holdfast(repo, "diff", "a", *line).strip() == wanted
        assert ask(repo, "diff", "a", *line)["patch"].strip() == wanted
    stat = holdfast(repo, "diff", "a", "--turn", "1", "--to", "3", "--stat")
    assert stat.strip() == git(store(repo), "diff", "--stat", f"{REFS}/turn-1", f"{REFS}/turn-3")
    counted = ask(repo, "diff", "a", "--turn", "2", "--stat")["files"]
    assert counted == [{"path": "b.txt", "added": 1, "deleted": 0}]
    assert "There is no turn 4 of a.1: it has 3 turns" in holdfast(repo, "diff", "a", "--turn", "4", code=2)
    assert "--to goes with --turn" in holdfast(repo, "diff", "a", "--to", "2", code=2)


@pytest.mark.heavy
def test_a_turn_after_an_undo_is_compared_with_the_tree_that_it_began_with(repo: Path) -> None:
    marker = repo.parent / "marker"
    add(repo, "a", f"write a.txt one\nwrite b.txt two\nonce {marker}: fail no luck\nwrite c.txt three", max_attempts=1)
    holdfast(repo, "run", code=20)
    holdfast(repo, "undo", "a", "--turn", "1")
    holdfast(repo, "resume", "a")
    holdfast(repo, "run")
    assert ask(repo, "diff", "a", "--turn", "3", "--stat")["files"] == [{"path": "b.txt", "added": 1, "deleted": 0}]
    assert git(repo, "ls-tree", "--name-only", "main").split() == [".gitignore", "README.md", "a.txt", "b.txt", "c.txt"]


def test_undo_saves_what_stands_there_and_puts_the_turn_back(repo: Path) -> None:
    failed(repo)
    worktree = layout(repo).worktree("a")
    (worktree / "mine.txt").write_text("by hand\n")
    told = ask(repo, "undo", "a", "--turn", "1")[0]
    assert told["saved"] == f"{REFS}/undo-1"
    assert git(store(repo), "show", f"{REFS}/undo-1:mine.txt") == "by hand"
    assert sorted(path.name for path in worktree.iterdir() if path.name != ".git") == [
        ".gitignore",
        "README.md",
        "a.txt",
    ]
    assert (worktree / "a.txt").read_text() == git(store(repo), "show", f"{REFS}/turn-1:a.txt") + "\n"
    [undone] = journal(repo, "turn_undone")
    assert (undone.inputs["turn"], undone.inputs["saved"]) == (1, told["saved"])
    # There and back: what was undone is never lost.
    assert ask(repo, "undo", "a", "--turn", "3")[0]["saved"] == f"{REFS}/undo-2"
    assert (worktree / "b.txt").exists() and tree(store(repo), f"{REFS}/undo-2") == tree(store(repo), f"{REFS}/turn-1")
    assert "There is no turn 9" in holdfast(repo, "undo", "a", "--turn", "9", code=2)
    sound(repo)


@pytest.mark.heavy
def test_undo_does_not_wait_for_an_agent_at_work_and_knows_an_orphan(repo: Path) -> None:
    go = hanging(repo, "a")
    run = begin(repo)
    wait_for(lambda: "a" in state(repo).tasks and state(repo).tasks["a"].spent.turns > 0, "the first turn")
    run.kill()
    run.communicate()
    assert "its agent is at work" in holdfast(repo, "undo", "a", "--turn", "1", code=9)
    assert journal(repo, "turn_undone") == []
    holdfast(repo, "run", "--detach")
    holdfast(repo, "stop", "--agents")
    (layout(repo).worktree("a") / "mine.txt").write_text("x\n")
    assert "the next `holdfast run` goes on from there" in holdfast(repo, "undo", "a", "--turn", "1")
    assert not (layout(repo).worktree("a") / "mine.txt").exists()
    go.write_text("")
    holdfast(repo, "run")
    assert state(repo).tasks["a"].attempt.id == "a.1" and landed(repo) == ["a"]
    sound(repo)


@pytest.mark.heavy
def test_the_next_attempt_of_a_fork_begins_with_the_turn_on_the_newest_target(repo: Path) -> None:
    failed(repo, script="attempt 1: write a.txt one\nattempt 1: write b.txt two\nattempt 2: write c.txt three\n")
    (repo / "other.txt").write_text("meanwhile\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "meanwhile")
    assert "begins with turn 1 of a.1" in holdfast(repo, "fork", "a", "--turn", "1")
    [forked] = journal(repo, "attempt_forked")
    candidate = forked.inputs["candidate"]
    assert git(repo, "diff", "--name-only", f"{candidate}^", candidate) == "a.txt"
    holdfast(repo, "run")
    files = git(repo, "ls-tree", "--name-only", "main").split()
    assert files == [".gitignore", "README.md", "a.txt", "c.txt", "other.txt"], "turn 1 and the new attempt, not turn 2"
    sound(repo)


@pytest.mark.heavy
def test_a_fork_of_a_closed_task_is_a_new_one(repo: Path) -> None:
    add(repo, "a", "write a.txt one\nwrite b.txt two\n")
    holdfast(repo, "run")
    git(repo, "rm", "-q", "a.txt", "b.txt")
    git(repo, "commit", "-q", "-m", "take it back")
    [told] = ask(repo, "fork", "a", "--turn", "1")
    assert (told["id"], told["state"]) == ("a-fork", "OPEN")
    text = (layout(repo).backlog_open / "a-fork.yaml").read_text().replace("write b.txt two", "write d.txt four")
    assert "forked_from: a.1@1" in text
    (layout(repo).backlog_open / "a-fork.yaml").write_text(text.replace("write a.txt one", "say nothing"))
    [other] = ask(repo, "fork", "a", "--turn", "2", "--id", "other")
    assert other["id"] == "other" and "There is a task 'other' already" in holdfast(
        repo, "fork", "a", "--turn", "2", "--id", "other", code=2
    )
    holdfast(repo, "cancel", "other")
    assert holdfast(repo, "fork", "a", "--turn", "1").startswith("a-fork-2: open")
    holdfast(repo, "cancel", "a-fork-2")
    holdfast(repo, "run")
    snapshot = git(store(repo), "rev-parse", "refs/attempts/a-fork.1/start-1")
    assert git(store(repo), "show", f"{snapshot}:a.txt") == "one", "the tree of that turn is there from the start"
    assert git(repo, "show", "main:d.txt") == "four" and landed(repo) == ["a", "a-fork"]
    sound(repo)


def test_snapshots_are_listed_and_exported_also_when_the_worktree_is_gone(repo: Path) -> None:
    add(repo, "a", THREE_TURNS)
    holdfast(repo, "run")
    assert not layout(repo).worktree("a").exists()
    found = {row["name"]: row["commit"] for row in ask(repo, "snapshots", "list", "a")["snapshots"]}
    assert {"turn-1", "turn-2", "turn-3"} <= found.keys()
    assert found["turn-2"] == git(store(repo), "rev-parse", f"{REFS}/turn-2")
    folder = repo.parent / "then"
    holdfast(repo, "snapshots", "export", "a", "--turn", "2", str(folder))
    archive = repo.parent / "archive"
    archive.mkdir()
    packed = subprocess.run(
        ["git", "-C", str(store(repo)), "archive", f"{REFS}/turn-2"], capture_output=True, check=True
    )
    subprocess.run(["tar", "-x", "-C", str(archive)], input=packed.stdout, check=True)
    subprocess.run(["diff", "-r", str(folder), str(archive)], check=True)
    assert "exists already" in holdfast(repo, "snapshots", "export", "a", "--turn", "1", str(folder), code=3)
