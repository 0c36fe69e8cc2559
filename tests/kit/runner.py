"""Real runners with real agents in real worktrees, each followed by what it leaves in the attempt's folder."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from holdfast import identity
from holdfast.domain.attempt_records import AttemptLimits, Exit, Launch, Order, Resources, TurnLine
from holdfast.layout import Layout
from holdfast.processes import starts
from holdfast.storage.records import attempt_folder
from holdfast.storage.records.attempt_folder import Liveness
from holdfast.storage.records.blobs import Blobs
from holdfast.storage.records.ledger import LineLedger
from kit.git import git, repository
from kit.waiting import WAIT_S_MAX, wait_for

SCRIPT = (sys.executable, "-m", "holdfast.agents.adapters.script")
# Beside all that a busy machine does, an agent that gives way to it would come to nothing for minutes.
LIMITS = AttemptLimits(grace_s=0.2, resources=Resources(nice=0))


class Bench:
    """One repository, one data root, one attempt `T.1` in the task's worktree."""

    def __init__(self, top: Path) -> None:
        self.repo = repository(top / "repo")
        (self.repo / "a").write_text("a\n")
        git(self.repo, "add", ".")
        git(self.repo, "commit", "-q", "-m", "base")
        self.base = git(self.repo, "rev-parse", "HEAD")
        self.layout = Layout(top / "data")
        self.layout.signals.mkdir(parents=True)
        self.worktree = self.layout.worktree("T")
        self.worktree.parent.mkdir()
        git(self.repo, "worktree", "add", "-q", "--detach", str(self.worktree))
        self.files = self.layout.attempt_files("T.1")
        self._runners: list[subprocess.Popen[bytes]] = []
        self.log = top / "runner.log"
        self.points = top / "points.log"

    def order(self, script: str = "", *, start: int = 1, **more: Any) -> Order:
        steps = "\n".join(line.strip() for line in script.strip().splitlines())
        facts: dict[str, Any] = {"agent": "scripted", "launch": Launch(SCRIPT, stdin=steps), "limits": LIMITS} | more
        facts.setdefault("done", facts.get("turn", 0))
        private = str(self.layout.cache / "snapshots" / "T")
        return Order(
            task="T", attempt="T.1", start=start, worktree=str(self.worktree), base=self.base, private=private, **facts
        )

    def start(self, order: Order, **environ: str) -> subprocess.Popen[bytes]:
        digest = Blobs(self.layout.cas).put(msgspec.json.encode(order))
        command = [
            sys.executable,
            "-m",
            "holdfast.agents.runner.runner",
            str(self.layout.root),
            "T.1",
            str(order.start),
        ]
        with open(self.log, "ab") as log:
            runner = subprocess.Popen(
                [*command, digest],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
                env={**os.environ, "HOLDFAST_CRASH_LOG": str(self.points), **environ},
            )
        self._runners.append(runner)
        return runner

    def run(self, script: str = "", **more: Any) -> Exit:
        """One whole start, and how it ended."""
        order = self.order(script, **more)
        assert self.start(order).wait(WAIT_S_MAX) == 0, self.log.read_text()
        return self.exit(order.start)

    def exit(self, start: int = 1) -> Exit:
        found = attempt_folder.read_exit(self.files, start)
        assert found is not None, self.log.read_text()
        assert attempt_folder.liveness(self.files, start) is Liveness.ENDED
        return found

    def turns(self) -> list[TurnLine]:
        return [msgspec.convert(dict(line.record), TurnLine) for line in LineLedger(self.files.turns).read()]

    def records(self, path: Path) -> list[dict[str, Any]]:
        return [dict(line.record) for line in LineLedger(path).read()]

    def refusals(self) -> list[str]:
        """What the runner did not take or keep, as it tells it."""
        return [each["detail"] for each in self.records(self.files.events) if each["type"] == "refused"]

    def reached(self) -> list[str]:
        return self.points.read_text().splitlines() if self.points.exists() else []

    def tree(self, snapshot: str) -> set[str]:
        return set(git(self.repo, "ls-tree", "-r", "--name-only", snapshot).splitlines())

    def agent(self, start: int = 1) -> identity.Identity:
        def running() -> attempt_folder.Running | None:
            found = attempt_folder.read_process(self.files)
            return found if found is not None and found.start == start else None

        return wait_for(running, "process.json").agent  # type: ignore[no-any-return]

    def is_in(self, name: str) -> Callable[[], bool]:
        return (self.worktree / name).exists

    def pid_in(self, name: str) -> int:
        """The pid that a process of the agent's wrote into a file of the worktree."""
        path = self.worktree / name
        wait_for(lambda: path.exists() and path.read_text().strip(), name)
        return int(path.read_text())

    def end(self) -> None:
        starts.end_all(self.files, "T.1", None, 0.0)
        for runner in self._runners:
            runner.kill()
            runner.wait()


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def is_dead(pid: int) -> bool:
    return identity.start_ticks(pid) is None
