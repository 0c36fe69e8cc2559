"""What the runner does for real agents: their files, the hook that is the turn's barrier, and why one cannot go on."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.agents.common import hook
from holdfast.domain.attempt_records import Ending, Launch
from holdfast.domain.spend import Caps
from holdfast.domain.task import TaskState
from kit.claude import BEGIN, END, began, claude, hooked, result
from kit.program import begin, holdfast
from kit.project import add, layout, make_repo, settings, state
from kit.recorded_streams import FIXTURES
from kit.runner import LIMITS, Bench
from kit.waiting import wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy


def test_a_hook_waits_until_its_turn_is_saved(bench: Bench) -> None:
    script = BEGIN + began("1") + "echo 1 > one\n" + hooked("1") + "echo 2 > two\n" + result("1") + END
    exit = bench.run(agent="claude", launch=claude(script))
    assert exit.ending is Ending.DONE and exit.detail == "All is made." and exit.session == "s"
    (turn,) = bench.turns()
    assert bench.tree(turn.snapshot) == {"a", "one"} and {"one", "two"} <= bench.tree(exit.snapshot)
    said = bench.files.output.read_bytes()
    assert b"tool_result" not in said[: turn.output] and b"tool_result" in said
    assert not hook.waiting(bench.files.agent)


def test_of_calls_side_by_side_only_the_last_waits_for_the_turn(bench: Bench) -> None:
    both = began("1", "2") + "echo 1 > one\n" + hooked("1") + "echo 2 > two\n" + hooked("2") + "echo 3 > three\n"
    bench.run(agent="claude", launch=claude(BEGIN + both + result("1") + result("2") + END))
    (turn,) = bench.turns()
    assert bench.tree(turn.snapshot) == {"a", "one", "two"}


def test_a_call_without_a_hook_ends_its_turn_by_the_stream(bench: Bench) -> None:
    script = BEGIN + began("1") + "echo 1 > one\n" + result("1") + "sleep 0.1\n" + END
    bench.run(agent="claude", launch=claude(script))
    assert [turn.files for turn in bench.turns()] == [["one"]]


def test_an_agent_in_a_hook_goes_no_further_once_it_is_enough(bench: Bench) -> None:
    script = BEGIN + began("1") + "echo 1 > one\n" + hooked("1") + "echo 2 > two\n" + END
    limits = msgspec.structs.replace(LIMITS, caps=Caps(turns=1))
    exit = bench.run(agent="claude", launch=claude(script), limits=limits)
    assert exit.ending is Ending.LIMIT and len(bench.turns()) == 1
    assert bench.tree(exit.snapshot) == {"a", "one"}


def test_an_agents_files_are_its_own_and_hold_what_the_order_does_not(bench: Bench) -> None:
    show = 'cat "$1"; stat -c %a "$1" .; printf %s "$TOKEN_FILE $PLAIN"; env | grep SECRET'
    launch = Launch(
        ("sh", "-c", f"cd {{files}}; {show}", "sh", "{files}/f"),
        files={"f": "secret is ${SECRET}, not ${OTHER} nor $SECRET {files}\n"},
        env={"TOKEN_FILE": "{files}/f", "PLAIN": "${SECRET}"},
        references=("SECRET",),
    )
    order = bench.order(agent="x", launch=launch)
    stale = bench.files.agent / "stale"
    stale.parent.mkdir(parents=True)
    stale.write_text("of an earlier start")
    assert bench.start(order, SECRET="hush").wait(120) == 0
    said = bench.files.output.read_text()
    folder = bench.files.agent
    assert said == f"secret is hush, not ${{OTHER}} nor $SECRET {{files}}\n600\n700\n{folder}/f hush"
    assert not stale.exists() and not (folder / "f").exists(), "a secret was left"
    kept = [path for path in bench.layout.cas.rglob("*") if path.is_file()]
    assert kept and not any(b"hush" in path.read_bytes() for path in kept)


def test_links_lead_out_and_what_they_lead_to_outlives_them(bench: Bench, tmp_path: Path) -> None:
    """A secret in a JSON file is put in as JSON has it."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "settings").write_text("theirs\n")
    launch = Launch(
        ("sh", "-c", "cd {files}/home; cat settings own/x.json; echo said >> talks/log"),
        files={"home/own/x.json": '{"key":"${SECRET}"}'},
        links={"home/settings": f"{theirs}/settings", "home/talks": f"{theirs}/talks/", "home/gone": f"{theirs}/gone"},
        references=("SECRET",),
    )
    for start in (1, 2):
        assert bench.start(bench.order(agent="x", launch=launch, start=start), SECRET='"a"\n').wait(120) == 0
    said = bench.files.output.read_text()
    assert said == 2 * 'theirs\n{"key":"\\"a\\"\\n"}', bench.log.read_text()
    assert (theirs / "talks" / "log").read_text() == "said\nsaid\n" and not (theirs / "gone").exists()


def test_a_last_line_without_an_end_counts(bench: Bench) -> None:
    exit = bench.run(agent="claude", launch=claude(BEGIN + f'printf "%s" "$({END})"\n'))
    assert exit.ending is Ending.DONE and exit.detail == "All is made."


def test_half_a_letter_at_the_end_stops_nothing(bench: Bench) -> None:
    script = BEGIN + END + "printf 'words \\342\\202'; printf '\\360\\237' >&2\n"
    exit = bench.run(agent="claude", launch=claude(script))
    assert exit.ending is Ending.DONE and bench.files.output.read_bytes().count(b"words \xe2\x82") == 1


