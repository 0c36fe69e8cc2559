"""A task's way by pull request: the whole of it, at GitHub and at GitLab, with a real remote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.git import git
from kit.program import holdfast
from kit.project import add, settings, sound, state
from kit.pull_double import REPO, TOKEN, PullDouble, serving

FORGES = ("github", "gitlab")


@pytest.fixture(params=FORGES)
def double(
    repo: Path, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PullDouble]:
    """The service, with a bare repository behind it that is the remote of `repo`."""
    bare = tmp_path / "remote.git"
    git(tmp_path, "clone", "-q", "--bare", str(repo), str(bare))
    git(repo, "remote", "add", "origin", str(bare))
    monkeypatch.setenv("PULL_TOKEN", TOKEN)
    with serving(PullDouble(bare), request.param) as made:
        by_request(repo, made, request.param)
        yield made


def by_request(repo: Path, double: PullDouble, forge: str, **more: object) -> None:
    section = {"forge": forge, "url": double.url, "repo": REPO, "token": "env:PULL_TOKEN", **more}
    settings(repo, land="pull_request", pull_requests=section, max_agents=1)


def test_a_task_lands_by_pull_request_and_closes_with_the_merge_commit(repo: Path, double: PullDouble) -> None:
    add(repo, "one", "write one.txt 1", verify=["test -f one.txt"])
    holdfast(repo, "run", code=20)
    task = state(repo).tasks["one"]
    assert task.state == "PENDING_APPROVAL" and task.pull is not None and task.pull.number == 1
    assert double.at("holdfast/one") == task.landing.verified
    kept = double.pulls[1]
    assert kept.title == "one" and "holdfast: " in kept.body and "passed" in kept.body
    sound(repo)
    commit = double.merge(1)
    holdfast(repo, "run")
    task = state(repo).tasks["one"]
    assert task.state == "CLOSED" and task.landing.commit == commit
    assert git(repo, "rev-parse", "main") == commit and (repo / "one.txt").read_text() == "1\n"
    sound(repo)
