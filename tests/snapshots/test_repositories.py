from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.snapshots.snapshots import WorktreeSnapshots, reference
from kit.git import git, plain, repository, with_files
from kit.snapshots import make, snapshots_at, store_of, tree_of

pytestmark = pytest.mark.repo(make=plain(a="alpha\n", b="beta\n"))


def linked(tmp_path: Path) -> Path:
    main = with_files(repository(tmp_path / "main"), a="1")
    git(main, "worktree", "add", "-q", str(tmp_path / "linked"))
    return tmp_path / "linked"


def linked_to_bare(tmp_path: Path) -> Path:
    main = with_files(repository(tmp_path / "main"), a="1")
    git(tmp_path, "clone", "-q", "--bare", str(main), "bare.git")
    git(tmp_path / "bare.git", "worktree", "add", "-q", str(tmp_path / "of-bare"))
    return tmp_path / "of-bare"


def unborn(tmp_path: Path) -> Path:
    path = repository(tmp_path / "unborn")
    (path / "a").write_text("1")
    return path


def sha256(tmp_path: Path) -> Path:
    return with_files(repository(tmp_path / "sha256", "--object-format=sha256"), a="1")


def with_alternates(tmp_path: Path) -> Path:
    main = with_files(repository(tmp_path / "main"), a="1")
    git(tmp_path, "clone", "-q", "--shared", str(main), "borrowing")
    return tmp_path / "borrowing"


def separate(tmp_path: Path) -> Path:
    return with_files(repository(tmp_path / "apart", "--separate-git-dir", str(tmp_path / "elsewhere.git")), a="1")


@pytest.mark.parametrize("kind", [linked, linked_to_bare, unborn, sha256, with_alternates, separate])
def test_every_kind_of_repository(tmp_path: Path, kind: Callable[[Path], Path]) -> None:
    repo = kind(tmp_path)
    snapshots = snapshots_at(repo, tmp_path / "private")
    first, before = snapshots.take("t.1", "turn-1"), tree_of(repo)
    make(repo, {b"a/b": ("file", b"2"), b"c": ("link", b"a")})
    second, after = snapshots.take("t.1", "turn-2"), tree_of(repo)
    assert git(store_of(repo), "rev-parse", first.ref, f"{second.ref}^") == f"{first.commit}\n{first.commit}"
    for taken, tree in ((first, before), (second, after), (first, before)):
        snapshots_at(repo, tmp_path / "private").restore(taken.ref)
        assert tree_of(repo) == tree
    git(repo, "fsck", "--strict")
    git(store_of(repo), "fsck", "--strict")
    git(repo, "gc", "-q", "--prune=now")
    snapshots.export(second.ref, tmp_path / "out")
    assert tree_of(tmp_path / "out") == after
    assert snapshots.take("t.1", "turn-3").commit == second.commit or snapshots.take("t.1", "turn-3").tree == first.tree


def test_a_folder_that_is_no_worktree_is_refused(repo: Path, tmp_path: Path) -> None:
    (repo / "sub").mkdir()
    for path in (tmp_path, repo / "sub", repo / ".git"):
        with pytest.raises(errors.NotAWorktree, match="Nothing was changed"):
            snapshots_at(path, tmp_path / "private")
    assert not (tmp_path / "private").exists()


def test_an_old_git_or_none_is_refused(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.git import command as runner

    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    runner.require_minimum.cache_clear()
    with pytest.raises(errors.GitUnusable, match="No such file"):
        snapshots_at(repo, tmp_path / "private")
    (tmp_path / "bin" / "git").write_text("#!/bin/sh\necho git version 2.30.2\n")
    (tmp_path / "bin" / "git").chmod(0o755)
    with pytest.raises(errors.GitUnusable, match=r"git version 2\.30\.2.*2\.38"):
        snapshots_at(repo, tmp_path / "private")


@pytest.mark.parametrize(
    "bad", ["", ".", "..", "a/b", "a..b", "-x", ".x", "x.", "x.lock", "a b", "a\nb", "x" * 200, "ä", "a~1", "a@{0}"]
)
def test_names_that_git_or_a_path_could_misread_are_refused(snapshots: WorktreeSnapshots, bad: str) -> None:
    with pytest.raises(errors.InvalidName, match="Nothing was changed"):
        snapshots.take(bad, "turn-1")
    with pytest.raises(errors.InvalidName):
        snapshots.take("t.1", bad)
    with pytest.raises(errors.InvalidName):
        snapshots.restore(bad)


@pytest.mark.parametrize("bad", ["", "/etc", "../x", "a/../../x", ".git", "a/.git/hooks"])
def test_excluded_paths_stay_inside_the_worktree(repo: Path, tmp_path: Path, bad: str) -> None:
    with pytest.raises(errors.PathEscapes):
        snapshots_at(repo, tmp_path / "private", exclude=[bad])


def test_a_missing_snapshot_is_named(snapshots: WorktreeSnapshots) -> None:
    for name in (reference("t.1", "turn-9"), "0" * 40):
        with pytest.raises(errors.SnapshotMissing, match=name):
            snapshots.restore(name)
