"""Rows of the matrix: a model that cannot be reached, and an account that may use no more for some hours."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.domain.fsm import Reason
from holdfast.domain.task import TaskState
from kit.clock import SetClock
from kit.model_server import Step
from kit.tls import untrusted
from real_agents.kits import Kit
from real_agents.site import GATE, Site

HOW = {
    "refused": Step("It is never heard.", hold=True, drop_after=0),
    "reset": Step(reset=True, again=True),
    "503": Step(status=503, error="overloaded", again=True),
    "529": Step(status=529, error="Overloaded", again=True),
}
HOURS_S = 2 * 3600.0


def opened(tmp_path: Path) -> Path:
    """A folder that no snapshot holds and no rollback undoes, and in which a confined agent may write, too."""
    folder = tmp_path / "opened"
    folder.mkdir()
    return folder


def begin(site: Site, kit: Kit, beside: Path, trouble: Step) -> None:
    """A first answer whose command leaves a trace beside the worktree; one that runs no commands has trouble first."""
    file = site.add(verify=GATE)
    once = f"echo right > a.txt; echo once >> {beside}; printf 'marker-%d' 052"
    first = [Step("First.", [kit.shell(once)])] if kit.has_tools else []
    last = Step("Done.") if kit.has_tools else Step("I write.", [kit.edit(file, "right\n")])
    site.model.then(*first, Step(**vars(trouble)), last)


def expect_it_went_on(site: Site, kit: Kit, beside: Path) -> None:
    task, last = site.task, site.model.requests[-1]
    assert task.state is TaskState.CLOSED and site.landed() == "right"
    assert task.attempts == 1 and task.start.number >= 2 and not site.state.outages
    if kit.has_tools:
        assert beside.read_text() == "once\n", "it was done twice"
        assert last.has("marker-42") and last.has("First."), "the conversation is not the same"
    if kit.keeps:
        second = site.model.requests[1]
        assert second.results and last.results[: len(second.results)] == second.results
    site.sound()


@pytest.mark.row("unreachable")
@pytest.mark.parametrize("how", HOW)
def test_an_unreachable_model_is_waited_for(kit: Kit, tmp_path: Path, how: str) -> None:
    limits = {"retry_timeout_s": 5.0, "outage_pause_s": 1.0, "outage_pause_max_s": 4.0}
    beside = opened(tmp_path) / "trace"
    with Site(tmp_path, kit, sandbox_writable=[str(beside.parent)], **limits) as site:
        begin(site, kit, beside, HOW[how])
        run = site.begin()
        if how == "refused":
            site.until(lambda: site.model.is_holding, "the request")
            site.model.go_down()
            site.model.release()
        site.until(lambda: site.state.outages, "the pause")
        (outage,) = site.state.outages.values()
        assert outage.agent == kit.name and outage.reason == Reason.UNREACHABLE
        assert f"{kit.name}" in site.holdfast("status") and "is unreachable since" in site.holdfast("status")
        site.until(lambda: site.task.start.number >= 2, "the next try")
        if how == "refused":
            site.model.come_back()
        else:
            site.model.skip()
        site.finished(run)
        expect_it_went_on(site, kit, beside)


@contextlib.contextmanager
def _not_there(how: str, site: Site) -> Iterator[str]:
    """The address of a model of which there is no name, which does not speak TLS, or whom nobody vouches for."""
    port = site.model.url.rpartition(":")[2]
    if how == "no_name":
        yield "http://model.invalid"
    elif how == "no_tls":
        yield f"https://127.0.0.1:{port}"
    else:
        with untrusted(site.top) as url:
            yield url


@pytest.mark.row("unreachable")
@pytest.mark.parametrize("how", ["no_name", "no_tls", "untrusted"])
def test_a_name_or_a_certificate_that_fails_is_an_outage(kit: Kit, tmp_path: Path, how: str) -> None:
    limits = {"retry_timeout_s": 5.0, "outage_pause_s": 1.0, "outage_pause_max_s": 4.0}
    with Site(tmp_path, kit, **limits) as site, _not_there(how, site) as url:
        site.model.then(Step("I write.", [kit.edit(site.add(verify=GATE), "right\n")]), Step("Done."))
        site.reach(url)
        run = site.begin()
        site.until(lambda: site.state.tasks and (site.task.not_before or site.task.past), "the pause")
        (outage,) = site.state.outages.values()
        assert outage.agent == kit.name and outage.reason == Reason.UNREACHABLE
        assert site.task.attempts == 1 and not site.task.past and site.task.cause, site.output()
        run.kill()
        run.wait()
        site.reach(site.model.url)
        site.finished(site.begin())
        assert site.task.state is TaskState.CLOSED and site.landed() == "right" and site.task.attempts == 1
        site.sound()


@pytest.mark.row("usage")
def test_a_usage_limit_is_waited_for_until_its_reset(kit: Kit, tmp_path: Path) -> None:
    clock, beside = SetClock(tmp_path), opened(tmp_path) / "trace"
    with Site(tmp_path, kit, rate_limit_pause_s=10.0, sandbox_writable=[str(beside.parent)]) as site:
        site.environ |= {**clock.env, **kit.account}
        for name in kit.secrets if kit.account else ():
            del site.environ[name]
        reset = time.time() + HOURS_S
        begin(site, kit, beside, kit.usage_limit(reset))
        run = site.begin()
        site.until(lambda: site.state.tasks and site.task.not_before, "the pause")
        # A server may say how long it lasts from the request on, and a CLI the time of day without its seconds.
        asked = [each.at for each in site.model.requests if each.is_limited]
        first, last = min(reset, asked[0] + HOURS_S), max(reset, asked[-1] + HOURS_S)
        assert first - 90 <= site.task.not_before <= last + 90, site.task
        assert time.strftime("%Y-%m-%d %H:", time.gmtime(site.task.not_before)) in site.holdfast("status")
        assert site.task.start.number == 1 and site.task.attempts == 1
        site.pass_minute()
        clock.later(HOURS_S + 120)
        site.model.skip()
        site.finished(run)
        expect_it_went_on(site, kit, beside)
