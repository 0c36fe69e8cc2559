"""What a runner does not take an agent's word for, and what is left of its secrets when it is killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.agents.common import hook
from holdfast.agents.runner import start_outcome
from holdfast.agents.runner.limits import Stop
from holdfast.domain.attempt_records import Ending, Exit, Launch
from holdfast.domain.task import TaskState
from holdfast.storage.records import attempt_folder
from kit.claude import BEGIN, END, began, claude, hooked, prints, result
from kit.program import begin, holdfast
from kit.project import add, layout, make_repo, settings, sound, state
from kit.runner import LIMITS, Bench
from kit.waiting import wait_for

# -- rate limits ------------------------------------------------------------------------------------------------------


def limited(**more: Any) -> Launch:
    reset = {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", **more}}
    return claude(BEGIN + prints(**reset))


def test_a_reset_that_is_over_is_none(bench: Bench) -> None:
    exit = bench.run(agent="claude", launch=limited(resetsAt=30))
    assert exit.ending is Ending.RATE_LIMITED and exit.until == 0.0
    assert any(each["type"] == "refused" for each in bench.records(bench.files.events))


def test_a_pause_of_no_use_is_followed_by_a_longer_one(bench: Bench) -> None:
    exits = [bench.run(agent="claude", launch=limited(resetsAt=30), start=start) for start in (1, 2, 3)]
    assert [each.until > each.at for each in exits] == [False, True, True]
    assert exits[1].until - exits[1].at >= start_outcome.PAUSE_S_MIN


@pytest.mark.parametrize(
    ("before", "until"),
    [
        (None, 0.0),
        (Exit("T.1", 3, Ending.RATE_LIMITED, "", at=900.0), 1180.0),
        (Exit("T.1", 3, Ending.RATE_LIMITED, "", at=1200.0), 1001.0),
        (Exit("T.1", 3, Ending.RATE_LIMITED, "", at=-1e6), 4600.0),
        (Exit("T.1", 3, Ending.CRASHED, "", at=900.0), 0.0),
        (Exit("T.1", 2, Ending.RATE_LIMITED, "", at=900.0), 0.0),
    ],
)
def test_a_wait_without_a_time_is_twice_as_long_as_the_last_one(before: Exit | None, until: float) -> None:
    verdict = Stop(Ending.RATE_LIMITED, "")
    assert start_outcome.not_so_soon(verdict, before, 4, 1000.0, worked_s=10.0).until == until
    later = Stop(Ending.RATE_LIMITED, "", until=9000.0)
    assert start_outcome.not_so_soon(later, before, 4, 1000.0, worked_s=10.0).until == 9000.0


def test_a_task_whose_reset_is_over_pauses_as_the_settings_say(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    script = f'echo x >> {tmp_path}/starts; echo \'{{"type": "limit", "reset": 30}}\'; sleep 60'
    events = {"rate_limited.when": "type=limit", "rate_limited.until": "reset"}
    settings(
        repo, rate_limit_pause_s=1000, agents=[{"name": "fake", "command": ["sh", "-c", script], "events": events}]
    )
    add(repo, "T", "say nothing", agent="fake")
    run = begin(repo)
    wait_for(lambda: bool(state(repo).tasks) and state(repo).tasks["T"].not_before > 0, "the pause")
    run.kill()
    run.wait()
    assert state(repo).tasks["T"].not_before > time.time() + 900
    assert (tmp_path / "starts").read_text() == "x\n"


# -- what it cost -----------------------------------------------------------------------------------------------------


def answer(tokens: int) -> str:
    began = {"type": "message_start", "message": {"model": "claude-opus-4-1", "usage": {"input_tokens": tokens}}}
    return prints(type="stream_event", event=began)


def paid(usd: float, tokens: int) -> str:
    used = {"claude-opus-4-1": {"inputTokens": tokens}}
    return prints(type="result", subtype="success", result="Done.", total_cost_usd=usd, modelUsage=used)


@pytest.mark.parametrize(("reported", "counted"), [(0.5, 1.5), (4.0, 4.0), (0.0, 1.5)])
def test_the_reported_cost_counts_and_never_less_than_was_counted(
    bench: Bench, reported: float, counted: float
) -> None:
    """The table says 1.5 dollars, before the turn and before the end. What an agent prints may be made up."""
    script = (
        BEGIN + answer(100_000) + began("1") + "echo 1 > one\n" + hooked("1") + result("1") + paid(reported, 100_000)
    )
    exit = bench.run(agent="claude", launch=claude(script))
    assert bench.turns()[0].usd == pytest.approx(1.5), "there was nothing to correct"
    spent = bench.records(bench.files.spend)
    assert sum(each["usd"] for each in spent) == pytest.approx(counted) == exit.spent.usd
    assert [each["estimated"] for each in spent] == [True, False]


# -- the hook's files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "made",
    ["mkfifo {}", "mkdir -p {}/below", "ln -s /dev/zero {}", "ln -s nothing {}", "truncate -s 9M {}", "echo no > {}"],
)
def test_no_name_in_its_folder_stops_the_runner(bench: Bench, made: str) -> None:
    odd = made.format('"$HOLDFAST_FILES/call-9.json"')
    gone = 'while [ -e "$HOLDFAST_FILES/call-9.json" ] || [ -L "$HOLDFAST_FILES/call-9.json" ]; do sleep 0.02; done\n'
    if made.startswith("mkdir"):
        gone = ""  # A folder is no call, and stays.
    script = BEGIN + began("1") + odd + "\n" + gone + "echo 1 > one\n" + hooked("1") + result("1") + END
    limits = msgspec.structs.replace(LIMITS, timeout_s=60.0)
    exit = bench.run(agent="claude", launch=claude(script), limits=limits)
    assert exit.ending is Ending.DONE, exit.detail
    assert [turn.files for turn in bench.turns()] == [["one"]]
    assert not hook.waiting(bench.files.agent)


# -- secrets ----------------------------------------------------------------------------------------------------------


def test_a_killed_runners_secrets_are_removed(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    programs = tmp_path / "bin"
    programs.mkdir()
    cli = programs / "claude"
    cli.write_text('#!/bin/sh\necho \'{"type":"system","subtype":"init","session_id":"s"}\'\nexec sleep 300\n')
    cli.chmod(0o755)
    settings(repo, agent="claude", max_resumes=0, max_attempts=1, grace_s=0.5)
    (layout(repo).root / "config" / "mcp_servers.yaml").write_text('docs: {command: x, env: {T: "${DOCS_TOKEN}"}}\n')
    add(repo, "T", "say nothing", agent="claude")
    env = {"DOCS_TOKEN": "hush", "PATH": f"{programs}:{os.environ['PATH']}"}
    run = begin(repo, **env)
    files = layout(repo).attempt_files("T.1")
    wait_for(lambda: files.events.exists() and b"session" in files.events.read_bytes(), "the agent at work")
    assert b"hush" in (files.agent / "mcp.json").read_bytes()
    run.kill()
    run.wait()
    running = attempt_folder.read_process(files)
    assert running is not None
    os.kill(running.runner.pid, signal.SIGKILL)
    wait_for(lambda: not running.runner.is_alive(), "the runner's end")
    os.killpg(running.group, signal.SIGKILL)
    wait_for(lambda: attempt_folder.liveness(files, 1) is attempt_folder.Liveness.DEAD, "the agent's end")
    told = holdfast(repo, "check", code=None)
    assert f"{files.agent} may hold secrets" in told
    assert (files.agent / "mcp.json").exists(), "check has removed something"
    holdfast(repo, "run", "--plain", code=20, env=env)
    assert state(repo).tasks["T"].state is TaskState.FAILED
    assert not any(b"hush" in path.read_bytes() for path in layout(repo).root.rglob("*") if path.is_file())
    sound(repo)
