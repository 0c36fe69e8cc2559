"""A run in which no agent can work does what else there is to do, and says that tasks are left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import wiring
from holdfast.app import App
from holdfast.wiring import run_context
from kit.forge_double import TOKEN, ForgeDouble
from kit.program import QUICK, holdfast
from kit.project import add, layout, settings, state
from kit.pull_double import TOKEN as PULL_TOKEN
from kit.pull_project import with_remote
from kit.receiver import publishers, queue, received

TRIGGERS = """\
sources:
  nightly: {type: cron, schedule: "0 3 * * *"}
rules:
- name: nightly
  on: {source: nightly}
  task: {title: Nightly, script: say done}
"""
GHOST: dict[str, Any] = {"agent": "ghost", "agents": [{"name": "ghost", "command": ["no-such-program"]}]}


def without_agent(repo: Path, **more: Any) -> None:
    settings(repo, **GHOST, **more)
    (layout(repo).backlog_open / "two.yaml").write_text("id: two\ngoal: two\n")


def expect_begun_without_agent(told: str) -> None:
    assert "No agent can work here: " in told and "no-such-program" in told and "two is open" in told


def test_a_run_without_an_agent_sends_what_waits(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "build_publishers", lambda *_: publishers(tmp_path / "inbox"))
    without_agent(repo)
    with run_context(App.find(repo, environ=QUICK), works=False) as context:
        queue(context, "late")
    expect_begun_without_agent(holdfast(repo, "run", code=20))
    assert received(tmp_path / "inbox") == {"late": 1}
    # Nothing but a task without an agent is left.
    assert "No agent can work here" in holdfast(repo, "run", code=2)


def test_a_run_without_an_agent_closes_what_was_merged_meanwhile(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULL_TOKEN", PULL_TOKEN)
    with with_remote(repo, "github") as double:
        add(repo, "one", "write one.txt 1")
        holdfast(repo, "run", code=20)
        kept = msgspec.yaml.decode(layout(repo).settings.read_bytes())
        without_agent(repo, **kept)
        double.merge(1)
        expect_begun_without_agent(holdfast(repo, "run", code=20))
        assert state(repo).tasks["one"].state == "CLOSED"


def test_a_run_without_an_agent_asks_the_trackers(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGE_TOKEN", TOKEN)
    with ForgeDouble() as forge:
        without_agent(repo, sources=[forge.source(label="agent")])
        number = forge.open("Write a", "Write it.", labels=["agent"])
        expect_begun_without_agent(holdfast(repo, "run", code=20))
        assert state(repo).tasks[f"gh-{number}"].state == "OPEN"


def test_a_run_without_an_agent_listens_to_triggers(repo: Path) -> None:
    without_agent(repo)
    layout(repo).triggers.write_text(TRIGGERS)
    expect_begun_without_agent(holdfast(repo, "run", code=20))
    # A goal that nobody can work on is refused all the same.
    assert "The goal is kept" in holdfast(repo, "run", "fix the login page", code=2)
