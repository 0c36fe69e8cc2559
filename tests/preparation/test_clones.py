"""Folders that are cloned into worktrees, where the filesystem has reflinks."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kit.git import git
from kit.mounts import mounts
from kit.program import holdfast
from kit.project import add, landed, make_repo, settings, sound

SIZE = 20 << 20


def project(repo: Path) -> Path:
    """A repository with an ignored folder, and a task whose agent and gate look for it in their worktrees."""
    (repo / ".gitignore").write_text("/.sdd/\nnode_modules/\n")
    git(repo, "commit", "-qam", "ignore")
    (repo / "node_modules" / "deep").mkdir(parents=True)
    (repo / "node_modules" / "deep" / "big").write_bytes(bytes(range(256)) * (SIZE // 256))
    (repo / "node_modules" / "link").symlink_to("deep/big")
    (repo / "untracked").mkdir()
    (repo / "untracked" / "x").write_text("x")
    settings(repo, worktree={"clone": ["node_modules", "untracked", "../outside", "missing"]})
    add(
        repo,
        "t",
        "run test -L node_modules/link && wc -c < node_modules/link > seen.txt",
        verify=["test -f node_modules/deep/big"],
    )
    return repo


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["btrfs", "xfs"])
@mounts
def test_an_ignored_folder_is_cloned_and_takes_no_space(tmp_path: Path, kind: str) -> None:
    if shutil.which(f"mkfs.{kind}") is None:
        pytest.skip(f"there is no mkfs.{kind}")
    image, folder = tmp_path / "image", tmp_path / "mounted"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(400 << 20)
    subprocess.run([f"mkfs.{kind}", "-q", str(image)], check=True, capture_output=True)
    done = subprocess.run(["mount", "-o", "loop", str(image), str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no loop mount can be made here: {done.stderr.strip()}")
    repo = project(make_repo(folder / "repo"))
    subprocess.run(["sync", "-f", str(folder)], check=True)
    before = shutil.disk_usage(folder).used
    told = holdfast(repo, "run")
    assert landed(repo) == ["t"] and git(repo, "show", "main:seen.txt") == str(SIZE)
    assert "untracked was not cloned: git does not ignore it" in told and "no path in the repository" in told
    subprocess.run(["sync", "-f", str(folder)], check=True)
    # The gates' worktree has its clone still, and shares its blocks.
    assert (repo / ".sdd/worktrees/.scratch/node_modules/deep/big").stat().st_size == SIZE
    assert shutil.disk_usage(folder).used - before < SIZE
    sound(repo)


@pytest.mark.heavy
@mounts
def test_without_reflinks_nothing_is_copied_and_a_sentence_says_so(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128m", "none", str(tmp_path)], check=True)
    repo = project(make_repo(tmp_path / "repo"))
    add(repo, "t", "run ! test -e node_modules\nwrite a.txt x")
    told = holdfast(repo, "run")
    assert landed(repo) == ["t"] and "node_modules was not cloned: the filesystem of" in told
    assert "make it by `worktree.setup` with a shared cache" in told
    sound(repo)
