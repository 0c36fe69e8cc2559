"""The command: what a shell prompt or a script pays for starting it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.harness import Row, alternate, seconds


def rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    command = str(Path(sys.executable).parent / "holdfast")
    rounds = 5 if quick else 25

    def run(*argv: str) -> float:
        return seconds(lambda: subprocess.run(argv, check=True, capture_output=True))

    for option, bar in (("--version", 3), ("--help", 6)):
        subject = lambda option=option: run(command, option)  # noqa: E731
        ratio, mine, theirs = alternate(subject, lambda: run(sys.executable, "-c", "pass"), rounds)
        detail = f"{mine * 1e3:.0f} ms against {theirs * 1e3:.0f} ms"
        yield Row(f"holdfast {option}", "python -c pass", ratio, bar, True, detail)
