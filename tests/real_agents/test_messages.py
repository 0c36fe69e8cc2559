"""What a person tells a real agent reaches its model, in the same conversation: at work, waiting, after a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.domain.task import TaskState
from kit.model_server import Step
from real_agents.kits import Kit
from real_agents.people import WORDS
from real_agents.site import GATE, Site

# These get it from their hook, and go on in the same start.
HOOKED = ("claude", "opencode")


def expect_told(site: Site, before: int) -> None:
    """Not before so many requests, with all that was said before, and without another attempt."""
    asked = site.model.requests
    told = [each for each in asked if each.has(WORDS)]
    assert told and not any(each.has(WORDS) for each in asked[:before]) and asked[-1].has(WORDS)
    assert told[0].has("marker-42"), "the conversation is not the same"
    assert site.task.attempts == 1 and site.task.told == ()
    site.sound()


@pytest.mark.row("told")
def test_an_agent_at_work_is_told_after_its_turn(kit: Kit, tmp_path: Path) -> None:
    with Site(tmp_path, kit) as site:
        site.add(verify=GATE)
        site.model.then(
            Step("First.", [kit.shell("echo right > a.txt; echo once >> b.txt; printf 'marker-%d' 052")], hold=True),
            Step("I see.", [kit.shell("echo more >> c.txt")]),
            Step("Done."),
        )
        run = site.begin()
        site.until(lambda: site.model.is_holding, "the first answer")
        assert "at the end of its turn" in site.holdfast("tell", "T", WORDS)
        site.model.release()
        site.finished(run)
        expect_told(site, before=1)
        assert site.task.state is TaskState.CLOSED and site.landed("b.txt") == "once"
        assert site.task.start.number == (1 if kit.name in HOOKED else 2)
        # One without a hook may have asked its model once more before it was ended: that answer is lost.
        assert kit.name not in HOOKED or (site.task.attempt.turn == 2 and site.landed("c.txt") == "more")
        told = [each for each in site.records("events") if each["type"] == "told"]
        assert [each["text"] for each in told] == [WORDS]


@pytest.mark.row("told_later")
def test_a_result_that_waits_for_approval_goes_on_with_the_message(kit: Kit, tmp_path: Path) -> None:
    with Site(tmp_path, kit) as site:
        site.add(verify=GATE, approve=True)
        site.model.then(
            Step("First.", [kit.shell("echo right > a.txt; printf 'marker-%d' 052")]),
            Step("It is done."),
            Step("Oh.", [kit.shell("echo more >> c.txt")]),
            Step("Now it is done."),
        )
        site.run(code=20)
        assert site.task.state is TaskState.PENDING_APPROVAL
        site.holdfast("tell", "T", WORDS)
        site.run(code=20)
        expect_told(site, before=2)
        site.holdfast("approve", "T")
        site.run()
        assert site.landed() == "right" and site.landed("c.txt") == "more"


@pytest.mark.row("told_later")
def test_a_failed_attempt_goes_on_with_the_message(kit: Kit, tmp_path: Path) -> None:
    with Site(tmp_path, kit) as site:
        site.add(verify=GATE, max_attempts=1)
        site.model.then(
            Step("First.", [kit.shell("echo wrong > a.txt; printf 'marker-%d' 052")]),
            Step("It is done."),
            Step("Oh.", [kit.shell("echo right > a.txt")]),
            Step("Now it is done."),
        )
        site.run(code=20)
        assert site.task.state is TaskState.FAILED
        site.holdfast("resume", "T", "--message", WORDS)
        site.run()
        expect_told(site, before=2)
        assert site.landed() == "right"
