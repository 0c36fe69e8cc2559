"""A result that waits for its pull request: what closes it, what a person may decide, and the words for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import (
    AnswerLost,
    HoldfastError,
    PublishFailed,
    PublishRefused,
    PublishUnclear,
    ServiceAway,
    ServiceLimited,
    ServiceRefused,
)
from holdfast.integrations.http.client import as_published
from kit.forge_double import TOKEN as FORGE_TOKEN
from kit.forge_double import ForgeDouble
from kit.forge_runs import scripted
from kit.notification_services import WebService, running
from kit.program import holdfast
from kit.project import add, settings, sound, state
from kit.pull_double import REPO, PullDouble
from kit.pull_project import ENV, in_rounds, with_remote


@pytest.fixture
def double(repo: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PullDouble]:
    for name, value in {**ENV, "FORGE_TOKEN": FORGE_TOKEN}.items():
        monkeypatch.setenv(name, value)
    with with_remote(repo, "github") as made:
        yield made


def set_up(repo: Path, double: PullDouble, **more: Any) -> None:
    section = {"forge": double.kind, "url": double.url, "repo": REPO, "token": "env:PULL_TOKEN"}
    settings(repo, land="pull_request", pull_requests=section, max_agents=1, agent="scripted", **more)


# -- its issue is closed ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_closed", ["cancel", "ask"])
def test_an_issue_that_the_merge_has_closed_cancels_nothing(repo: Path, double: PullDouble, on_closed: str) -> None:
    with ForgeDouble() as forge:
        set_up(repo, double, sources=[forge.source(on_closed=on_closed)])
        number = forge.open("Write a", scripted("a"))
        holdfast(repo, "run", code=20)
        commit = double.merge(1, "squash")
        forge.edit(number, state="closed")
        assert "cancelled" not in holdfast(repo, "sync")
        assert state(repo).tasks["gh-1"].state == "PENDING_APPROVAL"
        assert "cancelled" not in holdfast(repo, "run", "--plain")
        task = state(repo).tasks["gh-1"]
        assert task.state == "CLOSED" and task.landing.commit == commit
        assert "nothing new" in holdfast(repo, "sync")
    sound(repo)


def test_one_that_was_closed_unmerged_is_asked_about_though_its_issue_is_closed(repo: Path, double: PullDouble) -> None:
    with ForgeDouble() as forge:
        set_up(repo, double, sources=[forge.source()])
        number = forge.open("Write a", scripted("a"))
        holdfast(repo, "run", code=20)
        double.pulls[1].state, double.pulls[1].head_at_end = "closed", double.head(1)
        forge.edit(number, state="closed")
        for _ in range(2):
            holdfast(repo, "run", code=None)
            task = state(repo).tasks["gh-1"]
            assert task.state == "PENDING_APPROVAL" and "closed without a merge" in task.parked
        holdfast(repo, "cancel", "gh-1")
        holdfast(repo, "run")
    sound(repo)


@pytest.mark.parametrize("on_closed", ["cancel", "ask"])
def test_one_that_is_back_at_its_agent_is_left_to_its_pull_request(
    repo: Path, double: PullDouble, on_closed: str
) -> None:
    with ForgeDouble() as forge:
        set_up(repo, double, sources=[forge.source(on_closed=on_closed)])
        number = forge.open("Write a", scripted("a"))
        holdfast(repo, "run", code=20)
        holdfast(repo, "review", "gh-1", "--send-back", "-m", "Another file.")
        double.merge(1)
        forge.edit(number, state="closed")
        holdfast(repo, "sync")
        task = state(repo).tasks["gh-1"]
        assert task.state == "OPEN" and not task.parked
        holdfast(repo, "run")
        assert state(repo).tasks["gh-1"].state == "CLOSED"
    sound(repo)


# -- decisions --------------------------------------------------------------------------------------------------------


def test_a_waiting_result_is_neither_approved_nor_rejected_here(repo: Path, double: PullDouble) -> None:
    add(repo, "one", "write one.txt 1")
    holdfast(repo, "run", code=20)
    before = state(repo).tasks["one"]
    told = holdfast(repo, "approve", "one", code=9)
    assert "it waits for its pull request" in told
    assert holdfast(repo, "review", "one", "--approve", "-m", "Good.", code=9) == told
    told = holdfast(repo, "reject", "one", "--reason", "no", code=9)
    assert "it waits for its pull request" in told and "holdfast pr one --close" in told
    assert state(repo).tasks["one"] == before
    # The way out is one.
    holdfast(repo, "pr", "one", "--close")
    holdfast(repo, "run", code=None)
    assert double.pulls[1].state == "closed"
    holdfast(repo, "run", code=None)
    assert "closed without a merge" in state(repo).tasks["one"].parked
    told = holdfast(repo, "reject", "one", "--reason", "no", code=9)
    assert "--close" not in told and "holdfast cancel one" in told
    told = holdfast(repo, "review", "one", "--send-back", "-m", "More.", code=9)
    assert "holdfast pr one --open" in told
    holdfast(repo, "cancel", "one")
    sound(repo)


def test_a_waiting_result_can_be_sent_back_with_comments(repo: Path, double: PullDouble) -> None:
    first, *_ = in_rounds(repo)
    holdfast(repo, "run", code=20)
    before = double.head(1)
    first.touch()
    holdfast(repo, "review", "one", "--send-back", "-m", "A second file.")
    holdfast(repo, "run", code=20)
    task = state(repo).tasks["one"]
    assert task.state == "PENDING_APPROVAL" and double.head(1) == task.landing.verified != before
    assert len(double.pulls) == 1
    sound(repo)


# -- the words for it -------------------------------------------------------------------------------------------------


def test_a_waiting_result_is_named_with_its_address(
    repo: Path, double: PullDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = WebService()
    with running(service):
        monkeypatch.setenv("NOTIFY", f"json://127.0.0.1:{service.port}/")
        set_up(repo, double, notify=[{"name": "all", "to": ["env:NOTIFY"], "on": ["needs_you"]}])
        add(repo, "one", "write one.txt 1")
        holdfast(repo, "run", code=20)
        # What was queued last may leave with the next run.
        holdfast(repo, "run", code=20)
    pull = state(repo).tasks["one"].pull
    assert pull is not None and pull.url
    [told] = [str(each) for each in service.received]
    assert f"#1: {pull.url}" in told and "holdfast pr one" in told and "your approval" not in told
    for shown in (holdfast(repo, "list"), holdfast(repo, "doctor", code=None)):
        words = " ".join(shown.split())
        assert f"waits for its pull request #1: {pull.url}" in words and "your approval" not in words


# -- a sentence inside another ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        (ServiceAway(service="GitHub", asked="GET /", reason="no route"), PublishFailed),
        (ServiceLimited(service="GitHub", asked="GET /", until=1.0), PublishFailed),
        (AnswerLost(service="GitHub", asked="POST /", reason="reset"), PublishUnclear),
        (ServiceRefused(service="GitHub", asked="POST /", status=422, detail="Not so"), PublishRefused),
    ],
)
def test_a_sentence_inside_another_has_no_full_stop(inner: HoldfastError, outer: type[HoldfastError]) -> None:
    with pytest.raises(outer) as raised, as_published("k"):
        raise inner
    assert ".." not in str(raised.value) and str(inner).removesuffix(".") in str(raised.value)


def test_a_look_that_fails_is_reported_in_whole_sentences(
    repo: Path, double: PullDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(repo, "one", "write one.txt 1")
    holdfast(repo, "run", code=20)
    monkeypatch.delenv("PULL_TOKEN")
    told = holdfast(repo, "pr", "one", "--refresh", code=2)
    assert "The secret env:PULL_TOKEN cannot be read" in told and ".." not in told
