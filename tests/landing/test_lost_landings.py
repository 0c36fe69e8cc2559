"""Landings that are no longer on their branch: rewritten, undone by accident, or taken back by a person."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.landing import lost_landings as lost
from holdfast.landing.lost_landings import UNASKED, LostLanding, newest_landing
from kit.git import git
from kit.rewrites import add_to, amend, rebase, reword, squash
from kit.states import Run

MAIN = "refs/heads/main"


# -- rewritten --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rewrite", "how"),
    [
        (amend, "its message names the task and the attempt"),
        (reword, "it has the same tree"),
        (add_to, "its message names the task and the attempt"),
        (rebase, "it makes the same changes"),
        (squash, "its message names the task and the attempt"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
@pytest.mark.parametrize("later", [False, True], ids=["at the tip", "below a later commit"])
def test_a_rewritten_landing_is_recognised_and_journalled(
    run: Run, rewrite: Callable[[Path], None], how: str, later: bool
) -> None:
    task = run.landed(made="x")
    before = task.landing.commit
    rewrite(run.repo)
    found = git(run.repo, "rev-parse", "HEAD")
    if later:
        run.commit("other", "y")
    assert found != before and lost.recognised(run.repo, task) == (found, how)
    assert lost.shown(run.repo, [task], run.context.layout) == {}, "the next run settles it by itself"
    said: list[tuple[str, str]] = []
    left = lost.settle_rewritten(run.repo, run.ledger, run.context.layout, lambda name, text: said.append((name, text)))
    assert left == {} and run.known("t").landing.commit == found
    assert said == [("t", f"its landing {before[:12]} was rewritten as {found[:12]}: {how}")]
    (entry,) = run.journalled
    assert (entry.decision_type, entry.actor) == ("landing_settled", "recover")
    assert entry.inputs == {
        "task": "t", "attempt": "t.1", "branch": MAIN, "commit": before, "rewritten": found, "how": how,
    }  # fmt: skip


def test_a_rewritten_landing_whose_commit_is_gone_is_recognised_by_its_message_alone(run: Run) -> None:
    task = run.landed(made="x")
    landed = task.landing.commit
    add_to(run.repo)
    found = git(run.repo, "rev-parse", "HEAD")
    repository = lost.git.discover(run.repo)
    assert lost.find_rewritten(repository, MAIN, "1" * 40, "t", "t.1") == (
        found, "its message names the task and the attempt",
    )  # fmt: skip
    for other in (("u", "u.1"), ("t", "t.2")):
        assert lost.find_rewritten(repository, MAIN, "1" * 40, *other) == ("", "")
    assert lost.find_rewritten(repository, "refs/heads/gone", landed, "t", "t.1") == ("", "")


# -- undone, or taken back --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moves", "undone"),
    [
        ([("base", UNASKED)], ["t", "u"]),
        ([("base", "reset: moving to HEAD~2")], []),
        ([("t", UNASKED)], ["u"]),
        # The move that took a landing away decides, not a later one.
        ([("t", "reset: moving to HEAD~1"), ("base", UNASKED)], ["t"]),
        ([("t", UNASKED), ("base", "reset: moving to HEAD~1")], ["u"]),
        ([("base", UNASKED), ("u", "merge"), ("base", "reset: moving to HEAD~2")], []),
        ([], []),
    ],
)
def test_the_log_of_the_branch_tells_an_accident_from_an_intended_move(
    run: Run, moves: list[tuple[str, str]], undone: list[str]
) -> None:
    first, second = run.landed(made="x"), run.landed("u", other="y")
    places = {"base": run.base, "t": first.landing.commit, "u": second.landing.commit}
    for place, words in moves:
        run.set_back(places[place], words)
    at = git(run.repo, "rev-parse", "main")
    found = lost.lost_landings(run.repo, [first, second])
    assert set(found) == {run.base: {"t", "u"}, places["t"]: {"u"}, places["u"]: set()}[at]
    tasks = [task for task in (second, first) if task.id in found]
    assert [task.id for task in lost.undone(run.repo, tasks)] == undone
    shown = lost.shown(run.repo, [first, second], run.context.layout)
    assert {name for name, each in shown.items() if each.next_step == "holdfast run"} == set(undone)


def test_a_landing_that_a_person_took_back_is_shown_with_what_to_type(run: Run) -> None:
    task = run.landed(made="x")
    run.set_back(run.base, "reset: moving to HEAD~1")
    assert lost.shown(run.repo, [task], run.context.layout) == {
        "t": LostLanding(
            f"its landing {task.landing.commit[:12]} is not on main any more",
            "holdfast promote t | holdfast resolve t --rewritten COMMIT | --dropped",
        )
    }


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        ("Gone; `holdfast promote t` lands it again, or `git merge 1`.", "holdfast promote t | {settles}"),
        ("Gone; `git merge 1`.", "git merge 1 | {settles}"),
        ("Gone. Or say `holdfast resolve t --rewritten COMMIT` if", "{settles}"),
        ("Gone.", "git fetch --all | {settles}"),
    ],
)
def test_the_next_step_is_the_first_command_of_the_sentence(sentence: str, told: str) -> None:
    settles = "holdfast resolve t --rewritten COMMIT | --dropped"
    assert lost.next_step("t", sentence) == told.format(settles=settles)


def test_the_newest_landing_of_a_branch_is_the_one_that_leads_to_the_others(run: Run) -> None:
    first, second = run.landed(made="x"), run.landed("u", other="y")
    assert newest_landing(run.repo, MAIN, [second, first]) == second.landing.commit
    assert newest_landing(run.repo, MAIN, [first]) == first.landing.commit
    assert newest_landing(run.repo, "refs/heads/other", [first, second]) == newest_landing(run.repo, MAIN, []) == ""
