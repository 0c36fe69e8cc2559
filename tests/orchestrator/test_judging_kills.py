"""Kills at the named points while two candidates are judged at once: afterwards all is as if nothing had happened."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from holdfast.landing.branch import LAND_POINTS
from holdfast.landing.verify import VERIFY_POINTS
from kit.crash import end_of, left_alive
from kit.program import begin, holdfast
from kit.project import add, landed, settings, sound, state
from kit.states import expect_landed_as_judged

pytestmark = [pytest.mark.usefixtures("no_agent_left"), pytest.mark.heavy]

TASKS = ("a", "b", "c", "d", "e")
# The second process at a point is that of the candidate that is judged ahead.
AHEAD = tuple(f"{name}:2" for name in VERIFY_POINTS if ".begun." not in name)
APPENDS = tuple(f"append.task_verify_{how}.{when}:2" for how in ("intent", "confirmed") for when in ("before", "after"))
LANDED = tuple(f"{name}:1" for name in LAND_POINTS)
GROUPS = {"verdicts": AHEAD, "appends-and-landings": (*APPENDS, *LANDED)}


def make(repo: Path) -> None:
    """Five candidates that wait to be judged; of one the gate fails, and its second attempt is good."""
    settings(repo, judging=2, grace_s=0.5, gates=[{"name": "unit", "command": "sleep 0.4; test ! -f broken"}])
    for number, name in enumerate(TASKS):
        script = f"attempt 1: write {'broken' if name == 'b' else name} x\nattempt 2+: delete broken\nwrite {name} x"
        add(repo, name, script if name == "b" else f"write {name} x", priority=number)


def two_were_judged_at_once(repo: Path) -> bool:
    return sum(bool(task.landing.judged) for task in state(repo).tasks.values()) >= 2


@pytest.mark.parametrize("group", GROUPS)
def test_every_point_kills_once_while_two_are_judged_and_nothing_lands_unjudged(
    repo: Path, tmp_path: Path, group: str
) -> None:
    make(repo)
    once, log = tmp_path / "once", tmp_path / "points.log"
    once.mkdir()
    log.touch()
    both = lives = 0
    while True:
        lives += 1
        points = {"HOLDFAST_CRASH_AT": ",".join(GROUPS[group]), "HOLDFAST_CRASH_ONCE": str(once)}
        process = begin(repo, HOLDFAST_CRASH_LOG=str(log), **points)
        said = end_of(process)
        if process.returncode != -signal.SIGKILL:
            break
        both += two_were_judged_at_once(repo)
        holdfast(repo, "check")
    assert process.returncode == 0, said
    assert {path.name for path in once.iterdir()} == set(GROUPS[group]), "these did not kill anybody"
    assert both, "no kill came while two were judged at once"
    assert sorted(landed(repo)) == sorted(TASKS) and {str(task.state) for task in state(repo).tasks.values()} == {
        "CLOSED"
    }
    sound(repo)
    assert left_alive(repo) == []
    expect_landed_as_judged(repo, len(TASKS))
