"""The command: what a shell prompt or a script pays for starting it, and for a look at a backlog."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.harness import Row, alternate, seconds

TASKS = 1000
COMMAND = str(Path(sys.executable).parent / "holdfast")
# A file that changed within the last two seconds is read anew by every look; see holdfast.backlog.scanner.
SETTLED_S = 2.5


def rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    # As after an installation: the modules are there as bytecode, whatever the shell around us asks Python not to keep.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    repo = folder / "repo"
    repo.mkdir()

    def run(*argv: str) -> float:
        return seconds(lambda: subprocess.run(argv, cwd=repo, check=True, capture_output=True, env=environ))

    def row(name: str, bar: float, rounds: int, *argv: str) -> Row:
        run(COMMAND, *argv)
        ratio, mine, theirs = alternate(lambda: run(COMMAND, *argv), lambda: run(sys.executable, "-c", "pass"), rounds)
        detail = f"{mine * 1e3:.0f} ms against {theirs * 1e3:.0f} ms"
        return Row(name, "python -c pass", ratio, bar, True, detail)

    rounds = 5 if quick else 25
    yield row("holdfast --version", 3, rounds, "--version")
    yield row("holdfast --help", 6, rounds, "--help")
    run("git", "init", "-q")
    run(COMMAND, "init")
    for number in range(TASKS):
        text = f"title: Task {number}\ngoal: do number {number}\npriority: {number % 9}\nlabels: [bench]\n"
        (repo / ".sdd" / "backlog" / "open" / f"t{number}.yaml").write_text(text)
    run(COMMAND, "cancel", "t0")
    time.sleep(SETTLED_S)
    yield row(f"holdfast list of {TASKS:,} tasks", 12, rounds, "list")
    yield row(f"holdfast status of {TASKS:,} tasks", 12, rounds, "status")
