"""Aider does a message with one answer: its rows of the matrix are those of the others with fewer steps.

An answer that names a file of the repository gets that file, and so is followed by another one: README.md is that here.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import pytest

from holdfast.domain.task import TaskState
from kit.git import git
from kit.model_server import Call, Step
from real_agents.kits import AIDER, Kit
from real_agents.people import LINES, WORDS, expect_comments, send_back
from real_agents.site import DAY_S, GATE, Site, suspended, timed

ONLY = (AIDER,)


@functools.cache
def done(sandbox: str) -> Site:
    site = Site(Path(tempfile.mkdtemp(prefix="holdfast-agent-")), AIDER, sandbox=sandbox)
    file = site.add(verify=GATE)
    edits = [AIDER.edit(file, "right\n"), AIDER.edit(file.with_name("b.txt"), "more\n")]
    site.model.then(
        Step("I want to see README.md. Grüße! ✓", usage=(1000, 50), chunk=1),
        Step("I write the files.", edits, usage=(1200, 20)),
    )
    with site:
        site.run()
    return site


@pytest.mark.row("lands")
def test_a_task_lands(kit: Kit, sandbox: str) -> None:
    site = done(sandbox)
    assert site.task.state is TaskState.CLOSED and site.task.start.number == 1
    assert site.landed() == "right" and site.landed("b.txt") == "more"
    assert site.model.left == 0 and len(site.model.requests) == 2
    assert git(site.repo, "ls-tree", "--name-only", "main").split() == [".gitignore", "README.md", "a.txt", "b.txt"]
    assert not site.layout.worktree("T").exists(), "something that is no work was left in it"
    site.sound()


@pytest.mark.row("turns")
def test_the_edits_of_an_answer_are_a_turn_with_its_snapshot(kit: Kit, sandbox: str) -> None:
    site = done(sandbox)
    (turn,), provenance = site.records("turns"), site.records("provenance")
    assert turn["files"] == ["a.txt", "b.txt"] and turn["tool"] == "edit"
    assert {"a.txt", "b.txt"} <= set(git(site.repo, "ls-tree", "--name-only", turn["snapshot"]).splitlines())
    assert [(each["file"], each["snapshot"]) for each in provenance] == [
        ("a.txt", turn["snapshot"]),
        ("b.txt", turn["snapshot"]),
    ]
    assert any("Grüße! ✓" in each.get("text", "") for each in site.records("traces"))


@pytest.mark.row("spend")
def test_the_spend_is_what_the_server_counted(kit: Kit, sandbox: str) -> None:
    site = done(sandbox)
    into, out, usd = site.spent()
    assert (into, out) == site.model.counted == (2200, 70)
    assert usd == pytest.approx(kit.usd(into, out)) and site.task.spent.usd == pytest.approx(usd)


@pytest.mark.row("adopted")
def test_a_killed_orchestrator_is_replaced_and_the_agent_goes_on(kit: Kit, tmp_path: Path) -> None:
    with Site(tmp_path, kit) as site:
        file = site.add(verify=GATE)
        site.model.then(
            Step("I look at README.md."), Step("Now.", [kit.edit(file, "right\n")], hold=True, hold_after=1)
        )
        site.finish_without_its_orchestrator()
        assert site.task.state is TaskState.CLOSED and site.task.start.number == 1
        assert len(site.model.requests) == 2 and site.landed() == "right"
        assert site.spent()[:2] == site.model.counted
        site.sound()


@pytest.mark.row("suspended")
def test_an_agent_suspended_for_longer_than_the_heartbeat_continues(kit: Kit, tmp_path: Path) -> None:
    site, clock = timed(tmp_path, kit)
    with site:
        file = site.add(verify=GATE)
        site.model.then(
            Step("I look at README.md."), Step("Now.", [kit.edit(file, "right\n")], hold=True, hold_after=1)
        )
        suspended(site, clock)
        assert site.task.state is TaskState.CLOSED and (site.task.start.number, site.task.attempts) == (1, 1)
        assert len(site.model.requests) == 2 and site.landed() == "right"
        site.sound()


@pytest.mark.row("later")
def test_a_stopped_agent_continues_a_day_later_and_learns_what_it_did(kit: Kit, tmp_path: Path) -> None:
    site, clock = timed(tmp_path, kit)
    with site:
        file = site.add(verify=GATE)
        wrong = kit.edit(file.with_name("a.py"), "def f(:\n")
        site.model.then(
            Step("First-4711.", [wrong]),
            Step("Never heard.", hold=True),
            Step("Again.", [kit.edit(file, "right\n")]),
        )
        run = site.begin()
        site.until(lambda: site.model.is_holding, "the second answer")
        site.until(lambda: site.records("turns"), "the first turn")
        site.holdfast("stop", "--agents")
        run.communicate()
        clock.later(DAY_S)
        site.finished(site.begin())
        third, task = site.model.requests[2], site.task
        assert third.has("You said: First-4711."), "its history was not told"
        assert (task.state, task.start.number, task.attempts, task.attempt.resumes) == (TaskState.CLOSED, 2, 1, 0)
        site.sound()


@pytest.mark.row("resumed")
def test_a_killed_agent_is_told_what_it_did(kit: Kit, tmp_path: Path) -> None:
    """It keeps no conversation that can be continued after a kill: the prompt has its history from the traces."""
    with Site(tmp_path, kit) as site:
        file = site.add(verify=GATE)
        # Its linter finds the error, and asks the model again.
        wrong = kit.edit(file.with_name("a.py"), "def f(:\n")
        site.model.then(
            Step("First-4711.", [wrong]),
            Step("Never heard.", hold=True),
            Step("Again.", [kit.edit(file, "right\n")]),
        )
        run = site.begin()
        site.until(lambda: site.model.is_holding, "the second answer")
        site.until(lambda: site.records("turns"), "the first turn")
        site.kill_agent()
        site.finished(run)
        first, _, third = site.model.requests[:3]
        assert not first.has("First-4711.") and third.has("You said: First-4711."), "its history was not told"
        assert third.has("Applied edit to a.py")
        assert site.task.state is TaskState.CLOSED and site.task.start.number == 2 and site.task.attempts == 1
        refs = git(site.repo / ".sdd" / "snapshots.git", "for-each-ref", "--format=%(refname)", "refs/attempts/T.1")
        assert "orphan-1" in refs and "a.py" in git(site.repo, "ls-tree", "--name-only", "main")
        assert site.spent()[:2] == site.model.counted
        site.sound()


@pytest.mark.row("woken")
def test_a_failed_gate_is_told_with_the_history(kit: Kit, tmp_path: Path) -> None:
    with Site(tmp_path, kit) as site:
        file = site.add(verify=[{"command": "grep right a.txt || { echo it-is-$((41 + 1)); false; }"}])
        mended = "a.txt\n```\n<<<<<<< SEARCH\nwrong\n=======\nright\n>>>>>>> REPLACE\n```\n"
        site.model.then(Step("I think it is done.", [kit.edit(file, "wrong\n")]), Step("Oh.", [Call("", text=mended)]))
        site.run()
        second = site.model.requests[1]
        assert second.has("You said: I think it is done."), "its history was not told"
        assert second.has("it-is-42"), "the gate's output was not told"
        assert site.task.state is TaskState.CLOSED and site.task.attempts == 2 and site.landed() == "right"
        assert site.spent()[:2] == site.model.counted
        site.sound()


MENDED = "a.txt\n```\n<<<<<<< SEARCH\n{before}\n=======\nright\n>>>>>>> REPLACE\n```\n"


@pytest.mark.row("told")
def test_a_message_while_it_works_follows_its_answer_with_the_history(kit: Kit, tmp_path: Path) -> None:
    """Its turn ends with its answer, and so does it: the message wakes it."""
    with Site(tmp_path, kit) as site:
        file = site.add(verify=GATE)
        second = Step("I see.", [kit.edit(file.with_name("b.txt"), "more\n")])
        site.model.then(Step("First-4711.", [kit.edit(file, "right\n")], hold=True), second)
        run = site.begin()
        site.until(lambda: site.model.is_holding, "the first answer")
        site.holdfast("tell", "T", WORDS)
        site.model.release()
        site.finished(run)
        told = site.model.requests[1]
        assert told.has(WORDS) and told.has("You said: First-4711."), "its history was not told"
        assert site.task.state is TaskState.CLOSED and site.task.attempts == 1 and site.task.told == ()
        assert site.landed() == "right" and site.landed("b.txt") == "more"
        site.sound()


@pytest.mark.row("told_later")
@pytest.mark.parametrize("after", ["approval", "failure"])
def test_a_message_when_it_has_ended_comes_with_the_history(kit: Kit, tmp_path: Path, after: str) -> None:
    with Site(tmp_path, kit) as site:
        file = site.add(verify=GATE, max_attempts=1, approve=after == "approval")
        first = "right" if after == "approval" else "wrong"
        again = [kit.edit(file.with_name("b.txt"), "more\n")]
        again += [Call("", text=MENDED.format(before=first))] if first == "wrong" else []
        site.model.then(Step("First-4711.", [kit.edit(file, f"{first}\n")]), Step("I see.", again))
        site.run(code=20)
        site.holdfast("tell", "T", WORDS) if after == "approval" else site.holdfast("resume", "T", "--message", WORDS)
        site.run(code=None)
        told = site.model.requests[1]
        assert told.has(WORDS) and told.has("You said: First-4711."), "its history was not told"
        if after == "approval":
            site.holdfast("approve", "T")
            site.run()
        assert site.task.state is TaskState.CLOSED and site.task.attempts == 1
        assert site.landed() == "right" and site.landed("b.txt") == "more"
        site.sound()


@pytest.mark.row("sent_back")
def test_a_review_that_is_sent_back_comes_with_the_history(kit: Kit, tmp_path: Path) -> None:
    with Site(tmp_path, kit) as site:
        file = site.add(verify=GATE, approve=True)
        before = "\n".join(LINES)
        mended = Step("Oh.", [Call("", text=MENDED.format(before=before))])
        site.model.then(Step("First-4711.", [kit.edit(file, f"{before}\n")]), mended)
        site.run(code=20)
        send_back(site)
        site.run(code=20)
        told = site.model.requests[1]
        expect_comments(told)
        assert told.has("You said: First-4711."), "its history was not told"
        site.holdfast("approve", "T")
        site.run()
        assert site.task.state is TaskState.CLOSED and site.landed() == "right" and site.task.attempts == 1
        site.sound()


@pytest.mark.row("limited")
def test_a_rate_limit_is_waited_for(kit: Kit, tmp_path: Path) -> None:
    with Site(tmp_path, kit, rate_limit_pause_s=kit.pause_s) as site:
        file = site.add(verify=GATE)
        site.model.then(kit.limit, Step("Now.", [kit.edit(file, "right\n")]))
        site.finish_after_a_pause()
        assert len(site.model.requests) == 2 and site.spent()[:2] == site.model.counted
        assert site.task.state is TaskState.CLOSED and site.landed() == "right"
        site.sound()


@pytest.mark.row("failures")
def test_a_refusal_is_a_failed_attempt(kit: Kit, tmp_path: Path) -> None:
    """Aider does not look at how an answer ended, only at a server that refuses."""
    step = Step(status=400, error="invalid_request_error: content_policy_violation", again=True)
    with Site(tmp_path, kit, [step], max_attempts=2) as site:
        site.add()
        assert "refused" in site.run(code=20)
        assert site.task.state is TaskState.FAILED and site.task.attempts == 2
        assert site.task.outcome["kind"] == "refused" and len(site.model.requests) <= 4


def test_no_call_is_made_beside_the_work_of_which_it_does_not_tell_the_cost(kit: Kit, tmp_path: Path) -> None:
    """Behind a long message Aider would have another model summarise it, and count that nowhere."""
    with Site(tmp_path, kit) as site:
        file = site.add(goal="Write a.txt. " + "All of these words matter to the work. " * 3000, verify=GATE)
        site.model.then(Step("I write it.", [kit.edit(file, "right\n")], usage=(30_000, 50)))
        site.run()
        assert site.task.state is TaskState.CLOSED and site.landed() == "right"
        assert len(site.model.requests) == 1 and site.spent()[:2] == (30_000, 50) == site.model.counted
