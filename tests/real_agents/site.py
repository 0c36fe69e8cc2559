"""One real repository with Holdfast in it, a HOME of its own, a model on loopback, and the real CLI on the PATH.

The environment is made by hand: nothing of this machine's, or of the person who runs the tests, gets in.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from holdfast.domain.state import State
from holdfast.domain.task import TaskState
from holdfast.domain.task_record import Task
from holdfast.layout import Layout
from holdfast.ledgers.reader import read_state
from holdfast.processes import starts
from holdfast.storage.journal.lock import live_owner
from holdfast.storage.records import attempt_folder
from holdfast.storage.records.ledger import LineLedger
from kit.clock import SetClock, suspend
from kit.git import git
from kit.model_server import ModelServer, Request, Step
from real_agents.kits import LONG_S, PAUSE_S, Kit

CACHE = Path(os.environ.get("HOLDFAST_AGENTS", ".agents-cache"))
RECORD = os.environ.get("HOLDFAST_RECORD", "")
# The real agents need much of a machine that has other work, too, and Gemini CLI by protocol tries for four minutes
# before it says that its model is not there.
WAIT_S = 500.0
DAY_S = 86_400.0
# Passes once a.txt is as wanted.
GATE = [{"command": "grep -q right a.txt"}]


def bins() -> list[str]:
    return [str(CACHE / "node_modules" / ".bin"), *sorted(str(each) for each in CACHE.glob("*/bin"))]


# Of the test that is run now; the settings of a Site may say another.
sandbox = "none"


class Site:
    def __init__(self, top: Path, kit: Kit, steps: Sequence[Step] = (), **settings: Any) -> None:
        self.kit, self.top = kit, top
        self.home, self.repo = top / "home", top / "repo"
        self.home.mkdir(parents=True)
        self.repo.mkdir()
        self.layout = Layout(self.repo / ".sdd")
        self.model = ModelServer(steps, has_tools=kit.has_tools, ends=kit.ends)
        kit.prepare(self.home, self.model)
        self.path = [*bins(), "/usr/local/bin", "/usr/bin", "/bin"]
        self.environ = {"HOME": str(self.home), "LANG": "C.UTF-8", **kit.environ(self.model)}
        self._begun: list[subprocess.Popen[str]] = []
        git(self.repo, "init", "-q", "-b", "main")
        for key, value in (("user.name", "Ada"), ("user.email", "ada@example.org"), ("commit.gpgsign", "false")):
            git(self.repo, "config", key, value)
        (self.repo / "README.md").write_text("A small project.\n")
        (self.repo / ".gitignore").write_text("/.sdd/\n")
        git(self.repo, "add", ".")
        git(self.repo, "commit", "-q", "-m", "begin")
        self.holdfast("init")
        values = {"agent": kit.name, "max_agents": 1, "grace_s": 1.0, "sandbox": sandbox, "limits": {"nice": 0}}
        values = {**values, **kit.settings, **settings}
        self.layout.settings.write_bytes(msgspec.yaml.encode(values))

    def reach(self, url: str) -> None:
        """From the next run on, the CLI looks for its model there."""
        elsewhere = cast(ModelServer, SimpleNamespace(url=url))
        self.kit.prepare(self.home, elsewhere)
        self.environ |= self.kit.environ(elsewhere)

    def __enter__(self) -> Site:
        self.model.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing of the test is left at work. With HOLDFAST_RECORD what the CLI said is kept, for the fast tests."""
        for run in self._begun:
            run.kill()
            run.wait()
        for folder in self.layout.attempts.iterdir() if self.layout.attempts.exists() else ():
            starts.end_all(self.layout.attempt_files(folder.name), folder.name, None, 0.0)
            if RECORD:
                self._record(folder.name)
        self.model.__exit__()

    def _record(self, attempt: str) -> None:
        """As fixtures/CLI/TEST-ATTEMPT.jsonl: one folder of this machine's is as good as another."""
        test = os.environ["PYTEST_CURRENT_TEST"].partition("::")[2].partition("[")[0]
        name = f"{test.removeprefix('test_')}{attempt.removeprefix('T')}.jsonl"
        folder = Path(RECORD) / self.kit.name
        folder.mkdir(parents=True, exist_ok=True)
        said = self.layout.attempt_files(attempt).output.read_bytes() if self.output(attempt) else b""
        (folder / name).write_bytes(said.replace(str(self.top).encode(), b"/top"))

    # -- what a person does -------------------------------------------------------------------------------------------

    def add(self, task: str = "T", goal: str = "Write a.txt.", **more: Any) -> Path:
        """A task's file; returns a.txt in its worktree to be."""
        content = {"id": task, "title": f"Do {task}", "goal": goal, **more}
        (self.layout.backlog_open / f"{task}.yaml").write_bytes(msgspec.yaml.encode(content))
        return self.layout.worktree(task) / "a.txt"

    def environment(self) -> dict[str, str]:
        return {"PATH": ":".join(self.path), **self.environ}

    def holdfast(self, *args: str, code: int | None = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *args],
            cwd=self.repo, env=self.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=WAIT_S, check=False,
        )  # fmt: skip
        told = done.stdout + done.stderr
        assert code is None or done.returncode == code, f"{args}: {done.returncode}\n{told}\n{self.output()[-4000:]}"
        return told

    def run(self, code: int | None = 0) -> str:
        return self.holdfast("run", "--plain", code=code)

    def questions(self) -> list[dict[str, str]]:
        found: list[dict[str, str]] = json.loads(self.holdfast("questions", "--json"))
        return found

    def begin(self, *args: str) -> subprocess.Popen[str]:
        """A run in the background, or another command that stays."""
        run = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *(args or ("run", "--plain"))],
            cwd=self.repo, env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self._begun.append(run)
        return run

    def finished(self, run: subprocess.Popen[str], code: int = 0) -> str:
        told, _ = run.communicate(timeout=WAIT_S)
        assert run.returncode == code, f"{run.returncode}\n{told}\n{self.output()[-4000:]}"
        return told

    def kill_agent(self, attempt: str = "T.1") -> None:
        running = attempt_folder.read_process(self.layout.attempt_files(attempt))
        assert running is not None
        os.kill(running.agent.pid, signal.SIGKILL)

    def finish_without_its_orchestrator(self) -> None:
        """The orchestrator is killed while the model's answer is outstanding; the next one sees the task closed."""
        run = self.begin()
        self.until(lambda: self.model.is_holding, "an answer that is held")
        run.kill()
        run.wait()
        again = self.begin()
        self.until(
            lambda: (owner := live_owner(self.layout.lock)) is not None and owner.pid == again.pid, "the next run"
        )
        self.model.release()
        self.finished(again)

    def finish_after_a_pause(self) -> None:
        """The pause is as long as the server asks for, or as the settings say; a new orchestrator keeps it."""
        run = self.begin()
        self.until(lambda: self.state.tasks["T"].not_before > 0 if self.state.tasks else False, "the pause")
        not_before = self.task.not_before
        run.kill()
        run.wait()
        assert not_before > time.time() and self.task.state is TaskState.OPEN
        refused = max(each.at for each in self.model.requests if each.is_limited)
        assert PAUSE_S - 1 <= not_before - refused < LONG_S / 2, "it is another pause"
        self.model.skip()
        self.finished(self.begin())
        (answered, *_) = [each for each in self.model.requests if each.at > refused]
        assert answered.at >= not_before and self.task.start.number == 2 and self.task.attempts == 1

    def pass_minute(self) -> None:
        """Where the CLI needs it: its own clock is not set by a test."""
        begun = time.time() // 60
        self.until(lambda: not self.kit.names_by_minute or time.time() // 60 > begun, "the next minute")

    # -- what there is to see -----------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return read_state(self.layout)[0]

    @property
    def task(self) -> Task:
        return self.state.tasks["T"]

    def records(self, name: str, attempt: str = "T.1") -> list[dict[str, Any]]:
        """The lines of turns, traces, spend, provenance or events."""
        path = getattr(self.layout.attempt_files(attempt), name)
        return [dict(line.record) for line in LineLedger(path).read()] if path.exists() else []

    def output(self, attempt: str = "T.1") -> str:
        path = self.layout.attempt_files(attempt).output
        return path.read_text(errors="replace") if path.exists() else ""

    def spent(self) -> tuple[int, int, float]:
        lines = [
            line for folder in sorted(self.layout.attempts.iterdir()) for line in self.records("spend", folder.name)
        ]
        names = ("tokens_in", "tokens_out", "usd")
        into, out, usd = (sum(line[name] for line in lines) for name in names)
        return into, out, usd

    def is_in_home(self, text: str) -> bool:
        """Whether the CLI has it in a file of its own."""
        return subprocess.run(["grep", "-rqaF", text, str(self.home)], check=False).returncode == 0

    def landed(self, file: str = "a.txt") -> str:
        return git(self.repo, "show", f"main:{file}")

    def sound(self) -> None:
        self.holdfast("check")

    def until(self, is_so: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < deadline, f"waited in vain: {what}\n{self.output()[-4000:]}"
            time.sleep(0.05)


_PASSING = ("<session_context>", "<total_tokens>")


def talk(request: Request) -> list[tuple[str, Any]]:
    """Without what a CLI says anew each time: of itself and its folder, and of the tokens that are left."""
    return [(role, part) for role, part in request.parts if not str(part.get("text", "")).startswith(_PASSING)]


def timed(tmp_path: Path, kit: Kit) -> tuple[Site, SetClock]:
    site, clock = Site(tmp_path, kit), SetClock(tmp_path)
    site.environ |= clock.env
    return site, clock


def suspended(site: Site, clock: SetClock) -> None:
    """All stand still while an answer is outstanding, for longer than the heartbeat may be; then it comes."""
    run = site.begin()
    site.until(lambda: site.model.is_holding, "an answer that is held")
    suspend(run, clock, 3600)
    signs = site.layout.attempt_files("T.1").alive
    before = signs.stat().st_mtime_ns
    site.until(lambda: signs.stat().st_mtime_ns != before, "a sign of life")
    site.model.release()
    site.finished(run)
