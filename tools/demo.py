"""`make demo`: a dozen tasks are worked on, verified and landed, while orchestrator, agent and runner are killed.

A sample repository is made in a temporary folder: real git, agents that follow a script, a command that verifies each
task. `holdfast run` is killed with SIGKILL again and again at random moments and started again. Every step of an agent
also leaves a line in a file outside of the repository, which nothing ever takes back. At the end the journal, the
attempts' folders, git and that file are compared; what must be zero and is not ends the demo with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

REPOSITORY = Path(__file__).parent.parent
sys.path.insert(0, str(REPOSITORY / "tests"))

from engine_support import environment, git, holdfast, landed, layout, make_repo, settings  # noqa: E402
from holdfast.domain.fsm import AbortReason  # noqa: E402
from holdfast.durable import attempts  # noqa: E402
from holdfast.durable.chain import Chain  # noqa: E402
from holdfast.durable.entry import Entry, Ref  # noqa: E402
from holdfast.durable.process import Identity  # noqa: E402
from holdfast.errors import HoldfastError  # noqa: E402
from holdfast.layout import Attempt  # noqa: E402
from holdfast.processes import starts  # noqa: E402

KILLS = 6
STEPS = 4
# In which of its lives the orchestrator sees an agent die, and before which one a runner dies while nobody looks.
AGENT_DIES_IN, RUNNER_DIES_BEFORE = 2, 4
# From which life on it dies while a task is being verified or landed, and how long that moment is waited for.
LANDING_DIES_FROM, EFFECT_WAIT_S = 4, 8.0
UNDER_WAY = {"task_verify_intent", "task_land_intent", "task_land_confirmed", "task_refresh_intent"}
# How often one is killed while it starts, in the middle of its own recovery perhaps.
DIES_YOUNG = 0.3
DEADLINE_S = 300.0
# What recovery did with what the life before left open.
WORDS = {
    "confirmed": "{} found done",
    "failed": "{} not begun",
    "abandoned": "{} too old",
    "parked": "{} parked",
    "released": "{} claimed only",
}

# Each of these writes a file of its own, one line in each step; the names behind it must have landed first.
PLAIN: dict[str, list[str]] = {
    "design": [],
    "login": [],
    "storage": ["design"],
    "api": ["design"],
    "cache": ["storage"],
    "tests": ["api", "storage"],
    "docs": ["api"],
}
# Two that change the same file at the same time, a command, and one that needs a second attempt.
OTHERS = ("title", "footer", "numbers", "answer")
ALL = (*PLAIN, *OTHERS, "release")


@dataclass
class Demo:
    repo: Path
    outside: Path
    chance: random.Random
    seen: set[Ref] = field(default_factory=set)
    seen_turns: set[tuple[str, bytes]] = field(default_factory=set)
    kills: Counter[str] = field(default_factory=Counter)
    killed_attempts: Counter[str] = field(default_factory=Counter)
    adopted: int = 0
    run: subprocess.Popen[bytes] | None = None

    # -- what is on disk ----------------------------------------------------------------------------------------------

    def entries(self) -> list[tuple[Ref, Entry]]:
        chain = Chain(layout(self.repo).wal)
        return [(Ref(run, entry.seq, entry.entry_hash), entry) for run, entry in chain.entries()]

    def folders(self) -> list[Attempt]:
        return [layout(self.repo).attempt_files(path.name) for path in sorted(layout(self.repo).attempts.iterdir())]

    def turn_lines(self) -> Iterator[tuple[str, bytes]]:
        for files in self.folders():
            if files.turns.exists():
                for line in files.turns.read_bytes().splitlines(keepends=True):
                    if line.endswith(b"\n"):
                        yield files.root.name, line

    def runners(self) -> dict[str, tuple[int, Identity]]:
        """The living runner of each attempt, and the number of its start."""
        found: dict[str, tuple[int, Identity]] = {}
        for files in self.folders():
            start = len(list(files.root.glob("start-*")))
            owner = attempts.read_start(files, start)
            if owner is not None and owner.who == attempts.RUNNER and owner.is_alive():
                found[files.root.name] = (start, owner)
        return found

    def agents(self) -> dict[str, Identity]:
        found = ((files.root.name, attempts.read_process(files)) for files in self.folders())
        return {name: running.agent for name, running in found if running is not None and running.agent.is_alive()}

    # -- killing and starting -----------------------------------------------------------------------------------------

    def start(self) -> None:
        with (self.outside / "run.log").open("ab") as log:
            argv = [sys.executable, "-m", "holdfast", "run", "--plain"]
            self.run = subprocess.Popen(
                argv, cwd=self.repo, env=environment(self.repo), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill_run(self) -> None:
        """What was in the journal and the ledgers before the kill must be there at the end, letter by letter."""
        assert self.run is not None
        self.seen |= {ref for ref, _ in self.entries()}
        self.seen_turns |= set(self.turn_lines())
        self.run.kill()
        if self.run.wait() == -signal.SIGKILL:
            self.kills["orchestrator"] += 1
        at_work = len(self.runners())
        told = f"{len(landed(self.repo))} landed so far; left at work: {many(at_work, 'agent')}"
        print(f"  kill -9  the orchestrator, pid {self.run.pid}: {told}", flush=True)

    def kill_one(self, what: str) -> bool:
        """Kills an agent or a runner that lives; its identity is looked at again once a pidfd holds the process."""
        living = self.agents() if what == "agent" else {name: found for name, (_, found) in self.runners().items()}
        for name, who in self.chance.sample(sorted(living.items()), len(living)):
            try:
                pidfd = os.pidfd_open(who.pid)
            except ProcessLookupError:
                continue
            try:
                if not who.is_alive():
                    continue
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            finally:
                os.close(pidfd)
            self.kills[what] += 1
            self.killed_attempts[name] += 1
            print(f"  kill -9  the {what} of {name}, pid {who.pid}", flush=True)
            return True
        return False

    def start_again(self) -> None:
        """Starts the next life, and tells what it found."""
        before, known = self.runners(), {ref.run for ref, _ in self.entries()}
        self.start()
        replay = self.await_replay(known)
        if replay is None:
            return
        after = self.runners()
        same = [name for name, found in before.items() if after.get(name) == found]
        self.adopted += len(same)
        closed = ", ".join(WORDS[how].format(count) for how, count in replay.inputs.items() if count) or "nothing"
        told = f"{len(same)} of {many(len(before), 'agent')} adopted with the same pid; was left open: {closed}"
        print(f"  start    {told}", flush=True)

    def await_replay(self, known: set[str]) -> Entry | None:
        """The entry by which a new life says that it has recovered; None where it ended before."""
        assert self.run is not None
        while True:
            is_over = self.run.poll() is not None
            for ref, entry in self.entries():
                if ref.run not in known and entry.decision_type == "wal_replay_completed":
                    return entry
            if is_over:
                return None
            time.sleep(0.03)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="the same choices as last time")
    seed = parser.parse_args().seed
    began, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    demo = Demo(make_repo(folder / "repo"), folder, random.Random(seed))
    add_tasks(demo)
    print(f"{len(ALL)} tasks in {demo.repo}; seed {seed} (`make demo ARGS='--seed {seed}'` chooses alike)\n")
    try:
        code = live_and_die(demo)
        problems = report(demo, time.monotonic() - began) if code == 0 else [f"`holdfast run` ended with code {code}"]
    finally:
        for files in demo.folders():
            starts.end_all(files, files.root.name, None, 1.0)
    if not problems:
        shutil.rmtree(folder)
        return 0
    for problem in problems:
        print(f"\nThis must not be: {problem}")
    print(f"\nEverything is kept in {folder}; the last words of `holdfast run` are:")
    print("".join((folder / "run.log").read_text().splitlines(keepends=True)[-15:]))
    return 1


def add_tasks(demo: Demo) -> None:
    repo = demo.repo
    settings(repo, max_agents=4, max_resumes=50)
    (repo / "page.txt").write_text("\n".join(["title", *map(str, range(20)), "footer"]) + "\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "a page")
    for name, needed in PLAIN.items():
        steps = [step(demo, number, f"echo '{name} {number}' >> {name}.txt") for number in range(1, STEPS + 1)]
        check = f'test "$(wc -l < {name}.txt)" = {STEPS}'
        add(repo, name, check, script="\nsleep 0.2\n".join(steps), depends_on=needed)
    for name, line in (("title", "1"), ("footer", "$")):
        script = step(demo, 1, f"sed -i '{line}s/.*/a {name}/' page.txt") + "\nsleep 0.5\n" + step(demo, 2, "true")
        add(repo, name, f"grep -qx 'a {name}' page.txt", script=script, priority=1)
    add(repo, "numbers", 'test "$(wc -l < numbers.txt)" = 100', command="seq 100 > numbers.txt")
    answers = ("attempt 1: write answer.txt 41", "attempt 2+: write answer.txt 42")
    add(repo, "answer", "grep -qx 42 answer.txt", script="\n".join(answers), priority=1)
    script = step(demo, 1, "ls *.txt > release.txt")
    add(repo, "release", "test -s release.txt", script=script, depends_on=[*PLAIN, *OTHERS])


def add(repo: Path, name: str, check: str, **more: Any) -> None:
    content = {"title": f"Make {name}", "verify": [check], **more}
    (layout(repo).backlog_open / f"{name}.yaml").write_bytes(msgspec.yaml.encode(content))


def step(demo: Demo, number: int, command: str) -> str:
    """A turn that changes the tree, and tells the world outside that it did."""
    return f"run {command}; echo $HOLDFAST_ATTEMPT {number} $PPID >> {demo.outside}/steps"


def live_and_die(demo: Demo) -> int:
    """Returns the code with which the last life ended."""
    demo.start()
    for life in range(1, KILLS + 1):
        moment = demo.chance.uniform(0.3, 2.2)
        if not (wait(demo, moment) if life < LANDING_DIES_FROM else await_effect(demo, life - LANDING_DIES_FROM + 1)):
            break
        if life >= AGENT_DIES_IN and not demo.kills["agent"] and demo.kill_one("agent"):
            wait(demo, demo.chance.uniform(0.2, 1.0))
        demo.kill_run()
        if life + 1 >= RUNNER_DIES_BEFORE and not demo.kills["runner"]:
            demo.kill_one("runner")
        if demo.chance.random() < DIES_YOUNG:
            demo.start()
            wait(demo, demo.chance.uniform(0.1, 0.6))
            demo.kill_run()
        demo.start_again()
    # At its moments above, perhaps nobody of its kind was at work.
    for what in ("agent", "runner"):
        while not demo.kills[what] and wait(demo, 0.02):
            demo.kill_one(what)
    assert demo.run is not None
    return demo.run.wait(DEADLINE_S)


def await_effect(demo: Demo, landed: int) -> bool:
    """Until so many have landed and the next is being verified or landed; False where the life ended by itself."""
    deadline = time.monotonic() + EFFECT_WAIT_S
    while time.monotonic() < deadline:
        kinds = [entry.decision_type for _, entry in demo.entries()]
        if kinds.count("task_land_confirmed") >= landed and kinds[-1] in UNDER_WAY:
            return True
        if not wait(demo, 0.01):
            return False
    return True


def wait(demo: Demo, seconds: float) -> bool:
    """False where the life ended by itself meanwhile."""
    assert demo.run is not None
    try:
        demo.run.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def many(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


# -- the sums ---------------------------------------------------------------------------------------------------------


def report(demo: Demo, seconds: float) -> list[str]:
    """Prints the table; returns what must not be."""
    try:
        entries = demo.entries()
    except HoldfastError as error:
        return [str(error)]
    if missing := sorted(set(ALL) - set(landed(demo.repo))):
        return [f"not landed: {', '.join(missing)}"]
    lost = records_lost(demo, entries)
    repeated = effects_repeated(demo, entries)
    redone = turns_redone(demo)
    problems = [f"lost: {each}" for each in lost] + [f"repeated: {each}" for each in repeated]
    problems += wrong_ending(demo, redone)
    counts = Counter(entry.decision_type for _, entry in entries)
    if counts["task_orphaned"] > demo.killed_attempts.total():
        problems.append(f"{counts['task_orphaned']} orphans, where {demo.killed_attempts.total()} were made")
    lands = [entry.inputs for _, entry in entries if entry.decision_type == "task_land_intent"]
    bases = {entry.inputs["attempt"]: entry.inputs["base"] for _, entry in entries if entry.inputs.get("base")}
    merged = {each["task"] for each in lands if each["old"] != bases[each["attempt"]]}
    rejected = sum(entry.inputs.get("reason") == AbortReason.VERIFICATION_FAILED for _, entry in entries)
    if not rejected:
        problems.append("the first answer passed its gate")
    table = {
        "killed with SIGKILL": ", ".join(many(count, what) for what, count in demo.kills.items()),
        "tasks landed": f"{len(landed(demo.repo))} of {len(ALL)}, {len(merged)} of them merged onto a newer main",
        "gates failed": f"{rejected}, and the next attempt was told why",
        "agents adopted": f"{demo.adopted}, with the same pid before a kill and after the next start",
        "orphans continued": f"{counts['task_orphaned']}, each at its last turn",
        "turns redone": f"{len(redone)} of {len(set(demo.turn_lines()))}, at most one for each agent or runner killed",
        "effects repeated": f"{len(repeated)} of {sum(not entry.committed for _, entry in entries)}",
        "records lost": f"{len(lost)} of {len(demo.seen)} entries and {len(demo.seen_turns)} turns seen before a kill",
        "seconds": f"{seconds:.0f}",
    }
    print()
    for name, value in table.items():
        print(f"  {name:20} {value}")
    print(f"  holdfast check       {holdfast(demo.repo, 'check', code=None).splitlines()[-1]}")
    return problems


def records_lost(demo: Demo, entries: list[tuple[Ref, Entry]]) -> list[str]:
    """Entries and turns that were seen before a kill and are gone; turns that the journal or git does not have."""
    now = {ref for ref, _ in entries}
    lost = [f"entry {ref.seq} of run {ref.run}" for ref in demo.seen - now]
    turns = set(demo.turn_lines())
    lost += [f"a turn of {name}" for name, _ in demo.seen_turns - turns]
    journalled = {
        (entry.inputs["attempt"], entry.inputs["turn"]): entry.inputs["snapshot"]
        for _, entry in entries
        if entry.decision_type == "turn_completed"
    }
    kept = set(git(layout(demo.repo).snapshots, "for-each-ref", "--format=%(objectname)", "refs/attempts").splitlines())
    for name, line in sorted(turns):
        made: dict[str, Any] = json.loads(line)
        if journalled.get((name, made["turn"])) != made["snapshot"]:
            lost.append(f"turn {made['turn']} of {name}, which the journal does not have")
        elif made["snapshot"] not in kept:
            lost.append(f"the snapshot of turn {made['turn']} of {name}")
    return lost


def effects_repeated(demo: Demo, entries: list[tuple[Ref, Entry]]) -> list[str]:
    """What happened more often than decided: landings, moves of the branch, starts, lines in a landed file."""
    repeated = [f"{name} landed {count} times" for name, count in Counter(landed(demo.repo)).items() if count > 1]
    moves = git(demo.repo, "reflog", "show", "--format=%H", "main").splitlines()
    repeated += [f"main was moved to {new} {count} times" for new, count in Counter(moves).items() if count > 1]
    decided = Counter(entry.inputs["attempt"] for _, entry in entries if entry.decision_type == "task_spawn_intent")
    agents = Counter(attempt for attempt, _ in {(attempt, pid) for attempt, _, pid in steps_taken(demo)})
    repeated += [f"{name} was started {agents[name]} times" for name in agents if agents[name] > decided[name]]
    for name in PLAIN:
        expected = [f"{name} {number}" for number in range(1, STEPS + 1)]
        if git(demo.repo, "show", f"main:{name}.txt").splitlines() != expected:
            repeated.append(f"{name}.txt does not hold each step once")
    return repeated


def steps_taken(demo: Demo) -> list[tuple[str, str, str]]:
    """Attempt, step and the agent's pid, as the world outside saw them."""
    lines = (demo.outside / "steps").read_text().splitlines()
    return [(attempt, number, pid) for attempt, number, pid in map(str.split, lines)]


def turns_redone(demo: Demo) -> list[tuple[str, str]]:
    taken = Counter((attempt, number) for attempt, number, _ in steps_taken(demo))
    return [step for step, count in taken.items() for _ in range(count - 1)]


def wrong_ending(demo: Demo, redone: list[tuple[str, str]]) -> Iterator[str]:
    for name, count in Counter(attempt for attempt, _ in redone).items():
        if count > demo.killed_attempts[name]:
            yield f"{count} turns of {name} were redone"
    if changed := git(demo.repo, "status", "--porcelain"):
        yield f"the checkout is not as the branch: {changed}"
    page = git(demo.repo, "show", "main:page.txt").splitlines()
    if (page[0], page[-1]) != ("a title", "a footer"):
        yield "page.txt does not hold both changes"
    if "Sound." not in (said := holdfast(demo.repo, "check", code=None)):
        yield f"`holdfast check` says:\n{said}"
    if not all(demo.kills[what] for what in ("orchestrator", "agent", "runner")):
        yield "the tasks were done before everything was killed; try another seed"


if __name__ == "__main__":
    sys.exit(main())
