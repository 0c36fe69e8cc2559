"""The runner, as a real process with a real agent: turns, limits, endings, and what a kill leaves."""

from __future__ import annotations

import os
import signal
import time

import pytest

from holdfast.agents.runner.runner import EXIT_NOT_OURS, RUNNER_POINTS
from holdfast.domain.attempt_records import AttemptLimits, Ending, Launch
from holdfast.domain.spend import Caps
from holdfast.processes import cgroups, starts
from holdfast.storage.records import attempt_folder
from holdfast.storage.records.attempt_folder import Liveness
from kit.git import git
from kit.runner import Bench, is_dead, kill
from kit.waiting import wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy


# -- turns ------------------------------------------------------------------------------------------------------------

WORK = """
    session s-1
    say I begin
    write b.txt one\\ntwo
    spend 0.25 100
    run cat a
    delete a
    say I am done
"""


def test_each_turn_is_durable_and_the_end_says_all(bench: Bench) -> None:
    ended = bench.run(WORK)
    assert (ended.ending, ended.code, ended.session, ended.turn) == (Ending.DONE, 0, "s-1", 3)
    assert (ended.spent.usd, ended.spent.tokens, ended.spent.turns) == (0.25, 100, 3)
    turns = bench.turns()
    assert [(line.turn, line.start, line.tool, line.changed, line.files) for line in turns] == [
        (1, 1, "write", True, ["b.txt"]),
        (2, 1, "run", False, []),
        (3, 1, "delete", True, ["a"]),
    ]
    assert [(line.usd, line.tokens) for line in turns] == [(0.0, 0), (0.25, 100), (0.0, 0)]
    assert [bench.tree(line.snapshot) for line in turns] == [{"a", "b.txt"}, {"a", "b.txt"}, {"b.txt"}]
    for line in turns:
        assert git(bench.layout.snapshots, "rev-parse", f"refs/attempts/T.1/turn-{line.turn}") == line.snapshot
    assert git(bench.layout.snapshots, "rev-parse", "refs/attempts/T.1/end-1") == ended.snapshot == turns[-1].snapshot
    assert git(bench.repo, "status", "--porcelain") == ""


def test_the_ledgers_tell_what_was_said_done_and_spent(bench: Bench) -> None:
    bench.run(WORK)
    turns = bench.turns()
    traces = bench.records(bench.files.traces)
    assert [(each["turn"], each["kind"], each.get("name", "")) for each in traces] == [
        (1, "said", ""),
        (1, "tool", "write"),
        (2, "tool", "run"),
        (3, "tool", "delete"),
        (4, "said", ""),
    ]
    assert traces[2]["input"] == "cat a" and traces[2]["output"] == "a\n" and traces[2]["ok"] is True
    assert [(each["turn"], each["usd"], each["tokens_out"]) for each in bench.records(bench.files.spend)] == [
        (2, 0.25, 100)
    ]
    fields = ("file", "turn", "tool", "snapshot")
    made = [tuple(each[field] for field in fields) for each in bench.records(bench.files.provenance)]
    assert made == [("b.txt", 1, "write", turns[0].snapshot), ("a", 3, "delete", turns[2].snapshot)]
    output = bench.files.output.read_bytes()
    assert b"I am done" in output[turns[-1].output :] and b"I begin" in output[: turns[0].output]
    behind = bench.files.traces.read_bytes()[turns[1].traces :].splitlines()
    assert [b"delete" in behind[0], b"I am done" in behind[1], len(behind)] == [True, True, 2]
    events = bench.records(bench.files.events)
    assert [each["type"] for each in events if each["type"].startswith("tool")] == ["tool_started", "tool_ended"] * 3
    assert {each["state"] for each in events} == {"RUNNING", "TOOL_USE", "VERIFYING"}
    assert (bench.layout.signals / "WAKEUP").exists()


def test_the_agent_stands_still_while_its_turn_is_taken(bench: Bench) -> None:
    """The child counts on; what the snapshot holds is what it had counted when the turn's tool ended."""
    ended = bench.run("run i=0; while [ $i -lt 50 ]; do i=$((i+1)); echo $i > n; done\nsay x")
    assert ended.ending is Ending.DONE
    assert git(bench.repo, "show", f"{bench.turns()[0].snapshot}:n") == "50"


