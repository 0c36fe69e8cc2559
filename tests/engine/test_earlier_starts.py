"""Every start makes the worktree equal to the tree that it continues from, whatever the folder looks like by then."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import msgspec
import pytest

from holdfast import identity as process
from holdfast.domain.task import TaskState
from holdfast.ledgers.reader import FileLedgerReader
from holdfast.views.diffs import Diffs
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, landed, layout, settings, sound, state
from kit.tasks import files_landed, journal, paused, turns
from kit.waiting import shell_wait, wait_for

# Whole runs, of seconds each.
pytestmark = [pytest.mark.heavy, pytest.mark.repo(grace_s=0.5)]


@pytest.mark.parametrize("how", ["deleted", "foreign", "emptied", "left alone"])
def test_a_paused_attempt_goes_on_with_all_its_turns(repo: Path, how: str) -> None:
    go = paused(repo)
    worktree = layout(repo).worktree("a")
    if how in ("deleted", "foreign"):
        shutil.rmtree(worktree)
    if how == "foreign":
        worktree.mkdir()
        (worktree / "theirs.txt").write_text("somebody else's\n")
    if how == "emptied":
        for name in ("one.txt", "two.txt", "half.txt"):
            (worktree / name).unlink()
        (worktree / "theirs.txt").write_text("somebody else's\n")
    go.touch()
    holdfast(repo, "run")
    assert landed(repo) == ["a"] and state(repo).tasks["a"].attempts == 1
    assert {"one.txt", "two.txt", "half.txt", "three.txt"} <= files_landed(repo)
    assert "theirs.txt" not in files_landed(repo)
    if how in ("foreign", "emptied"):
        refs = git(layout(repo).snapshots, "for-each-ref", "--format=%(refname)").split()
        quarantined = any(layout(repo).quarantine.rglob("theirs.txt"))
        shown = [ref for ref in refs if "/found-" in ref]
        assert quarantined or git(layout(repo).snapshots, "show", f"{shown[-1]}:theirs.txt") == "somebody else's"
    sound(repo)


def test_the_journal_has_the_tree_to_go_on_with(repo: Path) -> None:
    paused(repo)
    task = state(repo).tasks["a"]
    held = git(layout(repo).snapshots, "ls-tree", "--name-only", task.attempt.tree).split()
    assert {"one.txt", "two.txt", "half.txt"} <= set(held)
    # A ref says nothing: another data root, or an older life of this one, may have written it.
    git(layout(repo).snapshots, "update-ref", "refs/attempts/a.1/end-1", task.attempt.base)
    git(layout(repo).snapshots, "update-ref", "refs/attempts/a.1/turn-2", task.attempt.base)
    shutil.rmtree(layout(repo).worktree("a"))
    (repo.parent / "go").touch()
    holdfast(repo, "run")
    assert {"one.txt", "two.txt", "half.txt", "three.txt"} <= files_landed(repo)


def test_git_gc_and_rewritten_history_between_turns_lose_nothing(repo: Path) -> None:
    git(repo, "commit", "-q", "--allow-empty", "-m", "to be amended")
    go = paused(repo)
    (repo / "amended.txt").write_text("x\n")
    git(repo, "add", "amended.txt")
    git(repo, "commit", "-q", "--amend", "-m", "amended")
    git(repo, "reflog", "expire", "--expire=now", "--all")
    shutil.rmtree(layout(repo).worktree("a"))
    git(repo, "worktree", "prune")
    git(repo, "repack", "-adq")
    git(repo, "gc", "-q", "--prune=now")
    go.touch()
    holdfast(repo, "run")
    assert {"one.txt", "two.txt", "half.txt", "three.txt", "amended.txt"} <= files_landed(repo)
    git(repo, "fsck", "--strict")
    sound(repo)


def test_a_copied_data_root_goes_on_in_a_fresh_clone(repo: Path, tmp_path: Path) -> None:
    go = paused(repo)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(repo), str(clone))
    git(clone, "config", "user.name", "A Person")
    git(clone, "config", "user.email", "person@example.org")
    shutil.rmtree(clone / ".sdd", ignore_errors=True)
    shutil.copytree(repo / ".sdd", clone / ".sdd", symlinks=True)
    shutil.move(repo, tmp_path / "gone")
    go.touch()
    holdfast(clone, "run")
    assert {"one.txt", "two.txt", "half.txt", "three.txt"} <= files_landed(clone)


def test_nothing_of_a_snapshot_is_published_by_a_mirror(repo: Path, tmp_path: Path) -> None:
    go = repo.parent / "go"
    add(repo, "a", f"write .env.production SECRET=1\nrun {shell_wait(go)}")
    process = begin(repo)
    wait_for(lambda: turns(repo, "a") >= 1, "a turn")
    git(tmp_path, "init", "-q", "--bare", "mirror.git")
    git(repo, "push", "-q", "--mirror", str(tmp_path / "mirror.git"))
    objects = git(tmp_path / "mirror.git", "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
    snapshot = journal(repo, "turn_completed")[0].inputs["snapshot"]
    secret = git(layout(repo).snapshots, "rev-parse", f"{snapshot}:.env.production")
    assert secret not in objects
    assert git(repo, "log", "--all", "--format=%s").splitlines() == git(repo, "log", "main", "--format=%s").splitlines()
    go.touch()
    holdfast(repo, "stop", "--agents", code=None)
    process.communicate()


def lose(repo: Path, *commits: str) -> dict[Path, bytes]:
    """Removes the trees of the commits, wherever they are; returns what was removed."""
    stores, lost = (layout(repo).snapshots / "objects", repo / ".git" / "objects"), {}
    trees = [git(layout(repo).snapshots, "rev-parse", f"{commit}^{{tree}}") for commit in commits]
    for path in (store / tree[:2] / tree[2:] for tree in trees for store in stores):
        if path.exists():
            lost[path] = path.read_bytes()
            path.unlink()
    assert lost
    return lost


@pytest.mark.parametrize("choice", ["newest", "anew", "abandon"])
def test_a_turn_that_is_lost_parks_its_task_and_a_person_decides(repo: Path, choice: str) -> None:
    go = paused(repo)
    go.touch()
    second = journal(repo, "turn_completed")[1].inputs["snapshot"]
    lose(repo, second, state(repo).tasks["a"].attempt.tree)
    assert "is lost" in holdfast(repo, "check", code=4)
    holdfast(repo, "run", code=None)
    parked = state(repo).tasks["a"].parked
    assert "is lost" in parked and "holdfast resolve a" in parked and landed(repo) == []
    assert "--newest" in holdfast(repo, "list") + holdfast(repo, "show", "a") + holdfast(repo, "doctor", code=None)
    assert "--happened" in holdfast(repo, "resolve", "a", code=2)
    holdfast(repo, "resolve", "a", f"--{choice}")
    if choice == "abandon":
        assert state(repo).tasks["a"].state is TaskState.CANCELLED
        return
    holdfast(repo, "run")
    assert {"one.txt", "two.txt", "three.txt"} <= files_landed(repo)
    assert state(repo).tasks["a"].attempts == (1 if choice == "newest" else 2)
    sound(repo)


CHOICES = pytest.mark.parametrize("choice", ["newest", "anew", "abandon", "retry"])


@CHOICES
def test_the_end_of_an_attempt_that_is_lost_parks_its_task(repo: Path, choice: str) -> None:
    go = repo.parent / "go"
    settings(repo, grace_s=0.5, max_attempts=1 if choice != "anew" else 2)
    add(repo, "a", f"write one.txt 1\nrun {shell_wait(go)}\nwrite two.txt 2")
    process = begin(repo)
    wait_for(lambda: turns(repo, "a") >= 1, "a turn")
    holdfast(repo, "stop")
    process.communicate()
    go.touch()
    exit_file = layout(repo).attempt_files("a.1").exit
    wait_for(exit_file.exists, "the end of the agent")
    end = str(msgspec.json.decode(exit_file.read_bytes())["snapshot"])
    lost = lose(repo, end)
    said = holdfast(repo, "run", code=None)
    expect_lost(repo, said, end)
    decide(repo, choice, lost)
    assert state(repo).tasks["a"].attempts == (2 if choice == "anew" else 1)


@CHOICES
@pytest.mark.parametrize("what", ["candidate", "verified"])
def test_a_result_that_is_lost_before_it_lands_parks_its_task(repo: Path, what: str, choice: str) -> None:
    add(repo, "a", "write one.txt 1\nwrite two.txt 2")
    after = "append.task_done.after" if what == "candidate" else "append.task_verify_confirmed.after"
    assert begin(repo, HOLDFAST_CRASH_AT=f"{after}:1").wait() == -signal.SIGKILL
    task = state(repo).tasks["a"]
    assert task.state is TaskState.DONE and task.candidate and bool(task.landing.verified) is (what == "verified")
    lost = lose(repo, task.candidate)
    said = holdfast(repo, "run", code=None)
    expect_lost(repo, said, task.candidate)
    assert state(repo).tasks["a"].state is TaskState.DONE
    decide(repo, choice, lost)
    assert state(repo).tasks["a"].attempts == (2 if choice == "anew" else 1)


def expect_lost(repo: Path, said: str, commit: str) -> None:
    parked = state(repo).tasks["a"].parked
    assert "is lost" in parked and commit in parked and "holdfast resolve a" in parked and landed(repo) == [], said
    assert state(repo).tasks["a"].attempts == 1
    assert "holdfast resolve a --newest | --anew | --abandon" in holdfast(repo, "show", "a")
    assert "a person must decide" in holdfast(repo, "list")
    assert commit in holdfast(repo, "check", code=4)


def decide(repo: Path, choice: str, lost: dict[Path, bytes]) -> None:
    if choice == "retry":
        for path, content in lost.items():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
    holdfast(repo, "resolve", "a", f"--{choice}")
    if choice == "abandon":
        assert state(repo).tasks["a"].state in (TaskState.CANCELLED, TaskState.FAILED)
        return
    holdfast(repo, "run")
    assert landed(repo) == ["a"] and {"one.txt", "two.txt"} <= files_landed(repo)
    sound(repo)


def test_a_snapshot_that_only_has_the_name_is_not_taken(repo: Path) -> None:
    """Another life of the data root may have written it: it does not descend from what the journal has."""
    go = paused(repo)
    task, store = state(repo).tasks["a"], layout(repo).snapshots
    told = holdfast(repo, "prompt", "a")
    git(store, "update-ref", "refs/attempts/a.1/orphan-1", task.attempt.base)
    assert holdfast(repo, "prompt", "a") == told
    git(store, "update-ref", "-d", "refs/attempts/a.1/orphan-1")
    go.touch()
    holdfast(repo, "run")
    diffs = Diffs(repo, layout(repo), state(repo).tasks["a"], "a.1", FileLedgerReader(layout(repo)))
    assert diffs.before(3) == git(store, "rev-parse", "refs/attempts/a.1/start-2")
    git(store, "update-ref", "refs/attempts/a.1/start-2", task.attempt.base)
    assert diffs.before(3) == diffs.after(2)


@pytest.mark.parametrize("boots", [False, True], ids=["same boot", "another boot"])
def test_an_orphans_tree_is_kept_only_within_one_boot(repo: Path, tmp_path: Path, boots: bool) -> None:
    """A tool ended after the last turn. After a power cut, files that nobody synced are missing: the turn is redone."""
    go = tmp_path / "go"
    wait = f"{shell_wait(go)}; echo 2 > two.txt"
    add(repo, "a", f"write one.txt 1\nrun {wait}\nwrite three.txt 3")
    point = "runner.turn_line.before:2"
    run = begin(repo, HOLDFAST_CRASH_AT=point, HOLDFAST_CRASH_ONCE=str(tmp_path))
    wait_for(lambda: turns(repo, "a") == 1, "the first turn")
    run.kill()
    run.communicate()
    go.touch()
    wait_for((tmp_path / point).exists, "the runner's death before it has written the second turn")
    files = layout(repo).attempt_files("a.1")
    if boots:
        (layout(repo).worktree("a") / "one.txt").unlink()
        (layout(repo).worktree("a") / "two.txt").write_text("")
        now = process.boot_id()
        for path in (files.start(1), files.process, files.alive):
            path.write_text(path.read_text().replace(now, now[::-1]))
    holdfast(repo, "run")
    assert {"one.txt", "two.txt", "three.txt"} <= files_landed(repo) and git(repo, "show", "main:two.txt") == "2"
    assert state(repo).tasks["a"].attempts == 1
    trees = [
        set(git(layout(repo).snapshots, "ls-tree", "--name-only", f"refs/attempts/a.1/{name}").split())
        for name in ("orphan-1", "start-2")
    ]
    if boots:
        assert "two.txt" in trees[0] and trees[1] - trees[0] == {"one.txt"}, "the last turn does not stand"
    else:
        assert trees[0] == trees[1] and {"one.txt", "two.txt"} <= trees[0], "what the tool did was undone"
    sound(repo)
