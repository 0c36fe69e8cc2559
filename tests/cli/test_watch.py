"""`holdfast watch`: the terminal on every way out, the keys, and the lines for a pipe or a program.

Its screens are in tests/terminal, with a real terminal.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.app import App, View
from holdfast.cli.screen.fullscreen import TEXT_KEYS, parse_keys
from holdfast.cli.screen.input_line import InputLine, question_head, reply
from holdfast.cli.screen.picture import see
from holdfast.cli.screen.table import cell_width
from holdfast.cli.screen.watch_screen import Pager
from holdfast.questions.records import Question
from holdfast.storage.journal.lock import live_owner
from kit.program import HOLDFAST, Terminal, environment, started, type_in
from kit.project import add
from kit.waiting import wait_for

pytestmark = pytest.mark.usefixtures("no_agent_left")

HELD = "say hello\nwrite x hi\nrun while ! test -f {go}; do sleep 0.02; done\nsay bye\nwrite y hi"
ENTERED, LEFT = "\x1b[?1049h", "\x1b[?25h\x1b[?1049l"


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def interrupt(terminal: Terminal) -> None:
    os.kill(terminal.process.pid, signal.SIGINT)


def terminate(terminal: Terminal) -> None:
    os.kill(terminal.process.pid, signal.SIGTERM)


def hang_up(terminal: Terminal) -> None:
    os.kill(terminal.process.pid, signal.SIGHUP)


@pytest.mark.parametrize(
    ("leave", "code"),
    [(lambda terminal: terminal.type("q"), 0), (interrupt, 0), (terminate, 143), (hang_up, 129)],
    ids=["q", "Ctrl-C", "SIGTERM", "SIGHUP"],
)
def test_the_terminal_is_as_it_was_on_every_way_out(repo: Path, leave: Callable[[Terminal], None], code: int) -> None:
    with Terminal(repo, "watch") as terminal:
        terminal.read_until("There are no tasks yet")
        assert terminal.is_raw and ENTERED in terminal.seen
        leave(terminal)
        assert terminal.end() == code
        assert not terminal.is_raw and terminal.seen.endswith(LEFT)


def test_an_error_of_its_own_puts_the_terminal_back(tmp_path: Path) -> None:
    script = tmp_path / "breaks.py"
    script.write_text(
        "from holdfast.cli.screen.fullscreen import FullScreen\n"
        "with FullScreen() as screen:\n"
        "    screen.paint([('here', 'bold')])\n"
        "    screen.keys(60)\n"
        "    raise RuntimeError('broken')\n"
    )
    with Terminal(tmp_path, program=[sys.executable, str(script)]) as terminal:
        terminal.read_until("here")
        assert terminal.is_raw
        terminal.type("x")
        assert terminal.end() == 1
        assert not terminal.is_raw and LEFT in terminal.seen.partition("Traceback")[0]


@pytest.mark.parametrize("number", [signal.SIGTSTP, signal.SIGSTOP])
def test_watch_takes_the_terminal_again_when_it_is_continued(repo: Path, number: signal.Signals) -> None:
    with Terminal(repo, "watch") as terminal:
        terminal.read_until("There are no tasks yet")
        os.kill(terminal.process.pid, number)
        wait_for(lambda: is_stopped(terminal.process.pid), "it does not stop")
        if number is signal.SIGTSTP:
            terminal.read_until(LEFT)
            assert not terminal.is_raw
        terminal.seen = ""
        os.kill(terminal.process.pid, signal.SIGCONT)
        # All of it is painted again.
        terminal.read_until(ENTERED)
        terminal.read_until("There are no tasks yet")
        assert terminal.is_raw
        terminal.type("q")
        assert terminal.end() == 0 and not terminal.is_raw


@pytest.mark.heavy
def test_a_pipe_is_told_each_change_until_nobody_runs(repo: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    add(repo, "one", HELD.format(go=go), title="odd \x1b[31m")
    with started(repo, "run", "--plain") as run:
        wait_for(lambda: "one.1" in type_in(repo, "attach").stdout, "nobody is at work")
        with started(repo, "watch") as watcher, started(repo, "watch", "--json") as program:
            assert watcher.stdout is not None and program.stdout is not None
            first = [watcher.stdout.readline() for _ in range(3)]
            facts = [msgspec.json.decode(program.stdout.readline()) for _ in range(3)]
            go.write_text("")
            rest, _ = watcher.communicate(timeout=300)
            more, _ = program.communicate(timeout=300)
            assert run.wait(300) == 0
    assert "is alive, pid" in first[0] and "one: at work" in first[1] and "one: scripted, turn" in first[2]
    assert "one: closed" in rest and rest.endswith("nobody runs: 1 closed\n")
    assert [each["kind"] for each in facts] == ["run", "state", "agent"] and facts[0]["pid"] == run.pid
    told = [msgspec.json.decode(line) for line in more.splitlines()]
    assert ("one", "CLOSED") in [(each.get("task"), each.get("state")) for each in told]
    assert told[-1]["kind"] == "ended" and told[-1]["counts"] == {"CLOSED": 1}
    assert watcher.returncode == program.returncode == 0


def test_a_run_that_ends_while_its_tasks_are_read_counts_as_alive(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that waits for the end of a run then reads once more, and finds the tasks as the run left them."""
    look = App.read
    with started(repo, "serve") as server:
        wait_for(lambda: live_owner(repo / ".sdd/runtime/lock") is not None, "nobody serves")

        def look_and_end(app: App) -> View:
            view = look(app)
            server.kill()
            server.wait(300)
            return view

        monkeypatch.setattr(App, "read", look_and_end)
        assert not see(App.find(repo)).is_over
        assert server.returncode == -signal.SIGKILL
    monkeypatch.setattr(App, "read", look)
    assert see(App.find(repo)).is_over


