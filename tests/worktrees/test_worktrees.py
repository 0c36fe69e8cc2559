"""Worktrees of tasks: made whole or made anew, never removed with work in them."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import GitLocked
from holdfast.git import lock_files
from holdfast.git.lock_files import stale_locks
from holdfast.layout import Layout
from holdfast.storage.files import disk
from holdfast.worktrees import merges
from holdfast.worktrees.worktrees import WORKTREE_POINTS, Worktrees
from kit.git import git, repository, with_files
from kit.snapshots import tree_of, user_state
from kit.waiting import shell_wait, wait_for

PROGRAM = """
import sys
from pathlib import Path
from holdfast.worktrees.worktrees import Worktrees
from holdfast.layout import Layout
repo, first, second = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
trees = Worktrees(repo, Layout(repo / ".sdd"))
for commit in (first, second):
    trees.prepare("T-1", first)
    trees.reset("T-1", commit)
    trees.scratch(commit)
assert trees.remove("T-1", landed=second)
"""


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    top = with_files(repository(tmp_path / "repo"), a="1\n", b="2\n")
    (top / ".gitignore").write_text("*.o\n.sdd/\n")
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "second")
    return top


def head(repo: Path, name: str = "HEAD") -> str:
    return git(repo, "rev-parse", name)


def trees_of(repo: Path) -> Worktrees:
    return Worktrees(repo, Layout(repo / ".sdd"))


def run_to_its_death(repo: Path, point: str, count: int, log: Path) -> bool:
    """Runs the program until it is killed at the point; False where it came to its end instead."""
    env = {**os.environ, "HOLDFAST_CRASH_AT": f"{point}:{count}", "HOLDFAST_CRASH_LOG": str(log)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(repo), head(repo, "HEAD~1"), head(repo)],
        env=env, capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode == -signal.SIGKILL:
        assert f"killed {point}\n" in log.read_text()
        return True
    assert done.returncode == 0, done.stderr
    return False


def test_a_worktree_is_made_once_and_kept(repo: Path) -> None:
    before = user_state(repo)
    trees, base = trees_of(repo), head(repo)
    path = trees.prepare("T-1", base)
    assert path == repo / ".sdd" / "worktrees" / "T-1"
    assert head(path) == base and tree_of(path) == {k: v for k, v in tree_of(repo).items() if b".sdd" not in k}
    assert git(path, "rev-parse", "--abbrev-ref", "HEAD") == "HEAD"
    (path / "work").write_text("w")
    assert trees.prepare("T-1", head(repo, "HEAD~1")) == path
    assert (path / "work").read_text() == "w" and head(path) == base
    after = {name: content for name, content in user_state(repo).items() if not name.startswith("worktrees/")}
    assert after == before


def test_work_that_has_not_landed_is_never_removed(repo: Path) -> None:
    trees, base = trees_of(repo), head(repo)
    path = trees.prepare("T-1", base)
    (path / "a").write_text("changed\n")
    assert not trees.remove("T-1", landed=base)
    (path / "a").write_text("1\n")
    (path / "new").write_text("new\n")
    assert not trees.remove("T-1", landed=base)
    assert [tree.task for tree in trees.unneeded(())] == ["T-1"] and trees.unneeded({"T-1"}) == []
    (path / "new").unlink()
    (path / "b").unlink()
    assert not trees.remove("T-1", landed=base)
    git(path, "checkout", "b")
    (path / "x.o").write_text("ignored")
    assert trees.remove("T-1", landed=base)
    assert not path.exists() and trees.unneeded(()) == []
    assert git(repo, "worktree", "list").count("\n") == 0
    assert trees.remove("T-1", landed=base)


def test_a_nested_repository_keeps_its_worktree(repo: Path) -> None:
    trees, base = trees_of(repo), head(repo)
    path = trees.prepare("T-1", base)
    with_files(repository(path / "nested"), inner="i")
    assert not trees.remove("T-1", landed=base)
    trees.reset("T-1", base)
    assert (path / "nested" / "inner").read_text() == "i"


def test_reset_gives_the_tree_and_keeps_what_is_ignored(repo: Path) -> None:
    trees, base = trees_of(repo), head(repo)
    path = trees.prepare("T-1", base)
    (path / "a").write_text("changed\n")
    (path / "folder").mkdir()
    (path / "folder" / "new").write_text("new\n")
    (path / "x.o").write_text("ignored")
    saved = trees.snapshots("T-1", head(repo)).take("T-1.1", "turn-1")
    (path / "later").write_text("later")
    trees.reset("T-1", head(repo, "HEAD~1"), saved.commit)
    assert head(path) == head(repo, "HEAD~1")
    assert (path / "a").read_text() == "changed\n" and (path / "folder" / "new").exists()
    assert not (path / "later").exists() and (path / "x.o").exists()
    assert trees.snapshots("T-1", head(repo)).take("T-1.1", "turn-2").tree == saved.tree
    trees.reset("T-1", base)
    assert git(path, "status", "--porcelain") == "" and head(path) == base


def test_scratch_is_exactly_the_commit(repo: Path) -> None:
    trees = trees_of(repo)
    path = trees.scratch(head(repo))
    (path / "x.o").write_text("ignored")
    (path / "a").write_text("changed")
    (path / "folder").mkdir()
    with_files(repository(path / "folder" / "nested"), inner="i")
    assert trees.scratch(head(repo, "HEAD~1")) == path
    assert tree_of(path) == {b"a": ("file", b"1\n"), b"b": ("file", b"2\n")}
    assert not (path / "folder").exists() and head(path) == head(repo, "HEAD~1")


def test_a_scratch_that_git_cannot_tidy_is_made_anew(repo: Path) -> None:
    trees = trees_of(repo)
    path = trees.scratch(head(repo))
    (path / ".git").write_text("gitdir: /nowhere\n")
    trees.scratch(head(repo))
    assert head(path) == head(repo) and git(path, "status", "--porcelain", "--ignored") == ""


def test_the_scratch_of_an_earlier_boot_is_made_anew(repo: Path) -> None:
    trees = trees_of(repo)
    path = trees.scratch(head(repo))
    (path.parent / ".made" / ".scratch").write_text("another boot\n")
    stamp = (path / "a").stat()
    # As a power cut may leave it: other content, and nothing by which git could tell.
    (path / "a").write_text("9\n")
    os.utime(path / "a", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    trees.scratch(head(repo))
    assert (path / "a").read_text() == "1\n"


@pytest.mark.heavy
@pytest.mark.parametrize("point", WORKTREE_POINTS)
def test_killed_at_every_point_it_goes_on(repo: Path, tmp_path: Path, point: str) -> None:
    log = tmp_path / "log"
    assert run_to_its_death(repo, point, 1, log)
    # And once more, where the point is reached again on the way.
    run_to_its_death(repo, point, 1, log)
    subprocess.run([sys.executable, "-c", PROGRAM, str(repo), head(repo, "HEAD~1"), head(repo)], check=True)
    trees = trees_of(repo)
    assert trees.unneeded(()) == [] and not trees.path("T-1").exists()
    assert len(git(repo, "worktree", "list").splitlines()) == 2
    assert not list((repo / ".sdd" / "worktrees").glob(".gone-*"))
    assert not (repo / ".sdd" / "quarantine").exists()


@pytest.mark.parametrize("point", ["worktree.drop.before", "worktree.drop.after"])
def test_a_removal_that_was_killed_is_ended_by_the_next(repo: Path, tmp_path: Path, point: str) -> None:
    """Nothing makes the worktree of a landed task again, so a removal that was killed has only the next one."""
    log = tmp_path / "log"
    subprocess.run(
        [sys.executable, "-c", PROGRAM, str(repo), head(repo, "HEAD~1"), head(repo)],
        env={**os.environ, "HOLDFAST_CRASH_LOG": str(log)}, check=True,
    )  # fmt: skip
    drops = log.read_text().splitlines().count(point)
    shutil.rmtree(repo / ".sdd")
    git(repo, "worktree", "prune")
    assert run_to_its_death(repo, point, drops, log), "the removal did not come to the point"
    trees = trees_of(repo)
    assert trees.remove("T-1", landed=head(repo))
    assert not trees.path("T-1").exists() and not list((repo / ".sdd" / "worktrees").glob(".gone-*"))


def test_a_git_that_outlived_its_orchestrator_is_awaited(repo: Path, tmp_path: Path) -> None:
    slow = f"echo > {tmp_path}/begun; {shell_wait(tmp_path / 'go')}; cat"
    git(repo, "config", "filter.slow.smudge", slow)
    (repo / ".gitattributes").write_text("a filter=slow\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "slow to check out")
    program = [sys.executable, "-c", PROGRAM, str(repo), head(repo), head(repo)]
    with subprocess.Popen(program, stderr=subprocess.DEVNULL) as process:
        wait_for((tmp_path / "begun").exists, "the checkout")
        process.kill()
    with (repo / ".sdd" / "worktrees" / ".lock").open() as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    (tmp_path / "go").touch()
    path = trees_of(repo).prepare("T-1", head(repo))
    assert git(path, "status", "--porcelain") == "" and len(git(repo, "worktree", "list").splitlines()) == 2


def half(repo: Path, path: Path) -> None:
    """Git died in the middle of the checkout: registered, locked, some files, no index."""
    git(repo, "worktree", "add", "--detach", "--no-checkout", str(path), "HEAD")
    (repo / ".git" / "worktrees" / "T-1" / "locked").write_text("initializing")
    (path / "a").write_text("")


def without_git_file(repo: Path, path: Path) -> None:
    """Git died before it had written the worktree's own `.git`."""
    half(repo, path)
    (path / ".git").unlink()
    (path / "a").unlink()


