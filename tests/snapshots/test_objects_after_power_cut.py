"""Objects of git that a power cut left empty: found at the next boot, set aside, made anew or reported."""

from __future__ import annotations

import os
import signal
import time
import zlib
from pathlib import Path

import pytest

from holdfast.errors import ObjectsDamaged, is_environment
from holdfast.git import command as git_command
from holdfast.git import objects
from holdfast.landing.branch import Land
from holdfast.snapshots import after_boot
from holdfast.storage.records.attempt_folder import read_process, read_start
from kit.git import git
from kit.landing import intent
from kit.program import begin, holdfast
from kit.project import add, landed, layout, settings, sound, state
from kit.tasks import files_landed, paused
from kit.waiting import shell_wait, wait_for


def loose(repo: Path, name: str) -> Path:
    return repo / ".git" / "objects" / name[:2] / name[2:]


def empty(repo: Path, *names: str) -> int:
    """As a power cut leaves objects that were named before they were synced. Returns how many were loose."""
    git_dir = repo if (repo / "objects").is_dir() else repo / ".git"
    paths = [path for name in names if (path := git_dir / "objects" / name[:2] / name[2:]).is_file()]
    for path in paths:
        path.chmod(0o644)
        path.write_bytes(b"")
    return len(paths)


def objects_of(repo: Path, commit: str, *known: str) -> list[str]:
    excluded = [word for each in known for word in (f"^{each}", f"^{each}^{{tree}}")]
    return git(repo, "rev-list", "--objects", "--no-object-names", commit, *excluded).split()


def another_boot(repo: Path) -> None:
    """The stores were looked through in an earlier boot, or never."""
    layout(repo).objects_read.write_text("another-boot\n")


def committed(repo: Path, text: str) -> str:
    (repo / "new.txt").write_text(text)
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", text)
    return git(repo, "rev-parse", "HEAD")


# -- finding ----------------------------------------------------------------------------------------------------------


