"""The sample repository, its tasks, and the file outside of it to which every step of an agent adds a line."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from holdfast.git import command as git
from holdfast.layout import Layout
from holdfast.storage.files import disk

MAX_AGENTS = 4
STEPS = 4
# Each of these writes a file of its own, one line in each step; the tasks in its list must have landed first.
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
# How many lines the steps of all tasks add when none is done twice.
ALL_STEPS = STEPS * len(PLAIN) + 2 + 2 + 1


@dataclass(frozen=True)
class SampleStep:
    """One line of the file outside: the attempt, the number of the step in it, and the agent's pid."""

    attempt: str
    number: int
    pid: int


class Sample:
    """A repository in a folder of its own, with a home of its own: nothing of the user's is read or written."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.repo = folder, folder / "repo"
        self.layout = Layout(self.repo / ".sdd")
        self.log = folder / "run.log"
        self._steps, self._allowed = folder / "steps", folder / "allowed"

    def make(self) -> None:
        disk.mkdir(self.repo)
        self.git("init", "-q", "-b", "main")
        for key, value in (("user.name", "Holdfast demo"), ("user.email", "demo@localhost")):
            self.git("config", key, value)
        page = "\n".join(["title", *map(str, range(20)), "footer"]) + "\n"
        for name, text in (("README.md", "A sample project.\n"), (".gitignore", "/.sdd/\n"), ("page.txt", page)):
            disk.replace(self.repo / name, text.encode(), disk.COMMON_FILE)
        disk.replace(self._steps, b"")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "A page")

    def add_tasks(self) -> None:
        """Adds the settings and the tasks, once the repository has a data root."""
        # The agents write to the file outside of their worktree, and need no server; both would slow the demo down.
        values = {"max_agents": MAX_AGENTS, "max_resumes": 50, "sandbox": "none", "server": {"enabled": False}}
        disk.replace(self.layout.settings, msgspec.yaml.encode(values))
        for name, needed in PLAIN.items():
            steps = [self._step(number, f"echo '{name} {number}' >> {name}.txt") for number in range(1, STEPS + 1)]
            self._add(name, f'test "$(wc -l < {name}.txt)" = {STEPS}', script="\n".join(steps), depends_on=needed)
        for name, line in (("title", "1"), ("footer", "$")):
            script = "\n".join([self._step(1, f"sed -i '{line}s/.*/a {name}/' page.txt"), self._step(2, "true")])
            self._add(name, f"grep -qx 'a {name}' page.txt", script=script, priority=1)
        self._add("numbers", 'test "$(wc -l < numbers.txt)" = 100', command="seq 100 > numbers.txt")
        answers = ("attempt 1: write answer.txt 41", "attempt 2+: write answer.txt 42")
        self._add("answer", "grep -qx 42 answer.txt", script="\n".join(answers), priority=1)
        script = self._step(1, "ls *.txt > release.txt")
        self._add("release", "test -s release.txt", script=script, depends_on=[*PLAIN, *OTHERS])

    def _add(self, name: str, check: str, **more: Any) -> None:
        content = {"title": f"Make {name}", "verify": [check], **more}
        disk.replace(self.layout.backlog_open / f"{name}.yaml", msgspec.yaml.encode(content))

    def _step(self, number: int, command: str) -> str:
        """A turn that changes the tree, adds its line, and ends when that line is allowed, or the demo is gone."""
        steps, allowed = shlex.quote(str(self._steps)), shlex.quote(str(self._allowed))
        line = f"echo $HOLDFAST_ATTEMPT {number} $PPID >> {steps}; own=$(wc -l < {steps})"
        wait = f'while read -r most < {allowed} && test "$own" -gt "$most" && kill -0 {os.getpid()} 2> /dev/null'
        return f"run {command}; {line}; {wait}; do sleep 0.05; done"

    def allow(self, lines: int) -> None:
        """Lets the steps up to this line end."""
        disk.replace(self._allowed, f"{lines}\n".encode())

    def steps(self) -> list[SampleStep]:
        text = self._steps.read_text()
        lines = text[: text.rfind("\n") + 1].splitlines()
        return [SampleStep(attempt, int(number), int(pid)) for attempt, number, pid in map(str.split, lines)]

    def git(self, *args: str, cwd: Path | None = None) -> str:
        home = str(self.folder)
        env = git.environment({"core.logAllRefUpdates": "true"}, HOME=home, XDG_CONFIG_HOME=home)
        return git.run(*args, cwd=cwd or self.repo, env=env).line

    def environment(self, **more: str) -> dict[str, str]:
        """The environment for `holdfast` in the sample, without the user's own settings."""
        ours = ("HOLDFAST_", "GIT_", "XDG_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return {**kept, "HOME": str(self.folder), **more}

    def landed(self) -> list[str]:
        """The task of each landing, oldest first."""
        text = self.git("log", "--reverse", "--format=%(trailers:key=Holdfast-Task,valueonly,separator=)", "main")
        return [line for line in text.splitlines() if line]
