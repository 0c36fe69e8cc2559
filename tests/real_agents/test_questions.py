"""Questions that wait for a person, with the real programs: killed, answered while nobody runs, and started again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from kit.git import git
from kit.model_server import Call, Step
from kit.waiting import wait_for
from real_agents.kits import CLAUDE, CODEX, Kit
from real_agents.site import Site


def site_of(top: Path, kit: Kit, *steps: Step, **settings: object) -> Site:
    (entry,) = kit.settings.get("agents", [{"name": kit.name}])
    return Site(top, kit, steps, agents=[{**entry, "permissions": "ask"}], **settings)


@pytest.mark.row("asked")
@pytest.mark.parametrize("answer", [("--allow",), ("--deny", "the moon is full")], ids=["allowed", "denied"])
def test_a_call_is_made_once_or_not_at_all_when_its_orchestrator_was_killed_while_it_asked(
    kit: Kit, tmp_path: Path, answer: tuple[str, ...]
) -> None:
    (opened := tmp_path / "opened").mkdir()
    ran = opened / "ran.txt"
    steps = Step("Let me.", calls=[kit.shell(f"echo x >> {ran}; echo right > a.txt")]), Step("Done.")
    with site_of(tmp_path / "site", kit, *steps, sandbox_writable=[str(opened)]) as site:
        site.add(may_change_nothing=True)
        run = site.begin()
        (question,) = wait_for(lambda: site.questions())
        assert str(ran) in question["preview"] and not ran.exists()
        run.send_signal(signal.SIGKILL)
        run.wait()
        site.holdfast("answer", question["id"], *answer)
        site.model.then(Step("Done."))
        site.run()
        assert (ran.read_text() if ran.exists() else "") == ("x\n" if answer == ("--allow",) else "")
        assert site.task.state == "CLOSED"
        if answer != ("--allow",):
            assert any(request.has("the moon is full") for request in site.model.requests)
        site.holdfast("check")


def test_the_real_claude_asks_a_question_in_words_and_gets_the_answer(tmp_path: Path) -> None:
    options = [{"label": "red", "description": "r"}, {"label": "blue", "description": "b"}]
    call = Call(
        "AskUserQuestion",
        questions=[{"question": "Which colour?", "header": "Colour", "multiSelect": False, "options": options}],
    )
    steps = (Step("Let me ask.", calls=[call]), Step("Done."))
    with site_of(tmp_path / "site", CLAUDE, *steps) as site:
        site.add(may_change_nothing=True)
        site.run(code=20)
        (question,) = site.questions()
        assert (
            question["kind"] == "words" and "Which colour?" in question["preview"] and "- blue" in question["preview"]
        )
        site.holdfast("answer", question["id"], "--say", "the green one")
        site.run()
        assert site.model.requests[-1].has("the green one") and site.task.state == "CLOSED"


def test_calls_of_one_message_are_asked_about_one_by_one_with_the_real_claude(tmp_path: Path) -> None:
    ran = tmp_path / "ran.txt"
    one, two = CLAUDE.shell(f"echo 1 >> {ran}"), CLAUDE.shell(f"echo 2 >> {ran}")
    steps = (Step("Both.", calls=[one, two]), Step("One.", calls=[one]), Step("Done."))
    with site_of(tmp_path / "site", CLAUDE, *steps) as site:
        site.add(may_change_nothing=True)
        site.run(code=20)
        (question,) = site.questions()
        assert not ran.exists() and site.model.requests[1].has("as the only call")
        site.holdfast("answer", question["id"], "--allow")
        site.run()
        assert ran.read_text() == "1\n" and site.task.state == "CLOSED"


def test_rules_of_the_settings_are_kept_by_the_real_claude(tmp_path: Path) -> None:
    ran = tmp_path / "ran.txt"
    rules = [
        {"do": "allow", "tool": "Bash", "input": "echo yes > a.txt", "agent": "claude"},
        {"do": "deny", "tool": "Bash", "input": "*ran.txt*", "agent": "claude"},
    ]
    steps = (
        Step("No.", calls=[CLAUDE.shell(f"echo x >> {ran}")]),
        Step("Yes.", calls=[CLAUDE.shell("echo yes > a.txt")]),
        Step("Done."),
    )
    with site_of(tmp_path / "site", CLAUDE, *steps, permissions=rules) as site:
        site.add()
        site.run()
        assert not ran.exists() and git(site.repo, "show", "main:a.txt") == "yes"
        assert site.model.requests[1].has("rules of this project forbid")


@pytest.mark.parametrize("mode", ["ask"])
def test_an_agent_killed_while_the_real_codex_waits_is_not_asked_about_twice(tmp_path: Path, mode: str) -> None:
    ran = tmp_path / "ran.txt"
    call = CODEX.shell(f"echo x >> {ran}")
    with site_of(tmp_path / "site", CODEX, Step("Let me.", calls=[call])) as site:
        site.add(may_change_nothing=True)
        run = site.begin()
        (question,) = wait_for(lambda: site.questions())
        site.kill_agent()
        site.finished(run, code=20)
        assert [each["id"] for each in site.questions()] == [question["id"]] and not ran.exists()
        site.holdfast("answer", question["id"], "--allow")
        # The resumed conversation makes the same call again.
        site.model.then(Step("Again.", calls=[call]), Step("Done."))
        site.run()
        assert ran.read_text() == "x\n" and not site.questions() and site.task.state == "CLOSED"
