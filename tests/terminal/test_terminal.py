"""What a person sees on a real terminal (tmux), at 80x24 and 160x50, against golden files beside this one.

Times, hashes and the repository's folder are replaced by placeholders of the same width, so that the layout is what is
compared. `HOLDFAST_GOLDEN=write pytest tests/terminal` writes the files anew; look at the difference before it is kept.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kit.program import HOLDFAST, environment, holdfast, type_in
from kit.project import add, make_repo
from kit.waiting import wait_for

GOLDEN = Path(__file__).parent
SIZES = [(80, 24), (160, 50)]
LONG = "Make the parser of the configuration files accept comments at the end of a line, and say where they are"
SETTINGS = "server: {enabled: false}\nmax_agents: 1\nmax_attempts: 1\n"
# Each keeps its width.
_PLACEHOLDERS = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "YYYY-MM-DD HH:MM:SSZ"),
    (r"\b\d\d:\d\d:\d\d\b", "HH:MM:SS"),
    (r"\b\d+:\d\d\b", "M:SS"),
    (r"\b[0-9a-f]{12}\b", "############"),
    (r"\b\d+\.\d s\b", "N.N s"),
    (r"\bpid \d+\b", "pid NNNN"),
    (r"\b\d+(\.\d+)? [KMGT]?B\b", "N GB"),
    (r"\bload \d+\.\d on \d+ cores?\b", "load N.N on N cores"),
)

# A server of its own for each: the socket of one that ends is not there at once.
_NUMBERS = itertools.count()

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


@pytest.fixture(scope="module")
def repo() -> Iterator[Path]:
    """Of each kind of task one; in a folder whose name has always the same length."""
    top = Path(tempfile.mkdtemp(prefix="hf-terminal-", dir="/tmp"))
    # The list says which program is missing: here it is there, whatever the machine has.
    (top / "bin").mkdir()
    (top / "bin" / "claude").write_text("#!/bin/sh\n")
    (top / "bin" / "claude").chmod(0o755)
    repo = make_repo(top / "repo", landed="write made hi\nspend 0.00125 10")
    (repo / ".sdd/config/settings.yaml").write_text(SETTINGS)
    add(repo, "login", "write page hi", verify=["echo fine", "echo one; echo the login is broken; exit 3"])
    add(repo, "sees", "write seen hi", approve=True, verify=["true"])
    # As a process of its own: this one would seem to run still.
    holdfast(repo, "run", code=20, env={"HOLDFAST_SERVER__ENABLED": "true"})
    add(repo, "later", "say hello", depends_on=["login"])
    assert type_in(repo, "add", LONG, "--priority", "1", "--verify", "make test").returncode == 0
    yield repo
    shutil.rmtree(top)


class Screen:
    """A command in a terminal of tmux: keys go in, and what stands on the screen comes out."""

    def __init__(self, repo: Path, columns: int, rows: int, *arguments: str) -> None:
        self._repo = repo
        self._server = ["tmux", "-L", f"hf-{os.getpid()}-{next(_NUMBERS)}", "-f", "/dev/null"]
        # What the terminal's mode is behind the command shows whether that has put it back.
        after = "echo \"[ended] $? $(stty -a | grep -o '.icanon')\"; exec cat"
        command = f"{shlex.join([*HOLDFAST, *arguments])}; {after}"
        env = {**environment(repo, HOLDFAST_SERVER__ENABLED="true", TERM="xterm-256color", LC_ALL="C.UTF-8", PS1="")}
        env["PATH"] = f"{repo.parent / 'bin'}:{env['PATH']}"
        env = {name: value for name, value in env.items() if name not in ("COLUMNS", "LINES", "NO_COLOR", "TMUX")}
        size = ["-x", str(columns), "-y", str(rows)]
        new = [*self._server, "new-session", "-d", "-s", "t", *size, "sh", "-c", command]
        subprocess.run(new, cwd=repo, env=env, check=True)

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run([*self._server, "kill-server"], check=False)

    def press(self, *keys: str) -> None:
        subprocess.run([*self._server, "send-keys", "-t", "t", *keys], check=True)

    def resize(self, columns: int, rows: int) -> None:
        subprocess.run([*self._server, "resize-window", "-t", "t", "-x", str(columns), "-y", str(rows)], check=True)

    @property
    def raw(self) -> str:
        return subprocess.run([*self._server, "capture-pane", "-p", "-t", "t"], capture_output=True, text=True).stdout

    def read_until(self, *texts: str) -> str:
        """The screen once all of these stand on it, with placeholders."""
        try:
            wait_for(lambda: all(text in self.raw for text in texts))
        except AssertionError:
            raise AssertionError(f"never came: {texts} on the screen\n{self.raw}") from None
        text = self.raw.replace(str(self._repo.parent), "/tmp/hf-terminal-________")
        for pattern, word in _PLACEHOLDERS:
            text = re.sub(pattern, word, text)
        text = text.partition("[ended]")[0]
        return "".join(f"{line.rstrip()}\n" for line in text.rstrip().splitlines())


def seen(repo: Path, columns: int, rows: int, *arguments: str) -> str:
    """The screen once the command has ended, with placeholders."""
    with Screen(repo, columns, rows, *arguments) as screen:
        return screen.read_until("[ended]")


def expect_golden(name: str, screen: str, columns: int, rows: int) -> None:
    lines = screen.splitlines()
    assert len(lines) <= rows and max(map(len, lines)) <= columns
    path = GOLDEN / f"{name}-{columns}x{rows}.txt"
    if os.environ.get("HOLDFAST_GOLDEN") == "write":
        path.write_text(screen)
    assert screen == path.read_text(), f"the screen differs from {path}"


@pytest.mark.parametrize(("columns", "rows"), SIZES)
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("list", ["list"]),
        ("list-all", ["list", "--all"]),
        ("status", ["status"]),
        ("show-failed", ["show", "login"]),
        ("show-closed", ["show", "landed"]),
        ("gates", ["gates", "login"]),
    ],
)
def test_a_screen_is_as_it_was(repo: Path, columns: int, rows: int, name: str, arguments: list[str]) -> None:
    expect_golden(name, seen(repo, columns, rows, *arguments), columns, rows)


@pytest.mark.heavy
@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_the_end_of_a_run_is_as_it_was(columns: int, rows: int) -> None:
    top = Path(tempfile.mkdtemp(prefix="hf-terminal-", dir="/tmp"))
    try:
        repo = make_repo(top / "repo", good="write made hi\nspend 0.00125 10")
        (repo / ".sdd/config/settings.yaml").write_text(SETTINGS)
        add(repo, "login", "write page hi", depends_on=["good"], verify=["echo the login is broken; exit 3"])
        expect_golden("run", seen(repo, columns, rows, "run"), columns, rows)
    finally:
        shutil.rmtree(top)


@pytest.fixture
def at_work() -> Iterator[Path]:
    """A run in the background: one agent at work until there is a file `go` beside the repository, one result that
    waits for a person, one failure."""
    top = Path(tempfile.mkdtemp(prefix="hf-terminal-", dir="/tmp"))
    held = "say hello\nwrite x hi\nrun while ! test -f {go}; do sleep 0.02; done\nsay bye\nwrite y hi"
    repo = make_repo(top / "repo", one=held.format(go=top / "go"))
    (repo / ".sdd/config/settings.yaml").write_text("server: {enabled: false}\nmax_attempts: 1\nsandbox: none\n")
    add(repo, "sees", "write seen hi", title="See \x1b[31mthis \u202e", approve=True, verify=["true"])
    add(repo, "login", "write page hi", verify=["echo the login is broken; exit 3"])
    assert type_in(repo, "run", "--detach").returncode == 0

    def stands() -> bool:
        rows = msgspec.json.decode(type_in(repo, "list", "--json").stdout)["tasks"]
        words = {row["id"]: row["state"] for row in rows}
        events = repo / ".sdd/attempts/one.1/events.jsonl"
        at_it = events.exists() and "while ! test" in events.read_text()
        return words["sees"] == "PENDING_APPROVAL" and words["login"] == "FAILED" and at_it

    wait_for(stands, "the run does not come so far")
    yield repo
    (top / "go").write_text("")
    wait_for(lambda: '"owner": ""' in type_in(repo, "status", "--json").stdout, "the run does not end")
    shutil.rmtree(top)


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_watch_shows_a_run_in_the_background(at_work: Path, columns: int, rows: int) -> None:
    with Screen(at_work, columns, rows, "watch") as screen:
        expect_golden("watch", screen.read_until("1 at work", "→ run while", "q leave"), columns, rows)
        screen.press("a")
        expect_golden("watch-attach", screen.read_until("follows", "q back"), columns, rows)
        screen.press("q")
        screen.read_until("q leave")
        screen.press("Down")
        screen.read_until("> to approve")
        screen.press("d")
        expect_golden("watch-diff", screen.read_until("+hi", "q back"), columns, rows)
        screen.press("Escape")
        screen.read_until("q leave")
        screen.press("q")
        screen.read_until("[ended] 0  icanon")


def test_keys_of_watch_approve_and_stop_and_the_screen_follows_the_window(at_work: Path) -> None:
    with Screen(at_work, 80, 24, "watch") as screen:
        screen.read_until("> at work", "q leave")
        screen.press("Down")
        screen.read_until("> to approve")
        screen.press("y")
        screen.read_until("Approve sees, so that it lands?")
        screen.press("n")
        screen.read_until("Nothing was done.", "1 to approve")
        screen.press("y")
        screen.read_until("Approve sees, so that it lands?")
        screen.press("y")
        screen.read_until("1 closed")
        assert (at_work / "seen").read_text() == "hi\n"
        screen.resize(120, 30)
        screen.read_until("AGENT", "SPENT")
        screen.press("g")
        screen.read_until("> at work")
        # What was typed ahead of the question is no answer to it.
        screen.press("s", "n", "s")
        screen.read_until("Stop the agent of one?")
        screen.press("y")
        screen.read_until("1 stopped", "holdfast resume one")
        screen.press("q")
        screen.read_until("[ended] 0  icanon")


def test_keys_of_watch_tell_and_answer_and_what_was_typed_is_kept(at_work: Path) -> None:
    with Screen(at_work, 80, 24, "watch") as screen:
        screen.read_until("> at work", "q leave")
        screen.press("t")
        screen.read_until("Tell the agent of one:", "Esc leaves")
        screen.press("-l", "keep jobs quiet, G")
        screen.read_until("> keep jobs quiet, G")
        expect_golden("watch-tell", screen.read_until("> keep jobs quiet, G"), 80, 24)
        # Left, and opened again: the text is there.
        screen.press("Escape")
        screen.read_until("q leave")
        screen.press("t")
        screen.read_until("> keep jobs quiet, G")
        screen.press("Enter")
        screen.read_until("one: its agent gets it at the end of its turn")
        screen.press("r")
        screen.read_until("The agent of one asks nothing.")
        add(at_work, "asks", "ask-later question Which colour?\nask-later run true\nwrite asked hi", permissions="ask")
        screen.read_until("asks        asks")
        screen.press("Home")
        screen.read_until("> asks")
        screen.press("r")
        screen.read_until("asks.1.q1 asks: Which colour?")
        screen.press("-l", "the blue one")
        screen.press("Enter")
        screen.read_until("asks.1.q2")
        screen.press("r")
        screen.read_until("asks.1.q2 wants to call run", "Type allow, or always")
        screen.press("-l", "allow")
        screen.press("Enter")
        screen.read_until("closed      asks")
        screen.press("t")
        screen.read_until("Tell the agent of asks:")
        screen.press("-l", "too late")
        screen.press("Enter")
        # Refused, and not lost.
        screen.read_until("cannot be told")
        screen.press("q")
        screen.read_until("[ended] 0  icanon", "Not sent, tell asks: too late")
    told = type_in(at_work, "history", "one").stdout
    assert "told it: keep jobs quiet, G" in told
    history = type_in(at_work, "history", "asks").stdout
    assert "answered it: the blue one" in history and "allowed it" in history
