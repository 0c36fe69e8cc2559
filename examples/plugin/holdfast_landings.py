"""A plugin of Holdfast, whole in one module: every landing as a row of a CSV file, a gate, and an agent.

The rows are written exactly once, whatever is killed: the last column of a row is the key of the event, so the effect
and the cursor are one line, written at once. `cursor` returns the key of the last whole row, and Holdfast goes on
behind it. Without `cursor` a kill in the wrong moment would give a row twice.
"""

from __future__ import annotations

import csv
import io
import os
import sys
from pathlib import Path
from typing import Any

import pluggy

holdfast_api = 1
hookimpl = pluggy.HookimplMarker("holdfast")

COLUMNS = ("time", "task", "attempt", "branch", "commit", "key")
_file = Path("landings.csv")


# -- an effect that happens once --------------------------------------------------------------------------------------


@hookimpl
def configure(settings: dict[str, Any], repository: Path) -> None:
    """`plugins.settings.landings.path` of the settings; a relative path is below the repository."""
    global _file
    _file = repository / settings.get("path", ".sdd/landings.csv")


@hookimpl
def cursor() -> str | None:
    """The key in the last whole row. What a power cut left of a row is cut off first, so that the next one is whole."""
    if not _file.exists():
        return None
    content = _file.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        os.truncate(_file, len(whole))
    rows = list(csv.reader(io.StringIO(whole.decode())))
    return rows[-1][-1] if len(rows) > 1 else None


@hookimpl
def landed(event: Any, attempt: str, branch: str, commit: str) -> None:
    row = io.StringIO()
    writer = csv.writer(row, lineterminator="\n")
    if not _file.exists() or not _file.stat().st_size:
        writer.writerow(COLUMNS)
    writer.writerow((f"{event.at:.3f}", event.task, attempt, branch, commit, event.key))
    descriptor = os.open(_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, row.getvalue().encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- what it provides -------------------------------------------------------------------------------------------------


@hookimpl
def provides(kind: str, settings: dict[str, Any]) -> dict[str, Any] | None:
    return {"gates": {"no-marks": no_marks}, "agents": {"note-taker": note_taker}}.get(kind)


def no_marks(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """`gate:no-marks` in `gates:` or `verify:`: this file as a command, which looks for marks in the files of git."""
    return (sys.executable, "-P", os.path.abspath(__file__), *arguments)


def note_taker() -> Any:
    """An agent that tasks can name: a command that gets the prompt and works in the task's worktree."""
    from holdfast.agents.adapters.command import Declared
    from holdfast.config.sections import DeclaredAgent

    return Declared(DeclaredAgent("note-taker", command=("sh", "-c", "cat > NOTES.md"), prompt="stdin"))


def main(marks: list[str]) -> int:
    """The gate: prints every line with a mark; 1 where there is one."""
    import subprocess

    patterns = [part for mark in marks or ["FIXME"] for part in ("-e", mark)]
    return 1 if subprocess.run(["git", "grep", "-n", "-F", *patterns]).returncode == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
