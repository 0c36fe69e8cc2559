from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import errors
from holdfast.domain.task import TaskState
from holdfast.domain.task_record import Landing, Task
from holdfast.landing import branch as land
from holdfast.landing.branch import LAND_POINTS, SWAPS_MAX, Land
from holdfast.landing.lost_landings import lost_landings
from holdfast.ports import DidNotHappen, Happened
from holdfast.storage.files import disk
from holdfast.storage.journal import root_place
from holdfast.storage.journal.data_root import create_root
from holdfast.testing.recorder import Recorder
from holdfast.worktrees import pins
from kit.git import git, plain, repository, with_files
from kit.landing import intent, killed, perform
from kit.project import layout

pytestmark = pytest.mark.repo(make=plain(a="alpha\n"))

MAIN = "refs/heads/main"


def commit_on(repo: Path, parent: str, **files: str) -> str:
    """A commit that no branch names."""
    where = git(repo, "rev-parse", "--show-toplevel")
    scratch = Path(where).parent / f"made-{len(os.listdir(Path(where).parent))}"
    git(repo, "worktree", "add", "-q", "--detach", str(scratch), parent)
    with_files(scratch, **files)
    made = git(scratch, "rev-parse", "HEAD")
    git(repo, "worktree", "remove", "--force", str(scratch))
    return made


@pytest.fixture
def inputs(repo: Path) -> dict[str, str]:
    old = git(repo, "rev-parse", MAIN)
    return {"branch": MAIN, "old": old, "new": commit_on(repo, old, b="beta\n")}


def result(inputs: dict[str, str]) -> dict[str, str]:
    return {"branch": MAIN, "old": inputs["old"], "new": inputs["new"]}


def test_the_branch_moves_and_its_log_names_the_task(repo: Path, inputs: dict[str, str]) -> None:
    landing = intent("land", **inputs)
    assert Land(repo, layout(repo)).reconcile(landing) == DidNotHappen()
    assert Land(repo, layout(repo)).perform(landing) == result(inputs)
    assert git(repo, "rev-parse", MAIN) == inputs["new"]
    assert git(repo, "reflog", "-1", "--format=%gs", "main") == "holdfast: t-1"
    assert Land(repo, layout(repo)).reconcile(landing) == Happened(result(inputs))
    git(repo, "fsck", "--strict", "--no-dangling")


def test_a_landing_is_not_made_twice_and_what_was_built_on_it_stays(repo: Path, inputs: dict[str, str]) -> None:
    Land(repo, layout(repo)).perform(intent("land", **inputs))
    assert Land(repo, layout(repo)).perform(intent("land", **inputs)) == result(inputs)
    later = commit_on(repo, inputs["new"], c="later\n")
    git(repo, "update-ref", MAIN, later)
    assert Land(repo, layout(repo)).reconcile(intent("land", **inputs)) == Happened(result(inputs))
    assert git(repo, "rev-parse", MAIN) == later


def test_a_lost_race_is_said_and_changes_nothing(repo: Path, inputs: dict[str, str]) -> None:
    other = commit_on(repo, inputs["old"], c="the user's\n")
    git(repo, "update-ref", MAIN, other)
    with pytest.raises(errors.LandingLost, match=f"on top of {inputs['old']}, but the branch is at {other}"):
        Land(repo, layout(repo)).perform(intent("land", **inputs))
    assert git(repo, "rev-parse", MAIN) == other
    assert Land(repo, layout(repo)).reconcile(intent("land", **inputs)) == DidNotHappen()


