"""The engine: what a turn costs the orchestrator, how it lives beside busy agents, and how soon it is back."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from bench.harness import Row, alternate
from holdfast.layout import Layout
from holdfast.ledgers.files import FileLedger
from holdfast.storage.files import urgency
from holdfast.storage.journal.entry import Record
from holdfast.storage.journal.lock import read_holder
from holdfast.storage.journal.writer import Journal
from holdfast.storage.records import attempt_folder

AGENTS = 20
APPENDS = 100
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
POLL_S = 0.1
WAIT_S = 600.0


def rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    yield from turns(Repo(folder / "turns"), 10 if quick else 50)
    yield from burning(Repo(folder / "burning"), folder / "journal", 2 if quick else 9)
    yield idle(Repo(folder / "idle"), 5.0 if quick else 20.0)
    yield restart(folder / "restart", 10_000 if quick else 100_000, 2 if quick else 7)


class Repo:
    """A small repository, and `holdfast run` over it, in our session, as a shell would start it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        folder.mkdir(parents=True)
        for argv in (
            ["git", "init", "-q", "-b", "main"],
            ["git", "config", "user.name", "Bench"],
            ["git", "config", "user.email", "bench@example.org"],
            ["git", "commit", "-q", "--allow-empty", "-m", "begin"],
            [sys.executable, "-m", "holdfast", "init"],
        ):
            subprocess.run(argv, cwd=folder, check=True, capture_output=True, env=self.env)
        self.layout = Layout(folder / ".sdd")
        self.layout.settings.write_bytes(msgspec.yaml.encode({"max_agents": AGENTS + 5, "max_resumes": 1000}))

    @property
    def env(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "GIT_"))}

    def add(self, name: str, **content: Any) -> None:
        text = msgspec.yaml.encode({"title": name, **content})
        (self.layout.backlog_open / f"{name}.yaml").write_bytes(text)

    def start(self) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "holdfast", "run", "--plain"]
        with (self.path.parent / f"{self.path.name}.log").open("ab") as log:
            return subprocess.Popen(argv, cwd=self.path, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    @contextlib.contextmanager
    def running(self) -> Iterator[int]:
        """A run that is ended behind us, its agents too; yields its pid."""
        run = self.start()
        try:
            wait_for(lambda: (holder := read_holder(self.layout.lock)) is not None and holder.pid == run.pid)
            yield run.pid
        finally:
            stop = [sys.executable, "-m", "holdfast", "stop", "--agents"]
            if subprocess.run(stop, cwd=self.path, env=self.env, check=False, capture_output=True).returncode:
                run.kill()
            run.wait()

    def agents(self) -> list[attempt_folder.Running]:
        found = (
            attempt_folder.read_process(self.layout.attempt_files(path.name)) for path in self.layout.attempts.iterdir()
        )
        return [each for each in found if each is not None and each.agent.is_alive()]

    def turns(self) -> int:
        files = (self.layout.attempt_files(path.name).turns for path in self.layout.attempts.iterdir())
        return sum(file.read_bytes().count(b"\n") for file in files if file.exists())

    def journal(self) -> bytes:
        """The newest run's file."""
        newest = max(self.layout.wal.glob("*.wal.jsonl"), default=None)
        return newest.read_bytes() if newest else b""


def wait_for(condition: Callable[[], object], poll_s: float = POLL_S) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the engine did not get there")
        time.sleep(poll_s)


# -- what a turn costs ------------------------------------------------------------------------------------------------


class Used:
    """Seconds of CPU of one process, its own and those of its children that have ended; and its memory in MiB."""

    def __init__(self, pid: int) -> None:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        fields = stat[stat.rindex(b")") + 2 :].split()
        self.parent = int(fields[1])
        self.name = stat[stat.index(b"(") + 1 : stat.rindex(b")")]
        self.own = (int(fields[11]) + int(fields[12])) / TICKS
        self.children = (int(fields[13]) + int(fields[14])) / TICKS
        self.memory = int(fields[21]) * PAGE / (1 << 20)


def turns(repo: Repo, each: int) -> Iterator[Row]:
    """Scripted agents that write a file in each turn, as fast as they can."""
    for number in range(AGENTS):
        steps = (f"write f{number}-{turn % 5}.txt turn {turn}" for turn in range(each))
        repo.add(f"t{number}", script="\n".join(steps), verify=["true"])
    run = repo.start()
    runners: dict[int, Used] = {}
    seen: list[tuple[int, Used]] = []
    total = AGENTS * each
    # A zombie's figures are final, and can be read until it is reaped.
    while os.waitid(os.P_PID, run.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        seen.append((repo.turns(), Used(run.pid)))
        watch(repo, runners)
        time.sleep(POLL_S)
    whole = Used(run.pid).own
    if run.wait() != 0:
        raise RuntimeError(f"`holdfast run` ended with code {run.returncode}; see {repo.path}.log")
    # The middle, where all agents work: none is being started, few are being landed.
    middle = [(done, used) for done, used in seen if total * 0.1 <= done <= total * 0.9]
    (first, before), (last, after) = middle[0], middle[-1]
    own = (after.own - before.own) / (last - first)
    runner, git = (sum(getattr(used, name) for used in runners.values()) / total for name in ("own", "children"))
    rest = (whole - own * total) / AGENTS
    detail = (
        f"{own * 1e3:.1f} ms; beside it the runner takes {runner * 1e3:.0f} ms, its git {git * 1e3:.0f} ms; "
        f"start and landing of a task {rest * 1e3:.0f} ms, without their git"
    )
    yield Row(f"orchestrator's CPU per turn, {AGENTS} agents, {each} turns", "10 ms", own / 0.010, 1, True, detail)
    early = next(used.memory for done, used in seen if done >= total / 4)
    late = next(used.memory for done, used in reversed(seen) if used.memory)
    detail = f"{late:.1f} MiB against {early:.1f} MiB"
    yield Row(f"its memory after {total:,} turns", "after a quarter of them", late / early, 1.1, True, detail)


def watch(repo: Repo, runners: dict[int, Used]) -> None:
    """Notes what each runner has used so far. Its agent counts among the children only once it has ended."""
    for running in repo.agents():
        with contextlib.suppress(OSError):
            used = Used(running.runner.pid)
            if running.agent.is_alive():
                runners[running.runner.pid] = used


# -- beside busy agents -----------------------------------------------------------------------------------------------


def burning(repo: Repo, wal: Path, rounds: int) -> Iterator[Row]:
    """The journal while others burn all the CPU they get: our agents, and programs of another terminal."""
    wal.mkdir()
    for number in range(AGENTS):
        repo.add(f"t{number}", command="while :; do :; done")
    with repo.running(), Journal.start(wal, "000001-bench", None) as journal:
        wait_for(lambda: len(repo.agents()) == AGENTS)
        ours = [each.group for each in repo.agents()]
        cores = os.cpu_count() or 1
        with stopped(ours):
            for what, count in (
                (f"{cores} programs of another terminal", cores),
                (f"{AGENTS} programs of another terminal", AGENTS),
            ):
                with other_terminal(count) as group:
                    yield appends_beside(journal, what, [group], rounds)
        yield appends_beside(journal, f"{AGENTS} agents", ours, rounds)


def appends_beside(journal: Journal, what: str, groups: list[int], rounds: int) -> Row:
    """One append at a time, as a run makes them: idle, with niceness only, and as it is (each write goes first where it
    may), in turn; the load is stopped for the first. The reference goes first, too, so that a machine that is busy
    otherwise slows all alike."""

    def median_s(*, burns: bool, goes_first: bool) -> float:
        for group in groups:
            os.killpg(group, signal.SIGCONT if burns else signal.SIGSTOP)
        time.sleep(0.2)
        taken = []
        with contextlib.nullcontext() if goes_first else usual_priority():
            for _ in range(APPENDS):
                began = time.perf_counter()
                journal.append("turn_completed", {"task": "fix-login"}, actor="loop")
                taken.append(time.perf_counter() - began)
        return statistics.median(taken)

    niced: list[float] = []

    def beside() -> float:
        niced.append(median_s(burns=True, goes_first=False))
        return median_s(burns=True, goes_first=True)

    try:
        ratio, mine, theirs = alternate(beside, lambda: median_s(burns=False, goes_first=True), rounds)
    finally:
        for group in groups:
            os.killpg(group, signal.SIGCONT)
    only_nice = statistics.median(niced[1:])
    detail = (
        f"median {mine * 1e3:.2f} ms, idle {theirs * 1e3:.2f} ms, with niceness only {only_nice * 1e3:.2f} ms "
        f"({only_nice / theirs:.0f} times idle); {os.cpu_count()} cores; {urgency.in_words()}"
    )
    return Row(f"a durable append while {what} burn CPU", "the same, idle", ratio, 3, True, detail)


@contextlib.contextmanager
def usual_priority() -> Iterator[None]:
    """Inside, writes wait for their turn, as where Holdfast may not go first."""
    before, urgency._Permission.is_refused = urgency._Permission.is_refused, True
    try:
        yield
    finally:
        urgency._Permission.is_refused = before


@contextlib.contextmanager
def stopped(groups: list[int]) -> Iterator[None]:
    for group in groups:
        os.killpg(group, signal.SIGSTOP)
    try:
        yield
    finally:
        for group in groups:
            os.killpg(group, signal.SIGCONT)


@contextlib.contextmanager
def other_terminal(count: int) -> Iterator[int]:
    """Programs in a session of their own, not nice, each of which burns what it gets; yields their process group."""
    line = "(while :; do :; done) & " * count + "wait"
    shell = subprocess.Popen(["sh", "-c", line], start_new_session=True)
    try:
        yield shell.pid
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


# -- with nothing to do -----------------------------------------------------------------------------------------------


def idle(repo: Repo, span_s: float) -> Row:
    repo.add("later", command="true", not_before=time.time() + 86_400)
    with repo.running() as pid:
        wait_for(lambda: b'"task_added"' in repo.journal())
        time.sleep(1.0)
        before, began = nanoseconds(pid), time.monotonic()
        time.sleep(span_s)
        share = (nanoseconds(pid) - before) / 1e9 / (time.monotonic() - began)
    detail = f"{share:.2%} of a core over {span_s:.0f} s"
    return Row("CPU of a run that waits for a task's time", "1 % of a core", share / 0.01, 1, True, detail)


def nanoseconds(pid: int) -> int:
    """On the CPU so far, over all threads."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks)


# -- back after a kill ------------------------------------------------------------------------------------------------


def restart(folder: Path, entries: int, rounds: int) -> Row:
    """From the start of the process until it claims a task that waits: recovered, every attempt adopted, planning."""
    full = Repo(folder / "full")
    for number in range(AGENTS):
        full.add(f"t{number}", script="hang")
    run = full.start()
    wait_for(lambda: len(full.agents()) == AGENTS)
    run.kill()
    run.wait()
    # The attempts live; meanwhile the history grows.
    with FileLedger.open(full.layout) as ledger:
        for _ in range(entries // 1000):
            ledger.append(ledger.epoch, [Record("task_flagged", {"task": "t0"})] * 1000)
    living = {each.agent for each in full.agents()}
    numbers = itertools.count()

    def again() -> float:
        return until_claimed(full, f"probe-{next(numbers)}")

    def clean() -> float:
        fresh = Repo(folder / f"empty-{next(numbers)}")
        return until_claimed(fresh, "probe")

    ratio, mine, theirs = alternate(again, clean, rounds)
    same = len(living & {each.agent for each in full.agents()})
    with full.running():
        pass
    detail = f"{mine * 1e3:.0f} ms against {theirs * 1e3:.0f} ms; {same} of {AGENTS} agents lived through all of it"
    name = f"SIGKILL to work again, {AGENTS} living attempts, {entries:,} entries"
    return Row(name, "first start, empty journal", ratio, 3, True, detail)


def until_claimed(repo: Repo, probe: str) -> float:
    """Seconds until the task is claimed; then the run is killed, and the task's own work is left to end by itself."""
    repo.add(probe, command="true", priority=0)
    known = set(repo.layout.wal.glob("*.wal.jsonl"))

    def is_claimed() -> bool:
        new = set(repo.layout.wal.glob("*.wal.jsonl")) - known
        return any(b'"task_claimed"' in path.read_bytes() for path in new)

    began = time.perf_counter()
    run = repo.start()
    wait_for(is_claimed, 0.002)
    taken = time.perf_counter() - began
    run.kill()
    run.wait()
    return taken
