"""What a worktree can do to a snapshot: several at once, rules that change, submodules, sparse files, lost objects."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from holdfast import errors
from holdfast.snapshots import snapshots as snapshot
from holdfast.snapshots.snapshots import WorktreeSnapshots, reference
from holdfast.storage.files import disk
from kit.git import git, plain, repository, with_files
from kit.snapshots import snapshots_at, store_of, tree_of, user_state

pytestmark = pytest.mark.repo(make=plain(a="alpha\n", b="beta\n"))


def held(repo: Path, ref: str) -> set[str]:
    return set(git(store_of(repo), "ls-tree", "-r", "--name-only", ref).splitlines())


def lose(repo: Path, name: str) -> None:
    folder = repo / ".git" if name.startswith("HEAD:") else store_of(repo)
    found = git(folder, "rev-parse", name)
    (folder / "objects" / found[:2] / found[2:]).unlink()


# -- several at once --------------------------------------------------------------------------------------------------


def test_threads_that_share_one_wait_for_each_other(repo: Path, snapshots: WorktreeSnapshots) -> None:
    failures: list[BaseException] = []
    first = snapshots.take("t.0", "turn-1")

    def work(number: int) -> None:
        try:
            for turn in range(4):
                (repo / f"file-{number}-{turn}").write_text("x")
                taken = snapshots.take(f"t.{number}", f"turn-{turn}")
                assert f"file-{number}-{turn}" in held(repo, taken.ref)
                assert snapshots.changed(first.ref, taken.ref)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    open_now = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    assert not [path for path in open_now if path.endswith("private/lock")]
    assert snapshots.take("t.9", "turn-1").changed


def test_the_parent_is_the_snapshot_before_whatever_the_clock_says(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_700_000_000
    for number, name in enumerate(["turn-1", "turn-2", "orphan-1", "turn-3"]):
        monkeypatch.setattr(snapshot, "wall", lambda at=now - 1000 * number: at)
        (repo / "a").write_text("x" * number)
        snapshots_at(repo, tmp_path / "private").take("t.1", name)
    line = git(store_of(repo), "log", "--format=%s", reference("t.1", "turn-3")).splitlines()
    assert line == ["t.1 turn-3", "t.1 orphan-1", "t.1 turn-2", "t.1 turn-1"]


def test_two_of_one_worktree_continue_each_other(repo: Path, tmp_path: Path) -> None:
    one, two = (snapshots_at(repo, tmp_path / "private") for _ in range(2))
    for number, which in enumerate([one, two, one, one, two, two, one], 1):
        (repo / "a").write_text("x" * number)
        which.take("t.1", f"turn-{number}")
    line = git(store_of(repo), "log", "--format=%s", reference("t.1", "turn-7")).splitlines()
    assert line == [f"t.1 turn-{number}" for number in range(7, 0, -1)]


# -- rules that change ------------------------------------------------------------------------------------------------


def test_a_path_excluded_later_leaves_the_snapshots_and_is_never_written(repo: Path, tmp_path: Path) -> None:
    (repo / "data").mkdir()
    (repo / "data" / "state").write_text("old")
    first = snapshots_at(repo, tmp_path / "private").take("t.1", "turn-1")
    assert "data/state" in held(repo, first.ref)
    snapshots = snapshots_at(repo, tmp_path / "private", exclude=["data"])
    assert held(repo, snapshots.take("t.1", "turn-2").ref) == {"a", "b"}
    (repo / "data" / "state").write_text("live")
    (repo / "data" / "new").write_text("live too")
    (repo / "a").write_text("changed")
    left = snapshots.restore(first.ref)
    assert [(each.path, "excluded" in each.reason) for each in left] == [("data/state", True)]
    assert (repo / "data" / "state").read_text() == "live" and (repo / "data" / "new").exists()
    assert (repo / "a").read_text() == "alpha\n"


def test_a_file_that_stands_where_an_excluded_folder_is_now_is_not_put_back(repo: Path, tmp_path: Path) -> None:
    (repo / "top").write_text("a file then")
    first = snapshots_at(repo, tmp_path / "private").take("t.1", "turn-1")
    (repo / "top").unlink()
    (repo / "top" / "data").mkdir(parents=True)
    (repo / "top" / "data" / "state").write_text("live")
    snapshots = snapshots_at(repo, tmp_path / "private", exclude=["top/data"])
    assert [left.path for left in snapshots.restore(first.ref)] == ["top"]
    assert (repo / "top" / "data" / "state").read_text() == "live"


def test_a_file_that_is_ignored_by_now_is_held_no_longer(repo: Path, snapshots: WorktreeSnapshots) -> None:
    (repo / ".env").write_text("SECRET=1")
    (repo / "own.log").write_text("tracked by the user")
    git(repo, "add", "own.log")
    assert ".env" in held(repo, snapshots.take("t.1", "turn-1").ref)
    (repo / ".gitignore").write_text(".env\n*.log\n")
    (repo / ".env").write_text("SECRET=2")
    taken = snapshots.take("t.1", "turn-2")
    assert held(repo, taken.ref) == {"a", "b", ".gitignore", "own.log"}
    (repo / "own.log").write_text("changed")
    taken = snapshots.take("t.1", "turn-3")
    assert git(store_of(repo), "cat-file", "blob", f"{taken.ref}:own.log") == "changed"
    assert not any(git(store_of(repo), "cat-file", "blob", name) == "SECRET=2" for name in blobs(repo)), "not even read"
    (repo / ".git" / "info" / "exclude").write_text("b\n")
    git(repo, "rm", "-q", "-f", "--cached", "own.log", "b")
    assert held(repo, snapshots.take("t.1", "turn-4").ref) == {"a", ".gitignore"}
    snapshots.restore(taken.ref)
    assert (repo / ".env").read_text() == "SECRET=2", "ignored files stay"


def blobs(repo: Path) -> list[str]:
    everything = git(store_of(repo), "cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)")
    return [line.split()[1] for line in everything.splitlines() if line.startswith("blob")]


def test_a_tracked_ignored_file_that_comes_back_is_taken(repo: Path, snapshots: WorktreeSnapshots) -> None:
    (repo / ".gitignore").write_text("*.log\n")
    (repo / "x.log").write_text("1")
    git(repo, "add", "-f", "x.log")
    snapshots.take("t.1", "turn-1")
    (repo / "x.log").unlink()
    assert "x.log" not in held(repo, snapshots.take("t.1", "turn-2").ref)
    (repo / "x.log").write_text("2")
    assert "x.log" in held(repo, snapshots.take("t.1", "turn-3").ref)


# -- submodules and sparse checkouts ----------------------------------------------------------------------------------


def with_submodule(repo: Path, tmp_path: Path) -> Path:
    library = with_files(repository(tmp_path / "library"), code="1")
    git(repo, "submodule", "--quiet", "add", str(library), "lib")
    git(repo, "commit", "-q", "-m", "submodule")
    return repo


def test_plain_files_in_the_folder_of_a_submodule_are_held(repo: Path, tmp_path: Path) -> None:
    with_submodule(repo, tmp_path)
    snapshots = snapshots_at(repo, tmp_path / "private")
    linked = snapshots.take("t.1", "turn-1")
    shutil.rmtree(repo / "lib")
    (repo / "lib" / "deep").mkdir(parents=True)
    (repo / "lib" / "deep" / "vendored").write_text("precious")
    for again in (snapshots, snapshots_at(repo, tmp_path / "fresh")):
        taken = again.take("t.1", "turn-2")
        assert "lib/deep/vendored" in held(repo, taken.ref) and taken.excluded == []
    snapshots.restore(linked.ref)
    assert list((repo / "lib").iterdir()) == []
    snapshots.restore(taken.ref)
    assert (repo / "lib" / "deep" / "vendored").read_text() == "precious"


def test_files_in_a_submodule_that_a_linked_worktree_never_initialised(repo: Path, tmp_path: Path) -> None:
    with_submodule(repo, tmp_path)
    git(repo, "worktree", "add", "-q", str(tmp_path / "linked"))
    linked = tmp_path / "linked"
    snapshots = snapshots_at(linked, tmp_path / "private")
    assert [left.path for left in snapshots.take("t.1", "turn-1").excluded] == ["lib"]
    (linked / "lib" / "new").write_text("precious")
    taken = snapshots.take("t.1", "turn-2")
    assert taken.changed and "lib/new" in held(linked, taken.ref)


def test_no_git_runs_inside_a_nested_repository(repo: Path, snapshots: WorktreeSnapshots, tmp_path: Path) -> None:
    """Its configuration is an agent's, and may name programs to run."""
    mark = tmp_path / "mark"
    nested = with_files(repository(repo / "nested"), f="1\n")
    git(nested, "config", "filter.x.clean", f"touch {mark}; cat")
    (nested / ".gitattributes").write_text("* filter=x\n")
    first = snapshots.take("t.1", "turn-1")
    (nested / "f").write_text("2\n")
    (repo / "a").write_text("2\n")
    taken = snapshots.take("t.1", "turn-2")
    assert taken.changed and [left.path for left in taken.excluded] == ["nested"] and not mark.exists()
    snapshots.restore(first.ref)
    assert not mark.exists() and (nested / "f").exists() and (repo / "a").read_text() == "alpha\n"


