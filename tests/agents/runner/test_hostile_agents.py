"""Agents that hide, talk without end, lie about money and time, or take away what they stand on."""

from __future__ import annotations

import math
import os
import stat
import time
from pathlib import Path

import pytest

from holdfast.agents.adapters.command import Command, Scripted
from holdfast.agents.common import environment
from holdfast.agents.runner.conversation import PAUSE_S_MAX, checked
from holdfast.domain.agent_events import AgentEvent, RateLimited, SessionBegan, Spent
from holdfast.domain.attempt_records import AttemptLimits, Ending, Launch
from holdfast.domain.definition import Definition
from holdfast.ports import Work
from holdfast.processes import cgroups, starts
from holdfast.storage.records import attempt_folder
from kit.git import git
from kit.program import holdfast
from kit.project import add, make_repo, state
from kit.runner import Bench, is_dead

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy


# -- processes --------------------------------------------------------------------------------------------------------

CLOSED = "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; for f in /proc/$$/fd/*; do :; done; echo $$ > pid; exec sleep 600"
HIDDEN = [
    f"setsid env -i sh -c '{CLOSED}' >/dev/null 2>&1",
    f"(setsid env -i sh -c '(trap \"\" TERM; {CLOSED}) & exit') >/dev/null 2>&1",
]


@pytest.mark.parametrize("hidden", HIDDEN)
def test_a_process_that_hides_in_every_way_ends_with_its_agent(bench: Bench, hidden: str) -> None:
    """Without its environment, its group, its parent and the lock it still descends from the runner."""
    line = f"{hidden} & while [ ! -s pid ]; do sleep 0.01; done; echo done"
    # The lock's descriptor is closed whatever its number is.
    wrapper = ("bash", "-c", f'for n in $(ls /proc/$$/fd); do [ $n -gt 2 ] && eval "exec $n>&-"; done; {line}')
    ended = bench.run(agent="command", launch=Launch(wrapper))
    assert ended.ending is Ending.DONE and is_dead(bench.pid_in("pid"))


@pytest.mark.skipif(not cgroups.homes(), reason="there is no control group to be had")
@pytest.mark.parametrize("hidden", HIDDEN)
def test_a_process_that_hides_in_every_way_is_ended_also_when_its_runner_was_killed(bench: Bench, hidden: str) -> None:
    line = f"{hidden} & while [ ! -s pid ]; do sleep 0.01; done; echo done; exec sleep 600"
    wrapper = ("bash", "-c", f'for n in $(ls /proc/$$/fd); do [ $n -gt 2 ] && eval "exec $n>&-"; done; {line}')
    runner = bench.start(bench.order(agent="command", launch=Launch(wrapper)))
    hiding, agent = bench.pid_in("pid"), bench.agent()
    runner.kill()
    runner.wait()
    starts.end_all(bench.files, "T.1", 1, 0.1)
    assert is_dead(hiding) and not agent.is_alive()
    running = attempt_folder.read_process(bench.files)
    assert running is not None and running.cgroup and not Path(running.cgroup).exists()


def test_ended_orphans_are_buried_while_the_agent_works(bench: Bench) -> None:
    zombies = "cat $(grep -ls '^State:.Z' /proc/[0-9]*/status) /dev/null | grep -x \"PPid:.$PPID\" > left"
    line = f"for i in 1 2 3 4 5; do (sleep 0 &) ; done; n=0; while {zombies} && [ $n -lt 300 ]; "
    line += "do sleep 0.1; n=$((n+1)); done"
    runner = bench.start(
        bench.order(
            agent="command", launch=Launch(("sh", "-c", line)), limits=AttemptLimits(grace_s=0.2, heartbeat_s=0.1)
        )
    )
    assert runner.wait(120) == 0
    assert (bench.worktree / "left").read_text() == ""


