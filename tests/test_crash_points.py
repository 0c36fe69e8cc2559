"""Every named point kills the process that comes to it, in the real program; afterwards all is as if nothing had.

In the fast tests some points kill once, the first time that anybody comes to them, and all do so in one repository: a
kill is followed by the next start, whose recovery meets the next point. `make crash` does so with each, and takes
each point by itself, too, with a second kill during the recovery from it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from crash_support import ALL_POINTS, NOT_OF_A_RUN, Case, Reference, make_reference
from holdfast.domain.entries import CLOSINGS, EFFECTS, PAYLOADS
from holdfast.engine.effects import POINTS

KILLS = int(os.environ.get("HOLDFAST_KILLS", "500"))
# Recovery gives an intent up only when it is old: here every one is.
IMPATIENT = {"HOLDFAST_REPLAY_AGE_MAX_S": "0.001"}
LATER_S = 3 * 86_400.0
GIVEN_UP_LATER = tuple(f"append.task_{effect}_{how}." for effect in EFFECTS for how in ("failed", "parked"))
RECOVERED = "append.wal_replay_completed"
BEGINNINGS = tuple(name for name in POINTS if name.endswith(".before"))
CLOSED_BY_RECOVERY = tuple(
    f"append.task_{effect}_{how}." for effect in EFFECTS for how in CLOSINGS if how != "confirmed"
)


def named(*beginnings: str, end: str = "") -> tuple[str, ...]:
    return tuple(name for name in ALL_POINTS if name.startswith(beginnings) and name.endswith(end))


ABANDONED = tuple(name for name in named("append.") if "_abandoned." in name)
# They are of one batch with `task_added`: whoever dies after one of them has appended all, and comes to no other.
BATCHED = ("append.task_edited.after", "append.task_cancelled.after")
GROUPS: dict[str, tuple[str, ...]] = {
    "appends-before": tuple(name for name in named("append.", end=".before") if name not in ABANDONED),
    "appends-after": tuple(name for name in named("append.", end=".after") if name not in (*ABANDONED, *BATCHED)),
    "abandoned": ABANDONED,
    "runner": named("runner."),
    "verify-and-worktree": named("verify.", "worktree."),
    "land-and-refresh": (*named("land.", "refresh."), BATCHED[0]),
    "effects": (*POINTS, BATCHED[1]),
    "chain": named("chain."),
}
# What must be killed first, so that recovery comes to a group's points.
ALSO = {
    "appends-before": (*BEGINNINGS, "verify.begun.after"),
    "appends-after": (*BEGINNINGS, "verify.begun.after"),
    "abandoned": BEGINNINGS,
}


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return make_reference(tmp_path_factory.mktemp("reference"))


def crash(
    reference: Reference, folder: Path, points: Iterable[str], env: Mapping[str, str] = {}, later_s: float = 0.0
) -> Case:
    """Each of the points, `name:n`, kills one process, and the next run begins `later_s` later; then all is well."""
    case, wanted = Case(reference.template, folder), set(points)
    case.run_to_the_end(wanted, env, later_s=later_s)
    assert case.killed() == wanted, "these did not kill anybody"
    # A run whose runners alone are killed has nothing to recover from.
    assert case.pending or case.lives == 1, "no kill left anything that `check` called pending"
    case.expect_all_well(reference.tree)
    return case


def test_every_point_is_in_a_group() -> None:
    assert sorted(ALL_POINTS) == sorted(name for group in GROUPS.values() for name in group)
    assert NOT_OF_A_RUN.keys() <= PAYLOADS.keys()


def test_a_run_without_a_crash_reaches_every_point_but_those_of_recovery_and_some_kill(
    reference: Reference, tmp_path: Path
) -> None:
    """One test, because the run that is the reference takes long, and each worker would make its own.

    The parts' own tests kill at each of their points; with the whole program around them all are `make crash`'s.
    """
    missed = {name for name in ALL_POINTS if not reference.reached[name]}
    assert missed == {name for name in ALL_POINTS if name.startswith(CLOSED_BY_RECOVERY)}
    assert reference.reached.keys() <= set(ALL_POINTS), "a point that is not declared"
    points = {*GROUPS["appends-before"][::5], *ALSO["appends-before"]}
    crash(reference, tmp_path / "soon", (f"{name}:1" for name in points))
    few = ("append.task_orphaned.before:1", "effect.land.after:1", "runner.turn_line.before:2")
    crash(reference, tmp_path / "later", few, later_s=LATER_S)


@pytest.mark.crash
@pytest.mark.parametrize("group", GROUPS)
def test_each_point_of_the_group_kills_once(reference: Reference, tmp_path: Path, group: str) -> None:
    points = {*GROUPS[group], *ALSO.get(group, ())}
    crash(reference, tmp_path, (f"{name}:1" for name in points), IMPATIENT if group == "abandoned" else {})


@pytest.mark.crash
@pytest.mark.parametrize("group", GROUPS)
def test_each_point_of_the_group_kills_once_and_the_next_run_is_days_later(
    reference: Reference, tmp_path: Path, group: str
) -> None:
    """Every timeout has passed by then: heartbeats, silence, time limits, and the age at which intents are given up."""
    points = {*GROUPS[group], *ALSO.get(group, ())}
    # An intent that is this old is given up, where it would otherwise be parked or found not to have happened.
    points = {name for name in points if not name.startswith(GIVEN_UP_LATER)}
    case = crash(reference, tmp_path, (f"{name}:1" for name in points), later_s=LATER_S)
    assert case.lives == 1 or case.clock.passed_s >= LATER_S


@pytest.mark.crash
@pytest.mark.parametrize("name", ALL_POINTS if KILLS >= 200 else ALL_POINTS[:: -(-len(ALL_POINTS) * 5 // KILLS)])
def test_each_point_kills_and_so_does_the_recovery(reference: Reference, tmp_path: Path, name: str) -> None:
    case, first, env = Case(reference.template, tmp_path), {f"{name}:1"}, {}
    if name.startswith("runner."):
        # Its orchestrator lives on, and dies when it is about to say that the attempt is nobody's.
        second = "append.task_orphaned.before:1"
        assert case.run({*first, second}) == -signal.SIGKILL, case.said
        case.expect_sound_before_restart()
    else:
        if name.startswith(CLOSED_BY_RECOVERY):
            first |= {"verify.begun.after:1" if "_parked." in name else f"effect.{name.split('_')[1]}.before:1"}
            env = IMPATIENT if name in ABANDONED else {}
        while not first <= case.killed():
            assert case.run(first, env) == -signal.SIGKILL, case.said
            case.expect_sound_before_restart()
        second = f"{RECOVERED}.after:1" if name == f"{RECOVERED}.before" else f"{RECOVERED}.before:1"
        assert case.run({second}) == -signal.SIGKILL, case.said
        case.expect_sound_before_restart()
    case.run_to_the_end()
    assert case.killed() == {*first, second}
    case.expect_all_well(reference.tree)