def sparse(repo: Path) -> Path:
    for folder in ("in", "out"):
        (repo / folder).mkdir()
        (repo / folder / "file").write_text(folder)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "folders")
    git(repo, "sparse-checkout", "set", "in")
    assert not (repo / "out").exists()
    return repo


def test_files_outside_a_sparse_checkout_are_not_deleted(repo: Path, tmp_path: Path) -> None:
    sparse(repo)
    before = user_state(repo)
    snapshots = snapshots_at(repo, tmp_path / "private")
    first = snapshots.take("t.1", "turn-1")
    assert first.tree == git(repo, "rev-parse", "HEAD^{tree}") and first.excluded == []
    (repo / "in" / "file").write_text("changed")
    second = snapshots.take("t.1", "turn-2")
    assert snapshots.changed(first.ref, second.ref) == ["in/file"]
    assert not snapshots.take("t.1", "turn-3").changed
    snapshots.restore(first.ref)
    assert (repo / "in" / "file").read_text() == "in" and not (repo / "out").exists()
    (repo / "out").mkdir()
    (repo / "out" / "file").write_text("written by the agent")
    third = snapshots.take("t.1", "turn-4")
    assert git(store_of(repo), "cat-file", "blob", f"{third.ref}:out/file") == "written by the agent"
    assert user_state(repo) == before
    for again in (snapshots, snapshots, snapshots_at(repo, tmp_path / "fresh")):
        again.restore(third.ref)
        assert (repo / "out" / "file").read_text() == "written by the agent"
        shutil.rmtree(repo / "out")
    assert snapshots.take("t.1", "turn-5").tree == first.tree


