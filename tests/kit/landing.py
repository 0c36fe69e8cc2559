"""What the tests of landing share: intents, and effects in a process of their own that can be killed at a point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from holdfast.storage.journal.entry import GENESIS, Entry
from holdfast.storage.journal.intents import OpenIntent
from kit import TESTS

_PROGRAM = """
import sys
from pathlib import Path
import msgspec
from holdfast.landing.branch import Land
from holdfast.landing.refresh import Refresh
from holdfast.layout import Layout
from kit.landing import intent

kind, repo, inputs = sys.argv[1:]
effect = Land(Path(repo), Layout(Path(repo, ".sdd"))) if kind == "land" else Refresh()
sys.stdout.buffer.write(msgspec.json.encode(effect.perform(intent(kind, **msgspec.json.decode(inputs)))))
"""


def intent(kind: str, **inputs: Any) -> OpenIntent:
    inputs = {"task": "t-1", "attempt": "t-1.1", **inputs}
    return OpenIntent(
        "run",
        Entry(
            1,
            GENESIS,
            1.0,
            f"task_{kind}_intent",
            inputs,
            output={},
            actor="loop",
            committed=False,
            synced=0,
            entry_hash=GENESIS,
        ),
    )


def perform(kind: str, repo: Path, inputs: dict[str, str], *, log: Path | None = None) -> dict[str, Any]:
    done = _run(kind, repo, inputs, {"HOLDFAST_CRASH_LOG": str(log)} if log else {})
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = msgspec.json.decode(done.stdout)
    return result


def killed(kind: str, repo: Path, inputs: dict[str, str], at: str, number: int = 1) -> None:
    """Performs the effect in a process that dies at the point, which must be reached."""
    done = _run(kind, repo, inputs, {"HOLDFAST_CRASH_AT": f"{at}:{number}"})
    assert done.returncode == -signal.SIGKILL, (at, done.returncode, done.stderr)


def _run(kind: str, repo: Path, inputs: dict[str, str], extra: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, "PYTHONPATH": str(TESTS), **extra}
    arguments = [kind, str(repo), msgspec.json.encode(inputs).decode()]
    return subprocess.run([sys.executable, "-c", _PROGRAM, *arguments], env=env, capture_output=True, check=False)
