"""A row of the matrix: what a reviewer sends back reaches the model, in the same conversation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.domain.task import TaskState
from kit.model_server import Step
from real_agents.kits import Kit
from real_agents.people import LINES, expect_comments, send_back
from real_agents.site import GATE, Site, talk


@pytest.mark.row("sent_back")
def test_a_review_that_is_sent_back_reaches_the_same_conversation_and_lands(kit: Kit, tmp_path: Path) -> None:
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