def test_an_argument_that_cannot_be_one_is_reported(bench: Bench) -> None:
    exit = bench.run(agent="x", launch=Launch(("sh", "-c", "true", "a\0b")))
    assert exit.ending is Ending.NOT_STARTED and "null byte" in exit.detail


@pytest.mark.parametrize(
    ("name", "ending"),
    [
        ("a_task_lands", Ending.DONE),
        ("a_refusal_is_a_failed_attempt", Ending.REFUSED),
        ("without_a_sign_in_the_task_fails_at_once", Ending.AUTH_MISSING),
        ("a_key_that_is_refused_is_told", Ending.AUTH_MISSING),
        ("a_rate_limit_is_waited_for", Ending.RATE_LIMITED),
        ("a_malformed_answer_is_a_failed_attempt", Ending.FAILED),
    ],
)
@pytest.mark.parametrize("cli", ["claude", "codex"])
def test_a_recorded_stream_ends_as_it_did(bench: Bench, cli: str, name: str, ending: Ending) -> None:
    (path,) = FIXTURES.glob(f"{cli}-*/{name}.1.jsonl")
    said = path.read_bytes()
    if ending is Ending.RATE_LIMITED:
        # What the next start said is behind it.
        said = said[: said.rindex(b'"thread.started"' if cli == "codex" else b'"subtype":"init"')]
    (bench.worktree / "said").write_bytes(said)
    exit = bench.run(agent=cli, launch=Launch(("cat", "said"), stream=cli, model="gpt-5.2-codex"))
    assert exit.ending is ending and exit.detail
    if ending is Ending.DONE:
        assert len(bench.turns()) == 2 and exit.spent.tokens == 3575 and exit.spent.usd > 0


@pytest.mark.crash
def test_a_hundred_megabytes_of_output_cost_little_memory(bench: Bench) -> None:
    """Of text, of a line without an end, and of calls that never end."""
    talk = (
        "import sys, time; said = '{\"type\":\"assistant\",\"message\":{\"content\":[%s]}}\\n'\n"
        "w = sys.stdout.write\n"
        "for n in range(2500): w(said % ('{\"text\":\"' + 'x' * 10000 + '\"}'))\n"
        "w('y' * (68 << 20)); w('\\n')\n"
        "for n in range(50000): w(said % ('{\"type\":\"tool_use\",\"id\":\"%d\",\"name\":\"t\"}' % n))\n"
        "w('{\"type\":\"result\",\"subtype\":\"success\",\"result\":\"done\"}\\n'); sys.stdout.flush()\n"
        "sys.stdin.read(); open('said', 'w').close()\n"
        "time.sleep(600)\n"
    )  # fmt: skip
    runner = bench.start(bench.order(agent="claude", launch=Launch((sys.executable, "-c", talk), stream="claude")))
    wait_for(bench.is_in("said"), "the last word")
    wait_for(lambda: b"done" in bench.files.events.read_bytes()[-1000:], "the last event")
    peak = next(each for each in Path(f"/proc/{runner.pid}/status").read_text().splitlines() if "VmHWM" in each)
    assert bench.files.output.stat().st_size > 90 << 20
    assert int(peak.split()[1]) < 64 << 10, peak
    runner.terminate()
    assert runner.wait(120) == 0


# -- what becomes of the task -----------------------------------------------------------------------------------------


def repo_with(tmp_path: Path, kind: str, **more: Any) -> Path:
    """One task, whose agent says at once why it cannot go on; from the file `well` on it is well."""
    repo = make_repo(tmp_path / "repo")
    told = '{"end": true, "ok": false, "kind": "%s", "why": "It is %s."}'
    well = f'test -e {tmp_path}/well && echo x > x && echo \'{{"end": true, "ok": true}}\''
    script = f"{well} || echo '{told % (kind, kind)}'"
    events = {
        "finished.when": "end=true", "finished.ok": "ok", "finished.kind": "kind", "finished.detail": "why",
    }  # fmt: skip
    settings(repo, agents=[{"name": "fake", "command": ["sh", "-c", script], "events": events}], **more)
    add(repo, "T", "say nothing", agent="fake")
    return repo


def test_an_agent_that_is_not_signed_in_is_not_tried_again(tmp_path: Path) -> None:
    repo = repo_with(tmp_path, "auth", max_attempts=3)
    assert "It is auth." in holdfast(repo, "run", "--plain", code=20)
    task = state(repo).tasks["T"]
    assert task.state is TaskState.FAILED and task.attempts == 1 and task.outcome["kind"] == "auth_missing"
    (tmp_path / "well").touch()
    holdfast(repo, "retry", "T")
    holdfast(repo, "run", "--plain")
    assert state(repo).tasks["T"].state is TaskState.CLOSED


def test_a_refusal_is_tried_again_while_attempts_are_left(tmp_path: Path) -> None:
    repo = repo_with(tmp_path, "refused", max_attempts=2)
    holdfast(repo, "run", "--plain", code=20)
    task = state(repo).tasks["T"]
    assert task.state is TaskState.FAILED and task.attempts == 2 and task.outcome["kind"] == "refused"


def test_a_used_up_quota_is_waited_for(tmp_path: Path) -> None:
    repo = repo_with(tmp_path, "quota")
    run = begin(repo)
    wait_for(lambda: bool(state(repo).tasks) and state(repo).tasks["T"].not_before > 0, "the pause")
    run.kill()
    run.wait()
    task = state(repo).tasks["T"]
    assert task.state is TaskState.OPEN and task.attempts == 1
    flagged = [each for each in holdfast(repo, "log", "--json").splitlines() if "task_flagged" in each]
    assert flagged
    assert 3000 < task.not_before - os.path.getmtime(layout(repo).attempt_files("T.1").exit) < 3700