def test_a_command_of_a_script_holds_the_lock(bench: Bench) -> None:
    bench.run("run for f in /proc/self/fd/*; do readlink $f; done > fds")
    assert str(bench.files.alive) in (bench.worktree / "fds").read_text().splitlines()


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_output_beyond_the_most_is_not_kept_and_the_agent_goes_on(bench: Bench) -> None:
    limits = AttemptLimits(grace_s=0.2, output_bytes_max=5000)
    script = "run seq 1 300\nwrite b 1\nrun seq 1 3000\nsay later\nwrite c 1"
    assert bench.run(script, limits=limits).ending is Ending.DONE
    output = bench.files.output.read_bytes()
    assert output.count(b"the rest was not kept") == 1 and 5000 < len(output) < 5200 and b"later" not in output
    turns = bench.turns()
    assert [line.output <= len(output) for line in turns] == [True] * 4 and turns[0].output < 5000
    assert turns[-1].output == turns[-2].output == len(output)
    assert bench.run("say more\nwrite d 1", start=2, limits=limits).ending is Ending.DONE
    assert bench.files.output.read_bytes() == output


def test_an_attempts_folder_is_for_nobody_else(bench: Bench) -> None:
    launch = Launch(("sh", "-c", "echo x > b"), prompt="secret words")
    assert bench.run(agent="command", launch=launch).ending is Ending.DONE
    assert stat.S_IMODE(bench.files.root.stat().st_mode) == 0o700
    assert stat.S_IMODE(bench.files.asks.stat().st_mode) == 0o700
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in bench.files.root.iterdir() if path.is_file()}
    assert {"alive.lock", "start-1", "process.json", "exit.json", "output.log", "events.jsonl"} <= files.keys()
    assert set(files.values()) == {0o600}, files
    assert stat.S_IMODE((bench.worktree / "b").stat().st_mode) == 0o666 & ~_umask()


def _umask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found


# -- what reaches it --------------------------------------------------------------------------------------------------

SECRETS = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k", "HTTPS_PROXY": "http://u:p@x", "PATH": "/bin"}


def test_keys_of_models_reach_only_agents_that_talk_to_one(bench: Bench) -> None:
    definition = Definition("T", "t", command="true", script="say x")
    work = Work(task="T", attempt="T.1", prompt="do", definition=definition)
    for agent in (Scripted(), Command()):
        order = bench.order(launch=agent.launch(work))
        assert not SECRETS.keys() - {"PATH"} & environment.of_agent(order, bench.files, SECRETS).keys()
        asked = bench.order(launch=agent.launch(work), passed_on=("OPENAI_*",))
        assert environment.of_agent(asked, bench.files, SECRETS)["OPENAI_API_KEY"] == "k"
    talker = bench.order(launch=Launch(("claude",)))
    assert environment.of_agent(talker, bench.files, SECRETS).keys() >= SECRETS.keys()


# -- what it says -----------------------------------------------------------------------------------------------------

NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("said", "counted"),
    [
        (Spent(-5.0, 10, -1), Spent(0.0, 10, 0)),
        (Spent(math.nan, 1, 2), Spent(0.0, 1, 2)),
        (Spent(math.inf), Spent()),
        (Spent(0.5, 10**320), Spent(0.5, 0)),
        (RateLimited(NOW + 1e12), RateLimited(NOW + PAUSE_S_MAX)),
        (RateLimited(math.inf), RateLimited(NOW + PAUSE_S_MAX)),
        (RateLimited(math.nan), RateLimited(0.0)),
        (RateLimited(-1.0), RateLimited(0.0)),
        (RateLimited(5.0), RateLimited(0.0)),
        (RateLimited(NOW), RateLimited(0.0)),
        (Spent(-0.5, corrects=True), Spent(0.0, corrects=True)),
        (SessionBegan("-s", "m"), SessionBegan("", "m")),
        (SessionBegan("a\0b"), SessionBegan("")),
        (SessionBegan("x" * 1000), SessionBegan("")),
    ],
)
def test_impossible_amounts_are_not_counted_and_noted(said: AgentEvent, counted: AgentEvent) -> None:
    assert checked(said, NOW)[0] == counted and checked(said, NOW)[1]


