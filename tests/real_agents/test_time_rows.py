"""The rows of the matrix about time: a suspend that is longer than the heartbeat, and a day between two runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.domain.task import TaskState
from kit.clock import SetClock, suspend
from kit.model_server import Step
from real_agents.kits import Kit
from real_agents.site import Site
from real_agents.test_matrix import GATE, _talk

DAY_S = 86_400.0


def timed(tmp_path: Path, kit: Kit) -> tuple[Site, SetClock]:
    site, clock = Site(tmp_path, kit), SetClock(tmp_path)
    site.environ |= clock.env
    return site, clock


def suspended(site: Site, clock: SetClock) -> None:
    """All stand still while an answer is outstanding, for longer than the heartbeat may be; then it comes."""
    run = site.begin()
    site.until(lambda: site.model.is_holding, "an answer that is held")
    suspend(run, clock, 3600)
    signs = site.layout.attempt_files("T.1").alive
    before = signs.stat().st_mtime_ns
    site.until(lambda: signs.stat().st_mtime_ns != before, "a sign of life")
    site.model.release()
    site.finished(run)


@pytest.mark.row("suspended")
def test_who_was_suspended_for_longer_than_the_heartbeat_goes_on(kit: Kit, tmp_path: Path) -> None:
    site, clock = timed(tmp_path, kit)
    with site:
        site.add(verify=GATE)
        site.model.then(Step("First.", [kit.shell("echo right > a.txt; echo x >> b.txt")]), Step("Done.", hold=True))
        suspended(site, clock)
        assert site.task.state is TaskState.CLOSED and (site.task.starts, site.task.attempts) == (1, 1)
        assert len(site.model.requests) == 2 and site.landed("b.txt") == "x"
        site.sound()


@pytest.mark.row("later")
def test_who_was_stopped_goes_on_in_its_conversation_a_day_later(kit: Kit, tmp_path: Path) -> None:
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
        clock.later(DAY_S)
        site.finished(site.begin())
        _, second, third = site.model.requests[:3]
        if kit.keeps:
            before = _talk(second)
            assert _talk(third)[: len(before)] == before, "the conversation was not continued"
        assert third.has("marker-42") and third.has("First."), "what was done before was not told"
        task = site.task
        assert (task.state, task.starts, task.attempts, task.resumes) == (TaskState.CLOSED, 2, 1, 0)
        assert site.landed("b.txt") == "x" and site.landed("c.txt") == "second"
        site.sound()
