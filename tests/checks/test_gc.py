"""Collecting garbage: what is of no use goes, and nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.checks.gc import BLOB_AGE_S_MIN
from holdfast.layout import Layout
from holdfast.storage.records.blobs import Blobs
from holdfast.worktrees.worktrees import Worktrees
from kit.git import git
from kit.program import started, type_in
from kit.project import add, make_repo, settings
from kit.waiting import wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """One task that has landed, and one that has failed with work in its worktree."""
    repo = make_repo(tmp_path / "repo", landed="write x hi")
    add(repo, "failed", "write y hi", max_attempts=1, verify=["test -f nowhere"])
    assert type_in(repo, "run").returncode == 20
    return repo


def gc(repo: Path, *options: str) -> dict[tuple[str, str], int]:
    typed = type_in(repo, "gc", "--json", *options)
    assert typed.returncode == 0, typed.stderr
    report: dict[str, Any] = msgspec.json.decode(typed.stdout)
    found = report["would_remove" if "--dry-run" in options else "removed"]
    return {(each["kind"], each["name"]): each["bytes"] for each in found}


def refs(repo: Path) -> set[str]:
    return {
        line.split("/")[2]
        for line in git(repo / ".sdd" / "snapshots.git", "for-each-ref", "--format=%(refname)").split()
    }


def sound(repo: Path) -> bool:
    return type_in(repo, "check").returncode == 0


def test_a_dry_run_changes_nothing_and_gc_does_what_it_said(repo: Path) -> None:
    said = gc(repo, "--dry-run", "--keep-days", "0")
    assert said.keys() == {("scratch", ".scratch"), ("snapshots", "landed.1")} and said["scratch", ".scratch"] > 0
    assert refs(repo) == {"landed.1", "failed.1"} and (repo / ".sdd/worktrees/.scratch").exists()
    assert gc(repo, "--keep-days", "0") == said
    assert refs(repo) == {"failed.1"} and not (repo / ".sdd/worktrees/.scratch").exists()
    assert (repo / ".sdd/worktrees/failed/y").read_text() == "hi\n"
    assert gc(repo, "--keep-days", "0") == {} and sound(repo)
    assert "There is nothing to remove." in type_in(repo, "gc").stdout


def test_the_hook_runs_before_a_worktree_goes_and_not_before_one_that_stays(repo: Path) -> None:
    told = repo.parent / "told"
    settings(repo, worktree={"before_remove": [f"pwd >> {told}; test -f y && echo no; exit 4"]})
    candidate = git(repo / ".sdd" / "snapshots.git", "rev-parse", "refs/candidates/landed.1")
    path = Worktrees(repo, Layout(repo / ".sdd")).prepare("landed", candidate)
    (path / "more").write_text("work that nobody has landed")
    assert ("worktree", "landed") not in gc(repo) and not told.exists()
    (path / "more").unlink()
    assert type_in(repo, "cancel", "failed").returncode == 0
    typed = type_in(repo, "gc")
    assert "landed: `worktree.before_remove`" in typed.stderr and "failed: `worktree.before_remove`" in typed.stderr
    assert set(told.read_text().split()) == {str(path), str(path.parent / "failed")}
    assert not path.exists() and not (path.parent / "failed").exists()
    shown = type_in(repo, "hooks", "failed").stdout
    assert "before_remove" in shown and sound(repo)


def test_a_worktree_and_snapshots_go_only_when_all_of_it_has_landed(repo: Path) -> None:
    candidate, landed = (
        git(repo / ".sdd" / "snapshots.git", "rev-parse", "refs/candidates/landed.1"),
        git(repo, "rev-parse", "main"),
    )
    path = Worktrees(repo, Layout(repo / ".sdd")).prepare("landed", candidate)
    (path / "more").write_text("work that nobody has landed")
    assert gc(repo).keys() == {("scratch", ".scratch")} and (path / "more").exists()
    (path / "more").unlink()
    git(repo, "reset", "-q", "--hard", "HEAD~1")
    assert gc(repo, "--keep-days", "0") == {} and path.exists() and "landed.1" in refs(repo)
    git(repo, "reset", "-q", "--hard", landed)
    assert gc(repo).keys() == {("worktree", "landed")} and not path.exists() and "landed.1" in refs(repo)
    assert sound(repo)


def test_only_blobs_that_nothing_names_go(repo: Path) -> None:
    blobs = Blobs(Layout(repo / ".sdd").cas)
    before = set(blobs.digests())
    assert len(before) > 2
    young, inner = blobs.put(b"young"), blobs.put(b"inner")
    # Named by a file of an attempt, and by a blob that is so named.
    outer = blobs.put(msgspec.json.encode({"output": inner}))
    (repo / ".sdd/attempts/failed.1/verdict-2.json").write_text(f'{{"x":"{outer}"}}')
    old = blobs.put(b"old")
    age_all(repo, but=young)
    assert gc(repo).keys() - {("scratch", ".scratch")} == {("blob", old)}
    assert set(blobs.digests()) == before | {young, inner, outer}
    assert not (repo / ".sdd/cas" / old[:2] / f"{old}.meta.json").exists() and sound(repo)
    assert type_in(repo, "retry", "failed").returncode == 0 and type_in(repo, "run").returncode == 20


def age_all(repo: Path, *, but: str) -> None:
    moment = time.time() - BLOB_AGE_S_MIN - 60
    for path in (repo / ".sdd/cas").rglob("*"):
        if path.is_file() and not path.name.startswith(but):
            os.utime(path, (moment, moment))


def test_gc_refuses_while_a_run_is_active(repo: Path) -> None:
    add(repo, "long", "write z hi\nhang")
    with started(repo, "run", "--plain"):
        wait_for(lambda: (repo / ".sdd/attempts/long.1/turns.jsonl").exists(), "it does not begin")
        assert type_in(repo, "gc").returncode == 7
        assert gc(repo, "--dry-run").keys() >= {("scratch", ".scratch")}
        assert type_in(repo, "stop", "--agents").returncode == 0
    assert (repo / ".sdd/worktrees/.scratch").exists()
