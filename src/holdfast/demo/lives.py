"""The lives of the orchestrator in the demo: each is started, killed at the n-th step or at a named point, and followed
by the next."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.clock import monotonic
from holdfast.demo.sample import Sample, SampleStep
from holdfast.identity import Identity
from holdfast.layout import Attempt
from holdfast.ledgers.reader import FileLedgerReader
from holdfast.processes import starts
from holdfast.storage.files import disk
from holdfast.storage.journal.entry import Entry, Ref
from holdfast.storage.records import attempt_folder

# How many lives are killed at the n-th step; in which of them an agent dies first, and after which a runner.
AT_A_STEP, AGENT_DIES_IN, RUNNER_DIES_AFTER = 4, 2, 3
# The first is killed after at most this many steps; each later one after at most this many more.
FIRST_MAX, MORE_MAX = 3, 2
# Then one each is killed while a task is verified, landed, and refreshed in the checkout.
AT_A_POINT = (
    ("a verification", ("effect.verify.before", "verify.gate.before", "verify.gate.after", "effect.verify.after")),
    ("a landing", ("effect.land.before", "land.swap.before", "land.swap.after", "effect.land.after")),
    ("a refresh of the checkout", ("effect.refresh.before", "effect.refresh.after")),
)
# And one or two while they start, in the middle of their own recovery.
YOUNG = ("append.*", "append.wal_replay_completed.before", "append.wal_replay_completed.after")
EVERYTHING = 1_000_000
# Only for events that can no longer come: then the demo says so and ends.
WAIT_S, POLL_S = 600.0, 0.03
# What recovery did with each effect that the life before left open.
WORDS = {
    "confirmed": "{} found done",
    "failed": "{} not begun",
    "abandoned": "{} too old",
    "parked": "{} parked",
    "released": "{} claimed only",
}

Say = Callable[[str], None]


class Stuck(Exception):
    """Raised when what the demo waits for cannot come: a fault of Holdfast, or of this machine."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what} was waited for, and {reason}")


