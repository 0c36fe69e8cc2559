"""The audit key lies where the settings put it: no git of ours over an agent's files sees it, from any command."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kit.confined import needs_bwrap
from kit.program import holdfast
from kit.project import add, make_repo, settings

pytestmark = needs_bwrap

BWRAP = """#!/bin/sh
printf '%s ' "$@" >> {log}
echo >> {log}
exec {bwrap} "$@"
"""


@pytest.mark.parametrize("command", [("undo", "t", "--turn", "1"), ("gc",), ("promote", "t")], ids=" ".join)
def test_a_command_without_a_run_covers_the_key_that_the_settings_name(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    repo, key, log = make_repo(tmp_path), tmp_path / "keys" / "mine.key", tmp_path / "bwrap.log"
    key.parent.mkdir()
    program = tmp_path / "bin" / "bwrap"
    program.parent.mkdir()
    program.write_text(BWRAP.format(log=log, bwrap=shutil.which("bwrap")))
    program.chmod(0o755)
    settings(repo, max_agents=1, max_attempts=1, audit={"key_path": str(key)})
    add(repo, "t", "write a.txt x\nwrite b.txt y\nfail")
    env = {"PATH": f"{program.parent}:{os.environ['PATH']}", "HOLDFAST_SANDBOX": "bwrap"}
    holdfast(repo, "run", "--plain", code=None, env=env)
    assert key.exists()
    if command[0] == "gc":
        holdfast(repo, "retry", "t", code=None, env=env)
        holdfast(repo, "cancel", "t", env=env)
    log.write_text("")
    holdfast(repo, *command, code=None, env=env)
    # Whether a sandbox can be made at all is tried with a program that reads nothing.
    calls = [each for each in map(str.strip, log.read_text().splitlines()) if not each.endswith(" -- true")]
    assert calls, "no git of ours looked at the files"
    assert [each for each in calls if f"--ro-bind /dev/null {key} " not in each] == []
