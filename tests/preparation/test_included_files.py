"""`.worktreeinclude`: what is copied, and what never is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import IncludeTooLarge
from holdfast.git import command
from holdfast.preparation import included_files
from holdfast.preparation.included_files import IncludeFrom
from holdfast.worktrees.left_out import left_out
from kit.git import git, repository


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    top = repository(tmp_path / "checkout")
    (top / ".gitignore").write_text("*.env\n.env*\nsecret/\n.sdd/\nlinks/\n")
    (top / "tracked.env").write_text("tracked\n")
    git(top, "add", "-f", ".")
    git(top, "commit", "-qm", "begin")
    return top


def copied(checkout: Path, *patterns: str, anew: bool = False) -> tuple[set[str], Path]:
    """Commits the patterns and copies into a worktree; the files that it then has."""
    (checkout / ".worktreeinclude").write_text("".join(f"{each}\n" for each in patterns))
    git(checkout, "add", ".worktreeinclude")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "patterns")
    worktree, private = checkout.parent / "worktree", checkout.parent / "private"
    worktree.mkdir(exist_ok=True)
    source = IncludeFrom(command.discover(checkout), "HEAD", "HEAD", (".sdd",))
    included_files.copy(source, worktree, private, anew=anew)
    return {str(path.relative_to(worktree)) for path in worktree.rglob("*") if not path.is_dir()}, worktree


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ((".env",), {".env"}),
        ((".env*", "!.env.production"), {".env", ".env.local"}),
        (("secret/",), {"secret/key", "secret/deep/key"}),
        (("secret/*", "!secret/key"), {"secret/deep/key"}),
        (("# a comment", "", ".env"), {".env"}),
        # Neither ignored, nor tracked, nor of the data root or of git, nor a link.
        (("*",), {".env", ".env.local", ".env.production", "secret/key", "secret/deep/key"}),
        (("plain.txt", "tracked.env", ".sdd/**", ".git/config", "links/*"), set()),
        (("../outside.env", "/etc/passwd"), set()),
        ((), set()),
    ],
)
def test_a_file_that_matches_and_is_ignored_is_copied(
    checkout: Path, patterns: tuple[str, ...], expected: set[str]
) -> None:
    files = (".env", ".env.local", ".env.production", "secret/key", "secret/deep/key", "plain.txt", ".sdd/server.json")
    for name in files:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(name)
    (checkout.parent / "outside.env").write_text("outside")
    (checkout / "links").mkdir()
    (checkout / "links" / "out").symlink_to(checkout.parent / "outside.env")
    (checkout / "links" / "folder").symlink_to(checkout.parent)
    found, worktree = copied(checkout, *patterns)
    assert found == expected
    assert all((worktree / name).read_text() == name for name in found)
    assert set(left_out(checkout.parent / "private")) == expected


def test_the_patterns_of_the_commit_count_and_not_those_of_the_checkout(checkout: Path) -> None:
    (checkout / ".env").write_text("x")
    (checkout / ".env.local").write_text("x")
    found, _ = copied(checkout, ".env")
    (checkout / ".worktreeinclude").write_text(".env.local\n")
    source = IncludeFrom(command.discover(checkout), "HEAD", "HEAD", ())
    assert included_files.copy(source, checkout.parent / "worktree", checkout.parent / "private") == [".env"]
    assert found == {".env"}


def test_a_pattern_file_that_is_a_link_counts_as_none(checkout: Path) -> None:
    (checkout / ".env").write_text("x")
    (checkout / "rules").write_text(".env\n")
    (checkout / ".worktreeinclude").symlink_to("rules")
    git(checkout, "add", "rules", ".worktreeinclude")
    git(checkout, "commit", "-qm", "link")
    source = IncludeFrom(command.discover(checkout), "HEAD", "HEAD", ())
    assert included_files.copy(source, checkout.parent, checkout.parent / "private") == []


def test_a_copy_that_an_agent_changed_stays_until_its_source_changes(checkout: Path) -> None:
    (checkout / ".env").write_text("one")
    _, worktree = copied(checkout, ".env")
    (worktree / ".env").write_text("the agent's")
    assert copied(checkout, ".env")[0] == {".env"} and (worktree / ".env").read_text() == "the agent's"
    copied(checkout, ".env", anew=True)
    assert (worktree / ".env").read_text() == "one"
    (worktree / ".env").unlink()
    copied(checkout, ".env")
    (checkout / ".env").write_text("two!")
    copied(checkout, ".env")
    assert (worktree / ".env").read_text() == "two!"


def test_no_link_in_the_worktree_leads_a_copy_out_of_it(checkout: Path) -> None:
    (checkout / ".env").write_text("secret")
    (checkout / "secret").mkdir()
    (checkout / "secret" / "key").write_text("secret")
    outside, worktree = checkout.parent / "outside", checkout.parent / "worktree"
    outside.mkdir()
    worktree.mkdir()
    (outside / "theirs").write_text("theirs")
    (worktree / "secret").symlink_to(outside)
    (worktree / ".env").symlink_to(outside / "theirs")
    copied(checkout, ".env", "secret/")
    assert sorted(os.listdir(outside)) == ["theirs"] and (outside / "theirs").read_text() == "theirs"
    assert not (worktree / ".env").is_symlink() and (worktree / ".env").read_text() == "secret"


def test_a_file_that_the_worktree_tracks_is_not_copied(checkout: Path) -> None:
    (checkout / "new.env").write_text("mine")
    git(checkout, "branch", "before")
    (checkout / ".worktreeinclude").write_text("new.env\n")
    git(checkout, "add", ".worktreeinclude")
    git(checkout, "commit", "-qm", "patterns")
    git(checkout, "add", "-f", "new.env")
    tree = git(checkout, "write-tree")
    git(checkout, "rm", "-q", "--cached", "new.env")
    source = IncludeFrom(command.discover(checkout), "HEAD", tree, ())
    assert included_files.copy(source, checkout.parent, checkout.parent / "private") == []


def test_too_much_is_refused_before_anything_is_copied(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(included_files, "BYTES_MAX", 10)
    (checkout / ".env").write_text("x" * 11)
    with pytest.raises(IncludeTooLarge, match="no attempt is spent"):
        copied(checkout, ".env")
    assert not (checkout.parent / "worktree" / ".env").exists()


def test_many_files_are_asked_about_in_a_few_calls(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (checkout / "secret").mkdir()
    for number in range(300):
        (checkout / "secret" / f"key{number}").write_text("x")
    calls, run = list[object](), command.Repository.run

    def counted(self: command.Repository, *args: str, **more: Any) -> command.GitResult:
        calls.append(args)
        return run(self, *args, **more)

    monkeypatch.setattr(command.Repository, "run", counted)
    assert len(copied(checkout, "secret/")[0]) == 300 and len(calls) < 10


def test_names_that_fill_a_command_line_are_refused(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(included_files, "NAMES_BYTES_MAX", 100)
    (checkout / ".env").write_text("x")
    (checkout / ".env.local-and-a-name-that-is-rather-long").write_text("x")
    with pytest.raises(IncludeTooLarge, match="1 MB of names"):
        copied(checkout, ".env*")