def test_parallel_tools_are_one_turn(bench: Bench) -> None:
    lines = [
        '{"type":"tool_started","name":"read","call":"1"}',
        '{"type":"tool_started","name":"edit","call":"2"}',
        '{"type":"tool_ended","call":"2"}',
        '{"type":"tool_ended","call":"1","output":"late"}',
        '{"type":"finished","ok":true}',
    ]
    launch = Launch(("sh", "-c", "printf '%s\\n' \"$@\"", "sh", *lines))
    assert bench.run(launch=launch).ending is Ending.DONE
    assert [line.tool for line in bench.turns()] == ["read, edit"]
    assert [each["output"] for each in bench.records(bench.files.traces)] == ["late", ""]


def test_an_agent_gets_its_variables_and_no_others(bench: Bench) -> None:
    order = bench.order("run env > got", passed_on=("MY_*", "OTHER"))
    told = {"HOLDFAST_URL": "http://x", "HOLDFAST_TOKEN": "t", "HOLDFAST_AUDIT_KEY": "secret", "MY_X": "1", "NOT": "2"}
    assert bench.start(order, **told).wait(120) == 0
    got = dict(line.split("=", 1) for line in (bench.worktree / "got").read_text().splitlines() if "=" in line)
    ours = {name: value for name, value in got.items() if name.startswith("HOLDFAST_")}
    assert ours == {
        "HOLDFAST_TASK": "T",
        "HOLDFAST_ATTEMPT": "T.1",
        "HOLDFAST_START": "1",
        "HOLDFAST_WORKTREE": str(bench.worktree),
        "HOLDFAST_TURN": "0",
        "HOLDFAST_ASKS": str(bench.files.asks),
        "HOLDFAST_URL": "http://x",
        "HOLDFAST_TOKEN": "t",
    }
    assert got["MY_X"] == "1" and "NOT" not in got and got["PATH"] == os.environ["PATH"]


def test_a_runner_is_nice_deaf_to_hangups_and_its_agent_is_in_a_group_of_its_own(bench: Bench) -> None:
    runner = bench.start(bench.order("run ps -o pgid= -o ni= -p $PPID > got\nhang", limits=AttemptLimits(grace_s=0.2)))
    wait_for(bench.is_in("got"))
    wait_for(lambda: (bench.worktree / "got").read_text().strip())
    group, nice = (bench.worktree / "got").read_text().split()
    assert int(group) == bench.agent().pid != runner.pid and nice == "19"
    kill(runner.pid, signal.SIGHUP)
    kill(bench.agent().pid, signal.SIGHUP)
    assert bench.files.stop.parent.exists() and attempt_folder.liveness(bench.files, 1) is Liveness.ALIVE
    kill(runner.pid, signal.SIGTERM)
    assert runner.wait(120) == 0 and bench.exit().ending is Ending.STOPPED


# -- endings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "ending", "detail"),
    [
        ("fail it is too hard", Ending.FAILED, "it is too hard"),
        ("run exit 3\nnonsense", Ending.FAILED, "not known: nonsense"),
        ("crash", Ending.CRASHED, "killed by SIGKILL"),
        ("write b x\ncrash SEGV", Ending.CRASHED, "killed by SIGSEGV"),
        ("rate-limit 30", Ending.RATE_LIMITED, "rate limit of 30 s"),
    ],
)
def test_an_agents_end_is_recorded_with_its_kind_and_detail(
    bench: Bench, script: str, ending: Ending, detail: str
) -> None:
    ended = bench.run(script)
    assert ended.ending is ending and detail in ended.detail
    assert (ended.until > time.time()) == (ending is Ending.RATE_LIMITED)
    assert ended.signal if ending is Ending.CRASHED else ended.signal in (None, signal.SIGTERM)


@pytest.mark.parametrize(
    ("limits", "script", "ending", "limit"),
    [
        (AttemptLimits(caps=Caps(turns=2)), "write b 1\nwrite b 2\nwrite b 3\nhang", Ending.LIMIT, "turns"),
        (AttemptLimits(caps=Caps(usd=1.0)), "spend 0.6\nspend 0.6\nhang", Ending.LIMIT, "usd"),
        (AttemptLimits(caps=Caps(tokens=50)), "spend 0 60\nhang", Ending.LIMIT, "tokens"),
        (AttemptLimits(caps=Caps(seconds=0.3)), "hang", Ending.LIMIT, "seconds"),
        (AttemptLimits(timeout_s=0.3), "hang", Ending.TIMEOUT, ""),
        (AttemptLimits(stall_timeout_s=0.3), "write b 1\nhang", Ending.STALLED, ""),
        (AttemptLimits(same_calls_max=2), "run true\nrun true\nrun true\nhang", Ending.CIRCUIT_OPEN, "same_calls"),
        (AttemptLimits(idle_turns_max=1), "run true\nrun echo\nrun :\nhang", Ending.CIRCUIT_OPEN, "idle_turns"),
        (AttemptLimits(session_turns=2), "write b 1\nwrite b 2\nhang", Ending.SESSION_FULL, "session_turns"),
        # Spent before the turn, and still the turn is saved first.
        (AttemptLimits(session_tokens=50), "spend 0 60\nwrite b 1\nhang", Ending.SESSION_FULL, "session_tokens"),
    ],
)
def test_a_limit_ends_the_agent(bench: Bench, limits: AttemptLimits, script: str, ending: Ending, limit: str) -> None:
    ended = bench.run(script, limits=limits)
    assert (ended.ending, ended.limit) == (ending, limit) and "was ended" in ended.detail
    assert is_dead(bench.agent().pid)


