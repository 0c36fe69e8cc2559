"""Kills at named points: a repository whose tasks reach them all, runs that are killed, and what must be so then."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from holdfast.agents.runner.runner import RUNNER_POINTS
from holdfast.backlog.folder import Backlog
from holdfast.checks.check import check
from holdfast.decisions.cancel_chain import CHAIN_POINTS
from holdfast.domain.entries import PAYLOADS
from holdfast.engine import effects
from holdfast.landing.branch import LAND_POINTS
from holdfast.landing.refresh import HOLD_POINTS, REFRESH_POINTS
from holdfast.landing.verify import VERIFY_POINTS
from holdfast.preparation.setup import SETUP_POINTS
from holdfast.storage.audit.key import load_key
from holdfast.storage.journal.reader import Chain
from holdfast.worktrees.worktrees import WORKTREE_POINTS
from kit.clock import SetClock
from kit.git import git
from kit.program import begin, holdfast
from kit.project import add, landed, layout, make_repo, settings, sound, state

# For a machine that is busy with much else.
RUN_S_MAX, LOOK_S = 900, 5
TASKS_LEFT = 20

# Entries that no run appends, each with what does.
NOT_OF_A_RUN = {
    "run_started": "the journal writes it when it begins its file; test_journal cuts the power during a start",
    "task_blocked": "no part of the loop finds a dependency late",
    "task_move_refused": "only a command of a person can ask for a move that the table does not have",
    "turn_undone": "a command of a person",
    "task_told": "a command of a person",
    "task_taken": "a command of a person",
    "task_given_back": "a command of a person",
    "attempt_forked": "a command of a person",
    "attempt_resumed": "a command of a person",
    "landing_promoted": "a command of a person",
    "landing_waits": "only where a person has changed the same file; nothing follows from it but that it is shown",
    "landing_settled": "only after a person has rewritten the history",
    "review_drafted": "a person's review; test_reviews kills it at each of its entries",
    "review_submitted": "a person's review; test_reviews kills it at each of its entries",
    "gate_warned": "only where a gate uses another checkout; nothing follows from it but that it is shown",
    "plugin_set_aside": "only where a plugin fails again and again; nothing follows from it but that it is shown",
    "plugin_enabled": "a command of a person",
    "tasks_filed": "a request to the server",
    "task_progressed": "a request to the server",
    "request_answered": "a request to the server",
    "task_spawn_parked": "the race for start-<n> leaves no doubt; test_recovery parks one",
    "task_setup_parked": "the stamp tells; parked by the same code as a spawn",
    "task_setup_abandoned": "a setup is done again at any age",
    "task_land_parked": "the branch tells; parked by the same code as a spawn",
    "task_refresh_parked": "the checkout tells; parked by the same code as a spawn",
    "message_flagged": "a command of a person, or a receiver that refuses; test_outbox kills at each of its entries",
    **{
        name: "only with a pull request; test_pull_kills kills at each of its entries"
        for name in PAYLOADS
        if name.startswith("pull_request_")
    },
    **dict.fromkeys(
        ("delivery_received", "delivery_judged", "rule_switched", "schedule_noted"),
        "only where something arrives; test_webhooks kills at each of its entries",
    ),
    "message_queued": "only where something is to be sent; test_outbox kills at each of its entries",
    **{name: "test_outbox kills at each of its entries" for name in PAYLOADS if name.startswith("task_publish_")},
}
# Of messages: test_outbox kills at these.
POINTS = tuple(name for name in effects.POINTS if not name.startswith("effect.publish."))
APPENDS = tuple(
    f"append.{name}.{when}" for name in PAYLOADS if name not in NOT_OF_A_RUN for when in ("before", "after")
)
ALL_POINTS = (
    *APPENDS, *POINTS, *RUNNER_POINTS, *VERIFY_POINTS, *LAND_POINTS, *REFRESH_POINTS, *WORKTREE_POINTS,
    *SETUP_POINTS, *HOLD_POINTS, *CHAIN_POINTS,
)  # fmt: skip

STEP = f"run exec {sys.executable} {Path(__file__).parent / 'one_agent.py'}"
BESIDE = "../../../.."
FIRST_LANDED = "git log --format=%B main | grep -q 'Holdfast-Task: first'"


def make_template(folder: Path) -> Path:
    """The tasks that together reach every point, in a repository that no run has seen."""
    repo = make_repo(folder / "repo")
    (repo / "old.txt").write_text("old\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "something to remove")
    kept = {"max_resumes": 1000, "max_attempts": 10, "grace_s": 0.5, "question_timeout_s": 0.2}
    settings(repo, **kept, worktree={"setup": ["true"]})
    for name in ("gone", "changed", "never"):
        add(repo, name, "write never.txt x")
    # They go with `gone`, whose file is deleted.
    add(repo, "gone-part", "write never.txt x", parent="gone")
    add(repo, "gone-leaf", "write never.txt x", parent="gone-part")
    # Takes them all in, so that what is done to their files now is a change of known tasks.
    holdfast(repo, "cancel", "never")
    holdfast(repo, "tell", "changed", "Mind the edit.")
    (layout(repo).backlog_open / "gone.yaml").unlink()
    add(repo, "changed", "write changed.txt as-edited")
    # Begins before anything has landed, ends after `first` has, and so meets a conflict.
    began = f"{BESIDE}/clash-began"
    clash = f"attempt 1: run touch {began}; until {FIRST_LANDED}; do sleep 0.05; done\nattempt 1: write shared.txt mine"
    add(repo, "clash", f"{clash}\nattempt 2+: write shared.txt both\nwrite clash.txt x", priority=0)
    # Not before that: after many kills its start might be late, and meet no conflict.
    first = f"run until [ -e {began} ]; do sleep 0.05; done\n{STEP} 1\n"
    first += f"write shared.txt theirs\ndelete old.txt\nspend 0.01 10\n{STEP} 2\nsay done"
    add(repo, "first", first, priority=1, verify=["test -f shared.txt"])
    gate = "attempt 1: write again.txt bad\nattempt 2+: write again.txt good"
    add(repo, "again", gate, verify=["grep -q good again.txt"])
    add(repo, "fails", "attempt 1: fail as it should\nattempt 2+: write fails.txt x")
    add(repo, "crashes", f"{STEP} 1\nwrite crashes.txt x\nonce {BESIDE}/crashed: crash KILL\n{STEP} 2")
    add(repo, "limited", f"once {BESIDE}/limited: rate-limit 0.2\nwrite limited.txt x")
    add(repo, "whole", "write whole.txt x")
    add(repo, "part", "write part.txt x", parent="whole", depends_on=["first"])
    add(repo, "asks", "write asks.txt x", approve=True)
    # Nobody answers, so each is denied when its time is over.
    add(repo, "inquires", "ask-later run true\nask run true\nwrite inquires.txt x", permissions="ask")
    add(repo, "unrepeatable", "write unrepeatable.txt x", verify=[{"command": "true", "repeatable": False}])
    return repo


LANDING = ("again", "changed", "clash", "crashes", "fails", "first", "inquires", "limited", "part", "unrepeatable")
FINAL = {
    **dict.fromkeys((*LANDING, "whole"), "CLOSED"),
    **dict.fromkeys(("gone", "gone-part", "gone-leaf", "never"), "CANCELLED"),
    "asks": "PENDING_APPROVAL",
}


def end_of(process: subprocess.Popen[str], meanwhile: Callable[[], object] = lambda: None) -> str:
    """What it said until its end; one that does not come to its end says where it is. `meanwhile` is called again and
    again as long as it lives."""
    for _ in range(RUN_S_MAX // LOOK_S):
        try:
            return process.communicate(timeout=LOOK_S)[0]
        except subprocess.TimeoutExpired:
            meanwhile()
    process.send_signal(signal.SIGABRT)
    raise AssertionError(f"it never ended:\n{process.communicate()[0]}")


class Reference(msgspec.Struct, frozen=True):
    """The template, and what a run on it that nobody kills comes to."""

    template: Path
    tree: str
    reached: Counter[str]


def make_reference(folder: Path) -> Reference:
    template = make_template(folder)
    case = Case(template, folder / "calm")
    case.run_to_the_end()
    tree = git(case.repo, "rev-parse", "main^{tree}")
    case.expect_all_well(tree)
    assert case.lives == 1 and not case.killed()
    return Reference(template, tree, case.reached())


class Case:
    """A copy of the template, and the lives of `holdfast run` on it."""

    def __init__(self, template: Path, folder: Path) -> None:
        self.repo = folder / "repo"
        shutil.copytree(template, self.repo, symlinks=True)
        self.log, self.once = folder / "points.log", folder / "once"
        self.once.mkdir(parents=True)
        self.log.touch()
        # `pending`: after how many kills the next start had something to finish.
        self.lives = self.pending = 0
        self.clock = SetClock(folder)
        self._env: dict[str, str] = {}
        self._seen = -1

    def run(self, points: Iterable[str] = (), env: Mapping[str, str] = {}) -> int:
        """One life of the orchestrator; the first process at one of the points, `name:n`, dies there."""
        self.lives += 1
        at = {"HOLDFAST_CRASH_AT": ",".join(points)} if points else {}
        logged = {"HOLDFAST_CRASH_LOG": str(self.log), "HOLDFAST_CRASH_ONCE": str(self.once)}
        self._env = {"PYTHONFAULTHANDLER": "1", **logged, **self.clock.env, **at, **env}
        process = begin(self.repo, **self._env)
        self.said = end_of(process, self._decide_if_still)
        return process.returncode

    def _decide_if_still(self) -> None:
        """A living run may wait for a decision. One that goes on is let go on: killed beside a command, it would leave
        its recovery to that, at another time than the next run's."""
        before, self._seen = self._seen, self.log.stat().st_size
        if before == self._seen:
            self._decide()

    def _decide(self) -> bool:
        """Decides what is parked, as a person would, with the settings and points of the run."""
        parked = [task.id for task in state(self.repo).tasks.values() if task.parked]
        for task in parked:
            holdfast(self.repo, "resolve", task, "--retry", code=None, env=self._env)
        return bool(parked)

    def run_to_the_end(self, points: Iterable[str] = (), env: Mapping[str, str] = {}, *, later_s: float = 0.0) -> None:
        """Starts again after each kill, `later_s` later, and decides what is parked, as a person would."""
        wanted = tuple(points)
        while True:
            code = self.run(wanted, env)
            if code == -signal.SIGKILL:
                self.expect_sound_before_restart()
                self.clock.later(later_s)
                continue
            assert code == TASKS_LEFT, self.said
            if not self._decide():
                return

    def reached(self) -> Counter[str]:
        return Counter(self.log.read_text().splitlines())

    def killed(self) -> set[str]:
        """The points, `name:n`, at which a process died."""
        assert {f"killed {path.name.rpartition(':')[0]}" for path in self.once.iterdir()} <= self.reached().keys()
        return {path.name for path in self.once.iterdir()}

    def expect_sound_before_restart(self) -> None:
        """What a crash left half done is pending, and nothing of it a finding."""
        root = layout(self.repo)
        report = check(root, Backlog(root.backlog), load_key(root.root, create=False), repo=self.repo)
        found = [each.findings for each in report.sections if each.findings]
        assert report.sound, f"after {sorted(self.killed())}: {found}"
        self.pending += report.pending

    # -- what must be so --------------------------------------------------------------------------------------------

    def expect_all_well(self, tree: str) -> None:
        assert {name: str(task.state) for name, task in state(self.repo).tasks.items()} == FINAL
        expect_sound(self.repo, self.log, LANDING)
        assert git(self.repo, "rev-parse", "main^{tree}") == tree
        left = [path.name for path in layout(self.repo).worktrees.iterdir() if path.name[0] != "."]
        assert left == ["asks"], left


def expect_sound(repo: Path, log: Path, landing: Iterable[str]) -> None:
    sound(repo)
    assert sorted(landed(repo)) == sorted(landing), "not exactly one landing of each task"
    assert git(repo, "status", "--porcelain") == "", "the checkout is not clean"
    doubled = repo.parent / "agents" / "doubled"
    assert not doubled.exists(), doubled.read_text()
    assert left_alive(repo) == []
    assert not lost_records(repo, log)


def lost_records(repo: Path, log: Path) -> Counter[str]:
    """Entries of which an append returned, and which the journal does not have."""
    lines = (line.split(".") for line in log.read_text().splitlines() if line.startswith("append."))
    acknowledged = Counter(kind for _, kind, when in lines if when == "after")
    return acknowledged - Counter(entry.decision_type for _, entry in Chain(layout(repo).wal).entries())


def left_alive(repo: Path) -> list[str]:
    """Processes that still work for the repository."""
    mark, found = f"HOLDFAST_WORKTREE={layout(repo).worktrees}".encode(), []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found
