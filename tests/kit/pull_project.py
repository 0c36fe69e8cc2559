"""A repository whose tasks land by pull request, at a double of GitHub or GitLab with a bare remote."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from holdfast.storage.records.blobs import Blobs
from kit.git import git
from kit.project import add, layout, settings
from kit.pull_double import REPO, TOKEN, PullDouble, serving
from kit.states import entries_of

# For a run as a process of its own.
ENV = {"PULL_TOKEN": TOKEN}


@contextlib.contextmanager
def with_remote(repo: Path, kind: str) -> Iterator[PullDouble]:
    """The service, with a bare repository behind it that is the remote of `repo`."""
    bare = repo.parent / "remote.git"
    git(repo.parent, "clone", "-q", "--bare", str(repo), str(bare))
    git(repo, "remote", "add", "origin", str(bare))
    with serving(PullDouble(bare), kind) as made:
        by_request(repo, made)
        yield made


def by_request(repo: Path, double: PullDouble, **more: object) -> None:
    section = {"forge": double.kind, "url": double.url, "repo": REPO, "token": "env:PULL_TOKEN", **more}
    settings(repo, land="pull_request", pull_requests=section, max_agents=1)


def in_rounds(repo: Path, task: str = "one", **more: object) -> list[Path]:
    """A task whose agent writes one file, and another in each further round that its file of the list allows."""
    allowed = [repo.parent / f"{task}-round-{number}" for number in (1, 2, 3)]
    lines = [f"while {path}: write {task}-{number}.txt x" for number, path in enumerate(allowed, 1)]
    add(repo, task, "\n".join([f"write {task}.txt 1", *lines, "say I did it."]), **more)
    return allowed


def feedback(repo: Path) -> list[str]:
    """The words for the agent, each time that a task went back to it."""
    blobs = Blobs(layout(repo).cas)
    moves = [entry.inputs for entry in entries_of(layout(repo)) if entry.decision_type == "task_opened"]
    return [blobs.get(each["feedback"]).decode() for each in moves if each.get("feedback")]
