"""Power cuts that include git's objects: what real programs wrote and did not sync is taken from the disk."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from holdfast.domain.task import TaskState
from holdfast.git import command as git_command
from holdfast.git import objects
from holdfast.landing.branch import Land
from holdfast.ports import Happened
from holdfast.snapshots import after_boot
from holdfast.snapshots.snapshots import WorktreeSnapshots
from holdfast.snapshots.store import Store
from kit import TESTS
from kit.disks import require_strace
from kit.git import git
from kit.landing import intent
from kit.program import HOLDFAST, environment, holdfast, type_in
from kit.project import add, landed, layout, sound, state
from kit.traced_disk import VARIANTS, Moment, Traced, Variant, trace

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy

require_strace()
_TAKE = """
import sys
from pathlib import Path
from whole.test_power_traced import snapshots
print(snapshots(Path(sys.argv[1])).take("t.1", "turn-1").commit, flush=True)
"""
_LAND = """
import sys
from pathlib import Path
from holdfast.landing.branch import Land
from kit.landing import intent
repo, old, new = sys.argv[1:]
print(Land(Path(repo)).perform(intent("land", branch="refs/heads/main", old=old, new=new)), flush=True)
"""


def snapshots(repo: Path) -> WorktreeSnapshots:
    return WorktreeSnapshots(repo, repo / ".sdd" / "cache" / "p", repo / ".sdd" / "snapshots.git", exclude=(".sdd",))


def python(program: str, repo: Path, *args: str) -> list[str]:
    return [sys.executable, "-c", program, str(repo), *args]


def env(repo: Path) -> dict[str, str]:
    return environment(repo, PYTHONPATH=str(TESTS), PYTHONDONTWRITEBYTECODE="1")


def unreadable(repo: Path, commit: str) -> list[objects.Damaged]:
    store = Store.of(repo / ".sdd" / "snapshots.git", repo)
    return objects.unreadable(store.seen, [commit])


def is_object(path: str) -> bool:
    return re.search(r"/[0-9a-f]{2}/[0-9a-f]{38}$", path) is not None


def some(moments: list[Moment], most: int) -> list[Moment]:
    """The last, and others at equal distances; a moment at which objects are named and unsynced is among them."""
    step = max(1, len(moments) // most)
    risky = [moment for moment in moments if any(map(is_object, moment.unsynced()))][-1:]
    return [*moments[::step], *risky, moments[-1]]


def expect_snapshots(traced: Traced, repo: Path, most: int) -> int:
    """After each cut: what was acknowledged is whole, and the tree can be saved. Returns how many objects were lost."""
    commit, lost = git(traced.final / ".sdd" / "snapshots.git", "rev-parse", "refs/attempts/t.1/turn-1"), 0
    for moment in some(traced.moments, most):
        for variant in VARIANTS:
            lost += sum(map(is_object, traced.build(moment, variant)))
            if moment.acknowledged:
                assert unreadable(repo, commit) == [], (variant, moment.call)
            after_boot.set_damaged_aside(layout(repo), repo, 0.0)
            again = snapshots(repo).take("t.1", "turn-2").commit
            assert unreadable(repo, again) == [], (variant, moment.call)
            assert git(repo / ".sdd" / "snapshots.git", "show", f"{again}:new.txt") == "new"
    return lost


@pytest.mark.heavy
def test_a_snapshot_is_whole_once_it_is_acknowledged_and_can_be_taken_again(repo: Path, tmp_path: Path) -> None:
    (repo / "new.txt").write_text("new\n")
    traced = trace(python(_TAKE, repo), repo, tmp_path / "base", env(repo))
    assert traced.moments[-1].acknowledged or any(moment.acknowledged for moment in traced.moments)
    assert expect_snapshots(traced, repo, 3) > 0, "no object was lost, so nothing was shown"


def test_objects_that_an_agents_own_commit_lost_are_stored_anew_by_the_next_snapshot(
    repo: Path, tmp_path: Path
) -> None:
    (repo / "new.txt").write_text("new\n")
    command = ["sh", "-c", "git add new.txt && git commit -qm own"]
    traced = trace(command, repo, tmp_path / "base", env(repo))
    emptied = 0
    for moment in some(traced.moments, 3):
        lost = [path for path in traced.build(moment, "lost") if is_object(path)]
        emptied += len(lost)
        told = after_boot.set_damaged_aside(layout(repo), repo, 0.0)
        assert bool(told) is bool(lost), moment.call
        saved = snapshots(repo).take("t.1", "turn-1").commit
        assert unreadable(repo, saved) == [], moment.call
    assert emptied >= 3, "git synced its objects, so nothing was shown"


def test_a_landing_is_whole_once_it_is_acknowledged(repo: Path, tmp_path: Path) -> None:
    old = git(repo, "rev-parse", "HEAD")
    (repo / "new.txt").write_text("new\n")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "new")
    new = git(repo, "rev-parse", "HEAD")
    git(repo, "reset", "-q", "--hard", old)
    traced = trace(python(_LAND, repo, old, new), repo, tmp_path / "base", env(repo))
    assert any(moment.acknowledged for moment in traced.moments)
    lost = 0
    for moment in some(traced.moments, 5):
        for variant in VARIANTS:
            lost += len(traced.build(moment, variant))
            at = git_command.discover(repo).run("rev-parse", "-q", "--verify", "main", codes=(0, 1, 128)).line
            assert at == new if moment.acknowledged else at in (old, new), (variant, moment.call)
            found = Land(repo).reconcile(intent("land", branch="refs/heads/main", old=old, new=new))
            assert isinstance(found, Happened) is (at == new), (variant, moment.call)
    assert lost > 0, "nothing was lost, so nothing was shown"


# -- a whole run ------------------------------------------------------------------------------------------------------


def traced_run(repo: Path, tmp_path: Path) -> Traced:
    add(repo, "t", "write t.txt x\nrun echo y > own.txt && git add -A && git commit -qm own\nsay done")
    traced = trace([*HOLDFAST, "run", "--plain"], repo, tmp_path / "base", env(repo))
    assert git(traced.final, "show", "main:t.txt") == "x"
    assert "t.1 is done" in traced.moments[-1].acknowledged and "1 closed" in traced.moments[-1].acknowledged
    return traced


def expect_kept(traced: Traced, repo: Path, moment: Moment, variant: Variant) -> int:
    """What was said holds at once, the next run finishes the rest. Returns how many objects were lost."""
    lost = sum(map(is_object, traced.build(moment, variant)))
    traced.boot()
    where = (variant, moment.call)
    code, told, _ = type_in(repo, "check", environ={"HOME": str(repo.parent)})
    assert code == 0, (where, told)
    found = state(repo).tasks.get("t")
    if "t.1 is at work" in moment.acknowledged:
        assert found is not None and found.attempt.id == "t.1", where
    if "t.1 is done after 2 turns" in moment.acknowledged:
        assert found is not None and found.spent.turns == 2, where
    if "1 closed" in moment.acknowledged:
        assert found is not None and found.state is TaskState.CLOSED and landed(repo) == ["t"], where
    said = holdfast(repo, "run", code=None)
    task = state(repo).tasks["t"]
    assert landed(repo) == ["t"] and task.state is TaskState.CLOSED and task.attempts == 1, (where, said)
    assert git(repo, "show", "main:t.txt") == "x" and git(repo, "show", "main:own.txt") == "y"
    sound(repo)
    return lost


@pytest.mark.heavy
def test_a_whole_run_goes_on_after_a_power_cut(repo: Path, tmp_path: Path) -> None:
    traced = traced_run(repo, tmp_path)
    cuts = traced.cuts()
    risky = [cut for cut in cuts if any(map(is_object, cut[0].unsynced()))]
    spread = cuts[:: len(cuts) // 5]
    assert sum(expect_kept(traced, repo, *cut) for cut in [*spread, risky[-1]]) > 0, "no object was lost"


@pytest.mark.crash
@pytest.mark.parametrize("part", range(4))
def test_a_whole_run_goes_on_after_a_power_cut_at_any_moment(repo: Path, tmp_path: Path, part: int) -> None:
    """Before each sync and at each word of the run; a sample of them where HOLDFAST_KILLS is below 200."""
    traced = traced_run(repo, tmp_path)
    step = 4 if int(os.environ.get("HOLDFAST_KILLS", "500")) >= 200 else 40
    cuts = traced.cuts()[part::step]
    assert sum(expect_kept(traced, repo, *cut) for cut in cuts) > 0, "no object was lost, so nothing was shown"
    print(f"power cuts: {len(cuts)}")
