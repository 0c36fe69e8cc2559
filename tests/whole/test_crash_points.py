"""Every named point kills the process that comes to it, in the real program; afterwards all is as if nothing had.

In the fast tests a few points on the way of a paused attempt kill, one after the other, and each part's own tests kill
at its points. `make crash` runs the whole program: all points of a group kill once, the first time that anybody comes
to them, in one repository, where a kill is followed by the next start, whose recovery meets the next point; and each
point is taken by itself, too, with a second kill during the recovery from it.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from holdfast.domain.effect_entries import CLOSINGS, EFFECTS
from holdfast.domain.entries import PAYLOADS
from kit.crash import (
    ALL_POINTS,
    BESIDE,
    FINAL,
    LANDING,
    NOT_OF_A_RUN,
    POINTS,
    Case,
    Reference,
    end_of,
    expect_sound,
    make_reference,
)
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, layout, make_repo, state
from kit.waiting import wait_for

# Whole runs, of seconds each.
pytestmark = pytest.mark.heavy

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
# They are of one batch with `task_added`: a process that dies after one of them has appended all, and meets no other.
BATCHED = ("append.task_edited.after", "append.task_cancelled.after")
GROUPS: dict[str, tuple[str, ...]] = {
    "appends-before": tuple(name for name in named("append.", end=".before") if name not in ABANDONED),
    "appends-after": tuple(name for name in named("append.", end=".after") if name not in (*ABANDONED, *BATCHED)),
    "abandoned": ABANDONED,
    "runner": named("runner."),
    "verify-and-worktree": named("verify.", "worktree.", "setup."),
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


@pytest.mark.crash
def test_a_run_without_a_crash_reaches_every_point_but_those_of_recovery_and_some_kill(
    reference: Reference, tmp_path: Path
) -> None:
    """One test, because the run that is the reference takes long, and each worker would make its own."""
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


# -- a paused attempt whose worktree is gone --------------------------------------------------------------------------

PAUSED = "paused"
# Its agent stops after two turns as long as the file is there, and does the third when it is continued.
WAITS = f"run while [ -e {BESIDE}/hold ]; do sleep 0.05; done"
HELD = f"write {PAUSED}.1 x\nwrite {PAUSED}.2 x\n{WAITS}\nwrite {PAUSED}.3 x"
EXTRA = {PAUSED: "CLOSED", "goes": "CANCELLED", "late": "CANCELLED"}
MADE = {f"{PAUSED}.{number}" for number in (1, 2, 3)}


class PausedCase(Case):
    """A case with one more task, which was paused after two turns; while it is, each start finds its worktree gone."""

    def __init__(self, template: Path, folder: Path) -> None:
        super().__init__(template, folder)
        self.deleted = 0
        add(self.repo, PAUSED, HELD, priority=-1)
        add(self.repo, "goes", "write never.txt x")
        hold = folder / "hold"
        hold.touch()
        run = begin(self.repo, "--max-agents", "1")
        wait_for(
            lambda: PAUSED in state(self.repo).tasks and state(self.repo).tasks[PAUSED].spent.turns >= 2, "two turns"
        )
        holdfast(self.repo, "stop", "--agents")
        end_of(run)
        assert self.is_paused(), "the fault did not fire: nothing is paused"
        hold.unlink()
        # So that the next start takes in what is new, changed and gone, as it does where nothing was paused.
        add(self.repo, "late", "write never.txt x", parent="goes")
        add(self.repo, "changed", "write changed.txt as-edited", labels=["again"])
        (layout(self.repo).backlog_open / "goes.yaml").unlink()

    def is_paused(self) -> bool:
        task = state(self.repo).tasks[PAUSED]
        return str(task.state) == "OPEN" and task.continues

    def run(self, points: Iterable[str] = (), env: Mapping[str, str] = {}) -> int:
        if self.is_paused():
            shutil.rmtree(layout(self.repo).worktree(PAUSED), ignore_errors=True)
            self.deleted += 1
        return super().run(points, env)

    def expect_turns_kept(self, landing: Iterable[str]) -> None:
        assert self.deleted
        task = state(self.repo).tasks[PAUSED]
        assert (str(task.state), task.attempts) == ("CLOSED", 1)
        assert set(git(self.repo, "ls-tree", "--name-only", "main").split()) >= MADE, "a turn is lost"
        expect_sound(self.repo, self.log, [*landing, PAUSED])


def test_a_paused_attempt_whose_worktree_is_gone_loses_no_turn_whatever_is_killed(tmp_path: Path) -> None:
    """Some points on the way of its next start, one after the other, in a repository of its own."""
    case = PausedCase(make_repo(tmp_path / "template"), tmp_path)
    names = "append.task_claimed.after", "effect.spawn.before", "append.turn_completed.after"
    points = {f"{name}:1" for name in names}
    while (code := case.run(points)) == -signal.SIGKILL:
        pass
    assert code == 0, case.said
    assert case.killed() == points, "these did not kill anybody"
    case.expect_turns_kept(["changed"])


@pytest.mark.crash
@pytest.mark.parametrize("group", GROUPS)
def test_each_point_kills_beside_a_paused_attempt_whose_worktree_is_gone(
    reference: Reference, tmp_path: Path, group: str
) -> None:
    case, wanted = PausedCase(reference.template, tmp_path), {f"{n}:1" for n in (*GROUPS[group], *ALSO.get(group, ()))}
    case.run_to_the_end(wanted, IMPATIENT if group == "abandoned" else {})
    assert case.killed() == wanted, "these did not kill anybody"
    assert {name: str(task.state) for name, task in state(case.repo).tasks.items()} == {**FINAL, **EXTRA}
    case.expect_turns_kept(LANDING)
    calm = reference.template.parent / "calm" / "repo"
    made = [line for line in git(case.repo, "ls-tree", "-r", "main").splitlines() if f"\t{PAUSED}." not in line]
    assert made == git(calm, "ls-tree", "-r", "main").splitlines()
