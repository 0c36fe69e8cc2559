"""The rows of the matrix about time: a suspend that is longer than the heartbeat, and a day between two runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.domain.task import TaskState
from kit.model_server import Step
from real_agents.kits import Kit
from real_agents.site import DAY_S, GATE, suspended, talk, timed


@pytest.mark.row("suspended")
def test_an_agent_suspended_for_longer_than_the_heartbeat_continues(kit: Kit, tmp_path: Path) -> None:
    site, clock = timed(tmp_path, kit)
    with site:
        site.add(verify=GATE)
        site.model.then(Step("First.", [kit.shell("echo right > a.txt; echo x >> b.txt")]), Step("Done.", hold=True))
        suspended(site, clock)
        assert site.task.state is TaskState.CLOSED and (site.task.start.number, site.task.attempts) == (1, 1)
        assert len(site.model.requests) == 2 and site.landed("b.txt") == "x"
        site.sound()


@pytest.mark.row("later")
def test_a_stopped_agent_continues_its_conversation_a_day_later(kit: Kit, tmp_path: Path) -> None:
    site, clock = timed(tmp_path, kit)
    with site:
        site.add(verify=GATE)
        site.model.then(
            Step("First.", [kit.shell("echo right > a.txt; echo x >> b.txt; printf 'marker-%d' 052")]),
            Step("Never heard.", hold=True),
            Step("Again.", [kit.shell("echo second > c.txt")]),
            Step("Done."),
        )
        run = site.begin()
        site.until(lambda: site.model.is_holding, "the second answer")
        site.until(lambda: site.records("turns"), "the first turn")
        site.until(lambda: not kit.keeps or site.is_in_home("marker-42"), "the conversation on disk")
        site.holdfast("stop", "--agents")
        run.communicate()
        assert site.task.state is TaskState.OPEN and site.task.continues
        site.pass_minute()
        clock.later(DAY_S)
        site.finished(site.begin())
        _, second, third = site.model.requests[:3]
        if kit.keeps:
            before = talk(second)
            assert talk(third)[: len(before)] == before, "the conversation was not continued"
        assert third.has("marker-42") and third.has("First."), "what was done before was not told"
        task = site.task
        assert (task.state, task.start.number, task.attempts, task.attempt.resumes) == (TaskState.CLOSED, 2, 1, 0)
        assert site.landed("b.txt") == "x" and site.landed("c.txt") == "second"
        site.sound()
