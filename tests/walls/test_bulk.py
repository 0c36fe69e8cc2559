"""What an agent writes and prints without end costs us neither memory nor disk, and takes no other work along."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path

import pytest

from holdfast.domain.attempt_records import AttemptLimits, Ending, Exit, Launch, Order, Resources
from holdfast.errors import SnapshotTooLarge
from holdfast.snapshots.size_limits import Bounds
from holdfast.snapshots.snapshots import WorktreeSnapshots
from kit.runner import LIMITS, Bench

MB = 1 << 20
HUGE = 1 << 40


def limits(**resources: int) -> AttemptLimits:
    usual = {"file_bytes_max": 64 * MB, "snapshot_bytes_max": 256 * MB, "snapshot_files_max": 1000}
    return AttemptLimits(grace_s=LIMITS.grace_s, output_bytes_max=MB, resources=Resources(**{**usual, **resources}))


def run(bench: Bench, order: Order) -> tuple[Exit, int]:
    """How the start ended, and the most memory that its runner ever had."""
    runner, most = bench.start(order), 0
    # What the kernel counts of a process that has ended holds what it was copied from, too, which is this one.
    while runner.poll() is None:
        with contextlib.suppress(OSError, StopIteration):
            lines = Path(f"/proc/{runner.pid}/status").read_text().splitlines()
            most = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
        time.sleep(0.01)
    assert runner.returncode == 0, bench.log.read_text()
    assert most, "nothing was measured"
    return bench.exit(), most


def test_a_line_without_end_is_cut_and_told_and_the_runner_does_not_grow_with_it(bench: Bench) -> None:
    size = 200 * MB
    result = '{"type": "result", "subtype": "success", "is_error": false, "result": "done"}'
    command = ("sh", "-c", f"head -c {size} /dev/zero; echo; echo '{result}'")
    order = bench.order(agent="claude", launch=Launch(command, stream="claude"), limits=limits(line_bytes_max=MB))
    ended, most = run(bench, order)
    assert ended.ending is Ending.DONE
    assert most < size // 2, f"{most // MB} MB"
    assert len(bench.refusals()) == 1 and "limits.line_bytes_max" in bench.refusals()[0]
    assert bench.files.output.stat().st_size < 2 * MB
    assert b"output_bytes_max" in bench.files.output.read_bytes()[-200:]


def test_a_file_of_a_terabyte_is_not_read_and_all_else_is_kept(bench: Bench) -> None:
    """Had git read it, this would take an hour."""
    order = bench.order(f"write b 1\nrun truncate -s {HUGE} huge && echo 2 > c\nwrite d 3", limits=limits())
    ended, most = run(bench, order)
    assert ended.ending is Ending.OVER_LIMIT and ended.limit == "limits.file_bytes_max"
    for word in ("huge", "1.0 TB", "64 MB", "limits.file_bytes_max", ".gitignore", "holdfast retry T"):
        assert word in ended.detail, ended.detail
    assert most < 512 * MB, f"{most // MB} MB"
    assert [each.turn for each in bench.turns()] == [1], "the turn that could not be saved is none"
    assert bench.tree(ended.snapshot) == {"a", "b", "c"}
    assert (bench.worktree / "huge").stat().st_size == HUGE


def test_one_that_is_made_at_the_very_end_is_refused_too(bench: Bench) -> None:
    launch = Launch(("sh", "-c", f"echo 1 > b; truncate -s {HUGE} huge"))
    ended, _ = run(bench, bench.order(agent="shell", launch=launch, limits=limits()))
    assert ended.ending is Ending.OVER_LIMIT and bench.tree(ended.snapshot) == {"a", "b"}


@pytest.mark.parametrize(
    ("script", "limit"),
    [
        (f"run for i in 1 2 3 4 5 6; do truncate -s {60 * MB} f$i; done", "limits.snapshot_bytes_max"),
        ("run mkdir many && cd many && seq 1200 | xargs touch", "limits.snapshot_files_max"),
    ],
)
def test_many_files_are_refused_before_they_are_read(bench: Bench, script: str, limit: str) -> None:
    ended, _ = run(bench, bench.order(f"write b 1\n{script}", limits=limits()))
    assert ended.ending is Ending.OVER_LIMIT and ended.limit == limit and limit in ended.detail
    assert [each.turn for each in bench.turns()] == [1] and bench.tree(bench.turns()[0].snapshot) == {"a", "b"}


def test_ignored_files_may_have_any_size(bench: Bench) -> None:
    order = bench.order(f"write .gitignore huge\nrun truncate -s {HUGE} huge\nwrite b 1", limits=limits())
    ended, _ = run(bench, order)
    assert ended.ending is Ending.DONE and bench.tree(ended.snapshot) == {".gitignore", "a", "b"}


def taken(bench: Bench, base: str) -> WorktreeSnapshots:
    bounds = Bounds(MB, 4 * MB, 1000)
    return WorktreeSnapshots(
        bench.worktree, bench.layout.cache / "mine", bench.layout.snapshots, base=base, bounds=bounds
    )


def test_going_back_removes_a_file_of_a_terabyte_without_reading_it(bench: Bench) -> None:
    """A new one, and one in the place of a file that is held."""
    snapshots = taken(bench, bench.base)
    first = snapshots.take("T.1", "turn-1")
    for name in ("huge", "a"):
        os.truncate(bench.worktree / name, HUGE) if name == "a" else subprocess.run(
            ["truncate", "-s", str(HUGE), bench.worktree / name], check=True
        )
    with pytest.raises(SnapshotTooLarge):
        snapshots.take("T.1", "turn-2")
    assert snapshots.standing("T.1") == ""
    kept = snapshots.take("T.1", "found-1", large="leave_out")
    assert {each.path for each in kept.excluded} == {"a", "huge"} and kept.tree == first.tree
    snapshots.restore(first.commit)
    assert not (bench.worktree / "huge").exists() and (bench.worktree / "a").read_text() == "a\n"
    assert snapshots.standing("T.1") == first.tree


def test_files_that_the_attempt_began_with_do_not_count(bench: Bench) -> None:
    with open(bench.worktree / "large", "wb") as file:
        file.write(bytes(2 * MB))
    snapshots = taken(bench, bench.base)
    with pytest.raises(SnapshotTooLarge):
        snapshots.take("T.1", "turn-1")
    snapshots.take("T.1", "start-1", large="take")
    (bench.worktree / "b").write_text("1\n")
    assert snapshots.take("T.1", "turn-1").excluded == []


def test_a_worktree_with_a_file_of_a_terabyte_is_not_read_to_see_whether_it_is_spent(bench: Bench) -> None:
    from holdfast.worktrees.worktrees import Worktrees

    trees = Worktrees(bench.repo, bench.layout)
    trees._mark("T", b"")
    assert trees.is_spent("T", landed=bench.base)
    subprocess.run(["truncate", "-s", str(HUGE), bench.worktree / "huge"], check=True)
    assert not trees.is_spent("T", landed=bench.base)
