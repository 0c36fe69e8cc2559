"""The stamps of worktrees and the outputs of hooks are held against the journal; each kind of damage is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from holdfast.backlog.folder import Backlog
from holdfast.checks.check import Section, check
from holdfast.layout import Layout
from holdfast.preparation.hooks import recorded
from holdfast.worktrees.stamps import SetupStamp, stamp_path
from kit.program import holdfast
from kit.project import add, make_repo, settings

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A task that has failed: its worktree and that of its gates are set up, and stay."""
    repo = make_repo(tmp_path_factory.mktemp("whole") / "repo")
    settings(repo, worktree={"setup": ["echo set up"], "before_start": ["echo before"]}, grace_s=0.5)
    add(repo, "t", "write z hi", verify=["test -f nowhere"], max_attempts=1)
    holdfast(repo, "run", code=20)
    return repo


@pytest.fixture
def layout(whole: Path, tmp_path: Path) -> Layout:
    return Layout(Path(shutil.copytree(whole, tmp_path / "repo", symlinks=True)) / ".sdd")


def section(layout: Layout) -> Section:
    return next(each for each in check(layout, Backlog(layout.backlog), None).sections if each.name == "setups")


def stamp(layout: Layout) -> Path:
    return stamp_path(layout.inside("cache", "snapshots", "t"))


def write_stamp(layout: Layout, name: str = "t") -> None:
    path = stamp_path(layout.inside("cache", "snapshots", name))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.encode(SetupStamp("0" * 64)))
    (layout.worktrees / name).mkdir(exist_ok=True)


def output(layout: Layout, hook: str) -> Path:
    found = next(each.run.output for each in recorded(layout.attempt_files("t.1")) if each.hook == hook)
    return layout.cas / found[:2] / found


DAMAGE: dict[str, tuple[Callable[[Layout], object], str, str]] = {
    "never": (lambda at: write_stamp(at, "other"), "findings", "and the journal has no setup of it; move it away"),
    "another": (write_stamp, "findings", "is of another setup than the last that the journal has; move it away"),
    "torn": (lambda at: stamp(at).write_bytes(b"{"), "pending", "cannot be read, so"),
    "lost": (lambda at: stamp(at).unlink(), "notes", "was set up and has no stamp"),
    "output": (lambda at: output(at, "setup").unlink(), "findings", "the output of the hook setup of t.1: There is no"),
    "changed": (lambda at: output(at, "before_start").write_bytes(b"x"), "findings", "the hook before_start of t.1: "),
    "record": (lambda at: at.attempt_files("t.1").hooks.write_bytes(b"[{"), "findings", "cannot be read, and has the"),
    "no record": (lambda at: at.attempt_files("t.1").hooks.unlink(), "findings", "has no setup, and the journal has"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_each_damage_of_stamps_and_outputs_is_named(layout: Layout, kind: str) -> None:
    sound = section(layout)
    assert sound.counted == {"stamps": 2, "setups": 1, "hooks": 3}
    assert not (sound.findings or sound.pending or sound.notes)
    damage, where, words = DAMAGE[kind]
    damage(layout)
    found = section(layout)
    (told,) = getattr(found, where)
    assert words in told
    assert [bool(found.findings), bool(found.pending), bool(found.notes)].count(True) == 1