def only_registered(repo: Path, path: Path) -> None:
    without_git_file(repo, path)
    path.rmdir()


@pytest.mark.parametrize("break_it", [half, without_git_file, only_registered])
def test_a_half_made_worktree_is_made_anew(repo: Path, break_it: Callable[[Path, Path], None]) -> None:
    path = repo / ".sdd" / "worktrees" / "T-1"
    path.parent.mkdir(parents=True)
    break_it(repo, path)
    trees = trees_of(repo)
    trees.prepare("T-1", head(repo))
    assert (path / "a").read_text() == "1\n" and git(path, "status", "--porcelain") == ""
    assert len(git(repo, "worktree", "list").splitlines()) == 2


def test_unknown_files_go_to_the_quarantine(repo: Path) -> None:
    path = repo / ".sdd" / "worktrees" / "T-1"
    path.mkdir(parents=True)
    (path / "mine").write_text("somebody's")
    trees_of(repo).prepare("T-1", head(repo))
    assert head(path) == head(repo)
    [kept] = (repo / ".sdd" / "quarantine").iterdir()
    assert (kept / "mine").read_text() == "somebody's"


def test_a_worktree_that_git_has_forgotten_keeps_its_work(repo: Path) -> None:
    trees = trees_of(repo)
    path = trees.prepare("T-1", head(repo))
    (path / "work").write_text("w")
    aside = path.with_name("aside")
    path.rename(aside)
    git(repo, "worktree", "prune", "--expire=now")
    assert not (repo / ".git" / "worktrees" / "T-1").exists()
    aside.rename(path)
    trees.prepare("T-1", head(repo))
    assert (path / "work").read_text() == "w"
    assert git(path, "status", "--porcelain") == "?? work" and head(path) == head(repo)
    assert not list(path.parent.glob(".gone-*"))
    assert not trees.remove("T-1", landed=head(repo))


