"""A landed commit that a person amends, rebases, squashes or drops: recognised or acknowledged, and then done."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.app import App
from holdfast.config.layers import load
from holdfast.domain.task import TaskState
from holdfast.domain.task_record import Task
from holdfast.landing import lost_landings as lost
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, landed, layout, sound, state
from kit.rewrites import amend, reword
from kit.roots import short_run

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy


@pytest.fixture
def repo(repo: Path) -> Path:
    add(repo, "t", "write t.txt x")
    holdfast(repo, "run")
    return repo


def test_a_rewritten_landing_is_recognised_and_work_goes_on_top_of_it(repo: Path) -> None:
    before = state(repo).tasks["t"].landing.commit
    amend(repo)
    assert git(repo, "rev-parse", "HEAD") != before
    said = holdfast(repo, "check")
    assert "was rewritten as" in said and "Sound; the next start has" in said
    add(repo, "u", "write u.txt x", depends_on=["t"])
    assert "was rewritten as" in holdfast(repo, "run")
    assert state(repo).tasks["t"].landing.commit != before
    sound(repo)
    assert "Sound.\n" in holdfast(repo, "check")
    assert "left the branch; now it is" in holdfast(repo, "history", "t")


@pytest.mark.parametrize(
    ("where", "rewrite"), [("land.swap.after", amend), ("append.task_land_confirmed.before", reword)]
)
def test_a_landing_that_is_rewritten_before_the_journal_has_it_is_not_made_again(
    repo: Path, where: str, rewrite: Callable[[Path], None]
) -> None:
    add(repo, "u", "write u.txt x")
    process = begin(repo, HOLDFAST_CRASH_AT=f"{where}:1")
    assert process.wait() == -signal.SIGKILL, process.communicate()[0]
    before = git(repo, "rev-parse", "main")
    assert landed(repo) == ["t", "u"] and state(repo).tasks["u"].landing.commit == ""
    # Left so that nobody commits from an index that has not followed; here a person removes it, as git advises.
    (repo / ".git" / "index.lock").unlink()
    git(repo, "reset", "-q", "--hard")
    rewrite(repo)
    amended = git(repo, "rev-parse", "main")
    holdfast(repo, "run")
    assert before != amended == git(repo, "rev-parse", "main"), "landed once more"
    assert state(repo).tasks["u"].state is TaskState.CLOSED and "was rewritten as" in holdfast(repo, "check")
    holdfast(repo, "run")
    assert state(repo).tasks["u"].landing.commit == amended
    assert "Sound.\n" in holdfast(repo, "check")


def test_a_lost_landing_is_reported_wherever_a_person_looks(repo: Path) -> None:
    git(repo, "reset", "-q", "--hard", "HEAD~1")
    # What lands on top does not hide it.
    add(repo, "u", "write u.txt x")
    told = holdfast(repo, "run", code=20)
    assert "t is closed, and its landing is lost" in told and "next: holdfast promote t" in told
    listed, whole = holdfast(repo, "list"), holdfast(repo, "list", "--all")
    assert "1 closed: `holdfast list --all` shows it" in listed and "is not on main any more" in listed
    assert "is not on main any more" in whole
    (row,) = [row for row in json.loads(holdfast(repo, "list", "--json"))["tasks"] if row["lost"]]
    assert row["id"] == "t" and row["next_step"].startswith("holdfast promote t | ")
    for command in (("status",), ("show", "t")):
        told = " ".join(holdfast(repo, *command).split())
        assert "is not on main any more" in told and "holdfast promote t | holdfast resolve t --rewritten" in told
    assert [each["task"] for each in json.loads(holdfast(repo, "status", "--json"))["lost"]] == ["t"]
    holdfast(repo, "resolve", "t", "--dropped")
    for command in (("status",), ("show", "t"), ("list", "--all")):
        assert "any more" not in holdfast(repo, *command)
    holdfast(repo, "run")


def test_a_landing_that_was_amended_is_not_told_as_lost(repo: Path) -> None:
    amend(repo)
    assert "any more" not in holdfast(repo, "list", "--all") + holdfast(repo, "show", "t")
    assert "Sound; the next start has 1 thing to finish, told above as pending." in holdfast(repo, "check")


@pytest.mark.parametrize("said", ["rewritten", "dropped"])
def test_an_unrecognised_landing_is_acknowledged_by_a_person(repo: Path, said: str) -> None:
    git(repo, "reset", "-q", "--hard", "HEAD~1")
    (repo / "t.txt").write_text("something else altogether\n")
    git(repo, "add", "t.txt")
    git(repo, "commit", "-q", "-m", "by hand")
    found = holdfast(repo, "check", code=4)
    assert "--rewritten COMMIT" in found and "--dropped" in found
    if said == "rewritten":
        assert "is no commit" in holdfast(repo, "resolve", "t", "--rewritten", "HEAD~7", code=2)
        holdfast(repo, "resolve", "t", "--rewritten", "HEAD")
        assert state(repo).tasks["t"].landing.commit == git(repo, "rev-parse", "HEAD")
    else:
        holdfast(repo, "resolve", "t", "--dropped")
        assert state(repo).tasks["t"].landing.commit == ""
    sound(repo)
    add(repo, "u", "write u.txt x", depends_on=["t"])
    holdfast(repo, "run")
    assert "cannot be settled" in holdfast(repo, "resolve", "t", "--dropped", code=9)


def _two_squashed(repo: Path) -> None:
    add(repo, "u", "write u.txt x")
    holdfast(repo, "run")
    git(repo, "reset", "-q", "--soft", "HEAD~2")
    git(repo, "commit", "-q", "-m", "both, without our lines")


def test_a_run_offers_for_a_squashed_landing_what_check_offers(repo: Path) -> None:
    _two_squashed(repo)
    lost = [name for name in ("t", "u") if f"The landing of {name} on" in holdfast(repo, "check", code=4)]
    assert "t" in lost
    said = holdfast(repo, "run", code=None)
    for name in lost:
        assert f"resolve {name} --rewritten COMMIT" in said and f"resolve {name} --dropped" in said
        holdfast(repo, "resolve", name, "--rewritten", git(repo, "rev-parse", "main"))
    sound(repo)


def test_a_deleted_branch_is_made_again_at_the_newest_landing(repo: Path) -> None:
    add(repo, "u", "write u.txt x")
    holdfast(repo, "run")
    first, newest = state(repo).tasks["t"].landing.commit, state(repo).tasks["u"].landing.commit
    git(repo, "checkout", "-q", "--detach")
    git(repo, "branch", "-D", "main")
    said = holdfast(repo, "check", code=4)
    assert f"git branch main {newest}`" in said and f"git branch main {first}" not in said


def test_one_that_is_amended_again_while_it_is_looked_for_is_recognised(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same start: what builds on it is not held."""
    amend(repo)
    add(repo, "u", "write u.txt x", depends_on=["t"])
    real, amended = lost.recognised, list[str]()

    def recognised(repo: Path, task: Task) -> tuple[str, str]:
        found = real(repo, task)
        if not amended:
            amended.append(found[0])
            reword(repo)
        return found

    monkeypatch.setattr(lost, "recognised", recognised)
    with short_run(App(repo, load(repo, environ={}))) as session:
        left = lost.settle_rewritten(repo, session.ledger, layout(repo), lambda task, text: None)
    assert (
        amended and left == {} and state(repo).tasks["t"].landing.commit == git(repo, "rev-parse", "HEAD") != amended[0]
    )
