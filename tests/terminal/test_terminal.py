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

import pytest

from cli_support import HOLDFAST, type_in
from work_support import add, bare_environment, make_work, wait_for

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
)

# A server of its own for each: the socket of one that ends is not there at once.
_NUMBERS = itertools.count()

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


@pytest.fixture(scope="module")
def repo() -> Iterator[Path]:
    """Of each kind of task one; in a folder whose name has always the same length."""
    top = Path(tempfile.mkdtemp(prefix="hf-terminal-", dir="/tmp"))
    repo = make_work(top / "repo", landed="write made hi\nspend 0.00125 10")
    (repo / ".sdd/config/settings.yaml").write_text(SETTINGS)
    gate = "verify:\n  - echo fine\n  - 'echo one; echo the login is broken; exit 3'\n"
    add(repo, "login", "write page hi", more=gate)
    add(repo, "sees", "write seen hi", more="approve: true\nverify: ['true']\n")
    # As a process of its own: this one would seem to run still.
    assert subprocess.run([*HOLDFAST, "run"], cwd=repo, env=bare_environment(), capture_output=True).returncode == 20
    add(repo, "later", "say hello", more="depends_on: [login]\n")
    assert type_in(repo, "add", LONG, "--priority", "1", "--verify", "make test").returncode == 0
    yield repo
    shutil.rmtree(top)


def seen(repo: Path, columns: int, rows: int, *arguments: str) -> str:
    """The screen once the command has ended, with placeholders."""
    server = ["tmux", "-L", f"hf-{os.getpid()}-{next(_NUMBERS)}", "-f", "/dev/null"]
    command = f"{shlex.join([*HOLDFAST, *arguments])}; echo '[ended]'; exec cat"
    env = {**bare_environment(TERM="xterm-256color", LC_ALL="C.UTF-8", PS1=""), "COLUMNS": "", "LINES": ""}
    env = {name: value for name, value in env.items() if name not in ("COLUMNS", "LINES", "NO_COLOR", "TMUX")}
    size = ["-x", str(columns), "-y", str(rows)]
    subprocess.run([*server, "new-session", "-d", "-s", "t", *size, "sh", "-c", command], cwd=repo, env=env, check=True)
    text = ""

    def has_ended() -> bool:
        nonlocal text
        text = subprocess.run([*server, "capture-pane", "-p", "-t", "t"], capture_output=True, text=True).stdout
        return "[ended]" in text

    try:
        wait_for(has_ended, "the command has not ended")
    finally:
        subprocess.run([*server, "kill-server"], check=False)
    text = text.replace(str(repo.parent), "/tmp/hf-terminal-________")
    for pattern, word in _PLACEHOLDERS:
        text = re.sub(pattern, word, text)
    return "".join(f"{line.rstrip()}\n" for line in text.rstrip().splitlines() if line != "[ended]")


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


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_the_end_of_a_run_is_as_it_was(columns: int, rows: int) -> None:
    top = Path(tempfile.mkdtemp(prefix="hf-terminal-", dir="/tmp"))
    try:
        repo = make_work(top / "repo", good="write made hi\nspend 0.00125 10")
        (repo / ".sdd/config/settings.yaml").write_text(SETTINGS)
        add(repo, "login", "write page hi", more="depends_on: [good]\nverify: ['echo the login is broken; exit 3']\n")
        expect_golden("run", seen(repo, columns, rows, "run"), columns, rows)
    finally:
        shutil.rmtree(top)