def test_sparse_files_follow_the_users_index(repo: Path, tmp_path: Path) -> None:
    sparse(repo)
    snapshots = snapshots_at(repo, tmp_path / "private")
    first = snapshots.take("t.1", "turn-1")
    git(repo, "sparse-checkout", "disable")
    (repo / "out" / "file").write_text("next")
    git(repo, "commit", "-q", "-a", "-m", "next")
    git(repo, "sparse-checkout", "set", "in")
    second = snapshots.take("t.1", "turn-2")
    assert second.tree == git(repo, "rev-parse", "HEAD^{tree}") != first.tree
    snapshots.restore(second.ref)
    assert not (repo / "out").exists()
    git(repo, "sparse-checkout", "disable")
    snapshots.restore(first.ref)
    assert (repo / "out" / "file").read_text() == "out"
    git(repo, "rm", "-q", "-f", "out/file")
    assert "out/file" not in held(repo, snapshots.take("t.1", "turn-3").ref)


def test_sparse_files_that_a_partial_clone_never_fetched_are_said(repo: Path, tmp_path: Path) -> None:
    sparse(repo)
    lose(repo, "HEAD:out/file")
    taken = snapshots_at(repo, tmp_path / "private").take("t.1", "turn-1")
    assert [(left.path, "sparse" in left.reason) for left in taken.excluded] == [("out/file", True)]
    assert held(repo, taken.ref) == {"a", "b", "in/file"}


# -- lost objects and leftovers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["deep/file", "deep"])
def test_a_snapshot_with_a_lost_object_is_refused_before_anything_is_changed(
    repo: Path, tmp_path: Path, snapshots: WorktreeSnapshots, lost: str
) -> None:
    (repo / "deep").mkdir()
    (repo / "deep" / "file").write_text("lost")
    taken = snapshots.take("t.1", "turn-1")
    lose(repo, f"{taken.ref}:{lost}")
    (repo / "deep" / "file").write_text("changed")
    (repo / "a").write_text("changed")
    (repo / "new").write_text("new")
    before = tree_of(repo)
    for act in (lambda: snapshots.restore(taken.ref), lambda: snapshots.export(taken.ref, tmp_path / "x" / "out")):
        with pytest.raises(errors.SnapshotDamaged, match="Nothing was changed"):
            act()
    assert tree_of(repo) == before and not (tmp_path / "x").exists()