def test_empty_torn_and_foreign_objects_are_found_and_whole_ones_are_not(repo: Path) -> None:
    blobs = []
    for number in range(4):
        (repo / "one").write_text(f"content {number}\n" * 50)
        blobs.append(git(repo, "hash-object", "-w", "one"))
    whole, *broken = blobs
    paths = [loose(repo, name) for name in broken]
    for path in paths:
        path.chmod(0o644)
    torn, foreign = paths[1].read_bytes(), zlib.compress(b"blob 5\0other")
    for path, content in zip(paths, (b"", torn[: len(torn) // 2], foreign), strict=True):
        path.write_bytes(content)
    found = {each.name: each.reason for each in objects.damaged(repo / ".git" / "objects", "sha1")}
    assert found.keys() == set(broken) and whole not in found
    assert found[broken[0]] == "it is empty" and found[broken[1]] == "it ends too early"
    assert "another object" in found[broken[2]]
    later = objects.damaged(repo / ".git" / "objects", "sha1", since=paths[0].stat().st_mtime + 3600)
    assert [each.name for each in later] == [broken[0]], "an old object that is not empty was read to its end"


def test_objects_of_a_commit_are_read_to_the_end_and_only_new_ones(repo: Path) -> None:
    base = git(repo, "rev-parse", "HEAD")
    new = committed(repo, "new\n")
    repository = git_command.discover(repo)
    assert objects.unreadable(repository, [new], [base]) == []
    blob = git(repo, "rev-parse", f"{new}:new.txt")
    assert empty(repo, blob) == 1
    assert [each.name for each in objects.unreadable(repository, [new], [base])] == [blob]
    # What was there before is not read again.
    assert objects.unreadable(repository, [new], [new]) == []
    loose(repo, blob).unlink()
    assert [each.name for each in objects.unreadable(repository, [new], [base])] == [blob]
    assert empty(repo, git(repo, "rev-parse", f"{new}^{{tree}}")) == 1
    assert objects.unreadable(repository, [new], [base])


def test_a_landing_reads_what_it_lands(repo: Path) -> None:
    base = git(repo, "rev-parse", "HEAD")
    new = committed(repo, "new\n")
    git(repo, "reset", "-q", "--hard", base)
    assert empty(repo, *objects_of(repo, new, base)[1:]) == 2
    with pytest.raises(ObjectsDamaged) as caught:
        Land(repo, layout(repo)).perform(intent("land", branch="refs/heads/main", old=base, new=new))
    assert is_environment(caught.value) and git(repo, "rev-parse", "main") == base


def test_check_reads_what_landings_and_snapshots_name(repo: Path) -> None:
    add(repo, "a", "write a.txt x", approve=True)
    add(repo, "b", "write b.txt y")
    holdfast(repo, "run", code=20)
    sound(repo)
    landing = git(repo, "rev-parse", f"{state(repo).tasks['b'].landing.commit}:b.txt")
    snapshot = git(layout(repo).snapshots, "rev-parse", f"{state(repo).tasks['a'].candidate}:a.txt")
    assert landing != snapshot and empty(repo, landing) and empty(layout(repo).snapshots, snapshot)
    told = holdfast(repo, "check", code=4)
    assert f"the object {landing}, of a landing" in told and snapshot in told
    assert f"the object {snapshot} cannot be read" in holdfast(repo, "doctor", code=None)


# -- setting aside ----------------------------------------------------------------------------------------------------


def test_damaged_objects_are_set_aside_once_in_a_boot_and_written_anew(repo: Path) -> None:
    (repo / "one").write_text("content\n")
    blob = git(repo, "hash-object", "-w", "one")
    assert empty(repo, blob) == 1
    # Git believes that it has the object, and writes nothing.
    git(repo, "hash-object", "-w", "one")
    assert loose(repo, blob).stat().st_size == 0
    [told] = after_boot.set_damaged_aside(layout(repo), repo, 0.0)
    assert "1 object in" in told and not loose(repo, blob).exists()
    assert (layout(repo).quarantine / "objects-1" / blob).exists()
    assert blob[2:] in (layout(repo).quarantine / "objects-1.reason.txt").read_text()
    git(repo, "hash-object", "-w", "one")
    assert git(repo, "cat-file", "blob", blob) == "content"
    assert after_boot.set_damaged_aside(layout(repo), repo, 0.0) == []
    another_boot(repo)
    assert after_boot.set_damaged_aside(layout(repo), repo, 0.0) == []


@pytest.mark.heavy
def test_objects_of_the_last_turn_are_made_anew_from_the_worktree(repo: Path) -> None:
    settings(repo, grace_s=0.5)
    paused(repo).touch()
    (layout(repo).worktree("a") / "aside").symlink_to("/dev/zero")
    store, task = layout(repo).snapshots, state(repo).tasks["a"]
    blobs = [git(store, "rev-parse", f"{task.attempt.tree}:{name}") for name in ("two.txt", "half.txt")]
    assert empty(store, *blobs) == 2
    (layout(repo).worktree("a") / "half.txt").write_text("changed since\n")
    another_boot(repo)
    [told] = after_boot.set_damaged_aside(layout(repo), repo, time.time())
    assert "1 more" in told and "stored anew" in told
    assert git(store, "cat-file", "blob", blobs[0]) == "2"
    assert (layout(repo).quarantine / "objects-1" / blobs[1]).exists(), "what no worktree has is set aside"
    assert not (layout(repo).quarantine / "objects-1" / blobs[0]).exists()
    (layout(repo).worktree("a") / "half.txt").write_text("")
    assert empty(store, blobs[0]) == 1
    (store / "objects" / blobs[1][:2] / blobs[1][2:]).write_bytes(b"")
    another_boot(repo)
    holdfast(repo, "run")
    assert landed(repo) == ["a"] and state(repo).tasks["a"].attempts == 1
    assert {"one.txt", "two.txt", "half.txt", "three.txt"} <= files_landed(repo)
    sound(repo)


@pytest.mark.heavy
def test_an_agents_own_commit_that_the_power_cut_took_costs_no_attempt(repo: Path) -> None:
    go, committed = repo.parent / "go", repo.parent / "committed"
    own = f"echo y > more.txt && git add -A && git commit -qm own && touch {committed}"
    add(repo, "a", f"write own.txt x\nrun {own}; {shell_wait(go)}\nsay done")
    first = begin(repo)
    wait_for(lambda: committed.exists() and state(repo).tasks["a"].attempt.turn == 1, "the agent's own commit")
    files = layout(repo).attempt_files("a.1")
    runner, running = read_start(files, 1), read_process(files)
    assert runner is not None and running is not None
    # The runner first: it would save what it finds.
    for pid in (first.pid, runner.pid, running.agent.pid):
        os.kill(pid, signal.SIGKILL)
    first.wait()
    wait_for(lambda: not runner.is_alive() and not running.agent.is_alive(), "their end")
    worktree = layout(repo).worktrees / "a"
    base, head = git(repo, "rev-parse", "main"), git(worktree, "rev-parse", "HEAD")
    lost = objects_of(repo, head, base)
    assert head != base and empty(repo, *lost) == len(lost) >= 3, "the objects were not there"
    another_boot(repo)
    go.touch()
    out = holdfast(repo, "run")
    assert landed(repo) == ["a"] and state(repo).tasks["a"].attempts == 1, out
    # The two files are in the worktree still; the commit and its tree are not.
    assert f"{len(lost) - 2} objects" in out and "2 more were stored anew" in out
    assert git(repo, "show", "main:own.txt") == "x"
    assert git(repo, "show", "main:more.txt") == "y"
    sound(repo)
