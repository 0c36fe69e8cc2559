"""The agents and their streams: how each is called, and what its output means."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.agents.adapters.declared_stream import Mapped
from holdfast.agents.adapters.simple_streams import OneCall, OwnEvents
from holdfast.agents.common.environment import passed_on
from holdfast.agents.registry import agents
from holdfast.agents.runner.conversation import TEXT_CHARS_MAX, Conversation
from holdfast.agents.runner.limits import LINGER_S_MAX, LimitWatch
from holdfast.config.sections import DeclaredAgent
from holdfast.config.settings import Config
from holdfast.domain.agent_events import (
    KINDS,
    AgentEvent,
    Finished,
    RateLimited,
    Said,
    SessionBegan,
    Spent,
    ToolEnded,
    ToolStarted,
    Unfit,
)
from holdfast.domain.attempt_records import AttemptLimits, Ending, Launch, TurnState
from holdfast.domain.definition import Definition
from holdfast.ports import Work
from holdfast.processes import sandbox
from kit.confined import needs_bwrap
from kit.git import git
from kit.runner import Bench


def work(prompt: str = "do it", **definition: Any) -> Work:
    return Work(task="T", attempt="T.1", prompt=prompt, definition=Definition("T", **definition), model="m-1")


# -- the script -------------------------------------------------------------------------------------------------------


def play(folder: Path, script: str, **environ: str) -> list[AgentEvent]:
    """What a script says, without a runner: nobody has to let it go on."""
    told = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    command = [sys.executable, "-m", "holdfast.agents.adapters.script"]
    ended = subprocess.run(command, input=script, capture_output=True, text=True, cwd=folder, env={**told, **environ})
    assert not ended.stderr
    stream = OwnEvents()
    return [event for line in ended.stdout.splitlines() for event in stream.read(line.encode())]


def test_a_script_changes_files_and_says_so(tmp_path: Path) -> None:
    events = play(
        tmp_path, "# a comment\n\nwrite d/a one\\ntwo\nappend d/a three\nwrite b x\ndelete b\nsay hello there\n"
    )
    assert (tmp_path / "d/a").read_text() == "one\ntwo\nthree\n" and not (tmp_path / "b").exists()
    assert [event.name for event in events if isinstance(event, ToolStarted)] == ["write", "append", "write", "delete"]
    assert events[-2:] == [Said("hello there"), Finished(True)]


def test_a_script_tells_of_failures_spend_and_limits(tmp_path: Path) -> None:
    assert play(tmp_path, "spend 0.5 7\nsession s\nfail no way") == [
        Spent(0.5, tokens_out=7),
        SessionBegan("s"),
        Finished(False, "no way"),
    ]
    ran = play(tmp_path, "run echo out; echo err >&2; exit 3")
    assert isinstance(ran[1], ToolEnded) and (ran[1].ok, ran[1].output) == (False, "out\nerr\n")
    assert isinstance(play(tmp_path, "rate-limit 9\nsay never")[-1], RateLimited)


@pytest.mark.parametrize(
    ("attempt", "said"), [("T.1", ["all", "one"]), ("T.2", ["all", "two", "on"]), ("T.3", ["all", "on"])]
)
def test_lines_of_one_attempt_or_from_one_on(tmp_path: Path, attempt: str, said: list[str]) -> None:
    script = "say all\nattempt 1: say one\nattempt 2: say two\nattempt 2+: say on"
    events = play(tmp_path, script, HOLDFAST_ATTEMPT=attempt)
    assert [event.text for event in events if isinstance(event, Said)] == said


def test_a_line_that_counts_once(tmp_path: Path) -> None:
    script = f"once {tmp_path}/marker: say first\nsay always"
    assert [play(tmp_path, script)[0], play(tmp_path, script)[0]] == [Said("first"), Said("always")]


def test_a_script_goes_on_behind_its_completed_turns(tmp_path: Path) -> None:
    script = "say a\nwrite x 1\nsay b\nwrite y 2\nsay c"
    assert play(tmp_path, script, HOLDFAST_TURN="1")[0] == Said("b") and not (tmp_path / "x").exists()
    assert play(tmp_path, script, HOLDFAST_TURN="2") == [Said("c"), Finished(True)]
    assert play(tmp_path, script, HOLDFAST_TURN="3") == [Finished(True)]


def test_an_agent_with_a_last_word_that_did_not_say_it_has_failed() -> None:
    stream = OwnEvents()
    assert stream.read(b"plain words") == () == stream.read(b'{"type":"else"}') == stream.read(b"{\xff")
    assert stream.end(0) == (Finished(False, "It ended with code 0, before its last word."),)
    assert stream.read(b'{"type":"finished","ok":true}') == (Finished(True),) and stream.end(0) == ()


# -- commands ---------------------------------------------------------------------------------------------------------


def test_a_command_is_a_shell_line_or_arguments() -> None:
    command = agents(Config())["command"]
    assert command.launch(work(command="make x && y")).argv == ("sh", "-c", "make x && y")
    assert command.launch(work(command=("make", "x y"))).argv == ("make", "x y")
    assert command.missing(Definition("T", command=("sh", "x"))) == command.missing(Definition("T", command="x")) == ""
    assert "has no `command:`" in command.missing(Definition("T", title="x"))
    assert "no program 'no-such-thing'" in command.missing(Definition("T", command=("no-such-thing",)))


def test_a_command_is_one_turn_and_its_code_is_the_verdict(bench: Bench) -> None:
    launch = agents(Config())["command"].launch(
        work("read me", command='cp "$HOLDFAST_PROMPT_FILE" b; echo out; sleep 0')
    )
    ended = bench.run(agent="command", launch=launch)
    assert (ended.ending, ended.turn) == (Ending.DONE, 1)
    assert (bench.worktree / "b").read_text() == "read me"
    assert [(line.tool, line.files) for line in bench.turns()] == [("command", ["b"])]
    trace = bench.records(bench.files.traces)[0]
    assert trace["output"] == "out" and trace["input"].startswith("cp ")


def test_a_silent_command_that_fails_is_one_turn_too(bench: Bench) -> None:
    ended = bench.run(agent="command", launch=Launch(("sh", "-c", "exit 4")))
    assert (ended.ending, ended.code, ended.turn, ended.detail) == (
        Ending.FAILED,
        4,
        1,
        "The command ended with code 4.",
    )


def test_only_the_end_of_long_output_is_kept_in_mind() -> None:
    stream = OneCall(("sh", "-c", "x"))
    assert stream.read(b"0") == (ToolStarted("command", "1", "x"),)
    for number in range(1, 1000):
        assert stream.read(b"%d" % number) == ()
    output = stream.end(0)[0]
    assert isinstance(output, ToolEnded) and output.output.split("\n") == [str(number) for number in range(900, 1000)]


def declared(prompt: str, *command: str, **events: str) -> DeclaredAgent:
    return msgspec.convert({"name": "mine", "command": command, "prompt": prompt, "events": events}, DeclaredAgent)


@pytest.mark.parametrize(
    ("prompt", "command", "launch"),
    [
        ("argument", ("a", "-p={prompt}", "{model}"), Launch(("a", "-p=say {model}", "m-1"))),
        ("argument", ("a",), Launch(("a", "say {model}"))),
        ("stdin", ("a", "-"), Launch(("a", "-"), stdin="say {model}")),
        ("file", ("a", "{prompt_file}"), Launch(("a", "{prompt_file}"), prompt="say {model}")),
    ],
)
def test_a_declared_agent_gets_its_prompt(prompt: str, command: tuple[str, ...], launch: Launch) -> None:
    agent = agents(Config(agents=(declared(prompt, *command),)))["mine"]
    assert agent.launch(work("say {model}", title="x")) == msgspec.structs.replace(launch, model="m-1")


def test_a_declared_agent_goes_on_by_the_arguments_for_it() -> None:
    facts = declared("stdin", "a", "--json", **{"session.id": "id", "said.text": "text"})
    agent = agents(Config(agents=(msgspec.structs.replace(facts, resume=("--resume={session}",)),)))["mine"]
    assert agent.can.resume
    assert agent.launch(work()).argv == ("a", "--json")
    assert agent.launch(msgspec.structs.replace(work(), session="s-1")).argv == ("a", "--json", "--resume=s-1")
    other = agents(Config(agents=(facts,)))["mine"]
    assert not other.can.resume and other.launch(msgspec.structs.replace(work(), session="s-1")).argv == ("a", "--json")


def test_tokens_of_a_declared_agent_that_says_no_cost_are_given_their_price() -> None:
    tokens = {"spent.tokens_in": "in", "spent.tokens_out": "out"}
    agent = agents(Config(agents=(declared("stdin", "a", **tokens),)))["mine"]
    assert agent.can.cost == "estimated"
    line = b'{"in":1000000,"out":100000}'
    assert list(Mapped(tokens, "gpt-4.1").read(line)) == [Spent(2.8, 1_000_000, 100_000, "gpt-4.1", True)]
    assert Mapped(tokens, "gpt-4.1").read(b'{"in":1' + b"0" * 320 + b"}")
    named = tokens | {"spent.model": "m"}
    (spent,) = Mapped(named, "gpt-4.1").read(b'{"in":1000000,"out":0,"m":"gpt-5"}')
    assert spent == Spent(1.25, 1_000_000, 0, "gpt-5", True)


@pytest.mark.parametrize("prompt", ["argument", "stdin", "file"])
def test_a_prompt_arrives_whole_by_every_way(bench: Bench, prompt: str) -> None:
    text = "line one\nsays {prompt_file} and 'quotes' " + "x" * 100_000
    source = {"argument": 'printf %s "$1"', "stdin": "cat", "file": 'cat "$2"'}[prompt]
    command = ("sh", "-c", f"{source} > got", "sh", "{prompt}", *(["{prompt_file}"] if prompt == "file" else []))
    agent = agents(Config(agents=(declared(prompt, *command),)))["mine"]
    assert bench.run(agent="mine", launch=agent.launch(work(text, title="x"))).ending is Ending.DONE
    assert (bench.worktree / "got").read_text() == text


def test_a_prompt_that_is_too_long_for_an_argument_is_a_sentence(bench: Bench) -> None:
    agent = agents(Config(agents=(declared("argument", "true"),)))["mine"]
    ended = bench.run(agent="mine", launch=agent.launch(work("x" * 200_000, title="x")))
    assert ended.ending is Ending.NOT_STARTED and "Declare `prompt: stdin`" in ended.detail


# -- declared events --------------------------------------------------------------------------------------------------

EVENTS = {
    "session.when": "type=init",
    "session.id": "meta.0.id",
    "said.text": "text",
    "tool_started.when": "type=call",
    "tool_started.name": "tool",
    "tool_started.input": "arguments",
    "tool_ended.when": "type=result",
    "tool_ended.ok": "!failed",
    "spent.when": "type=done",
    "spent.usd": "cost",
    "spent.tokens_in": "tokens",
    "finished.when": "type=done",
    "finished.ok": "status=success",
}
NOT = "A line that should be "
MANY = "Expected `float`, got `str` - at `$.usd`"
NO_NAME = "Object missing required field `name`"


@pytest.mark.parametrize(
    ("line", "events"),
    [
        ('{"type":"init","meta":[{"id":"s"}]}', [SessionBegan("s")]),
        ('{"type":"x","text":"hello"}', [Said("hello")]),
        ('{"type":"call","tool":"edit","arguments":{"a":1}}', [ToolStarted("edit", "", '{"a":1}')]),
        ('{"type":"result","failed":true}', [ToolEnded("", False)]),
        ('{"type":"result"}', [ToolEnded("", True)]),
        ('{"type":"done","cost":"0.5","tokens":3,"status":"success"}', [Spent(0.5, 3), Finished(True)]),
        ('{"type":"done","cost":null,"status":7}', [Spent(), Finished(False)]),
        ('{"type":"done","cost":"many"}', [Unfit(f"{NOT}spent is not: {MANY}."), Finished(False)]),
        ('{"type":"call"}', [Unfit(f"{NOT}tool_started is not: {NO_NAME}.")]),
        ('["type"]', []),
        ("{broken", []),
        ("words", []),
    ],
)
def test_a_mapping_finds_our_events(line: str, events: list[AgentEvent]) -> None:
    assert list(Mapped(EVENTS).read(line.encode())) == events


def test_a_line_that_the_mapping_cannot_read_is_reported() -> None:
    """A limit is one, whatever is said of its end."""
    rules = {"rate_limited.when": "type=limit", "rate_limited.until": "reset", "rate_limited.detail": "why"}
    unfit, limit = Mapped(rules).read(b'{"type":"limit","reset":"2026-11-16T12:00:00Z","why":"slow down"}')
    assert isinstance(unfit, Unfit) and "rate_limited" in unfit.detail and limit == RateLimited(0.0, "slow down")
    (unfit,) = Mapped({"finished.ok": "status"}).read(b'{"status":"error"}')
    assert isinstance(unfit, Unfit) and "finished" in unfit.detail and "refused" not in KINDS


@pytest.mark.parametrize("depth", [900, 995, 1000, 100_000])
def test_no_depth_stops_a_mapping(depth: int) -> None:
    deep = b'{"text":' * depth + b"1" + b"}" * depth
    for stream in (Mapped({"said.text": "text"}), Mapped({"said.text": "text.²"}), OwnEvents()):
        assert all(isinstance(event, Said) for event in stream.read(deep))


def test_a_mapping_with_a_last_word_wants_to_hear_it() -> None:
    stream = Mapped(EVENTS)
    assert [type(event) for event in stream.end(1)] == [Finished]
    stream.read(b'{"type":"done","status":"success"}')
    assert stream.end(0) == ()
    assert Mapped({"said.text": "text"}).end(1) == ()


def test_a_declared_agent_with_events_has_turns(bench: Bench) -> None:
    lines = ['{"type":"call","tool":"edit"}', '{"type":"result"}', '{"type":"done","cost":0.5,"status":"success"}']
    shell = f"touch b; printf '%s\\n' '{lines[0]}' '{lines[1]}' '{lines[2]}'"
    agent = agents(Config(agents=(declared("stdin", "sh", "-c", shell, **EVENTS),)))["mine"]
    ended = bench.run(agent="mine", launch=agent.launch(work(title="x")))
    assert (ended.ending, ended.turn, ended.spent.usd) == (Ending.DONE, 1, 0.5)
    assert bench.turns()[0].files == ["b"]


# -- the rest ---------------------------------------------------------------------------------------------------------


def test_the_settings_agents_win_over_those_of_the_same_name() -> None:
    own = msgspec.structs.replace(declared("stdin", "sh"), name="scripted")
    found = agents(Config(agents=(own,)))
    assert "command" in found and found["scripted"].launch(work(title="x")).argv == ("sh",)
    scripted = agents(Config())["scripted"]
    assert "has no `script:`" in scripted.missing(Definition("T", title="x"))
    assert scripted.missing(Definition("T", script="say x")) == ""


def test_variables_by_name_and_by_beginning() -> None:
    environ = {"PATH": "p", "LC_ALL": "C", "MY_A": "1", "MY_B": "2", "YOUR": "3", "HOLDFAST_AUDIT_KEY": "k"}
    assert passed_on(("MY_*", "HOLDFAST_*"), environ) == {"PATH": "p", "LC_ALL": "C", "MY_A": "1", "MY_B": "2"}


def test_tools_that_overlap_end_one_turn_and_long_texts_are_cut() -> None:
    talk = Conversation(3)
    assert not talk.apply(ToolStarted("a", "1")) and not talk.apply(ToolStarted("b", "2"))
    assert talk.state is TurnState.TOOL_USE and not talk.apply(ToolEnded("1"))
    assert talk.apply(ToolEnded("unknown", output="x" * (TEXT_CHARS_MAX + 1))) and talk.state is TurnState.RUNNING
    assert talk.tools == ["a", "b"] and talk.traces[1]["output"].endswith("(cut)")
    assert not talk.apply(ToolEnded("2"))
    talk.next_turn()
    assert talk.turn == 4 and talk.traces == talk.tools == []


def test_an_agent_that_had_its_last_word_and_stays_is_ended_and_its_word_counts() -> None:
    watch = LimitWatch(AttemptLimits(stall_timeout_s=1000, timeout_s=1000), 1.0, clock=lambda: 0.0)
    watch.finished(10.0)
    assert watch.overdue(10.0 + LINGER_S_MAX - 1) is None and watch.next_s(10.0) == LINGER_S_MAX
    told = watch.overdue(10.0 + LINGER_S_MAX)
    assert told is not None and told.ending is Ending.DONE


def test_limits_of_one_are_said_in_the_singular() -> None:
    limits = AttemptLimits(same_calls_max=1, idle_turns_max=1, stall_timeout_s=1000, timeout_s=1000)
    watch = LimitWatch(limits, 1.0, clock=lambda: 0.0)
    first, second = [watch.call(("read", "{}")) for _ in range(2)]
    assert first is None and second is not None and "more than 1 time in a row" in second.detail
    first, second = [watch.turn(changed=False) for _ in range(2)]
    assert first is None and second is not None and "more than 1 turn in a row changed no file" in second.detail


def test_turns_without_a_change_are_counted_over_conversations_that_follow_each_other() -> None:
    limits = AttemptLimits(idle_turns_max=3, stall_timeout_s=1000, timeout_s=1000)
    assert LimitWatch(limits, 1.0, clock=lambda: 0.0).turn(changed=False) is None
    told = LimitWatch(limits, 1.0, clock=lambda: 0.0, idle_turns=3).turn(changed=False)
    assert told is not None and told.ending is Ending.CIRCUIT_OPEN


# -- the sandbox ------------------------------------------------------------------------------------------------------


def test_a_sandbox_that_is_absent_or_unknown_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert sandbox.missing("none") == ""
    assert "There is no program `bwrap`" in sandbox.missing("bwrap")
    assert "set `sandbox: none`" in sandbox.missing("bwrap")
    assert "There is no sandbox 'docker'" in sandbox.missing("docker")


def test_an_agent_is_not_started_without_its_sandbox(bench: Bench, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "git").symlink_to(str(shutil.which("git")))
    assert bench.start(bench.order("write b 1", sandbox="bwrap"), PATH=str(programs)).wait(120) == 0
    ended = bench.exit()
    assert ended.ending is Ending.NOT_STARTED and "install bubblewrap" in ended.detail and not bench.is_in("b")()


@needs_bwrap
def test_a_confined_agent_writes_in_its_worktree_and_nowhere_else(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    script = f"""
        write b inside
        run touch {tmp_path}/open/x {bench.repo}/x {bench.layout.root}/x {Path.home()}/holdfast-escaped
        run git update-ref refs/heads/main HEAD~0 && git branch stolen
        run git -c user.name=x -c user.email=x@x add b && git -c user.name=x -c user.email=x@x commit -qm mine
        run touch /tmp/mine && test -e /tmp/mine
    """
    ended = bench.run(script, sandbox="bwrap")
    assert (ended.ending, ended.turn) == (Ending.DONE, 5)
    outcomes = [each["ok"] for each in bench.records(bench.files.traces) if each["kind"] == "tool"]
    assert outcomes == [True, False, False, True, True]
    for place in (tmp_path / "open", bench.repo, bench.layout.root):
        assert not (place / "x").exists()
    assert not (Path.home() / "holdfast-escaped").exists() and not Path("/tmp/mine").exists()
    assert git(bench.repo, "branch", "--list", "stolen") == "" and bench.tree(ended.snapshot) == {"a", "b"}


@needs_bwrap
def test_a_confined_agent_that_is_killed_has_crashed(bench: Bench) -> None:
    assert bench.run("write b 1\ncrash", sandbox="bwrap").ending is Ending.CRASHED