@dataclass
class Lives:
    sample: Sample
    chance: random.Random
    say: Say
    seen: set[Ref] = field(default_factory=set)
    seen_turns: set[tuple[str, bytes]] = field(default_factory=set)
    kills: Counter[str] = field(default_factory=Counter)
    killed_attempts: Counter[str] = field(default_factory=Counter)
    adopted: int = 0
    allowed: int = 0
    run: subprocess.Popen[bytes] | None = None

    # -- the plan -----------------------------------------------------------------------------------------------------

    def live_and_die(self) -> int:
        """Runs all lives; returns the exit code of the last one."""
        young = self.chance.sample(range(1, AT_A_STEP + 1), self.chance.randint(1, 2))
        self.allow(self.chance.randint(1, FIRST_MAX))
        self.start()
        for life in range(1, AT_A_STEP + 1):
            self.await_step()
            if life == AGENT_DIES_IN:
                name, number = self.kill_one("agent")
                # The next agent continues at the last turn, and repeats the step.
                self.await_redone(name, number)
            self.kill_run()
            if life == RUNNER_DIES_AFTER:
                self.kill_one("runner")
            if life in young:
                self.start(self.chance.choice(YOUNG))
                self.await_death("its own start")
            if life < AT_A_STEP:
                self.start_again()
                self.allow(len(self.sample.steps()) + self.chance.randint(0, MORE_MAX))
        for number, (_, points) in enumerate(AT_A_POINT):
            self.start_again(self.chance.choice(points))
            if not number:
                self.allow(EVERYTHING)
            self.await_death(AT_A_POINT[number][0])
        self.start_again()
        return self.await_end("the end of the last run")

    # -- what is on disk ----------------------------------------------------------------------------------------------

    def entries(self) -> list[tuple[Ref, Entry]]:
        return [
            (Ref(run, entry.seq, entry.entry_hash), entry) for run, entry in FileLedgerReader(self.sample.layout).read()
        ]

    def folders(self) -> list[Attempt]:
        top = self.sample.layout.attempts
        names = sorted(path.name for path in top.iterdir()) if top.is_dir() else []
        return [self.sample.layout.attempt_files(name) for name in names]

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
            owner = attempt_folder.read_start(files, start)
            if owner is not None and owner.who == attempt_folder.RUNNER and owner.is_alive():
                found[files.root.name] = (start, owner)
        return found

    def agents(self) -> dict[str, Identity]:
        found = ((files.root.name, attempt_folder.read_process(files)) for files in self.folders())
        return {name: running.agent for name, running in found if running is not None and running.agent.is_alive()}

    def taken(self, attempt: str) -> Counter[int]:
        return Counter(step.number for step in self.sample.steps() if step.attempt == attempt)

    # -- waiting for events -------------------------------------------------------------------------------------------

    def allow(self, lines: int) -> None:
        self.allowed = lines
        self.sample.allow(lines)

    def await_step(self) -> None:
        """Waits until a living agent is in the middle of a step that may not end yet."""
        self.await_that(lambda: bool(self.held()), f"step {self.allowed + 1}")

    def await_redone(self, attempt: str, number: int) -> None:
        self.await_that(lambda: self.taken(attempt)[number] > 1, f"step {number} of {attempt}, a second time")

    def held(self) -> list[SampleStep]:
        """The steps of living agents that wait to be allowed: none of them ends before that."""
        living = self.agents()
        waiting = self.sample.steps()[self.allowed :]
        return [step for step in waiting if step.attempt in living and living[step.attempt].pid == step.pid]

    def await_that(self, condition: Callable[[], bool], what: str) -> None:
        assert self.run is not None
        deadline = monotonic() + WAIT_S
        while not condition():
            if self.run.poll() is not None:
                raise Stuck(what, f"`holdfast run` ended with code {self.run.returncode} before it")
            if monotonic() > deadline:
                raise Stuck(what, f"it has not come within {WAIT_S:.0f} s")
            time.sleep(POLL_S)

    def await_end(self, what: str) -> int:
        assert self.run is not None
        try:
            return self.run.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            raise Stuck(what, f"it has not come within {WAIT_S:.0f} s") from None

    # -- killing and starting -----------------------------------------------------------------------------------------

    def start(self, point: str = "") -> None:
        """Starts a life; with a point it kills itself with SIGKILL when it comes there."""
        log = disk.open_log(self.sample.log)
        try:
            self.run = subprocess.Popen(
                [sys.executable, "-m", "holdfast", "run", "--plain"],
                cwd=self.sample.repo,
                env=self.sample.environment(**({"HOLDFAST_CRASH_AT": f"{point}:1"} if point else {})),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        finally:
            os.close(log)

    def remember(self) -> None:
        """Records what is in the journal and the ledgers now: it must be there at the end, byte for byte."""
        self.seen |= {ref for ref, _ in self.entries()}
        self.seen_turns |= set(self.turn_lines())

    def kill_run(self) -> None:
        assert self.run is not None
        self.remember()
        self.run.kill()
        self.count_death(f"at step {len(self.sample.steps())}")

    def await_death(self, where: str) -> None:
        self.count_death(f"in the middle of {where}")
        self.remember()

    def count_death(self, where: str) -> None:
        assert self.run is not None
        if (code := self.await_end(f"the kill {where}")) != -signal.SIGKILL:
            raise Stuck(f"the kill {where}", f"`holdfast run` ended with code {code} before it")
        self.kills["orchestrator"] += 1
        left = f"{len(self.sample.landed())} landed so far; left at work: {many(len(self.runners()), 'agent')}"
        self.say(f"  kill -9  the orchestrator, pid {self.run.pid}, {where}: {left}")

    def kill_one(self, what: str) -> tuple[str, int]:
        """Kills the agent or the runner of a waiting step; a pidfd holds the process while it is identified."""
        step = self.chance.choice(sorted(self.held(), key=lambda step: step.attempt))
        who = self.agents()[step.attempt] if what == "agent" else self.runners()[step.attempt][1]
        pidfd = os.pidfd_open(who.pid)
        try:
            if not who.is_alive():
                raise Stuck(f"the kill of an {what}", f"that of {step.attempt} was gone before it")
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)
        self.kills[what] += 1
        self.killed_attempts[step.attempt] += 1
        self.say(f"  kill -9  the {what} of {step.attempt}, pid {who.pid}, in its step {step.number}")
        return step.attempt, step.number

    def start_again(self, point: str = "") -> None:
        """Starts the next life, and prints what it found."""
        before, known = self.runners(), {ref.run for ref, _ in self.entries()}
        self.start(point)
        replay = self.await_replay(known)
        if replay is None:
            return
        after = self.runners()
        same = [name for name, found in before.items() if after.get(name) == found]
        self.adopted += len(same)
        closed = ", ".join(WORDS[how].format(count) for how, count in replay.inputs.items() if count) or "nothing"
        self.say(
            f"  start    {len(same)} of {many(len(before), 'agent')} adopted with the same pid; left open: {closed}"
        )

    def await_replay(self, known: set[str]) -> Entry | None:
        """The entry by which a new life reports its recovery; None where it ended before."""
        assert self.run is not None
        deadline = monotonic() + WAIT_S
        while monotonic() < deadline:
            is_over = self.run.poll() is not None
            for ref, entry in self.entries():
                if ref.run not in known and entry.decision_type == "wal_replay_completed":
                    return entry
            if is_over:
                return None
            time.sleep(POLL_S)
        raise Stuck("the recovery of a new run", f"it has not ended within {WAIT_S:.0f} s")

    def end_all(self) -> None:
        """Ends every process of the demo."""
        if self.run is not None:
            self.run.kill()
            self.run.wait()
        for files in self.folders():
            starts.end_all(files, files.root.name, None, 1.0)


@contextlib.contextmanager
def ending(lives: Lives) -> Iterator[None]:
    """Ends what the demo began whatever happens, also on Ctrl-C and SIGTERM."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        try:
            lives.end_all()
        finally:
            signal.signal(signal.SIGTERM, before)


def many(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def last_lines(path: Path, count: int = 15) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-count:]) if path.exists() else ""
