"""The rows of the matrix, each for every CLI: the real program, a real `holdfast run`, a real repository."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

import pytest

from holdfast.domain.task import TaskState
from holdfast.domain.wording import plain
from kit.git import git
from kit.model_server import Step
from real_agents.kits import ALL_KITS, Kit
from real_agents.site import GATE, Site, talk


@functools.cache
def done(name: str, sandbox: str) -> Site:
    """One task that went well, for every row that only looks at it. Its folder goes when the tests end."""
    kit = next(each for each in ALL_KITS if each.name == name)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-agent-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    site = Site(folder, kit, sandbox=sandbox)
    file = site.add(verify=GATE)
    site.model.then(
        Step("I write the file. Grüße! ✓", [kit.edit(file, "right\n")], usage=(1000, 50), chunk=1),
        Step("I look at it.", [kit.shell("cat a.txt && echo more >> b.txt")], usage=(1200, 20)),
        Step("It is done.", usage=(1300, 5)),
    )
    with site:
        site.told = site.run()  # type: ignore[attr-defined]
    return site


@pytest.mark.row("lands")
def test_a_task_lands(kit: Kit, sandbox: str) -> None:
    site = done(kit.name, sandbox)
    assert site.task.state is TaskState.CLOSED and site.task.start.number == 1
    assert site.landed() == "right" and site.landed("b.txt") == "more"
    assert site.model.left == 0 and len(site.model.requests) == 3
    site.sound()


@pytest.mark.row("turns")
def test_each_tool_call_is_a_turn_with_its_snapshot(kit: Kit, sandbox: str) -> None:
    site = done(kit.name, sandbox)
    turns, provenance = site.records("turns"), site.records("provenance")
    assert [turn["files"] for turn in turns] == [["a.txt"], ["b.txt"]]
    trees = [set(git(site.repo, "ls-tree", "--name-only", turn["snapshot"]).splitlines()) for turn in turns]
    assert "a.txt" in trees[0] and "b.txt" not in trees[0] and {"a.txt", "b.txt"} <= trees[1]
    assert [(each["file"], each["turn"], each["snapshot"]) for each in provenance] == [
        ("a.txt", 1, turns[0]["snapshot"]),
        ("b.txt", 2, turns[1]["snapshot"]),
    ]
    traces = site.records("traces")
    assert any("Grüße! ✓" in each.get("text", "") for each in traces)
    assert any("right" in each.get("output", "") for each in traces if each["kind"] == "tool")
    assert site.task.spent.turns == 2


@pytest.mark.row("spend")
def test_the_spend_is_what_the_server_counted(kit: Kit, sandbox: str) -> None:
    site = done(kit.name, sandbox)
    counted_in, counted_out = _counted(site)
    into, out, usd = site.spent()
    assert (into, out) == (counted_in, counted_out) and (into, out) >= (3500, 75)
    assert usd == pytest.approx(kit.usd(into, out)) and usd > 0
    assert site.task.spent.tokens == into + out and site.task.spent.usd == pytest.approx(usd)


def _counted(site: Site) -> tuple[int, int]:
    aside = site.model.counted_aside if site.kit.counts_aside else (0, 0)
    return site.model.counted[0] + aside[0], site.model.counted[1] + aside[1]


def expect_counted(site: Site, *, by: tuple[str, ...] = ("always",)) -> None:
    """What the agent reports is what the server counted, where it reports that of this test."""
    if site.kit.counts in by:
        assert site.spent()[:2] == _counted(site)


@pytest.mark.row("adopted")
def test_a_killed_orchestrator_is_replaced_and_the_agent_goes_on(kit: Kit, tmp_path: Path) -> None:
    with Site(tmp_path, kit) as site:
        file = site.add(verify=GATE)
        long = " ".join(f"word {number}" for number in range(400))
        site.model.then(Step("First.", [kit.edit(file, "right\n")]), Step(long, hold=True, hold_after=2))
        site.finish_without_its_orchestrator()
        assert site.task.state is TaskState.CLOSED and site.task.start.number == 1
        assert len(site.model.requests) == 2 and site.landed() == "right"
        expect_counted(site, by=("always", "prompts"))
        site.sound()


@pytest.mark.row("resumed")
def test_a_killed_agent_is_resumed_by_its_conversation(kit: Kit, tmp_path: Path) -> None:
    with Site(tmp_path, kit) as site:
        file = site.add(verify=GATE)
        site.model.then(
            Step("First.", [kit.shell("echo right > a.txt; printf 'marker-%d' 052")]),
            Step("Never heard.", hold=True),
            Step("Again.", [kit.shell("echo second > b.txt")]),
            Step("Done."),
        )
        run = site.begin()
        site.until(lambda: site.model.is_holding, "the second answer")
        site.until(lambda: site.records("turns"), "the first turn")
        # A CLI may write its conversation a moment later than it goes on with it.
        site.until(lambda: not kit.keeps or site.is_in_home("marker-42"), "the conversation on disk")
        site.kill_agent()
        site.finished(run)
        first, second, third = site.model.requests[:3]
        assert not first.has("marker-42") and second.has("marker-42"), "the tool's result was not sent"
        if kit.keeps:
            assert second.results and third.results[: len(second.results)] == second.results
            before, now = talk(second), talk(third)
            assert now[: len(before)] == before, "the conversation was not continued"
            assert len(now) > len(before), "it was not told why it goes on"
        assert third.has("marker-42") and third.has("First."), "what was done before was not told"
        assert site.task.state is TaskState.CLOSED and site.task.start.number == 2 and site.task.attempts == 1
        refs = git(site.repo / ".sdd" / "snapshots.git", "for-each-ref", "--format=%(refname)", "refs/attempts/T.1")
        assert "orphan-1" in refs and file.name in git(site.repo, "ls-tree", "--name-only", "main")
        expect_counted(site)
        site.sound()


@pytest.mark.row("resumed")
def test_half_done_work_of_a_killed_agent_is_put_back(kit: Kit, tmp_path: Path) -> None:
    with Site(tmp_path, kit) as site:
        site.add(verify=GATE)
        site.model.then(
            Step("First.", [kit.shell("echo right > a.txt")]),
            Step("Second.", [kit.shell("echo half > half.txt; echo wrong > a.txt; touch begun; sleep 300")]),
            Step("Done."),
        )
        run = site.begin()
        site.until((site.layout.worktree("T") / "begun").exists, "the second tool at work")
        assert len(site.records("turns")) == 1
        site.kill_agent()
        site.finished(run)
        assert site.task.state is TaskState.CLOSED and site.task.start.number == 2 and site.task.attempts == 1
        found, store = "refs/attempts/T.1/orphan-1", site.layout.snapshots
        assert git(store, "show", f"{found}:half.txt") == "half", "what was found is not kept"
        assert git(store, "show", f"{found}:a.txt") == "wrong"
        assert "half.txt" not in git(site.repo, "ls-tree", "--name-only", "main") and site.landed() == "right"
        site.sound()


@pytest.mark.row("woken")
def test_a_failed_gate_wakes_the_same_conversation(kit: Kit, tmp_path: Path) -> None:
    with Site(tmp_path, kit) as site:
        file = site.add(verify=[{"command": "grep right a.txt || { echo it-is-$((41 + 1)); false; }"}])
        site.model.then(
            Step("First.", [kit.shell("echo wrong > a.txt; printf 'marker-%d' 052")]),
            Step("I think it is done."),
            Step("Oh.", [kit.shell("echo right > a.txt")]),
            Step("Now it is done."),
        )
        site.run()
        third = site.model.requests[2]
        assert third.has("marker-42") and third.has("I think it is done."), "the conversation is not the same"
        assert third.has("it-is-42"), "the gate's output was not told"
        assert site.task.state is TaskState.CLOSED and site.task.attempts == 2 and site.landed() == "right"
        assert file.parent == site.layout.worktree("T")
        expect_counted(site, by=("always", "prompts"))
        site.sound()


@pytest.mark.row("limited")
def test_a_rate_limit_is_waited_for(kit: Kit, tmp_path: Path) -> None:
    with Site(tmp_path, kit, rate_limit_pause_s=kit.pause_s) as site:
        file = site.add(verify=GATE)
        site.model.then(Step("First.", [kit.edit(file, "right\n")]), kit.limit, Step("Done."))
        site.finish_after_a_pause()
        assert [each.is_limited for each in site.model.requests[:2]] == [False, True]
        assert site.task.state is TaskState.CLOSED and site.landed() == "right"
        expect_counted(site)
        site.sound()


@pytest.mark.row("failures")
def test_without_a_sign_in_the_task_fails_at_once(kit: Kit, tmp_path: Path) -> None:
    with Site(tmp_path, kit) as site:
        site.add()
        for name in kit.secrets:
            del site.environ[name]
        told = site.run(code=20)
        assert "not signed in" in told and "try the task again" in told
        assert site.task.state is TaskState.FAILED and site.task.attempts == 1 and not site.task.again
        assert site.task.outcome["kind"] == "auth_missing" and not site.model.requests


@pytest.mark.row("failures")
def test_a_key_that_is_refused_is_told(kit: Kit, tmp_path: Path) -> None:
    with Site(tmp_path, kit, [Step(status=401, error="invalid key", again=True)]) as site:
        site.add()
        assert "not signed in" in site.run(code=20)
        assert site.task.state is TaskState.FAILED and site.task.attempts == 1


@pytest.mark.row("failures")
def test_a_missing_program_is_told_before_anything_starts(kit: Kit, tmp_path: Path) -> None:
    with Site(tmp_path, kit) as site:
        site.add()
        site.path = ["/usr/bin", "/bin"]
        told = site.run(code=None)
        assert "is not installed" in told and "install" in told
        assert not site.layout.worktree("T").exists()


@pytest.mark.row("failures")
def test_a_refusal_is_a_failed_attempt(kit: Kit, tmp_path: Path) -> None:
    with Site(tmp_path, kit, [Step("I cannot help with that.", refused=True, again=True)], max_attempts=2) as site:
        site.add()
        assert "refused" in site.run(code=20)
        assert site.task.state is TaskState.FAILED and site.task.attempts == 2
        assert site.task.outcome["kind"] == "refused"


@pytest.mark.row("failures")
def test_a_malformed_answer_is_a_failed_attempt(kit: Kit, tmp_path: Path) -> None:
    with Site(tmp_path, kit, [Step(garbage=b"\x00\xff{}{not a stream", again=True)], max_attempts=1) as site:
        site.add()
        told = site.run(code=20)
        assert site.task.state is TaskState.FAILED and site.task.outcome["kind"] == "failed", told
        assert plain(site.task.outcome["detail"]) in told and site.task.outcome["detail"]


@pytest.mark.row("failures")
def test_garbage_from_the_program_is_a_failed_attempt(kit: Kit, tmp_path: Path) -> None:
    with Site(tmp_path, kit, max_attempts=1) as site:
        site.add()
        fake = tmp_path / "fake"
        fake.mkdir()
        program = fake / kit.command
        program.write_text("#!/bin/sh\nhead -c 300000 /dev/urandom\necho '{\"type\":'\n")
        program.chmod(0o755)
        site.path = [str(fake), *site.path]
        told = site.run(code=20)
        wanted = "does not speak the Agent Client Protocol" if kit.program else "before its last word"
        assert wanted in told and site.task.state is TaskState.FAILED
