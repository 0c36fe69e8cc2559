"""The live view of `run` on a real pseudo-terminal."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import msgspec
import pytest

from holdfast.layout import Layout
from holdfast.processes import starts
from holdfast.storage.records import attempt_folder
from kit.program import Terminal, type_in
from kit.project import add, make_repo
from kit.waiting import wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy

# Sets the title of the window, clears the screen, and is markup of the library that paints.
HOSTILE = r"printf '\033]0;owned\007\033[2J' # [bold red]markup[/] :smiley:"


def last_picture(seen: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen).replace("\r", "")


def test_a_run_on_a_terminal_shows_who_works_and_leaves_a_summary(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, one="say hello\nwrite x hi\nspend 0.25\nrun sleep 0.5\nsleep 1.5")
    add(repo, "two", "write y hi", depends_on=["one"], max_attempts=1, verify=["test -f nowhere"])
    with Terminal(repo, "run") as terminal:
        terminal.read_until("LAST TOOL")
        terminal.read_until("run sleep 0.5")
        terminal.read_until("two: it waits for one")
        assert terminal.end() == 20, terminal.seen
    picture = last_picture(terminal.seen)
    assert "1 failed, 1 closed; 3 turns, $0.25" in picture
    assert "two is failed" in picture
    assert "next: holdfast gates two, then holdfast retry two" in picture.splitlines()[-1]
    # Whatever was hidden is shown again, and no other screen was used: a kill would leave them so.
    assert terminal.seen.rfind("\x1b[?25h") > terminal.seen.rfind("\x1b[?25l")
    assert "\x1b[?1049h" not in terminal.seen


@pytest.mark.parametrize(("columns", "rows"), [(30, 8), (200, 50)])
def test_text_of_others_never_controls_the_terminal(columns: int, rows: int, tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    script = f"run {HOSTILE}\nsay \x1b]0;owned\x07\nsleep 1.5\nfail \x1b]0;owned\x07 [bold]"
    # As a JSON text, which YAML reads: there a control character can be written.
    text = msgspec.json.encode(script).decode()
    (repo / ".sdd/backlog/open/evil.yaml").write_text(f"goal: evil\nmax_attempts: 1\nscript: {text}\n")
    (repo / ".sdd/backlog/open/broken.yaml").write_text("gaol: typo\n")
    with Terminal(repo, "run", columns=columns, rows=rows) as terminal:
        assert terminal.end() == 20
    assert "\x1b]0;" not in terminal.seen and "\x1b[2J" not in terminal.seen
    assert "[bold]" in last_picture(terminal.seen) and "broken.yaml" in last_picture(terminal.seen)
    painted = re.split(r"[\r\n]|\x1b\[\d*A", terminal.seen.split("evil is failed")[0])
    assert max(len(last_picture(line)) for line in painted) <= columns


def test_an_interrupt_leaves_the_agents_at_work(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, long="write x hi\nhang")
    with Terminal(repo, "run") as terminal:
        terminal.read_until("long.1")
        os.kill(terminal.process.pid, signal.SIGINT)
        assert terminal.end() == 130
    assert "next: holdfast run" in last_picture(terminal.seen)
    shown = msgspec.json.decode(type_in(repo, "status", "--json").stdout)
    assert [each["attempt"] for each in shown["at_work"]] == ["long.1"] and shown["runs"] is None
    files = Layout(repo / ".sdd").attempt_files("long.1")
    wait_for(lambda: attempt_folder.liveness(files, 1) is attempt_folder.Liveness.ALIVE, "it has ended")
    starts.end_all(files, "long.1", None, 0.5)


def test_without_a_terminal_there_are_lines_and_with_json_objects(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, one="write x hi")
    lines = type_in(repo, "run").stdout
    assert "\x1b" not in lines and "one: landed on main as" in lines
    add(repo, "two", "write y hi")
    objects = [msgspec.json.decode(line) for line in type_in(repo, "run", "--json").stdout.splitlines()]
    assert {each["kind"] for each in objects} == {"note", "state", "ended"} and objects[-1]["kind"] == "ended"
    states = [each["state"] for each in objects if each["kind"] == "state" and each["task"] == "two"]
    assert states[-1] == "CLOSED" and len(states) > 1
    assert objects[-1]["ended"] and objects[-1]["states"] == {"CLOSED": 2} and objects[-1]["left"] == []
