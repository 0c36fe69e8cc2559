from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import errors
from holdfast.snapshots.snapshots import WorktreeSnapshots, reference
from kit.disks import examples, scratch
from kit.git import git, plain, repository, with_files
from kit.snapshots import Tree, forget, make, snapshots_at, store_of, tree_of, user_state

pytestmark = pytest.mark.repo(make=plain(a="alpha\n", b="beta\n"))

NAMES = st.sampled_from(
    [b"a", b"b", b"-dash", b" space ", b"new\nline", "ünï".encode(), b"\xff\xfe", b'"q"', b"git~1", b"*?["]
)
CONTENTS = st.sampled_from([b"", b"x", b"x\r\ny\r\n", b"\0" * 100, b"$Id$", b"long " * 500]) | st.binary(max_size=20)
NODES = st.tuples(st.sampled_from(["file", "program"]), CONTENTS) | st.tuples(
    st.just("link"), st.sampled_from([b"nowhere", b"../../outside", b"/etc/passwd", b"a"])
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(b"/".join)


def without_conflicts(tree: Tree) -> Tree:
    return {path: node for path, node in tree.items() if not any(path.startswith(other + b"/") for other in tree)}


@pytest.mark.heavy
@settings(max_examples=examples(8), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.dictionaries(PATHS, NODES, max_size=6).map(without_conflicts), min_size=2, max_size=4), st.randoms())
def test_any_series_of_trees_is_saved_restored_and_exported_exactly(trees: list[Tree], chance: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        repo = repository(Path(folder) / "repo")
        snapshots = snapshots_at(repo, Path(folder) / "private")
        taken = []
        for number, tree in enumerate(trees):
            make(repo, tree)
            taken.append(snapshots.take("t.1", f"turn-{number}"))
        order = list(range(len(trees)))
        chance.shuffle(order)
        for number in order:
            if chance.random() < 0.5:
                snapshots = snapshots_at(repo, Path(folder) / "private")
            assert snapshots.restore(taken[number].ref) == []
            assert tree_of(repo) == trees[number]
            assert snapshots.take("t.1", "orphan-1").tree == taken[number].tree
            snapshots.export(taken[number].commit, Path(folder) / f"out-{number}")
            assert tree_of(Path(folder) / f"out-{number}") == trees[number]
        git(store_of(repo), "fsck")


def test_the_users_index_head_hooks_and_configuration_are_never_touched(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = f"#!/bin/sh\necho $0 >> {tmp_path}/ran\n"
    for hook in ("reference-transaction", "post-index-change", "post-checkout", "pre-commit", "fsmonitor-watchman"):
        path = repo / ".git" / "hooks" / hook
        path.write_text(trap)
        path.chmod(0o755)
    for key, value in {"core.fsmonitor": ".git/hooks/fsmonitor-watchman", "core.logAllRefUpdates": "always"}.items():
        git(repo, "config", key, value)
    (repo / "staged").write_text("staged")
    subprocess.run(
        ["git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "add", "staged"], cwd=repo, check=True
    )
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_OBJECT_DIRECTORY", "GIT_EXTERNAL_DIFF"):
        monkeypatch.setenv(name, "/nonexistent")
    before = user_state(repo)
    snapshots = snapshots_at(repo, tmp_path / "private")
    first = snapshots.take("t.1", "turn-1")
    (repo / "a").write_text("changed")
    second = snapshots.take("t.1", "turn-2")
    assert snapshots.changed(first.ref, second.ref) == ["a"]
    snapshots.restore(first.ref)
    snapshots.export(first.ref, tmp_path / "out")
    forget(repo, "t.1")
    assert user_state(repo) == before
    assert not (tmp_path / "ran").exists()


def test_stored_bytes_are_the_bytes_on_disk_whatever_attributes_say(repo: Path, tmp_path: Path) -> None:
    everything = "* text=auto eol=crlf ident working-tree-encoding=UTF-16 export-subst"
    (repo / ".gitattributes").write_text(f"{everything}\n*.bin filter=lfs -diff\nb export-ignore\n")
    for key in ("filter.lfs.clean", "filter.lfs.smudge"):
        git(repo, "config", key, "tr a-z A-Z")
    git(repo, "config", "filter.lfs.required", "true")
    git(repo, "config", "core.autocrlf", "true")
    (repo / "a").write_bytes(b"one\r\ntwo\n$Id$ $Format:%H$\n")
    (repo / "c.bin").write_bytes(b"lower\n")
    snapshots = snapshots_at(repo, tmp_path / "private")
    taken, before = snapshots.take("t.1", "turn-1"), tree_of(repo)
    assert git(store_of(repo), "cat-file", "blob", f"{taken.ref}:c.bin") == "lower"
    make(repo, {b"other": ("file", b"")})
    snapshots.restore(taken.ref)
    snapshots.export(taken.ref, tmp_path / "out")
    assert tree_of(repo) == tree_of(tmp_path / "out") == before


def test_ignored_files_stay_out_and_survive_a_restore(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "mine").mkdir(parents=True)
    (home / ".gitconfig").write_text("[core]\n\texcludesFile = ~/mine/ignore\n")
    (home / "mine" / "ignore").write_text("*.user\n")
    monkeypatch.setenv("HOME", str(home))
    (repo / ".gitignore").write_text("*.log\nout/\n")
    (repo / "deep").mkdir()
    (repo / "deep" / ".gitignore").write_text("!keep.log\nlocal\n")
    (repo / ".git" / "info" / "exclude").write_text("*.repo\n")
    (repo / "out").mkdir()
    ignored = ["x.log", "out/x", "deep/y.log", "deep/local", "x.user", "x.repo"]
    for name in [*ignored, "deep/keep.log"]:
        (repo / name).write_text(name)
    snapshots = snapshots_at(repo, tmp_path / "private")
    taken = snapshots.take("t.1", "turn-1")
    held = set(git(store_of(repo), "ls-tree", "-r", "--name-only", taken.ref).splitlines())
    assert held == {".gitignore", "a", "b", "deep/.gitignore", "deep/keep.log"}
    (repo / "a").unlink()
    snapshots.restore(taken.ref)
    assert [name for name in ignored if not (repo / name).exists()] == []
    (repo / ".git" / "info" / "exclude").write_text("")
    assert snapshots.changed(taken.ref, snapshots.take("t.1", "turn-2").ref) == ["x.repo"]


def test_a_tracked_file_is_held_though_ignored(repo: Path, tmp_path: Path) -> None:
    (repo / ".gitignore").write_text("*.log\n")
    (repo / "old.log").write_text("old")
    git(repo, "add", "-f", "old.log")
    snapshots = snapshots_at(repo, tmp_path / "private")
    assert "old.log" in git(store_of(repo), "ls-tree", "--name-only", snapshots.take("t.1", "turn-1").ref)
    (repo / "new.log").write_text("new")
    (repo / "not.log").write_text("not")
    git(repo, "add", "-f", "new.log")
    (repo / "old.log").write_text("newer")
    taken = snapshots.take("t.1", "turn-2")
    assert snapshots.changed(reference("t.1", "turn-1"), taken.ref) == ["new.log", "old.log"]


def test_the_data_root_never_gets_in_even_when_tracked(repo: Path) -> None:
    (repo / ".sdd").mkdir()
    (repo / ".sdd" / "task").write_text("one")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "tracked data root")
    snapshots = snapshots_at(repo, repo / "private", exclude=[".sdd"])
    taken = snapshots.take("t.1", "turn-1")
    assert git(store_of(repo), "ls-tree", "--name-only", taken.ref).splitlines() == ["a", "b"]
    (repo / ".sdd" / "task").write_text("two")
    (repo / "a").write_text("changed")
    snapshots.restore(taken.ref)
    assert (repo / ".sdd" / "task").read_text() == "two"
    assert (repo / "a").read_text() == "alpha\n"


def test_submodules_and_nested_repositories_are_noted_by_commit_and_said(repo: Path, tmp_path: Path) -> None:
    library = with_files(repository(tmp_path / "library"), code="1")
    git(repo, "submodule", "--quiet", "add", str(library), "lib")
    git(repo, "submodule", "--quiet", "add", str(library), "absent")
    git(repo, "commit", "-q", "-m", "submodules")
    git(repo, "submodule", "--quiet", "deinit", "-f", "absent")
    with_files(repository(repo / "nested"), inner="1")
    repository(repo / "unborn")
    (repo / "unborn" / "file").write_text("1")
    snapshots = snapshots_at(repo, tmp_path / "private")
    for turn in ("turn-1", "turn-2"):
        taken = snapshots.take("t.1", turn)
        excluded = {left.path: left.reason for left in taken.excluded}
        assert set(excluded) == {"lib", "absent", "nested", "unborn"}
        assert git(library, "rev-parse", "HEAD") in excluded["lib"]
        assert "without a commit" in excluded["unborn"]
        assert set(git(store_of(repo), "ls-tree", "--name-only", taken.ref).splitlines()) == {
            ".gitmodules", "a", "absent", "b", "lib", "nested", "unborn"}  # fmt: skip
    (repo / "lib" / "code").write_text("changed")
    (repo / "a").write_text("changed")
    (repo / "nested" / ".git" / "index").write_bytes(b"broken")
    taken = snapshots.take("t.1", "turn-3")
    assert taken.changed and {left.path for left in taken.excluded} == {"lib", "absent", "nested", "unborn"}
    left = snapshots.restore(reference("t.1", "turn-1"))
    assert left == []
    assert (repo / "a").read_text() == "alpha\n" and (repo / "unborn" / "file").read_text() == "1"
    assert (repo / "lib" / "code").read_text() == "changed"
    assert (repo / "nested" / "inner").read_text() == "1"


def test_pipes_sockets_and_devices_are_left_alone(repo: Path, snapshots: WorktreeSnapshots) -> None:
    snapshots.take("t.1", "turn-1")
    (repo / "a").unlink()
    os.mkfifo(repo / "a")
    os.mkfifo(repo / "pipe")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as server:
        here = os.getcwd()
        os.chdir(repo)
        server.bind("socket")
        os.chdir(here)
        taken = snapshots.take("t.1", "turn-2")
    assert git(store_of(repo), "ls-tree", "--name-only", taken.ref) == "b"
    assert [(left.path, left.reason) for left in taken.excluded] == [("a", "it is neither a file nor a symbolic link")]
    (repo / "b").unlink()
    snapshots.restore(taken.ref)
    assert (repo / "pipe").is_fifo() and (repo / "b").exists()
    snapshots.restore(reference("t.1", "turn-1"))
    assert (repo / "a").read_text() == "alpha\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user who may not read a file")
def test_a_file_that_cannot_be_read_is_left_out_and_said() -> None:
    script = (
        "import os, subprocess, sys; from pathlib import Path\n"
        "from holdfast.snapshots.snapshots import WorktreeSnapshots as Snapshots\n"
        "os.setgid(65534); os.setuid(65534); top = Path(sys.argv[1]); (top / 'closed').chmod(0)\n"
        "print([(e.path, e.reason) for e in Snapshots(top, top / 'p', top / 's.git').take('t.1', 'turn-1').excluded])"
    )
    with scratch() as folder:
        repo = with_files(repository(folder / "repo"), closed="x", open="y")
        subprocess.run(["chown", "-R", "65534:65534", str(folder)], check=True)
        folder.chmod(0o755)
        done = subprocess.run([sys.executable, "-c", script, str(repo)], capture_output=True, text=True, check=False)
        assert done.stdout.strip() == "[('closed', 'it cannot be read')]", done.stderr


def test_nothing_changed_costs_no_new_commit(repo: Path, snapshots: WorktreeSnapshots, tmp_path: Path) -> None:
    first = snapshots.take("t.1", "turn-1")
    assert first.changed
    objects = git(store_of(repo), "count-objects")
    for again in (snapshots, snapshots_at(repo, tmp_path / "private")):
        second = again.take("t.1", "turn-2")
        assert (second.commit, second.tree, second.changed) == (first.commit, first.tree, False)
    assert git(store_of(repo), "count-objects") == objects
    assert snapshots.names("t.1") == {"turn-1": first.commit, "turn-2": first.commit}


def test_a_change_within_one_tick_that_keeps_the_size_is_seen(repo: Path, snapshots: WorktreeSnapshots) -> None:
    for number in range(20):
        (repo / "a").write_text(f"{number:03}")
        taken = snapshots.take("t.1", f"turn-{number}")
        assert git(store_of(repo), "cat-file", "blob", f"{taken.ref}:a") == f"{number:03}"


def test_every_changed_path_is_told_of_a_renamed_file_both(
    repo: Path, snapshots: WorktreeSnapshots, tmp_path: Path
) -> None:
    (repo / "moved").write_text("a long enough text to be recognised\n" * 20)
    (repo / "binary").write_bytes(bytes(range(256)))
    first = snapshots.take("t.1", "turn-1")
    (repo / "moved").rename(repo / "to here")
    (repo / "a").chmod(0o755)
    (repo / "b").unlink()
    (repo / "b").symlink_to("a")
    (repo / "binary").write_bytes(bytes(reversed(range(256))))
    (repo / "new\nline").write_text("")
    second = snapshots.take("t.1", "turn-2")
    changed = ["a", "b", "binary", "moved", "new\nline", "to here"]
    assert snapshots.changed(first.ref, second.ref) == snapshots.changed(second.commit, first.commit) == changed
    assert snapshots.changed(second.ref, second.ref) == []


def test_export_refuses_what_is_not_an_empty_folder(snapshots: WorktreeSnapshots, tmp_path: Path) -> None:
    taken = snapshots.take("t.1", "turn-1")
    for name in ("full", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("empty")
    for name in ("full", "file", "link"):
        with pytest.raises(errors.AlreadyExists, match=name):
            snapshots.export(taken.ref, tmp_path / name)
    assert tree_of(tmp_path / "full") == {b"mine": ("file", b"mine")} and not any((tmp_path / "empty").iterdir())
    snapshots.export(taken.ref, tmp_path / "empty")
    snapshots.export(taken.ref, tmp_path / "new" / "deep")
    assert tree_of(tmp_path / "empty") == tree_of(tmp_path / "new" / "deep") == tree_of(tmp_path / "repo")
    assert not list(tmp_path.rglob("*.tmp"))


def test_restore_overcomes_obstacles_and_can_be_repeated(repo: Path, snapshots: WorktreeSnapshots) -> None:
    (repo / ".gitignore").write_text("*.o\n")
    taken, before = snapshots.take("t.1", "turn-1"), tree_of(repo)
    (repo / "a").unlink()
    (repo / "a" / "deep").mkdir(parents=True)
    (repo / "a" / "deep" / "x.o").write_text("ignored, where a file must stand")
    (repo / "extra" / "deep").mkdir(parents=True)
    (repo / "extra" / "deep" / "y").write_text("")
    for _ in range(2):
        assert snapshots.restore(taken.ref) == []
        assert tree_of(repo) == before
        assert not (repo / "extra").exists()


def test_an_attempt_whose_refs_were_removed_begins_anew(repo: Path, snapshots: WorktreeSnapshots) -> None:
    for number in (1, 2, 10):
        (repo / "a").write_text(str(number))
        snapshots.take("t.1", f"turn-{number}")
    other = snapshots.take("t.10", "turn-1")
    assert list(snapshots.names("t.1")) == ["turn-1", "turn-2", "turn-10"]
    git(store_of(repo), "pack-refs", "--all")
    forget(repo, "t.1")
    forget(repo, "t.1")
    assert snapshots.names("t.1") == {}
    assert snapshots.names("t.10") == {"turn-1": other.commit}
    assert snapshots.take("t.1", "turn-3").changed
