"""Data roots whose snapshots were in the user's repository: they move into the store, whatever dies on the way."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.worktrees.migration import MIGRATE_POINTS
from kit.clock import SetClock
from kit.git import git
from kit.program import begin, holdfast
from kit.project import layout, sound, state
from kit.tasks import files_landed, paused

# Whole runs, of seconds each.
pytestmark = [pytest.mark.heavy, pytest.mark.repo(grace_s=0.5)]

LATER_S = 3 * 86400.0
FILES = {"one.txt", "two.txt", "half.txt", "three.txt"}


def aged(repo: Path) -> None:
    """As a root of the first format stands: no store, and the refs in the repository."""
    store = layout(repo).snapshots
    # Without the store's objects in sight, or nothing would be copied.
    fetch = ["git", "fetch", "-q", str(store), "+refs/attempts/*:refs/holdfast/attempts/*"]
    subprocess.run(fetch, cwd=repo, check=True)
    for ref in git(repo, "for-each-ref", "--format=%(refname)", "refs/holdfast/base").split():
        git(repo, "update-ref", "-d", ref)
    shutil.rmtree(store)
    shutil.rmtree(layout(repo).worktree("a"))
    shutil.rmtree(layout(repo).cache)
    path = layout(repo).format_file
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 1}))


def old_refs(repo: Path) -> str:
    return git(repo, "for-each-ref", "refs/holdfast/attempts")


@pytest.mark.parametrize("at", ["", *MIGRATE_POINTS])
def test_the_snapshots_of_an_older_root_move_into_the_store(repo: Path, at: str, tmp_path: Path) -> None:
    go, clock = paused(repo), SetClock(tmp_path)
    aged(repo)
    assert old_refs(repo)
    if at:
        killed = begin(repo, HOLDFAST_CRASH_AT=f"{at}:1", **clock.env)
        killed.communicate()
        assert killed.returncode == -9, "the fault has fired"
        clock.later(LATER_S)
    told = holdfast(repo, "check")
    if not at:
        assert "snapshots move" in told and "is lost" not in told
    go.touch()
    holdfast(repo, "run", env=clock.env)
    assert files_landed(repo) >= FILES and state(repo).tasks["a"].attempts == 1
    assert not old_refs(repo) and json.loads(layout(repo).format_file.read_text())["format"] == 2
    sound(repo)


def test_a_snapshot_that_no_store_has_is_lost_before_the_move_too(repo: Path) -> None:
    paused(repo)
    aged(repo)
    tree = git(repo, "rev-parse", "refs/holdfast/attempts/a.1/turn-2^{tree}")
    loose = repo / ".git" / "objects" / tree[:2] / tree[2:]
    if not loose.exists():
        pytest.fail("the fault has nothing to hurt")
    loose.unlink()
    assert "is lost" in holdfast(repo, "check", code=4)


def test_refs_of_another_root_on_the_same_repository_stay(repo: Path) -> None:
    go = paused(repo)
    aged(repo)
    # The other one wrote the same name later, for an attempt of its own.
    git(repo, "update-ref", "refs/holdfast/attempts/a.1/turn-2", "HEAD")
    go.touch()
    holdfast(repo, "run")
    assert files_landed(repo) >= FILES
    assert "turn-2" in old_refs(repo), "it is not ours to remove"