@pytest.mark.parametrize("times", [1, SWAPS_MAX])
def test_a_branch_that_a_reset_puts_back_at_once_is_moved_again(
    repo: Path, inputs: dict[str, str], monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """A `git reset --hard` that began before puts the branch back without a look at where it is."""
    real, undone = land.git.run, list[str]()

    def raced(*args: str, **more: Any) -> Any:
        done = real(*args, **more)
        if args[0] == "update-ref" and len(undone) < times:
            undone.append(git(repo, "rev-parse", MAIN))
            git(repo, "update-ref", "-m", "reset: moving to HEAD", MAIN, inputs["old"])
        return done

    monkeypatch.setattr(land.git, "run", raced)
    if times == 1:
        assert Land(repo, layout(repo)).perform(intent("land", **inputs)) == result(inputs)
    else:
        with pytest.raises(errors.GitFailed, match="the branch is where it was"):
            Land(repo, layout(repo)).perform(intent("land", **inputs))
    assert undone == [inputs["new"]] * times
    assert git(repo, "rev-parse", MAIN) == inputs["new" if times == 1 else "old"]


def test_a_branch_that_is_gone_is_a_lost_race(repo: Path, inputs: dict[str, str]) -> None:
    git(repo, "checkout", "-q", "--detach")
    git(repo, "branch", "-q", "-D", "main")
    with pytest.raises(errors.LandingLost, match="is gone"):
        Land(repo, layout(repo)).perform(intent("land", **inputs))
    assert Land(repo, layout(repo)).reconcile(intent("land", **inputs)) == DidNotHappen()


def test_packed_and_symbolic_refs_land_too(repo: Path, inputs: dict[str, str]) -> None:
    git(repo, "pack-refs", "--all")
    git(repo, "symbolic-ref", "refs/heads/alias", MAIN)
    alias = {**inputs, "branch": "refs/heads/alias"}
    assert Land(repo, layout(repo)).perform(intent("land", **alias)) == alias
    assert git(repo, "rev-parse", MAIN) == inputs["new"]
    assert git(repo, "symbolic-ref", "refs/heads/alias") == MAIN


@pytest.mark.parametrize("name", [f"{MAIN}.lock", "HEAD.lock"])
def test_a_lock_that_a_dead_git_left_is_removed(repo: Path, inputs: dict[str, str], name: str) -> None:
    lock = repo / ".git" / name
    lock.touch()
    assert Land(repo, layout(repo)).perform(intent("land", **inputs)) == result(inputs)
    assert not lock.exists()


def test_a_lock_in_living_hands_is_left(repo: Path, inputs: dict[str, str]) -> None:
    lock = repo / ".git" / f"{MAIN}.lock"
    script = "import sys; held = open(sys.argv[1], 'x'); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as living:
        assert living.stdout and living.stdout.readline()
        with pytest.raises(errors.GitLocked, match=f"held by process {living.pid}"):
            Land(repo, layout(repo)).perform(intent("land", **inputs))
        assert lock.exists() and git(repo, "rev-parse", MAIN) == inputs["old"]
        living.communicate()
    assert Land(repo, layout(repo)).perform(intent("land", **inputs)) == result(inputs)


def test_the_ref_and_every_folder_above_are_synced_last(repo: Path, inputs: dict[str, str]) -> None:
    for act in (Land(repo, layout(repo)).perform, Land(repo, layout(repo)).reconcile):
        recorder = Recorder(repo)
        with disk.use_kernel(recorder):
            act(intent("land", **inputs))
        synced = {str(call.path) for call in recorder.calls if call.kind == "sync"}
        assert {f".git/{MAIN}", ".git/refs/heads", ".git/refs", ".git"} <= synced, synced


@pytest.mark.heavy
def test_every_point_is_reached_and_a_kill_there_ends_the_same(tmp_path: Path) -> None:
    expected = None
    for number, at in enumerate(LAND_POINTS):
        repo = with_files(repository(tmp_path / str(number) / "repo"), a="alpha\n")
        old = git(repo, "rev-parse", MAIN)
        inputs = {"branch": MAIN, "old": old, "new": commit_on(repo, old, b="beta\n")}
        killed("land", repo, inputs, at)
        verdict = Land(repo, layout(repo)).reconcile(intent("land", **inputs))
        moved = git(repo, "rev-parse", MAIN) == inputs["new"]
        assert verdict == (Happened(result(inputs)) if moved else DidNotHappen())
        assert moved == (LAND_POINTS.index(at) > LAND_POINTS.index("land.swap.before"))
        killed("land", repo, inputs, at)
        assert perform("land", repo, inputs) == result(inputs)
        assert git(repo, "rev-parse", MAIN) == inputs["new"]
        log = git(repo, "reflog", "--format=%gs", "main").splitlines()
        expected = expected or log
        assert log == expected and log.count("holdfast: t-1") == 1
        git(repo, "fsck", "--strict", "--no-dangling")


def landed(name: str, commit: str, branch: str = MAIN) -> Task:
    return Task(name, TaskState.CLOSED, "", 1.0, 1.0, landing=Landing(commit=commit, branch=branch))


def test_a_lost_landing_is_named(repo: Path, inputs: dict[str, str]) -> None:
    Land(repo, layout(repo)).perform(intent("land", **inputs))
    tasks = [landed("t-1", inputs["new"])]
    assert lost_landings(repo, tasks, layout(repo).snapshots) == lost_landings(repo, [], layout(repo).snapshots) == {}
    git(repo, "update-ref", MAIN, inputs["old"])
    said = lost_landings(repo, tasks, layout(repo).snapshots)["t-1"]
    assert "landing of t-1 on refs/heads/main is lost" in said and f"`git merge {inputs['new']}`" in said
    said = lost_landings(repo, [landed("t-2", "1" * 40, "refs/heads/other")], layout(repo).snapshots)["t-2"]
    assert "the branch is gone" in said and "neither the branch nor the commit is in the repository" in said
    said = lost_landings(repo, [landed("t-2", "1" * 40)], layout(repo).snapshots)["t-2"]
    assert f"is at {inputs['old']}" in said and "not in the repository any more" in said


def test_every_landing_is_looked_at_also_those_before_the_last(repo: Path) -> None:
    first = git(repo, "rev-parse", MAIN)
    lost = commit_on(repo, first, b="beta\n")
    kept = commit_on(repo, first, c="gamma\n")
    git(repo, "update-ref", MAIN, kept)
    tasks = [landed("t-0", first), landed("t-1", lost), landed("t-2", kept)]
    assert list(lost_landings(repo, tasks, layout(repo).snapshots)) == ["t-1"]
    git(repo, "update-ref", "refs/heads/other", lost)
    git(repo, "checkout", "-q", "--detach")
    git(repo, "branch", "-q", "-D", "main")
    tasks = [landed("t-0", first), landed("t-2", kept), landed("t-1", lost, "refs/heads/other")]
    told = lost_landings(repo, tasks, layout(repo).snapshots)
    assert list(told) == ["t-0", "t-2"]
    assert all("the branch is gone" in said and f"`git branch main {kept}`" in said for said in told.values())


def test_many_landings_cost_no_more_git_than_one(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = [git(repo, "rev-parse", MAIN)]
    for number in range(5):
        commits.append(commit_on(repo, commits[-1], b=f"{number}\n"))
    git(repo, "update-ref", MAIN, commits[2])
    real, counted, wrapper = shutil.which("git"), tmp_path / "counted", tmp_path / "bin" / "git"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\necho >> {counted}\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")

    def calls(names: list[str]) -> int:
        counted.write_text("")
        lost_landings(repo, [landed(commit, commit) for commit in names], layout(repo).snapshots)
        return len(counted.read_text().splitlines())

    calls(commits[:1])  # git is asked for its version only once in a process
    assert 0 < calls(commits[:1]) == calls(commits)


@pytest.mark.parametrize(
    ("witness", "branch", "answer"),
    [
        (True, "amended", True),
        # Without the witness nobody knows that it has ever been there; nor does a witness of another commit say so.
        (False, "amended", False),
        (True, "other", False),
    ],
)
def test_a_landing_that_a_person_amended_at_once_has_happened(
    repo: Path, inputs: dict[str, str], witness: bool, branch: str, answer: bool
) -> None:
    layout = create_root(repo / ".sdd")
    root_place.settle(layout, is_copy=False)
    landing = intent("land", **inputs)
    if witness:
        git(repo, "update-ref", pins.landed_ref(layout, landing.ref), inputs["new"])
    tree = git(repo, "rev-parse", f"{inputs['new' if branch == 'amended' else 'old']}^{{tree}}")
    git(repo, "update-ref", MAIN, git(repo, "commit-tree", tree, "-p", inputs["old"], "-m", "by hand"))
    wanted = Happened(result(inputs)) if answer else DidNotHappen()
    assert Land(repo, layout).reconcile(landing) == wanted