def test_watch_says_at_once_that_no_run_is_active(repo: Path) -> None:
    told = type_in(repo, "watch")
    assert told.returncode == 0 and "nobody runs: no tasks yet" in told.stdout
    dumb = subprocess.run(
        [*HOLDFAST, "watch"], cwd=repo, env=environment(repo, TERM="dumb"), capture_output=True, text=True
    )
    assert dumb.returncode == 0 and "\x1b" not in dumb.stdout


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("\x1b[A\x1b[B", ["up", "down"]),
        ("\x1bOAjk", ["up", "down", "up"]),
        ("\x1b", ["escape"]),
        ("\x1b[6~ q", ["page down", "page down", "q"]),
        # What no key of ours is: nothing of it is taken for one.
        ("\x1b[1;5Ay\x1b[200~\x00", ["y"]),
    ],
)
def test_keys_are_told_by_name(typed: str, keys: list[str]) -> None:
    assert list(parse_keys(typed)) == keys


def test_a_text_that_is_typed_has_its_letters_and_ends_at_the_last_enter() -> None:
    line = InputLine("Tell it:", lambda words: ("tell", {"message": words}))
    line.typed(list(parse_keys("ask Bob\r", TEXT_KEYS))[:-1])
    assert line.text == "ask Bob" and not line.is_left
    # Arrows are no letters; what was pasted has its lines.
    line.typed(list(parse_keys("\x1b[A!\x7f, Eve\rand 漢", TEXT_KEYS)))
    assert line.text == "ask Bob, Eve\nand 漢" and not line.is_sent
    assert [text for text, _ in line.lines(20)] == ["Tell it:", "> …b, Eve ⏎ and 漢▏"]
    line.typed(["escape"])
    assert line.is_left and not line.is_sent and line.text
    line.typed(["clear", "enter"])
    assert not line.is_sent, "nothing was typed"
    line.typed(["x", "enter"])
    assert line.is_sent and line.decision(line.text) == ("tell", {"message": "x"})


@pytest.mark.parametrize(
    ("kind", "words", "answer"),
    [
        ("permission", "allow", {"answer": "allow", "always": False}),
        ("permission", "always", {"answer": "allow", "always": True}),
        ("permission", "Allow it", {"answer": "deny", "words": "Allow it"}),
        ("words", "allow", {"answer": "say", "words": "allow"}),
    ],
)
def test_only_the_exact_word_allows_a_call(kind: Any, words: str, answer: dict[str, Any]) -> None:
    asked = Question(
        id="t.1.q1", task="t", attempt="t.1", start=1, turn=0, tool="run", input="", digest="", kind=kind, preview="$ x"
    )
    assert reply(asked, words) == {"question": "t.1.q1", **answer}
    assert "$ x" in question_head(asked) and ("always" in question_head(asked)) == (kind == "permission")


def test_long_lines_are_folded_and_the_end_is_followed() -> None:
    new = [["a" * 25, "漢字" * 8], [], ["last"]]
    pager = Pager("t", more=lambda: new.pop(0))
    first = pager.lines(20, 10)
    assert [line for line, _ in first[1:3]] == ["a" * 20, "a" * 5] and all(cell_width(line) <= 20 for line, _ in first)
    pager.move("home", 4)
    assert "follows" not in pager.lines(20, 4)[0][0]
    # Who scrolled back stays there.
    assert pager.lines(20, 4)[1][0] == "a" * 20
    pager.move("end", 4)
    new.append([])
    assert pager.lines(20, 4)[-1][0] == "last"