@pytest.mark.parametrize("torn", ["index", "HEAD"])
def test_files_of_the_git_dir_that_a_power_cut_tore_are_mended(repo: Path, torn: str) -> None:
    trees = trees_of(repo)
    path = trees.prepare("T-1", head(repo))
    (path / "work").write_text("w")
    (Path(git(path, "rev-parse", "--absolute-git-dir")) / torn).write_bytes(b"\0\0\0\0")
    trees.prepare("T-1", head(repo))
    assert git(path, "status", "--porcelain") == "?? work" and head(path) == head(repo)
    assert len(git(repo, "worktree", "list").splitlines()) == 2


def test_the_gates_worktree_is_never_sparse(repo: Path) -> None:
    (repo / "folder").mkdir()
    (repo / "folder" / "f").write_text("f")
    git(repo, "add", "-A", "folder")
    git(repo, "commit", "-q", "-m", "folder")
    git(repo, "sparse-checkout", "set", "--cone", "elsewhere")
    assert not (repo / "folder").exists()
    path = trees_of(repo).scratch(head(repo))
    assert (path / "folder" / "f").read_text() == "f"
    (path / "folder" / "f").unlink()
    trees_of(repo).scratch(head(repo))
    assert (path / "folder" / "f").read_text() == "f"


def test_a_worktree_that_the_user_deleted_is_made_again(repo: Path) -> None:
    trees = trees_of(repo)
    path = trees.prepare("T-1", head(repo))
    disk.remove_tree(path)
    git(repo, "worktree", "prune", "--expire=now")
    trees.prepare("T-1", head(repo))
    assert git(path, "status", "--porcelain") == ""


