"""What the tests of the sandbox's walls share: a runner with a confined agent, and what its commands printed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit import TOP
from kit.runner import Bench

BUILD = TOP / "build"


def why_not() -> str:
    if shutil.which("bwrap") is None:
        return "bwrap is not installed"
    words = ["bwrap", "--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "true"]
    tried = subprocess.run(words, capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"bwrap is not permitted here: {tried.stderr.strip()}"


needs_bwrap = pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")


def outputs(bench: Bench) -> list[str]:
    """What each command of the script printed, without the error stream's part."""
    return [each["output"] for each in bench.records(bench.files.traces) if each["kind"] == "tool"]


@pytest.fixture
def place() -> Iterator[Path]:
    """Not below /tmp, nor below /dev: of these a confined agent has others."""
    BUILD.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="confined-", dir=BUILD))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
