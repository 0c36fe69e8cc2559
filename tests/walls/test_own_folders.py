"""A confined agent writes in a git dir and an object store of its own. A link that it plants there leads us nowhere at
the next start of its attempt."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.domain.attempt_records import Ending, Launch
from kit.confined import needs_bwrap
from kit.runner import Bench

pytestmark = needs_bwrap

# `$1`: a folder outside that only we can write.
PLANTED = {
    "objects": 'rm -rf "$store/info" && ln -s "$1" "$store/info"',
    "alternates": 'rm -f "$store/info/alternates" && ln -s "$1/kept" "$store/info/alternates"',
    "git": 'rm -rf "$git/HEAD" "$git/logs" && ln -s "$1" "$git/logs"',
}


@pytest.mark.parametrize("how", PLANTED)
def test_a_link_in_an_agents_own_folders_is_not_written_through(bench: Bench, tmp_path: Path, how: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept\n")
    script = f"git=$(git rev-parse --absolute-git-dir) store=$(git rev-parse --git-path objects); {PLANTED[how]}"
    argv = ("sh", "-ec", script, "sh", str(outside))
    assert bench.run(agent="command", launch=Launch(argv), sandbox="bwrap").ending is Ending.DONE
    own = bench.layout.cache / "snapshots" / "T" / "own" / "T.1"
    assert [path for path in own.rglob("*") if path.is_symlink()], "the fault did not fire"
    look = ("sh", "-ec", "git log --format=%s > seen; git status --short >> seen; git add seen; git commit -qm more")
    ended = bench.run(agent="command", launch=Launch(look), sandbox="bwrap", start=2)
    assert os.listdir(outside) == ["kept"] and (outside / "kept").read_text() == "kept\n"
    assert ended.ending is Ending.DONE, ended
    assert (bench.worktree / "seen").read_text().splitlines()[0] == "base"
