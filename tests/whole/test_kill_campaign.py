"""Many SIGKILLs of orchestrator, runners and agents while thirty tasks are worked on: nothing lost, nothing done twice.

Where each of them dies is chosen by a seed: the orchestrator and the runners at the n-th named point that one comes to,
an agent at a certain turn; a smaller part is killed at random moments. HOLDFAST_SEED chooses the seed of a campaign
that is to be seen again.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from holdfast.storage.journal.reader import Chain
from holdfast.storage.records.attempt_folder import read_process
from kit.crash import STEP, end_of, expect_sound, lost_records
from kit.git import git
from kit.one_agent import ticks
from kit.program import begin, holdfast
from kit.project import add, landed, layout, make_repo, settings, state

KILLS = int(os.environ.get("HOLDFAST_KILLS", "500"))
TASKS = 30
# So many in one repository: with more, hardly anything would be left to kill.
KILLS_A_ROUND = 100
TIMED_SHARE = 0.1
FAMILIES = ("append", "effect", "verify", "land", "refresh", "worktree")
# A task comes to about so many points on its way: a life gets little further than one task.
APPENDS_MAX, OTHERS_MAX, RUNNER_POINTS_MAX = 60, 12, (15, 60)


class User:
    """A person who works in the repository meanwhile: after a turn, something that rewrites or removes git's objects.

    Each act is tried again while a git of ours has the lock, and counted when it was done.
    """

    ACTS = ("gc --prune=now", "repack -ad", "stash -u", "commit --amend")

    def __init__(self, repo: Path, log: Path, seed: str) -> None:
        self._repo, self._log, self._chance = repo, log, random.Random(seed)
        self.done: Counter[str] = Counter()
        self._is_over = threading.Event()
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> User:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        for error in self._failed:
            raise error

    def _work(self) -> None:
        try:
            self._watch()
        except BaseException as error:
            self._failed.append(error)

    def _watch(self) -> None:
        seen = self._turns()
        while not self._is_over.wait(0.05):
            if (turns := self._turns()) > seen:
                seen = turns
                act = self._chance.choice(self.ACTS)
                self.done[f"git {act}"] += self._do(act)

    def _turns(self) -> int:
        return self._log.read_text().count("append.turn_completed.after") if self._log.exists() else 0

    def _do(self, act: str) -> bool:
        if act == "stash -u":
            return self._stash()
        if act == "commit --amend":
            return self._amend()
        return self._git(*act.split())

    def _amend(self) -> bool:
        """The newest landing, when nothing of theirs is on it yet; otherwise a commit of their own.

        Not by way of the index, which lags behind the branch between a landing and the refresh of the checkout.
        """
        amend = ("commit", "-q", "--amend", "--only", "--allow-empty", "--reset-author")
        old = git(self._repo, "rev-parse", "main")
        if landed(self._repo, "main^!"):
            # Git moves the branch only where it still is at the commit that it began with.
            is_amended = self._git(*amend, "--no-edit", tries=1)
            self.done["landings amended"] += is_amended
            return is_amended
        mine = git(self._repo, "commit-tree", f"{old}^{{tree}}", "-p", old, "-m", "mine")
        return (
            self._git("update-ref", "refs/heads/main", mine, old, tries=1)
            and git(self._repo, "log", "-1", "--format=%s") == "mine"
            and self._git(*amend, "-m", "mine, and better", tries=1)
        )

    def _stash(self) -> bool:
        (self._repo / "mine.txt").write_text("mine")
        (self._repo / "README.md").write_text("A small project of mine.\n")
        is_stashed = self._git("stash", "push", "-q", "-u")
        # One that failed behind its store has taken the files all the same.
        while git(self._repo, "stash", "list"):
            taken = self._files("stash^3")
            self.done["backlogs taken by a stash"] += any(name.startswith(".sdd/backlog/open/") for name in taken)
            # Files of the backlog that a run has put back meanwhile stay as they are; git says so, and keeps the stash.
            if not self._git("stash", "pop", "-q", tries=1):
                if "mine.txt" in taken and not (self._repo / "mine.txt").exists():
                    assert self._git("checkout", "-q", "stash^3", "--", "mine.txt", tries=100), "their work is lost"
                    assert self._git("rm", "-q", "--cached", "mine.txt", tries=100)
                assert self._git("stash", "drop", "-q", tries=100)
        assert (self._repo / "mine.txt").read_text() == "mine"
        assert self._git("checkout", "-q", "HEAD", "--", "README.md", tries=100)
        (self._repo / "mine.txt").unlink()
        return is_stashed

    def _files(self, commit: str) -> list[str]:
        asked = ["git", "-C", str(self._repo), "ls-tree", "-r", "--name-only", commit]
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.splitlines()

    def _git(self, *args: str, tries: int = 20) -> bool:
        for _ in range(tries):
            done = subprocess.run(["git", "-C", str(self._repo), *args], capture_output=True, check=False)
            if done.returncode == 0:
                return True
            time.sleep(0.05)
        return False


class Round:
    """Thirty tasks in a repository of their own, and every kill on the way to their landings.

    `is_shared`: a person works in the repository meanwhile.
    """

    def __init__(self, folder: Path, seed: str, kills: int, *, is_shared: bool = False) -> None:
        self.folder, self.chance, self.kills_max = folder, random.Random(seed), kills
        self.repo = make_repo(folder / "repo")
        if is_shared:
            # Git carries the data root, and so `git stash -u` takes what is new in the backlog.
            git(self.repo, "rm", "-q", ".gitignore")
            git(self.repo, "add", "-f", ".sdd/.gitignore")
            git(self.repo, "commit", "-q", "-m", "the data root is not ignored")
        self.log = folder / "points.log"
        settings(self.repo, max_resumes=1000, max_agents=4, grace_s=0.5)
        self.names: list[str] = []
        for number in range(TASKS):
            self._add(f"t{number:02}")
        self.facts: Counter[str] = Counter()
        self.lives = 0
        self.user = User(self.repo, self.log, seed) if is_shared else contextlib.nullcontext(None)

    def _add(self, name: str) -> None:
        needs = self.chance.sample(self.names, k=min(len(self.names), self.chance.choice((0, 0, 1, 2))))
        turns = self.chance.randint(1, 3)
        dies_at = self.chance.randint(1, turns) if self.chance.random() < min(0.5, self.kills_max / 60) else 0
        steps = (
            f"{STEP} {turn}{' kill' if turn == dies_at else ''}\nwrite {name}.{turn} x" for turn in range(1, turns + 1)
        )
        add(self.repo, name, "\n".join(steps), depends_on=needs, verify=[f"test -f {name}.{turns}"])
        self.names.append(name)

    # -- one life of the orchestrator ---------------------------------------------------------------------------------

    def live(self) -> bool:
        """True when it ended by itself. It and one of its runners are killed at points, or somebody at some moment."""
        self.facts["attempts adopted"] += len(runners(self.repo)) if self.lives else 0
        self.lives += 1
        once = self.folder / "once" / str(self.lives)
        once.mkdir(parents=True)
        is_left = self.kills() < self.kills_max
        is_timed = is_left and self.chance.random() < TIMED_SHARE
        at = ",".join(self._points()) if is_left and not is_timed else ""
        env = {"HOLDFAST_CRASH_AT": at, "HOLDFAST_CRASH_ONCE": str(once), "HOLDFAST_CRASH_LOG": str(self.log)}
        process = begin(self.repo, PYTHONFAULTHANDLER="1", **env)
        if is_timed:
            self._kill_at_some_moment(process)
        self.said = end_of(process)
        assert process.returncode in (0, -signal.SIGKILL), self.said
        return process.returncode == 0

    def _points(self) -> list[str]:
        family = self.chance.choice(FAMILIES)
        points = [f"{family}.*:{self.chance.randint(1, APPENDS_MAX if family == 'append' else OTHERS_MAX)}"]
        return [*points, *(f"runner.*:{self.chance.randint(1, most)}" for most in RUNNER_POINTS_MAX)]

    def _kill_at_some_moment(self, orchestrator: subprocess.Popen[str]) -> None:
        time.sleep(self.chance.uniform(0.2, 2.0))
        found = {"orchestrator": [orchestrator.pid], "runner": runners(self.repo), "agent": agents(self.repo)}
        victim = self.chance.choice([kind for kind, pids in found.items() if pids])
        if orchestrator.poll() is None:
            os.kill(self.chance.choice(found[victim]), signal.SIGKILL)
            self.facts[f"{victim} at some moment"] += 1
            # Its orchestrator would take care of it; the next one has to.
            orchestrator.kill()
            self.facts["orchestrator at some moment"] += victim != "orchestrator"

    def kills(self) -> int:
        points = list((self.folder / "once").glob("*/*"))
        self.facts["runner at a point"] = sum(path.name.startswith("runner.") for path in points)
        self.facts["orchestrator at a point"] = len(points) - self.facts["runner at a point"]
        self.facts["agent at a turn"] = sum(1 for _ in self._beside().glob("killed *"))
        return sum(count for name, count in self.facts.items() if " at " in name)

    # -- afterwards ---------------------------------------------------------------------------------------------------

    def judge(self) -> Counter[str]:
        self.kills()
        steps = Counter((path.name, line.split()[2]) for path in self._beside().glob("t*") for line in lines(path))
        doubled = lines(self._beside() / "doubled") if (self._beside() / "doubled").exists() else []
        facts = self.facts
        if isinstance(self.user, User):
            facts += self.user.done
            # `git stash -u` cleans away what a landing writes into the checkout at that very moment: git's own race, of
            # which only the checkout is the victim. A person would see it in `git status`.
            with (self.repo / ".git" / "info" / "exclude").open("a") as file:
                file.write("/.sdd/\n")
            taken = git(self.repo, "status", "--porcelain").splitlines()
            assert all(line.split()[0] == "D" for line in taken), taken
            facts["files taken by a stash"] = len(taken)
            git(self.repo, "checkout", "-q", "HEAD", "--", ".")
            # What they rewrote behind the last start is journalled by the next.
            holdfast(self.repo, "run", env={"HOLDFAST_CRASH_LOG": str(self.log)})
            kinds = Counter(entry.decision_type for _, entry in Chain(layout(self.repo).wal).entries())
            facts["landings recognised"] = kinds["landing_settled"]
        facts["turns redone"] = sum(count - 1 for count in steps.values())
        facts["effects repeated"] = len(landed(self.repo)) - len(set(landed(self.repo))) + len(doubled)
        facts["records lost"] = sum(lost_records(self.repo, self.log).values())
        assert {str(task.state) for task in state(self.repo).tasks.values()} == {"CLOSED"}
        expect_sound(self.repo, self.log, self.names)
        made = {f"{attempt.partition('.')[0]}.{turn}" for attempt, turn in steps}
        facts["turns lost"] = len(made - set(git(self.repo, "ls-tree", "--name-only", "main").split()))
        besides = {"README.md", ".sdd"} if isinstance(self.user, User) else {".gitignore", "README.md"}
        assert set(git(self.repo, "ls-tree", "--name-only", "main").split()) == made | besides
        of_agents = sum(facts[name] for name in facts if name.startswith(("runner at", "agent at")))
        assert facts["turns redone"] <= of_agents, "a kill cost more than one turn"
        return facts

    def _beside(self) -> Path:
        return self.repo.parent / "agents"


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def runners(repo: Path) -> list[int]:
    """The living runners of the repository."""
    words, found = [b"holdfast.agents.runner.runner", os.fsencode(layout(repo).root)], []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and all(word in (folder / "cmdline").read_bytes().split(b"\0") for word in words):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def agents(repo: Path) -> list[int]:
    files = [layout(repo).attempt_files(task.attempt.id) for task in state(repo).tasks.values() if task.attempt.id]
    found = [process.agent for each in files if (process := read_process(each)) is not None]
    return [agent.pid for agent in found if ticks(agent.pid) == agent.start_ticks]


def campaign(folder: Path, kills: int, seed: str, *, is_shared: bool = False) -> Counter[str]:
    began, facts, rounds = time.monotonic(), Counter[str](), 0
    while facts["kills"] < kills:
        rounds += 1
        left = min(KILLS_A_ROUND, kills - facts["kills"])
        made = Round(folder / str(rounds), f"{seed}/{rounds}", left, is_shared=is_shared)
        with made.user:
            while not made.live():
                pass
        facts += made.judge()
        facts["kills"] += made.kills()
        facts["orchestrators"] += made.lives
    facts["seconds"] = round(time.monotonic() - began)
    facts["rounds"] = rounds
    return facts


ROWS = (
    "kills", "orchestrator at a point", "orchestrator at some moment", "runner at a point", "runner at some moment",
    "agent at a turn", "agent at some moment", "rounds", "orchestrators", "attempts adopted", "turns redone",
    "turns lost", "effects repeated", "records lost", *(f"git {act}" for act in User.ACTS),
    "backlogs taken by a stash", "landings amended", "landings recognised", "files taken by a stash", "seconds",
)  # fmt: skip


@pytest.mark.crash
def test_many_kills_of_everybody(tmp_path: Path) -> None:
    seed = os.environ.get("HOLDFAST_SEED") or str(random.randrange(1 << 30))
    print(f"\n{TASKS} tasks, killed with HOLDFAST_SEED={seed}", flush=True)
    facts = campaign(tmp_path, KILLS, seed)
    print("\n".join(f"  {row:<28}{facts[row]:>6}" for row in ROWS))
    assert facts["kills"] >= KILLS
    assert facts["orchestrator at a point"] > 0 and facts["runner at a point"] > 0 and facts["attempts adopted"] > 0
    assert facts["turns lost"] == facts["effects repeated"] == facts["records lost"] == 0


@pytest.mark.crash
def test_many_kills_while_a_person_works_in_the_repository(tmp_path: Path) -> None:
    seed = os.environ.get("HOLDFAST_SEED") or str(random.randrange(1 << 30))
    print(f"\n{TASKS} tasks and a person, killed with HOLDFAST_SEED={seed}", flush=True)
    facts = campaign(tmp_path, max(1, KILLS // 5), seed, is_shared=True)
    print("\n".join(f"  {row:<28}{facts[row]:>6}" for row in ROWS))
    wanted = (
        *(f"git {act}" for act in User.ACTS),
        "backlogs taken by a stash",
        "landings amended",
        "landings recognised",
    )
    assert [row for row in wanted if not facts[row]] == [], "these never happened"
    assert facts["turns lost"] == facts["effects repeated"] == facts["records lost"] == 0
