"""Tests that mount filesystems: each runs in a mount namespace of its own, with or without the rights of root."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from typing import ParamSpec

import pytest

from kit import TOP

P = ParamSpec("P")
_INSIDE = "TEST_HAS_OWN_MOUNTS"


@functools.cache
def _namespace() -> tuple[list[str], str]:
    """The command that makes one, or why none can be made. Without root it comes with a user namespace."""
    reason = ""
    for command in (["unshare", "-m"], ["unshare", "-Urm"]):
        try:
            done = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return [], "there is no unshare (util-linux)"
        if not done.returncode:
            return command, ""
        reason = done.stderr.strip()
    return [], f"no mount namespace can be made: {reason}"


def mounts(test: Callable[P, None]) -> Callable[P, None]:
    """The test may mount what it likes, and nothing of that is left; skipped where no namespace can be made."""

    @functools.wraps(test)
    def within(*args: P.args, **kwargs: P.kwargs) -> None:
        if os.environ.get(_INSIDE):
            test(*args, **kwargs)
            return
        command, reason = _namespace()
        if not command:
            pytest.skip(reason)
        name = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
        again = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-m", "", "-rs", name]
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
        env = {**kept, _INSIDE: "1", "PYTEST_ADDOPTS": ""}
        done = subprocess.run([*command, *again], cwd=TOP, env=env, capture_output=True, text=True, check=False)
        if done.returncode == 0 and "1 skipped" in done.stdout:
            pytest.skip(next(line for line in done.stdout.splitlines() if line.startswith("SKIPPED")))
        assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr

    return within