@pytest.mark.parametrize(
    ("limits", "script"),
    [
        (AttemptLimits(same_calls_max=2), "run true\nrun true\nrun :\nrun true"),
        (AttemptLimits(idle_turns_max=1), "run true\nwrite b 1\nrun true\nwrite b 2"),
        (AttemptLimits(caps=Caps(turns=3, usd=1.0, tokens=10)), "write b 1\nspend 0.9 9\nwrite b 2"),
        (AttemptLimits(session_turns=3, session_tokens=10), "write b 1\nspend 0 9\nwrite b 2"),
        # Behind the last turn nothing is cut short.
        (AttemptLimits(session_tokens=10), "write b 1\nspend 0 90"),
    ],
)
def test_a_limit_that_is_not_reached_ends_nothing(bench: Bench, limits: AttemptLimits, script: str) -> None:
    assert bench.run(script, limits=limits).ending is Ending.DONE


def test_a_program_that_cannot_be_executed_is_explained_in_a_sentence(bench: Bench) -> None:
    ended = bench.run(launch=Launch(("/no/such/agent",)))
    assert ended.ending is Ending.ENVIRONMENT and "'/no/such/agent' cannot be executed: No such file" in ended.detail
    assert ended.code is ended.signal is None and ended.snapshot
    name = cgroups.name_of(bench.files, "T.1", 1)
    assert not any((home / name).exists() for home in cgroups.homes())


def test_a_worktree_that_is_gone_is_a_sentence(bench: Bench) -> None:
    git(bench.repo, "worktree", "remove", "--force", str(bench.worktree))
    ended = bench.run("say x")
    assert ended.ending is Ending.NOT_STARTED and str(bench.worktree) in ended.detail and ended.snapshot == ""


def test_a_runner_that_cannot_write_ends_its_agent_and_says_so(bench: Bench) -> None:
    bench.files.provenance.mkdir(parents=True)
    ended = bench.run("write b 1\nhang")
    assert ended.ending is Ending.RUNNER_FAILED and "provenance.jsonl" in ended.detail
    assert is_dead(bench.agent().pid) and ended.turn == 0 and bench.turns() == []
    assert bench.tree(ended.snapshot) == {"a", "b"}


def test_a_file_stops_the_agent_and_not_the_next_start(bench: Bench) -> None:
    runner = bench.start(bench.order("write b 1\nhang"))
    wait_for(lambda: len(bench.turns()) == 1)
    bench.files.stop.touch()
    assert runner.wait(120) == 0 and bench.exit().ending is Ending.STOPPED and bench.exit().turn == 1
    assert bench.run("write b 2", start=2, turn=0).ending is Ending.DONE


# -- what an agent leaves behind --------------------------------------------------------------------------------------

STRAYS = [
    "sh -c 'echo $$ > pid; exec sleep 600'",
    "setsid sh -c 'echo $$ > pid; exec sleep 600'",
    "setsid sh -c 'trap \"\" TERM; echo $$ > pid; while :; do sleep 600; done'",
    "setsid sh -c 'echo $$ > pid; kill -STOP $$'",
    "env -i setsid sh -c 'echo $$ > pid; exec sleep 600'",
]


@pytest.mark.parametrize("stray", STRAYS)
def test_grandchildren_end_with_the_agent(bench: Bench, stray: str) -> None:
    """Also those that left its session, that do not hear, that stand still, or that do not know whose they are."""
    # The descriptor of the lock goes to a child only where the agent lets it: a shell does.
    line = f"{stray} & while [ ! -s pid ]; do sleep 0.01; done; echo done"
    ended = bench.run(agent="command", launch=Launch(("sh", "-c", line)))
    assert ended.ending is Ending.DONE
    assert is_dead(bench.pid_in("pid"))


