"""What a person does to the newest commit: the same work is there as another one."""

from __future__ import annotations

from pathlib import Path

from kit.git import git


def amend(repo: Path) -> None:
    git(repo, "commit", "-q", "--amend", "--reset-author", "-C", "HEAD", "--date", "2001-01-01T00:00:00Z")


def reword(repo: Path) -> None:
    git(repo, "commit", "-q", "--amend", "-m", "other words")


def add_to(repo: Path) -> None:
    (repo / "more.txt").write_text("more\n")
    git(repo, "add", "more.txt")
    git(repo, "commit", "-q", "--amend", "--no-edit")


def rebase(repo: Path) -> None:
    landed = git(repo, "rev-parse", "HEAD")
    git(repo, "reset", "-q", "--hard", "HEAD~1")
    (repo / "before").write_text("x")
    git(repo, "add", "before")
    git(repo, "commit", "-q", "-m", "before it")
    git(repo, "cherry-pick", landed)
    git(repo, "commit", "-q", "--amend", "-m", "without our lines")


def squash(repo: Path) -> None:
    message = git(repo, "log", "-1", "--format=%B")
    (repo / "more.txt").write_text("more\n")
    git(repo, "add", "more.txt")
    git(repo, "reset", "-q", "--soft", "HEAD~1")
    git(repo, "commit", "-q", "-m", f"squashed\n\n{message}\n\nand more\n\nlast line")
