"""GitLab, Jira and Linear: the same way in and out as GitHub, against doubles that refuse what is undocumented."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.config.trackers import SourceSettings
from holdfast.domain.issues.issue_records import Issue
from holdfast.errors import AnswerLost, ServiceLimited, ServiceRefused
from holdfast.integrations.trackers.jira import document_of, plain_text
from holdfast.integrations.trackers.linear import Linear
from holdfast.integrations.trackers.registry import TRACKERS, tracker_of
from holdfast.integrations.trackers.tracker import Tracker
from kit.forge_runs import scripted
from kit.program import holdfast
from kit.project import landed, settings, sound, state
from kit.tracker_doubles import DOUBLES, TOKEN, TrackerDouble, texts_of


@pytest.fixture(params=DOUBLES)
def double(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[TrackerDouble]:
    monkeypatch.setenv("FORGE_TOKEN", TOKEN)
    with DOUBLES[request.param]() as made:
        yield made
        assert made.refused == [], "a request that its documentation does not have"


def tracker(double: TrackerDouble, **more: object) -> Tracker:
    return tracker_of(msgspec.convert(double.source(**more), SourceSettings))


def connect(repo: Path, double: TrackerDouble, **more: object) -> None:
    settings(repo, agent="scripted", sources=[double.source(every_s=3600, **more)])


def test_every_tracker_has_a_double() -> None:
    assert {*DOUBLES, "github"} == TRACKERS.keys()


def test_an_issue_becomes_a_task_and_its_result_is_written_back(repo: Path, double: TrackerDouble) -> None:
    everything = {"label": "agent", "close": True, "labels_closed": ["done"], "labels_off": ["agent"]}
    connect(repo, double, **everything)
    number = double.open("Write a", scripted("a").rstrip("\n"), labels=("agent",))
    double.open("Not for us", "x")
    holdfast(repo, "run", "--plain")
    name = f"{double.kind}-{number}"
    assert {task: str(each.state) for task, each in state(repo).tasks.items()} == {name: "CLOSED"}
    assert landed(repo) == [name] and not state(repo).outbox
    [text] = texts_of(double, number)
    assert state(repo).tasks[name].landing.commit in text
    issue = double.issues[number]
    assert (issue["labels"], issue["open"]) == (["done"], False)
    holdfast(repo, "sync")
    assert len(state(repo).tasks) == 1
    sound(repo)


def test_an_answer_that_is_lost_doubles_nothing(repo: Path, double: TrackerDouble) -> None:
    connect(repo, double)
    number = double.open("Write a", scripted("a").rstrip("\n"))
    holdfast(repo, "sync")
    double.lose = 1
    holdfast(repo, "run", "--plain")
    assert double.lose == 0, "the fault did not fire"
    for key in state(repo).outbox:
        holdfast(repo, "outbox", "--retry", key)
    holdfast(repo, "run", "--plain")
    assert len(list(texts_of(double, number))) == 1 and not state(repo).outbox


def test_an_issue_closed_there_cancels_its_task(repo: Path, double: TrackerDouble) -> None:
    connect(repo, double)
    first, second = double.open("One", "x", author="eve"), double.open("Two", "y", author="eve")
    holdfast(repo, "sync")
    double.issues[first]["open"] = False
    double.issues[second]["title"] = "Two, edited"
    told = holdfast(repo, "sync")
    assert f"{double.kind}-{first}: cancelled" in told and f"{double.kind}-{second}: rewritten" in told
    del double.issues[second]
    assert "is gone there" in holdfast(repo, "sync")
    assert {str(each.state) for each in state(repo).tasks.values()} == {"CANCELLED"}


def test_pages_are_all_read(double: TrackerDouble) -> None:
    double.per_page_max = 2
    numbers = [double.open(f"Issue {number}", "x") for number in range(5)]
    pages = list(tracker(double).pages({}))
    assert [number for page in pages for number in page.numbers] == numbers and len(pages) == 3


def test_the_limit_that_a_tracker_names_is_kept(double: TrackerDouble) -> None:
    asked = tracker(double)
    list(asked.pages({}))
    told = {"gitlab": (1999, 4102444800.0), "linear": (1499, 4102444800.0), "jira": (None, 0.0)}
    assert (asked.limit.remaining, asked.limit.resets_at) == told[double.kind]


def test_comments_are_found_among_many(double: TrackerDouble) -> None:
    double.per_page_max = 2
    asked, number = tracker(double), double.open("One", "x")
    keys = [f"key-{number}" for number in range(5)]
    for key in keys:
        asked.comment(number, "Done.", key)
    assert all(asked.find_comment(number, key, 0.0) for key in keys)
    assert asked.find_comment(number, "key-9", 0.0) is None


def test_rights_are_those_that_the_tracker_knows(double: TrackerDouble) -> None:
    """Jira and Linear know nothing of the repository: nobody has rights there but by the settings."""
    wanted = [double.kind == "gitlab"] * 2 + [False] * 2
    assert [tracker(double).permission_of(name) for name in ("ada", "bob", "eve", "nobody")] == wanted


def test_a_number_that_is_not_there_is_gone(double: TrackerDouble) -> None:
    number = double.name_of(7)
    assert tracker(double).get(number)[0] == Issue(number=number, is_gone=True)


def test_labels_and_the_closing_are_done_once_and_may_be_repeated(double: TrackerDouble) -> None:
    asked, number = tracker(double), double.open("One", "x", labels=("agent",))
    for _ in range(2):
        asked.labels(number, ("done",), ("agent",))
    assert double.issues[number]["labels"] == ["done"]
    asked.close(number)
    found = asked.get(number)[0]
    assert found is not None and not found.is_open and found.labels == ("done",)


# -- what only one of them has ----------------------------------------------------------------------------------------


def test_a_query_of_jira_is_put_behind_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGE_TOKEN", TOKEN)
    with DOUBLES["jira"]() as double:
        double.open("One", "x", labels=("agent",))
        [page] = tracker(double, label="agent", query="priority = High").pages({})
        assert page.numbers == ("OPS-1",) and "AND (priority = High) ORDER" in double.asked  # type: ignore[attr-defined]


def test_a_document_of_jira_is_read_as_lines() -> None:
    text = "First.\nIts second line.\n\nSecond."
    assert plain_text(document_of(text)).strip() == text
    item = {"type": "listItem", "content": [{"type": "paragraph", "content": [{"type": "text", "text": "one"}]}]}
    listed = {"type": "bulletList", "content": [item, item]}
    mention = {"type": "paragraph", "content": [{"type": "mention", "attrs": {"text": "@ada"}}]}
    assert plain_text({"type": "doc", "content": [listed, mention]}).strip() == "- one\n- one\n@ada"
    deep: dict[str, object] = {"type": "text", "text": "x"}
    for _ in range(5000):
        deep = {"type": "blockquote", "content": [deep]}
    assert "x" not in plain_text(deep)


def test_a_limit_of_linear_stands_in_its_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGE_TOKEN", TOKEN)
    with DOUBLES["linear"]() as double:
        made = Linear(msgspec.convert(double.source(), SourceSettings))
        errors = [{"message": "Rate limit exceeded", "extensions": {"code": "RATELIMITED"}}]
        double.answer = lambda *_: (200, {"errors": errors}, {})  # type: ignore[method-assign]
        with pytest.raises(ServiceLimited):
            made.get("ENG-1")
        double.answer = lambda *_: (400, {"errors": errors}, {})  # type: ignore[method-assign]
        with pytest.raises(ServiceLimited):
            made.get("ENG-1")
        double.answer = lambda *_: (400, {"errors": [{"message": "bad"}]}, {})  # type: ignore[method-assign]
        with pytest.raises(ServiceRefused):
            made.get("ENG-1")


def test_a_label_that_linear_does_not_have_is_refused_and_a_lost_change_unclear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FORGE_TOKEN", TOKEN)
    with DOUBLES["linear"]() as double:
        number = double.open("One", "x")
        with pytest.raises(ServiceRefused, match="there is no label 'new'"):
            tracker(double).labels(number, ("new",), ())
        double.lose = 1
        with pytest.raises(AnswerLost):
            tracker(double).comment(number, "x", "key")