@pytest.mark.parametrize("stray", STRAYS)
def test_a_runner_that_was_killed_leaves_a_headless_attempt_that_can_be_ended(bench: Bench, stray: str) -> None:
    line = f"{stray} & trap '' TERM; while [ ! -s pid ]; do sleep 0.01; done; while :; do sleep 600; done"
    runner = bench.start(bench.order(agent="command", launch=Launch(("sh", "-c", line))))
    stray_pid, agent = bench.pid_in("pid"), bench.agent()
    assert attempt_folder.liveness(bench.files, 1) is Liveness.ALIVE
    runner.kill()
    runner.wait()
    assert attempt_folder.liveness(bench.files, 1) is Liveness.HEADLESS and agent.is_alive()
    starts.end_all(bench.files, "T.1", 1, 0.1)
    assert not agent.is_alive() and is_dead(stray_pid)
    assert attempt_folder.liveness(bench.files, 1) is Liveness.DEAD and attempt_folder.read_exit(bench.files, 1) is None


def test_an_agent_that_was_killed_has_crashed(bench: Bench) -> None:
    runner = bench.start(bench.order("write b 1\nhang"))
    wait_for(lambda: len(bench.turns()) == 1)
    kill(bench.agent().pid)
    assert runner.wait(120) == 0
    ended = bench.exit()
    assert (ended.ending, ended.signal, ended.turn) == (Ending.CRASHED, signal.SIGKILL, 1)
    assert bench.tree(ended.snapshot) == {"a", "b"}


# -- one start, one runner --------------------------------------------------------------------------------------------


def test_of_two_runners_for_one_start_one_does_nothing(bench: Bench) -> None:
    order = bench.order("append log line\nsleep 0.2")
    runners = [bench.start(order) for _ in range(3)]
    assert sorted(runner.wait(120) for runner in runners) == [0, EXIT_NOT_OURS, EXIT_NOT_OURS]
    assert bench.exit().ending is Ending.DONE and (bench.worktree / "log").read_text() == "line\n"


def test_a_runner_that_comes_after_recovery_does_nothing(bench: Bench) -> None:
    assert attempt_folder.claim_start(bench.files, 1, attempt_folder.RECOVERY)
    assert bench.start(bench.order("write b 1")).wait(120) == EXIT_NOT_OURS
    assert attempt_folder.liveness(bench.files, 1) is Liveness.DEAD and not bench.is_in("b")()


# -- every point ------------------------------------------------------------------------------------------------------

STEPS = "write b 1\nspend 0.5 10\nwrite c 2\nsay end"
# Those of a start that nobody tells anything, and that asks nothing. `make crash` kills at the others, too.
POINTS = [name for name in RUNNER_POINTS if not name.startswith(("runner.told", "runner.question"))]


def test_every_point_is_reached(bench: Bench) -> None:
    bench.run(STEPS)
    assert sorted(set(bench.reached())) == sorted(POINTS)


# Each point before a step is one after the step before it, but for what lies between: half of them in the fast tests.
@pytest.mark.parametrize(
    "point", [pytest.param(name, marks=() if name.endswith(".after") else pytest.mark.crash) for name in POINTS]
)
def test_killed_at_any_point_the_next_start_completes_the_attempt(bench: Bench, point: str) -> None:
    """At worst one turn is redone: no turn is missing, none is there twice, and the tree is what the script says."""
    count = 2 if "turn" in point else 1
    runner = bench.start(bench.order(STEPS), HOLDFAST_CRASH_AT=f"{point}:{count}")
    runner.wait(120)
    assert f"killed {point}" in bench.reached()
    seen = attempt_folder.liveness(bench.files, 1)
    in_child = point.startswith("runner.process")
    assert (runner.returncode == 0) == in_child
    is_claimed = RUNNER_POINTS.index(point) >= RUNNER_POINTS.index("runner.start.after")
    is_over = in_child or RUNNER_POINTS.index(point) >= RUNNER_POINTS.index("runner.exit.after")
    assert seen in (
        {Liveness.ENDED} if is_over else {Liveness.DEAD, Liveness.HEADLESS} if is_claimed else {Liveness.ABSENT}
    )
    starts.end_all(bench.files, "T.1", 1, 0.0)
    if point == "runner.exit.after":
        assert bench.exit().ending is Ending.DONE
        return
    start = 2 if is_claimed else 1
    ended = bench.run(STEPS, start=start, turn=len(bench.turns()))
    assert (ended.ending, ended.turn) == (Ending.DONE, 2)
    assert [line.turn for line in bench.turns()] == [1, 2]
    # One that is killed while it writes may leave the file that it wrote to before it named it.
    assert {name for name in bench.tree(ended.snapshot) if not name.startswith(".hf-")} == {"a", "b", "c"}
    spent = [each["usd"] for each in bench.records(bench.files.spend)]
    assert spent and set(spent) == {0.5}
