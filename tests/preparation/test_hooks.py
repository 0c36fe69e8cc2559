"""Hooks of worktrees: when they run, what is shown of them, and what their failure costs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from holdfast.identity import start_ticks
from holdfast.storage.files.json_file import read_json
from kit.git import git
from kit.mounts import mounts
from kit.program import begin, holdfast, type_in
from kit.project import add, landed, layout, make_repo, settings, sound, state
from kit.waiting import wait_for

BESIDE = "../../../.."


@pytest.mark.repo(
    worktree={
        "before_start": [f"echo before >> {BESIDE}/told"],
        "after_start": [f"echo after >> {BESIDE}/told"],
        "before_remove": [f"test -f a.txt && echo remove >> {BESIDE}/told"],
    }
)
def test_hooks_run_around_a_start_and_before_the_worktree_goes(repo: Path) -> None:
    add(repo, "t", f"run until grep -q after {BESIDE}/told; do sleep 0.05; done\nwrite a.txt x")
    holdfast(repo, "run")
    assert (repo.parent / "told").read_text().split() == ["before", "after", "remove"]
    assert landed(repo) == ["t"] and not layout(repo).worktree("t").exists()
    shown = json.loads(holdfast(repo, "hooks", "t", "--json"))["hooks"]
    assert [(each["hook"], each["outcome"]) for each in shown] == [
        ("before_start", "passed"), ("after_start", "passed"), ("before_remove", "passed"),
    ]  # fmt: skip
    sound(repo)


@pytest.mark.repo(worktree={"after_start": ["exit 3"], "before_remove": ["echo no; exit 4"]})
def test_a_failing_hook_after_the_start_or_before_removal_changes_nothing(repo: Path) -> None:
    add(repo, "t", "write a.txt x")
    told = holdfast(repo, "run")
    assert landed(repo) == ["t"] and not layout(repo).worktree("t").exists()
    assert "`worktree.before_remove` `echo no; exit 4` ended with code 4" in told
    shown = holdfast(repo, "hooks", "t.1")
    assert "FAILED" in shown and "      no" in shown
    assert type_in(repo, "hooks", "tt").returncode != 0


@pytest.mark.heavy
@pytest.mark.repo(worktree={"before_start": ["exit 5"]})
def test_a_failing_hook_before_the_start_costs_no_attempt(repo: Path) -> None:
    add(repo, "t", "write a.txt x")
    holdfast(repo, "run", code=None)
    task = state(repo).tasks["t"]
    assert task.state == "OPEN" and task.outcome["kind"] == "setup_failed" and "worktree.before_start" in task.cause
    settings(repo)
    holdfast(repo, "run")
    assert landed(repo) == ["t"] and state(repo).tasks["t"].attempts == 1


@pytest.mark.repo(worktree={"setup": ["touch began; exec sleep 1000"]})
def test_a_task_is_cancelled_while_its_worktree_is_set_up(repo: Path) -> None:
    add(repo, "t", "write a.txt x")
    run = begin(repo)
    wait_for(lambda: (layout(repo).worktree("t") / "began").exists())
    holdfast(repo, "cancel", "t")
    run.communicate(timeout=60)
    assert state(repo).tasks["t"].state == "CANCELLED"
    sound(repo)


@pytest.mark.repo(worktree={"setup": [f"echo $$ >> {BESIDE}/pids; test -f {BESIDE}/go || exec sleep 1000"]})
def test_half_a_setup_that_a_kill_left_is_done_again(repo: Path) -> None:
    add(repo, "t", "write a.txt x", verify=["true"])
    run = begin(repo)
    wait_for(lambda: (repo.parent / "pids").exists() and (repo.parent / "pids").read_text())
    run.kill()
    run.communicate()
    (repo.parent / "go").touch()
    holdfast(repo, "run")
    first = int((repo.parent / "pids").read_text().split()[0])
    assert landed(repo) == ["t"] and start_ticks(first) is None
    assert len((repo.parent / "pids").read_text().split()) == 3, "twice for the attempt, once for its gates"
    sound(repo)


@pytest.mark.repo(worktree={"keep_s": 3600.0})
def test_a_worktree_is_kept_for_a_while_after_the_landing(repo: Path) -> None:
    add(repo, "t", "write a.txt x")
    holdfast(repo, "run")
    assert landed(repo) == ["t"] and layout(repo).worktree("t").is_dir()
    settings(repo, worktree={"keep_s": 0.001})
    holdfast(repo, "run")
    assert not layout(repo).worktree("t").exists()
    sound(repo)


@pytest.mark.heavy
@mounts
def test_a_start_waits_for_free_space_and_goes_on_by_itself(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(tmp_path)], check=True)
    repo = make_repo(tmp_path / "repo", t="write a.txt x")
    settings(repo, disk_free_min=40 << 20)
    (tmp_path / "full").write_bytes(bytes(40 << 20))
    run = begin(repo)
    assert run.stdout is not None
    line = next(line for line in run.stdout if "disk_free_min" in line)
    assert "are free on the disk" in line and state(repo).tasks["t"].state == "OPEN"
    shown = json.loads(holdfast(repo, "status", "--json"))
    assert shown["disk"]["free"] < shown["disk"]["free_min"] == 40 << 20
    assert "disk_free_min" in shown["host"]["short"] and "disk_free_min" in holdfast(repo, "status")
    (tmp_path / "full").unlink()
    run.communicate(timeout=120)
    assert landed(repo) == ["t"] and run.returncode == 0
    sound(repo)


FILL = "head -c 60000000 /dev/zero > big"


@pytest.mark.heavy
@pytest.mark.parametrize("leaves_room", [True, False])
@mounts
def test_a_setup_that_fills_the_disk_loses_nothing_and_goes_on_once_there_is_room(
    tmp_path: Path, *, leaves_room: bool
) -> None:
    """`leaves_room`: the command clears up, so that the run lives on; otherwise the journal itself has no room."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "none", str(tmp_path)], check=True)
    repo = make_repo(tmp_path / "repo")
    (repo / ".gitignore").write_text("big\n.sdd/\n")
    git(repo, "add", ".gitignore")
    git(repo, "commit", "-q", "-m", "Ignore it")
    settings(repo, disk_free_min=0, worktree={"setup": [f"{FILL} || {{ rm big; exit 7; }}" if leaves_room else FILL]})
    whole = "test $(stat -c %s big) = 60000000"
    add(repo, "t", f"run {whole}\nwrite a.txt x", max_attempts=1, verify=[whole])
    before = git(repo, "rev-parse", "main")
    run = begin(repo)
    assert run.stdout is not None
    # The fault has fired, and has its name.
    assert next(line for line in run.stdout if "No space left on device" in line)
    if leaves_room:
        task = wait_for(lambda: (found := state(repo).tasks["t"]).state == "OPEN" and found)
        assert "No space left on device" in task.cause and "No space left on device" in holdfast(repo, "list")
    else:
        run.communicate(timeout=120)
        assert run.returncode == 3
    assert git(repo, "rev-parse", "main") == before
    subprocess.run(["mount", "-o", "remount,size=200m", str(tmp_path)], check=True)
    if leaves_room:
        run.communicate(timeout=120)
        assert run.returncode == 0
    else:
        holdfast(repo, "run")
    assert landed(repo) == ["t"] and state(repo).tasks["t"].attempts == 1
    sound(repo)


def test_status_counts_what_worktrees_and_snapshots_take(repo: Path) -> None:
    add(repo, "t", "run head -c 3000000 /dev/urandom > big.bin", approve=True)
    holdfast(repo, "run", code=None)
    disk = json.loads(holdfast(repo, "status", "--json"))["disk"]
    assert disk["worktree_count"] == 1 and disk["worktrees"] >= 3_000_000 <= disk["snapshots"] and disk["is_whole"]
    assert "1 worktree" in holdfast(repo, "status")


@pytest.mark.heavy
@pytest.mark.repo(worktree={"setup": ["true"]})
def test_a_stamp_names_what_the_worktree_was_set_up_with(repo: Path) -> None:
    add(repo, "t", "write a.txt x", approve=True)
    holdfast(repo, "run", code=None)
    found = read_json(layout(repo).inside("cache", "snapshots", "t", "setup.json"), dict)
    assert found is not None and len(found["digest"]) == 64
    assert git(repo, "status", "--porcelain") == ""