def test_an_export_that_fails_leaves_nothing(repo: Path, tmp_path: Path, snapshots: WorktreeSnapshots) -> None:
    (repo / "link").symlink_to(tmp_path)
    taken = snapshots.take("t.1", "turn-1")
    blob = git(store_of(repo), "rev-parse", f"{taken.ref}:a")
    path = store_of(repo) / "objects" / blob[:2] / blob[2:]
    path.chmod(0o644)
    path.write_bytes(b"damaged, not missing")
    with pytest.raises(errors.SnapshotDamaged):
        snapshots.export(taken.ref, tmp_path / "x" / "out")
    assert not (tmp_path / "x").exists()


def test_the_folder_of_a_killed_export_is_removed_by_the_next(tmp_path: Path, snapshots: WorktreeSnapshots) -> None:
    taken = snapshots.take("t.1", "turn-1")
    dead, alive = tmp_path / "x" / ".hf-999999-1-deadbeef-0.tmp", tmp_path / "x" / disk.temp_name()
    for folder in (dead / "deep", alive, tmp_path / "outside"):
        folder.mkdir(parents=True)
        (folder / "file").write_text("")
    (dead / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "x" / ".hf-999999-1-deadbeef-1.tmp").symlink_to(tmp_path / "outside")
    snapshots.export(taken.ref, tmp_path / "x" / "out")
    assert not dead.exists() and (alive / "file").exists() and (tmp_path / "outside" / "file").exists()


# -- names ------------------------------------------------------------------------------------------------------------


def test_records_with_any_name_can_be_written_as_json(repo: Path, tmp_path: Path, snapshots: WorktreeSnapshots) -> None:
    first = snapshots.take("t.1", "turn-1")
    (repo / os.fsdecode(b"f\xff")).write_text("x")
    repository(repo / os.fsdecode(b"n\xff"))
    taken = snapshots.take("t.1", "turn-2")
    changed = snapshots.changed(first.ref, taken.ref)
    assert changed == ["f\\xff", "n\\xff"]
    assert [left.path for left in taken.excluded] == ["n\\xff"]
    left = snapshots.restore(first.ref)
    assert [each.path for each in left] == ["n\\xff"]
    assert msgspec.json.encode([changed, taken, left])


@pytest.mark.parametrize("name", [b"with\nnewline", b"no\xffutf8", b"trailing\n"])
def test_a_worktree_may_have_any_name(tmp_path: Path, name: bytes) -> None:
    repo = with_files(repository(tmp_path / os.fsdecode(name)), a="1")
    snapshots = snapshots_at(repo, tmp_path / "private")
    taken = snapshots.take("t.1", "turn-1")
    (repo / "a").write_text("2")
    snapshots.restore(taken.ref)
    assert (repo / "a").read_text() == "1"


def test_folders_that_cannot_be_opened_are_named_as_left_out(repo: Path, tmp_path: Path) -> None:
    """Their tracked files are kept as they were; of what is new in them, git only warns."""
    script = (
        "import sys; from pathlib import Path\n"
        "from holdfast.snapshots.snapshots import WorktreeSnapshots as Snapshots\n"
        "places = (Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[2] + '.git'))\n"
        "taken = Snapshots(*places).take('a.1', 'turn-1')\n"
        "print([left.path for left in taken.excluded])"
    )
    folders = {"it's new": 0o000, "blind": 0o311, "in/it": 0o000}
    (repo / ".gitignore").write_text("/out\n")
    for name in [*folders, "out"]:
        (repo / name).mkdir(parents=True)
        (repo / name / "work").write_text("an agent's")
    for name, mode in [*folders.items(), ("out", 0)]:
        (repo / name).chmod(mode)
    # For a superuser, what cannot be opened must be made so by taking its privileges away.
    plain = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    try:
        command = [*plain, sys.executable, "-c", script, str(repo), str(tmp_path / "private")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        for name in [*folders, "out"]:
            (repo / name).chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert ast.literal_eval(done.stdout) == ["blind", "in/it", "it's new"]
