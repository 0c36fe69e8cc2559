"""A worktree on its way to a start, and the worktree for gates: included files, ports, setup."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.git import git
from kit.program import holdfast
from kit.project import add, landed, layout, settings, sound, state


def include(repo: Path, *patterns: str, ignored: str = ".env\n") -> None:
    """Commits a `.worktreeinclude`, and has git ignore files."""
    (repo / ".worktreeinclude").write_text("".join(f"{each}\n" for each in patterns))
    (repo / ".gitignore").write_text(f"/.sdd/\n{ignored}")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "include")


@pytest.mark.heavy
def test_included_files_reach_agents_and_gates_and_never_land(repo: Path) -> None:
    include(repo, ".env")
    (repo / ".env").write_text("KEY=1\n")
    add(repo, "t", "run cat .env > seen.txt\nrun printf '/.sdd/' > .gitignore", verify=["grep -q KEY=1 .env"])
    holdfast(repo, "run")
    assert landed(repo) == ["t"]
    # The agent has had git show the file, and yet nothing of it is in a commit or a snapshot.
    assert git(repo, "show", "main:seen.txt") == "KEY=1"
    assert git(repo, "ls-tree", "-r", "--name-only", "main").split() == [
        ".gitignore", ".worktreeinclude", "README.md", "seen.txt",
    ]  # fmt: skip
    assert not layout(repo).worktree("t").exists()
    trees = git(layout(repo).snapshots, "for-each-ref", "--format=%(refname)").split()
    assert trees and not any(
        ".env" in git(layout(repo).snapshots, "ls-tree", "-r", "--name-only", each) for each in trees
    )
    sound(repo)


@pytest.mark.heavy
@pytest.mark.repo(worktree={"setup": ["echo made >> made.log", "test -f lock"], "inputs": ["lock"], "ports": 3})
def test_setup_runs_once_for_each_worktree_and_again_when_its_inputs_change(repo: Path) -> None:
    (repo / "lock").write_text("1\n")
    include(repo, ignored="made.log\n")
    add(
        repo,
        "t",
        "run cp made.log seen.txt\nrun echo $HOLDFAST_PORT $HOLDFAST_PORT_2 > ports.txt",
        verify=["test -f made.log"],
    )
    add(repo, "u", "write lock 2", depends_on=["t"], verify=["test $(wc -l < made.log) = 2"])
    holdfast(repo, "run")
    assert landed(repo) == ["t", "u"]
    assert git(repo, "show", "main:seen.txt") == "made"
    first, third = map(int, git(repo, "show", "main:ports.txt").split())
    assert first % 10 == 0 and third == first + 2
    sound(repo)


@pytest.mark.heavy
@pytest.mark.repo(worktree={"setup": ["echo went wrong; exit 3"]})
def test_a_failing_setup_costs_no_attempt_and_says_what_to_type(repo: Path) -> None:
    add(repo, "t", "write a.txt x")
    shown = holdfast(repo, "run", code=None)
    task = state(repo).tasks["t"]
    assert task.state == "OPEN" and task.attempts == 1 and "went wrong" in task.cause and "holdfast hooks t" in shown
    assert "next: mend its setup (`holdfast show t` says how), then holdfast run" in shown
    for command in (["show", "t"], ["list"], ["status"]):
        told = holdfast(repo, *command)
        assert "held up by a failed setup" in told and "fault of the machine" not in told
        assert told.count("could not be made ready") == 1 and "what it needs. A run tries it again" in told
    story = holdfast(repo, "history", "t")
    assert story.count("could not be made ready") == story.count("Setting up its worktree failed: ") > 0
    assert "Held up by the failed setup" in story
    assert "t is held up by a failed setup" in holdfast(repo, "doctor", code=None)
    settings(repo, worktree={"setup": ["true"]})
    holdfast(repo, "run")
    assert landed(repo) == ["t"] and state(repo).tasks["t"].attempts == 1
    sound(repo)


@pytest.mark.heavy
@pytest.mark.parametrize("hides", [False, True])
def test_a_landed_worktree_goes_though_its_agent_committed_an_included_file(repo: Path, *, hides: bool) -> None:
    include(repo, ".env")
    (repo / ".env").write_text("KEY=1\n")
    shown = "run printf '/.sdd/' > .gitignore\n" if hides else ""
    add(repo, "t", f"{shown}write a.txt x\nrun git add -f .env && git commit -qm mine")
    holdfast(repo, "run")
    assert landed(repo) == ["t"] and ".env" not in git(repo, "ls-tree", "-r", "--name-only", "main").split()
    assert not layout(repo).worktree("t").exists()
    sound(repo)
