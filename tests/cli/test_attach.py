"""Following an agent from another terminal: real runners, with and without a run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec
import pytest

from holdfast.layout import Layout
from holdfast.storage.records import attempt_folder
from kit.program import Terminal, started, type_in
from kit.project import add
from kit.waiting import wait_for

pytestmark = pytest.mark.usefixtures("no_agent_left")

# Waits for a file of its own, so that the test says when it goes on.
SCRIPT = "say hello\nwrite x hi\nrun while ! test -f {go}; do sleep 0.02; done\nrun printf 'a\\nb'\nsay bye"


def test_an_agent_is_followed_to_the_end_of_its_attempt(repo: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    add(repo, "one", SCRIPT.format(go=go))
    with started(repo, "run", "--plain") as run:
        wait_for(lambda: "one.1" in type_in(repo, "attach").stdout, "nobody is at work")
        with started(repo, "attach", "one") as follower:
            assert follower.stdout is not None
            assert [follower.stdout.readline() for _ in range(2)] == ["hello\n", "→ write x hi\n"]
            go.write_text("")
            out, err = follower.communicate(timeout=120)
            assert follower.returncode == 0
            assert run.wait(120) == 0
    assert "── turn 1: 1 file changed" not in out.split("── turn 2")[1]
    assert "  a\n  b\n── turn 3: 0 files changed" in out and out.endswith("bye\nfinished\n")
    assert "one.1 has ended (done" in err
    again = type_in(repo, "attach", "one.1", "--json", "--tail", "2")
    assert [msgspec.json.decode(line)["type"] for line in again.stdout.splitlines()] == ["finished", "ended"]
    assert "No agent is at work" in type_in(repo, "attach").stdout


def test_leaving_stops_nothing_and_nobody_needs_to_run(repo: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    add(repo, "one", SCRIPT.format(go=go))
    with started(repo, "run", "--plain") as run:
        wait_for(lambda: (repo / ".sdd/attempts/one.1/turns.jsonl").exists(), "it does not begin")
        run.kill()
    files = Layout(repo / ".sdd").attempt_files("one.1")
    with Terminal(repo, "attach", "one") as terminal:
        terminal.read_until("hello")
        os.kill(terminal.process.pid, signal.SIGINT)
        assert terminal.end() == 0
        assert "goes on working" in terminal.seen
    assert attempt_folder.liveness(files, 1) is attempt_folder.Liveness.ALIVE
    with started(repo, "attach", "one") as follower:
        go.write_text("")
        out, err = follower.communicate(timeout=120)
    assert out.endswith("bye\nfinished\n") and "nobody runs: `holdfast run` goes on with it" in err


def test_attach_follows_over_a_restart_of_the_runner(repo: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    waits = f"run while ! test -f {go}; do sleep 0.02; done"
    add(repo, "one", f"say first\nwrite x hi\n{waits}\nonce {tmp_path}/crashed: crash\nsay second\nwrite y hi")
    with started(repo, "run", "--plain") as run:
        wait_for(lambda: (repo / ".sdd/attempts/one.1/start-1").exists(), "it does not begin")
        with started(repo, "attach", "one") as follower:
            assert follower.stdout is not None
            out = follower.stdout.readline()
            # Only now does the first start end: it has been seen.
            go.write_text("")
            rest, err = follower.communicate(timeout=120)
            out += rest
        assert run.wait(120) == 0
    assert out.startswith("first") and out.count("first") == 1 and out.index("first") < out.index("second")
    assert "one.1 goes on, start 2" in err and "has ended (done" in err


def test_raw_output_is_made_printable(repo: Path) -> None:
    add(repo, "one", "x")
    path = repo / ".sdd" / "backlog" / "open" / "one.yaml"
    path.write_text("goal: x\ncommand: printf 'tab\\there\\033]0;owned\\007\\377 end\\n'; touch x\n")
    assert type_in(repo, "run").returncode == 0
    assert "tab\there\\x1b]0;owned\\x07\\xff end\n" in type_in(repo, "attach", "one", "--raw").stdout


def test_attach_explains_what_cannot_be_followed(repo: Path) -> None:
    add(repo, "two", "write x hi")
    assert type_in(repo, "cancel", "two").returncode == 0
    assert type_in(repo, "attach", "two").returncode == 2
    assert "No agent has worked on the task two yet" in type_in(repo, "attach", "two").stderr
    assert "did you mean two?" in type_in(repo, "attach", "twoo").stderr
