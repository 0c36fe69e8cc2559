"""A row of the matrix: what a reviewer sends back reaches the model, in the same conversation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.domain.task import TaskState
from kit.model_server import Request, Step
from real_agents.kits import Kit
from real_agents.site import GATE, Site, talk

LINES = ["one", "two-4711", "right"]
COMMENTS = [
    {"path": "a.txt", "line": 2, "words": "Not this number, please."},
    {"path": "a.txt", "line": 1, "last": 3, "words": "Shorter."},
]


def send_back(site: Site) -> None:
    """As a person does it, with two comments and words about the whole."""
    (site.top / "comments.json").write_text(json.dumps(COMMENTS))
    site.holdfast("review", "T", "--send-back", "-m", "Nearly there.", "--comments", str(site.top / "comments.json"))
    assert site.task.state is TaskState.OPEN and site.task.attempts == 1


def expect_comments(request: Request) -> None:
    assert request.has("A person has read your work and wants changes") and request.has("Nearly there.")
    assert request.has("1. a.txt, line 2:\n\n> two-4711\n\nNot this number, please.")
    assert request.has("2. a.txt, lines 1-3:\n\n> one\n> two-4711\n> right\n\nShorter.")


@pytest.mark.row("sent_back")
def test_what_is_sent_back_reaches_the_same_conversation_and_lands(kit: Kit, tmp_path: Path) -> None:
    with Site(tmp_path, kit) as site:
        site.add(verify=GATE, approve=True)
        words = "\\n".join(LINES)
        site.model.then(
            Step("First.", [kit.shell(f"printf '{words}\\n' > a.txt; printf 'marker-%d' 052")]),
            Step("It is done."),
            Step("Oh.", [kit.shell("echo right > a.txt")]),
            Step("Now it is done."),
        )
        site.run(code=20)
        assert site.task.state is TaskState.PENDING_APPROVAL and len(site.model.requests) == 2
        before, candidate = site.model.requests[-1], site.task.candidate
        send_back(site)
        site.run(code=20)
        first, last = site.model.requests[2], site.model.requests[-1]
        assert not before.has("Nearly there.")
        expect_comments(first)
        assert first.has("marker-42") and first.has("It is done."), "the conversation is not the same"
        if kit.keeps:
            assert talk(first)[: len(talk(before))] == talk(before), "the conversation was not continued"
            assert len({turn["session"] for turn in site.records("turns")}) == 1
        assert last.has("Nearly there.") and site.task.state is TaskState.PENDING_APPROVAL
        assert site.task.attempts == 1 and site.task.start.number == 2 and site.task.candidate != candidate
        shown = json.loads(site.holdfast("review", "T", "--json"))
        assert [each["touched"] for each in shown["last"]["comments"]] == [True, True]
        site.holdfast("approve", "T")
        site.run()
        assert site.task.state is TaskState.CLOSED and site.landed() == "right" and site.task.attempts == 1
        site.sound()