@pytest.mark.parametrize(
    "said",
    [Spent(0.5, 1, 2), Spent(), RateLimited(NOW + 60), RateLimited(0.0), SessionBegan("ses_1.a-B")],
)
def test_possible_amounts_are_counted_as_they_are(said: AgentEvent) -> None:
    assert checked(said, NOW) == (said, "")


def test_an_agent_cannot_earn_money_or_wait_for_ever(bench: Bench) -> None:
    ended = bench.run("spend 0.5 10\nspend -9 -100\nwrite b 1\nrate-limit 999999999999")
    assert (ended.spent.usd, ended.spent.tokens) == (0.5, 10)
    assert ended.ending is Ending.RATE_LIMITED and time.time() < ended.until <= time.time() + PAUSE_S_MAX
    noted = [each["detail"] for each in bench.records(bench.files.events) if each["type"] == "refused"]
    assert len(noted) == 2 and "usd -9" in noted[0]


# -- what it stands on ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", ["crash", "say done", "hang"])
def test_a_worktree_that_the_agent_deletes_is_a_named_end(bench: Bench, last: str) -> None:
    script = f"write b 1\nrun cd / && rm -rf {bench.worktree}\n{last}"
    ended = bench.run(script)
    assert ended.ending is Ending.WORKTREE_LOST and str(bench.worktree) in ended.detail
    assert [line.turn for line in bench.turns()] == [1]
    assert git(bench.layout.snapshots, "show", "refs/attempts/T.1/turn-1:b") == "1"


def test_an_attempts_folder_that_the_agent_deletes_is_a_named_end(bench: Bench) -> None:
    ended = bench.run(f"write b 1\nrun rm -rf {bench.files.root}\nsay done")
    assert ended.ending is Ending.WORKTREE_LOST and str(bench.files.root) in ended.detail


def test_the_attempt_after_a_lost_worktree_begins_with_its_last_turn(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    script = """
        attempt 1: write a.txt x
        attempt 1: run cd / && rm -rf "$HOLDFAST_WORKTREE"
        attempt 2: run cp a.txt b.txt
    """
    add(repo, "a", script)
    assert "The agent's worktree" in holdfast(repo, "run")
    task = state(repo).tasks["a"]
    assert (task.state, task.attempts, task.start.number, task.attempt.resumes) == ("CLOSED", 2, 1, 0)
    assert git(repo, "show", "main:a.txt") == git(repo, "show", "main:b.txt") == "x"


def test_an_agent_that_deletes_its_worktree_each_time_has_as_many_starts_as_attempts(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    add(repo, "a", 'write a.txt x\nrun cd / && rm -rf "$HOLDFAST_WORKTREE"', max_attempts=2)
    holdfast(repo, "run", code=None)
    task = state(repo).tasks["a"]
    assert (task.state, task.claim.number, task.outcome["kind"]) == ("FAILED", 2, "worktree_lost")


def test_an_orphan_without_a_worktree_goes_on_from_its_last_turn(tmp_path: Path) -> None:
    """Nobody said how it ended: the runner was killed, too."""
    repo = make_repo(tmp_path / "repo")
    kill_all = 'rm -rf "$HOLDFAST_WORKTREE"; kill -9 $(ps -o ppid= -p $PPID)'
    once = tmp_path / "once"
    add(repo, "a", f"write a.txt x\nrun test -e {once} || {{ touch {once}; cd /; {kill_all}; }}\nrun cp a.txt b.txt")
    holdfast(repo, "run")
    task = state(repo).tasks["a"]
    assert once.exists() and (task.state, task.attempts, task.attempt.resumes) == ("CLOSED", 1, 1)
    assert git(repo, "show", "main:a.txt") == git(repo, "show", "main:b.txt") == "x"
