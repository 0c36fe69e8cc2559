"""Issues become tasks, and what became of them is written back: GitHub's double on loopback, real runs."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.trackers import TrackerKind
from holdfast.domain.definition import Definition, parse
from holdfast.domain.messages import outbox_records
from holdfast.integrations.trackers.registry import TRACKERS
from kit import TOP
from kit.forge_double import TOKEN, ForgeDouble
from kit.forge_runs import EVERYTHING, LIFE_S_MAX, connect, expect_each_once, live, scripted
from kit.program import holdfast, start
from kit.project import add, layout, settings, sound, state
from kit.server import served
from kit.waiting import wait_for


@pytest.fixture
def forge(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForgeDouble]:
    monkeypatch.setenv("FORGE_TOKEN", TOKEN)
    with ForgeDouble() as double:
        yield double


def sync(repo: Path, *arguments: str, code: int = 0) -> str:
    return holdfast(repo, "sync", *arguments, code=code)


def issue_file(repo: Path, task: str) -> Definition:
    made = parse((layout(repo).backlog_issues / f"{task}.yaml").read_bytes(), task)
    assert isinstance(made, Definition)
    return made


def states(repo: Path) -> dict[str, str]:
    return {name: str(task.state) for name, task in state(repo).tasks.items()}


# -- in and out -------------------------------------------------------------------------------------------------------


def test_an_issue_becomes_a_task_and_its_result_a_comment(repo: Path, forge: ForgeDouble) -> None:
    connect(repo, forge, **EVERYTHING)
    number = forge.open("Write a", scripted("a"), labels=["agent"])
    forge.open("Not for us", "x")
    told = holdfast(repo, "run", "--plain")
    assert f"gh-1: added from {forge.issues[number]['html_url']}" in told
    expect_each_once(repo, forge, {number})
    [comment] = forge.comments[number]
    commit = state(repo).tasks["gh-1"].landing.commit
    assert commit in comment["body"] and "`main`" in comment["body"]
    # Its own words and labels there are nothing new.
    before = len(forge.requests)
    holdfast(repo, "run", "--plain")
    assert len(forge.comments[number]) == 1 and states(repo) == {"gh-1": "CLOSED"}
    assert all(method == "GET" for method, _, _ in forge.requests[before:])
    assert TOKEN not in "".join(
        path.read_text(errors="replace") for path in layout(repo).root.rglob("*") if path.is_file()
    )


def test_a_task_that_fails_for_good_says_so_and_leaves_the_issue_open(repo: Path, forge: ForgeDouble) -> None:
    connect(repo, forge, **EVERYTHING)
    body = "---\nscript: fail no such luck\nmax_attempts: 2\n---\n"
    number = forge.open("Fail", body, labels=["agent"])
    holdfast(repo, "run", "--plain", code=20)
    [comment] = forge.comments[number]
    assert "has failed" in comment["body"] and "> " in comment["body"]
    assert ("labels", number, ("stuck",)) in forge.events and forge.issues[number]["state"] == "open"
    # Its label went by our own hand: that withdraws nothing.
    holdfast(repo, "retry", "gh-1")
    sync(repo)
    assert states(repo) == {"gh-1": "OPEN"} and not state(repo).tasks["gh-1"].parked


def test_a_task_without_write_back_says_nothing(repo: Path, forge: ForgeDouble) -> None:
    connect(repo, forge, comment=False)
    number = forge.open("Write a", scripted("a"))
    holdfast(repo, "run", "--plain")
    assert states(repo) == {"gh-1": "CLOSED"} and not forge.comments[number] and not forge.events


def test_a_file_that_only_claims_an_issue_writes_nothing_there(repo: Path, forge: ForgeDouble) -> None:
    connect(repo, forge)
    forge.open("An issue", scripted("a"))
    origin = {"source": "gh", "tracker": "github", "number": "1", "url": "x", "etag": "x", "trusted": True}
    add(repo, "gh-other", "write b.txt x", origin=origin)
    add(repo, "mine", "write c.txt x", origin=origin)
    holdfast(repo, "run", "--plain")
    assert states(repo) == dict.fromkeys(("gh-other", "mine", "gh-1"), "CLOSED")
    assert len(forge.comments[1]) == 1


@pytest.mark.parametrize("fault", ["503", "limit", "lost", "cut"])
def test_a_comment_whose_answer_fails_is_there_once(repo: Path, forge: ForgeDouble, fault: Any) -> None:
    connect(repo, forge, every_s=3600)
    number = forge.open("Write a", scripted("a"))
    sync(repo)
    # The next run asks for its pages first; then comes the comment.
    forge.faults = [None, fault]
    holdfast(repo, "run", "--plain")
    assert forge.fired[fault] == 1, "the fault did not fire"
    # On a slow machine the run itself has tried again.
    assert len(forge.comments[number]) == (fault == "lost" or not state(repo).outbox)
    for key in state(repo).outbox:
        holdfast(repo, "outbox", "--retry", key)
    holdfast(repo, "run", "--plain")
    assert len(forge.comments[number]) == 1 and not state(repo).outbox
    sound(repo)


def test_a_message_to_a_source_that_is_gone_is_parked_and_not_the_task(
    repo: Path, forge: ForgeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So far off that the run does not wait for the next try.
    monkeypatch.setattr(outbox_records, "PAUSE_S", 3600.0)
    connect(repo, forge, every_s=3600)
    forge.open("Write a", scripted("a"))
    sync(repo)
    forge.faults = [None, "503"]
    holdfast(repo, "run", "--plain")
    settings(repo, agent="scripted")
    [key] = state(repo).outbox
    holdfast(repo, "outbox", "--retry", key)
    holdfast(repo, "run", "--plain")
    assert "no source 'gh'" in state(repo).outbox[key].parked and states(repo) == {"gh-1": "CLOSED"}


# -- definitions ------------------------------------------------------------------------------------------------------


def test_an_issue_edited_there_rewrites_the_file_of_an_open_task(repo: Path, forge: ForgeDouble) -> None:
    connect(repo, forge)
    number = forge.open("First", "one", author="eve")
    sync(repo)
    path = layout(repo).backlog_issues / "gh-1.yaml"
    # A person may add to it: that stays.
    path.write_text(path.read_text() + "priority: 1\n")
    assert "nothing new" in sync(repo)
    forge.edit(number, title="Second", body="two")
    assert "gh-1: rewritten: it was edited there (" in sync(repo)
    made = issue_file(repo, "gh-1")
    assert (made.title, made.priority) == ("Second", 1) and "> two" in (made.goal or "")
    # What a person changed of the issue's own words does not outlast the next edit there, and that is said.
    path.write_text(path.read_text().replace("> two", "> three"))
    forge.edit(number, body="four")
    assert "what was changed in the file is overwritten" in sync(repo)
    assert "> four" in (issue_file(repo, "gh-1").goal or "")
    assert len(state(repo).tasks) == 1
    sound(repo)


def test_only_authors_with_write_rights_say_more_than_words(repo: Path, forge: ForgeDouble) -> None:
    connect(repo, forge)
    for author in ("ada", "bob", "eve", "nobody"):
        forge.open(f"By {author}", scripted(author), author=author)
    sync(repo)
    assert [issue_file(repo, f"gh-{number}").script for number in (1, 2, 3, 4)] == [
        "write ada.txt x", "write bob.txt x", None, None,
    ]  # fmt: skip
    prompt = holdfast(repo, "prompt", "gh-3")
    assert "# By eve" not in prompt and "> By eve" in prompt and "> script: write eve.txt x" in prompt
    assert "# By ada" in holdfast(repo, "prompt", "gh-1")
    connect(repo, forge, trusted=["eve"])
    sync(repo)
    assert issue_file(repo, "gh-3").script == "write eve.txt x", "the settings trust her now"


def test_front_matter_that_cannot_be_used_is_told(repo: Path, forge: ForgeDouble) -> None:
    connect(repo, forge)
    forge.open("Odd", "---\nverfy: x\n---\nwords")
    assert "front matter was left as text" in sync(repo)
    assert states(repo) == {"gh-1": "OPEN"}


def test_a_task_of_the_same_id_that_came_from_no_issue_stays(repo: Path, forge: ForgeDouble) -> None:
    connect(repo, forge)
    add(repo, "gh-1", "write mine.txt x")
    forge.open("An issue", "x")
    assert "came from no issue" in sync(repo)
    assert not list(layout(repo).backlog_issues.iterdir()) and states(repo) == {"gh-1": "OPEN"}


# -- closed there -----------------------------------------------------------------------------------------------------


def test_an_issue_closed_there_cancels_and_opened_again_is_another_task(repo: Path, forge: ForgeDouble) -> None:
    connect(repo, forge)
    number = forge.open("An issue", "x")
    for round in (1, 2):
        sync(repo)
        forge.edit(number, state="closed")
        name = "gh-1" if round == 1 else "gh-1.r2"
        assert f"{name}: cancelled: its issue was closed there" in sync(repo)
        assert states(repo)[name] == "CANCELLED" and "sync" in holdfast(repo, "history", name)
        assert "nothing new" in sync(repo)
        forge.edit(number, state="open")
    assert "gh-1.r3: added" in sync(repo)
    sound(repo)


def test_a_task_cancelled_here_is_not_added_again(repo: Path, forge: ForgeDouble) -> None:
    connect(repo, forge)
    number = forge.open("An issue", "x")
    sync(repo)
    holdfast(repo, "cancel", "gh-1")
    forge.edit(number, body="y")
    assert "nothing new" in sync(repo) and states(repo) == {"gh-1": "CANCELLED"}
    layout(repo).tracker("gh").unlink()
    assert "nothing new" in sync(repo)


def test_an_agent_at_work_is_ended_when_its_issue_is_closed(repo: Path, forge: ForgeDouble) -> None:
    connect(repo, forge)
    number = forge.open("Long", "---\nscript: run sleep 600\n---\n")
    process = start(repo, "run", "--plain")
    wait_for(lambda: states(repo).get("gh-1") == "IN_PROGRESS", "it is at work")
    forge.edit(number, state="closed")
    said, _ = process.communicate(timeout=LIFE_S_MAX)
    assert process.returncode == 0 and "cancelled: its issue was closed there" in said
    assert states(repo)["gh-1"] == "CANCELLED"
    sound(repo)


@pytest.mark.parametrize("how", ["closed", "unlabelled"])
def test_a_person_is_asked_once_about_an_issue_that_is_withdrawn(repo: Path, forge: ForgeDouble, how: str) -> None:
    connect(repo, forge, on_closed="ask", label="agent")
    number = forge.open("An issue", "x", labels=["agent"])
    sync(repo)
    forge.edit(number, **({"state": "closed"} if how == "closed" else {"labels": []}))
    assert "gh-1: waits for you" in sync(repo)
    assert "holdfast cancel gh-1" in state(repo).tasks["gh-1"].parked
    assert "nothing new" in sync(repo)
    holdfast(repo, "resolve", "gh-1", "--retry")
    sync(repo)
    layout(repo).tracker("gh").unlink()
    sync(repo)
    assert not state(repo).tasks["gh-1"].parked and states(repo) == {"gh-1": "OPEN"}, "asked again"
    sound(repo)


def test_an_issue_that_is_gone_cancels(repo: Path, forge: ForgeDouble) -> None:
    connect(repo, forge)
    number = forge.open("An issue", "x")
    sync(repo)
    del forge.issues[number]
    assert "its issue is gone there" in sync(repo) and states(repo) == {"gh-1": "CANCELLED"}


def test_a_tracker_that_refuses_cancels_nothing(
    repo: Path, forge: ForgeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(repo, forge)
    forge.open("An issue", "x")
    sync(repo)
    monkeypatch.setenv("FORGE_TOKEN", "expired")
    assert "401" in sync(repo, code=22) and states(repo) == {"gh-1": "OPEN"}


# -- requests ---------------------------------------------------------------------------------------------------------


def test_a_round_without_a_change_costs_one_conditional_request(repo: Path, forge: ForgeDouble) -> None:
    connect(repo, forge)
    forge.open("An issue", "x")
    sync(repo)
    before, left = len(forge.requests), forge.remaining
    assert "nothing new" in sync(repo)
    assert [status for _, _, status in forge.requests[before:]] == [304] and forge.remaining == left
    # Without the memory everything is asked for again, and nothing is added twice.
    layout(repo).tracker("gh").write_bytes(b"{ torn")
    assert "nothing new" in sync(repo)
    assert [status for _, _, status in forge.requests[before + 1 :]] == [200, 200] and states(repo) == {"gh-1": "OPEN"}


def test_pages_are_all_read_and_a_round_that_is_cut_goes_on(repo: Path, forge: ForgeDouble) -> None:
    connect(repo, forge)
    for number in range(230):
        forge.open(f"Issue {number}", "x", author="eve")
    # First page, its author's rights, second page; the third is refused.
    forge.faults = [None, None, None, "503"]
    told = json.loads(sync(repo, "--json", code=22).partition("\nholdfast: ")[0])
    assert forge.fired["503"] == 1 and len(states(repo)) == 200
    assert (len(told["sources"][0]["changes"]), "503" in told["sources"][0]["error"]) == (200, True)
    before = len(forge.requests)
    sync(repo)
    assert len(states(repo)) == 230 and set(states(repo).values()) == {"OPEN"}
    assert [status for _, _, status in forge.requests[before:]] == [304, 304, 200, 200]
    sound(repo)


def test_a_limit_is_respected_and_shown(repo: Path, forge: ForgeDouble) -> None:
    connect(repo, forge)
    forge.open("An issue", "---\nscript: write a.txt x\nnot_before: 2100-01-01\n---\n")
    assert "requests left until" in sync(repo) and "requests left until" in holdfast(repo, "status")
    forge._retry_after_s, forge.faults = 3600, ["limit"]
    assert "wants no more requests" in sync(repo, code=22)
    assert "wants no request before" in holdfast(repo, "status")
    before = len(forge.requests)
    sync(repo, code=22)
    live(repo, kill_after_s=5.0)
    assert forge.fired["limit"] == 1 and len(forge.requests) == before, "it was asked all the same"
    facts = json.loads(holdfast(repo, "status", "--json"))["sources"]
    assert facts[0]["name"] == "gh" and facts[0]["not_before"] > 0


def test_a_dry_run_shows_what_would_be_and_changes_nothing(repo: Path, forge: ForgeDouble) -> None:
    connect(repo, forge)
    first = forge.open("An issue", "x")
    assert "gh-1: added" in sync(repo, "--dry-run") and not states(repo)
    assert not list(layout(repo).backlog_issues.iterdir()) and not layout(repo).tracker("gh").exists()
    sync(repo)
    forge.edit(first, state="closed")
    forge.open("Another", "x")
    told = sync(repo, "gh", "--dry-run")
    assert "gh-1: cancelled" in told and "gh-2: added" in told and states(repo) == {"gh-1": "OPEN"}


def test_a_run_that_is_alive_is_asked_to_sync(repo: Path, forge: ForgeDouble) -> None:
    connect(repo, forge, every_s=3600)
    with served(repo) as server:
        wait_for(lambda: server.operator.get("/sources")["sources"][0]["synced_at"], "its first round")
        forge.open("An issue", "x")
        assert "The run asks them now" in sync(repo)
        wait_for(lambda: "gh-1" in states(repo), "the command woke it")
        forge.open("Another", "x")
        assert server.operator.post("/sources/sync", {"sources": ["gh"]}) == {"sources": ["gh"]}
        wait_for(lambda: "gh-2" in states(repo), "the request woke it")
        assert server.operator.ask("POST", "/sources/sync", {"sources": ["no"]}).status == 422


def test_a_sync_without_sources_or_of_an_unknown_one_says_what_to_do(repo: Path, forge: ForgeDouble) -> None:
    assert "docs/trackers.md" in sync(repo, code=2)
    connect(repo, forge)
    assert "known are gh" in sync(repo, "other", code=2)


def test_the_doctor_looks_for_tokens_and_asks_only_when_it_is_told_to(
    repo: Path, forge: ForgeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(repo, forge)
    forge.open("An issue", "x")
    assert "1 source: gh (github, acme/widgets)" in holdfast(repo, "doctor", code=None) and not forge.requests
    assert "answers: 1 open issue" in holdfast(repo, "doctor", "--online", code=None)
    monkeypatch.delenv("FORGE_TOKEN")
    told = holdfast(repo, "doctor", "--online", code=20)
    assert "env:FORGE_TOKEN" in told and "does not answer" in told


def test_every_kind_of_tracker_has_its_adapter_and_its_row() -> None:
    assert set(typing.get_args(TrackerKind)) == set(TRACKERS)
    page = (TOP / "docs" / "trackers.md").read_text()
    assert [name for name in TRACKERS if f"| `{name}` |" not in page] == []
