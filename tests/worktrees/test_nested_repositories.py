"""A repository that an agent makes inside its worktree: snapshots have only its commit, it is never just dropped."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast.domain.task import TaskState
from kit.git import git
from kit.program import holdfast
from kit.project import add, landed, layout, sound, state
from kit.tasks import stop_after
from kit.waiting import shell_wait

# Whole runs, of seconds each.
pytestmark = [pytest.mark.heavy, pytest.mark.repo(grace_s=0.5)]

UNBORN = "mkdir nest && cd nest && git init -q && echo hi > f"
NEST = f"{UNBORN} && git add f && git -c user.name=a -c user.email=b commit -qm n"
nests = pytest.mark.parametrize("nest", [NEST, UNBORN], ids=["commit", "no-commit"])


@nests
@pytest.mark.parametrize("way", ["rm -rf nest/.git", "echo nest/ > .gitignore"])
def test_a_nested_repository_goes_back_to_the_agent_with_a_sentence(repo: Path, way: str, nest: str) -> None:
    add(repo, "t", f"attempt 1: run {nest}\nattempt 2+: run test -f nest/f && {way}\nwrite t.txt x")
    said = holdfast(repo, "run")
    assert "it leaves a git repository of its own in nest" in said
    assert landed(repo) == ["t"] and state(repo).tasks["t"].attempts == 2
    files = git(repo, "ls-tree", "-r", "--name-only", "main").split()
    assert ("nest/f" in files) is way.startswith("rm") and "t.txt" in files
    sound(repo)


@nests
def test_a_nested_repository_never_lands_without_its_files_and_says_so(repo: Path, nest: str) -> None:
    add(repo, "t", f"run test -d nest || ({nest})\nwrite t.txt x", max_attempts=2)
    said = holdfast(repo, "run", code=None)
    task = state(repo).tasks["t"]
    assert task.state is TaskState.FAILED and task.attempts == 2 and landed(repo) == [], said
    told = holdfast(repo, "show", "t")
    for way in ("nest/.git", ".gitignore", "holdfast retry t", str(layout(repo).worktree("t"))):
        assert way in " ".join(told.split()), told
    assert (layout(repo).worktree("t") / "nest/f").read_text() == "hi\n"
    # Nor does a person land or fork it without a word.
    (layout(repo).worktree("t") / "more.txt").write_text("mine\n")
    for asked in (("promote", "t"), ("fork", "t", "--turn", "1", "--id", "other")):
        assert "nest" in holdfast(repo, *asked, code=2), asked
    assert landed(repo) == []
    shutil.rmtree(layout(repo).worktree("t") / "nest/.git")
    holdfast(repo, "promote", "t")
    assert "nest/f" in git(repo, "ls-tree", "-r", "--name-only", "main").split()
    sound(repo)


def paused(repo: Path, nest: str = NEST) -> Path:
    """The second turn made a repository, and its agent was stopped in the third. Returns what lets it go on."""
    go, here = repo.parent / "go", repo.parent / "here"
    wait = f"touch {here}; {shell_wait(go)}; [ -d nest ] || ({nest}); rm -rf nest/.git"
    stop_after(repo, "t", f"write one.txt 1\nrun test -d nest || ({nest})\nrun {wait}", 2, here)
    return go


@pytest.mark.parametrize(
    ("choice", "nest"),
    [("newest", NEST), ("anew", NEST), ("abandon", NEST), ("retry", NEST), ("newest", UNBORN), ("retry", UNBORN)],
    ids=["newest", "anew", "abandon", "retry", "newest-no-commit", "retry-no-commit"],
)
def test_one_that_is_gone_when_its_attempt_goes_on_is_for_a_person_to_decide(
    repo: Path, choice: str, nest: str
) -> None:
    go = paused(repo, nest)
    worktree = layout(repo).worktree("t")
    shutil.copytree(worktree / "nest", repo.parent / "copy")
    shutil.rmtree(worktree)
    go.touch()
    said = holdfast(repo, "run", code=None)
    parked = state(repo).tasks["t"].parked
    assert " is lost: " in parked and str(worktree / "nest") in parked and landed(repo) == [], said
    assert "holdfast resolve t --newest | --anew | --abandon" in holdfast(repo, "show", "t")
    if choice == "retry":
        shutil.copytree(repo.parent / "copy", worktree / "nest", dirs_exist_ok=True)
    holdfast(repo, "resolve", "t", f"--{choice}")
    if choice == "abandon":
        assert state(repo).tasks["t"].state is TaskState.CANCELLED
        return
    holdfast(repo, "run")
    assert landed(repo) == ["t"] and state(repo).tasks["t"].attempts == (2 if choice == "anew" else 1)
    assert git(repo, "show", "main:nest/f") == "hi"
    sound(repo)


@nests
def test_one_that_is_there_when_its_attempt_goes_on_is_kept(repo: Path, nest: str) -> None:
    go = paused(repo, nest)
    (layout(repo).worktree("t") / "one.txt").unlink()
    go.touch()
    holdfast(repo, "run")
    assert landed(repo) == ["t"] and git(repo, "show", "main:nest/f") == "hi"
    sound(repo)