def test_a_moved_repository_keeps_its_worktrees(repo: Path) -> None:
    path = trees_of(repo).prepare("T-1", head(repo))
    (path / "work").write_text("w")
    there = repo.rename(repo.with_name("elsewhere"))
    trees = trees_of(there)
    path = trees.prepare("T-1", head(there))
    assert (path / "work").read_text() == "w" and git(path, "status", "--porcelain") == "?? work"


def test_locks_of_the_dead_are_removed_in_the_worktrees_own_git_dir_only(repo: Path) -> None:
    trees = trees_of(repo)
    path = trees.prepare("T-1", head(repo))
    own = Path(git(path, "rev-parse", "--absolute-git-dir"))
    for name in ("index.lock", "HEAD.lock"):
        (own / name).touch()
    common = repo / ".git" / "packed-refs.lock"
    common.touch()
    trees.prepare("T-1", head(repo))
    assert not list(own.glob("*.lock")) and common.exists()


def test_a_lock_of_the_living_is_not_taken_from_a_worktree(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_files, "WAIT_S_MAX", 0.0)
    trees = trees_of(repo)
    path = trees.prepare("T-1", head(repo))
    lock = Path(git(path, "rev-parse", "--absolute-git-dir")) / "index.lock"
    holding = subprocess.Popen(
        ["sh", "-c", f'exec 3> "{lock}"; echo held; read answer'], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holding.stdout is not None and holding.stdout.readline() == b"held\n"
    try:
        for change in (lambda: trees.reset("T-1", head(repo)), lambda: trees.prepare("T-1", head(repo))):
            with pytest.raises(GitLocked, match=str(holding.pid)):
                change()
            assert lock.exists()
    finally:
        holding.communicate(b"\n")
    trees.reset("T-1", head(repo))
    assert not lock.exists()


def test_a_look_that_was_killed_keeps_no_worktree(repo: Path) -> None:
    trees = trees_of(repo)
    path = trees.prepare("T-1", head(repo))
    (Path(git(path, "rev-parse", "--absolute-git-dir")) / "holdfast-index.lock").touch()
    assert trees.remove("T-1", landed=head(repo)) and not path.exists()


def test_stale_locks_are_old_and_in_nobodys_hands(repo: Path) -> None:
    old, held, young = (repo / ".git" / name for name in ("packed-refs.lock", "config.lock", "refs/heads/x.lock"))
    for lock in (old, held, young):
        lock.touch()
    for lock in (old, held):
        os.utime(lock, (1, 1))
    with subprocess.Popen(["sleep", "60"], stdin=held.open()) as holder:
        try:
            assert stale_locks(repo) == [old]
        finally:
            holder.kill()
    assert stale_locks(repo) == [old, held]


def test_user_worktrees_are_never_touched(repo: Path, tmp_path: Path) -> None:
    git(repo, "worktree", "add", "--detach", str(tmp_path / "T-1"), "HEAD")
    gone = tmp_path / "T-2"
    git(repo, "worktree", "add", "--detach", str(gone), "HEAD")
    disk.remove_tree(gone)
    trees = trees_of(repo)
    for task in ("T-1", "T-2"):
        trees.prepare(task, head(repo))
        assert trees.remove(task, landed=head(repo))
    assert head(tmp_path / "T-1") == head(repo)
    assert (repo / ".git" / "worktrees" / "T-2").exists()


def test_the_data_root_may_stand_anywhere(repo: Path, tmp_path: Path) -> None:
    assert Worktrees(repo, Layout(repo / "state" / "x")).exclude[0] == "state/x"
    trees = Worktrees(repo, Layout(tmp_path / "elsewhere"))
    assert str(tmp_path) not in str(trees.exclude)
    path = trees.prepare("T-1", head(repo))
    (path / "new").write_text("n")
    (path / ".aider.tags.cache.v4").mkdir()
    (path / ".aider.tags.cache.v4" / "cache.db").write_text("of a tool")
    saved = trees.snapshots("T-1", head(repo)).take("T-1.1", "end-1")
    made = merges.candidate(
        trees.store, head(repo), saved.commit, "m", merges.GitAuthor("a", "b"), exclude=trees.exclude
    )
    assert made and "aider" not in git(tmp_path / "elsewhere" / "snapshots.git", "ls-tree", "-r", "--name-only", made)
    assert trees.remove("T-1", landed=made)
